//! Groups listening sockets into services, recognises them, and finds the service that accepted each
//! connection. Pure.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;

use samehost_model::scan::{
    Address, FileId, Process, RecognisedBy, Scan, Service, Socket, SocketKind, SocketState,
};
use samehost_services::Kind;

use crate::listing::datagrams::of_port;
use crate::listing::join::Listeners;
use crate::listing::recognise::recognise;

/// Owner by which listening sockets are grouped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Process(u32),
    /// No visible process. Groups sockets of one recognised service and one user.
    Unseen(Option<u32>, Option<Kind>, usize),
}

/// Fills in the services of a scan, and the service of each of its connections.
pub(crate) fn find(scan: &mut Scan) {
    let mut groups: BTreeMap<(Owner, u64), Vec<usize>> = BTreeMap::new();
    for (at, socket) in scan.sockets.iter().enumerate() {
        if socket.is_listening() {
            groups.entry((owner(scan, at), socket.network_namespace)).or_default().push(at);
        }
    }
    let services: Vec<Service> = groups
        .into_iter()
        .map(|((owner, namespace), listeners)| describe(scan, &owner, namespace, listeners))
        .collect();
    scan.services = services;
    assign(scan);
}

fn owner(scan: &Scan, at: usize) -> Owner {
    let socket = &scan.sockets[at];
    match main_process(scan, &socket.pids, socket.uid) {
        Some(pid) => Owner::Process(pid),
        None => {
            let kind = evidence(None, &[socket]).map(|(kind, _)| kind);
            Owner::Unseen(socket.uid, kind, if kind.is_some() { 0 } else { at })
        }
    }
}

/// The main process among those that hold a socket: the common ancestor. If there are several, one of the
/// socket's owner, because a worker's orphaned child keeps the socket as well. The init system holds sockets
/// for services that it starts on demand, so it counts only when it is alone.
fn main_process(scan: &Scan, pids: &[u32], maker: Option<u32>) -> Option<u32> {
    let mut candidates: Vec<u32> = pids.iter().copied().filter(|pid| *pid != 1).collect();
    if candidates.is_empty() {
        candidates = pids.to_vec();
    }
    let is_makers = |pid: &u32| maker.is_some() && scan.process(*pid).map(|process| process.uid) == maker;
    if candidates.iter().any(is_makers) {
        candidates.retain(is_makers);
    }
    let has_parent_here =
        |pid: &u32| scan.process(*pid).is_some_and(|process| candidates.contains(&process.parent));
    candidates.iter().copied().find(|pid| !has_parent_here(pid)).or(candidates.first().copied())
}

fn evidence(process: Option<&Process>, sockets: &[&Socket]) -> Option<(Kind, RecognisedBy)> {
    let paths: Vec<&Path> = sockets.iter().filter_map(|socket| socket.local.path()).collect();
    let ports: Vec<u16> = sockets
        .iter()
        .filter(|socket| socket.kind.is_tcp())
        .filter_map(|socket| Some(socket.local.inet()?.port()))
        .collect();
    let by_datagrams = || {
        let mut sockets = sockets.iter().filter(|socket| socket.kind.is_udp());
        sockets.find_map(|socket| Some((of_port(socket.local.inet()?.port())?, RecognisedBy::Port)))
    };
    recognise(process, &paths, &ports).or_else(|| if process.is_none() { by_datagrams() } else { None })
}

fn describe(scan: &Scan, owner: &Owner, namespace: u64, listeners: Vec<usize>) -> Service {
    let pid = match owner {
        Owner::Process(pid) => Some(*pid),
        Owner::Unseen(..) => None,
    };
    let process = pid.and_then(|pid| scan.process(pid));
    let sockets: Vec<&Socket> = listeners.iter().map(|at| &scan.sockets[*at]).collect();
    let found = evidence(process, &sockets);
    let mut holders: Vec<u32> = sockets.iter().flat_map(|socket| socket.pids.iter().copied()).collect();
    holders.sort_unstable();
    holders.dedup();
    let name = match (found, process) {
        (Some((kind, _)), _) => kind.label().to_owned(),
        (None, Some(process)) => process.name.clone(),
        (None, None) => "unknown".to_owned(),
    };
    Service {
        kind: found.map(|(kind, _)| kind),
        recognised_by: found.map(|(_, by)| by),
        name,
        pid,
        processes: holders.len() as u32,
        network_namespace: namespace,
        listeners,
        connections: 0,
    }
}

/// Key by which an accepted Unix socket finds its listener.
#[derive(PartialEq, Eq, Hash)]
enum UnixName {
    File(FileId),
    Name(u64, Address),
}

fn unix_name(socket: &Socket) -> Option<(SocketKind, UnixName)> {
    match (&socket.file, &socket.local) {
        (_, Address::Unnamed) => None,
        (Some(file), _) => Some((socket.kind, UnixName::File(*file))),
        (None, name) => Some((socket.kind, UnixName::Name(socket.network_namespace, name.clone()))),
    }
}

/// Finds the service that accepted a socket, or has an address.
pub(crate) struct Acceptors {
    tcp: Listeners,
    service_of: HashMap<usize, usize>,
    unix: HashMap<(SocketKind, UnixName), usize>,
}

impl Acceptors {
    pub(crate) fn of(scan: &Scan) -> Self {
        let mut service_of = HashMap::new();
        let mut unix = HashMap::new();
        for (index, service) in scan.services.iter().enumerate() {
            for at in &service.listeners {
                service_of.insert(*at, index);
                unix.extend(unix_name(&scan.sockets[*at]).map(|name| (name, index)));
            }
        }
        Acceptors { tcp: Listeners::of(&scan.sockets), service_of, unix }
    }

    /// Listeners over TCP.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.tcp
    }

    /// The service to which the kernel gives connections to an address.
    pub(crate) fn at(&self, namespace: u64, address: SocketAddr) -> Option<usize> {
        let listener = self.tcp.accepts(namespace, address)?;
        self.service_of.get(&listener).copied()
    }

    /// Services that listen, each once for each of its sockets.
    pub(crate) fn services(&self) -> impl Iterator<Item = usize> {
        self.service_of.values().copied()
    }

    /// The position of the service; `None` for a client's socket, and where no listener here has its address.
    pub(crate) fn service(&self, socket: &Socket) -> Option<usize> {
        match socket.kind {
            kind if kind.is_tcp() => self.at(socket.network_namespace, socket.local.inet()?),
            kind if kind.is_unix() => self.unix.get(&unix_name(socket)?).copied(),
            _ => None,
        }
    }
}

/// Records the service that accepted each connection, and counts connections, including those of remote clients.
fn assign(scan: &mut Scan) {
    let acceptors = Acceptors::of(scan);
    let mut counts = vec![0; scan.services.len()];
    for socket in &scan.sockets {
        let is_open = socket.state == SocketState::Established && !socket.is_listening();
        if let Some(index) = acceptors.service(socket).filter(|_| is_open) {
            counts[index] += 1;
        }
    }
    for connection in &mut scan.connections {
        let server = scan.sockets.get(connection.server);
        connection.service = server.and_then(|server| acceptors.service(server));
    }
    for (service, count) in scan.services.iter_mut().zip(counts) {
        service.connections = count;
    }
}
