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
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::net::{SocketAddrAny, SocketAddrUnix};
use samehost_edit::{Refusal, Role, Setting, once_in_a_run};
use samehost_model::scan::{ApplicationSeen, Scan};
use samehost_model::{Endpoint, Redactor};
use samehost_scan::{endpoint_of, services_at, services_called};
use samehost_services::Kind;
use samehost_system::proc;
use samehost_transaction::{Store, TransactionError, standing};

use crate::configuration::{ConfigFile, ConfigFileError, leads, server_files, target};
use crate::descriptors::Processes;
use crate::neighbours::{Neighbours, OtherLines, Whose, place_of};
use crate::place::is_local;
use crate::plan::client::Application;
use crate::plan::client::access::is_shut_out;
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
    /// Processes of the application that run, where none of them was seen to be connected.
    pub idle: BTreeSet<String>,
    /// For how long its program could go on with the file as it was, when the look began.
    settles: Duration,
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
        self.idle.extend(other.idle);
        self.is_unclear_whether_old |= other.is_unclear_whether_old;
        self.settles = self.settles.max(other.settles);
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
        told.extend(self.unclear.iter().cloned());
        if !self.idle.is_empty() {
            let first: Vec<&str> = self.idle.iter().take(3).map(String::as_str).collect();
            let (first, number) = (first.join(", "), self.idle.len());
            let more = if number > 3 { format!(" and {} more", number - 3) } else { String::new() };
            told.push(format!("seen, and connected neither there nor elsewhere: {first}{more}"));
        }
        if self.new.is_empty() && !self.settles.is_zero() {
            told.push(format!(
                "the file was changed just now: PHP may go on with it as it was for {} s more (opcache.revalidate_freq), and what connected elsewhere until then counts for nothing",
                self.settles.as_secs_f64().ceil()
            ));
        }
        told
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The place of this machine at which a socket is connected: only connections to its loopback are moved.
fn place_at(address: &SocketAddrAny) -> Option<String> {
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        let endpoint = Endpoint::Tcp { host: String::new(), port: address.port() };
        return address.ip().to_canonical().is_loopback().then(|| place_of(&endpoint)).flatten();
    }
    let address = SocketAddrUnix::try_from(address.clone()).ok()?;
    place_of(&Endpoint::Unix(String::from_utf8_lossy(address.path_bytes()?).into_owned().into()))
}

struct Watched {
    new: (Endpoint, Option<String>),
    old: Vec<(Endpoint, String)>,
    processes: Processes,
    neighbours: Neighbours,
    settled: Instant,
    seen: Seen,
}

/// A connection of an application that is watched.
struct Move {
    new: Endpoint,
    old: Vec<Endpoint>,
    application: Application,
    /// The lines beside it.
    others: Arc<OtherLines>,
    /// Until when its program may go on with the file as it was: what it has at the old place until then proves nothing.
    settled: Instant,
}

/// When a program has taken a file as it is now. PHP looks at a file again after `opcache.revalidate_freq`, two seconds, and
/// counts in whole ones: a `verify --expect` within them said 1 of a switch that was sound. So it counts from the last
/// change of the file's inode, which a rename is as well; its modification time can be set.
fn settled(file: &Path, settles: Duration) -> Instant {
    let now = Instant::now();
    if settles.is_zero() {
        return now;
    }
    let longest = (settles + Duration::from_secs(1)).min(LONGEST_SETTLING);
    let changed = file.metadata().map(|found| found.ctime()).unwrap_or_default();
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed.try_into().unwrap_or_default());
    // A change that is to come is one of a clock that was set.
    now + longest.saturating_sub(changed.elapsed().unwrap_or_default())
}

/// Watches the connections of a switch from now on.
pub struct Usage {
    watched: Mutex<Vec<Watched>>,
}

impl Usage {
    /// Begins to watch the moves of switches, whose files are written: what connects from now on is new.
    pub(crate) fn of_moves(switches: &[&[Hop]]) -> Self {
        let mut moves = Vec::new();
        for hops in switches {
            let others = OtherLines::beside(hops.iter().map(|hop| (&hop.setting, &hop.to)));
            moves.extend(hops.iter().map(|hop| Move {
                new: hop.to.clone(),
                old: vec![hop.setting.endpoint.clone()],
                application: hop.client.application.clone(),
                others: Arc::clone(&others),
                settled: settled(&hop.setting.file, hop.client.settles()),
            }));
        }
        Usage::begin(moves)
    }

    /// Begins to watch lines that connect: at their own places, and at the others of the same services. What is open already
    /// counts.
    #[must_use]
    pub fn of_lines(lines: &[Connecting]) -> Self {
        let others = OtherLines::beside(lines.iter().map(|line| (&line.setting, &line.setting.endpoint)));
        let moves = lines.iter().map(|line| Move {
            new: line.setting.endpoint.clone(),
            old: line.elsewhere.clone(),
            application: line.application.clone(),
            others: Arc::clone(&others),
            settled: settled(&line.setting.file, line.settles),
        });
        Usage::begin(moves).with_present()
    }

    /// The same for the moves of a stored switch, from now on; none where it moved no client.
    #[must_use]
    pub fn of_switch(store: &Store, id: &str, scan: &Scan) -> Self {
        Usage::of_moves(&[&moved_hops(store, id, scan, Wanted::ToLook)])
    }

    fn with_present(self) -> Self {
        for one in self.watched().iter_mut() {
            one.processes.known.clear();
        }
        self
    }

    fn begin(moves: impl IntoIterator<Item = Move>) -> Self {
        let mut watched = Vec::new();
        for Move { new, old, application, others, settled } in moves {
            let mut processes = Processes::of(&application);
            // What is open already is known.
            processes.new_connections();
            let old = old.into_iter().filter_map(|old| place_of(&old).map(|place| (old, place)));
            watched.push(Watched {
                old: old.collect(),
                new: (new.clone(), place_of(&new)),
                processes,
                neighbours: Neighbours::of(&application, others),
                seen: Seen { settles: settled.saturating_duration_since(Instant::now()), ..Seen::default() },
                settled,
            });
        }
        Usage { watched: Mutex::new(watched) }
    }

    fn watched(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long until every program has taken the files as they are now; some seconds at most.
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

    /// Watches until every connection was seen in use, or at an old place, or the time is over, which begins when every program
    /// has taken its file.
    pub fn wait(&self, period: Duration, is_interrupted: &dyn Fn() -> bool) {
        let begun = Instant::now();
        let period = self.settles_in() + period;
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
        self.watched().iter().map(Watched::seen).collect()
    }

    fn look(&self) {
        for one in self.watched().iter_mut() {
            one.look();
        }
    }
}

impl Watched {
    fn seen(&self) -> Seen {
        let mut seen = self.seen.clone();
        if seen.application() == ApplicationSeen::NotSeen {
            seen.idle = self.processes.own().iter().map(|pid| named(*pid)).collect();
        }
        seen
    }

    fn look(&mut self) {
        for opened in self.processes.new_connections() {
            let place = place_at(&opened.address);
            let is_new = place.is_some() && place == self.new.1;
            let old = self.old.iter().find(|(_, old)| place.as_ref() == Some(old));
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
                Whose::Unknown(why) => {
                    self.seen.unclear.insert(format!("{who} is connected to {to}, and {why}"));
                    self.seen.is_unclear_whether_old |= !is_new;
                }
            }
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

/// A line of a configuration that connects, and by which processes its connections are known.
pub struct Connecting {
    pub setting: Setting,
    /// The other places at which the same service listens.
    pub elsewhere: Vec<Endpoint>,
    /// A process of the application that may not connect there.
    pub barred: Option<String>,
    application: Application,
    /// How long its program may go on with a file as it was.
    settles: Duration,
}

/// The lines that connect in what a switch of this target would read: a configuration, those of an application's directory, or all
/// sites below a directory or of an application's name. Of several, those that cannot be read come beside them.
///
/// # Errors
/// When it is not a configuration, or not understood.
pub fn connecting(
    target: &str,
    scan: &Scan,
) -> Result<(Vec<Connecting>, Vec<ConfigFileError>), ConfigFileError> {
    samehost_edit::within_budget(|| {
        let configs = target::configs(target, scan, None)
            .map_err(|error| leads::with_lines(error, scan, Direction::Unix, None))?;
        let (mut lines, mut refused, mut unread) = (Vec::new(), None, Vec::new());
        for config in &configs {
            match lines_of(std::slice::from_ref(config), scan) {
                Ok((found, first)) => {
                    lines.extend(found);
                    refused = refused.or(first);
                }
                Err(error) if configs.len() == 1 => return Err(error),
                Err(error) => unread.push(error),
            }
        }
        // Where no connection is understood, lines may lead to services here all the same.
        let leading = |to| leads::of_configurations(&configs, scan, to);
        match refused {
            _ if !lines.is_empty() => Ok((lines, unread)),
            Some(refused) => Err(refused),
            None => match leading(Direction::Unix).or_else(|| leading(Direction::Tcp)) {
                Some(lines) => Err(ConfigFileError::NotUnderstood { path: target.into(), lines }),
                None => Ok((lines, unread)),
            },
        }
    })
}

/// The lines by which the running services of a name connect to others of this machine, where they pass on what they are asked: web
/// servers and poolers, by the files that they run by. What a database's file says to clients is not about the server.
///
/// # Errors
/// When one of them is not understood.
pub fn connecting_services(name: &str, scan: &Scan) -> Result<Vec<Connecting>, ConfigFileError> {
    let mut configs: Vec<ConfigFile> = Vec::new();
    for service in services_called(scan, name).into_iter().filter_map(|at| scan.services.get(at)) {
        let Some(kind) = service.kind else { continue };
        if !kind.descriptor().proxy && !matches!(kind, Kind::Pgbouncer | Kind::Odyssey) {
            continue;
        }
        let own = ConfigFile::first_of(&server_files::of(scan, service));
        configs.extend(own.filter(|own| configs.iter().all(|other| other.file != own.file)));
    }
    let (mut lines, _) = samehost_edit::within_budget(|| lines_of(&configs, scan))?;
    lines.retain(|line| is_local(&line.setting.endpoint) || line.setting.endpoint.path().is_some());
    Ok(lines)
}

/// The lines of configurations that connect, and the first that is refused.
fn lines_of(
    configs: &[ConfigFile],
    scan: &Scan,
) -> Result<(Vec<Connecting>, Option<ConfigFileError>), ConfigFileError> {
    let (mut found, mut first_refused) = (Vec::new(), None);
    for config in configs {
        let reading = config.read().map_err(|refusal| without_secrets(config, refusal))?.reading;
        // The file's secrets are looked for once, and not for each of a thousand lines that are refused.
        if first_refused.is_none() {
            first_refused = reading.refused.into_iter().next().map(|mut refusal| {
                // The paths of this machine, as a switch says them.
                refusal.by_hand = leads::Leading::of(scan, config, &[refusal.clone()]).by_hand(&refusal);
                without_secrets(config, refusal)
            });
        }
        for setting in reading.settings.into_iter().filter(|setting| setting.role == Role::Connects) {
            let service = services_at(scan, &setting.endpoint).first().copied();
            let side = ClientSide::find(scan, config, &setting, service, Wanted::ToLook);
            let side = side.map(|(side, _)| side).unwrap_or_default();
            found.push(Connecting {
                elsewhere: elsewhere_of(scan, service, &setting.endpoint),
                settles: side.settles(),
                barred: barred(&side.application, &setting),
                application: side.application,
                setting,
            });
        }
    }
    Ok((found, first_refused))
}

/// Root logs in anywhere: `verify` called a socket good that the application's user could not open.
fn barred(application: &Application, setting: &Setting) -> Option<String> {
    let socket = setting.endpoint.path()?;
    let key = format!("who of {} is shut out of {}", setting.file.display(), socket.display());
    let shut_out = once_in_a_run(&key, || {
        application.pids().into_iter().find(|pid| is_shut_out(*pid, socket)).map(named)
    });
    (*shut_out).clone()
}

/// A refusal may quote the file.
fn without_secrets(config: &ConfigFile, refusal: Refusal) -> ConfigFileError {
    ConfigFileError::Refused(refusal.redacted(&Redactor::new(&config.secrets())))
}

/// The endpoints of a service over the other transport than this one.
fn elsewhere_of(scan: &Scan, service: Option<usize>, endpoint: &Endpoint) -> Vec<Endpoint> {
    let Some(service) = service.and_then(|at| scan.services.get(at)) else { return Vec::new() };
    let is_other = |other: &Endpoint| other.path().is_some() != endpoint.path().is_some();
    scan.listeners(service).filter_map(endpoint_of).filter(is_other).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn ourselves() -> Application {
        Application { families: vec![std::process::id()], ..Application::default() }
    }

    fn moved(new: &Endpoint, old: Option<&Endpoint>, application: Application) -> Move {
        let old = old.into_iter().cloned().collect();
        Move { new: new.clone(), old, application, others: Arc::default(), settled: Instant::now() }
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
        let usage = Usage::begin([moved(&new, Some(&old), ourselves())]);
        usage.during(|| ());
        let before = usage.seen().remove(0);
        assert_eq!(before.application(), ApplicationSeen::NotSeen, "what was there before proves nothing");
        assert!(before.others()[0].starts_with("seen, and connected neither there"), "{before:?}");
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
        let usage = Usage::begin([moved(&Endpoint::Unix(path.clone()), None, Application::default())]);
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
        let usage = Usage::begin([moved(&Endpoint::Unix(path.clone()), None, ourselves())]);
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
