//! Sees who opens short connections while traffic is observed. The kernel notes it (see [`Connects`]) as root, or with CAP_BPF
//! and CAP_PERFMON.
//!
//! Where it does not, this lists the connected sockets again and again, and looks up who holds the client's end before it is
//! closed. Each service is looked at, also one with a client that stays connected: that
//! one need not be the one that comes and goes. A connection belongs to whoever was seen to hold it. Where its holder has closed
//! it by the time that it is looked for, the user of the socket is known, and who that is where the user runs one program.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use samehost_bpf::{Connects, Opened, UnixConnects};
use samehost_model::scan::{Process, Scan, UnixOpener};
use samehost_system::accounts::Names;
use samehost_system::interrupt;
use samehost_system::peer::children;

use crate::advice::are_of_one_program;
use crate::diag::Diag;
use crate::listing::join::Listeners;
use crate::listing::service::Acceptors;
use crate::namespaces;
use crate::proc::descriptors::sockets_of;
use crate::proc::{pids, status};
use crate::traffic::short_connections::{Closed, Door, Opener, Seen};

/// Looks at the processes for one door until it is given up.
const MOST_TRIES: u32 = 2000;
/// Connections that were seen of a door, after which the shares of its clients are known well enough.
const ENOUGH: u32 = 1000;
/// A look at the sockets may take one such part of a CPU at most, so that it does not disturb what is
/// observed. Looks are what is left where the kernel takes no program that notes who connects. Of
/// PHP-FPM's 16 connections a second of 0.4 ms, beside a compiler, they booked 100 %, 0 % and 0 % on the
/// right program in three scans; the kernel's notes booked 100 % in each. A look's CPU time counts and
/// not its length: on a busy machine it takes several times as long, and would be made as much more
/// seldom, just where there is more to see (docs/decisions/0133).
const PART_OF_A_CPU: u32 = 6;

/// Processes of a user whose socket was seen that are asked before all others from then on.
const MOST_OF_A_USER: usize = 64;
/// A look is counted as this much CPU time at least; one at 20 sockets takes 0.4 ms.
const SHORTEST_LOOK: Duration = Duration::from_micros(250);
/// Once the programs of all users are known that were seen with a service, all processes are asked this seldom: to ask all
/// takes as long as three looks, and another program of the same user would be found later.
const SELDOM: u32 = 4;

pub(crate) type Caught = HashMap<Door, Seen>;

/// Addresses of a connection: the client's end, and the server's.
type Addresses = (SocketAddr, SocketAddr);

struct ClientEnd {
    inode: u64,
    uid: Option<u32>,
    addresses: Addresses,
}

pub(crate) struct Catcher<'a> {
    connects: Option<Connects>,
    noted: HashMap<u32, Process>,
    acceptors: &'a Acceptors,
    namespace: u64,
    diag: Diag,
    /// How often the holders of connections to each door were looked for.
    tries: HashMap<Door, u32>,
    known: HashSet<u64>,
    /// Processes with clients that are visible, or that were seen: the next connection is likely theirs or that of a
    /// process with the same parent, and to ask them takes a hundredth of asking all.
    likely: BTreeSet<u32>,
    next: Instant,
    users: Names,
    /// The only program of each user that was asked about.
    only_ones: HashMap<u32, Option<Process>>,
    open: HashMap<Addresses, Opener>,
    pub(crate) caught: Caught,
}

impl<'a> Catcher<'a> {
    /// `None` where the scan is of another network namespace, or the kernel lists nothing.
    pub(crate) fn open(scan: &Scan, acceptors: &'a Acceptors) -> Option<Self> {
        let namespace = namespaces::own_of(scan)?;
        let with_holders = scan.sockets.iter().filter(|socket| !socket.pids.is_empty());
        let mut likely = BTreeSet::new();
        for advice in &scan.advice {
            likely.extend(&advice.client_pids);
        }
        Some(Catcher {
            connects: connects(),
            noted: HashMap::new(),
            acceptors,
            namespace,
            diag: Diag::open().ok()?,
            tries: HashMap::new(),
            known: with_holders.map(|socket| socket.inode).collect(),
            likely,
            next: Instant::now(),
            users: Names::of_users(),
            only_ones: HashMap::new(),
            open: HashMap::new(),
            caught: Caught::new(),
        })
    }

    /// Looks again and again for this long, unless the kernel does.
    pub(crate) fn watch(&mut self, period: Duration) {
        let until = Instant::now() + period;
        while self.connects.is_none() && Instant::now() < until {
            self.look();
            std::thread::sleep(self.next.min(until).saturating_duration_since(Instant::now()));
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    /// Who opened a connection that has ended now; none where it was not seen.
    pub(crate) fn ended(&mut self, closed: &Closed) -> Option<Opener> {
        let Some(connects) = &self.connects else {
            let seen = self.open.remove(&(closed.client, closed.server));
            return if closed.namespace == self.namespace { seen } else { None };
        };
        let service = self.acceptors.at(closed.namespace, closed.server)?;
        let opened = connects.opener(closed.cookie)?;
        let users = &self.users;
        let noted = self.noted.entry(opened.pid);
        let process = noted.or_insert_with(|| process_of(&opened, users)).clone();
        let seen = self.caught.entry((service, closed.server)).or_default();
        let opener = Opener { uid: Some(opened.uid), sender: Some(seen.sender(process)) };
        *seen.openers.entry(opener).or_default() += 1;
        Some(opener)
    }

    fn look(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        let begun = cpu_time();
        for (door, ends) in self.new_ends() {
            self.book(door, ends);
        }
        let used = cpu_time().saturating_sub(begun).max(SHORTEST_LOOK);
        self.next = Instant::now() + used * (PART_OF_A_CPU - 1);
    }

    /// The clients' ends of connections that were not there at the last look, by the door that they came to.
    fn new_ends(&mut self) -> HashMap<Door, Vec<ClientEnd>> {
        let mut ends: HashMap<Door, Vec<ClientEnd>> = HashMap::new();
        for socket in self.diag.connected(self.namespace).unwrap_or_default() {
            let (Some(client), Some(server)) = (socket.local.inet(), socket.peer.inet()) else { continue };
            let Some(service) = self.acceptors.at(self.namespace, server) else { continue };
            let door = (service, server);
            if self.is_known_well(door) || socket.inode == 0 || !self.known.insert(socket.inode) {
                continue;
            }
            let addresses = (client, server);
            let end = ClientEnd { inode: socket.inode, uid: socket.uid, addresses };
            ends.entry(door).or_default().push(end);
        }
        ends
    }

    /// Whether enough connections to a door were seen, or they were looked for often enough.
    fn is_known_well(&self, door: Door) -> bool {
        let tries = self.tries.get(&door).copied().unwrap_or_default();
        tries >= MOST_TRIES || self.caught.get(&door).is_some_and(|seen| seen.count() >= ENOUGH)
    }

    /// Books new connections to a door on whoever holds them. Where nobody does any more, on the only program of the socket's
    /// user, if he runs one; else only the user is noted.
    fn book(&mut self, door: Door, ends: Vec<ClientEnd>) {
        let seen = self.caught.entry(door).or_default();
        let knows_all = ends.iter().all(|end| seen.program_of_user(end.uid).is_some());
        let asks_all = seen.count().is_multiple_of(SELDOM) || !knows_all;
        let holders = self.holders_of(&ends, asks_all);
        let mut seen = self.caught.remove(&door).unwrap_or_default();
        for end in ends {
            let process = match holders.iter().find(|(_, inodes)| inodes.contains(&end.inode)) {
                Some((process, _)) => Some(process.clone()),
                None if seen.program_of_user(end.uid).is_some() => None,
                None => self.only_program_of(end.uid),
            };
            let sender = process.map(|process| seen.sender(process));
            let opener = Opener { uid: end.uid, sender };
            *seen.openers.entry(opener).or_default() += 1;
            self.open.insert(end.addresses, opener);
        }
        *self.tries.entry(door).or_default() += 1;
        self.caught.insert(door, seen);
        self.likely.extend(holders.iter().map(|(process, _)| process.pid));
    }

    /// The only program that a user runs; `None` of root. The processes of each user are looked at once.
    fn only_program_of(&mut self, uid: Option<u32>) -> Option<Process> {
        let uid = uid.filter(|uid| *uid != 0)?;
        if let Some(only) = self.only_ones.get(&uid) {
            return only.clone();
        }
        let all = processes_of(uid, &self.users);
        self.likely.extend(all.iter().take(MOST_OF_A_USER).map(|process| process.pid));
        let only = only_program(all);
        self.only_ones.insert(uid, only.clone());
        only
    }

    /// The processes that hold one of these sockets, with the sockets of each: the likely ones and those beside them are
    /// asked first, then all, if that is asked for.
    fn holders_of(&self, ends: &[ClientEnd], asks_all: bool) -> Vec<(Process, Vec<u64>)> {
        let mut asked = self.likely.clone();
        let stats = self.likely.iter().filter_map(|pid| status::read_stat(*pid));
        let mut parents: BTreeSet<u32> = stats.map(|stat| stat.parent).collect();
        parents.retain(|parent| *parent > 1);
        for parent in parents {
            asked.extend(children(parent));
        }
        let mut found = Vec::new();
        for pid in asked {
            let inodes = sockets_of(pid);
            if ends.iter().any(|end| inodes.contains(&end.inode)) {
                found.extend(crate::process(pid, &self.users).map(|process| (process, inodes)));
            }
        }
        if found.is_empty() && asks_all {
            let wanted: Vec<(u64, Option<u32>)> = ends.iter().map(|end| (end.inode, end.uid)).collect();
            found.extend(holders(&wanted));
        }
        found
    }
}

/// Who connects to Unix sockets while traffic is observed, and how long connections wait there until they are accepted.
pub(crate) struct UnixCatcher {
    pub(crate) connects: UnixConnects,
    begun: Instant,
}

impl UnixCatcher {
    /// `None` where the kernel tells nothing; in a PID namespace its numbers would be those of others.
    pub(crate) fn open() -> Option<Self> {
        if namespaces::in_pid_namespace() {
            return None;
        }
        Some(UnixCatcher { connects: UnixConnects::open().ok()?, begun: Instant::now() })
    }

    /// The programs that connected to services of this scan, the most frequent first; not this one.
    pub(crate) fn openers(&self, scan: &Scan) -> Vec<UnixOpener> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let listeners = unix_listeners(scan);
        let users = Names::of_users();
        let mut found: BTreeMap<(usize, String, u32), UnixOpener> = BTreeMap::new();
        for one in self.connects.openers() {
            let Some((service, socket)) = listeners.get(&one.listener) else { continue };
            if one.pid == std::process::id() {
                continue;
            }
            let opened = Opened { pid: one.pid, thread: one.pid, uid: one.uid, name: one.name };
            let process = process_of(&opened, &users);
            let opener =
                found.entry((*socket, process.name.clone(), process.uid)).or_insert_with(|| UnixOpener {
                    service: *service,
                    socket: scan.sockets[*socket].local.to_string(),
                    client: process.name,
                    user: process.user,
                    pid: process.pid,
                    connections_per_s: 0.0,
                });
            opener.connections_per_s += one.connections as f64 / seconds;
        }
        let mut openers: Vec<UnixOpener> = found.into_values().collect();
        openers.sort_by(|one, other| other.connections_per_s.total_cmp(&one.connections_per_s));
        openers
    }
}

fn unix_listeners(scan: &Scan) -> HashMap<u64, (usize, usize)> {
    let mut listeners = HashMap::new();
    for (index, service) in scan.services.iter().enumerate() {
        for at in &service.listeners {
            let Some(socket) = scan.sockets.get(*at) else { continue };
            if socket.kind.is_unix() && socket.cookie != 0 {
                listeners.insert(socket.cookie, (index, *at));
            }
        }
    }
    listeners
}

fn connects() -> Option<Connects> {
    if namespaces::in_pid_namespace() { None } else { Connects::open().ok() }
}

/// The process that opened a connection. Of one that has ended, what the kernel noted: its user and its name.
fn process_of(opened: &Opened, users: &Names) -> Process {
    match crate::process(opened.pid, users) {
        Some(process) if process.uid == opened.uid => process,
        _ => Process {
            pid: opened.pid,
            name: opened.name.clone(),
            uid: opened.uid,
            user: users.name(opened.uid).map(str::to_owned),
            ..Process::default()
        },
    }
}

fn processes_of(uid: u32, users: &Names) -> Vec<Process> {
    let mut found = Vec::new();
    for pid in pids() {
        if let Some(status) = status::read(pid)
            && status.uid == uid
        {
            found.extend(crate::process(pid, users));
        }
    }
    found
}

/// One of these processes, if all are of one program: a connection of 0.3 ms is closed before its holder is looked for, each
/// time, and its user is known.
fn only_program(all: Vec<Process>) -> Option<Process> {
    let mut all = all.into_iter();
    let first = all.next()?;
    if all.all(|process| are_of_one_program(&first, &process)) { Some(first) } else { None }
}

fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

// Finds the clients that talk to a service in short connections. A single snapshot rarely contains one, so
// the kernel's connections are listed repeatedly, and the holders of the client ends looked up.

/// Interval between listings: shorter than a PHP page keeps its connection open.
const NAP: Duration = Duration::from_millis(2);

/// Processes that connect to a service over TCP during the period, in this program's network namespace, by a look every 2 ms.
/// Empty when the scan is of another namespace, or nobody connected whose process may be seen. Ends early with the first clients
/// that were found, and when an interrupt is requested.
#[must_use]
pub fn talkers(scan: &Scan, service: usize, period: Duration) -> Vec<Process> {
    let Some(own) = namespaces::own_of(scan) else { return Vec::new() };
    let listeners = Listeners::of(&scan.sockets);
    let Some(found) = scan.services.get(service) else { return Vec::new() };
    let Ok(mut diag) = Diag::open() else { return Vec::new() };
    let (begun, mut known) = (Instant::now(), BTreeSet::new());
    while begun.elapsed() < period && !interrupt::is_requested() {
        let mut ends = Vec::new();
        for socket in diag.connected(own).unwrap_or_default() {
            let Some(peer) = socket.peer.inet() else { continue };
            let reaches = listeners.all(own, peer).iter().any(|at| found.listeners.contains(at));
            if reaches && socket.inode != 0 && known.insert(socket.inode) {
                ends.push((socket.inode, socket.uid));
            }
        }
        let talking = if ends.is_empty() { Vec::new() } else { holders(&ends) };
        if !talking.is_empty() {
            return talking.into_iter().map(|(process, _)| process).collect();
        }
        std::thread::sleep(NAP);
    }
    Vec::new()
}

/// Processes that hold one of these sockets now, each with all its sockets.
pub(crate) fn holders(ends: &[(u64, Option<u32>)]) -> Vec<(Process, Vec<u64>)> {
    let users = Names::of_users();
    let mut found = Vec::new();
    for pid in pids() {
        // Only processes of the sockets' owners are searched, because the connection is short.
        let uid = status::read(pid).map(|status| status.uid);
        if !ends.iter().any(|(_, maker)| maker.is_none() || *maker == uid) {
            continue;
        }
        let sockets = sockets_of(pid);
        if sockets.iter().any(|inode| ends.iter().any(|(end, _)| end == inode)) {
            found.extend(crate::process(pid, &users).map(|process| (process, sockets)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn numbers_of_another_pid_namespace_are_not_taken_as_root() {
        assert_eq!(connects().is_some(), !namespaces::in_pid_namespace());
    }

    #[test]
    fn who_connects_for_a_moment_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let scan = crate::collect("0").unwrap();
        let service = scan.services.iter().position(|service| {
            service.listeners.iter().any(|at| scan.sockets[*at].local.inet() == Some(address))
        });
        let stop = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            // Each connection lasts as long as a page of PHP.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _stream = TcpStream::connect(address);
                    std::thread::sleep(Duration::from_millis(30));
                }
            });
            let found = talkers(&scan, service.unwrap(), Duration::from_secs(20));
            stop.store(true, Ordering::Relaxed);
            found
        });
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [std::process::id()]);
        assert!(
            talkers(&scan, service.unwrap(), Duration::from_millis(20)).is_empty(),
            "nobody talks any more"
        );
    }
}
