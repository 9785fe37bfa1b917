//! Catches the clients of short connections while traffic is observed: lists the connected sockets again and again, and
//! looks up who holds the client's end before it is closed. Each service is looked at, also one with a client that stays
//! connected: that one need not be the one that comes and goes. A connection belongs to whoever was seen to hold it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use samehost_model::scan::{Process, Scan};
use samehost_system::identity::stat_field;
use samehost_system::peer::children;

use crate::diag::Diag;
use crate::join::Listeners;
use crate::namespaces;
use crate::proc::descriptors::sockets_of;
use crate::proc::users::Names;
use crate::talk::holders;

/// Looks at the processes for one service until it is given up.
const MOST_TRIES: u32 = 400;
/// Connections that were caught of a service, after which the shares of its clients are known well enough.
const ENOUGH: u32 = 200;
/// A look may take this part of the time at most, so that it does not disturb what is observed.
const PART_OF_TIME: u32 = 10;

/// A program that opens short connections to a service: its processes have one name, user and unit.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// One of its processes, as it was when it was seen.
    pub(crate) process: Process,
    /// How many of its connections were seen.
    pub(crate) connections: u32,
}

impl Sender {
    /// Whether a process is of this program.
    pub(crate) fn is_of(&self, process: &Process) -> bool {
        let own = &self.process;
        (&own.name, own.uid, &own.unit) == (&process.name, process.uid, &process.unit)
    }
}

/// Programs that were seen to connect to each service.
pub(crate) type Caught = HashMap<usize, Vec<Sender>>;

pub(crate) struct Catcher<'a> {
    listeners: &'a Listeners,
    service_of: &'a HashMap<usize, usize>,
    namespace: u64,
    diag: Diag,
    /// Services, and the tries that are left for each.
    wanted: BTreeMap<usize, u32>,
    /// Inodes of sockets that need no look.
    known: HashSet<u64>,
    /// Processes with clients that are visible, or that were caught: the next connection is likely theirs or that of a
    /// process with the same parent, and to ask them takes a hundredth of asking all.
    likely: BTreeSet<u32>,
    next: Instant,
    pub(crate) caught: Caught,
}

impl<'a> Catcher<'a> {
    /// `None` where the scan is of another network namespace, or the kernel lists nothing.
    pub(crate) fn open(
        scan: &Scan,
        listeners: &'a Listeners,
        service_of: &'a HashMap<usize, usize>,
    ) -> Option<Self> {
        let namespace = namespaces::own_of(scan)?;
        let services = service_of.values().copied();
        let held = scan.sockets.iter().filter(|socket| !socket.pids.is_empty());
        Some(Catcher {
            listeners,
            service_of,
            namespace,
            diag: Diag::open().ok()?,
            wanted: services.map(|service| (service, MOST_TRIES)).collect(),
            known: held.map(|socket| socket.inode).collect(),
            likely: scan.advice.iter().flat_map(|one| one.client_pids.iter().copied()).collect(),
            next: Instant::now(),
            caught: Caught::new(),
        })
    }

    /// Looks once, if it is time to.
    pub(crate) fn look(&mut self) {
        let begun = Instant::now();
        if begun < self.next || self.wanted.is_empty() {
            return;
        }
        let mut ends: HashMap<usize, Vec<(u64, Option<u32>)>> = HashMap::new();
        for socket in self.diag.connected(self.namespace).unwrap_or_default() {
            let listener = socket.peer.inet().and_then(|peer| self.listeners.accepts(self.namespace, peer));
            let Some(service) = listener.and_then(|at| self.service_of.get(&at)) else { continue };
            if self.wanted.contains_key(service) && socket.inode != 0 && self.known.insert(socket.inode) {
                ends.entry(*service).or_default().push((socket.inode, socket.uid));
            }
        }
        for (service, ends) in ends {
            let clients = self.clients(&ends);
            if let Some(tries) = self.wanted.get_mut(&service) {
                *tries = tries.saturating_sub(1);
            }
            self.likely.extend(clients.iter().map(|process| process.pid));
            let senders = self.caught.entry(service).or_default();
            for process in clients {
                match senders.iter_mut().find(|sender| sender.is_of(&process)) {
                    Some(sender) => sender.connections += 1,
                    None => senders.push(Sender { process, connections: 1 }),
                }
            }
            let is_known = senders.iter().map(|sender| sender.connections).sum::<u32>() >= ENOUGH;
            self.wanted.retain(|at, tries| *tries > 0 && !(*at == service && is_known));
        }
        self.next = begun + begun.elapsed().max(Duration::from_millis(1)) * PART_OF_TIME;
    }

    /// The processes that hold one of these sockets: the likely ones and those beside them first, then all.
    fn clients(&self, ends: &[(u64, Option<u32>)]) -> Vec<Process> {
        let mut asked = self.likely.clone();
        let parents: BTreeSet<u32> = self.likely.iter().filter_map(|pid| parent_of(*pid)).collect();
        for parent in parents.into_iter().filter(|parent| *parent > 1) {
            asked.extend(children(parent));
        }
        let holds =
            |pid: &&u32| sockets_of(**pid).iter().any(|inode| ends.iter().any(|(wanted, _)| wanted == inode));
        let users = Names::of_users();
        let found: Vec<Process> =
            asked.iter().filter(holds).filter_map(|pid| crate::process(*pid, &users)).collect();
        if found.is_empty() { holders(ends) } else { found }
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    stat_field(pid, 4)?.parse().ok()
}
