//! What the tests of several crates share. No part of the program depends on it.

mod bend;

pub use bend::{bent, random};
