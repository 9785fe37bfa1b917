//! Measures the cost of a request over each transport on this machine, to predict the saving for observed traffic. The
//! measurements of a scan share their time. Nobody waits a minute for a prediction: however many pairs there are, all
//! runs together end in time, and each gets a part of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use samehost_bench::KeepAwake;
use samehost_model::scan::{Advice, Possible, Scan};
use samehost_model::{Report, metric};
use samehost_report::FindingKind;
use samehost_scan::{Costs, Measured, Shape, predict_one, shape};

use crate::checkup::measure::{Bench, Spend};
use crate::checkup::parts::{self, Part, PartLine};
use crate::request::fresh_seed;

/// Measurements of the calibration: one connection for the latency, many for a busy server.
const CALIBRATION: &[(u32, FindingKind, &str, &str)] = &[
    (1, FindingKind::RoundTrip, "what a request costs here, one connection", metric::LATENCY_MEAN.name),
    (64, FindingKind::Busy, "what a request costs here, 64 connections", metric::TOTAL_CPU_PER_OP.name),
];
/// Time of each measurement of the calibration: `raw`, 128 bytes, TCP against a Unix socket, with 1 and
/// with 64 connections. The ranges of CPU time span both numbers of connections, as one is an idle
/// machine that wakes up for each request and the other a busy one. The calibration shares the machine
/// with what runs there: on a busy one its ranges are wide, and the answer is then that it cannot be
/// told, with the ranges (docs/method.md §14).
const CALIBRATION_TIME: Duration = Duration::from_secs(6);
/// Short connections per second from which on the cost of a connection is measured.
const FEW_CONNECTIONS: f64 = 1.0;
/// Time to measure the transport without work in the server.
const BARE_TIME: Duration = Duration::from_secs(4);
/// Time to measure a private server of a pair's own program, its starts included.
const OWN_TIME: Duration = Duration::from_secs(12);
/// Time that must be left to begin that: a database may take some seconds to start on a busy machine.
const OWN_LEAST: Duration = Duration::from_secs(6);
/// Number of the busiest pairs for which a request of theirs is measured; the rest use the common
/// calibration. Each is measured on a private server of its own program where that is installed, and
/// imitated otherwise, by as many connections, messages as large and the service's threading model. Who
/// sleeps, and whether replies go out at once or after each round, matters more than the transport
/// (docs/decisions/0015, docs/method.md §14).
const MOST_SHAPES: usize = 3;

/// Predicts the saving of a switch for each pair with observed traffic; does nothing if interrupted early. All
/// measurements together end soon, however many pairs there are.
pub fn price(
    scan: &mut Scan,
    observed: Duration,
    interrupted: &Arc<AtomicBool>,
    quiet: bool,
) -> anyhow::Result<()> {
    if scan.advice.is_empty() || interrupted.load(Ordering::Relaxed) {
        return Ok(());
    }
    let clock = Clock::new(time_for(observed));
    in_time(clock, interrupted, |clock, stop| {
        let mut runs = Runs { clock, stop: Arc::clone(stop), quiet };
        let pairs = wanted(scan);
        let has_short = scan.advice.iter().any(|advice| short(advice) >= FEW_CONNECTIONS);
        runs.announce(has_short, &pairs);
        let Some(mut costs) = runs.calibrate()? else { return Ok(()) };
        if has_short {
            costs = runs.calibrate_connection(costs)?;
        }
        samehost_scan::predict(scan, &costs);
        for pair in pairs {
            if let Some(costs) = runs.calibrate_pair(costs, &pair)?
                && let Some(advice) = scan.advice.get_mut(pair.at)
            {
                predict_one(advice, &costs);
            }
        }
        Ok(())
    })
}

/// Measures the extra cost of TCP over a Unix socket on this machine; `None` if interrupted early.
#[cfg(feature = "tui")]
pub fn calibrate(interrupted: &Arc<AtomicBool>, quiet: bool) -> anyhow::Result<Option<Costs>> {
    Runs { clock: Clock::unlimited(), stop: Arc::clone(interrupted), quiet }.calibrate()
}

struct Wanted {
    /// Index in the advice of the scan.
    at: usize,
    shape: Shape,
    /// The measurement of a private server of the service's own program, where there is one.
    own: Option<Part>,
    /// The same with a connection for each request, where the pair has short connections.
    own_connections: Option<Part>,
}

impl Wanted {
    /// Full times of the runs that measure it.
    fn times(&self) -> Vec<Duration> {
        match (&self.own, &self.own_connections) {
            (Some(_), Some(_)) => vec![OWN_TIME, OWN_TIME],
            (Some(_), None) => vec![OWN_TIME],
            (None, _) => times_of_imitation(&self.shape),
        }
    }
}

/// Short connections of a pair, per second.
fn short(advice: &Advice) -> f64 {
    advice.traffic.map_or(0.0, |traffic| traffic.short_connections_per_s)
}

fn wanted(scan: &Scan) -> Vec<Wanted> {
    let mut shapes: Vec<(usize, f64, Shape)> = Vec::new();
    for (at, advice) in scan.advice.iter().enumerate() {
        let rate = advice.traffic.map_or(0.0, |traffic| traffic.all_round_trips_per_s());
        if advice.possible != Possible::Cannot {
            shapes.extend(shape(scan, advice).map(|shape| (at, rate, shape)));
        }
    }
    shapes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut wanted = Vec::new();
    for (at, _, shape) in shapes.into_iter().take(MOST_SHAPES) {
        let (mut own, mut own_connections) = (None, None);
        if let Some(kind) = shape.kind {
            own = parts::own_requests(kind, shape.connections, shape.size_bytes);
            if scan.advice.get(at).is_some_and(|advice| short(advice) >= FEW_CONNECTIONS) {
                own_connections = parts::own_connections(kind, shape.connections);
            }
        }
        wanted.push(Wanted { at, own, own_connections, shape });
    }
    wanted
}

fn part(
    label: &str,
    kind: FindingKind,
    connections: u32,
    size: u64,
    parameters: Vec<(&'static str, String)>,
) -> Part {
    let line = PartLine { label: label.into(), kind, metric: metric::LATENCY_MEAN.name, connections: None };
    Part {
        parameters,
        connections: vec![connections],
        size: Some(size),
        lines: vec![line],
        ..Part::new("raw")
    }
}

/// The measurements of a scan's calibration, which share one clock.
struct Runs {
    clock: Clock,
    /// Set when the user interrupts, or the time is over.
    stop: Arc<AtomicBool>,
    quiet: bool,
}

impl Runs {
    /// Tells the clock what will be measured, so that each run gets its share.
    fn announce(&mut self, has_short: bool, pairs: &[Wanted]) {
        for _ in 0..CALIBRATION.len() + usize::from(has_short) {
            self.clock.announce(CALIBRATION_TIME);
        }
        for time in pairs.iter().flat_map(Wanted::times) {
            self.clock.announce(time);
        }
    }

    /// Measures a part in the time that it gets of its full time, and says whether that was too little. `None` if it was
    /// stopped before anything was measured, or if less than `least` of all time is left: nothing interrupts the start of its servers.
    fn measure(
        &mut self,
        part: Part,
        full: Duration,
        least: Duration,
    ) -> anyhow::Result<(Option<Report>, bool)> {
        let share = self.clock.next(full);
        if self.stop.load(Ordering::Relaxed) || !self.clock.has(least) {
            return Ok((None, true));
        }
        // CPUs may sleep, as they do under the observed traffic.
        let bench = Bench {
            seed: fresh_seed(),
            interrupted: Arc::clone(&self.stop),
            quiet: self.quiet,
            ends: self.clock.end,
            awake: KeepAwake::No,
        };
        let part = Part { trial: SHORT_TRIAL, ..part };
        let spend = if share.is_short { Spend::Hastily(share.time) } else { Spend::All(share.time) };
        match bench.measure(&part, spend) {
            Ok(report) => Ok((Some(report), share.is_short || bench.is_interrupted())),
            Err(_) if bench.is_interrupted() => Ok((None, true)),
            Err(error) => Err(error),
        }
    }

    fn calibrate(&mut self) -> anyhow::Result<Option<Costs>> {
        let (mut cpu, mut latency, mut hurried) = (Vec::new(), Vec::new(), false);
        for (connections, kind, label, metric) in CALIBRATION.iter().copied() {
            let part = part(label, kind, connections, 128, Vec::new());
            let (report, is_short) = self.measure(part, CALIBRATION_TIME, LEAST)?;
            let Some(report) = report else { continue };
            hurried |= is_short;
            cpu.extend(Measured::in_report(&report, metric::TOTAL_CPU_PER_OP.name));
            if kind == FindingKind::RoundTrip {
                latency.extend(Measured::in_report(&report, metric));
            }
        }
        Ok(Costs::of(&cpu, &latency).map(|costs| Costs { hurried, ..costs }))
    }

    /// Adds the cost of a connection with one round trip.
    fn calibrate_connection(&mut self, costs: Costs) -> anyhow::Result<Costs> {
        let label = "what a connection costs here";
        let part =
            Part { workload: "connect", size: None, ..part(label, FindingKind::Server, 1, 0, Vec::new()) };
        let (report, _) = self.measure(part, CALIBRATION_TIME, LEAST)?;
        Ok(match report.as_ref().and_then(cpu_and_latency) {
            Some((cpu, latency)) => costs.with_connection(cpu, latency),
            None => costs,
        })
    }

    /// Measures requests of a pair's shape, to a private server of the service's own program where that is installed, else to
    /// an imitation. There, one at a time is measured without work, because both ends sleep at every request anyway.
    /// Several at once are measured without work first, for the cost of the transport, then with the rest of the
    /// service's CPU time as work: this determines who sleeps, and wake-ups are most of a request's cost.
    fn calibrate_pair(&mut self, costs: Costs, pair: &Wanted) -> anyhow::Result<Option<Costs>> {
        let shape = &pair.shape;
        if let Some(part) = &pair.own {
            // A server that is installed and does not start here is imitated.
            if let Ok((report, hurried)) = self.measure(part.clone(), OWN_TIME, OWN_LEAST) {
                let Some((cpu, latency)) = report.as_ref().and_then(cpu_and_latency) else { return Ok(None) };
                let costs = Costs { hurried, ..costs.of_own_program(cpu, latency) };
                return Ok(Some(self.calibrate_own_connections(costs, pair)));
            }
            self.clock.put_first(&times_of_imitation(shape));
        }
        let model = ("server", shape.server.to_owned());
        let part_of = |label: &str, parameters| {
            part(label, FindingKind::Server, shape.connections, shape.size_bytes, parameters)
        };
        let times = times_of_imitation(shape);
        let bare = part_of("what requests of this shape cost here", vec![model.clone()]);
        let (mut report, mut hurried) = self.measure(bare, times[0], LEAST)?;
        if let Some(full) = times.get(1) {
            let bare = match &report {
                Some(bare) => Measured::in_report(bare, metric::SERVER_CPU_PER_OP.name),
                None => None,
            };
            let work_us = (shape.server_cpu_us_per_request - bare.map_or(0.0, |cpu| cpu.tcp)).round();
            if work_us >= 1.0 {
                let parameters = vec![model, ("work", format!("{work_us:.0}us"))];
                let part = part_of("what they cost beside the service's work", parameters);
                (report, hurried) = self.measure(part, *full, LEAST)?;
            } else {
                self.clock.skip();
            }
        }
        let found = report.as_ref().and_then(cpu_and_latency);
        Ok(found.map(|(cpu, latency)| Costs { hurried, ..costs.of_shape(cpu, latency) }))
    }

    /// Adds what a connection to the pair's own program costs, if that can be measured.
    fn calibrate_own_connections(&mut self, costs: Costs, pair: &Wanted) -> Costs {
        let Some(part) = &pair.own_connections else { return costs };
        let Ok((report, hurried)) = self.measure(part.clone(), OWN_TIME, OWN_LEAST) else {
            return costs;
        };
        let Some((cpu, latency)) = report.as_ref().and_then(cpu_and_latency) else { return costs };
        Costs { hurried: costs.hurried || hurried, ..costs.with_own_connection(cpu, latency) }
    }
}

fn times_of_imitation(shape: &Shape) -> Vec<Duration> {
    if shape.connections == 1 {
        vec![BARE_TIME + CALIBRATION_TIME]
    } else {
        vec![BARE_TIME, CALIBRATION_TIME]
    }
}

fn cpu_and_latency(report: &Report) -> Option<(Measured, Measured)> {
    Measured::in_report(report, metric::TOTAL_CPU_PER_OP.name)
        .zip(Measured::in_report(report, metric::LATENCY_MEAN.name))
}

/// Least time of all runs of a scan together: with it `--observe 8s` ends within 30 s.
/// However many pairs there are, all measurements share this time, or half of the observation's where
/// that is more. Where it is not enough, each run gets [`LEAST`] and a part of the rest, or is left out
/// where its servers would not end in time, and its ranges are as wide as that makes them
/// (docs/method.md §14).
const LEAST_OF_ALL: Duration = Duration::from_secs(16);
/// Least time of a run: eight blocks of three trials of [`SHORT_TRIAL`], with what is around them.
const LEAST: Duration = Duration::from_millis(1500);
/// Length of a trial where a run has less than its full time.
const SHORT_TRIAL: Duration = Duration::from_millis(50);
/// Time around a run: starting and stopping its servers, and the analysis.
const AROUND: Duration = Duration::from_millis(250);
/// Part of its full time from which on a run is not called hurried.
const NEARLY_ALL: f64 = 0.75;
/// From one look at the clock to the next.
const NAP: Duration = Duration::from_millis(20);

/// Time for all runs of a scan that observed for so long: who observes longer gives the measurement more time as well.
fn time_for(observed: Duration) -> Duration {
    LEAST_OF_ALL.max(observed / 2)
}

/// Hands out the time of a scan's runs, in their order.
struct Clock {
    end: Option<Instant>,
    /// Full times of the runs that were announced.
    to_come: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    time: Duration,
    /// Whether it is much less than the run's full time.
    is_short: bool,
}

impl Clock {
    /// Every run has its full time.
    #[cfg(any(feature = "tui", test))]
    pub fn unlimited() -> Self {
        Clock { end: None, to_come: VecDeque::new() }
    }

    pub fn new(time: Duration) -> Self {
        Clock { end: Some(Instant::now() + time), to_come: VecDeque::new() }
    }

    /// Announces a run, after those announced before, with its full time.
    pub fn announce(&mut self, full: Duration) {
        self.to_come.push_back(full);
    }

    /// Announces runs before all others.
    pub fn put_first(&mut self, full: &[Duration]) {
        full.iter().rev().for_each(|time| self.to_come.push_front(*time));
    }

    /// Time for the next run that was announced.
    pub fn next(&mut self, full: Duration) -> Share {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        let planned: Vec<Duration> = self.to_come.iter().copied().collect();
        self.skip();
        match left {
            Some(left) => share(left, full, &planned),
            None => Share { time: full, is_short: false },
        }
    }

    pub fn skip(&mut self) {
        self.to_come.pop_front();
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    pub fn has(&self, time: Duration) -> bool {
        self.end.is_none_or(|end| end.saturating_duration_since(Instant::now()) >= time)
    }
}

/// Part of the time that is left for a run, which is the first of those planned. Where there is not enough for all of
/// them, each gets the least and a part of the rest by how much more it would take.
fn share(left: Duration, full: Duration, planned: &[Duration]) -> Share {
    let runs = planned.len().max(1) as u32;
    let wanted = planned.iter().sum::<Duration>().max(full);
    let left = left.saturating_sub(AROUND * runs);
    if wanted <= left {
        return Share { time: full, is_short: false };
    }
    let part = more(left, LEAST * runs) / more(wanted, LEAST * runs).max(f64::MIN_POSITIVE);
    let time = LEAST + full.saturating_sub(LEAST).mul_f64(part.min(1.0));
    Share { time, is_short: time < full.mul_f64(NEARLY_ALL) }
}

fn more(time: Duration, less: Duration) -> f64 {
    time.saturating_sub(less).as_secs_f64()
}

/// Runs `work` with a flag that is set when the user interrupts, or when the clock's time is over although every run kept
/// to its share: on a busy machine a run may take twice as long.
fn in_time<T>(clock: Clock, interrupted: &AtomicBool, work: impl FnOnce(Clock, &Arc<AtomicBool>) -> T) -> T {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let watched = Clock { end: clock.end, to_come: VecDeque::new() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if interrupted.load(Ordering::Relaxed) || watched.is_over() {
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
                std::thread::sleep(NAP);
            }
        });
        let result = work(clock, &stop);
        done.store(true, Ordering::Relaxed);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Shares of all runs, each taken after the one before has used its own.
    fn shares(mut left: Duration, runs: &[f64]) -> Vec<Share> {
        let runs: Vec<Duration> = runs.iter().copied().map(seconds).collect();
        let mut all = Vec::new();
        for at in 0..runs.len() {
            let one = share(left, runs[at], &runs[at..]);
            left = left.saturating_sub(one.time + AROUND);
            all.push(one);
        }
        all
    }

    #[test]
    fn few_runs_have_their_full_time_and_many_share_it() {
        let few = shares(LEAST_OF_ALL, &[6.0, 6.0]);
        assert!(few.iter().all(|one| one.time == seconds(6.0) && !one.is_short), "{few:?}");
        // Three busy pairs and short connections: 48 s of runs.
        let many = shares(LEAST_OF_ALL, &[6.0, 6.0, 6.0, 4.0, 6.0, 4.0, 6.0, 4.0, 6.0]);
        let total: Duration = many.iter().map(|one| one.time + AROUND).sum();
        assert!(total <= LEAST_OF_ALL + LEAST, "{total:?}");
        assert!(many.iter().all(|one| one.time >= LEAST && one.is_short), "{many:?}");
        // The longer an observation, the more time; all of it from 2 minutes on.
        let patient = shares(time_for(seconds(120.0)), &[6.0, 6.0, 6.0, 4.0, 6.0, 4.0, 6.0, 4.0, 6.0]);
        assert!(patient.iter().all(|one| !one.is_short), "{patient:?}");
    }

    #[test]
    fn the_clock_stops_what_takes_too_long_and_so_does_the_user() {
        let stopped = |clock: Clock, interrupted: bool| {
            in_time(clock, &AtomicBool::new(interrupted), |_, stop| {
                let begun = Instant::now();
                while !stop.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(NAP);
                }
                stop.load(Ordering::Relaxed)
            })
        };
        assert!(stopped(Clock::new(Duration::ZERO), false));
        assert!(stopped(Clock::unlimited(), true));
    }
}
