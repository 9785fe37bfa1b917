//! Which addresses lead to which Unix sockets: `3306=/run/mysqld/mysqld.sock`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::str::FromStr;

use samehost_model::Endpoint;
use samehost_services::Kind;

/// A port of this machine that leads to a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Without one: every loopback address.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub socket: Endpoint,
    /// What listens there, where a scan found it.
    pub kind: Option<Kind>,
}

/// All of them; the first that fits counts.
#[derive(Clone, Debug, Default)]
pub struct Maps(pub Vec<Map>);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MapError {
    #[error("write PORT=PATH, such as 3306=/run/mysqld/mysqld.sock, or ADDRESS:PORT=PATH")]
    Form,
    #[error("`{0}` is not an address of this machine's loopback")]
    NotLoopback(IpAddr),
    #[error("{0}")]
    Socket(String),
    /// A directory that has no socket of PostgreSQL for the port.
    #[error(
        "{directory} is a directory, and the file of a socket is wanted; PostgreSQL's for port {port} would be {directory}/.s.PGSQL.{port}, {}",
        beside(others)
    )]
    Directory {
        directory: String,
        port: u16,
        /// PostgreSQL's sockets that are there.
        others: Vec<String>,
    },
}

fn beside(others: &[String]) -> String {
    match others {
        [] => "which is not there".to_owned(),
        _ => format!("which is not there; there are {}", others.join(", ")),
    }
}

impl Map {
    /// As `--map` takes it.
    #[must_use]
    pub fn as_word(&self) -> String {
        let to =
            self.socket.path().map_or_else(|| self.socket.to_string(), |path| path.display().to_string());
        match self.address {
            Some(address) => format!("{}={to}", SocketAddr::new(address, self.port)),
            None => format!("{}={to}", self.port),
        }
    }
}

impl FromStr for Map {
    type Err = MapError;

    fn from_str(text: &str) -> Result<Self, MapError> {
        let (from, to) = text.split_once('=').ok_or(MapError::Form)?;
        // Every loopback address is localhost.
        let from = from.strip_prefix("localhost:").unwrap_or(from);
        let (address, port) = match from.parse::<SocketAddr>() {
            Ok(whole) => (Some(whole.ip().to_canonical()), whole.port()),
            Err(_) => (None, from.parse().map_err(|_| MapError::Form)?),
        };
        if let Some(address) = address.filter(|address| !address.is_loopback()) {
            return Err(MapError::NotLoopback(address));
        }
        if port == 0 {
            return Err(MapError::Form);
        }
        Ok(Map { address, port, socket: in_directory(socket(to)?, port)?, kind: None })
    }
}

/// PostgreSQL's clients name the directory of a socket, so its file for this port is meant by one. Taken as it was, it was
/// refused at each connection, and that was said at the end.
fn in_directory(socket: Endpoint, port: u16) -> Result<Endpoint, MapError> {
    let Some(directory) = socket.path().filter(|path| path.is_dir()) else { return Ok(socket) };
    let file = directory.join(format!(".s.PGSQL.{port}"));
    if file.metadata().is_ok_and(|found| found.file_type().is_socket()) {
        return Ok(Endpoint::Unix(file));
    }
    let names = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let mut others: Vec<String> =
        names.filter(|name| name.starts_with(".s.PGSQL.") && !name.ends_with(".lock")).collect();
    others.sort_unstable();
    let directory = directory.display().to_string();
    Err(MapError::Directory { directory: directory.trim_end_matches('/').to_owned(), port, others })
}

/// A path, which may be relative to this directory, or an endpoint with a Unix socket.
fn socket(text: &str) -> Result<Endpoint, MapError> {
    let text = match text.split_once(':') {
        Some(("unix" | "abstract", _)) => text.to_owned(),
        _ if text.is_empty() => return Err(MapError::Form),
        _ => {
            // The program may be in another directory when it connects.
            let path =
                std::path::absolute(Path::new(text)).map_err(|error| MapError::Socket(error.to_string()))?;
            format!("unix:{}", path.to_str().ok_or(MapError::Form)?)
        }
    };
    let endpoint = text.parse::<Endpoint>();
    let endpoint = endpoint.map_err(|error| MapError::Socket(error.to_string()))?;
    if let Endpoint::Unix(path) = &endpoint
        && path.is_relative()
    {
        return Err(MapError::Form);
    }
    Ok(endpoint)
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_arrow("->"))
    }
}

impl Map {
    /// As the server's side is shown: who comes to the socket comes to the port.
    pub fn as_of_server(&self) -> String {
        self.with_arrow("<-")
    }

    fn with_arrow(&self, arrow: &str) -> String {
        let port = match self.address {
            Some(address) => SocketAddr::new(address, self.port).to_string(),
            None => format!("port {}", self.port),
        };
        match &self.socket {
            Endpoint::Unix(path) => format!("{port} {arrow} {}", path.display()),
            other => format!("{port} {arrow} {other}"),
        }
    }
}

impl Maps {
    /// The map that an address is of.
    pub fn of(&self, to: SocketAddr) -> Option<&Map> {
        let address = to.ip().to_canonical();
        address
            .is_loopback()
            .then(|| {
                self.0
                    .iter()
                    .find(|map| map.port == to.port() && map.address.is_none_or(|its| its == address))
            })
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Map {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn maps_are_read() {
        assert_eq!(map("3306=/run/my.sock").to_string(), "port 3306 -> /run/my.sock");
        assert_eq!(map("127.0.0.2:80=unix:/a").to_string(), "127.0.0.2:80 -> /a");
        assert_eq!(map("[::1]:80=abstract:web").to_string(), "[::1]:80 -> abstract:web");
        assert_eq!(map("[::ffff:127.0.0.1]:80=/a").to_string(), "127.0.0.1:80 -> /a");
        let here = std::env::current_dir().expect("a directory").join("a.sock");
        assert_eq!(map("80=a.sock").socket.path(), Some(&*here));
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for text in ["", "80", "80=", "=x", "0=/a", "70000=/a", "x=/a", "80=unix:a", "192.0.2.1:80=/a"] {
            assert!(text.parse::<Map>().is_err(), "{text}");
        }
        assert!(format!("80=/{}", "a".repeat(108)).parse::<Map>().is_err());
    }

    #[test]
    fn a_directory_stands_for_postgresqls_file_in_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().display().to_string();
        let error = format!("5499={path}").parse::<Map>().expect_err("nothing is there").to_string();
        assert!(
            error.contains("is a directory") && error.contains(&format!("{path}/.s.PGSQL.5499")),
            "{error}"
        );
        let _one =
            std::os::unix::net::UnixListener::bind(folder.path().join(".s.PGSQL.5499")).expect("a socket");
        assert_eq!(map(&format!("5499={path}")).to_string(), format!("port 5499 -> {path}/.s.PGSQL.5499"));
        let other = format!("5432={path}/").parse::<Map>().expect_err("another port").to_string();
        assert!(other.contains(".s.PGSQL.5432") && other.contains("there are .s.PGSQL.5499"), "{other}");
    }

    #[test]
    fn every_loopback_address_is_meant_and_no_other() {
        let maps = Maps(vec![map("127.0.0.2:80=/first"), map("80=/second")]);
        let mapped =
            |text: &str| maps.of(text.parse().expect("an address")).map(|map| map.socket.to_string());
        assert_eq!(mapped("127.0.0.2:80").as_deref(), Some("unix:/first"));
        for loopback in ["127.0.0.1:80", "127.255.0.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(mapped(loopback).as_deref(), Some("unix:/second"), "{loopback}");
        }
        for other in [
            "127.0.0.1:81", "192.0.2.1:80", "0.0.0.0:80", "[::]:80", "[2001:db8::1]:80",
            "[::ffff:192.0.2.1]:80",
        ] {
            assert_eq!(mapped(other), None, "{other}");
        }
    }
}
