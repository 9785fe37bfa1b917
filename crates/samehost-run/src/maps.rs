//! Which addresses lead to which Unix sockets, as somebody writes it (`3306=/run/mysqld/mysqld.sock`) and as a scan finds it.
//! Pure, but for looks at files of sockets.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::str::FromStr;
use std::{fmt, fs};

use samehost_model::Endpoint;
use samehost_model::scan::{Address, Scan, Service, Socket, SocketKind, SocketState};
use samehost_services::Kind;

/// A port of this machine that leads to a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Without one: every loopback address.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub socket: Endpoint,
    /// The service that listens there, where a scan found it.
    pub kind: Option<Kind>,
}

/// The maps of a program; the first that fits counts.
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
    #[error(
        "{directory} is a directory, and the file of a socket is wanted; PostgreSQL's for port {port} would be {directory}/.s.PGSQL.{port}, {}",
        beside(others)
    )]
    Directory { directory: String, port: u16, others: Vec<String> },
}

fn beside(others: &[String]) -> String {
    match others {
        [] => "which is not there".to_owned(),
        _ => format!("which is not there; there are {}", others.join(", ")),
    }
}

impl Map {
    #[must_use]
    pub fn as_word(&self) -> String {
        let to = match self.socket.path() {
            Some(path) => path.display().to_string(),
            None => self.socket.to_string(),
        };
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
        if let Some(address) = address
            && !address.is_loopback()
        {
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
    let mut others = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with(".s.PGSQL.") && !name.ends_with(".lock") {
            others.push(name);
        }
    }
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
    /// As a map of a server is shown: whoever would come to the port comes to the socket.
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
    /// `None` also for every address that is not a loopback one.
    pub fn of(&self, to: SocketAddr) -> Option<&Map> {
        let address = to.ip().to_canonical();
        if !address.is_loopback() {
            return None;
        }
        self.0
            .iter()
            .find(|map| map.port == to.port() && (map.address.is_none() || map.address == Some(address)))
    }
}

/// The maps that a scan knows: services of this machine that listen at a port and at a Unix socket. Only clear cases are
/// mapped, because another service's socket must never answer for a port.
#[derive(Debug, Default)]
pub struct FoundMaps {
    pub maps: Vec<Map>,
    /// The ports of which it is not clear where they lead, each with the reason.
    pub unclear: Vec<String>,
}

/// A port of a database, a cache or a pooler.
struct Port<'a> {
    at: SocketAddr,
    kind: Kind,
    service: &'a Service,
    socket: &'a Socket,
}

impl FoundMaps {
    #[must_use]
    pub fn of(scan: &Scan) -> Self {
        let mut found = FoundMaps::default();
        let ports = ports(scan);
        for port in &ports {
            if another_user_listens(scan, port) {
                found.unclear.push(format!("{}: another user's service listens at that port too", port.at));
                continue;
            }
            let sockets = sockets(scan, port);
            if sockets.is_empty() {
                continue;
            }
            match chosen(port, &sockets, number_of_ports(&ports, port.service)) {
                Some(socket) => {
                    let map =
                        Map { address: port.address(), port: port.at.port(), socket, kind: Some(port.kind) };
                    found.maps.push(map);
                }
                None => {
                    let label = port.kind.label();
                    found.unclear.push(format!("{}: {label} has several sockets or ports", port.at));
                }
            }
        }
        found.maps.sort_by_key(|map| (map.port, map.address.is_none(), map.address));
        found.maps.dedup();
        found
    }
}

impl Port<'_> {
    /// `None` where the service listens at all addresses.
    fn address(&self) -> Option<IpAddr> {
        let ip = self.at.ip();
        (!ip.is_unspecified()).then_some(ip)
    }
}

fn another_user_listens(scan: &Scan, port: &Port<'_>) -> bool {
    let mut others = scan.sockets.iter().filter(|other| other.uid != port.socket.uid);
    others.any(|other| is_here(scan, other) && listens_at(other, port.at.port()))
}

fn number_of_ports(ports: &[Port<'_>], service: &Service) -> usize {
    let its = ports.iter().filter(|port| std::ptr::eq(port.service, service));
    its.map(|port| port.at.port()).collect::<BTreeSet<u16>>().len()
}

/// Whether a socket listens in our network namespace.
fn is_here(scan: &Scan, socket: &Socket) -> bool {
    scan.own_namespace() == Some(socket.network_namespace) && socket.state == SocketState::Listen
}

fn listens_at(socket: &Socket, port: u16) -> bool {
    match socket.local.inet() {
        Some(local) => socket.kind.is_tcp() && local.port() == port,
        None => false,
    }
}

/// Ports of services that speak a protocol with a login: what answers at their sockets is the same as at their ports. A
/// web server's socket may be its console.
fn ports(scan: &Scan) -> Vec<Port<'_>> {
    let mut ports = Vec::new();
    for service in &scan.services {
        let Some(kind) = service.kind else { continue };
        let Some(protocol) = kind.protocol() else { continue };
        if !protocol.has_login() {
            continue;
        }
        for socket in scan.listeners(service) {
            let Some(at) = socket.local.inet() else { continue };
            let is_loopback = at.ip().is_loopback() || at.ip().is_unspecified();
            if is_loopback && socket.kind.is_tcp() && is_here(scan, socket) {
                ports.push(Port { at, kind, service, socket });
            }
        }
    }
    ports
}

/// The Unix sockets of the service that has a port. Where its process is not visible, a socket of the same user that
/// speaks the same.
fn sockets<'a>(scan: &'a Scan, port: &Port<'_>) -> Vec<&'a Socket> {
    let mut found = Vec::new();
    for service in scan.services.iter().filter(|other| speaks_the_same(other, port)) {
        for socket in scan.listeners(service) {
            let is_same_user = socket.uid.is_some() && socket.uid == port.socket.uid;
            if is_same_user
                && socket.kind == SocketKind::UnixStream
                && is_here(scan, socket)
                && is_reached(socket)
            {
                found.push(socket);
            }
        }
    }
    found
}

/// Whether it is the service of this port, or one that nobody may look into and that speaks the same.
fn speaks_the_same(other: &Service, port: &Port<'_>) -> bool {
    if std::ptr::eq(other, port.service) {
        return true;
    }
    let is_hidden = other.pid.is_none() && port.service.pid.is_none();
    is_hidden && other.kind.and_then(Kind::protocol) == port.kind.protocol()
}

/// Whether a path leads to it from here, and not to another file in another container. sock_diag tells the lower half of an
/// inode's number only.
pub(crate) fn is_its_file(socket: &Socket, path: &Path) -> bool {
    match (socket.file, fs::metadata(path)) {
        (Some(file), Ok(found)) => file.has_inode(found.ino()) && found.dev() == file.device,
        _ => false,
    }
}

fn is_reached(socket: &Socket) -> bool {
    match &socket.local {
        Address::Path(path) => path.is_absolute() && is_its_file(socket, path),
        Address::Abstract(_) => true,
        _ => false,
    }
}

/// The socket that is the same as a port: the one named after the port where the service names its sockets so; the only one
/// where there is one port; and at the usual port the one with the usual name.
fn chosen(port: &Port<'_>, sockets: &[&Socket], its_ports: usize) -> Option<Endpoint> {
    let known = port.kind.descriptor();
    let by_port = known.default_sockets.iter().find(|path| path.contains("{port}"));
    let socket = match (by_port, sockets) {
        (Some(path), _) => {
            let name = path.rsplit('/').next()?.replace("{port}", &port.at.port().to_string());
            with_name(sockets, &name)
        }
        (None, [one]) if its_ports == 1 => Some(*one),
        _ if known.ports.first() == Some(&port.at.port()) => with_name(sockets, known.socket_name()),
        _ => None,
    };
    match &socket?.local {
        Address::Path(path) => Some(Endpoint::Unix(path.clone())),
        Address::Abstract(name) => Some(Endpoint::Abstract(String::from_utf8(name.clone()).ok()?)),
        _ => None,
    }
}

fn with_name<'a>(sockets: &[&'a Socket], name: &str) -> Option<&'a Socket> {
    for socket in sockets {
        let Some(path) = socket.local.path() else { continue };
        if path.file_name() == Some(name.as_ref()) {
            return Some(socket);
        }
    }
    None
}

/// The kind of service that a map is for: found, or by the socket's file name, or by the port.
pub fn kind_of(map: &Map) -> Option<Kind> {
    if map.kind.is_some() {
        return map.kind;
    }
    if let Some(name) = map.socket.path().and_then(Path::file_name) {
        for kind in Kind::all() {
            let known = kind.descriptor();
            for path in known.default_sockets.iter().chain([&known.socket]) {
                let path = path.replace("{port}", &map.port.to_string());
                let usual = path.rsplit('/').next().unwrap_or_default();
                if !usual.is_empty() && name == usual {
                    return Some(kind);
                }
            }
        }
    }
    Kind::all().find(|kind| kind.descriptor().ports.contains(&map.port))
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{NetworkNamespace, ReadBy, RecognisedBy};
    use samehost_services::Protocol;

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

    fn scan() -> Scan {
        let own = NetworkNamespace {
            inode: 1,
            own: true,
            name: None,
            pid: None,
            foreign: false,
            read_by: ReadBy::SockDiag,
            refused: None,
            somaxconn: None,
        };
        Scan { network_namespaces: vec![own], ..Scan::default() }
    }

    /// Adds a service with these sockets: addresses, and abstract names.
    fn add(scan: &mut Scan, kind: &str, uid: u32, sockets: &[&str]) {
        let first = scan.sockets.len();
        for (at, text) in sockets.iter().enumerate() {
            let (kind, local) = match text.strip_prefix('@') {
                Some(name) => (SocketKind::UnixStream, Address::Abstract(name.into())),
                None => (SocketKind::Tcp, Address::Inet(text.parse().expect("an address"))),
            };
            let inode = (first + at + 1) as u64;
            let mut socket = Socket::new(kind, SocketState::Listen, inode, 1);
            (socket.local, socket.uid) = (local, Some(uid));
            scan.sockets.push(socket);
        }
        scan.services.push(Service {
            kind: Kind::named(kind),
            recognised_by: Some(RecognisedBy::Process),
            name: kind.into(),
            pid: Some(first as u32 + 10),
            processes: 1,
            network_namespace: 1,
            listeners: (first..scan.sockets.len()).collect(),
            connections: 0,
        });
    }

    fn maps(scan: &Scan) -> Vec<String> {
        FoundMaps::of(scan).maps.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_service_with_one_port_and_one_socket_is_mapped() {
        let mut scan = scan();
        add(&mut scan, "redis", 7, &["127.0.0.1:6379", "[::1]:6379", "@cache"]);
        add(&mut scan, "memcached", 7, &["0.0.0.0:11211", "@other"]);
        add(&mut scan, "redis", 7, &["192.0.2.1:6390", "@far"]);
        assert_eq!(
            maps(&scan),
            [
                "127.0.0.1:6379 -> abstract:cache",
                "[::1]:6379 -> abstract:cache",
                "port 11211 -> abstract:other"
            ]
        );
    }

    #[test]
    fn what_is_not_clear_is_not_mapped() {
        let mut scan = scan();
        add(&mut scan, "redis", 7, &["127.0.0.1:6379", "127.0.0.1:6380", "@cache"]);
        add(&mut scan, "nginx", 7, &["127.0.0.1:80", "@console"]);
        add(&mut scan, "mysql", 7, &["127.0.0.1:3306", "@one", "@two"]);
        assert_eq!(maps(&scan), [""; 0]);
        assert_eq!(FoundMaps::of(&scan).unclear.len(), 3);
    }

    #[test]
    fn another_users_service_at_the_same_port_gets_nothing() {
        let mut scan = scan();
        add(&mut scan, "redis", 54_321, &["0.0.0.0:6379", "@trap"]);
        add(&mut scan, "redis", 7, &["[::1]:6379"]);
        assert_eq!(maps(&scan), [""; 0]);
        assert!(FoundMaps::of(&scan).unclear[0].contains("another user"), "{:?}", FoundMaps::of(&scan));
    }

    #[test]
    fn the_kind_of_a_map_is_known() {
        fn kind(text: &str) -> Option<Protocol> {
            kind_of(&text.parse().expect("a map")).and_then(Kind::protocol)
        }
        fn protocol(name: &str) -> Option<Protocol> {
            Kind::named(name).expect("a kind").protocol()
        }
        assert_eq!(kind("9999=/srv/.s.PGSQL.9999"), protocol("postgres"));
        assert_eq!(kind("3306=/srv/anything"), protocol("mysql"));
        assert_eq!(kind("1=/srv/anything"), None);
    }
}
