//! Finds running servers by process name, with the endpoints they listen on, from /proc alone. It only reads:
//! it connects to none of them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use samehost_model::Endpoint;

use super::proc::{pids, stat, text};

/// A server that is running on this machine.
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
    let mut pids = pids();
    pids.sort_unstable();
    let mut found: Vec<RunningServer> = Vec::new();
    for pid in pids {
        let Some(stat) = stat(pid).filter(|stat| is_one(&stat.name)) else { continue };
        if is_ours(stat.parent) || !is_reachable(pid) {
            continue;
        }
        let endpoints = match held_sockets(pid) {
            Some(inodes) => {
                let endpoints = endpoints(pid, &inodes);
                // The process listens nowhere: it is a child, or serves by other means.
                if endpoints.is_empty() {
                    continue;
                }
                endpoints
            }
            None => Vec::new(),
        };
        let known = |other: &RunningServer| {
            let is_child = other.pid == stat.parent && endpoints.iter().all(|e| other.endpoints.contains(e));
            other.name == stat.name && (is_child || other.endpoints == endpoints)
        };
        if !found.iter().any(known) {
            found.push(RunningServer { name: stat.name, pid, endpoints });
        }
    }
    found
}

/// Whether a supervisor of ours is among the ancestors. The process then belongs to a private server of
/// another measurement.
fn is_ours(parent: u32) -> bool {
    let mut above = stat(parent);
    while let Some(stat_above) = above {
        if stat_above.name == "samehost" {
            return true;
        }
        above = stat(stat_above.parent);
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

/// Inodes of the sockets that a process has open; `None` if we may not look.
fn held_sockets(pid: u32) -> Option<Vec<u64>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let inode = |entry: fs::DirEntry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Some(entries.flatten().filter_map(inode).collect())
}

fn endpoints(pid: u32, inodes: &[u64]) -> Vec<Endpoint> {
    let table = |name: &str| text(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for (inode, endpoint) in tcp_listeners(&table("tcp"))
        .into_iter()
        .chain(tcp_listeners(&table("tcp6")))
        .chain(unix_listeners(&table("unix")))
    {
        if inodes.contains(&inode) && !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

/// Listening sockets of /proc/net/tcp or tcp6 that a local client can reach: those on the loopback interface,
/// and those on all interfaces, which are reached by 127.0.0.1 or ::1. Fields as in proc_net_tcp.
fn tcp_listeners(table: &str) -> Vec<(u64, Endpoint)> {
    let listener = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if *fields.get(3)? != "0A" {
            return None;
        }
        let (address, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let host = match address_of(address)? {
            // By default a socket on :: accepts IPv4 too (bindv6only=0); 127.0.0.1 is what programs use.
            address if address.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
            address if address.is_loopback() => address.to_string(),
            _ => return None,
        };
        Some((fields.get(9)?.parse().ok()?, Endpoint::Tcp { host, port }))
    };
    table.lines().filter_map(listener).collect()
}

/// Parses an address as the kernel prints it: words of 32 bits in native byte order.
fn address_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)))
        }
        _ => None,
    }
}

/// Listening stream sockets of /proc/net/unix that have a name: fields 3 (flags, with __SO_ACCEPTCON), 4
/// (type), 6 (inode) and the rest (path).
fn unix_listeners(table: &str) -> Vec<(u64, Endpoint)> {
    let listener = |line: &str| {
        // Six fields before the inode, which is padded with blanks; a path may itself contain blanks.
        let mut fields = line.splitn(7, ' ');
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let kind = fields.next()?;
        let (inode, rest) = fields.nth(1)?.trim_start().split_once(' ')?;
        let endpoint = match rest.strip_prefix('@') {
            Some(name) => Endpoint::Abstract(name.to_owned()),
            None => Endpoint::Unix(rest.into()),
        };
        (flags & 0x1_0000 != 0 && kind == "0001").then_some((inode.parse().ok()?, endpoint))
    };
    table.lines().filter_map(listener).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_a_local_client_uses() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0\n   \
             1: 00000000:18EC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0\n   \
             2: 0100000A:18ED 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0\n   \
             3: 0100007F:18EB 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0\n";
        let six = "   0: 00000000000000000000000001000000:18EE 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 15 1 0\n";
        let shown = |table: &str| -> Vec<(u64, String)> {
            tcp_listeners(table).into_iter().map(|(inode, endpoint)| (inode, endpoint.to_string())).collect()
        };
        if cfg!(target_endian = "little") {
            assert_eq!(shown(table), [(11, "tcp:127.0.0.1:6379".into()), (12, "tcp:127.0.0.1:6380".into())]);
            assert_eq!(shown(six), [(15, "tcp:[::1]:6382".into())]);
        }
        let unix = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 5001 /run/a b.sock\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01    21 /run/short.sock\n\
                    0000000000000000: 00000003 00000000 00000000 0001 03 5002 /run/a b.sock\n\
                    0000000000000000: 00000002 00000000 00010000 0005 01 5003 /run/packets\n\
                    0000000000000000: 00000003 00000000 00000000 0001 03 5005\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 5004 @name\n";
        let found: Vec<(u64, String)> =
            unix_listeners(unix).into_iter().map(|(inode, endpoint)| (inode, endpoint.to_string())).collect();
        let expected = [(5001, "unix:/run/a b.sock"), (21, "unix:/run/short.sock"), (5004, "abstract:name")];
        assert_eq!(found, expected.map(|(inode, text)| (inode, text.to_owned())));
    }

    #[test]
    fn a_listening_process_is_found_by_its_name() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let name = stat(std::process::id()).unwrap().name;
        let endpoint: Endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
        let found = running_servers(|found| found == name);
        assert!(found.iter().any(|server| server.endpoints.contains(&endpoint)), "{found:?}");
        assert!(running_servers(|_| false).is_empty());
    }
}
