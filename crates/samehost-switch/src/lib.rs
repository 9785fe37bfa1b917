//! Moves connections from TCP to a Unix socket or back: plans the changes, tries each connection, and applies the
//! stages. The editors of `samehost-edit` decide which bytes change; `samehost-transaction` writes the files.

mod apply;
mod check;
mod configuration;
mod disk;
mod findings;
mod health;
mod later;
mod old_place;
mod own_times;
mod place;
mod plan;
mod preflight;
mod reload;
mod report;
mod request;
mod usage;

pub use apply::{Confirm, Environment, Page, apply, left_undone};
pub use configuration::config_file::ConfigFileError;
pub use configuration::target::configurations;
pub use disk::{Disk, Reads};
pub use health::{CheckedFile, drift, health};
pub use later::{FinishError, finishing, refused_since};
pub use own_times::{LOOK, OwnLooks, look_again};
pub use plan::{Plan, plan};
pub use reload::{ReloadWords, reload};
pub use report::preview;
pub use request::{Direction, SwitchRequest};
pub use usage::{Seen, Usage, clients, followed};
