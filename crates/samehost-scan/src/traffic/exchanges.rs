//! How long exchanges of the local pairs take while traffic is observed, over TCP and over Unix sockets: which connections are
//! measured, to which pair each belongs, and which times are refused.
//!
//! Connections that are opened meanwhile are looked for with each step of the observation, and their holders in `/proc`. One that
//! comes and goes between two steps is left out: to name each as it is opened would take a program more, at each connect of the
//! machine, and its first requests would be missed all the same.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::Instant;

use samehost_bpf::{Mode, PairCounts, Times, Unavailable, Wanted};
use samehost_model::scan::{
    Connection, ExchangeMode, ExchangeParts, ExchangeTimes, Exchanges, NoTime, PairExchanges, Scan, Socket,
    SocketKind, SocketState, Unmeasured,
};

use crate::diag::Diag;
use crate::listing::join::join;
use crate::listing::service::Acceptors;
use crate::namespaces;
use crate::traffic::talk::holders;

/// Pairs that are measured, and connections of each: the maps in the kernel have room for so many.
const MOST_PAIRS: usize = 32;
const MOST_OF_A_PAIR: u32 = 128;
/// Room for pairs that are not there yet. Each takes 8 KiB of memory for each processor.
const SPARE: usize = 8;

/// Limits of what is a time; see [`NoTime`].
const MOST_OVERLAPPING: f64 = 0.20;
const MOST_UNASKED: f64 = 0.05;
const MOST_UNSTAMPED: f64 = 0.20;
const MOST_LOST: f64 = 0.01;
/// Both ends' bytes may differ by this part, and by what is under way as the observation begins and ends.
const MOST_UNSEEN: f64 = 0.01;
const UNDER_WAY: u64 = 1 << 20;
/// Events of an exchange: two sends, two receives, two arrivals.
const EVENTS: u64 = 6;
/// Fewer times have no 99th percentile.
const FEWEST_FOR_P99: u64 = 100;

/// Whether exchanges are timed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    Not,
    /// As exactly as it is cheap.
    Cheaply,
    /// System calls are stamped where nothing else tells when a send begins: each one of the machine costs a little then.
    Exactly,
}

/// What tells one pair from another: the service, the client's program, and whether it is over a Unix socket.
type Key = (usize, String, bool);

/// Exchanges that are being measured.
pub(crate) struct Watched {
    kernel: samehost_bpf::Exchanges,
    begun: Instant,
    acceptors: Acceptors,
    pairs: Vec<Pair>,
    numbers: HashMap<Key, usize>,
    room: usize,
    /// Cookies of the clients' ends that are measured or left out.
    known: HashSet<u64>,
    left_out: u32,
}

struct Pair {
    service: usize,
    client: String,
    kind: SocketKind,
    connections: u32,
}

/// A connection that may be measured.
struct Candidate<'a> {
    service: usize,
    client_name: String,
    kind: SocketKind,
    client: &'a Socket,
    server: &'a Socket,
}

impl Watched {
    /// Begins to measure the connections of a scan with advice.
    ///
    /// # Errors
    /// Why nothing is measured, as it is reported.
    pub(crate) fn open(scan: &Scan, is_exact: bool) -> Result<Self, Exchanges> {
        let candidates = candidates(scan);
        let pairs: HashSet<Key> = candidates.iter().map(Candidate::key).collect();
        let room = (pairs.len() + SPARE).min(MOST_PAIRS);
        let connections = MOST_OF_A_PAIR * room as u32;
        let kernel = samehost_bpf::Exchanges::open(connections, room as u32, is_exact).map_err(unmeasured)?;
        let mut watched = Watched {
            kernel,
            begun: Instant::now(),
            acceptors: Acceptors::of(scan),
            pairs: Vec::new(),
            numbers: HashMap::new(),
            room,
            known: HashSet::new(),
            left_out: 0,
        };
        watched.add(candidates).map_err(|error| unmeasured(Unavailable::Refused(error)))?;
        Ok(watched)
    }

    /// Measures those as well that were opened since the last look, in this program's network namespace.
    pub(crate) fn look(&mut self, scan: &Scan) {
        let Some(own) = namespaces::own_of(scan) else { return };
        let Ok(mut sockets) = Diag::open().and_then(|mut diag| diag.sockets(own)) else { return };
        let connections = join(&mut sockets, &scan.network_namespaces);
        let mut opened = Vec::new();
        for connection in &connections {
            let (client, server) = (&sockets[connection.client], &sockets[connection.server]);
            let Some(service) = self.acceptors.service(server) else { continue };
            if is_stream(client, server) && !self.known.contains(&client.cookie) {
                opened.push((service, connection.kind, client, server));
            }
        }
        if opened.is_empty() {
            return;
        }
        let ends: Vec<(u64, Option<u32>)> =
            opened.iter().map(|(_, _, client, _)| (client.inode, client.uid)).collect();
        let holders = holders(&ends);
        let mut found = Vec::new();
        for (service, kind, client, server) in opened {
            let Some((process, _)) = holders.iter().find(|(_, inodes)| inodes.contains(&client.inode)) else {
                self.known.insert(client.cookie);
                self.left_out += 1;
                continue;
            };
            found.push(Candidate { service, client_name: process.name.clone(), kind, client, server });
        }
        // Those that were named already go on being measured.
        let _ = self.add(found);
    }

    fn add(&mut self, candidates: Vec<Candidate<'_>>) -> io::Result<()> {
        let mut wanted = Vec::new();
        for candidate in candidates {
            if !self.known.insert(candidate.client.cookie) {
                continue;
            }
            let Some(number) = self.number_of(&candidate) else {
                self.left_out += 1;
                continue;
            };
            let pair = &mut self.pairs[number];
            if pair.connections >= MOST_OF_A_PAIR {
                self.left_out += 1;
                continue;
            }
            pair.connections += 1;
            let (client, server) = (candidate.client.cookie, candidate.server.cookie);
            wanted.push(Wanted { client, server, pair: number as u32 });
        }
        self.kernel.name(&wanted)?;
        Ok(())
    }

    /// The number of its pair; `None` where there is no room for another.
    fn number_of(&mut self, candidate: &Candidate<'_>) -> Option<usize> {
        let key = candidate.key();
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = self.pairs.len();
        if number >= self.room {
            return None;
        }
        let (service, client, _) = key.clone();
        self.pairs.push(Pair { service, client, kind: candidate.kind, connections: 0 });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Ends the measurement.
    pub(crate) fn finish(self) -> Exchanges {
        let seconds = self.begun.elapsed().as_secs_f64();
        let mode = match self.kernel.mode() {
            Mode::Entries => ExchangeMode::Entries,
            Mode::SystemCalls => ExchangeMode::SystemCalls,
            Mode::Arrivals => ExchangeMode::Arrivals,
        };
        let refused = self.kernel.refused().map(ToString::to_string);
        let counted = self.kernel.finish();
        let all: u64 = counted.pairs.iter().map(exchanges_of).sum();
        let is_lossy = counted.lost as f64 > MOST_LOST * (EVENTS * all) as f64;
        let mut pairs = Vec::new();
        for (pair, counts) in self.pairs.into_iter().zip(&counted.pairs) {
            pairs.push(seen(pair, counts, seconds, is_lossy));
        }
        pairs.sort_by_key(|pair| pair.kind.is_unix());
        let (lost, left_out) = (counted.lost, self.left_out);
        Exchanges { mode: Some(mode), unmeasured: None, refused, seconds, lost, left_out, pairs }
    }
}

impl Candidate<'_> {
    fn key(&self) -> Key {
        (self.service, self.client_name.clone(), self.kind.is_unix())
    }
}

/// Whether both ends of a connection are of a stream that lives, and have a number in the kernel.
fn is_stream(client: &Socket, server: &Socket) -> bool {
    (client.kind.is_tcp() || client.kind == SocketKind::UnixStream) && is_open(client) && is_open(server)
}

fn is_open(socket: &Socket) -> bool {
    socket.state == SocketState::Established && socket.cookie != 0 && socket.inode != 0
}

/// The connections of a scan: those over TCP that have advice, then those over Unix sockets, of known services first.
fn candidates(scan: &Scan) -> Vec<Candidate<'_>> {
    let mut found = Vec::new();
    for advice in &scan.advice {
        for connection in advice.members.iter().filter_map(|at| scan.connections.get(*at)) {
            found.extend(candidate(scan, connection, &advice.client));
        }
    }
    let mut unix: BTreeMap<(bool, usize), Vec<Candidate<'_>>> = BTreeMap::new();
    for connection in scan.connections.iter().filter(|connection| connection.kind == SocketKind::UnixStream) {
        let Some(holder) = scan.holder(connection.client) else { continue };
        let Some(candidate) = candidate(scan, connection, &holder.name) else { continue };
        let is_unknown = scan.services.get(candidate.service).is_none_or(|service| service.kind.is_none());
        unix.entry((is_unknown, candidate.service)).or_default().push(candidate);
    }
    found.extend(unix.into_values().flatten());
    found
}

fn candidate<'a>(scan: &'a Scan, connection: &Connection, client_name: &str) -> Option<Candidate<'a>> {
    let (client, server) = (scan.sockets.get(connection.client)?, scan.sockets.get(connection.server)?);
    if !is_stream(client, server) {
        return None;
    }
    let (service, client_name) = (connection.service?, client_name.to_owned());
    Some(Candidate { service, client_name, kind: connection.kind, client, server })
}

fn unmeasured(why: Unavailable) -> Exchanges {
    let (unmeasured, error) = match why {
        Unavailable::Types(error) => (Unmeasured::NoTypes, error),
        Unavailable::Rights(error) => (Unmeasured::NoRights, error),
        Unavailable::Kernel(error) => (Unmeasured::OldKernel, error),
        Unavailable::Refused(error) => (Unmeasured::Refused, error),
    };
    Exchanges { unmeasured: Some(unmeasured), refused: Some(error.to_string()), ..Exchanges::default() }
}

fn exchanges_of(counts: &PairCounts) -> u64 {
    counts.exchanges + counts.violations
}

/// A part of a whole; 0 of nothing.
fn part(of: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { of as f64 / whole as f64 }
}

fn seen(pair: Pair, counts: &PairCounts, seconds: f64, is_lossy: bool) -> PairExchanges {
    let exchanges = exchanges_of(counts);
    let (overlapping, unasked) = (part(counts.violations, exchanges), part(counts.unasked, counts.receives));
    let unstamped = part(counts.untimed, counts.exchanges);
    let no_time = if is_unseen(counts) {
        Some(NoTime::Unseen)
    } else if overlapping > MOST_OVERLAPPING {
        Some(NoTime::Overlapping)
    } else if unasked > MOST_UNASKED {
        Some(NoTime::Unasked)
    } else if is_lossy {
        Some(NoTime::Lost)
    } else if unstamped > MOST_UNSTAMPED {
        Some(NoTime::Unstamped)
    } else {
        None
    };
    let is_timed = no_time.is_none();
    PairExchanges {
        service: pair.service,
        client: pair.client,
        kind: pair.kind,
        connections: counts.connections,
        exchanges_per_s: exchanges as f64 / seconds,
        bytes_out_per_s: counts.bytes_out as f64 / seconds,
        bytes_back_per_s: counts.bytes_back as f64 / seconds,
        overlapping,
        unasked,
        unstamped,
        no_time,
        first: times(&counts.first).filter(|_| is_timed),
        last: times(&counts.last).filter(|_| is_timed),
        parts: parts(counts).filter(|_| is_timed),
    }
}

/// Whether much was sent that nobody was seen to read: it was spliced.
fn is_unseen(counts: &PairCounts) -> bool {
    let ways = [(counts.bytes_out, counts.bytes_taken), (counts.bytes_back, counts.bytes_received)];
    ways.into_iter().any(|(sent, read)| {
        let unread = sent.saturating_sub(read);
        let is_all_of_it = read == 0 && sent > 0 && counts.violations > 0;
        is_all_of_it || unread > UNDER_WAY && part(unread, sent) > MOST_UNSEEN
    })
}

fn times(times: &Times) -> Option<ExchangeTimes> {
    let has_p99 = times.count >= FEWEST_FOR_P99;
    Some(ExchangeTimes {
        count: times.count,
        mean_us: times.mean_us()?,
        p50_us: times.quantile_us(0.5)?,
        p99_us: times.quantile_us(0.99).filter(|_| has_p99),
    })
}

fn parts(counts: &PairCounts) -> Option<ExchangeParts> {
    if counts.parted == 0 {
        return None;
    }
    let [way_there_us, waiting_us, work_us, way_back_us, client_us] =
        counts.parts.map(|nanoseconds| nanoseconds as f64 / counts.parted as f64 / 1000.0);
    Some(ExchangeParts { count: counts.parted, way_there_us, waiting_us, work_us, way_back_us, client_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Pair {
        Pair { service: 0, client: "worker".to_owned(), kind: SocketKind::Tcp, connections: 1 }
    }

    #[test]
    fn a_time_is_refused_where_it_would_not_be_one() {
        let mut good = PairCounts { connections: 1, exchanges: 100, receives: 100, ..PairCounts::default() };
        (good.bytes_out, good.bytes_taken) = (1000, 1000);
        let reason = |counts: PairCounts| seen(pair(), &counts, 1.0, false).no_time;
        assert_eq!(reason(good.clone()), None);
        assert_eq!(reason(PairCounts { violations: 30, ..good.clone() }), Some(NoTime::Overlapping));
        assert_eq!(reason(PairCounts { violations: 20, ..good.clone() }), None, "a sixth");
        assert_eq!(reason(PairCounts { unasked: 6, ..good.clone() }), Some(NoTime::Unasked));
        assert_eq!(reason(PairCounts { untimed: 30, ..good.clone() }), Some(NoTime::Unstamped));
        assert_eq!(seen(pair(), &good, 1.0, true).no_time, Some(NoTime::Lost));
        let spliced = PairCounts { violations: 50, exchanges: 50, bytes_taken: 0, ..good.clone() };
        assert_eq!(reason(spliced), Some(NoTime::Unseen));
        let much = PairCounts { bytes_out: 100 << 20, bytes_taken: 90 << 20, ..good };
        assert_eq!(reason(much), Some(NoTime::Unseen));
    }

    #[test]
    fn parts_are_means() {
        let counts =
            PairCounts { parted: 4, parts: [4000, 8000, 40_000, 4000, 12_000], ..PairCounts::default() };
        let parts = parts(&counts).unwrap();
        assert_eq!((parts.work_us, parts.hop_us(), parts.client_us), (10.0, 2.0, 3.0));
        assert_eq!(super::parts(&PairCounts::default()), None);
    }
}
