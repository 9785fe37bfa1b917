//! Finds the processes that listen on an endpoint, so that the CPU time of a server that was already running
//! counts as the server's and not as foreign. Without root, processes of other users are not visible.

use samehost_model::Endpoint;
use samehost_model::scan::{Address, Queues, Socket, SocketKind};
use samehost_system::diag::Diag;
use samehost_system::peer::holders;

/// Processes that have this endpoint's listening socket open; empty if none is visible.
#[must_use]
pub fn listener_pids(endpoint: &Endpoint) -> Vec<u32> {
    listeners(endpoint).iter().flat_map(|socket| holders(socket.inode).pids).collect()
}

/// Queue of connections that wait to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    /// Connections that wait now.
    pub(crate) waiting: u32,
    /// Limit of the queue: the listener's backlog.
    pub(crate) most: u32,
}

/// Accept queue of this endpoint's listener.
pub(crate) fn queue(endpoint: &Endpoint) -> Option<Queue> {
    listeners(endpoint).into_iter().find_map(|socket| match socket.queues {
        Queues::Listening { waiting, backlog: Some(most) } => Some(Queue { waiting, most }),
        _ => None,
    })
}

/// The endpoint's listening sockets, from sock_diag.
fn listeners(endpoint: &Endpoint) -> Vec<Socket> {
    let mut sockets = Diag::open().and_then(|mut diag| diag.sockets(0)).unwrap_or_default();
    sockets.retain(|socket| socket.is_listening() && is_at(socket, endpoint));
    sockets
}

/// Whether a socket has the port, the path or the name of an endpoint.
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
