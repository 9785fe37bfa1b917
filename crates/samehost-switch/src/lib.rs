//! Moves connections from TCP to a Unix socket or back: plans the changes, tries each connection, and applies the
//! stages. The editors of `samehost-edit` decide which bytes change; `samehost-transaction` writes the files.

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
