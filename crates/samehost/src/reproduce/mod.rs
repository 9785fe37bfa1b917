//! The published experiments, made again: the registry of what was published, the run, what it says of each claim, and
//! the results kept for an interrupted run to go on with.

mod busy;
mod claims;
mod conclude;
mod congestion;
mod experiments;
mod published;
mod race;
mod run;
mod share;
mod store;

pub use experiments::chosen;
pub use published::Published;
pub use race::next;
pub use run::{Reproducer, planned};
pub use store::Store;
