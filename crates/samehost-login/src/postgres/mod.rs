//! PostgreSQL: login, and queries about the connection.

mod defaults;
mod logged_in;
mod login;
pub mod messages;
#[cfg(test)]
mod mutated;
mod password;

pub use defaults::Defaults;
pub use logged_in::{LoggedIn, Row, Seen};
pub use login::{Account, PASSWORD, SslMode, advice, unsaid};
pub use password::{Login, password_for};
