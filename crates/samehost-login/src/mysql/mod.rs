//! MySQL and MariaDB: login, and queries about the connection.

mod dialogue;
mod login;
#[cfg(test)]
mod login_tests;
#[cfg(test)]
mod mutated;
pub mod packet;

pub use dialogue::{Account, Dialogue, QUERY, Reply, Seen, advice};
pub use login::{Greeting, OptionFile, Surroundings};
