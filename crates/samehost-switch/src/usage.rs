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

use samehost_system::threads;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{SocketAddrAny, SocketAddrUnix};
use samehost_edit::{Refusal, Role, Setting};
use samehost_model::scan::{ApplicationSeen, Scan};
use samehost_model::{Endpoint, Redactor};
use samehost_scan::services_at;
use samehost_system::diag::Endings;
use samehost_system::proc;
use samehost_transaction::{Store, TransactionError, standing};

use crate::configuration::{ConfigFile, ConfigFileError, LeadingLines};
use crate::configuration::{leads, target};
use crate::descriptors::Processes;
use crate::neighbours::{Neighbours, OtherLines, Whose};
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
/// What was seen of one connection of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Processes of the application that connected at the new place.
    pub new: BTreeSet<String>,
    /// Processes of the application that connected at the old place.
    pub old: BTreeSet<String>,
    /// What was seen that is not the application's, a sentence each: of other sites in the same pool, and of programs that
    /// only work in its directory.
    pub beside: BTreeSet<String>,
    /// Connections of processes that serve other sites too, of which it is not known whose they are.
    pub unclear: BTreeSet<String>,
    /// Whether one of those is at the old place.
    is_unclear_whether_old: bool,
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
        self.beside.extend(other.beside);
        self.unclear.extend(other.unclear);
        self.is_unclear_whether_old |= other.is_unclear_whether_old;
        self.old_ended += other.old_ended;
    }

    /// Whether the application was seen at the old place.
    #[must_use]
    pub fn is_left_behind(&self) -> bool {
        !self.old.is_empty()
    }

    /// What the application was seen to do: whoever connects at both places does not use the new one alone.
    #[must_use]
    pub fn application(&self) -> ApplicationSeen {
        let is_unclear =
            if self.new.is_empty() { !self.unclear.is_empty() } else { self.is_unclear_whether_old };
        match (self.new.is_empty(), self.old.is_empty()) {
            (_, true) if is_unclear => ApplicationSeen::Unclear,
            (false, true) => ApplicationSeen::InUse,
            (false, false) => ApplicationSeen::AlsoElsewhere,
            (true, false) => ApplicationSeen::Elsewhere,
            (true, true) => ApplicationSeen::NotSeen,
        }
    }

    /// What an application was seen to do, and what would tell more.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.application() {
            ApplicationSeen::InUse => format!("in use: {} connected at the new address", listed(&self.new)),
            ApplicationSeen::NotSeen => "written: no connection of the application was seen. Make a request meanwhile: samehost switch check --wait 60s".to_owned(),
            ApplicationSeen::Unclear => "written: whether the application connected is not known".to_owned(),
            ApplicationSeen::Elsewhere => format!("NOT FOLLOWED: {} connected at the old address. Restart the application, or look what goes before its file", listed(&self.old)),
            ApplicationSeen::AlsoElsewhere => format!(
                "at both: {} connected at the new address, {} at the old one",
                listed(&self.new),
                listed(&self.old)
            ),
        }
    }

    /// What else the application's processes were seen to do, a sentence each.
    #[must_use]
    pub fn others(&self) -> Vec<String> {
        let mut told: Vec<String> = self.beside.iter().cloned().collect();
        for unclear in &self.unclear {
            told.push(format!("{unclear}, and serves others too: which of them connects is not known"));
        }
        told
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
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
    new: (Endpoint, Option<Place>),
    old: Vec<(Endpoint, Place)>,
    processes: Processes,
    neighbours: Neighbours,
    /// Until when its program may go on with the file as it was: what it opens at the old place until then proves nothing.
    settled: Instant,
    seen: Seen,
}

/// The new place of an application's connection, its old ones, and the lines beside it.
type Move = (Endpoint, Vec<Endpoint>, Application, Arc<OtherLines>);

/// Watches the connections of a switch from now on.
pub struct Usage {
    watched: Mutex<Vec<Watched>>,
    endings: Mutex<Option<Endings>>,
}

impl Usage {
    /// Begins to watch the moves of switches, whose files were written just now: what connects from now on is new.
    pub(crate) fn of_moves(switches: &[&[Hop]]) -> Self {
        let moves = switches.iter().flat_map(|hops| {
            let others = OtherLines::beside(hops.iter().map(|hop| (&hop.setting, &hop.to)));
            hops.iter().map(move |hop| {
                let old = vec![hop.setting.endpoint.clone()];
                (hop.to.clone(), old, hop.client.application.clone(), Arc::clone(&others))
            })
        });
        let usage = Usage::begin(moves);
        for (one, hop) in usage.watched().iter_mut().zip(switches.iter().copied().flatten()) {
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
        let lines = samehost_edit::within_budget(|| connecting(target, scan))?;
        let others = OtherLines::beside(lines.iter().map(|line| (&line.setting, &line.setting.endpoint)));
        let moves = lines.into_iter();
        let usage = Usage::begin(
            moves.map(|line| (line.setting.endpoint, line.elsewhere, line.application, Arc::clone(&others))),
        );
        Ok(usage.with_present())
    }

    /// The same for the moves of a stored switch, from now on; none where it moved no client.
    #[must_use]
    pub fn of_switch(store: &Store, id: &str, scan: &Scan) -> Self {
        Usage::of_moves(&[&moved_hops(store, id, scan, Wanted::ToLook)])
    }

    fn with_present(self) -> Self {
        for one in self.watched().iter_mut() {
            one.processes.known.clear();
            one.settled = Instant::now();
        }
        self
    }

    fn begin(moves: impl Iterator<Item = Move>) -> Self {
        // Subscribed first, so that no connection is missed in between.
        let endings = Endings::open().ok();
        let mut watched = Vec::new();
        for (new, old, application, others) in moves {
            let mut processes = Processes::of(&application);
            // What is open already is known.
            processes.new_connections();
            let old = old.into_iter().filter_map(|old| Place::of(&old).map(|place| (old, place)));
            watched.push(Watched {
                old: old.collect(),
                new: (new.clone(), Place::of(&new)),
                processes,
                neighbours: Neighbours::of(&application, others),
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
        let watch = || {
            while !is_done.load(Ordering::Relaxed) {
                self.look();
                std::thread::yield_now();
            }
        };
        let result = threads::watched(watch, || {
            let result = work();
            is_done.store(true, Ordering::Relaxed);
            result
        });
        // Also where no thread was to be had.
        self.look();
        result
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
        for opened in self.processes.new_connections() {
            let is_new = matches!(&self.new.1, Some(place) if place.is_at(&opened.address));
            let old = self.old.iter().find(|(_, place)| place.is_at(&opened.address));
            let is_settled = Instant::now() >= self.settled;
            let to = match (is_new, old) {
                (true, _) => self.new.0.clone(),
                (false, Some((to, _))) if is_settled => to.clone(),
                _ => continue,
            };
            let who = named(opened.pid);
            if !opened.is_own {
                self.seen.beside.insert(format!(
                    "{who} works in the application's directory and is connected to {to}; it is not the application's own, and counts for nothing"
                ));
                continue;
            }
            match self.neighbours.whose(opened.works_in().as_deref(), &to) {
                Whose::Own if is_new => drop(self.seen.new.insert(who)),
                Whose::Own => drop(self.seen.old.insert(who)),
                // Another site's connection at the same place says nothing of this one.
                Whose::Others(_) if is_new => {}
                Whose::Others(words) => drop(self.seen.beside.insert(words)),
                Whose::Unknown => {
                    self.seen.unclear.insert(format!("{who} is connected to {to}"));
                    self.seen.is_unclear_whether_old |= !is_new;
                }
            }
        }
    }

    fn ended(&mut self, server: SocketAddr, client: SocketAddr) {
        // Only the server's end counts; a listener that closes has no peer.
        let place = Place::Port(server.port());
        let is_old = client.port() != 0 && self.old.iter().any(|(_, old)| *old == place);
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
    let (mut ids, mut switches) = (Vec::new(), Vec::new());
    for store in stores {
        // One without files was overtaken by a later one.
        for switch in standing(store)?.iter().filter(|switch| !switch.files.is_empty()) {
            let moved = moved_hops(store, &switch.id, scan, Wanted::ToLook);
            ids.extend(moved.iter().map(|_| switch.id.clone()));
            switches.push(moved);
        }
    }
    let switches: Vec<&[Hop]> = switches.iter().map(Vec::as_slice).collect();
    let usage = Usage::of_moves(&switches).with_present();
    usage.wait(if ids.is_empty() { Duration::ZERO } else { period }, is_interrupted);
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
    format!("{} {pid}", proc::name(pid))
}

/// The client connections in a configuration, or in those of an application's directory.
///
/// # Errors
/// When it is not a configuration, or not understood.
pub fn clients(path: &str) -> Result<Vec<Setting>, ConfigFileError> {
    samehost_edit::within_budget(|| clients_in(path))
}

fn clients_in(path: &str) -> Result<Vec<Setting>, ConfigFileError> {
    let (mut settings, mut first_refused) = (Vec::new(), None);
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
        // The file's secrets are looked for once, and not for each of a thousand lines that are refused.
        if first_refused.is_none() {
            first_refused =
                reading.refused.into_iter().next().map(|refusal| without_secrets(config, refusal));
        }
        settings.extend(reading.settings.into_iter().filter(|setting| setting.role == Role::Connects));
    }
    match first_refused {
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
    setting: Setting,
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
                setting: setting.clone(),
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

    fn ourselves() -> Application {
        Application { families: vec![std::process::id()], ..Application::default() }
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
        let usage = Usage::begin([(new.clone(), vec![old.clone()], ourselves(), Arc::default())].into_iter());
        usage.during(|| ());
        assert_eq!(usage.seen()[0], Seen::default(), "what was there before proves nothing");
        let client = UnixStream::connect(&path).unwrap();
        let server = unix.accept().unwrap();
        usage.during(|| ());
        let seen = &usage.seen()[0];
        assert!(
            seen.new.len() == 1 && seen.old.is_empty() && seen.application() == ApplicationSeen::InUse,
            "{seen:?}"
        );
        let later = TcpStream::connect(address).unwrap();
        let accepted = tcp.accept().unwrap();
        usage.during(|| ());
        let seen = &usage.seen()[0];
        assert!(seen.old.len() == 1 && seen.application() == ApplicationSeen::AlsoElsewhere, "{seen:?}");
        drop((client, server, later, accepted));
    }

    #[test]
    fn somebody_elses_connection_is_not_the_applications() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let unix = UnixListener::bind(&path).unwrap();
        let nobody = Application::default();
        let usage =
            Usage::begin([(Endpoint::Unix(path.clone()), Vec::new(), nobody, Arc::default())].into_iter());
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
        let usage = Usage::begin(
            [(Endpoint::Unix(path.clone()), Vec::new(), ourselves(), Arc::default())].into_iter(),
        );
        usage.during(|| {
            for _ in 0..20 {
                let client = UnixStream::connect(&path).unwrap();
                let server = unix.accept().unwrap();
                std::thread::sleep(Duration::from_millis(10));
                drop((client, server));
            }
        });
        assert_eq!(usage.seen()[0].application(), ApplicationSeen::InUse);
    }
}
