//! What a client asks for beside an address: the library by which it connects, and the words of its configuration about
//! encryption and about where a login stands. What a library makes of such a word over a Unix socket is said here once.
//!
//! Measured against PostgreSQL 15 and MariaDB 10.11 with TLS, over their Unix sockets: psql 15 passes over `sslmode` in
//! every value and fails with `channel_binding=require` and `gssencmode=require`; pg 8 of Node fails with each `sslmode` but
//! `disable` (with `prefer` as well), with `ssl=true` and with each file of a certificate; PHP's mysqlnd fails where it is
//! to use TLS; mysql2 and mariadb of Node, and MariaDB's C library, have TLS over the socket. Read in their sources: pgx
//! passes over TLS as libpq does, lib/pq, tokio-postgres (Prisma), postgres.js and asyncpg fail.

use std::path::{Path, PathBuf};

use samehost_model::Protocol;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Library {
    #[default]
    Unknown,
    /// PostgreSQL's own: psycopg, Ruby's pg, PHP's PDO, DBD::Pg.
    Libpq,
    NodePostgres,
    PostgresJs,
    Asyncpg,
    Prisma,
    /// PHP's own client of MySQL.
    Mysqlnd,
    /// The pooler, which asks for no TLS over a Unix socket.
    PgBouncer,
}

/// A word about encryption or the login, as it stands in a configuration or an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub name: String,
    pub value: String,
    pub file: PathBuf,
    /// From 1.
    pub line: u32,
}

impl Word {
    #[must_use]
    pub fn new(name: impl Into<String>, value: impl Into<String>, file: &Path, line: u32) -> Self {
        Word { name: name.into(), value: value.into(), file: file.to_owned(), line }
    }
}

/// What a library makes of a word about encryption over a Unix socket.
/// It was measured with PostgreSQL 15 and MariaDB 10.11: psql with `sslmode=require` connects in the
/// clear, and fails with `channel_binding=require`; pg of Node fails with each `sslmode` but `disable`;
/// mysql2 and mariadb of Node connect with TLS. A trial over TLS at the socket was rejected, because
/// PostgreSQL answers `N` whoever asks, and the library decides who goes on then (docs/decisions/0132).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverSocket {
    Connects,
    /// It fails, and prints this.
    Fails(&'static str),
    /// Some libraries connect and some fail, and which one it is is not known.
    Depends,
}

/// Parameters of libpq, with the variables of the environment for them.
pub const LIBPQ_WORDS: &[(&str, &str)] = &[
    ("sslmode", "PGSSLMODE"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("gssencmode", "PGGSSENCMODE"),
    ("requiressl", "PGREQUIRESSL"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("service", "PGSERVICE"),
    ("passfile", "PGPASSFILE"),
];

/// The parameter that a word is, whether as libpq's variable or by its own name.
#[must_use]
pub fn parameter(name: &str) -> &str {
    LIBPQ_WORDS.iter().find(|(_, variable)| *variable == name).map_or(name, |(parameter, _)| parameter)
}

const NO_BINDING: &str = "channel binding required, but SSL not in use";
const NO_GSSAPI: &str = "GSSAPI encryption required but it is not supported over a local socket";
const NO_TLS_NODE: &str = "The server does not support SSL connections";
const NO_TLS_RUST: &str = "error performing TLS handshake: server does not support TLS";
const NO_TLS_ASYNCPG: &str = "`ssl` parameter can only be enabled for TCP addresses, got a UNIX socket path";
const NO_TLS_POSTGRES_JS: &str =
    "Client network socket disconnected before secure TLS connection was established";
const NO_TLS_MYSQLND: &str = "Cannot connect to MySQL using SSL";

impl Library {
    /// What it makes of a word over a Unix socket of PostgreSQL.
    #[must_use]
    pub fn of_postgres(self, word: &Word) -> OverSocket {
        let value = word.value.as_str();
        let is_demand = matches!(value, "require" | "verify-ca" | "verify-full");
        match (self, parameter(&word.name)) {
            (Library::NodePostgres, "sslmode") => fails_if(value != "disable", NO_TLS_NODE),
            (Library::NodePostgres, "ssl") => fails_if(!matches!(value, "0" | "false"), NO_TLS_NODE),
            (Library::NodePostgres, "sslcert" | "sslkey" | "sslrootcert") => OverSocket::Fails(NO_TLS_NODE),
            // It takes neither of the two for a word of its own.
            (Library::NodePostgres, "channel_binding" | "gssencmode") => OverSocket::Connects,
            (Library::PostgresJs, "ssl" | "sslmode") => {
                fails_if(!matches!(value, "disable" | "false" | "prefer"), NO_TLS_POSTGRES_JS)
            }
            (Library::Asyncpg, "sslmode" | "ssl") => fails_if(is_demand || value == "prefer", NO_TLS_ASYNCPG),
            (Library::Prisma, "sslmode") => fails_if(is_demand, NO_TLS_RUST),
            (Library::Libpq | Library::Unknown, "channel_binding") => {
                fails_if(value == "require", NO_BINDING)
            }
            (Library::Libpq | Library::Unknown, "gssencmode") => fails_if(value == "require", NO_GSSAPI),
            (Library::Unknown, "sslmode") if is_demand => OverSocket::Depends,
            (Library::Unknown, "ssl") if !matches!(value, "0" | "false") => OverSocket::Depends,
            _ => OverSocket::Connects,
        }
    }

    /// What it makes of a word over a Unix socket of MySQL, where TLS can be had as well.
    #[must_use]
    pub fn of_mysql(self, word: &Word) -> OverSocket {
        let is_demand = matches!(
            word.name.as_str(),
            "MYSQL_ATTR_SSL_CA" | "MYSQL_ATTR_SSL_CERT" | "MYSQL_ATTR_SSL_KEY" | "MYSQL_CLIENT_FLAGS"
        );
        let is_set = !word.value.is_empty() && word.value != "null";
        if self == Library::Mysqlnd && is_demand && is_set {
            return OverSocket::Fails(NO_TLS_MYSQLND);
        }
        OverSocket::Connects
    }

    /// Whether it may ask for TLS over TCP and connect without it over a Unix socket: that a present connection has TLS says
    /// nothing then. Prisma's default is `prefer`.
    #[must_use]
    pub fn does_without_tls(self) -> bool {
        matches!(self, Library::Libpq | Library::Prisma | Library::Asyncpg | Library::PgBouncer)
    }

    /// What it prints where it asks for TLS in its code, over a Unix socket of PostgreSQL.
    #[must_use]
    pub fn without_tls(self) -> Option<&'static str> {
        match self {
            Library::NodePostgres => Some(NO_TLS_NODE),
            Library::PostgresJs => Some(NO_TLS_POSTGRES_JS),
            _ => None,
        }
    }

    /// Whether it looks for a password in `~/.pgpass` by itself.
    #[must_use]
    pub fn reads_password_file(self) -> bool {
        !matches!(self, Library::PostgresJs | Library::Prisma | Library::Mysqlnd | Library::PgBouncer)
    }

    #[must_use]
    pub fn without_password(self) -> &'static str {
        match self {
            Library::NodePostgres => "SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string",
            _ => "fe_sendauth: no password supplied",
        }
    }

    #[must_use]
    pub(crate) fn of_php(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Mysql => Library::Mysqlnd,
            Protocol::Postgres => Library::Libpq,
            _ => Library::Unknown,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Library::Unknown => "its library",
            Library::Libpq => "libpq",
            Library::NodePostgres => "pg of Node",
            Library::PostgresJs => "postgres of Node",
            Library::Asyncpg => "asyncpg",
            Library::Prisma => "Prisma",
            Library::Mysqlnd => "PHP's mysqlnd",
            Library::PgBouncer => "PgBouncer",
        }
    }
}

fn fails_if(fails: bool, sentence: &'static str) -> OverSocket {
    if fails { OverSocket::Fails(sentence) } else { OverSocket::Connects }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &str, value: &str) -> Word {
        Word::new(name, value, Path::new("/x"), 1)
    }

    #[test]
    fn one_word_is_nothing_to_one_library_and_an_outage_to_another() {
        use OverSocket::{Connects, Depends, Fails};
        for (library, name, value, expected) in [
            (Library::Libpq, "sslmode", "verify-full", Connects),
            (Library::Libpq, "PGSSLMODE", "require", Connects),
            (Library::Libpq, "PGCHANNELBINDING", "require", Fails(NO_BINDING)),
            (Library::Libpq, "channel_binding", "prefer", Connects),
            (Library::Libpq, "gssencmode", "require", Fails(NO_GSSAPI)),
            (Library::NodePostgres, "sslmode", "prefer", Fails(NO_TLS_NODE)),
            (Library::NodePostgres, "PGSSLMODE", "require", Fails(NO_TLS_NODE)),
            (Library::NodePostgres, "sslmode", "disable", Connects),
            (Library::NodePostgres, "ssl", "true", Fails(NO_TLS_NODE)),
            (Library::NodePostgres, "ssl", "0", Connects),
            (Library::Prisma, "sslmode", "prefer", Connects),
            (Library::Prisma, "sslmode", "require", Fails(NO_TLS_RUST)),
            (Library::Unknown, "sslmode", "require", Depends),
            (Library::Unknown, "sslmode", "prefer", Connects),
            (Library::Unknown, "application_name", "require", Connects),
        ] {
            assert_eq!(library.of_postgres(&word(name, value)), expected, "{library:?} {name}={value}");
        }
        let ca = word("MYSQL_ATTR_SSL_CA", "/etc/ca.pem");
        assert_eq!(Library::Mysqlnd.of_mysql(&ca), Fails(NO_TLS_MYSQLND));
        assert_eq!(Library::Mysqlnd.of_mysql(&word("MYSQL_ATTR_SSL_CA", "")), Connects);
        assert_eq!(Library::Unknown.of_mysql(&ca), Connects);
    }
}
