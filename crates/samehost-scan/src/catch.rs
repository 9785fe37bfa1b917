//! Catches the clients of short connections while traffic is observed: lists the connected sockets again and again, and
//! looks up who holds the client's end before it is closed. Only services whose clients are not visible are looked at.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use samehost_model::scan::{Process, Scan};

use crate::diag::Diag;
use crate::join::Listeners;
use crate::namespaces;
use crate::talk::holders;

/// Looks at the processes for one service until it is given up.
const MOST_TRIES: u32 = 40;
/// A look may take this part of the time at most, so that it does not disturb what is observed.
const PART_OF_TIME: u32 = 20;

/// Clients that were seen of each service.
pub(crate) type Caught = HashMap<usize, Vec<Process>>;

pub(crate) struct Catcher<'a> {
    listeners: &'a Listeners,
    service_of: &'a HashMap<usize, usize>,
    namespace: u64,
    diag: Diag,
    /// Services without a visible client, and the tries that are left.
    wanted: BTreeMap<usize, u32>,
    /// Inodes of sockets that need no look.
    known: HashSet<u64>,
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
        let is_seen = |service: &usize| {
            scan.advice.iter().any(|one| one.service == *service && !one.client_pids.is_empty())
        };
        let services = service_of.values().copied().filter(|service| !is_seen(service));
        let held = scan.sockets.iter().filter(|socket| !socket.pids.is_empty());
        Some(Catcher {
            listeners,
            service_of,
            namespace,
            diag: Diag::open().ok()?,
            wanted: services.map(|service| (service, MOST_TRIES)).collect(),
            known: held.map(|socket| socket.inode).collect(),
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
            let clients = holders(&ends);
            if !clients.is_empty() {
                self.wanted.remove(&service);
                self.caught.insert(service, clients);
            } else if let Some(tries) = self.wanted.get_mut(&service) {
                *tries -= 1;
                self.wanted.retain(|_, tries| *tries > 0);
            }
        }
        self.next = begun + begun.elapsed().max(Duration::from_millis(1)) * PART_OF_TIME;
    }
}
