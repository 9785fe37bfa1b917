//! Which announced ends are of one connection, so that each counts once, however it ended.
//!
//! A connection that is closed in order has two ends with both addresses. One that is reset (`SO_LINGER` of 0, or a close with unread
//! bytes: health checks, load balancers, some pools) has one: whoever sends the reset has lost the addresses when it is announced, all
//! but its port (`tcp_disconnect`), and the other end has them. So an end that has waited until all that was announced is read counts
//! alone, if both its addresses are of this machine; should the other one come later, it is known to be counted. Before, both
//! were needed, and 169 of 2,950 connections a second were counted.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Sum;
use crate::diag::Counters;
use crate::listing::join::Listeners;

/// How long an end is remembered whose other end was not announced: the other one may be kept open for a while, and the same ports
/// are used again after some seconds.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Most ends that are remembered. Beyond it the oldest goes.
const MAX_ENDS: usize = 65_536;
/// Ends whose room is never given back: some 150 kB.
const SPARE_ENDS: usize = 1_024;
/// A client that was refused has sent one segment and had no connection; one that had has acknowledged the reply as well.
const FEWEST_SEGMENTS: u32 = 2;

/// Addresses of an end: its own, and its peer's.
type Ends = (SocketAddr, SocketAddr);

/// A connection that ended, or what its second end adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) client: SocketAddr,
    /// Where it came to; `None` if no listener is known there any more.
    pub(super) server: Option<SocketAddr>,
    /// The kernel's name of the client's end, where that was announced.
    pub(super) cookie: Option<u64>,
    pub(super) sum: Sum,
    /// Whether it is not counted yet.
    pub(super) is_new: bool,
}

#[derive(Clone, Copy, Debug)]
struct End {
    cookie: u64,
    sum: Sum,
    segments_out: u32,
    at: Instant,
    /// A later one may have taken its place at the same addresses.
    number: u64,
    is_counted: bool,
}

/// Ends of a namespace whose other end was not announced.
#[derive(Default)]
pub(super) struct Unmatched {
    ends: HashMap<Ends, End>,
    /// In the order in which they came; those of the last read are not settled.
    by_age: VecDeque<(u64, Ends)>,
    unsettled: Vec<Ends>,
    /// Cookies of ends that lost their addresses, by their port.
    bare: HashMap<u16, u64>,
    next: u64,
    is_full: bool,
}

pub(super) struct Matching<'a> {
    pub(super) namespace: u64,
    pub(super) unmatched: &'a mut Unmatched,
    pub(super) listeners: &'a Listeners,
    pub(super) found: Vec<Found>,
}

impl Matching<'_> {
    pub(super) fn hear(&mut self, (local, peer): Ends, cookie: u64, counters: &Counters) {
        if peer.port() == 0 {
            self.unmatched.bare.insert(local.port(), cookie);
            return;
        }
        let sum = Sum::of(counters);
        let Some(other) = self.unmatched.ends.remove(&(peer, local)) else {
            self.unmatched.add(
                (local, peer),
                End {
                    cookie,
                    sum,
                    segments_out: counters.segments_out,
                    at: Instant::now(),
                    number: self.unmatched.next,
                    is_counted: false,
                },
            );
            return;
        };
        let (client, server, client_cookie) = self.sides((local, peer), cookie, other.cookie);
        // Of one that is counted already, only who opened it is news: if this end is the client's.
        let is_told = other.is_counted && client_cookie == other.cookie;
        if !is_told {
            let cookie = Some(client_cookie);
            self.found.push(Found { client, server, cookie, sum, is_new: !other.is_counted });
        }
    }

    /// Which end is the client's, and its cookie: the end that is no listener's, else this one.
    fn sides(&self, (local, peer): Ends, cookie: u64, others: u64) -> (SocketAddr, Option<SocketAddr>, u64) {
        let accepts = |end| self.listeners.accepts(self.namespace, end).is_some();
        match (accepts(local), accepts(peer)) {
            (true, _) => (peer, Some(local), others),
            (false, true) => (local, Some(peer), cookie),
            (false, false) => (local, None, cookie),
        }
    }

    /// Counts the ends of this read whose other end was not announced, where it is an end of this machine or one that came to a
    /// listener of it.
    pub(super) fn settle(&mut self) {
        for ends in std::mem::take(&mut self.unmatched.unsettled) {
            let Some(end) = self.unmatched.ends.get(&ends).copied() else { continue };
            let (local, peer) = ends;
            let (client, server, _) = self.sides(ends, end.cookie, 0);
            let is_server = server == Some(local);
            let had_connection = server.is_some() || end.segments_out >= FEWEST_SEGMENTS;
            if !are_both_here(local, peer) {
                // Somebody far away: no hop of this machine, but a connection that began here.
                if is_server {
                    self.found.push(Found { client, server: None, cookie: None, sum: end.sum, is_new: true });
                }
                continue;
            }
            if !had_connection {
                continue;
            }
            let cookie =
                if is_server { self.unmatched.bare.get(&peer.port()).copied() } else { Some(end.cookie) };
            self.found.push(Found { client, server, cookie, sum: end.sum, is_new: true });
            if self.unmatched.bare.contains_key(&peer.port()) {
                // Its other end is the one without addresses: nothing comes any more.
                self.unmatched.ends.remove(&ends);
            } else if let Some(end) = self.unmatched.ends.get_mut(&ends) {
                end.is_counted = true;
            }
        }
        self.unmatched.bare.clear();
    }
}

impl Unmatched {
    fn add(&mut self, ends: Ends, end: End) {
        self.ends.insert(ends, end);
        self.by_age.push_back((end.number, ends));
        self.unsettled.push(ends);
        self.next += 1;
        // One that was settled has served its purpose.
        if self.by_age.len() > MAX_ENDS
            && let Some((number, oldest)) = self.by_age.pop_front()
            && self.ends.get(&oldest).is_some_and(|end| end.number == number)
        {
            self.is_full |= self.ends.remove(&oldest).is_some_and(|end| !end.is_counted);
        }
    }

    /// Forgets those that are old, so that a machine of many remote clients does not keep them. True if some had to go before they
    /// were settled.
    pub(super) fn forget(&mut self) -> bool {
        while let Some((number, ends)) = self.by_age.front().copied() {
            match self.ends.get(&ends) {
                Some(end) if end.number == number && end.at.elapsed() < REMEMBERED => break,
                Some(end) if end.number == number => drop(self.ends.remove(&ends)),
                _ => {}
            }
            self.by_age.pop_front();
        }
        self.give_back();
        std::mem::take(&mut self.is_full)
    }

    /// Gives back what a burst took, which `top` would have kept for as long as it runs. Of 9 MB beside a site, 8 were ends that had
    /// been matched long before.
    fn give_back(&mut self) {
        let number = self.ends.len().max(SPARE_ENDS);
        if self.by_age.len() > 2 * number {
            let ends = &self.ends;
            self.by_age.retain(|(number, key)| ends.get(key).is_some_and(|end| end.number == *number));
        }
        if self.by_age.capacity() > 4 * number {
            self.by_age.shrink_to(2 * number);
        }
        if self.ends.capacity() > 4 * number {
            self.ends.shrink_to(2 * number);
        }
        if self.bare.capacity() > 4 * SPARE_ENDS {
            self.bare = HashMap::new();
        }
    }
}

/// Whether both addresses are of this machine for certain. Between two of its own addresses that differ, both ends are announced
/// where they are closed in order.
fn are_both_here(local: SocketAddr, peer: SocketAddr) -> bool {
    let (local, peer) = (local.ip().to_canonical(), peer.ip().to_canonical());
    local == peer || local.is_loopback() || peer.is_loopback()
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Socket, SocketKind, SocketState};

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn counters(segments_out: u32) -> Counters {
        Counters { segments_out, data_segments_in: 1, data_segments_out: 1, ..Counters::default() }
    }

    fn listeners() -> Listeners {
        let mut socket = Socket::new(SocketKind::Tcp, SocketState::Listen, 5, 1);
        socket.local = samehost_model::scan::Address::Inet(at("0.0.0.0:80"));
        Listeners::of(&[socket])
    }

    /// What is found of ends that come in one read each.
    fn found(unmatched: &mut Unmatched, reads: &[&[(&str, &str, u64)]]) -> Vec<Found> {
        let listeners = listeners();
        let mut all = Vec::new();
        for read in reads {
            let mut matching = Matching { namespace: 1, unmatched, listeners: &listeners, found: Vec::new() };
            for (local, peer, cookie) in *read {
                matching.hear((at(local), at(peer)), *cookie, &counters(3));
            }
            matching.settle();
            all.extend(matching.found);
        }
        all
    }

    const CLIENT: (&str, &str, u64) = ("127.0.0.1:4000", "127.0.0.1:80", 7);
    const SERVER: (&str, &str, u64) = ("127.0.0.1:80", "127.0.0.1:4000", 8);

    #[test]
    fn a_connection_counts_once_whether_one_end_is_announced_or_both_and_when() {
        for reads in
            [&[&[CLIENT, SERVER][..]][..], &[&[SERVER, CLIENT]], &[&[CLIENT]], &[&[CLIENT], &[SERVER]]]
        {
            let found = found(&mut Unmatched::default(), reads);
            assert_eq!(found.len(), 1, "{reads:?}");
            let one = found[0];
            assert!(
                one.is_new && one.server == Some(at("127.0.0.1:80")) && one.cookie == Some(7),
                "{reads:?}"
            );
        }
        let late = found(&mut Unmatched::default(), &[&[SERVER], &[CLIENT]]);
        assert_eq!(
            late.iter().map(|one| (one.is_new, one.cookie)).collect::<Vec<_>>(),
            [(true, None), (false, Some(7))]
        );
    }

    #[test]
    fn whoever_sent_the_reset_is_known_by_its_port() {
        let bare = ("0.0.0.0:4000", "127.0.0.1:0", 9);
        let found = found(&mut Unmatched::default(), &[&[bare, SERVER]]);
        assert_eq!((found.len(), found[0].cookie), (1, Some(9)));
    }

    #[test]
    fn who_is_far_away_began_a_connection_and_is_no_hop() {
        let far = ("192.0.2.1:80", "198.51.100.7:4000", 8);
        let to_far = ("192.0.2.1:4000", "198.51.100.7:443", 7);
        let found = found(&mut Unmatched::default(), &[&[far, to_far]]);
        assert_eq!(found.iter().map(|one| (one.server, one.is_new)).collect::<Vec<_>>(), [(None, true)]);
    }

    #[test]
    fn who_was_refused_had_no_connection() {
        let listeners = listeners();
        let mut unmatched = Unmatched::default();
        let mut matching =
            Matching { namespace: 1, unmatched: &mut unmatched, listeners: &listeners, found: Vec::new() };
        matching.hear((at("127.0.0.1:4000"), at("127.0.0.1:81")), 7, &counters(1));
        matching.settle();
        assert_eq!(matching.found, []);
    }

    #[test]
    fn the_same_addresses_again_are_another_connection_and_old_ends_are_forgotten() {
        let mut unmatched = Unmatched::default();
        let found = found(&mut unmatched, &[&[CLIENT], &[CLIENT]]);
        assert_eq!(found.iter().filter(|one| one.is_new).count(), 2);
        for end in unmatched.ends.values_mut() {
            end.at -= 2 * REMEMBERED;
        }
        assert!(!unmatched.forget());
        assert!(unmatched.ends.is_empty() && unmatched.by_age.is_empty());
    }

    #[test]
    fn what_a_burst_took_is_given_back() {
        let (listeners, mut unmatched) = (listeners(), Unmatched::default());
        let mut matching =
            Matching { namespace: 1, unmatched: &mut unmatched, listeners: &listeners, found: Vec::new() };
        for port in 1_000..61_000 {
            let client = SocketAddr::new(at("127.0.0.1:1").ip(), port);
            matching.hear((at("127.0.0.1:80"), client), 8, &counters(2));
        }
        matching.settle();
        assert!(unmatched.ends.capacity() >= 60_000 && unmatched.by_age.capacity() >= 60_000);
        for end in unmatched.ends.values_mut() {
            end.at -= 2 * REMEMBERED;
        }
        unmatched.forget();
        assert!(unmatched.ends.capacity() <= 4 * SPARE_ENDS && unmatched.by_age.capacity() <= 4 * SPARE_ENDS);
    }
}
