//! The published experiments, made again: the registry of what was published, the run, what it says of each claim, and
//! the results kept for an interrupted run to go on with.

mod busy;
mod claims;
mod congestion;
mod experiments;
mod published;
mod run;
mod store;

pub use experiments::chosen;
pub use published::Published;
pub use run::{Reproducer, planned};
pub use store::Store;
