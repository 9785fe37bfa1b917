//! Who is connected to a service that is named, and over which transport: `verify redis --expect unix`. Each process is one client,
//! however many connections it holds. Nobody logs in; what the clients hold is the proof. Who calls a web server over TCP is a visitor
//! and no application's connection, unless another server passes requests on: after a switch of nginx's own lines that was sound, its
//! visitors were judged, and `verify nginx --expect unix` said 1.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use samehost_model::scan::{
    ClientCount, HeldConnection, Process, Scan, Service, SocketKind, SocketState, Verification,
};
use samehost_system::interrupt;

use crate::listing::collect::{ScanError, collect_seeing};
use crate::target::services_called;

/// How long after one look the next one follows.
const PAUSE: Duration = Duration::from_millis(50);

/// Finds who is connected to the running services of a name, during a period; judged by [`Verification::judge`]. `None` where no
/// service has such a name, or none of them runs.
///
/// # Errors
/// When the machine cannot be scanned.
pub fn clients_of(name: &str, period: Duration, version: &str) -> Result<Option<Verification>, ScanError> {
    let mut clients = Clients::default();
    let begun = Instant::now();
    loop {
        let scan = collect_seeing(version)?;
        let services = services_called(&scan, name);
        if services.is_empty() {
            return Ok(None);
        }
        clients.look(&scan, &services);
        if begun.elapsed() >= period || interrupt::is_requested() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(Some(clients.judged(name)))
}

/// Who held a connection, as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Client {
    Process(u32),
    /// The inode of a connection whose process may not be seen.
    Unseen(u64),
}

#[derive(Default)]
struct Clients {
    /// Inodes of the clients' ends.
    known: BTreeSet<u64>,
    /// Each client with whether it was seen over Unix sockets, and over TCP.
    over: BTreeMap<Client, (bool, bool)>,
    /// Each kind of connection, without its number.
    groups: BTreeMap<HeldConnection, u32>,
    /// Inodes of connections from other machines.
    remote: BTreeSet<u64>,
    /// Connections over TCP to a web server of whoever passes nothing on.
    visitors: u32,
}

impl Clients {
    fn look(&mut self, scan: &Scan, services: &[usize]) {
        let mut joined = BTreeSet::new();
        for connection in &scan.connections {
            let Some(service) = connection.service.filter(|service| services.contains(service)) else {
                continue;
            };
            let Some((client, server)) = scan.ends(connection) else { continue };
            joined.insert(server.inode);
            let is_ours = client.pids.contains(&std::process::id());
            if connection.kind == SocketKind::UnixDgram || is_ours || !self.known.insert(client.inode) {
                continue;
            }
            let holder = scan.holder(connection.client);
            if connection.kind.is_tcp()
                && is_proxy(scan.services.get(service))
                && !holder.is_some_and(|client| is_proxy(server_of(scan, client)))
            {
                self.visitors += 1;
                continue;
            }
            let who = holder.map_or(Client::Unseen(client.inode), |process| Client::Process(process.pid));
            let (unix, tcp) = self.over.entry(who).or_default();
            *(if connection.kind.is_unix() { unix } else { tcp }) = true;
            let alike = HeldConnection {
                transport: if connection.kind.is_unix() { "unix" } else { "tcp" },
                role: "server",
                service_address: server.local.to_string(),
                service: scan.services.get(service).map(|service| service.name.clone()),
                other: holder.map(|process| format!("{} {}", process.titled(), process.pid)),
                count: 0,
            };
            *self.groups.entry(alike).or_default() += 1;
        }
        let pids: Vec<u32> =
            services.iter().filter_map(|at| scan.services.get(*at)).filter_map(|one| one.pid).collect();
        for socket in scan.sockets.iter().filter(|socket| socket.kind.is_tcp()) {
            let is_its =
                socket.state == SocketState::Established && socket.pids.iter().any(|pid| pids.contains(pid));
            if is_its && !joined.contains(&socket.inode) && is_from_elsewhere(socket.peer.inet()) {
                self.remote.insert(socket.inode);
            }
        }
    }

    fn judged(self, name: &str) -> Verification {
        let mut count = ClientCount::default();
        for over in self.over.values() {
            match over {
                (true, true) => count.both += 1,
                (true, false) => count.unix += 1,
                (false, _) => count.tcp += 1,
            }
        }
        let mut found = Verification::of(name.to_owned());
        found.transport = match (count.unix + count.both > 0, count.tcp + count.both > 0) {
            (true, true) => Some("mixed"),
            (true, false) => Some("unix"),
            (false, true) => Some("tcp"),
            (false, false) => None,
        };
        found.clients = Some(count);
        found.connections =
            self.groups.into_iter().map(|(alike, count)| HeldConnection { count, ..alike }).collect();
        found.remote = u32::try_from(self.remote.len()).unwrap_or(u32::MAX);
        if self.visitors > 0 {
            let note = format!("not judged: who calls {name} over TCP ({} of this machine)", self.visitors);
            found.notes.push(note);
        }
        found
    }
}

fn is_proxy(service: Option<&Service>) -> bool {
    service.and_then(|service| service.kind).is_some_and(|kind| kind.descriptor().proxy)
}

/// The service that a process is, or works for.
fn server_of<'a>(scan: &'a Scan, process: &Process) -> Option<&'a Service> {
    let family = [Some(process.pid), Some(process.parent)];
    scan.services.iter().find(|service| family.contains(&service.pid))
}

/// Whether a peer is on another machine: a connection within this one whose other end has just gone is not.
fn is_from_elsewhere(peer: Option<std::net::SocketAddr>) -> bool {
    matches!(peer, Some(peer) if !peer.ip().to_canonical().is_loopback())
}
