//! Counts connections that open and close between two snapshots. The kernel announces both ends of each when
//! they close (sock_diag destroy events), with what each sent and received.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use samehost_model::scan::{NetworkNamespace, ReadBy};

use crate::diag::{Counters, Endings};
use crate::listing::join::Listeners;
use crate::namespaces;

/// Limit on ends whose other end is remote or was not announced yet. Beyond it the oldest is dropped.
const MOST_UNMATCHED: usize = 65_536;

/// Who opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Opener {
    /// The user whose socket it is.
    pub(crate) uid: Option<u32>,
    /// Place of the program in [`Seen::senders`](crate::traffic::catch::Seen::senders); `None` where its process had closed the connection
    /// when it was looked for.
    pub(crate) sender: Option<usize>,
}

/// Totals of the connections to one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) connections: u64,
    pub(crate) round_trips: u64,
    pub(crate) bytes: u64,
}

/// Listens for closed connections in all network namespaces of a scan.
#[derive(Default)]
pub(crate) struct Ended {
    spaces: Vec<Space>,
    sums: Sums,
    /// At least one namespace sends no events.
    no_events: bool,
    /// Events were lost: the kernel's buffer was full, or too many ends were unmatched.
    missed: bool,
}

/// Connections by namespace and server address, those that look alike together.
pub(crate) type Sums = HashMap<(u64, SocketAddr), HashMap<Likeness, Tally>>;

/// What connections have in common that look alike: their round trips and their bytes, each within a factor of two. Finer
/// classes had too few connections each that were seen: a page asks 40 questions, and the next one 70.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Likeness {
    round_trips: u8,
    bytes: u8,
}

impl Likeness {
    fn of(sum: &Sum) -> Self {
        Likeness { round_trips: step(sum.round_trips), bytes: step(sum.bytes) }
    }
}

fn step(number: u64) -> u8 {
    (number + 1).ilog2() as u8
}

/// Connections that look alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) all: Sum,
    /// Those that were seen while they were open, by who opened them.
    pub(crate) seen: BTreeMap<Opener, Sum>,
}

/// A connection that was closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) namespace: u64,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// The kernel's name of the client's end.
    pub(crate) cookie: u64,
}

/// What was heard in a period.
pub(crate) struct Heard {
    pub(crate) sums: Sums,
    /// Whether every namespace sends events, and none was lost.
    pub(crate) is_all: bool,
}

struct Space {
    inode: u64,
    endings: Endings,
    unmatched: Unmatched,
}

/// An end's own address and its peer's.
type Ends = (SocketAddr, SocketAddr);

/// Ends whose other end was not announced yet, up to a limit.
#[derive(Default)]
struct Unmatched {
    /// Age and cookie of each.
    ages: HashMap<Ends, (u64, u64)>,
    by_age: BTreeMap<u64, Ends>,
    next: u64,
}

impl Unmatched {
    /// Takes out the other end of a connection; its cookie, if it was there.
    fn take(&mut self, (local, peer): Ends) -> Option<u64> {
        let (age, cookie) = self.ages.remove(&(peer, local))?;
        self.by_age.remove(&age).map(|_| cookie)
    }

    /// Adds an end; whether the oldest had to go for it.
    fn add(&mut self, ends: Ends, cookie: u64, limit: usize) -> bool {
        if let Some((age, _)) = self.ages.insert(ends, (self.next, cookie)) {
            self.by_age.remove(&age);
        }
        self.by_age.insert(self.next, ends);
        self.next += 1;
        let is_full = self.ages.len() > limit;
        if is_full && let Some((_, oldest)) = self.by_age.pop_first() {
            self.ages.remove(&oldest);
        }
        is_full
    }
}

impl Ended {
    /// Subscribes in every namespace that allows it.
    pub(crate) fn open(namespaces: &[NetworkNamespace]) -> Self {
        let mut ended = Ended::default();
        for space in namespaces.iter().filter(|space| space.read_by == ReadBy::SockDiag) {
            match namespaces::within(space, Endings::open) {
                Some(Ok(endings)) => {
                    let unmatched = Unmatched::default();
                    ended.spaces.push(Space { inode: space.inode, endings, unmatched });
                }
                Some(Err(_)) => ended.no_events = true,
                None => {}
            }
        }
        ended
    }

    /// Whether there is a subscription in every namespace of a scan that allows one.
    pub(crate) fn covers(&self, namespaces: &[NetworkNamespace]) -> bool {
        let mut readable = namespaces.iter().filter(|space| space.read_by == ReadBy::SockDiag);
        self.no_events || readable.all(|space| self.spaces.iter().any(|ours| ours.inode == space.inode))
    }

    /// Reads the events since the last call. Connections that were open `before` are skipped: their counters
    /// include earlier traffic. `opener` says who opened a connection.
    pub(crate) fn read(
        &mut self,
        listeners: &Listeners,
        before: impl Fn(u64, SocketAddr, SocketAddr) -> bool,
        mut opener: impl FnMut(Closed) -> Option<Opener>,
    ) {
        for space in &mut self.spaces {
            let (inode, unmatched, sums) = (space.inode, &mut space.unmatched, &mut self.sums);
            let mut is_full = false;
            let read = space.endings.hear(|one| {
                let (Some(local), Some(peer), Some(counters)) =
                    (one.local.inet(), one.peer.inet(), one.counters)
                else {
                    return;
                };
                if before(inode, local, peer) {
                    return;
                }
                let (local, peer) = (canonical(local), canonical(peer));
                let Some(other) = unmatched.take((local, peer)) else {
                    is_full |= unmatched.add((local, peer), one.cookie, MOST_UNMATCHED);
                    return;
                };
                let is_server = [local, peer].map(|end| listeners.accepts(inode, end).is_some());
                let (client, server, cookie) = match is_server {
                    [true, _] => (peer, local, other),
                    [false, true] => (local, peer, one.cookie),
                    [false, false] => return,
                };
                let sum = Sum::of(&counters);
                let tally = sums.entry((inode, server)).or_default().entry(Likeness::of(&sum)).or_default();
                tally.all.merge(sum);
                if let Some(opener) = opener(Closed { namespace: inode, client, server, cookie }) {
                    tally.seen.entry(opener).or_default().merge(sum);
                }
            });
            self.missed |= is_full || read.is_err();
        }
    }

    /// Totals since the last `take`.
    pub(crate) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Takes what was heard since the last call.
    pub(crate) fn take(&mut self) -> Heard {
        let missed = std::mem::take(&mut self.missed);
        Heard { sums: std::mem::take(&mut self.sums), is_all: !missed && !self.no_events }
    }
}

impl Sum {
    fn of(counters: &Counters) -> Self {
        Sum {
            connections: 1,
            round_trips: u64::from(counters.data_segments_in.min(counters.data_segments_out)),
            bytes: counters.bytes_acked + counters.bytes_received,
        }
    }

    /// What is left without these.
    pub(crate) fn without(self, some: Sum) -> Self {
        Sum {
            connections: self.connections.saturating_sub(some.connections),
            round_trips: self.round_trips.saturating_sub(some.round_trips),
            bytes: self.bytes.saturating_sub(some.bytes),
        }
    }

    pub(crate) fn merge(&mut self, other: Sum) {
        self.connections += other.connections;
        self.round_trips += other.round_trips;
        self.bytes += other.bytes;
    }
}

/// Converts IPv4-mapped IPv6 addresses to IPv4: the two ends of a connection may differ in this.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_unmatched_end_goes_and_that_is_reported() {
        fn end(port: u16) -> SocketAddr {
            SocketAddr::from(([127, 0, 0, 1], port))
        }
        let mut unmatched = Unmatched::default();
        assert!(!unmatched.add((end(1), end(9)), 10, 2) && !unmatched.add((end(2), end(9)), 20, 2));
        assert!(!unmatched.add((end(1), end(9)), 11, 2), "the same addresses again: now it is the newest");
        assert!(unmatched.add((end(3), end(9)), 30, 2));
        assert_eq!(unmatched.take((end(9), end(2))), None, "the oldest was dropped");
        assert_eq!(
            (unmatched.take((end(9), end(1))), unmatched.take((end(9), end(3)))),
            (Some(11), Some(30))
        );
        assert!(unmatched.ages.is_empty() && unmatched.by_age.is_empty());
    }

    #[test]
    fn a_connection_counts_once_and_by_its_fewer_segments() {
        let mut sum = Sum::default();
        let counters = Counters {
            bytes_acked: 100,
            bytes_received: 40,
            data_segments_in: 3,
            data_segments_out: 5,
            ..Counters::default()
        };
        sum.merge(Sum::of(&counters));
        sum.merge(Sum::of(&counters));
        assert_eq!(sum, Sum { connections: 2, round_trips: 6, bytes: 280 });
    }

    #[test]
    fn missed_events_are_reported_once_and_missing_ones_always() {
        let mut ended = Ended { missed: true, ..Ended::default() };
        assert_eq!((ended.take().is_all, ended.take().is_all), (false, true));
        let mut ended = Ended { no_events: true, ..Ended::default() };
        assert_eq!((ended.take().is_all, ended.take().is_all), (false, false));
    }
}
