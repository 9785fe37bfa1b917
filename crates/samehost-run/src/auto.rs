//! The maps that a scan knows: services of this machine that listen at a port and at a Unix socket. Only clear cases: another
//! service's socket must never answer for a port. Pure, but for a look at the socket's file.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use samehost_model::Endpoint;
use samehost_model::scan::{Address, Scan, Service, Socket, SocketKind, SocketState};
use samehost_services::Kind;

use super::maps::Map;

/// Maps of services, and the ports of which it is not clear where they lead.
#[derive(Debug, Default)]
pub struct Found {
    pub maps: Vec<Map>,
    pub unclear: Vec<String>,
}

/// A port of a database, a cache or a pooler.
struct Port<'a> {
    at: SocketAddr,
    kind: Kind,
    service: &'a Service,
    socket: &'a Socket,
}

pub fn found(scan: &Scan) -> Found {
    let mut found = Found::default();
    let ports = ports(scan);
    for port in &ports {
        let mut others = scan.sockets.iter().filter(|other| other.uid != port.socket.uid);
        if others.any(|other| is_here(scan, other) && listens_at(other, port.at.port())) {
            found.unclear.push(format!("{}: another user's service listens at that port too", port.at));
            continue;
        }
        let sockets: Vec<&Socket> = sockets(scan, port).collect();
        if sockets.is_empty() {
            continue;
        }
        let its_ports = ports.iter().filter(|other| std::ptr::eq(other.service, port.service));
        match chosen(port, &sockets, its_ports.map(|its| its.at.port()).collect::<BTreeSet<u16>>().len()) {
            Some(socket) => {
                let (address, kind) = (address(port), Some(port.kind));
                found.maps.push(Map { address, port: port.at.port(), socket, kind });
            }
            None => {
                found.unclear.push(format!(
                    "{}: {} has several sockets or ports",
                    port.at,
                    port.kind.label()
                ));
            }
        }
    }
    found.maps.sort_by_key(|map| (map.port, map.address.is_none(), map.address));
    found.maps.dedup();
    found
}

/// Without an address where the service listens at all of them.
fn address(port: &Port<'_>) -> Option<std::net::IpAddr> {
    Some(port.at.ip()).filter(|address| !address.is_unspecified())
}

fn is_here(scan: &Scan, socket: &Socket) -> bool {
    let own = scan.network_namespaces.iter().find(|namespace| namespace.own);
    own.is_some_and(|own| own.inode == socket.network_namespace) && socket.state == SocketState::Listen
}

fn listens_at(socket: &Socket, port: u16) -> bool {
    socket.kind.is_tcp() && socket.local.inet().is_some_and(|local| local.port() == port)
}

/// Ports of services that speak a protocol with a login: what answers at their sockets is the same as at their ports. A
/// web server's socket may be its console.
fn ports(scan: &Scan) -> Vec<Port<'_>> {
    let mut ports = Vec::new();
    for service in &scan.services {
        let Some(kind) = service.kind else { continue };
        if !kind.protocol().is_some_and(samehost_services::Protocol::has_login) {
            continue;
        }
        for socket in service.listeners.iter().filter_map(|at| scan.sockets.get(*at)) {
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
fn sockets<'a>(scan: &'a Scan, port: &'a Port<'a>) -> impl Iterator<Item = &'a Socket> {
    let services = scan.services.iter().filter(move |other| speaks_the_same(other, port));
    let sockets =
        services.flat_map(|service| service.listeners.iter().filter_map(|at| scan.sockets.get(*at)));
    sockets.filter(move |socket| {
        is_here(scan, socket)
            && socket.kind == SocketKind::UnixStream
            && socket.uid.is_some()
            && socket.uid == port.socket.uid
            && is_its_file(socket)
    })
}

/// Whether it is the service of this port, or one that nobody may look into and that speaks the same.
fn speaks_the_same(other: &Service, port: &Port<'_>) -> bool {
    std::ptr::eq(other, port.service)
        || other.pid.is_none()
            && port.service.pid.is_none()
            && other.kind.and_then(Kind::protocol) == port.kind.protocol()
}

/// Whether its path leads to it from here, and not to another file in another container.
fn is_its_file(socket: &Socket) -> bool {
    match (&socket.local, socket.file) {
        (Address::Path(path), Some(file)) if path.is_absolute() => fs::metadata(path)
            .is_ok_and(|found| found.ino() as u32 == file.inode as u32 && found.dev() == file.device),
        (Address::Abstract(_), _) => true,
        _ => false,
    }
}

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

/// The socket whose file has this name.
fn with_name<'a>(sockets: &[&'a Socket], name: &str) -> Option<&'a Socket> {
    let mut sockets = sockets.iter().copied();
    sockets.find(|socket| socket.local.path().and_then(Path::file_name).is_some_and(|found| found == name))
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
                if path.rsplit('/').next().is_some_and(|usual| !usual.is_empty() && name == usual) {
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

    fn scan() -> Scan {
        let own = NetworkNamespace {
            inode: 1,
            own: true,
            name: None,
            pid: None,
            foreign: false,
            read_by: ReadBy::SockDiag,
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
        found(scan).maps.iter().map(ToString::to_string).collect()
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
        assert_eq!(found(&scan).unclear.len(), 3);
    }

    #[test]
    fn another_users_service_at_the_same_port_gets_nothing() {
        let mut scan = scan();
        add(&mut scan, "redis", 54_321, &["0.0.0.0:6379", "@trap"]);
        add(&mut scan, "redis", 7, &["[::1]:6379"]);
        assert_eq!(maps(&scan), [""; 0]);
        assert!(found(&scan).unclear[0].contains("another user"), "{:?}", found(&scan));
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
