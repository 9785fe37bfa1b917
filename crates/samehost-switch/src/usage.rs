//! What an application does, as the kernel shows it: which of its processes opens a connection at the new place of a
//! switch, and which at the old one. What a file says and what a login of ours reached is neither. Without a switch, it is
//! what a target's configuration connects to: its lines, and by which processes the connections are known.
//!
//! PHP opens a connection for each request and closes it after a millisecond or two. The kernel's list of TCP sockets
//! takes 1.6 ms to read (2 CPUs, Linux 6.18) and names no process: who held a connection had closed it by the time that
//! was looked up, in 20 of 20 requests. So the descriptors of the application's own processes are read without a pause,
//! which takes some 0.03 ms a process, and a new socket among them is asked where it is connected (pidfd_getfd(2)).
//! What is found in a process is that process's: nothing is booked on whoever else connects, and an account is not a
//! proof, for a web server's account runs every site.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{SocketAddrAny, SocketAddrUnix, getpeername};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use samehost_edit::{Refusal, Role, Setting};
use samehost_model::scan::{Scan, Standing};
use samehost_model::{Endpoint, Redactor};
use samehost_scan::services_at;
use samehost_system::diag::Endings;
use samehost_system::open;
use samehost_transaction::{Store, TransactionError, standing};

use crate::configuration::{ConfigFile, ConfigFileError, LeadingLines};
use crate::configuration::{leads, target};
use crate::place::real;
use crate::plan::client::Application;
use crate::plan::client::{ClientSide, Wanted};
use crate::plan::hop::Hop;
use crate::request::Direction;
use crate::stored::moved_hops;

/// How often a page is asked for until a connection of the application is seen.
const MOST_REQUESTS: u32 = 20;
const STEP: Duration = Duration::from_millis(5);
/// Longest wait for a program to take a file: whoever waits longer is told so.
const LONGEST_SETTLING: Duration = Duration::from_secs(10);
/// How long a list of an application's processes is taken for right.
///
/// Descriptors are read without a pause while a page is asked for, because PHP's connections live for a
/// millisecond or two and the kernel tells nobody when one over a Unix socket opens or closes. Which
/// processes the application has changes far less often, so the list of them is read again only after
/// this time (docs/decisions/0128).
const FRESH: Duration = Duration::from_millis(20);

/// What was seen of one connection of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Processes of the application that connected at the new place.
    pub new: BTreeSet<String>,
    /// Processes of the application that connected at the old place.
    pub old: BTreeSet<String>,
    /// Connections over TCP at the old place that ended, whoever opened them.
    pub old_ended: u64,
}

impl Seen {
    /// Adds what was seen of another connection of the same switch: the new place is proved where both have it.
    fn and(&mut self, other: Seen) {
        if self.new.is_empty() || other.new.is_empty() {
            self.new.clear();
        } else {
            self.new.extend(other.new);
        }
        self.old.extend(other.old);
        self.old_ended += other.old_ended;
    }

    /// Whether the application was seen at the old place, and not at the new one.
    #[must_use]
    pub fn is_left_behind(&self) -> bool {
        self.new.is_empty() && !self.old.is_empty()
    }

    /// How far that proves the change: whoever connects at both places does not use the new one alone.
    #[must_use]
    pub fn standing(&self) -> Standing {
        if !self.new.is_empty() && self.old.is_empty() { Standing::InUse } else { Standing::Tried }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Port(u16),
    Path(PathBuf),
}

impl Place {
    fn of(endpoint: &Endpoint) -> Option<Place> {
        match endpoint {
            Endpoint::Tcp { port, .. } | Endpoint::TcpTls { port, .. } => Some(Place::Port(*port)),
            Endpoint::Unix(path) => Some(Place::Path(real(path))),
            _ => None,
        }
    }

    /// Whether a socket that is connected to this address is connected here.
    fn is_at(&self, address: &SocketAddrAny) -> bool {
        match self {
            Place::Port(port) => match SocketAddr::try_from(address.clone()) {
                // Only connections to this machine's loopback are moved.
                Ok(address) => address.port() == *port && address.ip().to_canonical().is_loopback(),
                Err(_) => false,
            },
            Place::Path(path) => {
                let Ok(address) = SocketAddrUnix::try_from(address.clone()) else { return false };
                let Some(name) = address.path_bytes() else { return false };
                is_same(Path::new(&*String::from_utf8_lossy(name)), path)
            }
        }
    }
}

/// Whether a bound name leads to a path. /var/run is a link to /run.
fn is_same(local: &Path, path: &Path) -> bool {
    if local == path {
        return true;
    }
    local.file_name() == path.file_name() && matches!(local.canonicalize(), Ok(local) if local == path)
}

struct Watched {
    new: Option<Place>,
    old: Vec<Place>,
    processes: Processes,
    /// Until when its program may go on with the file as it was: what it opens at the old place until then proves nothing.
    settled: Instant,
    seen: Seen,
}

/// The processes of an application, and the sockets of theirs that are known.
///
/// A switch was called verified when a login of ours worked, and PHP-FPM with a cached file went on over
/// TCP. Reading the descriptors of the application's own processes takes 0.03 ms a process and saw each
/// request to a page of 2 ms in the tests. sock_diag takes 1.6 ms for all TCP sockets, and named none of
/// 20 requests. The account of the client's socket was rejected, as a web server's account runs every
/// site, and so was inotify, because connect(2) opens nothing (docs/decisions/0128).
struct Processes {
    of: Application,
    pids: Vec<u32>,
    listed: Option<Instant>,
    /// Inodes of sockets that were looked at.
    known: BTreeSet<u64>,
}

impl Processes {
    fn of(application: &Application) -> Self {
        Processes { of: application.clone(), pids: Vec::new(), listed: None, known: BTreeSet::new() }
    }

    fn list(&mut self) {
        if matches!(self.listed, Some(listed) if listed.elapsed() < FRESH) {
            return;
        }
        self.pids = self.of.pids();
        self.listed = Some(Instant::now());
    }

    /// The sockets of its processes that were not there before: each with its process and where it is connected. One that
    /// is not connected yet is looked at again.
    fn new_connections(&mut self) -> Vec<(u32, SocketAddrAny)> {
        self.list();
        let mut found = Vec::new();
        for pid in self.pids.clone() {
            for (descriptor, inode) in sockets_of(pid) {
                if self.known.contains(&inode) {
                    continue;
                }
                let Some(address) = connected_to(pid, descriptor) else { continue };
                self.known.insert(inode);
                found.push((pid, address));
            }
        }
        found
    }
}

/// The descriptors of a process that are sockets, with their inodes.
fn sockets_of(pid: u32) -> Vec<(i32, u64)> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return found };
    for entry in entries.flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let Some(inode) = target.to_str().and_then(inode_of) else { continue };
        if let Ok(descriptor) = entry.file_name().to_string_lossy().parse() {
            found.push((descriptor, inode));
        }
    }
    found
}

/// The inode in the name that the kernel shows of a socket: `socket:[4711]`.
fn inode_of(name: &str) -> Option<u64> {
    name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Where a socket of another process is connected; `None` if it is not, or may not be asked. Our copy of the descriptor is
/// closed at once: until then, some microseconds, a close by the process itself does not end the connection.
fn connected_to(pid: u32, descriptor: i32) -> Option<SocketAddrAny> {
    let process = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    let socket = pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()).ok()?;
    getpeername(&socket).ok()?
}

/// Watches the connections of a switch from now on.
pub struct Usage {
    watched: Mutex<Vec<Watched>>,
    endings: Mutex<Option<Endings>>,
}

impl Usage {
    /// Begins to watch the moves of a plan, whose files were written just now: what connects from now on is new.
    pub(crate) fn of_moves(hops: &[Hop]) -> Self {
        let usage = Usage::begin(hops.iter().map(|hop| {
            (hop.to.clone(), vec![hop.setting.endpoint.clone()], Processes::of(&hop.client.application))
        }));
        for (one, hop) in usage.watched().iter_mut().zip(hops) {
            // A second beside it: PHP counts in whole ones.
            let settles = hop.client.settles();
            let longest = if settles.is_zero() { settles } else { settles + Duration::from_secs(1) };
            one.settled = Instant::now() + longest.min(LONGEST_SETTLING);
        }
        usage
    }

    /// Begins to watch the lines of a configuration that connect: at their own places, and at the others of the same
    /// services. What is open already counts.
    ///
    /// # Errors
    /// When the target is not a configuration, or not understood.
    pub fn of_configuration(target: &str, scan: &Scan) -> Result<Self, ConfigFileError> {
        let lines = connecting(target, scan)?;
        let usage =
            Usage::begin(lines.iter().map(|line| {
                (line.endpoint.clone(), line.elsewhere.clone(), Processes::of(&line.application))
            }));
        Ok(usage.with_present())
    }

    /// The same for the moves of a stored switch, from now on; none where it moved no client.
    #[must_use]
    pub fn of_switch(store: &Store, id: &str, scan: &Scan) -> Self {
        Usage::of_moves(&moved_hops(store, id, scan, Wanted::ToLook))
    }

    fn with_present(self) -> Self {
        for one in self.watched().iter_mut() {
            one.processes.known.clear();
            one.settled = Instant::now();
        }
        self
    }

    fn begin(moves: impl Iterator<Item = (Endpoint, Vec<Endpoint>, Processes)>) -> Self {
        // Subscribed first, so that no connection is missed in between.
        let endings = Endings::open().ok();
        let mut watched = Vec::new();
        for (new, old, mut processes) in moves {
            // What is open already is known.
            processes.new_connections();
            watched.push(Watched {
                new: Place::of(&new),
                old: old.iter().filter_map(Place::of).collect(),
                processes,
                settled: Instant::now(),
                seen: Seen::default(),
            });
        }
        Usage { watched: Mutex::new(watched), endings: Mutex::new(endings) }
    }

    fn watched(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long until every program has taken the files as they are now.
    fn settles_in(&self) -> Duration {
        let watched = self.watched();
        let all = watched.iter().map(|one| one.settled.saturating_duration_since(Instant::now()));
        all.max().unwrap_or_default()
    }

    /// Watches while something is done, which may make the application connect.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    self.look();
                    std::thread::yield_now();
                }
                self.look();
            });
            let result = work();
            is_done.store(true, Ordering::Relaxed);
            result
        })
    }

    /// Watches until every connection was seen in use, or at an old place, or the time is over.
    pub fn wait(&self, period: Duration, is_interrupted: &dyn Fn() -> bool) {
        let begun = Instant::now();
        self.during(|| {
            while !self.is_clear() && begun.elapsed() < period && !is_interrupted() {
                std::thread::sleep(STEP);
            }
        });
    }

    /// Repeats what makes the application connect, while a connection was not seen yet: a request takes milliseconds, and a
    /// look may miss it. PHP goes on with the file as it was for a while, which is waited for each time.
    pub(crate) fn repeat(&self, is_interrupted: &dyn Fn() -> bool, work: impl Fn()) {
        for _ in 0..MOST_REQUESTS {
            if self.is_clear() || is_interrupted() {
                return;
            }
            std::thread::sleep(self.settles_in());
            self.during(&work);
        }
    }

    /// Whether each was seen at its new place or at its old one.
    fn is_clear(&self) -> bool {
        self.watched().iter().all(|one| !one.seen.new.is_empty() || !one.seen.old.is_empty())
    }

    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.watched().iter().map(|one| one.seen.clone()).collect()
    }

    fn look(&self) {
        for one in self.watched().iter_mut() {
            one.look();
        }
        let mut endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endings) = endings.as_mut() {
            // Events that the kernel dropped on a busy machine are like those that arrive.
            let _ = endings.hear(|ended| {
                if let (Some(local), Some(peer)) = (ended.local.inet(), ended.peer.inet()) {
                    for one in self.watched().iter_mut() {
                        one.ended(local, peer);
                    }
                }
            });
        }
    }
}

impl Watched {
    fn look(&mut self) {
        for (pid, address) in self.processes.new_connections() {
            if matches!(&self.new, Some(place) if place.is_at(&address)) {
                self.seen.new.insert(named(pid));
            }
            if self.old.iter().any(|place| place.is_at(&address)) && Instant::now() >= self.settled {
                self.seen.old.insert(named(pid));
            }
        }
    }

    fn ended(&mut self, server: SocketAddr, client: SocketAddr) {
        // Only the server's end counts; a listener that closes has no peer.
        let is_old = client.port() != 0 && self.old.contains(&Place::Port(server.port()));
        if is_old && Instant::now() >= self.settled {
            self.seen.old_ended += 1;
        }
    }
}

/// What the applications of the switches in force do: for each switch the connections that it moved, by its ID. What is
/// open already counts, and what they open in this period.
///
/// # Errors
/// When the journals cannot be read.
pub fn followed(
    stores: &[Store],
    scan: &Scan,
    period: Duration,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<BTreeMap<String, Seen>, TransactionError> {
    let mut ids = Vec::new();
    let mut hops = Vec::new();
    for store in stores {
        // One without files was overtaken by a later one.
        for switch in standing(store)?.iter().filter(|switch| !switch.files.is_empty()) {
            let moved = moved_hops(store, &switch.id, scan, Wanted::ToLook);
            ids.extend(moved.iter().map(|_| switch.id.clone()));
            hops.extend(moved);
        }
    }
    let usage = Usage::of_moves(&hops).with_present();
    usage.wait(if hops.is_empty() { Duration::ZERO } else { period }, is_interrupted);
    let mut all: BTreeMap<String, Seen> = BTreeMap::new();
    for (id, seen) in ids.into_iter().zip(usage.seen()) {
        match all.get_mut(&id) {
            Some(before) => before.and(seen),
            None => drop(all.insert(id, seen)),
        }
    }
    Ok(all)
}

fn named(pid: u32) -> String {
    let name = open::proc_file(&format!("/proc/{pid}/comm"), 64).unwrap_or_default();
    format!("{} {pid}", String::from_utf8_lossy(&name).trim())
}

/// The client connections in a configuration, or in those of an application's directory.
///
/// # Errors
/// When it is not a configuration, or not understood.
pub fn clients(path: &str) -> Result<Vec<Setting>, ConfigFileError> {
    let (mut settings, mut refused) = (Vec::new(), Vec::new());
    let configs = match target::configs(path, &Scan::default(), None) {
        Ok(configs) => configs,
        Err(error) => {
            return Err(match samehost_scan::collect(env!("CARGO_PKG_VERSION")) {
                Ok(scan) => leads::with_lines(error, &scan, Direction::Unix, None),
                Err(_) => error,
            });
        }
    };
    for config in &configs {
        let reading = match config.read() {
            Ok(read) => read.reading,
            Err(refusal) => return Err(without_secrets(config, refusal)),
        };
        refused.extend(reading.refused.into_iter().map(|refusal| without_secrets(config, refusal)));
        settings.extend(reading.settings.into_iter().filter(|setting| setting.role == Role::Connects));
    }
    match refused.into_iter().next() {
        Some(refusal) if settings.is_empty() => Err(refusal),
        None if settings.is_empty() => match not_understood(&configs) {
            Some(lines) => Err(ConfigFileError::NotUnderstood { path: path.into(), lines }),
            None => Ok(settings),
        },
        _ => Ok(settings),
    }
}

/// Lines of configurations without any connection that is understood, which lead to services here all the same.
fn not_understood(configs: &[ConfigFile]) -> Option<LeadingLines> {
    let scan = samehost_scan::collect(env!("CARGO_PKG_VERSION")).ok()?;
    match leads::of_configurations(configs, &scan, Direction::Unix) {
        Some(over_tcp) => Some(over_tcp),
        None => leads::of_configurations(configs, &scan, Direction::Tcp),
    }
}

/// A refusal may quote the file.
fn without_secrets(config: &ConfigFile, refusal: Refusal) -> ConfigFileError {
    ConfigFileError::Refused(refusal.redacted(&Redactor::new(&config.secrets())))
}

/// A line of a configuration that connects, and by which processes its connections are known.
struct Connecting {
    endpoint: Endpoint,
    /// The other places at which the same service listens.
    elsewhere: Vec<Endpoint>,
    application: Application,
}

/// The lines that [`clients`] has of a target, in the same order.
fn connecting(target: &str, scan: &Scan) -> Result<Vec<Connecting>, ConfigFileError> {
    let mut found = Vec::new();
    for config in target::configs(target, scan, None)? {
        let Ok(read) = config.read() else { continue };
        for setting in read.reading.settings.iter().filter(|setting| setting.role == Role::Connects) {
            let service = services_at(scan, &setting.endpoint).first().copied();
            let application = match ClientSide::find(scan, &config, setting, service, Wanted::ToLook) {
                Ok((side, _)) => side.application,
                Err(_) => Application::default(),
            };
            found.push(Connecting {
                endpoint: setting.endpoint.clone(),
                elsewhere: elsewhere_of(scan, service, &setting.endpoint),
                application,
            });
        }
    }
    Ok(found)
}

/// The endpoints of a service over the other transport than this one.
fn elsewhere_of(scan: &Scan, service: Option<usize>, endpoint: &Endpoint) -> Vec<Endpoint> {
    let Some(service) = service.and_then(|at| scan.services.get(at)) else { return Vec::new() };
    let mut found = Vec::new();
    for socket in scan.listeners(service) {
        match (endpoint, socket.local.inet(), socket.local.path()) {
            (Endpoint::Unix(_), Some(address), _) if socket.kind.is_tcp() => {
                found.push(Endpoint::Tcp { host: address.ip().to_string(), port: address.port() });
            }
            (Endpoint::Tcp { .. }, _, Some(path)) => found.push(Endpoint::Unix(path.to_owned())),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn ourselves() -> Processes {
        Processes::of(&Application { families: vec![std::process::id()], ..Application::default() })
    }

    #[test]
    fn a_connection_counts_where_the_application_opens_it_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let (unix, tcp) = (UnixListener::bind(&path).unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = tcp.local_addr().unwrap();
        let (new, old) =
            (Endpoint::Unix(path.clone()), format!("tcp:{address}").parse::<Endpoint>().unwrap());
        let _earlier = TcpStream::connect(address).unwrap();
        let _accepted = tcp.accept().unwrap();
        let usage = Usage::begin([(new.clone(), vec![old.clone()], ourselves())].into_iter());
        usage.during(|| ());
        assert_eq!(usage.seen()[0], Seen::default(), "what was there before proves nothing");
        let client = UnixStream::connect(&path).unwrap();
        let server = unix.accept().unwrap();
        usage.during(|| ());
        let seen = &usage.seen()[0];
        assert!(seen.new.len() == 1 && seen.old.is_empty() && seen.standing() == Standing::InUse, "{seen:?}");
        let later = TcpStream::connect(address).unwrap();
        let accepted = tcp.accept().unwrap();
        usage.during(|| ());
        let seen = &usage.seen()[0];
        assert!(seen.old.len() == 1 && seen.standing() == Standing::Tried, "{seen:?}");
        drop((client, server, later, accepted));
    }

    #[test]
    fn somebody_elses_connection_is_not_the_applications() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let unix = UnixListener::bind(&path).unwrap();
        let nobody = Processes::of(&Application::default());
        let usage = Usage::begin([(Endpoint::Unix(path.clone()), Vec::new(), nobody)].into_iter());
        let _client = UnixStream::connect(&path).unwrap();
        let _server = unix.accept().unwrap();
        usage.during(|| ());
        assert_eq!(usage.seen()[0], Seen::default());
    }

    #[test]
    fn a_short_connection_is_seen_while_something_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let unix = UnixListener::bind(&path).unwrap();
        let usage = Usage::begin([(Endpoint::Unix(path.clone()), Vec::new(), ourselves())].into_iter());
        usage.during(|| {
            for _ in 0..20 {
                let client = UnixStream::connect(&path).unwrap();
                let server = unix.accept().unwrap();
                std::thread::sleep(Duration::from_millis(10));
                drop((client, server));
            }
        });
        assert_eq!(usage.seen()[0].standing(), Standing::InUse);
    }
}
