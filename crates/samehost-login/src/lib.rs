//! Logs in to a server as an application would, and asks what it sees of the connection: MySQL and MariaDB,
//! PostgreSQL, Redis and servers that behave like it, memcached. To HTTP, FastCGI and others it only connects. It
//! changes nothing on a server, prints nothing, and sends a password to no other process than the server.
//!
//! Start reading at [`log_in()`]. `credentials` and `destination` read URLs, `address` is what comes of them, `tie` verifies the peer
//! against `expected`, and each protocol has a folder. `log_in_as` connects as another user.

mod address;
mod credentials;
mod destination;
mod error;
mod expected;
mod link;
mod log_in;
mod log_in_as;
pub mod memcached;
pub mod mysql;
mod own_files;
mod passwords;
pub mod postgres;
pub mod redis;
#[cfg(test)]
mod replayed;
mod rights;
mod tie;
pub mod url;

pub use address::{Page, ServerAddress, SslMode};
pub use credentials::Credentials;
pub use destination::{Destination, DestinationError, MYSQL_SOCKET_OPTIONS};
pub use error::{CredentialsError, LoginError, LoginErrorKind, Refused, Untied, UntiedClass};
pub use expected::{Expected, Known};
pub use link::{Encrypted, Link, prove};
pub use log_in::{Connection, View, log_in};
pub use log_in_as::{As, log_in_as, switch_and_connect};
pub use passwords::{OPEN, sent_passwords};
pub use rights::missing as missing_rights;
