//! Advice ahead of a switch: the blockers between processes that will connect and a service, whether or not they hold a
//! connection at this moment; and which service listens at an address.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

use samehost_model::Endpoint;
use samehost_model::scan::{Connection, Obstacle, Scan, Weight};

use super::{BLOCKERS, pair::Pair};

/// The service that listens at an endpoint, in this program's network namespace; its index in the scan.
#[must_use]
pub fn service_at(scan: &Scan, endpoint: &Endpoint) -> Option<usize> {
    let own = scan.network_namespaces.iter().find(|space| space.own).map(|space| space.inode);
    let addresses = addresses(endpoint);
    let fits = |at: &usize| {
        let Some(socket) = scan.sockets.get(*at) else { return false };
        match endpoint {
            Endpoint::Tcp { .. } => {
                Some(socket.network_namespace) == own
                    && socket.local.inet().is_some_and(|local| {
                        addresses.iter().any(|(ip, port)| {
                            local.port() == *port
                                && (canonical(local.ip()) == *ip || local.ip().is_unspecified())
                        })
                    })
            }
            // /var/run is a link to /run, and the kernel knows the name that the server bound.
            Endpoint::Unix(path) => socket.local.path().is_some_and(|local| {
                local == path
                    || local
                        .canonicalize()
                        .is_ok_and(|local| path.canonicalize().is_ok_and(|path| path == local))
            }),
            _ => false,
        }
    };
    scan.services.iter().position(|service| service.listeners.iter().any(fits))
}

fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn addresses(endpoint: &Endpoint) -> Vec<(IpAddr, u16)> {
    let Endpoint::Tcp { host, port } = endpoint else { return Vec::new() };
    let found = (host.as_str(), *port).to_socket_addrs().into_iter().flatten();
    found.map(|address| (canonical(address.ip()), address.port())).collect()
}

/// The path of the Unix socket that stands for a service's port: none where it listens on none.
#[must_use]
pub fn socket_of(scan: &Scan, service: usize, port: Option<u16>) -> Option<PathBuf> {
    let pair = Pair::ahead(scan, scan.services.get(service)?, &[], Vec::new(), port);
    pair.path()
}

/// What is in the way of these processes reaching that service over its Unix socket, heaviest first. `now` is where they
/// connect at present.
#[must_use]
pub fn obstacles(scan: &Scan, service: usize, now: &Endpoint, clients: &[u32]) -> Vec<Obstacle> {
    let Some(found) = scan.services.get(service) else { return Vec::new() };
    let port = match now {
        Endpoint::Tcp { port, .. } => Some(*port),
        _ => None,
    };
    let is_theirs = |connection: &&Connection| {
        let pids = scan.sockets.get(connection.client).map(|socket| socket.pids.as_slice());
        connection.service == Some(service)
            && connection.kind.is_tcp()
            && pids.unwrap_or_default().iter().any(|pid| clients.contains(pid))
    };
    let connections: Vec<&Connection> = scan.connections.iter().filter(is_theirs).collect();
    // What one client may do, another may not: each is asked about. Nobody may be there yet, too.
    let each: Vec<&[u32]> = if clients.is_empty() { vec![&[]] } else { clients.chunks(1).collect() };
    let pairs: Vec<Pair<'_>> =
        each.iter().map(|one| Pair::ahead(scan, found, one, connections.clone(), port)).collect();
    let mut obstacles: Vec<Obstacle> = BLOCKERS
        .iter()
        .filter_map(|blocker| {
            let found = pairs.iter().filter_map(|pair| (blocker.check)(pair));
            let (weight, found, remedy) = found.max_by_key(|(weight, _, _)| *weight)?;
            Some(Obstacle { code: blocker.code, weight, found, remedy })
        })
        .collect();
    obstacles.sort_by_key(|obstacle| std::cmp::Reverse::<Weight>(obstacle.weight));
    obstacles
}

/// Who a process is to the kernel, when it opens files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its other groups, as they were when it started.
    pub groups: Vec<u32>,
}

/// Who a process is; none when it is gone.
#[must_use]
pub fn identity(pid: u32) -> Option<Identity> {
    let status = crate::proc::status::read(pid)?;
    Some(Identity { uid: status.uid, gid: status.gid, groups: status.groups })
}
