//! How a client names its database server.

use samehost_model::{Endpoint, Protocol, percent_decoded};

use super::service::{Server, Service};
use crate::languages::url::{self, Url, is_plain_path};
use crate::spelling::Spelling;

/// One form of naming a database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// WordPress: `db:3306`, or `localhost:/path`.
    WordPress,
    /// A variable for the socket beside the host, which stays.
    Beside(&'static Beside),
    /// PostgreSQL's directory instead of the host, with the name of the port's variable.
    Directory(&'static str),
    /// A URL.
    Url(Spelling),
}

/// Variables beside that of a host, of a program that takes the socket where both are set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) port: &'static str,
    pub(super) socket: &'static str,
    login: [&'static str; 3],
}

/// Laravel with MySQL.
const LARAVEL: &Beside =
    &Beside { port: "DB_PORT", socket: "DB_SOCKET", login: ["DB_USERNAME", "DB_PASSWORD", "DB_DATABASE"] };
/// Ghost passes all of `database__connection__*` on to mysql2, which prefers `socketPath`.
const GHOST: &Beside = &Beside {
    port: "database__connection__port",
    socket: "database__connection__socketPath",
    login: ["database__connection__user", "database__connection__password", "database__connection__database"],
};

/// Content of a variable: the endpoint, and the names of the variables for user, password and database.
pub(super) type Content = (Endpoint, [&'static str; 3]);

/// The host in a value: of a URL, of `host:port`, or the value itself; a path if it names a socket.
pub(crate) fn host_of(value: &str) -> Option<String> {
    if let Some(url) = Url::parse(value) {
        let path =
            ["socket", "unix_socket", "host"].iter().find_map(|name| url.parameter(name).ok().flatten());
        let host = percent_decoded(&url.host)?;
        return Some(path.filter(|path| path.starts_with('/')).map_or(host, str::to_owned));
    }
    if let Some(path) = value.strip_prefix("localhost:").filter(|path| path.starts_with('/')) {
        return Some(path.to_owned());
    }
    if value.starts_with('/') {
        return Some(value.to_owned());
    }
    let host = value.split(':').next().unwrap_or(value);
    let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    (plain && !host.is_empty()).then(|| host.to_owned())
}

/// How a client reads a variable; `None` if that is not known.
pub(super) fn words(client: &Service<'_>, name: &str, value: &str, server: &Server) -> Option<Words> {
    let mysql = server.protocol == Protocol::Mysql;
    let connection = client.variable("DB_CONNECTION").and_then(|variable| variable.value);
    match name {
        "WORDPRESS_DB_HOST" if mysql && client.image() == Some("wordpress") => Some(Words::WordPress),
        "PGHOST" if !mysql && client.variable("PGHOSTADDR").is_none() => Some(Words::Directory("PGPORT")),
        "DB_HOST" => match connection.as_deref() {
            Some("mysql" | "mariadb") if mysql => Some(Words::Beside(LARAVEL)),
            Some("pgsql") if !mysql => Some(Words::Directory("DB_PORT")),
            _ => None,
        },
        "database__connection__host" if mysql && client.image() == Some("ghost") => {
            let with = client.variable("database__client").and_then(|variable| variable.value);
            matches!(with.as_deref(), Some("mysql" | "mysql2")).then_some(Words::Beside(GHOST))
        }
        "DATABASE_URL" => {
            // Only Rails has these schemes, or its own variables beside it.
            let scheme = Url::parse(value)?.scheme;
            let rails = client.variables().iter().any(|variable| variable.name.starts_with("RAILS_"));
            match scheme.as_str() {
                "mysql2" | "trilogy" => Some(Words::Url(Spelling::Parameter("socket"))),
                "postgres" | "postgresql" if rails => Some(Words::Url(Spelling::EncodedHost)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Where a client connects to.
pub(super) fn endpoint(
    client: &Service<'_>,
    words: Words,
    value: &str,
    server: &Server,
) -> Result<Content, &'static str> {
    const UNUSUAL: &str = "its host or port is unusual";
    let usual = url::usual_port(server.protocol);
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
            let socket = client.variable(beside.socket);
            let socket = match socket {
                None => None,
                Some(socket) => {
                    let value = socket.value.ok_or("Compose fills in the variable of its socket")?;
                    Some(value).filter(|text| !text.is_empty())
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

pub(super) fn port(client: &Service<'_>, name: &str, usual: u16) -> Result<u16, &'static str> {
    let there = client.variables().iter().any(|variable| variable.name == name);
    match client.variable(name) {
        Some(variable) => {
            let text = variable.value.ok_or("its port is filled in")?;
            text.parse().map_err(|_| "its port is not a number")
        }
        None if there => Err("its port stands there twice"),
        None => Ok(usual),
    }
}
