//! Advice before a switch: which service listens at an address, and the blockers between that service and
//! processes that will connect to it, whether or not they are connected now.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use rustix::fs::stat;
use samehost_model::scan::{Connection, Obstacle, Scan, Service};
use samehost_model::{Endpoint, Protocol};
use samehost_system::{Executable, lookup, ownership};

use super::{obstacles_between, pair::Pair};
use crate::listing::join::Listeners;
use crate::listing::trust::{Distrust, Trusted, described, plausible, users};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unserved {
    #[error("nothing listens at {0}")]
    Nobody(Endpoint),
    /// Unrelated programs listen there, as [`described`] says of each.
    #[error("different programs answer at {endpoint}: {}", who.join("; "))]
    Several { endpoint: Endpoint, who: Vec<String> },
    #[error("{who} listens at {endpoint} and is not taken for its server: {why}")]
    Implausible { endpoint: Endpoint, who: String, why: Distrust },
}

impl Unserved {
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Unserved::Nobody(_) => {
                "Start the service first; samehost scan lists what listens. A switch is only made where both can be tried"
            }
            Unserved::Several { .. } => {
                "Stop the one that does not belong there; where the name stands for two addresses, write the address that is meant"
            }
            Unserved::Implausible { .. } => {
                "Find out who that is (samehost scan). If it is the server, name the user that it runs as: --server-user NAME"
            }
        }
    }
}

/// Index of the service that a connection to an endpoint reaches from this program's network namespace, by
/// the kernel's rules for choosing a listener.
///
/// # Errors
/// When nothing listens there, when several programs do between which the kernel or the name of a host chooses, or when the one
/// that does is not [`plausible`] as the server: whoever asks may be about to send it a password.
pub fn service_at(
    scan: &Scan,
    endpoint: &Endpoint,
    protocol: Protocol,
    trusted: &Trusted,
) -> Result<usize, Unserved> {
    let all = services_at(scan, endpoint);
    let Some((at, others)) = all.split_first() else {
        return Err(Unserved::Nobody(endpoint.clone()));
    };
    let first = &scan.services[*at];
    if others.iter().any(|other| !are_alike(scan, first, &scan.services[*other])) {
        let who = all.iter().map(|at| described(scan, &scan.services[*at])).collect();
        return Err(Unserved::Several { endpoint: endpoint.clone(), who });
    }
    match plausible(scan, first, protocol, trusted) {
        Ok(()) => Ok(*at),
        Err(why) => {
            Err(Unserved::Implausible { endpoint: endpoint.clone(), who: described(scan, first), why })
        }
    }
}

/// Indexes of all services that a connection to an endpoint may reach from this program's network namespace,
/// trusted or not.
#[must_use]
pub fn services_at(scan: &Scan, endpoint: &Endpoint) -> Vec<usize> {
    let listeners = match endpoint {
        Endpoint::Tcp { .. } => at_port(scan, endpoint),
        Endpoint::Unix(path) => at_path(scan, path),
        _ => Vec::new(),
    };
    let mut found = Vec::new();
    for at in listeners {
        let service = scan.services.iter().position(|service| service.listeners.contains(&at));
        if let Some(service) = service
            && !found.contains(&service)
        {
            found.push(service);
        }
    }
    found
}

/// Whether both services are the same program and user: workers sharing a port, or one forwarder per address family.
fn are_alike(scan: &Scan, one: &Service, other: &Service) -> bool {
    let (one, other) = match [one, other].map(|service| scan.main_process(service)) {
        [Some(one), Some(other)] => (one, other),
        // For invisible processes only the sockets' owner is known; SO_REUSEPORT shares an address only
        // within one user.
        [None, None] => return makers(scan, one) == makers(scan, other),
        _ => return false,
    };
    let [file, others_file] = [one.pid, other.pid].map(|pid| Executable::of(pid).map(|file| file.file));
    one.uid == other.uid
        && one.container == other.container
        && one.executable == other.executable
        && file == others_file
}

fn makers(scan: &Scan, service: &Service) -> BTreeSet<Option<u32>> {
    scan.listeners(service).map(|socket| socket.uid).collect()
}

fn at_port(scan: &Scan, endpoint: &Endpoint) -> Vec<usize> {
    let own = scan.own_namespace().unwrap_or(0);
    let listeners = Listeners::of(&scan.sockets);
    let mut found: Vec<usize> = Vec::new();
    for address in addresses(endpoint) {
        let mut here = listeners.all(own, address);
        // A connection to the unspecified address goes to loopback.
        if here.is_empty() && address.ip() == Ipv4Addr::UNSPECIFIED {
            here = listeners.all(own, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()));
        }
        found.extend(here);
    }
    found
}

/// Addresses of this machine that an endpoint names. A listener at all addresses here answers at none of another machine's.
fn addresses(endpoint: &Endpoint) -> Vec<SocketAddr> {
    let Endpoint::Tcp { host, port } = endpoint else { return Vec::new() };
    let mut ips = match host.parse::<IpAddr>() {
        Ok(ip) => vec![ip],
        Err(_) => lookup::addresses(host),
    };
    ips.retain(|ip| lookup::is_own(*ip));
    ips.into_iter().map(|ip| SocketAddr::new(ip.to_canonical(), *port)).collect()
}

/// Listeners of a path. Compares the file's inode where known, because the same name can also be bound in
/// another mount namespace.
fn at_path(scan: &Scan, path: &Path) -> Vec<usize> {
    let real = path.canonicalize().ok();
    let inode = stat(path).ok().map(|found| found.st_ino);
    let (mut called, mut exact) = (Vec::new(), Vec::new());
    for (index, socket) in scan.sockets.iter().enumerate() {
        if !socket.is_listening() || !socket.kind.is_unix() {
            continue;
        }
        let Some(local) = socket.local.path() else { continue };
        // /var/run is a link to /run; the kernel reports the name that the server bound.
        let is_called = local == path || (real.is_some() && local.canonicalize().ok() == real);
        if !is_called {
            continue;
        }
        called.push(index);
        if let (Some(file), Some(inode)) = (socket.file, inode)
            && file.has_inode(inode)
        {
            exact.push(index);
        }
    }
    if exact.is_empty() { called } else { exact }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is a socket of {name}, and {why}", path.display())]
pub struct UnsafeSocket {
    path: PathBuf,
    name: String,
    why: String,
    is_taken: bool,
}

impl UnsafeSocket {
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        if self.is_taken {
            return "Stop one of the two, and restart the other with a path of its own";
        }
        "Have the server listen in a directory that only root or the server's own user writes, below /run: then nobody else can put a socket in its place"
    }
}

/// Path of the Unix socket that replaces a service's TCP port; `None` when the service listens on none. Among
/// several with the same name (`/run/postgresql`, `/tmp`) prefers one that no other user can replace.
///
/// # Errors
/// When another user made the socket, or can replace it, or another server took its path: who went there had other data.
pub fn socket_of(scan: &Scan, service: usize, port: Option<u16>) -> Result<Option<PathBuf>, UnsafeSocket> {
    let Some(found) = scan.services.get(service) else { return Ok(None) };
    let pair = Pair::ahead(scan, found, &[], Vec::new(), port);
    let (Some(listener), Some(path)) = (pair.listener, pair.path()) else { return Ok(None) };
    let there = services_at(scan, &Endpoint::Unix(path.clone()));
    if let Some(other) = there.first().filter(|_| !there.contains(&service)) {
        let why = format!("the path leads to {} now, which took it", described(scan, &scan.services[*other]));
        return Err(UnsafeSocket { path, name: described(scan, found), why, is_taken: true });
    }
    let Some(why) = unsafe_because(scan, found, listener.uid, &path) else { return Ok(Some(path)) };
    for socket in scan.listeners(found) {
        let Some(other) = socket.local.path() else { continue };
        let is_alike = socket.kind == listener.kind && other.file_name() == path.file_name();
        if is_alike
            && other.is_absolute()
            && *other != path
            && unsafe_because(scan, found, socket.uid, other).is_none()
        {
            return Ok(Some(other.to_owned()));
        }
    }
    Err(UnsafeSocket { path, name: described(scan, found), why, is_taken: false })
}

/// Reason not to use a service's socket; `None` when it is safe.
fn unsafe_because(scan: &Scan, service: &Service, maker: Option<u32>, path: &Path) -> Option<String> {
    let (users, groups) = users(scan, service);
    if let Some(maker) = maker
        && !users.contains(&maker)
        && !scan.listeners(service).any(|socket| socket.kind.is_tcp() && socket.uid == Some(maker))
    {
        return Some(format!("user {maker} made it, who has nothing else of the server"));
    }
    let view = ownership::View { root: ownership::root_of(service.pid), users, groups };
    if let Ok(Some(foreign)) = view.foreign_writer(path) {
        return Some(format!("{foreign}, who can put another one there"));
    }
    if view.is_open_to_all(path.parent().unwrap_or(Path::new("/"))) {
        return Some("anyone can put another one there while the server does not run".to_owned());
    }
    None
}

/// Obstacles between these processes and the service's Unix socket, heaviest first. `now` is the endpoint
/// that they currently connect to.
#[must_use]
pub fn obstacles(scan: &Scan, service: usize, now: &Endpoint, clients: &[u32]) -> Vec<Obstacle> {
    let Some(found) = scan.services.get(service) else { return Vec::new() };
    let port = match now {
        Endpoint::Tcp { port, .. } => Some(*port),
        _ => None,
    };
    let mut connections: Vec<&Connection> = Vec::new();
    for connection in &scan.connections {
        let Some(client) = scan.sockets.get(connection.client) else { continue };
        let is_theirs = client.pids.iter().any(|pid| clients.contains(pid));
        if connection.service == Some(service) && connection.kind.is_tcp() && is_theirs {
            connections.push(connection);
        }
    }
    // Checked for each client, as their permissions differ. There may be no client yet.
    let each: Vec<&[u32]> = if clients.is_empty() { vec![&[]] } else { clients.chunks(1).collect() };
    let pairs: Vec<Pair<'_>> =
        each.iter().map(|one| Pair::ahead(scan, found, one, connections.clone(), port)).collect();
    obstacles_between(&pairs)
}
