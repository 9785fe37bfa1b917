//! Reproduces the published experiments: the registry, the run, and the judgement of each claim.

mod claims;
mod congestion;
mod published;
mod run;

pub use published::{Published, chosen};
pub use run::{Reproducer, planned};
