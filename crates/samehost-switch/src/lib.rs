//! Moves connections from TCP to a Unix socket or back: plans the changes, tries each connection, and applies the
//! stages. The editors of `samehost-edit` decide which bytes change; `samehost-transaction` writes the files.

mod apply;
mod check;
mod disk;
mod drift;
mod health;
mod plan;
mod preflight;
mod preview;
mod redacted;
mod reload;
mod report;
mod usage;

pub use apply::{Confirm, Environment, Page, apply, left_undone};
pub use disk::{Disk, Reads};
pub use drift::{CheckedFile, drift};
pub use health::health;
pub use plan::{
    ConfigFileError, Direction, FinishError, Plan, SwitchRequest, clients, configurations, finishing, plan,
    refused_since,
};
pub use preview::preview;
pub use reload::{ReloadWords, reload};
pub use usage::{Seen, Usage, followed};
