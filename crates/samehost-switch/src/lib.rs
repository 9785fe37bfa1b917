//! Moves connections from TCP to a Unix socket or back: plans the changes, tries each connection, and applies the
//! stages. The editors of `samehost-edit` decide which bytes change; `samehost-transaction` writes the files.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod apply;
mod changed_lines;
mod check;
mod configuration;
mod descriptors;
mod disk;
mod findings;
mod health;
mod left_place;
mod neighbours;
mod old_place;
mod place;
mod plan;
mod reload;
mod report;
mod request;
mod stored;
mod usage;
mod way_back;

pub use apply::{apply, files_in_words, left_undone};
pub use configuration::ConfigFileError;
pub use configuration::target::configurations;
pub use disk::{Disk, Reads};
pub use findings::stays_open;
pub use health::{CheckedFile, drift, health};
pub use plan::{Decider, PASSED, Plan, plan};
pub use reload::carry_out::reload;
pub use reload::{ReloadWords, Whose};
pub use report::preview;
pub use request::{Direction, Environment, Page, PageError, SwitchRequest};
pub use samehost_edit::Setting;
pub use stored::{FinishError, LOOK, OwnLooks, finishing, left_open, look_again, new_places, refused_since};
pub use usage::{Connecting, Seen, Usage, connecting, connecting_services, followed};
pub use way_back::{WAY_BACK, not_back, would_not_be_back};
