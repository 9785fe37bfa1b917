//! A server that a user names, read once: where it is, the login, and what else its URL says.

use std::fmt;

use samehost_model::Endpoint;

use crate::credentials::Credentials;

/// A server and the login. No format of it shows a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerAddress {
    pub endpoint: Endpoint,
    pub credentials: Credentials,
    /// Of PostgreSQL.
    pub sslmode: SslMode,
    /// What a URL of HTTP asks for; `None` where an endpoint is named alone.
    pub page: Option<Page>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Page {
    /// Path and query, as written; they may hold a token.
    pub target: String,
    pub host: String,
}

/// Leaves out the password and a page's target.
impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Credentials { user, database, .. } = &self.credentials;
        write!(f, "{} user {user:?} database {database:?}", self.endpoint)
    }
}

/// TLS of a connection to a TCP endpoint (libpq's sslmode). A `tcp+tls` endpoint always has TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslMode {
    /// The default here, because TLS is a transport of its own.
    #[default]
    Disable,
    Prefer,
    Require,
}

impl ServerAddress {
    #[must_use]
    pub fn new(endpoint: Endpoint, credentials: Credentials) -> Self {
        ServerAddress { endpoint, credentials, sslmode: SslMode::default(), page: None }
    }

    #[must_use]
    pub fn open(endpoint: Endpoint) -> Self {
        Self::new(endpoint, Credentials::default())
    }

    /// The same server over TLS, if this is its TCP port.
    #[must_use]
    pub fn over_tls(&self) -> Self {
        let mut address = self.clone();
        if let Endpoint::Tcp { host, port } = &self.endpoint {
            address.endpoint = Endpoint::TcpTls { host: host.clone(), port: *port };
        }
        address
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::Secret;

    use super::*;

    #[test]
    fn nothing_shows_a_password_or_what_a_page_is_asked_for() {
        let credentials = Credentials {
            user: Some("bob".into()),
            password: Some(Secret::new("hunter2")),
            database: Some("shop".into()),
        };
        let page = Some(Page { target: "/?token=hunter2".into(), host: "h".into() });
        let address =
            ServerAddress { page, ..ServerAddress::new("tcp:127.0.0.1:5432".parse().unwrap(), credentials) };
        let shown = format!("{address:?} {:?}", address.over_tls());
        assert!(shown.contains("tcp+tls:127.0.0.1:5432") && shown.contains("bob"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
