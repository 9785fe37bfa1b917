//! What the tests of several crates share. No part of the program depends on it.

mod bend;
mod destinations;
mod report;

pub use bend::{bent, random};
pub use destinations::{DESTINATIONS, NO_DESTINATIONS};
pub use report::idle_or_failing;
