//! Redis and what behaves like it: being let in, and asking.

mod dialogue;
#[cfg(test)]
mod mutated;
pub mod resp;

pub use dialogue::{Account, Dialogue, Identity, Seen, advice};
