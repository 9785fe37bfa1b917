//! PostgreSQL: login, and queries about the connection.

mod defaults;
mod logged_in;
mod login;
pub mod messages;
#[cfg(test)]
mod mutated;
mod own_files;
mod password;
mod service;

pub use defaults::Defaults;
pub use logged_in::{LoggedIn, Row, Seen};
pub use login::{Account, PASSWORD, SslMode, advice, unsaid};
pub use own_files::{FoundPassword, OwnFiles, PasswordPlace, password_for};
pub use password::Login;
pub use service::with_service;
