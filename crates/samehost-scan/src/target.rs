//! Targets of `verify`: a process, an endpoint, or a URL, which is converted to its endpoint by the rules of
//! its usual clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use samehost_login::url::ServerUrl;
use samehost_login::{Destination, DestinationError};
use samehost_model::scan::{Address, Scan, Socket};
use samehost_model::{Endpoint, EndpointError, Protocol, Redactor};
use samehost_services::{ASKED_FOR_TLS_ON_A_SOCKET, Kind};

use crate::namespaces;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Process(u32),
    Address {
        protocol: Protocol,
        endpoint: Endpoint,
        /// How the endpoint follows from the URL, where that is surprising.
        notes: Vec<String>,
    },
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    #[error(
        "`{0}` is not a process number, endpoint or URL; write 4711, unix:/path, tcp:127.0.0.1:3306, mysql://user@localhost/db, postgres://user@/db?host=/dir, redis://127.0.0.1:6379 or http+unix://%2Fpath/"
    )]
    Form(String),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(
        "`{0}` is encrypted: a switch to a Unix socket would drop that; verify the endpoint itself (tcp:HOST:PORT)"
    )]
    Encrypted(String),
    /// What was read, and what not.
    #[error("`{0}` is no address of one server: {1}")]
    Unreadable(String, String),
    #[error(
        "definition of service \"{0}\" not found: libpq looks in PGSERVICEFILE or ~/.pg_service.conf, and then in pg_service.conf of the system"
    )]
    Service(String),
    #[error(
        "`{0}` takes datagrams: nobody accepts or acknowledges them, so there is no connection to verify; samehost scan names who sends there"
    )]
    Datagrams(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(pid) = text.parse() {
            return Ok(Target::Process(pid));
        }
        let Some(url) = ServerUrl::parse(text) else {
            if !text.contains(':') {
                return Err(TargetError::Form(shown(text)));
            }
            if let Some((first, _)) = text.split_once(',')
                && host_and_port(first).is_some()
            {
                let why = format!("each of several servers has a socket of its own; ask for each: {first}");
                return Err(TargetError::Unreadable(shown(text), why));
            }
            let endpoint = match (text.parse::<Endpoint>(), host_and_port(text)) {
                (Ok(endpoint), _) | (Err(_), Some(endpoint)) => endpoint,
                (Err(error), None) => return Err(error.into()),
            };
            if endpoint.transport().is_datagram() {
                return Err(TargetError::Datagrams(shown(text)));
            }
            return Ok(Target::Address { protocol: Protocol::Plain, endpoint, notes: Vec::new() });
        };
        let url = url.map_err(|_| TargetError::Form(shown(text)))?;
        let found = Destination::of(&url).map_err(|error| match error {
            DestinationError::Encrypted(_) => TargetError::Encrypted(shown(text)),
            DestinationError::Endpoint(error) => TargetError::Endpoint(error),
            DestinationError::Service(name) => TargetError::Service(name),
            other => TargetError::Unreadable(shown(text), other.to_string()),
        })?;
        let mut notes = notes(&found);
        notes.extend(note_on_tls(&found, &url));
        Ok(Target::Address { protocol: found.protocol, endpoint: found.endpoint, notes })
    }
}

/// `127.0.0.1:3306` is TCP: nothing else has a port and no name before it.
fn host_and_port(text: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    if host.is_empty() || host.contains(['/', '@']) || port.parse::<u16>().is_err() {
        return None;
    }
    format!("tcp:{text}").parse().ok()
}

fn shown(text: &str) -> String {
    Redactor::default().word(text)
}

/// Values of a PostgreSQL URL that require TLS.
const REQUIRE_TLS: &[(&str, &[&str])] =
    &[("sslmode", &["require", "verify-ca", "verify-full"]), ("ssl", &["true", "1"])];
/// Values that libpq refuses on a socket.
const REFUSED_ON_A_SOCKET: &[(&str, &[&str])] =
    &[("channel_binding", &["require"]), ("gssencmode", &["require"])];

/// What a URL asks for and a socket of PostgreSQL has not.
fn note_on_tls(found: &Destination, url: &ServerUrl) -> Option<String> {
    if found.protocol != Protocol::Postgres || found.endpoint.path().is_none() {
        return None;
    }
    if let Some(option) = first_of(url, REQUIRE_TLS) {
        return Some(format!(
            "{option}: there is no TLS on a socket of PostgreSQL; {ASKED_FOR_TLS_ON_A_SOCKET}"
        ));
    }
    let option = first_of(url, REFUSED_ON_A_SOCKET)?;
    Some(format!("{option}: not to be had on a socket of PostgreSQL; libpq fails there"))
}

fn first_of(url: &ServerUrl, options: &[(&str, &[&str])]) -> Option<String> {
    for (name, values) in options {
        if let Some(value) = url.option(name)
            && values.contains(&value)
        {
            return Some(format!("{name}={value}"));
        }
    }
    None
}

/// How the endpoint follows from the URL, where that is surprising.
fn notes(found: &Destination) -> Vec<String> {
    let mut notes = Vec::new();
    match (&found.endpoint, found.protocol, found.ignored_port) {
        (Endpoint::Tcp { host, .. }, ..) if host == "localhost" => notes.push(
            "`localhost` means TCP here: ::1 or 127.0.0.1, whichever answers first; a socket must be named by its path"
                .to_owned(),
        ),
        (Endpoint::Unix(path), Protocol::Mysql, port) if found.is_default_socket => {
            notes.push(format!(
                "`localhost` means the default socket ({}) to PHP, C and Python's mysqlclient; to Go, Java, Node, Rust and PyMySQL it means TCP, port {}. 127.0.0.1 means TCP to all of them",
                path.display(),
                port.unwrap_or(3306)
            ));
            if let Some(port) = port {
                notes.push(format!(
                    "the port {port} beside `localhost` is ignored, silently, by those that take the socket"
                ));
            }
        }
        (_, Protocol::Postgres, _) if found.is_default_socket => notes.push(
            "no host means the default socket to C clients; some drivers take `localhost` and TCP instead".to_owned(),
        ),
        (_, _, Some(port)) => notes.push(format!("the port {port} beside the socket is ignored, silently")),
        _ => {}
    }
    notes
}

/// What the running services of this name speak, and where they listen for streams in this network namespace. `None` where
/// no service has such a name; without endpoints where none of them runs.
#[must_use]
pub fn endpoints_of(scan: &Scan, name: &str) -> Option<(Protocol, Vec<Endpoint>)> {
    let kind = Kind::called(name)?;
    let mut found = Vec::new();
    for service in services_called(scan, name).into_iter().filter_map(|at| scan.services.get(at)) {
        for endpoint in scan.listeners(service).filter_map(endpoint_of) {
            if !found.contains(&endpoint) {
                found.push(endpoint);
            }
        }
    }
    Some((kind.protocol().unwrap_or(Protocol::Plain), found))
}

/// The running services of this name in this network namespace.
#[must_use]
pub fn services_called(scan: &Scan, name: &str) -> Vec<usize> {
    let Some(kind) = Kind::called(name) else { return Vec::new() };
    let own = namespaces::own_of(scan);
    let mut found = Vec::new();
    for (at, service) in scan.services.iter().enumerate() {
        let is_such = service.kind.is_some_and(|its| its.family() == kind.family());
        if is_such && Some(service.network_namespace) == own {
            found.push(at);
        }
    }
    found
}

/// Where a client of this machine reaches a listener of streams.
#[must_use]
pub fn endpoint_of(socket: &Socket) -> Option<Endpoint> {
    match &socket.local {
        Address::Inet(_) if socket.kind.is_tcp() => {
            let address = socket.local.inet()?;
            let ip = match address.ip() {
                IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
                ip => ip,
            };
            Some(Endpoint::Tcp { host: ip.to_string(), port: address.port() })
        }
        Address::Path(path) if socket.kind.is_unix() => Some(Endpoint::Unix(path.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::{DESTINATIONS, NO_DESTINATIONS};

    use super::*;

    fn endpoint(text: &str) -> String {
        match text.parse().unwrap() {
            Target::Address { endpoint, .. } => endpoint.to_string(),
            Target::Process(pid) => format!("process {pid}"),
        }
    }

    #[test]
    fn a_host_and_a_port_are_tcp() {
        assert_eq!(endpoint("127.0.0.1:3306"), "tcp:127.0.0.1:3306");
        assert_eq!(endpoint("[::1]:6379"), "tcp:[::1]:6379");
        for text in ["sctp:x", "127.0.0.1:99999", "a/b:80", ":80"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        for (text, expected) in DESTINATIONS {
            assert_eq!(endpoint(text), *expected, "{text}");
        }
        for text in NO_DESTINATIONS {
            assert!(text.parse::<Target>().is_err(), "{text}");
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
    fn tls_that_a_socket_has_not_is_noted() {
        fn notes(text: &str) -> String {
            match text.parse() {
                Ok(Target::Address { notes, .. }) => notes.join("; "),
                other => panic!("{other:?}"),
            }
        }
        assert!(notes("postgres://u@/db?host=/run/pg&sslmode=require").contains("pg of Node"));
        assert!(notes("postgres://u@/db?host=/run/pg&channel_binding=require").contains("libpq fails"));
        assert!(!notes("postgres://u@/db?host=/run/pg&sslmode=prefer").contains("TLS"));
        assert!(!notes("postgres://u@127.0.0.1/db?sslmode=require").contains("TLS"));
        let error = "postgres:///?service=no-such-one".parse::<Target>().unwrap_err().to_string();
        assert!(error.contains("definition of service \"no-such-one\" not found"), "{error}");
    }

    #[test]
    fn datagrams_have_no_connection_to_verify() {
        for text in ["udp:127.0.0.1:8125", "unixgram:/run/statsd.sock"] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` takes datagrams")), "{error}");
        }
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
