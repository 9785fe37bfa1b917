//! Moves connections from TCP to a Unix socket or back: plans the changes, tries each connection, and applies the
//! stages. The editors of `samehost-edit` decide which bytes change; `samehost-transaction` writes the files.

mod apply;
mod check;
mod configuration;
mod disk;
mod findings;
mod health;
mod old_place;
mod place;
mod plan;
mod reload;
mod report;
mod request;
mod stored;
mod usage;

pub use apply::{apply, left_undone};
pub use configuration::ConfigFileError;
pub use configuration::target::configurations;
pub use disk::{Disk, Reads};
pub use health::{CheckedFile, drift, health};
pub use plan::{Plan, plan};
pub use reload::ReloadWords;
pub use reload::carry_out::reload;
pub use report::preview;
pub use request::{Confirm, Direction, Environment, Page, PageError, SwitchRequest};
pub use stored::{FinishError, LOOK, OwnLooks, finishing, look_again, refused_since};
pub use usage::{Seen, Usage, clients, followed};
