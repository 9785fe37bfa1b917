//! What is spoken at an endpoint.

use std::fmt;

/// A protocol that samehost can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// MySQL or MariaDB.
    Mysql,
    /// PostgreSQL.
    Postgres,
    /// Redis or Valkey.
    Redis,
    /// memcached.
    Memcached,
    /// HTTP.
    Http,
    /// gRPC, over HTTP/2.
    Grpc,
    /// FastCGI.
    FastCgi,
    /// uwsgi, the binary protocol of uWSGI.
    Uwsgi,
    /// None that is known: a plain endpoint.
    Plain,
}

impl Protocol {
    /// Its name in JSON and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Mysql => "mysql",
            Protocol::Postgres => "postgres",
            Protocol::Redis => "redis",
            Protocol::Memcached => "memcached",
            Protocol::Http => "http",
            Protocol::Grpc => "grpc",
            Protocol::FastCgi => "fastcgi",
            Protocol::Uwsgi => "uwsgi",
            Protocol::Plain => "plain",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
