//! Counts connections that open and close between two snapshots. The kernel announces both ends of each when
//! they close (sock_diag destroy events), with what each sent and received.

use std::collections::HashMap;
use std::net::SocketAddr;

use samehost_model::scan::{NetworkNamespace, ReadBy};

use crate::diag::{Counters, Endings};
use crate::join::Listeners;
use crate::namespaces;

/// Limit on ends whose other end is remote or was not announced yet. At the limit all of them are dropped.
const MOST_ALONE: usize = 65_536;

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
    deaf: bool,
    /// Events were lost because the kernel's buffer was full.
    missed: bool,
}

/// Totals by namespace and server address.
pub(crate) type Sums = HashMap<(u64, SocketAddr), Sum>;

struct Space {
    inode: u64,
    endings: Endings,
    /// Ends without their other end yet, by their own and their peer's address.
    alone: HashMap<(SocketAddr, SocketAddr), Counters>,
}

impl Ended {
    /// Subscribes in every namespace that allows it.
    pub(crate) fn open(namespaces: &[NetworkNamespace]) -> Self {
        let mut ended = Ended::default();
        for space in namespaces.iter().filter(|space| space.read_by == ReadBy::SockDiag) {
            match namespaces::within(space, Endings::open) {
                Some(Ok(endings)) => {
                    ended.spaces.push(Space { inode: space.inode, endings, alone: HashMap::new() });
                }
                Some(Err(_)) => ended.deaf = true,
                None => {}
            }
        }
        ended
    }

    /// Whether there is a subscription in every namespace of a scan that allows one.
    pub(crate) fn covers(&self, namespaces: &[NetworkNamespace]) -> bool {
        let heard = |inode| self.spaces.iter().any(|space| space.inode == inode);
        let mut readable = namespaces.iter().filter(|space| space.read_by == ReadBy::SockDiag);
        self.deaf || readable.all(|space| heard(space.inode))
    }

    /// Reads the events since the last call. Connections that were open `before` are skipped: their counters
    /// include earlier traffic.
    pub(crate) fn hear(
        &mut self,
        listeners: &Listeners,
        before: impl Fn(u64, SocketAddr, SocketAddr) -> bool,
    ) {
        for space in &mut self.spaces {
            let (inode, alone, sums) = (space.inode, &mut space.alone, &mut self.sums);
            let heard = space.endings.hear(|one| {
                let (Some(local), Some(peer), Some(counters)) =
                    (one.local.inet(), one.peer.inet(), one.counters)
                else {
                    return;
                };
                if before(inode, local, peer) {
                    return;
                }
                let (local, peer) = (canonical(local), canonical(peer));
                if alone.remove(&(peer, local)).is_none() {
                    if alone.len() >= MOST_ALONE {
                        alone.clear();
                    }
                    alone.insert((local, peer), counters);
                    return;
                }
                let server = [local, peer].into_iter().find(|end| listeners.accepts(inode, *end).is_some());
                if let Some(server) = server {
                    sums.entry((inode, server)).or_default().add(&counters);
                }
            });
            self.missed |= heard.is_err();
        }
    }

    /// Totals since the last `take`.
    pub(crate) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Takes the totals since the last call, and whether they are complete.
    pub(crate) fn take(&mut self) -> (Sums, bool) {
        let missed = std::mem::take(&mut self.missed);
        (std::mem::take(&mut self.sums), !missed && !self.deaf)
    }
}

impl Sum {
    fn add(&mut self, counters: &Counters) {
        self.connections += 1;
        self.round_trips += u64::from(counters.data_segments_in.min(counters.data_segments_out));
        self.bytes += counters.bytes_acked + counters.bytes_received;
    }

    pub(crate) fn merge(&mut self, other: Sum) {
        self.connections += other.connections;
        self.round_trips += other.round_trips;
        self.bytes += other.bytes;
    }
}

/// Converts IPv4-mapped IPv6 addresses to IPv4: the two ends of a connection may differ in this.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        sum.add(&counters);
        sum.add(&counters);
        assert_eq!(sum, Sum { connections: 2, round_trips: 6, bytes: 280 });
    }

    #[test]
    fn what_was_missed_is_told_once_and_what_is_never_heard_always() {
        let mut ended = Ended { missed: true, ..Ended::default() };
        assert_eq!((ended.take().1, ended.take().1), (false, true));
        let mut ended = Ended { deaf: true, ..Ended::default() };
        assert_eq!((ended.take().1, ended.take().1), (false, false));
    }
}
