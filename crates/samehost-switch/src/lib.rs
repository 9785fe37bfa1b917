//! Moves connections from TCP to a Unix socket or back: the plan, the trial of each connection, and the steps of a switch.
//! Which bytes change is for the editors to say; the files are written by `samehost-transaction`.

mod carry_out;
mod check;
mod disk;
mod drift;
mod foretold;
mod plan;
mod preflight;
mod redacted;
mod reload;
mod told;

pub use carry_out::{Around, Confirm, Page, carry_out, left};
pub use disk::{Disk, Reads};
pub use drift::{Held, drift};
pub use foretold::foretold;
pub use plan::{
    ConfigFileError, Direction, FinishError, Plan, SwitchRequest, clients, configurations, finishing, plan,
    refused_since,
};
pub use reload::{ReloadWords, reload};
