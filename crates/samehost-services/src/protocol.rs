//! What is spoken at an endpoint, what is known of all services that speak it, and the schemes of URLs that lead to it.

use std::fmt;

use serde::Deserialize;

use crate::{Descriptor, Kind, Localhost};

/// A protocol that samehost can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// MySQL or MariaDB.
    Mysql,
    Postgres,
    /// Redis and those that speak as it does.
    Redis,
    Memcached,
    Http,
    /// gRPC, over HTTP/2.
    Grpc,
    FastCgi,
    /// uwsgi, the binary protocol of uWSGI.
    Uwsgi,
    /// statsd and DogStatsD: metrics in datagrams.
    Statsd,
    /// syslog, in datagrams.
    Syslog,
    /// MongoDB's wire protocol. It has clients for `how`, and no login.
    Mongodb,
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
            Protocol::Statsd => "statsd",
            Protocol::Syslog => "syslog",
            Protocol::Mongodb => "mongodb",
            Protocol::Plain => "plain",
        }
    }

    /// Whether its servers ask for a login, so that a secret is sent in it.
    #[must_use]
    pub fn has_login(self) -> bool {
        !matches!(self, Protocol::Http | Protocol::Grpc | Protocol::FastCgi | Protocol::Uwsgi)
            && !self.is_datagram()
    }

    /// Whether it is spoken in datagrams that nobody acknowledges: over UDP, or over a Unix datagram socket.
    #[must_use]
    pub fn is_datagram(self) -> bool {
        matches!(self, Protocol::Statsd | Protocol::Syslog)
    }

    /// The accounts that packages make for its servers and for what stands before them; none where nobody logs in.
    #[must_use]
    pub fn accounts(self) -> Vec<&'static str> {
        self.listed(|known| [&known.accounts, &known.others.accounts])
    }

    /// How the units of its servers and of what stands before them begin; none where nobody logs in.
    #[must_use]
    pub fn units(self) -> Vec<&'static str> {
        self.listed(|known| [&known.units, &known.others.units])
    }

    /// The programs of its packages that are clients.
    #[must_use]
    pub fn tools(self) -> Vec<&'static str> {
        self.listed(|known| [&known.tools, &known.others.tools])
    }

    /// Where its clients look for a socket when none is named, the most usual first. `{port}` stands for the port.
    pub fn default_sockets(self) -> impl Iterator<Item = &'static str> {
        let kinds = Kind::of_protocol(self).into_iter();
        kinds.flat_map(|kind| &kind.descriptor().default_sockets).map(String::as_str)
    }

    /// What its services have in two lists, each word once; nothing where nobody logs in.
    fn listed(self, lists: fn(&'static Descriptor) -> [&'static Vec<String>; 2]) -> Vec<&'static str> {
        let mut words: Vec<&str> = Vec::new();
        if !self.has_login() {
            return words;
        }
        for kind in Kind::of(self) {
            for word in lists(kind.descriptor()).into_iter().flatten() {
                if !words.contains(&word.as_str()) {
                    words.push(word);
                }
            }
        }
        words
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a URL of a scheme leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// A host and a port, unless the URL names a socket.
    Tcp,
    /// The same with TLS.
    Tls,
    /// A socket.
    Socket,
}

/// What is spoken at a URL of this scheme, and what it leads to; none where no service has the scheme.
#[must_use]
pub fn scheme(name: &str) -> Option<(Protocol, Leads)> {
    for kind in Kind::all() {
        if let Some(leads) = kind.descriptor().schemes.leads(name)
            && let Some(protocol) = kind.protocol().or(kind.descriptor().clients_speak)
        {
            return Some((protocol, leads));
        }
    }
    None
}

/// The scheme that names the protocol alone: `jdbc:mysql`, `mysql+pymysql`, `mysql2`, `db+mysql` and `pdo-mysql` are how JDBC, SQLAlchemy,
/// Rails, Celery and Doctrine spell mysql. Itself where no service has one of its parts.
#[must_use]
pub fn plain_scheme(written: &str) -> String {
    let written = written.strip_prefix("jdbc:").unwrap_or(written);
    if scheme(written).is_some() {
        return written.to_owned();
    }
    for part in written.split('+') {
        let part = part.strip_prefix("pdo-").or(part.strip_prefix("pdo_")).unwrap_or(part);
        let name = match part.trim_end_matches(|letter: char| letter.is_ascii_digit()) {
            "pgsql" => "postgres",
            "mysqli" => "mysql",
            other => other,
        };
        if scheme(name).is_some() {
            return name.to_owned();
        }
    }
    written.to_owned()
}

/// What `localhost` means to who takes such a text, a URL or a DSN: JDBC, ADO.NET, Go, and SQLAlchemy's drivers that are written in
/// Python (docs.sqlalchemy.org/en/20/dialects/mysql.html) connect over TCP where libmysqlclient, and so PDO and DBI, takes its default
/// socket. `None` where the spelling does not say whose it is.
#[must_use]
pub fn localhost_in(text: &str) -> Option<Localhost> {
    let text = text.to_ascii_lowercase();
    let of_python = ["pymysql", "aiomysql", "asyncmy", "mysqlconnector"];
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let is_pythons =
        scheme.and_then(|scheme| scheme.split_once('+')).is_some_and(|(_, own)| of_python.contains(&own));
    let is_gos = text.contains("@tcp(") || text.contains("@(");
    let is_of_c = scheme.is_none() && ["mysql:", "dbi:"].iter().any(|start| text.starts_with(start));
    let is_ado = scheme.is_none() && ["server=", "data source="].iter().any(|start| text.starts_with(start));
    if is_of_c {
        return Some(Localhost::Socket);
    }
    (text.starts_with("jdbc:") || is_pythons || is_gos || is_ado).then_some(Localhost::Tcp)
}

/// What clients of PostgreSQL do that ask for TLS at a socket, where there is none.
pub const ASKED_FOR_TLS_ON_A_SOCKET: &str =
    "libpq and pgx go without there, pg of Node, lib/pq, Prisma, asyncpg and others fail";

/// Whether a login without a colon in a URL of this scheme is a password.
#[must_use]
pub fn has_bare_password(name: &str) -> bool {
    let mut kinds = Kind::all().map(Kind::descriptor);
    kinds.any(|known| known.bare_password && known.schemes.leads(name).is_some())
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn schemes_lead_to_protocols() {
        assert_eq!(scheme("mariadb"), Some((Protocol::Mysql, Leads::Tcp)));
        assert_eq!(scheme("rediss"), Some((Protocol::Redis, Leads::Tls)));
        assert_eq!(scheme("http+unix"), Some((Protocol::Http, Leads::Socket)));
        assert_eq!(scheme("mongodb"), Some((Protocol::Mongodb, Leads::Tcp)));
        assert_eq!(scheme("unix"), None);
        assert!(has_bare_password("redis+unix") && !has_bare_password("mysql"));
    }
}
