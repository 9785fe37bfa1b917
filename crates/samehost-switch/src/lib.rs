//! Moves connections from TCP to a Unix socket or back: the plan, the trial of each connection, and the steps of a switch.
//! Which bytes change is for the editors to say; the files are written by `samehost-transaction`.

mod apply;
mod check;
mod disk;
mod drift;
mod foretold;
mod plan;
mod preflight;
mod redacted;
mod reload;
mod report;

pub use apply::{Around, Confirm, Page, apply, left};
pub use disk::{Disk, Reads};
pub use drift::{Held, drift};
pub use foretold::foretold;
pub use plan::{
    ConfigFileError, Direction, FinishError, Plan, SwitchRequest, clients, configurations, finishing, plan,
    refused_since,
};
pub use reload::{ReloadWords, reload};
