//! Pairs the two ends of every connection: TCP by addresses, Unix sockets by the peer's inode. Pure.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use samehost_model::scan::{Address, Connection, NetworkNamespace, Socket, SocketKind, SocketState};

/// Listening TCP sockets, to decide which end of a connection was accepted.
#[derive(Default)]
pub(crate) struct Listeners {
    /// By namespace and address, as positions in the list of sockets.
    exact: HashMap<(u64, SocketAddr), Vec<usize>>,
    /// Dual-stack listeners (`::` without IPV6_V6ONLY), by namespace and port.
    dual: HashMap<(u64, u16), Vec<usize>>,
}

impl Listeners {
    pub(crate) fn of(sockets: &[Socket]) -> Self {
        let mut listeners = Listeners::default();
        for (at, socket) in sockets.iter().enumerate() {
            if !socket.kind.is_tcp() || socket.state != SocketState::Listen {
                continue;
            }
            let Some(address) = socket.local.inet() else { continue };
            let namespace = socket.network_namespace;
            listeners.exact.entry((namespace, address)).or_default().push(at);
            if address.is_ipv6() && address.ip().is_unspecified() && socket.v6only != Some(true) {
                listeners.dual.entry((namespace, address.port())).or_default().push(at);
            }
        }
        listeners
    }

    pub(crate) fn accepts(&self, namespace: u64, address: SocketAddr) -> Option<usize> {
        self.all(namespace, address).first().copied()
    }

    /// Listeners to which the kernel gives connections to an address: those bound to that address, else to
    /// all addresses of its family, else, for IPv4, dual-stack ones. Several only when one user shares a port
    /// (`SO_REUSEPORT`).
    pub(crate) fn all(&self, namespace: u64, address: SocketAddr) -> &[usize] {
        let every = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        if let Some(bound) = self.exact.get(&(namespace, address)) {
            return bound;
        }
        if let Some(bound) = self.exact.get(&(namespace, SocketAddr::new(every, address.port()))) {
            return bound;
        }
        match self.dual.get(&(namespace, address.port())) {
            Some(bound) if address.is_ipv4() => bound,
            _ => &[],
        }
    }
}

/// Pairs sockets into connections, and records the peer's address on each Unix socket: the kernel lists only the peer's inode.
/// Which service accepted a connection is found later, when services are known.
pub(crate) fn join(sockets: &mut [Socket], namespaces: &[NetworkNamespace]) -> Vec<Connection> {
    let foreign: Vec<u64> =
        namespaces.iter().filter(|space| space.foreign).map(|space| space.inode).collect();
    let mut connections = join_tcp(sockets, &foreign);
    connections.extend(join_unix(sockets));
    for connection in &connections {
        if connection.kind.is_unix() {
            let (client, server) = (connection.client, connection.server);
            sockets[client].peer = sockets[server].local.clone();
            if sockets[server].peer_inode == Some(sockets[client].inode) {
                sockets[server].peer = sockets[client].local.clone();
            }
        }
    }
    connections
}

/// Namespace under which an address is looked up. Addresses are unique across namespaces, except loopback ones. In
/// a namespace that an ordinary user made, addresses are not trusted: both ends of any connection could be faked.
fn place(namespace: u64, local: SocketAddr, foreign: &[u64]) -> u64 {
    if local.ip().is_loopback() || foreign.contains(&namespace) { namespace } else { 0 }
}

fn join_tcp(sockets: &[Socket], foreign: &[u64]) -> Vec<Connection> {
    let listeners = Listeners::of(sockets);
    let mut waiting: HashMap<(u64, SocketAddr, SocketAddr), usize> = HashMap::new();
    let mut joined = Vec::new();
    for (at, socket) in sockets.iter().enumerate() {
        let is_connected = socket.kind.is_tcp()
            && !matches!(socket.state, SocketState::Listen | SocketState::Close | SocketState::SynSent);
        let (true, Some(local), Some(peer)) = (is_connected, socket.local.inet(), socket.peer.inet()) else {
            continue;
        };
        let place = place(socket.network_namespace, local, foreign);
        let Some(other) = waiting.remove(&(place, peer, local)) else {
            waiting.insert((place, local, peer), at);
            continue;
        };
        let here = listeners.accepts(socket.network_namespace, local).is_some();
        let there = listeners.accepts(sockets[other].network_namespace, peer).is_some();
        let is_server = match (here, there) {
            (here, there) if here != there => here,
            // Heuristic: clients get ports from a range above most servers' ports.
            _ => local.port() < peer.port(),
        };
        let (client, server) = if is_server { (other, at) } else { (at, other) };
        let kind = sockets[client].kind;
        joined.push(Connection { kind, client, server, service: None });
    }
    joined
}

fn join_unix(sockets: &[Socket]) -> Vec<Connection> {
    let mut by_inode: HashMap<u64, usize> = HashMap::new();
    for (at, socket) in sockets.iter().enumerate() {
        if socket.kind.is_unix() && socket.inode != 0 {
            by_inode.insert(socket.inode, at);
        }
    }
    let mut joined = Vec::new();
    for (at, socket) in sockets.iter().enumerate() {
        let Some(peer_inode) = socket.peer_inode else { continue };
        let Some(other) = by_inode.get(&peer_inode).copied() else { continue };
        if !socket.kind.is_unix() {
            continue;
        }
        // A connected pair is met at both ends, and taken at the first.
        let is_mutual = sockets[other].peer_inode == Some(socket.inode);
        if is_mutual && other <= at {
            continue;
        }
        // The accepted end has the listener's name; of datagram sockets, the one that is sent to is the server.
        let here_is_server = is_mutual && is_accepted(socket) && !is_accepted(&sockets[other]);
        let (client, server) = if here_is_server { (other, at) } else { (at, other) };
        joined.push(Connection { kind: socket.kind, client, server, service: None });
    }
    joined
}

fn is_accepted(socket: &Socket) -> bool {
    socket.local != Address::Unnamed && (socket.kind != SocketKind::UnixDgram || socket.peer_inode.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(inode: u64, state: SocketState, local: &str, peer: &str) -> Socket {
        let kind = if local.starts_with('[') { SocketKind::Tcp6 } else { SocketKind::Tcp };
        Socket {
            local: Address::Inet(local.parse().unwrap()),
            peer: Address::Inet(peer.parse().unwrap()),
            ..Socket::new(kind, state, inode, 1)
        }
    }

    fn unix(inode: u64, name: &str, peer: Option<u64>) -> Socket {
        Socket {
            kind: SocketKind::UnixStream,
            local: Address::from_sun_path(name.as_bytes()),
            peer: Address::Unnamed,
            peer_inode: peer,
            ..tcp(inode, SocketState::Established, "0.0.0.0:0", "0.0.0.0:0")
        }
    }

    fn ends(sockets: &mut [Socket]) -> Vec<(u64, u64)> {
        let joined = join(sockets, &[]);
        joined.iter().map(|one| (sockets[one.client].inode, sockets[one.server].inode)).collect()
    }

    #[test]
    fn tcp_ends_meet_even_through_mapped_addresses() {
        let mut sockets = [
            tcp(1, SocketState::Listen, "[::]:3306", "[::]:0"),
            tcp(2, SocketState::Established, "[::ffff:127.0.0.1]:3306", "[::ffff:127.0.0.1]:2000"),
            tcp(3, SocketState::Established, "127.0.0.1:2000", "127.0.0.1:3306"),
            tcp(4, SocketState::Established, "127.0.0.1:2001", "127.0.0.1:3306"),
            tcp(5, SocketState::Established, "127.0.0.1:3000", "127.0.0.1:3000"),
        ];
        assert_eq!(ends(&mut sockets), [(3, 2)], "the listener decides, not the port");
    }

    #[test]
    fn loopback_of_two_namespaces_does_not_meet() {
        let mut sockets = [
            tcp(2, SocketState::Established, "127.0.0.1:3306", "127.0.0.1:40000"),
            Socket {
                network_namespace: 2,
                ..tcp(3, SocketState::Established, "127.0.0.1:40000", "127.0.0.1:3306")
            },
            tcp(4, SocketState::Established, "10.0.0.1:3306", "10.0.0.2:40000"),
            Socket {
                network_namespace: 2,
                ..tcp(5, SocketState::Established, "10.0.0.2:40000", "10.0.0.1:3306")
            },
        ];
        assert_eq!(ends(&mut sockets), [(5, 4)]);
    }

    #[test]
    fn addresses_in_a_users_own_namespace_are_his_word() {
        fn inside(socket: Socket) -> Socket {
            Socket { network_namespace: 2, ..socket }
        }
        let mut sockets = [
            tcp(1, SocketState::Established, "10.0.0.1:3306", "10.0.0.1:40000"),
            inside(tcp(2, SocketState::Established, "10.0.0.1:40000", "10.0.0.1:3306")),
            inside(tcp(3, SocketState::Established, "10.0.0.1:3306", "10.0.0.1:40000")),
            tcp(4, SocketState::Established, "10.0.0.1:40000", "10.0.0.1:3306"),
        ];
        let space = NetworkNamespace {
            inode: 2,
            own: false,
            foreign: true,
            name: None,
            pid: None,
            read_by: samehost_model::scan::ReadBy::SockDiag,
            refused: None,
            somaxconn: None,
        };
        let joined = join(&mut sockets, &[space]);
        let ends: Vec<_> = joined.iter().map(|one| (one.client, one.server)).collect();
        assert_eq!(ends, [(1, 2), (3, 0)], "each namespace's own ends");
    }

    #[test]
    fn a_listener_is_chosen_as_the_kernel_does() {
        fn chosen(sockets: &[&Socket], address: &str) -> Vec<usize> {
            let sockets: Vec<Socket> = sockets.iter().map(|socket| (*socket).clone()).collect();
            Listeners::of(&sockets).all(1, address.parse().unwrap()).to_vec()
        }
        let listen =
            |local: &str, v6only| Socket { v6only, ..tcp(1, SocketState::Listen, local, "0.0.0.0:0") };
        let only6 = listen("[::]:3306", Some(true));
        let dual = listen("[::]:3306", Some(false));
        let (exact, every) = (listen("127.0.0.1:3306", None), listen("0.0.0.0:3306", None));
        assert_eq!(chosen(&[&only6, &exact], "127.0.0.1:3306"), [1]);
        assert_eq!(chosen(&[&only6], "127.0.0.1:3306"), [0; 0], "IPv4 does not reach it");
        assert_eq!(chosen(&[&dual, &every], "127.0.0.1:3306"), [1]);
        assert_eq!(chosen(&[&dual], "127.0.0.1:3306"), [0]);
        assert_eq!(chosen(&[&every, &exact], "127.0.0.1:3306"), [1]);
        assert_eq!(chosen(&[&every, &exact], "127.0.0.2:3306"), [0]);
        assert_eq!(chosen(&[&every, &only6], "[::1]:3306"), [1]);
        assert_eq!(chosen(&[&exact, &exact], "127.0.0.1:3306"), [0, 1], "a port that is shared");
    }

    #[test]
    fn unix_ends_meet_by_inode() {
        let mut sockets =
            [unix(1, "/run/a", Some(2)), unix(2, "", Some(1)), unix(3, "", Some(4)), unix(4, "", Some(3))];
        assert_eq!(ends(&mut sockets), [(2, 1), (3, 4)]);
        assert_eq!(sockets[1].peer.to_string(), "/run/a");
        let mut log = unix(5, "/dev/log", None);
        log.kind = SocketKind::UnixDgram;
        let mut program = unix(6, "", Some(5));
        program.kind = SocketKind::UnixDgram;
        assert_eq!(ends(&mut [log, program]), [(6, 5)]);
    }
}
