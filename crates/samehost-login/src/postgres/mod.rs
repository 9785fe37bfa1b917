//! PostgreSQL: login, and queries about the connection.

mod logged_in;
mod login;
pub mod messages;
#[cfg(test)]
mod mutated;
mod own_files;

pub use logged_in::{LoggedIn, Row, Seen};
pub use login::{Account, PASSWORD, SslMode, advice, unsaid};
pub use own_files::{Defaults, FoundPassword, Login, OwnFiles, PasswordPlace, password_for, with_service};
