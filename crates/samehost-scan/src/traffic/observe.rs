//! Measures traffic from the kernel's counters of every TCP connection at two moments. Captures no packets.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use samehost_model::scan::{Advice, Connection, Exchanges, ReadBy, Scan, ShortTraffic, Socket, Traffic};
use samehost_stats::distributions;

use crate::advice::advise;
use crate::advice::findings::slow_accepts;
use crate::diag::{Activity, Counters, Diag};
use crate::listing::collect::collect;
use crate::listing::join::Listeners;
use crate::listing::service::Acceptors;
use crate::proc::status::read_stat;
use crate::traffic::catch::{Catcher, Caught, UnixCatcher};
use crate::traffic::exchanges::{Timed, Watched};
use crate::traffic::held_back::HeldBack;
use crate::traffic::short_connections::{Door, Ended, Heard, Part, Seen, Shares, Short, Sums};
use crate::{advice, namespaces};

/// How long the kernel keeps a closed connection in TIME_WAIT (`TCP_TIMEWAIT_LEN`), in milliseconds.
const TIME_WAIT_MS: f64 = 60_000.0;
/// Most steps of an observation, each of [`SHORTEST_STEP`] at least; their scatter is the error of the
/// rate. A prediction is a rate times a cost, and the rate is as certain as its steps are alike. Its
/// ranges are wider by what their scatter says (a 95 % interval by Student's t, and never less than 1.96
/// ÷ √requests). What the rest of the day is like no observation of seconds can know
/// (docs/method.md §14).
const STEPS: u32 = 8;
const SHORTEST_STEP: Duration = Duration::from_millis(400);
/// A step, and a rest between two looks, is at least so many times as long as what it does takes.
const MOST_OF_A_STEP: u32 = 4;
/// Fewest steps whose scatter can be estimated.
const FEWEST_STEPS: usize = 3;
/// Interval at which a request to stop is checked.
const NAP: Duration = Duration::from_millis(50);

/// Network namespace, own address and peer's address of an end.
pub(crate) type Key = (u64, SocketAddr, SocketAddr);

struct Look {
    at: Instant,
    counters: HashMap<Key, Counters>,
    /// CPU time of the processes at either end of connections with advice, in seconds.
    cpu_s: HashMap<u32, f64>,
}

/// Measures traffic from scan to scan, as differences between successive snapshots.
pub struct Observer {
    before: Option<(Look, Ended)>,
    timed: Timed,
    /// Exchanges that are measured, or why none are.
    watched: Option<Result<Watched, Exchanges>>,
}

impl Observer {
    #[must_use]
    pub fn new(timed: Timed) -> Self {
        Observer { before: None, timed, watched: None }
    }

    /// Fills in the traffic of each piece of advice since the previous snapshot, and takes a new one. The
    /// first call has nothing to compare with and fills in nothing.
    pub fn measure(&mut self, scan: &mut Scan) {
        let after = look(scan);
        let ended = match self.before.take() {
            Some((before, mut ended)) => {
                let acceptors = Acceptors::of(scan);
                before.count_closed(&mut ended, &acceptors.tcp, None);
                fill(scan, &before, &after, ended.take(&scan.network_namespaces), &Caught::new(), &acceptors);
                ended
            }
            None => Ended::default(),
        };
        let covers_all = ended.covers(&scan.network_namespaces);
        let ended = if covers_all { ended } else { Ended::open(&scan.network_namespaces) };
        self.before = Some((after, ended));
        if self.timed != Timed::Not {
            scan.exchanges = Some(self.exchanges(scan));
        }
    }

    fn exchanges(&mut self, scan: &Scan) -> Exchanges {
        let is_exact = self.timed == Timed::Exactly;
        let watched = self.watched.get_or_insert_with(|| Watched::open(scan, is_exact));
        let (exchanges, is_used_up) = match watched {
            Ok(watched) => (watched.since_last(scan), watched.is_used_up(scan)),
            Err(unmeasured) => (unmeasured.clone(), false),
        };
        if is_used_up {
            *watched = Watched::open(scan, is_exact);
        }
        exchanges
    }
}

/// Observes the connections of a scan for a period and fills in the traffic of each piece of advice, with how sure its rate is.
/// Programs that were seen to connect for a moment get advice of their own. Times exchanges if that is asked for, and then adds
/// findings on Unix sockets that accept slowly. Returns the connections that held bytes back.
///
/// Ends early when `stop` becomes true; what was counted until then is kept. Connections that were opened meanwhile and stay open
/// are then left out, as they take another scan.
pub fn observe(scan: &mut Scan, period: Duration, timed: Timed, stop: &AtomicBool) -> HeldBack {
    let mut ended = Ended::open(&scan.network_namespaces);
    let acceptors = Acceptors::of(scan);
    let begun = Instant::now();
    let mut before = look(scan);
    // Each look costs as much as the first. With 12,500 connections eight of them took longer than the period, and so did
    // what is done every `NAP`: the looks together have a share of the period.
    let cost = begun.elapsed();
    let mut catcher = Catcher::open(scan, &acceptors);
    let unix = if timed == Timed::Not { None } else { UnixCatcher::open() };
    let mut watched = match timed {
        Timed::Not => None,
        Timed::Cheaply | Timed::Exactly => Some(Watched::open(scan, timed == Timed::Exactly)),
    };
    let step = (period / STEPS).max(SHORTEST_STEP).max(cost * MOST_OF_A_STEP);
    let mut rest = NAP;
    let mut steps: Vec<HashMap<usize, f64>> = Vec::new();
    let mut held_back = HeldBack::default();
    while before.at.elapsed() < period && !stop.load(Ordering::Relaxed) {
        let rest_now = rest.min(period.saturating_sub(before.at.elapsed()));
        match &mut catcher {
            Some(catcher) => catcher.watch(rest_now),
            None => std::thread::sleep(rest_now),
        }
        let begun = Instant::now();
        before.count_closed(&mut ended, &acceptors.tcp, catcher.as_mut());
        if before.at.elapsed() >= step * (steps.len() as u32 + 1) {
            held_back.look_now(scan);
            if let Some(Ok(watched)) = &mut watched {
                watched.look(scan, &acceptors);
            }
            steps.push(so_far(scan, &before, &look(scan), &ended.sums, &acceptors));
        }
        rest = NAP.max(begun.elapsed() * MOST_OF_A_STEP);
    }
    if let Some(watched) = watched {
        finish(scan, watched, unix.as_ref());
    }
    let after = look(scan);
    if !stop.load(Ordering::Relaxed)
        && after.has_opened_since(&before, &acceptors.tcp)
        && let Ok(later) = collect(&scan.samehost_version)
    {
        // Their counters began with nothing.
        for key in add_opened(scan, &later, &acceptors) {
            before.counters.entry(key).or_default();
        }
    }
    before.count_closed(&mut ended, &acceptors.tcp, catcher.as_mut());
    let caught = catcher.map(|catcher| catcher.caught).unwrap_or_default();
    fill(scan, &before, &after, ended.take(&scan.network_namespaces), &caught, &acceptors);
    fill_errors(scan, &steps);
    held_back
}

fn fill_errors(scan: &mut Scan, steps: &[HashMap<usize, f64>]) {
    for advice in &mut scan.advice {
        let Some(traffic) = &mut advice.traffic else { continue };
        let mut totals: Vec<f64> = Vec::new();
        for step in steps {
            totals.push(step.get(&advice.service).copied().unwrap_or(0.0));
        }
        traffic.rate_error = rate_error(&totals);
    }
}

fn finish(scan: &mut Scan, watched: Result<Watched, Exchanges>, unix: Option<&UnixCatcher>) {
    let mut exchanges = match watched {
        Ok(watched) => watched.finish(scan),
        Err(unmeasured) => unmeasured,
    };
    if let Some(unix) = unix {
        exchanges.unix_openers = unix.openers(scan);
        scan.findings.extend(slow_accepts(scan, &unix.connects.queues()));
    }
    scan.exchanges = Some(exchanges);
}

/// Round trips of each service since `before`, with those of closed connections.
fn so_far(
    scan: &Scan,
    before: &Look,
    now: &Look,
    ended: &Sums,
    acceptors: &Acceptors,
) -> HashMap<usize, f64> {
    let mut totals = HashMap::new();
    for advice in &scan.advice {
        *totals.entry(advice.service).or_default() +=
            traffic(scan, advice, before, now, 1.0).round_trips_per_s;
    }
    for ((namespace, server), tallies) in ended {
        if let Some(service) = acceptors.at(*namespace, *server) {
            let round_trips: u64 = tallies.values().map(|tally| tally.all.round_trips).sum();
            *totals.entry(service).or_default() += round_trips as f64;
        }
    }
    totals
}

/// Relative error of a rate counted in equal steps, from the running totals at the end of each: the scatter
/// of the steps, and at least the Poisson error of the total.
fn rate_error(totals: &[f64]) -> f64 {
    let mut steps: Vec<f64> = Vec::new();
    let mut last = 0.0;
    for total in totals {
        steps.push(total - last);
        last = *total;
    }
    let total: f64 = steps.iter().sum();
    if total <= 0.0 {
        return 0.0;
    }
    let by_chance = distributions::normal_quantile(0.975) / total.sqrt();
    match distributions::locate_mean(&steps, 0.95) {
        Some(mean) if steps.len() >= FEWEST_STEPS => {
            by_chance.max((mean.interval.high - mean.estimate) / mean.estimate)
        }
        _ => by_chance,
    }
}

/// A part of them that is booked as that of clients whom nobody saw, beyond which it is worth a line.
const WORTH_A_LINE: f64 = 0.05;

fn fill(scan: &mut Scan, before: &Look, after: &Look, ended: Heard, caught: &Caught, acceptors: &Acceptors) {
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let (short, uncounted) = short_connections(scan, [before, after], ended, acceptors, seconds);
    let nobody = Seen::default();
    let mut booked: HashMap<(usize, String), (&Seen, Shares, bool)> = HashMap::new();
    for (door, short) in short.iter().collect::<BTreeMap<_, _>>() {
        let seen = caught.get(door).unwrap_or(&nobody);
        let shares = short.shares(seen, seconds);
        let is_left = shares.nobodys.connections > WORTH_A_LINE * short.per_s * seconds;
        advice::add_short_lived(scan, *door, &seen.senders, is_left);
        let has_ends = !short.tallies.is_empty();
        booked.insert((door.0, advice::endpoint(door.1)), (seen, shares, has_ends));
    }
    let mut all = scan.advice.clone();
    for advice in &mut all {
        let mut traffic = traffic(scan, advice, before, after, seconds);
        if let Some((seen, shares, has_ends)) = booked.get(&(advice.service, advice.now.clone())) {
            let part = part(scan, advice, seen, shares);
            traffic.short_connections_per_s = part.connections / seconds;
            if part.connections > 0.0 && *has_ends {
                traffic.short = Some(ShortTraffic {
                    round_trips_per_s: part.round_trips / seconds,
                    bytes_per_s: part.bytes / seconds,
                });
            }
        }
        let space = scan.services.get(advice.service).map(|service| service.network_namespace);
        traffic.uncounted_connections_per_s =
            space.and_then(|space| uncounted.get(&space)).map_or(0.0, |number| *number as f64 / seconds);
        advice.traffic = Some(traffic);
    }
    add_cpu(scan, &mut all, before, after, seconds);
    scan.advice = all;
}

/// The short connections of a pair: those of its program, or what is nobody's where it has none.
fn part(scan: &Scan, advice: &Advice, seen: &Seen, shares: &Shares) -> Part {
    let mut part = Part::default();
    if advice.client_pids.is_empty() {
        let is_alike = |one: &&Advice| (one.service, &one.now) == (advice.service, &advice.now);
        let nobodys = scan.advice.iter().filter(is_alike).filter(|one| one.client_pids.is_empty());
        part.add_part(shares.nobodys, 1.0 / nobodys.count().max(1) as f64);
        return part;
    }
    for (sender, its) in seen.senders.iter().zip(&shares.of_senders) {
        if advice::is_of(scan, advice, sender) {
            part.add_part(*its, 1.0);
        }
    }
    part
}

/// The processes that hold the clients' ends of its connections, and the servers'.
fn holders_of(scan: &Scan, advice: &Advice) -> [BTreeSet<u32>; 2] {
    let [mut clients, mut servers] = [BTreeSet::new(), BTreeSet::new()];
    for connection in advice.members.iter().filter_map(|at| scan.connections.get(*at)) {
        let Some((client, server)) = scan.ends(connection) else { continue };
        clients.extend(&client.pids);
        servers.extend(&server.pids);
    }
    [clients, servers]
}

/// Adds the CPU time per request at both ends. A service's CPU time is divided by the requests of all its pairs.
fn add_cpu(scan: &Scan, all: &mut [Advice], before: &Look, after: &Look, seconds: f64) {
    let mut services: HashMap<usize, ServersEnd> = HashMap::new();
    for advice in all.iter() {
        let service = services.entry(advice.service).or_default();
        service.round_trips += seconds * rate(advice);
        let [_, servers] = holders_of(scan, advice);
        service.pids.extend(servers);
    }
    for advice in all {
        let [clients, _] = holders_of(scan, advice);
        let round_trips = seconds * rate(advice);
        let Some(traffic) = &mut advice.traffic else { continue };
        traffic.client_cpu_us_per_request = cpu_us_per_request(&clients, before, after, round_trips);
        let Some(service) = services.get(&advice.service) else { continue };
        traffic.server_cpu_us_per_request =
            cpu_us_per_request(&service.pids, before, after, service.round_trips);
    }
}

#[derive(Default)]
struct ServersEnd {
    pids: BTreeSet<u32>,
    round_trips: f64,
}

fn rate(advice: &Advice) -> f64 {
    match &advice.traffic {
        Some(traffic) => traffic.all_round_trips_per_s(),
        None => 0.0,
    }
}

/// CPU time of processes for one of so many round trips; `None` without either, or where one of them was not there at both looks.
fn cpu_us_per_request(pids: &BTreeSet<u32>, before: &Look, after: &Look, round_trips: f64) -> Option<f64> {
    if pids.is_empty() || round_trips <= 0.0 {
        return None;
    }
    let mut used_s = 0.0;
    for pid in pids {
        used_s += after.cpu_s.get(pid)? - before.cpu_s.get(pid)?;
    }
    Some(1e6 * used_s / round_trips)
}

fn look(scan: &Scan) -> Look {
    let mut look = Look { at: Instant::now(), counters: HashMap::new(), cpu_s: HashMap::new() };
    let mut pids = BTreeSet::new();
    for advice in &scan.advice {
        pids.extend(holders_of(scan, advice).into_iter().flatten());
    }
    for pid in pids {
        if let Some(stat) = read_stat(pid) {
            look.cpu_s.insert(pid, stat.cpu_s());
        }
    }
    for space in scan.network_namespaces.iter().filter(|space| space.read_by == ReadBy::SockDiag) {
        // A namespace that has gone meanwhile has no traffic.
        if let Some(Ok(activity)) = namespaces::within(space, || Diag::open()?.activity()) {
            for one in activity {
                look.add(space.inode, &one);
            }
        }
    }
    look
}

/// Ends in TIME_WAIT: namespace, both addresses, milliseconds left.
fn in_time_wait(scan: &Scan, mut each: impl FnMut(Key, u32) + Send) {
    for space in scan.network_namespaces.iter().filter(|space| space.read_by == ReadBy::SockDiag) {
        let _ = namespaces::within(space, || {
            Diag::open()?.in_time_wait(|local, peer, left_ms| each((space.inode, local, peer), left_ms))
        });
    }
}

impl Look {
    fn add(&mut self, namespace: u64, activity: &Activity) {
        let (Some(local), Some(peer)) = (activity.local.inet(), activity.peer.inet()) else { return };
        let key = (namespace, local, peer);
        if let Some(counters) = activity.counters {
            self.counters.insert(key, counters);
        }
    }

    /// Connections at listeners of a namespace that are open now and were not at the earlier look.
    fn opened_since(&self, before: &Look, namespace: u64, listeners: &Listeners) -> u64 {
        let opened = self.counters.keys().filter(|key| {
            key.0 == namespace
                && listeners.accepts(namespace, key.1).is_some()
                && !before.counters.contains_key(key)
        });
        opened.count() as u64
    }

    fn has_opened_since(&self, before: &Look, listeners: &Listeners) -> bool {
        self.counters.keys().any(|key| {
            let (namespace, local, _) = *key;
            !before.counters.contains_key(key) && listeners.accepts(namespace, local).is_some()
        })
    }

    fn count_closed(&self, ended: &mut Ended, listeners: &Listeners, mut catcher: Option<&mut Catcher<'_>>) {
        ended.read(
            listeners,
            |namespace, local, peer| self.counters.contains_key(&(namespace, local, peer)),
            |closed| catcher.as_mut()?.ended(&closed),
        );
    }
}

fn traffic(scan: &Scan, advice: &Advice, before: &Look, after: &Look, seconds: f64) -> Traffic {
    let mut traffic = Traffic { seconds, ..Traffic::default() };
    for connection in advice.members.iter().filter_map(|at| scan.connections.get(*at)) {
        let Some((client, _)) = scan.ends(connection) else { continue };
        let Some(key) = key_of(client) else { continue };
        let (Some(was), Some(is)) = (before.counters.get(&key), after.counters.get(&key)) else { continue };
        let bytes = grown(was.bytes_acked, is.bytes_acked) + grown(was.bytes_received, is.bytes_received);
        let segments = wrapped(was.segments_out, is.segments_out) + wrapped(was.segments_in, is.segments_in);
        let sent = wrapped(was.data_segments_out, is.data_segments_out);
        let received = wrapped(was.data_segments_in, is.data_segments_in);
        traffic.bytes_per_s += bytes / seconds;
        traffic.segments_per_s += segments / seconds;
        traffic.round_trips_per_s += sent.min(received) / seconds;
        traffic.busy_connections += u32::from(bytes > 0.0);
    }
    traffic
}

/// Growth of a counter. A smaller value means that the addresses were reused by another connection.
fn grown(was: u64, is: u64) -> f64 {
    is.saturating_sub(was) as f64
}

/// Growth of a 32-bit counter that may have wrapped.
fn wrapped(was: u32, is: u32) -> f64 {
    f64::from(is.wrapping_sub(was))
}

/// Short connections to each door of a service: from close events, else from sockets that entered TIME_WAIT meanwhile.
///
/// Looks at the open connections miss nearly all of them, so the kernel is asked for each TCP socket that it destroys (Linux 4.2, as
/// root). Where it does not say, or its buffer was too small, those count that are in TIME_WAIT with more than
/// 60 s less the time of the observation left. Only their number is known then, and each is one round trip (docs/method.md §14).
fn short_connections(
    scan: &Scan,
    [before, after]: [&Look; 2],
    Heard { sums: counted, is_all, begun }: Heard,
    acceptors: &Acceptors,
    seconds: f64,
) -> (HashMap<Door, Short>, HashMap<u64, u64>) {
    let mut kept: HashMap<u64, u64> = HashMap::new();
    let mut found: HashMap<Door, Short> = HashMap::new();
    let mut count = |(namespace, local, peer): Key, left_ms: u32| {
        if f64::from(left_ms) < TIME_WAIT_MS - 1000.0 * seconds {
            return;
        }
        *kept.entry(namespace).or_default() += 1;
        // Only the end that closed first is in TIME_WAIT; that may be either the service or the client.
        for end in [local, peer] {
            let Some(service) = acceptors.at(namespace, end) else { continue };
            found.entry((service, end)).or_default().per_s += 1.0 / seconds;
            return;
        }
    };
    // The kernel keeps up to a minute's connections there; they are asked for only where the ends were not all announced.
    if !is_all {
        in_time_wait(scan, &mut count);
    }
    for ((namespace, server), tallies) in counted {
        let Some(service) = acceptors.at(namespace, server) else { continue };
        found.entry((service, server)).or_default().tallies.extend(tallies.into_values());
    }
    for short in found.values_mut() {
        short.per_s = short.per_s.max(short.counted() as f64 / seconds);
    }
    let uncounted = begun.into_iter().filter_map(|(namespace, begun)| {
        let kept = kept.get(&namespace).copied().unwrap_or(0);
        let seen = begun.ended.max(kept) + after.opened_since(before, namespace, &acceptors.tcp);
        Some((namespace, uncounted(begun.opened, seen)?))
    });
    (found, uncounted.collect())
}

/// A part of the connections of a namespace that began, beyond which it matters that they are in no count.
const MOST_UNCOUNTED: f64 = 0.05;
/// Fewer than these may be between two looks.
const FEWEST_UNCOUNTED: u64 = 10;

/// How many connections began that were neither announced to have ended nor are open; `None` where that is too few to matter.
fn uncounted(opened: u64, seen: u64) -> Option<u64> {
    let number = opened.saturating_sub(seen);
    let matters = number >= FEWEST_UNCOUNTED && number as f64 > MOST_UNCOUNTED * opened as f64;
    matters.then_some(number)
}

fn key_of(client: &Socket) -> Option<Key> {
    Some((client.network_namespace, client.local.inet()?, client.peer.inet()?))
}

/// Adds the TCP connections that only a later scan of the same machine has, with their processes and with advice on them, and
/// gives their keys. They were opened while traffic was observed and stayed open: no notice of an end tells of them, and of a
/// program that connects now and then for a second, one scan in three had nothing to say. `acceptors` are the earlier scan's: a
/// service that came later has no advice.
fn add_opened(scan: &mut Scan, later: &Scan, acceptors: &Acceptors) -> Vec<Key> {
    let mut known: HashSet<Key> = HashSet::new();
    for connection in &scan.connections {
        known.extend(key_of(&scan.sockets[connection.client]));
    }
    let mut added = Vec::new();
    for connection in later.connections.iter().filter(|connection| connection.kind.is_tcp()) {
        let Some((client, server)) = later.ends(connection) else { continue };
        let Some(key) = key_of(client) else { continue };
        if known.contains(&key) {
            continue;
        }
        let (namespace, _, place) = key;
        let Some(service) = acceptors.at(namespace, place) else { continue };
        for pid in client.pids.iter().chain(&server.pids) {
            let Some(process) = later.process(*pid) else { continue };
            if let Err(at) = scan.processes.binary_search_by_key(pid, |process| process.pid) {
                scan.processes.insert(at, process.clone());
            }
        }
        let first = scan.sockets.len();
        scan.sockets.extend([client.clone(), server.clone()]);
        scan.connections.push(Connection {
            kind: connection.kind,
            client: first,
            server: first + 1,
            service: Some(service),
        });
        added.push(key);
    }
    if !added.is_empty() {
        advise(scan);
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_as_sure_as_its_steps_are_alike() {
        // 1,000 in each of 4 steps: the Poisson error alone, 1.96 ÷ √4,000.
        assert!((rate_error(&[1000.0, 2000.0, 3000.0, 4000.0]) - 0.031).abs() < 1e-3);
        // All in one of 4 steps: the mean is very uncertain.
        assert!(rate_error(&[0.0, 4000.0, 4000.0, 4000.0]) > 1.0);
        assert_eq!(rate_error(&[0.0, 0.0]), 0.0);
        // Two steps are too few to estimate the scatter.
        assert!((rate_error(&[100.0, 10_000.0]) - 0.0196).abs() < 1e-4);
    }

    #[test]
    fn counters_may_begin_anew() {
        assert_eq!(wrapped(u32::MAX, 4), 5.0);
        assert_eq!(grown(10, 4), 0.0);
    }
}
