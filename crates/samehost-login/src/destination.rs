//! Resolves a server URL to an endpoint, as the clients that take such URLs do. Every part of samehost that takes a
//! server URL uses this, so that a URL means the same everywhere. Reads nothing but which default socket exists,
//! and the file of a service that a URL names.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use samehost_model::{Endpoint, EndpointError};
use samehost_services::{Kind, Leads, Protocol, scheme};

use crate::Expected;
use crate::own_files::{OwnFiles, UnknownService, with_service};
use crate::url::{ServerUrl, unescape};

/// Protocol and endpoint of a URL: the one place that says where a URL leads.
/// Several readers disagreed before: `mysql://u@localhost/db` was a Unix socket to one and TCP to the
/// other. Where they did, the clients that such URLs are written for decide (libmysqlclient, libpq,
/// redis-cli, RFC 3986). The `url` crate was rejected, because passwords with `/` and `@`, which clients
/// accept, break it (docs/decisions/0087).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub protocol: Protocol,
    pub endpoint: Endpoint,
    /// Whether the endpoint is the default socket, which the URL does not name.
    pub is_default_socket: bool,
    /// Port in the URL that has no effect, because a socket is used.
    pub ignored_port: Option<u16>,
    /// Where clients connect to which `localhost` is a host like any other, where the endpoint is what it is to the others.
    pub or_tcp: Option<Endpoint>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DestinationError {
    #[error("`{}://` is not the scheme of a known server", .0.escape_debug())]
    Scheme(String),
    #[error("TLS ({0}://) is not measured")]
    Encrypted(String),
    /// The service of libpq that the URL, or PGSERVICE, names stands in no file.
    #[error("definition of service \"{0}\" not found")]
    Service(String),
    #[error("{0}")]
    Part(String),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Options that name a socket: of PHP and libmysqlclient, of SQLAlchemy's and Ruby's drivers, of JDBC and Node.
pub const MYSQL_SOCKET_OPTIONS: &[&str] =
    &["socket", "unix_socket", "unixSocket", "socketPath", "localSocket"];

impl Destination {
    /// Resolves a URL; what it leaves out are the defaults of the protocol's own clients, down to which default socket
    /// exists here. Names of hosts are not looked up.
    ///
    /// # Errors
    /// When no known server has such URLs, a part is wrong, or the URL asks for TLS.
    pub fn of(url: &ServerUrl) -> Result<Self, DestinationError> {
        let known = match url.scheme.as_str() {
            "unix" => Some((Protocol::Plain, Leads::Socket)),
            "tcp" => Some((Protocol::Plain, Leads::Tcp)),
            name => scheme(name),
        };
        let Some((protocol, leads)) = known else {
            return Err(DestinationError::Scheme(url.scheme.clone()));
        };
        match (protocol, leads) {
            (_, Leads::Tls) => Err(DestinationError::Encrypted(url.scheme.clone())),
            (Protocol::Http, Leads::Socket) => {
                let path = url.place.split(['/', '#']).next().unwrap_or_default();
                Self::socket(protocol, &decoded(path, "the socket's path")?)
            }
            (_, Leads::Socket) => Self::socket(protocol, &decoded(&url.place, "the path")?),
            (Protocol::Mysql, Leads::Tcp) => mysql(url),
            (Protocol::Postgres, Leads::Tcp) => postgres(url),
            (_, Leads::Tcp) => match url.socket_and_number() {
                Some((path, _)) if matches!(protocol, Protocol::Redis | Protocol::Memcached) => {
                    Self::socket(protocol, &decoded(path, "the path")?)
                }
                _ => {
                    let (host, port) = host_and_port(url)?;
                    Self::tcp(protocol, host, port)
                }
            },
        }
    }

    fn socket(protocol: Protocol, path: &str) -> Result<Self, DestinationError> {
        if !path.starts_with('/') {
            return Err(part("the path of the socket must begin with `/`"));
        }
        let endpoint = format!("unix:{path}").parse()?;
        Ok(Destination { protocol, endpoint, is_default_socket: false, ignored_port: None, or_tcp: None })
    }

    /// An empty host is this machine, and no port the usual one.
    fn tcp(protocol: Protocol, host: String, port: Option<u16>) -> Result<Self, DestinationError> {
        let host = if host.is_empty() { "127.0.0.1".to_owned() } else { host };
        let endpoint = Endpoint::Tcp { host, port: port.unwrap_or_else(|| usual_port(protocol)) };
        // An invalid endpoint is refused by the parser.
        let endpoint = endpoint.to_string().parse()?;
        Ok(Destination { protocol, endpoint, is_default_socket: false, ignored_port: None, or_tcp: None })
    }

    /// The first default socket that is offered here, else the first of all.
    fn default_socket(protocol: Protocol, port: Option<u16>) -> Result<Self, DestinationError> {
        let number = port.unwrap_or_else(|| usual_port(protocol)).to_string();
        let all: Vec<String> =
            protocol.default_sockets().map(|path| path.replace("{port}", &number)).collect();
        let offered = all.iter().find(|path| is_offered(Path::new(path), protocol));
        let Some(found) = offered.or(all.first()) else {
            return Err(part("no default socket is known"));
        };
        Ok(Destination { is_default_socket: true, ..Self::socket(protocol, found)? })
    }
}

/// The first port of the protocol's usual server; 0 where none is known.
fn usual_port(protocol: Protocol) -> u16 {
    match Kind::of_protocol(protocol) {
        Some(kind) => kind.descriptor().ports.first().copied().unwrap_or_default(),
        None => 0,
    }
}

fn part(reason: &str) -> DestinationError {
    DestinationError::Part(reason.to_owned())
}

fn decoded(text: &str, what: &str) -> Result<String, DestinationError> {
    unescape(text).ok_or_else(|| DestinationError::Part(format!("a wrong `%` in {what}")))
}

fn host_and_port(url: &ServerUrl) -> Result<(String, Option<u16>), DestinationError> {
    let (host, port) = url.host_and_port();
    if host.contains(',') || port.is_some_and(|port| port.contains(',')) {
        return Err(part("each of several servers has a socket of its own; ask for each"));
    }
    let port = port.map(number).transpose()?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok((decoded(bare, "the host")?, port))
}

fn number(text: &str) -> Result<u16, DestinationError> {
    text.parse()
        .map_err(|_| DestinationError::Part(format!("`{}` is not a port number", text.escape_debug())))
}

/// In libmysqlclient and everything based on it, `localhost` means the default socket, and so does an empty host; other drivers are
/// known by their scheme.
fn mysql(url: &ServerUrl) -> Result<Destination, DestinationError> {
    let (host, port) = host_and_port(url)?;
    let socket = MYSQL_SOCKET_OPTIONS.iter().find_map(|name| url.option(name));
    let found = match socket {
        Some(path) => Destination::socket(Protocol::Mysql, path)?,
        None if (host.is_empty() || host == "localhost") && !url.is_localhost_a_host => {
            Destination::default_socket(Protocol::Mysql, None)?
        }
        None => return Destination::tcp(Protocol::Mysql, host, port),
    };
    let or_tcp = if socket.is_none() && host == "localhost" {
        Some(Destination::tcp(Protocol::Mysql, host, port)?.endpoint)
    } else {
        None
    };
    Ok(Destination { ignored_port: port, or_tcp, ..found })
}

/// As in libpq: an option overrides the same part of the authority, a host may be a directory, and no host
/// means the default socket. `socket` names a file, which libpq cannot do.
fn postgres(url: &ServerUrl) -> Result<Destination, DestinationError> {
    let url = &with_service(url, &OwnFiles::here())
        .map_err(|UnknownService(name)| DestinationError::Service(name))?;
    // pgjdbc has no other way to a socket than a factory of sockets, whose argument is the path.
    if let Some(path) = url.option("socket").or(url.option("socketFactoryArg")) {
        return Destination::socket(Protocol::Postgres, path);
    }
    let (written, port) = host_and_port(url)?;
    let port = match url.option("port") {
        Some(text) => Some(text.parse().map_err(|_| part("the option port is not a port number"))?),
        None => port,
    };
    let host = match url.option("host") {
        Some(option) => option.to_owned(),
        None => written,
    };
    match host.chars().next() {
        None => Destination::default_socket(Protocol::Postgres, port),
        Some('/') => {
            let directory = host.trim_end_matches('/');
            Destination::socket(Protocol::Postgres, &format!("{directory}/.s.PGSQL.{}", port.unwrap_or(5432)))
        }
        Some('@') => Err(part("abstract sockets (host=@…) are not measured")),
        Some(_) => Destination::tcp(Protocol::Postgres, host, port),
    }
}

/// Whether a default socket exists and can be the server's. In a directory where every user may create sockets, its
/// owner must be an account that such a server runs as, and no other user may have been able to replace it.
fn is_offered(path: &Path, protocol: Protocol) -> bool {
    let Some(folder) = path.parent() else { return false };
    let Ok(folder) = folder.metadata() else { return false };
    if folder.mode() & 0o022 == 0 {
        return path.exists();
    }
    let Ok(socket) = path.symlink_metadata() else { return false };
    let is_sticky = folder.uid() == 0 && folder.mode() & 0o1000 != 0;
    is_sticky && socket.file_type().is_socket() && Expected::of_service(protocol).is_account(socket.uid())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::{DESTINATIONS, NO_DESTINATIONS};

    use super::*;

    fn lead(text: &str) -> Result<Destination, DestinationError> {
        let url = ServerUrl::parse(text).unwrap();
        Destination::of(&url.map_err(|error| DestinationError::Part(error.to_string()))?)
    }

    #[test]
    fn a_url_leads_where_its_clients_go() {
        for (text, endpoint) in DESTINATIONS {
            assert_eq!(lead(text).unwrap().endpoint.to_string(), *endpoint, "{text}");
        }
        for text in NO_DESTINATIONS {
            let error = lead(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_a_url_does_not_name_is_the_default_socket() {
        for text in ["mysql://u@localhost/db", "mysql://u@/db", "postgres://u@/db", "postgresql:///db"] {
            let found = lead(text).unwrap();
            assert!(found.is_default_socket && found.endpoint.path().is_some(), "{text}: {found:?}");
        }
        assert_eq!(lead("mysql://localhost:3307").unwrap().ignored_port, Some(3307));
        let other = lead("postgres:///db?port=6000").unwrap();
        assert!(other.endpoint.to_string().ends_with(".s.PGSQL.6000"), "{other:?}");
    }

    #[test]
    fn a_default_socket_where_everybody_writes_is_the_servers_own_as_root() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        use std::os::unix::net::UnixListener;
        assert!(rustix::process::geteuid().is_root(), "this test gives a file away: run it as root");
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("mysql.sock"), folder.path().join("link"));
        let _listener = UnixListener::bind(&path).unwrap();
        symlink(&path, &link).unwrap();
        for (mode, owner, offered) in
            [(0o755, 54321, true), (0o1777, 0, true), (0o1777, 54321, false), (0o777, 0, false)]
        {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(owner), None).unwrap();
            assert_eq!(is_offered(&path, Protocol::Mysql), offered, "{mode:o} {owner}");
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(!is_offered(&link, Protocol::Mysql), "no link is followed there");
        assert!(!is_offered(&folder.path().join("none"), Protocol::Mysql));
    }

    proptest! {
        #[test]
        fn no_url_panics(text in "(mysql|postgres|redis|http\\+unix)://[a-z0-9@:/?=&%\\[\\]é]{0,40}") {
            let _ = lead(&text);
        }
    }
}
