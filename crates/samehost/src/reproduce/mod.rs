//! Reproduces the published experiments: the registry, the run, the judgement of each claim, and results
//! stored so that an interrupted run can continue.

mod claims;
mod conclude;
mod congestion;
mod published;
mod race;
mod run;
mod store;

pub use published::{Published, chosen};
pub use race::next;
pub use run::{Reproducer, planned};
pub use store::{FOLDER, Store};
