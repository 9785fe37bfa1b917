//! Connections that begin and end while we watch. No look at a moment finds them; the kernel tells of each end of one, with
//! what it sent and received, when that is over.

use std::collections::HashMap;
use std::net::SocketAddr;

use samehost_model::scan::{NetworkNamespace, ReadBy};

use crate::diag::{Counters, Endings};
use crate::join::Listeners;
use crate::namespaces;

/// Ends whose other end is not local, or not heard of yet; more are forgotten.
const MOST_ALONE: usize = 65_536;

/// What the connections to one address did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) connections: u64,
    pub(crate) round_trips: u64,
    pub(crate) bytes: u64,
}

/// Hears of connections as they end, in all namespaces of a scan.
#[derive(Default)]
pub(crate) struct Ended {
    spaces: Vec<Space>,
    sums: Sums,
    /// A namespace does not tell us.
    deaf: bool,
    /// There were more than the kernel kept for us.
    missed: bool,
}

/// What connections did, by namespace and the address of the server's end.
pub(crate) type Sums = HashMap<(u64, SocketAddr), Sum>;

struct Space {
    inode: u64,
    endings: Endings,
    /// One end of each connection: its address, its peer's.
    alone: HashMap<(SocketAddr, SocketAddr), Counters>,
}

impl Ended {
    /// Begins to listen, where it may.
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

    /// Whether every namespace of a scan is listened to that can be.
    pub(crate) fn covers(&self, namespaces: &[NetworkNamespace]) -> bool {
        let heard = |inode| self.spaces.iter().any(|space| space.inode == inode);
        let mut readable = namespaces.iter().filter(|space| space.read_by == ReadBy::SockDiag);
        self.deaf || readable.all(|space| heard(space.inode))
    }

    /// Takes in what ended since the last call, but what was there `before` has another beginning than we saw.
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

    /// What was heard since it was last taken.
    pub(crate) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// What was heard since the last time, and whether that is all there was.
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

    /// Adds another.
    pub(crate) fn merge(&mut self, other: Sum) {
        self.connections += other.connections;
        self.round_trips += other.round_trips;
        self.bytes += other.bytes;
    }
}

/// The address without IPv6 around IPv4, which one end may have and the other not.
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
