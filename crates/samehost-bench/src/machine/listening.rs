//! Who listens, from /proc alone; nothing is connected to. Servers that run here are found by process name, with their
//! endpoints; and the processes behind an endpoint, so that the CPU time of a server that was already running counts as
//! the server's and not as foreign. Without root, processes of other users are not visible.

use std::fs;
use std::net::Ipv4Addr;

use samehost_model::Endpoint;
use samehost_model::scan::{Address, Queues, Socket, SocketKind};
use samehost_system::diag::Diag;
use samehost_system::peer::holders;
use samehost_system::proc::descriptors::sockets_of;
use samehost_system::proc::{net_table, pids, status};

use crate::parameters::distinct;

#[derive(Clone, Debug, PartialEq)]
pub struct RunningServer {
    pub name: String,
    pub pid: u32,
    /// Endpoints that can be reached from here, TCP first; empty if we may not see its sockets.
    pub endpoints: Vec<Endpoint>,
}

/// Listening processes with accepted names that can be reached from here. Leaves out those that `samehost`
/// started, and children that share the sockets of their parent.
#[must_use]
pub fn running_servers(is_one: impl Fn(&str) -> bool) -> Vec<RunningServer> {
    let mut found: Vec<RunningServer> = Vec::new();
    for pid in pids() {
        let Some(stat) = status::read_stat(pid) else { continue };
        if !is_one(&stat.name) || is_ours(stat.parent) || !is_reachable(pid) {
            continue;
        }
        let endpoints = endpoints(pid);
        // The process listens nowhere: it is a child, or serves by other means.
        if endpoints.is_empty() && may_look(pid) {
            continue;
        }
        if !found.iter().any(|other| is_the_same(other, &stat, &endpoints)) {
            found.push(RunningServer { name: stat.name, pid, endpoints });
        }
    }
    found
}

/// Whether a process belongs to a server that was found before: a child with no other endpoints than its parent, or a
/// process of the same name with the same endpoints.
fn is_the_same(server: &RunningServer, stat: &status::Stat, endpoints: &[Endpoint]) -> bool {
    let is_child =
        server.pid == stat.parent && endpoints.iter().all(|endpoint| server.endpoints.contains(endpoint));
    server.name == stat.name && (is_child || server.endpoints == endpoints)
}

/// Whether a supervisor of ours is among the ancestors. The process then belongs to a private server of
/// another measurement.
fn is_ours(parent: u32) -> bool {
    let mut above = status::read_stat(parent);
    while let Some(stat_above) = above {
        if stat_above.name == "samehost" {
            return true;
        }
        above = status::read_stat(stat_above.parent);
    }
    false
}

/// Whether the process lives in our network namespace. If that cannot be read, we assume so.
fn is_reachable(pid: u32) -> bool {
    match (fs::read_link(format!("/proc/{pid}/ns/net")), fs::read_link("/proc/self/ns/net")) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => true,
    }
}

fn may_look(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok()
}

fn endpoints(pid: u32) -> Vec<Endpoint> {
    let inodes = sockets_of(pid);
    let mut sockets = net_table::read(pid, 0).unwrap_or_default();
    sockets.retain(|socket| inodes.contains(&socket.inode));
    distinct(sockets.iter().filter_map(endpoint).collect())
}

/// The endpoint of a listening stream socket: a path, a name, or a port on the loopback interface or on all interfaces,
/// which are reached by 127.0.0.1.
fn endpoint(socket: &Socket) -> Option<Endpoint> {
    if !socket.is_listening() {
        return None;
    }
    match (socket.kind, &socket.local) {
        (SocketKind::Tcp | SocketKind::Tcp6, Address::Inet(address)) => {
            let (ip, port) = (address.ip(), address.port());
            // By default a socket on :: accepts IPv4 too (bindv6only=0); 127.0.0.1 is what programs use.
            let host = if ip.is_unspecified() { Ipv4Addr::LOCALHOST.to_string() } else { ip.to_string() };
            (ip.is_unspecified() || ip.is_loopback()).then_some(Endpoint::Tcp { host, port })
        }
        (SocketKind::UnixStream, Address::Path(path)) => Some(Endpoint::Unix(path.clone())),
        (SocketKind::UnixStream, Address::Abstract(name)) => {
            Some(Endpoint::Abstract(String::from_utf8_lossy(name).into_owned()))
        }
        _ => None,
    }
}

/// Processes that have this endpoint's listening socket open; empty if none is visible, as those of other users without
/// root.
pub fn listener_pids(endpoint: &Endpoint) -> Vec<u32> {
    listeners(endpoint).iter().flat_map(|socket| holders(socket.inode).pids).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) waiting: u32,
    pub(crate) most: u32,
}

/// Accept queue of this endpoint's listener; `None` where the kernel shows no listener, or not its backlog.
pub(crate) fn queue(endpoint: &Endpoint) -> Option<Queue> {
    for socket in listeners(endpoint) {
        if let Queues::Listening { waiting, backlog: Some(most) } = socket.queues {
            return Some(Queue { waiting, most });
        }
    }
    None
}

/// The endpoint's listening sockets, from sock_diag.
fn listeners(endpoint: &Endpoint) -> Vec<Socket> {
    let mut sockets = Diag::open().and_then(|mut diag| diag.sockets(0)).unwrap_or_default();
    sockets.retain(|socket| socket.is_listening() && is_at(socket, endpoint));
    sockets
}

fn is_at(socket: &Socket, endpoint: &Endpoint) -> bool {
    let is_unix = matches!(socket.kind, SocketKind::UnixStream | SocketKind::UnixSeqpacket);
    match (endpoint, &socket.local) {
        (Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. }, Address::Inet(address)) => {
            socket.kind.is_tcp() && address.port() == *port
        }
        (Endpoint::Unix(path) | Endpoint::Seqpacket(path), Address::Path(bound)) => is_unix && bound == path,
        (Endpoint::Abstract(name), Address::Abstract(bound)) => is_unix && bound == name.as_bytes(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn addresses_are_those_that_a_local_client_uses() {
        fn found(address: &str) -> Vec<String> {
            let listener = std::net::TcpListener::bind(address).unwrap();
            let port = format!(":{}", listener.local_addr().unwrap().port());
            let found = endpoints(std::process::id()).into_iter();
            found.filter_map(|one| Some(one.to_string().strip_suffix(&port)?.to_owned())).collect()
        }
        assert_eq!(found("127.0.0.1:0"), ["tcp:127.0.0.1"]);
        assert_eq!(found("0.0.0.0:0"), ["tcp:127.0.0.1"]);
        assert_eq!(found("[::1]:0"), ["tcp:[::1]"]);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let connection = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let here: Vec<Endpoint> = endpoints(std::process::id());
        assert_eq!(here.iter().filter(|one| **one == Endpoint::Unix(path.clone())).count(), 1);
        drop((listener, connection));
    }

    #[test]
    fn a_listening_process_is_found_by_its_name() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let name = status::read_stat(std::process::id()).unwrap().name;
        let endpoint: Endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
        let found = running_servers(|found| found == name);
        assert!(found.iter().any(|server| server.endpoints.contains(&endpoint)), "{found:?}");
        assert!(running_servers(|_| false).is_empty());
    }

    #[test]
    fn listeners_are_found_by_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let connection = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_eq!(listeners(&Endpoint::Unix(path.clone())).len(), 1);
        assert!(listeners(&Endpoint::Unix("b.sock".into())).is_empty());
        assert!(listener_pids(&Endpoint::Unix(path)).contains(&std::process::id()));
        drop((listener, connection));
    }

    #[test]
    fn our_own_listener_is_ours() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
        assert!(listener_pids(&endpoint).contains(&std::process::id()));
        let waiting = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let queue = queue(&endpoint).unwrap();
        assert!(queue.waiting == 1 && queue.most >= 128, "{queue:?}");
        drop(waiting);
    }
}
