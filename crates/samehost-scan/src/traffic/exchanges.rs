//! How long exchanges of the local pairs take while traffic is observed, over TCP and over Unix sockets: which connections are
//! measured, to which pair each belongs, and which times are refused.
//!
//! Connections that are opened meanwhile are looked for with each step of the observation, and their holders in `/proc`. One that
//! comes and goes between two steps is left out: to name each as it is opened would take a program more, at each connect of the
//! machine, and its first requests would be missed all the same.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::Instant;

use samehost_bpf::{Counted, Mode, PairCounts, Times, Unavailable, Wanted};
use samehost_model::scan::{
    Connection, EXCHANGE_BOUNDS_US, ExchangeMode, ExchangeParts, ExchangeTimes, Exchanges, MOST_LOST,
    MOST_OVERLAPPING, MOST_UNASKED, MOST_UNSTAMPED, NoTime, PairExchanges, Scan, Socket, SocketKind,
    SocketState, Unmeasured,
};

use rustix::io::Errno;
use samehost_system::{Asked, Refusal};

use super::catch::holders;
use crate::advice::endpoint;
use crate::diag::Diag;
use crate::listing::join::join;
use crate::listing::service::Acceptors;
use crate::namespaces;

/// Pairs that are measured, and connections of each: the maps in the kernel have room for so many.
const MOST_PAIRS: usize = 32;
const MOST_OF_A_PAIR: u32 = 128;
/// Room for pairs that are not there yet. Each takes 8 KiB of memory for each processor.
const SPARE: usize = 8;

/// Both ends' bytes may differ by this part, and by what is under way as the observation begins and ends.
const MOST_UNSEEN: f64 = 0.01;
const UNDER_WAY: u64 = 1 << 20;
/// Pieces read for each time that a client sends, from which on a connection is a stream and has no time.
/// It must also send at most [`MOST_SENT_OF_A_STREAM_PER_S`] times a second. What a replica acknowledges
/// asks for nothing, and the next piece of the stream would be taken for a reply of a millisecond. A rare
/// query with a reply of so many pieces has no time either; only its payload would tell, and payload is
/// never read (docs/method.md §14).
const PIECES_OF_A_STREAM: u64 = 100;
const MOST_SENT_OF_A_STREAM_PER_S: f64 = 2.0;
/// Events of an exchange: two sends, two receives, two arrivals.
const EVENTS: u64 = 6;
const FEWEST_FOR_P99: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    Not,
    /// As exactly as it is cheap.
    Cheaply,
    /// System calls are stamped where nothing else tells when a send begins: each one of the machine costs a little then.
    Exactly,
}

/// What tells one pair from another. `top` scans again and again, and a service has another position in each scan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    service: Served,
    client: String,
    /// As [`PairExchanges::address`].
    address: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Served {
    name: String,
    pid: Option<u32>,
    network_namespace: u64,
    /// Of one whose process is not seen: its first address.
    address: Option<String>,
}

pub(crate) struct Watched {
    kernel: samehost_bpf::Exchanges,
    begun: Instant,
    pairs: Vec<Pair>,
    room: usize,
    /// Cookies of the clients' ends that are measured or left out.
    known: HashSet<u64>,
    left_out: u32,
    reported: Counted,
}

struct Pair {
    key: Key,
    kind: SocketKind,
    connections: u32,
}

struct Candidate<'a> {
    key: Key,
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
        let pairs: HashSet<&Key> = candidates.iter().map(|one| &one.key).collect();
        let room = (pairs.len() + SPARE).min(MOST_PAIRS);
        let connections = MOST_OF_A_PAIR * room as u32;
        let kernel = samehost_bpf::Exchanges::open(connections, room as u32, is_exact).map_err(unmeasured)?;
        let mut watched = Watched {
            kernel,
            begun: Instant::now(),
            pairs: Vec::new(),
            room,
            known: HashSet::new(),
            left_out: 0,
            reported: Counted::default(),
        };
        watched.add(candidates).map_err(|error| unmeasured(Unavailable::Refused(error)))?;
        Ok(watched)
    }

    /// Measures those as well that were opened since the last look, in this program's network namespace.
    pub(crate) fn look(&mut self, scan: &Scan, acceptors: &Acceptors) {
        let Some(own) = namespaces::own_of(scan) else { return };
        let Ok(mut sockets) = Diag::open().and_then(|mut diag| diag.sockets(own)) else { return };
        let connections = join(&mut sockets, &scan.network_namespaces);
        let mut opened = Vec::new();
        for connection in &connections {
            let (client, server) = (&sockets[connection.client], &sockets[connection.server]);
            let Some(service) = acceptors.service(server) else { continue };
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
            found.extend(Candidate::new(scan, service, &process.name, kind, [client, server]));
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
        let key = &candidate.key;
        let known = self.pairs.iter().position(|pair| pair.key == *key);
        if known.is_some() || self.pairs.len() >= self.room {
            return known;
        }
        self.pairs.push(Pair { key: key.clone(), kind: candidate.kind, connections: 0 });
        Some(self.pairs.len() - 1)
    }

    /// Ends the measurement. Services are those of this scan.
    pub(crate) fn finish(mut self, scan: &Scan) -> Exchanges {
        let counted = self.kernel.end();
        self.report(&counted, scan)
    }

    /// What came since the last call or since it was opened, by the services of this scan, whose connections are measured as well
    /// from now on.
    pub(crate) fn since_last(&mut self, scan: &Scan) -> Exchanges {
        let counted = self.kernel.so_far();
        let exchanges = self.report(&counted.since(&self.reported), scan);
        (self.reported, self.begun) = (counted, Instant::now());
        // Those that were named already go on being measured.
        let _ = self.add(candidates(scan));
        exchanges
    }

    /// Whether connections of this scan found no room that there would be if it began anew: what a connection took stays taken
    /// when it ends.
    pub(crate) fn is_used_up(&self, scan: &Scan) -> bool {
        if self.left_out == 0 {
            return false;
        }
        let open = candidates(scan).iter().filter(|one| self.known.contains(&one.client.cookie)).count();
        open * 2 <= self.known.len() || self.pairs.len() >= self.room && self.room < MOST_PAIRS
    }

    fn report(&self, counted: &Counted, scan: &Scan) -> Exchanges {
        let seconds = self.begun.elapsed().as_secs_f64();
        let is_lossy = are_too_many_lost(counted);
        let mut services: HashMap<Served, usize> = HashMap::new();
        for at in 0..scan.services.len() {
            if let Some(served) = Served::of(scan, at) {
                services.entry(served).or_insert(at);
            }
        }
        let mut pairs = Vec::new();
        for (pair, counts) in self.pairs.iter().zip(&counted.pairs) {
            let Some(service) = services.get(&pair.key.service) else { continue };
            pairs.push(seen(pair, *service, counts, seconds, is_lossy));
        }
        pairs.sort_by_key(|pair| pair.kind.is_unix());
        Exchanges {
            mode: Some(mode_of(&self.kernel)),
            refused: self.kernel.refused().map(ToString::to_string),
            left_out: self.left_out,
            seconds,
            lost: counted.lost,
            pairs,
            ..Exchanges::default()
        }
    }
}

impl Served {
    fn of(scan: &Scan, service: usize) -> Option<Self> {
        let service = scan.services.get(service)?;
        let address = match (service.pid, scan.listeners(service).next()) {
            (None, Some(first)) => Some(first.local.to_string()),
            _ => None,
        };
        Some(Served {
            name: service.name.clone(),
            pid: service.pid,
            network_namespace: service.network_namespace,
            address,
        })
    }
}

impl<'a> Candidate<'a> {
    fn new(
        scan: &Scan,
        service: usize,
        client_name: &str,
        kind: SocketKind,
        [client, server]: [&'a Socket; 2],
    ) -> Option<Self> {
        let address = match server.local.inet() {
            Some(address) => endpoint(address),
            None => server.local.to_string(),
        };
        let key = Key { service: Served::of(scan, service)?, client: client_name.to_owned(), address };
        Some(Candidate { key, kind, client, server })
    }
}

/// Whether both ends of a connection are of a stream that lives, and have a number in the kernel.
pub(crate) fn is_stream(client: &Socket, server: &Socket) -> bool {
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
        let (Some(at), Some(service)) = (connection.service, scan.service_of(connection)) else { continue };
        unix.entry((service.kind.is_none(), at)).or_default().push(candidate);
    }
    found.extend(unix.into_values().flatten());
    found
}

fn candidate<'a>(scan: &'a Scan, connection: &Connection, client_name: &str) -> Option<Candidate<'a>> {
    let (client, server) = scan.ends(connection)?;
    if !is_stream(client, server) {
        return None;
    }
    Candidate::new(scan, connection.service?, client_name, connection.kind, [client, server])
}

pub(crate) fn mode_of(kernel: &samehost_bpf::Exchanges) -> ExchangeMode {
    match kernel.mode() {
        Mode::Entries => ExchangeMode::Entries,
        Mode::Functions => ExchangeMode::Functions,
        Mode::FunctionsByCookie => ExchangeMode::FunctionsByCookie,
        Mode::SystemCalls => ExchangeMode::SystemCalls,
        Mode::Arrivals => ExchangeMode::Arrivals,
    }
}

/// What is missing, and what the kernel said of it or why it refused bpf(2).
pub(crate) fn missing(why: Unavailable) -> (Unmeasured, String) {
    if let Some(refusal) = refusal_of_bpf(&why) {
        let missing = if refusal.is_of_rights() { Unmeasured::NoRights } else { Unmeasured::Forbidden };
        return (missing, refusal.to_string());
    }
    match why {
        Unavailable::Types(error) => (Unmeasured::NoTypes, error.to_string()),
        Unavailable::Rights(error) => (Unmeasured::NoRights, error.to_string()),
        Unavailable::Kernel(error) => (Unmeasured::OldKernel, error.to_string()),
        Unavailable::Refused(error) => (Unmeasured::Refused, error.to_string()),
    }
}

/// Why bpf(2) itself was refused; `None` where it was the kernel's verifier that refused a program, or something is missing.
#[must_use]
pub fn refusal_of_bpf(why: &Unavailable) -> Option<Refusal> {
    let (Unavailable::Rights(error)
    | Unavailable::Kernel(error)
    | Unavailable::Refused(error)
    | Unavailable::Types(error)) = why;
    let is_missing = Errno::from_io_error(error) == Some(Errno::NOSYS);
    if is_missing || matches!(why, Unavailable::Rights(_)) {
        return Refusal::of_error(Asked::Bpf, error);
    }
    None
}

fn unmeasured(why: Unavailable) -> Exchanges {
    let (unmeasured, refused) = missing(why);
    Exchanges { unmeasured: Some(unmeasured), refused: Some(refused), ..Exchanges::default() }
}

/// A part of a whole; 0 of nothing.
fn part(of: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { of as f64 / whole as f64 }
}

#[must_use]
pub fn are_too_many_lost(counted: &Counted) -> bool {
    let all: u64 = counted.pairs.iter().map(PairCounts::all_exchanges).sum();
    counted.lost as f64 > MOST_LOST * (EVENTS * all) as f64
}

/// Why exchanges of so many seconds have no time; `None` where they have.
#[must_use]
pub fn no_time(counts: &PairCounts, seconds: f64, is_lossy: bool) -> Option<NoTime> {
    if is_unseen(counts) {
        return Some(NoTime::Unseen);
    }
    // Where both are over, the one that is further beyond: the few things that a replica sends overlap with what streams to it.
    let overlapping = part(counts.violations, counts.all_exchanges()) / MOST_OVERLAPPING;
    let unasked = part(counts.unasked, counts.receives) / MOST_UNASKED;
    if overlapping > 1.0 && overlapping >= unasked {
        Some(NoTime::Overlapping)
    } else if unasked > 1.0 {
        Some(NoTime::Unasked)
    } else if is_stream_of_pieces(counts, seconds) {
        Some(NoTime::Streaming)
    } else if is_lossy {
        Some(NoTime::Lost)
    } else if part(counts.untimed, counts.exchanges) > MOST_UNSTAMPED {
        Some(NoTime::Unstamped)
    } else {
        None
    }
}

fn seen(pair: &Pair, service: usize, counts: &PairCounts, seconds: f64, is_lossy: bool) -> PairExchanges {
    let exchanges = counts.all_exchanges();
    let (overlapping, unasked) = (part(counts.violations, exchanges), part(counts.unasked, counts.receives));
    let unstamped = part(counts.untimed, counts.exchanges);
    let no_time = no_time(counts, seconds, is_lossy);
    let is_timed = no_time.is_none();
    PairExchanges {
        service,
        client: pair.key.client.clone(),
        kind: pair.kind,
        address: pair.key.address.clone(),
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

fn is_stream_of_pieces(counts: &PairCounts, seconds: f64) -> bool {
    let sent = counts.all_exchanges();
    let most = MOST_SENT_OF_A_STREAM_PER_S * seconds * f64::from(counts.connections.max(1));
    counts.receives >= PIECES_OF_A_STREAM * sent.max(1) && sent as f64 <= most
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
        at_most: EXCHANGE_BOUNDS_US.map(|bound| times.at_most_us(bound)),
    })
}

/// The means of the parts of exchanges; `None` where they are not known.
#[must_use]
pub fn parts(counts: &PairCounts) -> Option<ExchangeParts> {
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
        let service = Served { name: "Redis".to_owned(), pid: Some(7), network_namespace: 1, address: None };
        let key = Key { service, client: "worker".to_owned(), address: "tcp:127.0.0.1:6379".to_owned() };
        Pair { key, kind: SocketKind::Tcp, connections: 1 }
    }

    #[test]
    fn a_time_is_refused_where_it_would_not_be_one() {
        fn reason(counts: &PairCounts) -> Option<NoTime> {
            seen(&pair(), 0, counts, 1.0, false).no_time
        }
        let mut good = PairCounts { connections: 1, exchanges: 100, receives: 100, ..PairCounts::default() };
        (good.bytes_out, good.bytes_taken) = (1000, 1000);
        assert_eq!(reason(&good), None);
        assert_eq!(reason(&PairCounts { violations: 30, ..good.clone() }), Some(NoTime::Overlapping));
        assert_eq!(reason(&PairCounts { violations: 20, ..good.clone() }), None, "a sixth");
        assert_eq!(reason(&PairCounts { unasked: 6, ..good.clone() }), Some(NoTime::Unasked));
        assert_eq!(
            reason(&PairCounts { violations: 50, unasked: 60, ..good.clone() }),
            Some(NoTime::Unasked)
        );
        assert_eq!(
            reason(&PairCounts { violations: 90, unasked: 6, ..good.clone() }),
            Some(NoTime::Overlapping)
        );
        assert_eq!(reason(&PairCounts { untimed: 30, ..good.clone() }), Some(NoTime::Unstamped));
        assert_eq!(seen(&pair(), 0, &good, 1.0, true).no_time, Some(NoTime::Lost));
        let followed = PairCounts { exchanges: 2, receives: 900, ..good.clone() };
        assert_eq!(reason(&followed), Some(NoTime::Streaming), "a replica");
        assert_eq!(
            reason(&PairCounts { exchanges: 9, ..followed }),
            None,
            "large replies, one after the other"
        );
        let spliced = PairCounts { violations: 50, exchanges: 50, bytes_taken: 0, ..good.clone() };
        assert_eq!(reason(&spliced), Some(NoTime::Unseen));
        let much = PairCounts { bytes_out: 100 << 20, bytes_taken: 90 << 20, ..good };
        assert_eq!(reason(&much), Some(NoTime::Unseen));
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
