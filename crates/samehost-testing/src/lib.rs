//! What the tests of several crates share. No part of the program depends on it.

mod bend;
mod report;

pub use bend::{bent, random};
pub use report::idle_or_failing;
