//! Redis and servers that behave like it: login, and queries about the connection.

mod dialogue;
#[cfg(test)]
mod mutated;
pub mod resp;

pub use dialogue::{Account, Dialogue, Identity, Seen, advice};
