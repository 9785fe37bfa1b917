//! What a user can name to `verify`: a process, an endpoint, or a URL; and the endpoint that it means to those who write
//! such URLs. Pure but for one look at which default socket is there.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use samehost_login::Expected;
use samehost_model::{Endpoint, EndpointError, Protocol, Redactor};
use samehost_services::Leads;

/// Where client libraries look for MySQL's socket, the most usual first.
const MYSQL_SOCKETS: &[&str] = &["/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock"];
/// Where PostgreSQL's clients look for the folder of its socket.
const POSTGRES_FOLDERS: &[&str] = &["/run/postgresql", "/tmp"];

/// What is to be verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, by number.
    Process(u32),
    /// An address that can be connected to.
    Address {
        /// What is spoken there.
        protocol: Protocol,
        /// The endpoint.
        endpoint: Endpoint,
        /// How the endpoint follows from the URL, where that surprises people.
        notes: Vec<String>,
    },
}

/// Why a text is no target.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// It is neither number, endpoint nor URL.
    #[error(
        "`{0}` is no process number, endpoint or URL; write 4711, unix:/path, tcp:127.0.0.1:3306, mysql://user@localhost/db, postgres://user@/db?host=/dir, redis://127.0.0.1:6379 or http+unix://%2Fpath/"
    )]
    Form(String),
    /// The endpoint in it is wrong.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// It is encrypted, which this cannot look into.
    #[error(
        "`{0}` is encrypted: a switch to a Unix socket would drop that; verify the endpoint itself (tcp:HOST:PORT)"
    )]
    Encrypted(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(pid) = text.parse() {
            return Ok(Target::Process(pid));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            if !text.contains(':') {
                return Err(TargetError::Form(shown(text)));
            }
            let endpoint = text.parse()?;
            return Ok(Target::Address { protocol: Protocol::Plain, endpoint, notes: Vec::new() });
        };
        let url = Url::parse(rest);
        match scheme {
            "mysql" | "mariadb" => mysql(&url),
            "postgres" | "postgresql" => postgres(&url),
            "http" => tcp(Protocol::Http, &url, 80),
            "memcached" => tcp(Protocol::Memcached, &url, 11211),
            "unix" => unix(Protocol::Plain, &format!("/{}", url.path)),
            "http+unix" => unix(Protocol::Http, &url.host),
            _ => match samehost_services::scheme(scheme) {
                Some((Protocol::Redis, Leads::Tcp)) => tcp(Protocol::Redis, &url, 6379),
                Some((Protocol::Redis, Leads::Socket)) => unix(Protocol::Redis, &format!("/{}", url.path)),
                Some((_, Leads::Tls)) => Err(TargetError::Encrypted(shown(text))),
                _ => Err(TargetError::Form(shown(text))),
            },
        }
    }
}

/// A text as it may be shown.
fn shown(text: &str) -> String {
    Redactor::default().word(text)
}

/// The parts of a URL that say where a server is.
#[derive(Debug, Default)]
struct Url {
    host: String,
    port: Option<u16>,
    path: String,
    query: Vec<(String, String)>,
}

impl Url {
    fn parse(rest: &str) -> Self {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may hold any sign but a blank, a slash too: the login ends at the last `@`.
        let rest = rest.rsplit_once('@').map_or(rest, |(_, after)| after);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && port.bytes().all(|byte| byte.is_ascii_digit()) => {
                (host, port.parse().ok())
            }
            _ => (authority, None),
        };
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Url {
            host: decoded(host.trim_matches(['[', ']'])),
            port,
            path: decoded(path),
            query: pairs.map(|(key, value)| (key.to_owned(), decoded(value))).collect(),
        }
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// `%2F` becomes `/`; what is no such code stays.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let value = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        out.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn unix(protocol: Protocol, path: &str) -> Result<Target, TargetError> {
    let endpoint = format!("unix:{path}").parse()?;
    Ok(Target::Address { protocol, endpoint, notes: Vec::new() })
}

fn tcp(protocol: Protocol, url: &Url, port: u16) -> Result<Target, TargetError> {
    let host = if url.host.is_empty() { "127.0.0.1" } else { &url.host };
    let mut notes = Vec::new();
    if host == "localhost" {
        notes.push(
            "`localhost` means TCP here: ::1 or 127.0.0.1, whichever answers first; a socket must be named by its path".to_owned(),
        );
    }
    Ok(Target::Address { protocol, endpoint: tcp_endpoint(host, url.port.unwrap_or(port))?, notes })
}

fn tcp_endpoint(host: &str, port: u16) -> Result<Endpoint, EndpointError> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("tcp:{host}:{port}").parse()
}

fn mysql(url: &Url) -> Result<Target, TargetError> {
    let named = ["socket", "unix_socket", "unixSocket"].into_iter().find_map(|key| url.value(key));
    if let Some(path) = named {
        let mut target = unix(Protocol::Mysql, path)?;
        if let (Target::Address { notes, .. }, Some(port)) = (&mut target, url.port) {
            notes.push(format!("the port {port} beside the socket is ignored, silently"));
        }
        return Ok(target);
    }
    if !(url.host.is_empty() || url.host == "localhost") {
        return tcp(Protocol::Mysql, url, 3306);
    }
    let default = MYSQL_SOCKETS
        .iter()
        .find(|path| is_offered(Path::new(path), Protocol::Mysql))
        .unwrap_or(&MYSQL_SOCKETS[0]);
    let mut notes = vec![format!(
        "`localhost` means the default socket ({default}) to PHP, C and Python's mysqlclient; to Go, Java, Node and Rust it means TCP, port 3306. 127.0.0.1 means TCP to all of them"
    )];
    if let Some(port) = url.port {
        notes.push(format!(
            "the port {port} beside `localhost` is ignored, silently, by those that take the socket"
        ));
    }
    let endpoint = format!("unix:{default}").parse()?;
    Ok(Target::Address { protocol: Protocol::Mysql, endpoint, notes })
}

/// Whether a default socket is there and can be the server's. In a directory where everybody may make one, it is when it
/// belongs to somebody who such a server runs as, and nobody else could have put it in another's place.
fn is_offered(path: &Path, protocol: Protocol) -> bool {
    let Some(folder) = path.parent().and_then(|folder| folder.metadata().ok()) else { return false };
    if folder.mode() & 0o022 == 0 {
        return path.exists();
    }
    let Ok(socket) = path.symlink_metadata() else { return false };
    let is_sticky = folder.uid() == 0 && folder.mode() & 0o1000 != 0;
    is_sticky && socket.file_type().is_socket() && Expected::of_service(protocol).is_account(socket.uid())
}

fn postgres(url: &Url) -> Result<Target, TargetError> {
    let port = url.value("port").and_then(|port| port.parse().ok()).or(url.port).unwrap_or(5432);
    let host = url.value("host").unwrap_or(&url.host);
    if host.is_empty() || host.starts_with('/') {
        let file = format!(".s.PGSQL.{port}");
        let folder = if host.is_empty() {
            let there = POSTGRES_FOLDERS
                .iter()
                .find(|folder| is_offered(&Path::new(folder).join(&file), Protocol::Postgres));
            PathBuf::from(there.unwrap_or(&POSTGRES_FOLDERS[0]))
        } else {
            PathBuf::from(host)
        };
        let mut target = unix(Protocol::Postgres, &folder.join(file).display().to_string())?;
        if let (Target::Address { notes, .. }, true) = (&mut target, host.is_empty()) {
            notes.push("no host means the default socket to C clients; some drivers take `localhost` and TCP instead".to_owned());
        }
        return Ok(target);
    }
    let url = Url { host: host.to_owned(), port: Some(port), ..Url::default() };
    tcp(Protocol::Postgres, &url, 5432)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoint(text: &str) -> String {
        match text.parse().unwrap() {
            Target::Address { endpoint, .. } => endpoint.to_string(),
            Target::Process(pid) => format!("process {pid}"),
        }
    }

    #[test]
    fn every_form_leads_to_its_endpoint() {
        for (text, expected) in [
            ("4711", "process 4711"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("mysql://u:p@127.0.0.1:3307/db", "tcp:127.0.0.1:3307"),
            ("mysql://u@localhost/db?socket=/run/x.sock", "unix:/run/x.sock"),
            ("postgres://u@/db?host=/run/pg&port=5433", "unix:/run/pg/.s.PGSQL.5433"),
            ("postgres://u@%2Frun%2Fpg/db", "unix:/run/pg/.s.PGSQL.5432"),
            ("postgresql://localhost/db", "tcp:localhost:5432"),
            ("redis://:a/b@127.0.0.1", "tcp:127.0.0.1:6379"),
            ("redis://[::1]:1", "tcp:[::1]:1"),
            ("redis+unix:///run/r.sock?db=1", "unix:/run/r.sock"),
            ("http+unix://%2Frun%2Fh.sock/x", "unix:/run/h.sock"),
        ] {
            assert_eq!(endpoint(text), expected, "{text}");
        }
    }

    #[test]
    fn a_default_socket_where_everybody_writes_is_the_servers_own() {
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

    #[test]
    fn localhost_is_explained_and_bad_targets_refused() {
        let Ok(Target::Address { endpoint, notes, .. }) = "mysql://u@localhost:3307/db".parse() else {
            panic!()
        };
        assert!(endpoint.path().is_some());
        assert!(notes[0].contains("Go") && notes[1].contains("3307"), "{notes:?}");
        for text in ["", "nginx", "https://x", "ftp://u:secret@h", "unix:"] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((mysql|postgres|redis|http\\+unix)://)?[a-z0-9@:/?=&%\\[\\]é]{0,40}") {
            let _ = text.parse::<Target>();
        }
    }
}
