//! Logs in to a server as an application would, and asks what it sees of the connection: MySQL and MariaDB,
//! PostgreSQL, Redis and servers that behave like it, memcached. To HTTP, FastCGI and others it only connects. It
//! changes nothing on a server, prints nothing, and sends a password to no other process than the server.
//!
//! Start reading at [`log_in()`]. `credentials` and `destination` read URLs, `address` is what comes of them, `tie` verifies the peer
//! against `expected`, and each protocol has a module. `log_in_as` connects as another user.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod address;
mod credentials;
mod destination;
mod dsn;
mod error;
mod expected;
mod link;
mod log_in;
mod log_in_as;
pub mod memcached;
pub mod mysql;
mod own_files;
pub mod postgres;
pub mod redis;
mod rights;
mod tie;
pub mod url;

pub use address::{Page, ServerAddress, SslMode};
pub use credentials::{Credentials, sent_passwords};
pub use destination::{Destination, DestinationError, MYSQL_SOCKET_OPTIONS};
pub use error::{CredentialsError, LoginError, LoginErrorKind, Malformed, Refused, Untied, UntiedClass};
pub use expected::{Expected, Known};
pub use link::{Encrypted, Link, prove};
pub use log_in::{Connection, View, barred, log_in, not_tried, proved, with_tls_where_needed};
pub use log_in_as::{As, SwitchError, log_in_as, switch_and_connect};
pub use own_files::OPEN;
pub use rights::missing as missing_rights;
