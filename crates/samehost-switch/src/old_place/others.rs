//! Who uses an address beside the clients that a switch moves, observed over a period: open connections with the
//! processes that hold them, and short ones, which the kernel reports when they close. Changes nothing.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use samehost_model::Endpoint;
use samehost_model::scan::{Process, Scan};
use samehost_scan::services_at;
use samehost_system::diag::{Diag, Endings};

use crate::place::{real, same_port};
use crate::plan::hop::Hop;

/// Interval between two looks.
const STEP: Duration = Duration::from_millis(50);
/// Maximum wait for a quiet period, in periods.
const PATIENCE: u32 = 4;

/// What was seen of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Who is connected and does not move, by name: `apache2 4711 (www-data)`.
    pub(crate) others: BTreeSet<String>,
    /// Who is connected and is to move.
    pub(crate) movers: BTreeSet<String>,
    /// Connections that closed before a look could show who held them.
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

/// An address that is watched.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// The moves: their clients are expected there until they have moved.
    pub(crate) hops: &'a [Hop],
    pub(crate) period: Duration,
    pub(crate) look: Look<'a>,
    pub(crate) is_interrupted: &'a dyn Fn() -> bool,
}

impl Watch<'_> {
    /// Who is connected in the period; the clients that are to move still are too.
    pub(crate) fn for_the_period(&self) -> Seen {
        let mut port = Port::open(self.endpoint);
        let mut seen = self.connected();
        let begun = Instant::now();
        while begun.elapsed() < self.period && !(self.is_interrupted)() {
            std::thread::sleep(STEP.min(self.period));
            let (open, ended) = port.poll();
            seen.unnamed += ended;
            if open {
                seen.add(self.connected());
            }
        }
        seen
    }

    /// Waits until nobody was connected for a whole period, after the clients have moved; who still is, if that does not
    /// happen.
    pub(crate) fn until_quiet(&self) -> Seen {
        let mut port = Port::open(self.endpoint);
        let begun = Instant::now();
        let mut last_used = Instant::now();
        let mut seen = self.connected();
        while seen.others.is_empty() && !(self.is_interrupted)() {
            if last_used.elapsed() >= self.period {
                return Seen::default();
            }
            if begun.elapsed() >= self.period * PATIENCE {
                break;
            }
            std::thread::sleep(STEP.min(self.period));
            let (open, ended) = port.poll();
            if open || ended > 0 {
                last_used = Instant::now();
            }
            if open {
                seen.add(self.connected());
            }
            seen.unnamed += ended;
        }
        seen
    }

    /// Who is connected at this moment.
    fn connected(&self) -> Seen {
        (self.look)().map_or_else(Seen::default, |scan| connected(&scan, self.endpoint, self.hops))
    }
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
        // A connection that nobody holds is about to close, and is counted then.
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

/// Whether the accepted end of a connection is at the port of an endpoint; a service may have several ports.
fn is_at(scan: &Scan, server: usize, endpoint: &Endpoint) -> bool {
    let Some(local) = scan.sockets.get(server).map(|socket| &socket.local) else { return false };
    match endpoint {
        Endpoint::Tcp { port, .. } => local.inet().is_some_and(|local| local.port() == *port),
        Endpoint::Unix(path) => local.path().is_some_and(|local| real(local) == real(path)),
        _ => false,
    }
}

/// Whether a process takes part in a move: one of the clients found, their siblings, or their children.
fn is_mover(hop: &Hop, process: &Process) -> bool {
    hop.client.identities.iter().any(|client| {
        let known = [client.pid, client.parent].into_iter().flatten().filter(|pid| *pid > 1);
        let family: Vec<u32> = known.collect();
        family.contains(&process.pid) || family.contains(&process.parent)
    })
}

/// The connections to one port of this network namespace.
struct Port {
    number: u16,
    endings: Option<Endings>,
    /// Those that were open at the start: that one of them ends does not mean that somebody connects now.
    before: BTreeSet<Ends>,
    /// Those that were reported as closed.
    closed: BTreeSet<Ends>,
}

/// The addresses of server and client.
type Ends = (SocketAddr, SocketAddr);

impl Port {
    fn open(endpoint: &Endpoint) -> Self {
        let number = if let Endpoint::Tcp { port, .. } = endpoint { *port } else { 0 };
        // Subscribed first, so that no connection is missed in between.
        let endings = Endings::open().ok();
        let before = connections(number).into_iter().collect();
        Port { number, endings, before, closed: BTreeSet::new() }
    }

    /// Whether any connection is open, and how many opened and closed since the last call.
    fn poll(&mut self) -> (bool, u64) {
        let mut ended = 0;
        let (number, before, closed) = (self.number, &self.before, &mut self.closed);
        if let Some(endings) = &mut self.endings {
            // Events that the kernel dropped on a busy machine are like those that arrive.
            let _ = endings.hear(|one| {
                let (Some(local), Some(peer)) = (one.local.inet(), one.peer.inet()) else { return };
                // Only the server's end counts; a listener that closes has no peer.
                if local.port() != number || peer.port() == 0 || before.contains(&(local, peer)) {
                    return;
                }
                ended += u64::from(closed.insert((local, peer)));
            });
        }
        (!connections(number).is_empty(), ended)
    }
}

/// The connections to a port that are open now.
fn connections(port: u16) -> Vec<Ends> {
    let found = Diag::open().and_then(|mut diag| diag.activity()).unwrap_or_default();
    let at_port = found.iter().filter(|one| one.counters.is_some()).filter_map(|one| {
        let (local, peer) = (one.local.inet()?, one.peer.inet()?);
        (local.port() == port).then_some((local, peer))
    });
    at_port.collect()
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
    fn quiet_is_waited_for_and_short_connections_are_counted_as_root() {
        assert!(
            rustix::process::geteuid().is_root(),
            "the kernel tells only root of connections that end: run this test as root"
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint: Endpoint = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
        // On a busy machine a thread of the test may not run for a tenth of a second.
        let period = Duration::from_millis(600);
        let watch = Watch { endpoint: &endpoint, hops: &[], period, look: &look, is_interrupted: &|| false };
        assert_eq!(watch.until_quiet(), Seen::default());
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
            let seen = watch.until_quiet();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(seen.unnamed > 0, "{seen:?}");
        });
    }
}
