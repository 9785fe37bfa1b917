//! Finds the processes that listen on an endpoint, from /proc alone, so that the CPU time of a server that was
//! already running counts as the server's and not as foreign. Without root, processes of other users are not visible.

use std::fs;

use samehost_model::Endpoint;
use samehost_model::scan::Queues;
use samehost_system::diag::Diag;

use super::proc::{pids, text};

/// Processes that have this endpoint's listening socket open; empty if none is visible.
#[must_use]
pub fn listener_pids(endpoint: &Endpoint) -> Vec<u32> {
    let inodes = listeners(endpoint);
    let names: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    if names.is_empty() { Vec::new() } else { pids().into_iter().filter(|pid| holds(*pid, &names)).collect() }
}

/// Queue of connections that wait to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    /// Connections that wait now.
    pub(crate) waiting: u32,
    /// Limit of the queue: the listener's backlog.
    pub(crate) most: u32,
}

/// Accept queue of this endpoint's listener, from sock_diag.
pub(crate) fn queue(endpoint: &Endpoint) -> Option<Queue> {
    let inodes = listeners(endpoint);
    let sockets = Diag::open().and_then(|mut diag| diag.sockets(0)).ok()?;
    sockets.into_iter().filter(|socket| inodes.contains(&socket.inode)).find_map(|socket| {
        match socket.queues {
            Queues::Listening { waiting, backlog: Some(most) } => Some(Queue { waiting, most }),
            _ => None,
        }
    })
}

/// Inodes of the endpoint's listening sockets.
fn listeners(endpoint: &Endpoint) -> Vec<u64> {
    match endpoint {
        Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. } => ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(text)
            .flat_map(|table| tcp_listeners(&table, *port))
            .collect(),
        Endpoint::Unix(path) | Endpoint::Seqpacket(path) => {
            unix_listeners(&text("/proc/net/unix").unwrap_or_default(), &path.to_string_lossy())
        }
        Endpoint::Abstract(name) => {
            unix_listeners(&text("/proc/net/unix").unwrap_or_default(), &format!("@{name}"))
        }
        Endpoint::Socketpair | Endpoint::Pipe => Vec::new(),
    }
}

fn holds(pid: u32, names: &[String]) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.flatten().any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|link| names.iter().any(|name| link.as_os_str() == name.as_str()))
    })
}

/// Inodes of sockets in state 0A (LISTEN) on a port: fields 1 (local address), 3 (state) and 9 (inode) of
/// /proc/net/tcp (proc_net_tcp).
fn tcp_listeners(table: &str, port: u16) -> Vec<u64> {
    let wanted = format!("{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let here = fields.get(1)?.rsplit(':').next()? == wanted && *fields.get(3)? == "0A";
        if here { fields.get(9)?.parse().ok() } else { None }
    };
    table.lines().filter_map(inode).collect()
}

/// Inodes of listening sockets (flag 0x10000, __SO_ACCEPTCON) of a name in /proc/net/unix: fields 3 (flags),
/// 6 (inode) and the rest (path).
fn unix_listeners(table: &str, name: &str) -> Vec<u64> {
    let inode = |line: &str| {
        let (head, path) = line.split_at(line.find(name)?);
        let fields: Vec<&str> = head.split_ascii_whitespace().collect();
        let listens = u32::from_str_radix(fields.get(3)?, 16).ok()? & 0x1_0000 != 0;
        if path == name && listens && fields.len() == 7 { fields.get(6)?.parse().ok() } else { None }
    };
    table.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found_by_port_and_name() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n   \
                   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0\n";
        assert_eq!(tcp_listeners(tcp, 8080), [4711]);
        assert!(tcp_listeners(tcp, 80).is_empty());
        let unix = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 5001 /run/a b.sock\n\
                    0000000000000000: 00000003 00000000 00000000 0001 03 5002 /run/a b.sock\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 5003 @name\n";
        assert_eq!(unix_listeners(unix, "/run/a b.sock"), [5001]);
        assert_eq!(unix_listeners(unix, "@name"), [5003]);
        assert!(unix_listeners(unix, "b.sock").is_empty());
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
