//! How a client in a container names its database server.

use std::path::Path;

use samehost_model::{Endpoint, Protocol, percent_decoded};

use crate::asked::{LIBPQ_WORDS, Library, Word};
use crate::languages::url::{self, Url, is_plain_path};
use crate::lines::has_only;
use crate::refusal::Reason;
use crate::spelling::Spelling;

/// What a container's program gets.
pub(in crate::formats) trait Client {
    fn image(&self) -> Option<&str>;

    /// The value of a variable that is set once; no value where that is filled in elsewhere.
    fn value(&self, name: &str) -> Option<Option<String>>;

    fn is_set(&self, name: &str) -> bool;

    fn has_any(&self, prefix: &str) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::formats) enum Words {
    /// WordPress: `db:3306`, or `localhost:/path`.
    WordPress,
    /// A variable for the socket beside the host, which stays.
    Beside(&'static Beside),
    /// PostgreSQL's directory instead of the host, with the name of the port's variable.
    Directory(&'static str),
    Url(Spelling),
}

/// Variables beside that of a host, of a program that takes the socket where both are set.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::formats) struct Beside {
    pub(in crate::formats) port: &'static str,
    pub(in crate::formats) socket: &'static str,
    login: [&'static str; 3],
}

const LARAVEL: &Beside =
    &Beside { port: "DB_PORT", socket: "DB_SOCKET", login: ["DB_USERNAME", "DB_PASSWORD", "DB_DATABASE"] };
/// Ghost passes all of `database__connection__*` on to mysql2, which prefers `socketPath`.
const GHOST: &Beside = &Beside {
    port: "database__connection__port",
    socket: "database__connection__socketPath",
    login: ["database__connection__user", "database__connection__password", "database__connection__database"],
};

/// Content of a variable: the endpoint, and the names of the variables for user, password and database.
pub(in crate::formats) type Content = (Endpoint, [&'static str; 3]);

/// The host in a value: of a URL, of `host:port`, or the value itself; a path if it names a socket.
pub(crate) fn host_of(value: &str) -> Option<String> {
    if let Some(url) = Url::parse(value) {
        let mut names = ["socket", "unix_socket", "host"].iter();
        let named = names.find_map(|name| url.parameter(name).ok().flatten());
        let host = percent_decoded(&url.host)?;
        return match named {
            Some(path) if path.starts_with('/') => Some(path.to_owned()),
            _ => Some(host),
        };
    }
    if let Some(path) = value.strip_prefix("localhost:").filter(|path| path.starts_with('/')) {
        return Some(path.to_owned());
    }
    if value.starts_with('/') {
        return Some(value.to_owned());
    }
    let host = value.split(':').next().unwrap_or(value);
    if host.is_empty() || !has_only(host, "._-") { None } else { Some(host.to_owned()) }
}

pub(in crate::formats) fn asked(
    client: &dyn Client,
    words: Words,
    protocol: Protocol,
    url: Option<&Url>,
    (file, line): (&Path, u32),
) -> (Library, Vec<Word>) {
    let library = match words {
        Words::WordPress => Library::Mysqlnd,
        Words::Beside(beside) if beside.socket == LARAVEL.socket => Library::Mysqlnd,
        Words::Directory("DB_PORT") | Words::Url(Spelling::EncodedHost) => Library::Libpq,
        _ => Library::Unknown,
    };
    let mut names: Vec<&str> = vec!["MYSQL_ATTR_SSL_CA"];
    if protocol == Protocol::Postgres {
        names = LIBPQ_WORDS.iter().map(|(_, variable)| *variable).collect();
    }
    let mut asked = url.map(|url| url.words(file, line)).unwrap_or_default();
    for name in names {
        if let Some(value) = client.value(name).flatten().filter(|value| !value.is_empty()) {
            asked.push(Word::new(name, value, file, line));
        }
    }
    (library, asked)
}

/// How a client reads a variable; `None` if that is not known.
pub(in crate::formats) fn words(
    client: &dyn Client,
    name: &str,
    value: &str,
    protocol: Protocol,
) -> Option<Words> {
    let mysql = protocol == Protocol::Mysql;
    let connection = client.value("DB_CONNECTION").flatten();
    match name {
        "WORDPRESS_DB_HOST" if mysql && client.image() == Some("wordpress") => Some(Words::WordPress),
        "PGHOST" if !mysql && client.value("PGHOSTADDR").is_none() => Some(Words::Directory("PGPORT")),
        "DB_HOST" => match connection.as_deref() {
            Some("mysql" | "mariadb") if mysql => Some(Words::Beside(LARAVEL)),
            Some("pgsql") if !mysql => Some(Words::Directory("DB_PORT")),
            _ => None,
        },
        "database__connection__host" if mysql && client.image() == Some("ghost") => {
            let with = client.value("database__client").flatten();
            matches!(with.as_deref(), Some("mysql" | "mysql2")).then_some(Words::Beside(GHOST))
        }
        "DATABASE_URL" => {
            // Only Rails has these schemes, or its own variables beside it.
            let scheme = Url::parse(value)?.scheme;
            let rails = client.has_any("RAILS_");
            match scheme.as_str() {
                "mysql2" | "trilogy" if mysql => Some(Words::Url(Spelling::Parameter("socket"))),
                "postgres" | "postgresql" if rails && !mysql => Some(Words::Url(Spelling::EncodedHost)),
                _ => None,
            }
        }
        _ => None,
    }
}

pub(in crate::formats) fn endpoint(
    client: &dyn Client,
    words: Words,
    value: &str,
    protocol: Protocol,
) -> Result<Content, Reason> {
    const UNUSUAL: &str = "its host or port is unusual";
    let usual = url::usual_port(protocol);
    let path = |path: &str| if is_plain_path(path) { Ok(Endpoint::Unix(path.into())) } else { Err(UNUSUAL) };
    Ok(match words {
        Words::WordPress => {
            let endpoint = match value.strip_prefix("localhost:").filter(|rest| rest.starts_with('/')) {
                Some(socket) => path(socket)?,
                None => {
                    let (host, port) = value.split_once(':').unwrap_or((value, "3306"));
                    url::tcp(host, port.parse().map_err(|_| UNUSUAL)?).ok_or(UNUSUAL)?
                }
            };
            (endpoint, ["WORDPRESS_DB_USER", "WORDPRESS_DB_PASSWORD", "WORDPRESS_DB_NAME"])
        }
        Words::Beside(beside) => {
            let socket = match client.value(beside.socket) {
                None => None,
                Some(None) => return Err("the variable of its socket is filled in".into()),
                Some(Some(text)) => {
                    if text.is_empty() {
                        None
                    } else {
                        Some(text)
                    }
                }
            };
            let port = port(client, beside.port, usual)?;
            let endpoint = match socket {
                Some(socket) => path(&socket)?,
                None => url::tcp(value, port).ok_or(UNUSUAL)?,
            };
            (endpoint, beside.login)
        }
        Words::Directory(name) => {
            let port = port(client, name, usual)?;
            let endpoint =
                if value.starts_with('/') { url::postgres_path(value, port) } else { url::tcp(value, port) };
            let names = if name == "PGPORT" {
                ["PGUSER", "PGPASSWORD", "PGDATABASE"]
            } else {
                ["DB_USERNAME", "DB_PASSWORD", "DB_DATABASE"]
            };
            (endpoint.ok_or(UNUSUAL)?, names)
        }
        Words::Url(spelling) => (spelling.read(&Url::parse(value).ok_or(UNUSUAL)?)?.endpoint, [""; 3]),
    })
}

pub(in crate::formats) fn port(client: &dyn Client, name: &str, usual: u16) -> Result<u16, Reason> {
    let there = client.is_set(name);
    match client.value(name) {
        Some(value) => {
            let text = value.ok_or("its port is filled in")?;
            text.parse().map_err(|_| "its port is not a number".into())
        }
        None if there => Err("its port stands there twice".into()),
        None => Ok(usual),
    }
}
