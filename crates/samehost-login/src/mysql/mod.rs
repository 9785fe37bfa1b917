//! MySQL and MariaDB: login, and queries about the connection.

mod dialogue;
mod login;
#[cfg(test)]
mod login_tests;
#[cfg(test)]
mod mutated;
mod option_file;
pub mod packet;

pub use dialogue::{Account, Dialogue, QUERY, Reply, Seen, advice};
pub use login::Greeting;
pub use option_file::{OptionFile, Surroundings};
