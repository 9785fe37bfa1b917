//! Who uses an address beside those that a switch moves, looked at over a time: connections that are there, with who
//! holds them, and those that come and go, of which the kernel tells as they end. Only looks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use samehost_model::Endpoint;
use samehost_model::scan::{Process, Scan};
use samehost_scan::services_at;
use samehost_system::diag::{Diag, Endings};

use super::Hop;
use super::place::same_port;

/// How often it is looked.
const STEP: Duration = Duration::from_millis(50);
/// How long quiet is waited for, in the times that it has to last.
const PATIENCE: u32 = 4;

/// What was seen of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Who speaks there and does not move, by name: `apache2 4711 (www-data)`.
    pub(crate) others: BTreeSet<String>,
    /// Who speaks there and is to move.
    pub(crate) movers: BTreeSet<String>,
    /// Connections that had ended before anybody could be seen at them.
    pub(crate) unnamed: u64,
}

impl Seen {
    /// Adds what another look saw.
    fn add(&mut self, other: Seen) {
        self.others.extend(other.others);
        self.movers.extend(other.movers);
        self.unnamed += other.unnamed;
    }
}

/// A way to look at this machine.
pub(crate) type Look<'a> = &'a dyn Fn() -> Option<Scan>;

/// Who speaks at an address over a time, while those that are to move still do too.
pub(crate) fn watch(
    endpoint: &Endpoint,
    hops: &[Hop],
    period: Duration,
    look: Look<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> Seen {
    let mut ears = Ears::open(endpoint);
    let mut seen = look().map_or_else(Seen::default, |scan| connected(&scan, endpoint, hops));
    let begun = Instant::now();
    while begun.elapsed() < period && !is_interrupted() {
        std::thread::sleep(STEP.min(period));
        let (open, ended) = ears.hear();
        seen.unnamed += ended;
        if open {
            seen.add(look().map_or_else(Seen::default, |scan| connected(&scan, endpoint, hops)));
        }
    }
    seen
}

/// Waits until nobody has spoken at an address for a time, now that those that were to move have; who still does where
/// that does not come.
pub(crate) fn quiet(
    endpoint: &Endpoint,
    hops: &[Hop],
    period: Duration,
    look: Look<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> Seen {
    let mut ears = Ears::open(endpoint);
    let begun = Instant::now();
    let mut heard = Instant::now();
    let mut seen = look().map_or_else(Seen::default, |scan| connected(&scan, endpoint, hops));
    while seen.others.is_empty() && !is_interrupted() {
        if heard.elapsed() >= period {
            return Seen::default();
        }
        if begun.elapsed() >= period * PATIENCE {
            break;
        }
        std::thread::sleep(STEP.min(period));
        let (open, ended) = ears.hear();
        if open || ended > 0 {
            heard = Instant::now();
        }
        if open {
            seen.add(look().map_or_else(Seen::default, |scan| connected(&scan, endpoint, hops)));
        }
        seen.unnamed += ended;
    }
    seen
}

/// Who holds a connection to an address in a scan.
pub(crate) fn connected(scan: &Scan, endpoint: &Endpoint, hops: &[Hop]) -> Seen {
    let mut seen = Seen::default();
    let services = services_at(scan, endpoint);
    for connection in &scan.connections {
        if !connection.service.is_some_and(|at| services.contains(&at))
            || !is_at(scan, connection.server, endpoint)
        {
            continue;
        }
        // What nobody holds is about to end, and is heard of then.
        let Some(process) = scan.holder(connection.client) else { continue };
        let own = std::process::id();
        if process.pid == own || process.parent == own {
            continue;
        }
        let user = process.user.clone().unwrap_or_else(|| process.uid.to_string());
        let name = format!("{} {} ({user})", process.name, process.pid);
        let moves =
            hops.iter().any(|hop| same_port(&hop.setting.endpoint, endpoint) && is_mover(hop, process));
        if moves { &mut seen.movers } else { &mut seen.others }.insert(name);
    }
    seen
}

/// Whether the accepted end of a connection is at the port of an endpoint: a service may have several.
fn is_at(scan: &Scan, server: usize, endpoint: &Endpoint) -> bool {
    let Some(local) = scan.sockets.get(server).map(|socket| &socket.local) else { return false };
    match endpoint {
        Endpoint::Tcp { port, .. } => local.inet().is_some_and(|local| local.port() == *port),
        Endpoint::Unix(path) => {
            let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            local.path().is_some_and(|local| real(local) == real(path))
        }
        _ => false,
    }
}

/// Whether a process is one of those that take the change of a hop: the ones that were found, those that the same one
/// started, and those that they start.
fn is_mover(hop: &Hop, process: &Process) -> bool {
    hop.clients.iter().any(|client| {
        let known = [client.pid, client.parent].into_iter().flatten().filter(|pid| *pid > 1);
        let family: Vec<u32> = known.collect();
        family.contains(&process.pid) || family.contains(&process.parent)
    })
}

/// Hears of connections to one port of this network.
struct Ears {
    port: u16,
    endings: Option<Endings>,
    /// What was there when it began: its end says nothing of who comes now.
    before: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Ends of connections of which only one was heard of.
    alone: BTreeMap<(SocketAddr, SocketAddr), ()>,
}

impl Ears {
    fn open(endpoint: &Endpoint) -> Self {
        let port = if let Endpoint::Tcp { port, .. } = endpoint { *port } else { 0 };
        let mut ears =
            Ears { port, endings: Endings::open().ok(), before: BTreeSet::new(), alone: BTreeMap::new() };
        ears.before = ears.open_now().into_iter().collect();
        ears
    }

    /// The connections to the port that are there now, by the addresses of server and client.
    fn open_now(&self) -> Vec<(SocketAddr, SocketAddr)> {
        let found = Diag::open().and_then(|mut diag| diag.activity()).unwrap_or_default();
        let at_port = found.iter().filter(|one| one.counters.is_some()).filter_map(|one| {
            let (local, peer) = (one.local.inet()?, one.peer.inet()?);
            (local.port() == self.port).then_some((local, peer))
        });
        at_port.collect()
    }

    /// Whether any connection is there, and how many ended that had begun meanwhile.
    fn hear(&mut self) -> (bool, u64) {
        let mut ended = 0;
        let (port, before, alone) = (self.port, &self.before, &mut self.alone);
        if let Some(endings) = &mut self.endings {
            // What was missed on a busy machine is like what was heard.
            let _ = endings.hear(|one| {
                let (Some(local), Some(peer)) = (one.local.inet(), one.peer.inet()) else { return };
                // The server's end counts; a listener that ends has no peer.
                if local.port() != port || peer.port() == 0 || before.contains(&(local, peer)) {
                    return;
                }
                if alone.insert((local, peer), ()).is_none() {
                    ended += 1;
                }
            });
        }
        (!self.open_now().is_empty(), ended)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn look() -> Option<Scan> {
        samehost_scan::collect("test").ok()
    }

    #[test]
    fn quiet_is_waited_for_and_short_connections_are_heard() {
        assert!(
            rustix::process::geteuid().is_root(),
            "the kernel tells only root of connections that end: run this test as root"
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint: Endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
        let period = Duration::from_millis(150);
        assert_eq!(quiet(&endpoint, &[], period, &look, &|| false), Seen::default());
        let address = listener.local_addr().unwrap();
        let stop = &std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(TcpStream::connect(address).unwrap());
                    let (mut accepted, _) = listener.accept().unwrap();
                    let _ = accepted.read(&mut [0]);
                    drop(accepted);
                    std::thread::sleep(Duration::from_millis(30));
                }
            });
            let seen = quiet(&endpoint, &[], period, &look, &|| false);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(seen.unnamed > 0, "{seen:?}");
        });
    }
}
