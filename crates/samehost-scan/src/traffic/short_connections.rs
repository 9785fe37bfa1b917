//! Connections that open and close between two snapshots: how many there are, and whose they are.
//!
//! The kernel announces both ends of each when they close (sock_diag destroy events), with what each sent and received; of one that
//! is reset only one with its addresses (`matching`). How many began is the kernel's second count, against which they are held: where
//! more began than ended or are open, nothing is said of what is not worth it. Those that were seen while they were open are booked on whoever opened them; the others that look like them, by their round trips and
//! bytes, in the same proportions, where enough were seen for that. What is left is nobody's: it is never booked on a program that
//! happens to be connected.
//!
//! A share of all that were seen would not do. A look sees a connection with a probability that grows with how long it is
//! open: a page of 30 ms was seen a hundred times as often as a PING of 0.3 ms, and got its traffic. Connections that look
//! alike are open for about as long.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use samehost_model::scan::{NetworkNamespace, Process, ReadBy};

use crate::advice::are_of_one_program;
use crate::diag::{Counters, Endings};
use crate::listing::join::Listeners;
use crate::namespaces;

mod matching;

use matching::{Matching, Unmatched};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Opener {
    pub(crate) uid: Option<u32>,
    /// Place of the program in [`Seen::senders`]; `None` where its process had closed the connection when it was looked for.
    pub(crate) sender: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// A process of each program that opens short connections.
    pub(crate) senders: Vec<Process>,
    /// How many of its connections were seen, by who opened them.
    pub(crate) openers: BTreeMap<Opener, u32>,
}

impl Seen {
    /// Place of the program that a process is of; it is added where it was not seen before.
    pub(crate) fn sender(&mut self, process: Process) -> usize {
        let known = self.senders.iter().position(|sender| are_of_one_program(sender, &process));
        known.unwrap_or_else(|| {
            self.senders.push(process);
            self.senders.len() - 1
        })
    }

    pub(crate) fn count(&self) -> u32 {
        self.openers.values().sum()
    }

    /// The program of an opener. Of a socket whose holder was not found, the only program of its user that was seen with
    /// this service.
    pub(crate) fn program(&self, opener: Opener) -> Option<usize> {
        opener.sender.or(self.program_of_user(opener.uid))
    }

    /// The only program of a user that was seen with this service; `None` where none was, or several.
    pub(crate) fn program_of_user(&self, uid: Option<u32>) -> Option<usize> {
        let mut of_user: Option<usize> = None;
        for known in self.openers.keys() {
            if known.uid != uid || known.sender.is_none() {
                continue;
            }
            if of_user.is_some() && of_user != known.sender {
                return None;
            }
            of_user = known.sender;
        }
        of_user
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) connections: u64,
    pub(crate) round_trips: u64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
pub(crate) struct Ended {
    spaces: Vec<Space>,
    /// What was heard since the last [`Ended::take`].
    pub(crate) sums: Sums,
    /// At least one namespace sends no events.
    no_events: bool,
    /// Events were lost: the kernel's buffer was full, or too many ends were unmatched.
    missed: bool,
}

/// A service, and the address of its own that connections came to: two pools of one PHP-FPM are two doors, and what came to one
/// was booked on the rows of both.
pub(crate) type Door = (usize, SocketAddr);

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

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) all: Sum,
    /// Those that were seen while they were open, by who opened them.
    pub(crate) seen: BTreeMap<Opener, Sum>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) namespace: u64,
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// The kernel's name of the client's end.
    pub(crate) cookie: u64,
}

pub(crate) struct Heard {
    pub(crate) sums: Sums,
    /// Whether every namespace sends events, and none was lost.
    pub(crate) is_all: bool,
    /// The second count, by namespace, where the kernel has one.
    pub(crate) begun: HashMap<u64, Begun>,
}

/// Connections of a namespace that began at its listeners, by the kernel's own counter, and those that were announced to have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) opened: u64,
    pub(crate) ended: u64,
}

#[derive(Default)]
struct Passive {
    /// The kernel's counter at the last look; `None` where it cannot be read.
    before: Option<u64>,
    ended: u64,
}

/// `PassiveOpens` of the calling thread's network namespace: connections that listeners got, of both families, whoever accepted
/// them. It counts what a filter of ours, a full buffer or a reset could hide from the announcements of ends.
fn passive_opens() -> Option<u64> {
    passive_opens_in(&std::fs::read_to_string("/proc/thread-self/net/snmp").ok()?)
}

/// A line of names, and one of numbers.
fn passive_opens_in(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "PassiveOpens")?;
    numbers.split(' ').nth(at)?.parse().ok()
}

struct Space {
    inode: u64,
    endings: Option<Endings>,
    unmatched: Unmatched,
    passive: Passive,
}

impl Ended {
    /// Subscribes in every namespace that allows it.
    pub(crate) fn open(namespaces: &[NetworkNamespace]) -> Self {
        let mut ended = Ended::default();
        for space in namespaces.iter().filter(|space| space.read_by == ReadBy::SockDiag) {
            let opened = match namespaces::within(space, || Ok((Endings::open(), passive_opens()))) {
                Some(Ok(opened)) => opened,
                Some(Err(_)) => {
                    ended.no_events = true;
                    continue;
                }
                None => continue,
            };
            let (endings, passive) = opened;
            ended.no_events |= endings.is_err();
            ended.spaces.push(Space {
                inode: space.inode,
                endings: endings.ok(),
                unmatched: Unmatched::default(),
                passive: Passive { before: passive, ..Passive::default() },
            });
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
            let Some(endings) = &mut space.endings else { continue };
            let mut matching = Matching {
                namespace: space.inode,
                unmatched: &mut space.unmatched,
                listeners,
                found: Vec::new(),
            };
            let read = endings.hear(|one| {
                let (Some(local), Some(peer), Some(counters)) =
                    (one.local.inet(), one.peer.inet(), one.counters)
                else {
                    return;
                };
                if !before(space.inode, local, peer) {
                    matching.hear((local, peer), one.cookie, &counters);
                }
            });
            matching.settle();
            let found = matching.found;
            for end in &found {
                space.passive.ended += u64::from(end.is_new);
                let Some(server) = end.server else { continue };
                let tallies = self.sums.entry((space.inode, server)).or_default();
                let tally = tallies.entry(Likeness::of(&end.sum)).or_default();
                if end.is_new {
                    tally.all.merge(end.sum);
                }
                let Some(cookie) = end.cookie else { continue };
                let closed = Closed { namespace: space.inode, client: end.client, server, cookie };
                if let Some(opener) = opener(closed)
                    && tally.all.connections > 0
                {
                    tally.seen.entry(opener).or_default().merge(end.sum);
                }
            }
            self.missed |= space.unmatched.forget() || read.is_err();
        }
    }

    /// Takes what was heard since the last call.
    pub(crate) fn take(&mut self, namespaces: &[NetworkNamespace]) -> Heard {
        let missed = std::mem::take(&mut self.missed);
        let mut begun = HashMap::new();
        for space in &mut self.spaces {
            let here = namespaces.iter().find(|here| here.inode == space.inode);
            let now = here.and_then(|here| namespaces::within(here, || Ok(passive_opens()))?.ok()?);
            if let (Some(before), Some(now)) = (space.passive.before, now) {
                let opened = now.saturating_sub(before);
                begun.insert(space.inode, Begun { opened, ended: space.passive.ended });
            }
            space.passive = Passive { before: now, ended: 0 };
        }
        Heard { sums: std::mem::take(&mut self.sums), is_all: !missed && !self.no_events, begun }
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

/// So many alike that were seen tell the shares of several programs.
const FOR_SHARES: u64 = 10;
/// So many that were seen, all of one program, tell that it opens the others that look like them.
const FOR_ONE: u64 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Part {
    pub(crate) connections: f64,
    pub(crate) round_trips: f64,
    pub(crate) bytes: f64,
}

impl Part {
    fn add(&mut self, sum: Sum, share: f64) {
        self.connections += share * sum.connections as f64;
        self.round_trips += share * sum.round_trips as f64;
        self.bytes += share * sum.bytes as f64;
    }

    pub(crate) fn add_part(&mut self, other: Part, times: f64) {
        self.connections += times * other.connections;
        self.round_trips += times * other.round_trips;
        self.bytes += times * other.bytes;
    }
}

/// The parts of the programs that were seen, in their order, and what is nobody's.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) of_senders: Vec<Part>,
    pub(crate) nobodys: Part,
}

/// Books the connections to a service, kind by kind of those that look alike. Each kind has three ways: with
/// [`FOR_SHARES`] seen, or [`FOR_ONE`] all of one program, the rest goes to the programs as those that were seen did; with fewer, the
/// rest goes to the only program that was seen with the service at all; else it is nobody's.
fn shares<'a>(seen: &Seen, tallies: impl Iterator<Item = &'a Tally>) -> Shares {
    let mut shares =
        Shares { of_senders: vec![Part::default(); seen.senders.len()], nobodys: Part::default() };
    let only = only_program(seen);
    for tally in tallies {
        let mut numbers = vec![0; seen.senders.len()];
        let mut known = Sum::default();
        let mut number = 0;
        for (opener, sum) in &tally.seen {
            number += sum.connections;
            let Some(program) = seen.program(*opener) else { continue };
            numbers[program] += sum.connections;
            shares.of_senders[program].add(*sum, 1.0);
            known.merge(*sum);
        }
        let rest = tally.all.without(known);
        let is_one = numbers.contains(&number);
        if number >= FOR_SHARES || is_one && number >= FOR_ONE {
            let mut left = 1.0;
            for (program, one) in numbers.iter().enumerate() {
                let share = *one as f64 / number as f64;
                shares.of_senders[program].add(rest, share);
                left -= share;
            }
            shares.nobodys.add(rest, left.max(0.0));
        } else if let Some(only) = only
            && number > 0
        {
            shares.of_senders[only].add(rest, 1.0);
        } else {
            shares.nobodys.add(rest, 1.0);
        }
    }
    shares
}

/// The only program that was seen to open connections to a service, where enough were seen to say so.
fn only_program(seen: &Seen) -> Option<usize> {
    if u64::from(seen.count()) < FOR_ONE {
        return None;
    }
    let mut programs = seen.openers.keys().map(|opener| seen.program(*opener));
    let first = programs.next()?;
    if programs.all(|program| program == first) { first } else { None }
}

#[derive(Default)]
pub(crate) struct Short {
    pub(crate) per_s: f64,
    /// What the kernel announced of them; empty where it announces nothing.
    pub(crate) tallies: Vec<Tally>,
}

impl Short {
    pub(crate) fn counted(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.all.connections).sum()
    }

    /// Whose they are. What the kernel did not announce is taken to be like the rest; where it announces none, all are the only
    /// program's that was seen, or nobody's.
    pub(crate) fn shares(&self, seen: &Seen, seconds: f64) -> Shares {
        let mut shares = shares(seen, self.tallies.iter());
        let counted = self.counted();
        let number = self.per_s * seconds;
        if counted == 0 {
            let all = Part { connections: number, ..Part::default() };
            match only_program(seen) {
                Some(only) => shares.of_senders[only] = all,
                None => shares.nobodys = all,
            }
            return shares;
        }
        // Each part is added to itself as often as the connections that were not announced are more than those that were.
        let times = number / counted as f64 - 1.0;
        for part in shares.of_senders.iter_mut().chain([&mut shares.nobodys]) {
            part.add_part(*part, times);
        }
        shares
    }
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
        sum.merge(Sum::of(&counters));
        sum.merge(Sum::of(&counters));
        assert_eq!(sum, Sum { connections: 2, round_trips: 6, bytes: 280 });
    }

    #[test]
    fn missed_events_are_reported_once_and_missing_ones_always() {
        let mut ended = Ended { missed: true, ..Ended::default() };
        assert_eq!((ended.take(&[]).is_all, ended.take(&[]).is_all), (false, true));
        let mut ended = Ended { no_events: true, ..Ended::default() };
        assert_eq!((ended.take(&[]).is_all, ended.take(&[]).is_all), (false, false));
    }

    #[test]
    fn the_kernels_counter_is_found_by_its_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm ActiveOpens PassiveOpens AttemptFails\nTcp: 1 20 30 4\n";
        assert_eq!(passive_opens_in(snmp), Some(30));
        assert_eq!([passive_opens_in(""), passive_opens_in("Tcp: PassiveOpens\n")], [None, None]);
        assert!(passive_opens().is_some(), "this kernel has it");
    }

    fn sum(connections: u64, round_trips: u64) -> Sum {
        Sum { connections, round_trips, bytes: 100 * round_trips }
    }

    fn opener(sender: usize) -> Opener {
        Opener { uid: Some(sender as u32), sender: Some(sender) }
    }

    fn seen(openers: &[(Opener, u32)]) -> Seen {
        let senders = [1, 2].map(|pid| Process { pid, ..Process::default() });
        Seen { senders: senders.into(), openers: openers.iter().copied().collect() }
    }

    fn tally(all: Sum, seen: &[(Opener, Sum)]) -> Tally {
        Tally { all, seen: seen.iter().copied().collect() }
    }

    #[test]
    fn connections_that_look_alike_are_of_those_who_were_seen_to_open_such() {
        // Pages were seen often and pings seldom; each has what looks like its own.
        let pages = tally(sum(100, 5600), &[(opener(0), sum(60, 3360))]);
        let pings = tally(sum(1000, 1000), &[(opener(1), sum(4, 4))]);
        let found = shares(&seen(&[(opener(0), 60), (opener(1), 4)]), [&pages, &pings].into_iter());
        assert_eq!(
            found.of_senders.iter().map(|part| part.round_trips).collect::<Vec<_>>(),
            [5600.0, 1000.0]
        );
        assert_eq!(found.nobodys, Part::default());
    }

    #[test]
    fn what_looks_like_nothing_that_was_seen_is_nobodys() {
        let all = seen(&[(opener(0), 60), (opener(1), 4)]);
        let found = shares(&all, [&tally(sum(50, 50), &[])].into_iter());
        assert_eq!((found.nobodys.connections, found.of_senders[0].connections), (50.0, 0.0));
        // Two that were seen are booked; what looks like them is not yet.
        let found = shares(&all, [&tally(sum(50, 50), &[(opener(1), sum(2, 2))])].into_iter());
        assert_eq!((found.nobodys.connections, found.of_senders[1].connections), (48.0, 2.0));
        // Where one program alone was seen with the service, one of them tells; and none tells nothing.
        let one = tally(sum(50, 50), &[(opener(0), sum(1, 1))]);
        let found = shares(&seen(&[(opener(0), 60)]), [&one, &tally(sum(20, 900), &[])].into_iter());
        assert_eq!((found.of_senders[0].connections, found.nobodys.connections), (50.0, 20.0));
    }

    #[test]
    fn a_socket_whose_holder_was_not_found_is_of_the_only_program_of_its_user() {
        let unheld = Opener { uid: Some(0), sender: None };
        let of_another = Opener { uid: Some(7), sender: None };
        let known = seen(&[(opener(0), 2), (unheld, 5), (of_another, 1)]);
        assert_eq!((known.program(unheld), known.program(of_another)), (Some(0), None));
        let both = Opener { uid: Some(0), sender: Some(1) };
        assert_eq!(
            seen(&[(opener(0), 2), (both, 2), (unheld, 5)]).program(unheld),
            None,
            "two have that user"
        );
    }
}
