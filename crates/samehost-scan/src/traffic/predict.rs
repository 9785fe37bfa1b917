//! Predicts what a switch saves: observed traffic × the measured cost of a request over each transport. Pure;
//! the arithmetic is explained in docs/method.md, section 14.

use samehost_model::Report;
use samehost_model::scan::{Advice, Range, Saving, Scan, Traffic};
use samehost_services::{Kind, Threading};

/// Smallest saving of CPU time that is worth a change, as a fraction of one CPU.
/// A switch is worth it when the whole range of the CPU time is above this, or the whole range of the
/// waiting time above [`WAIT_THRESHOLD`], and neither reaches below zero. Where only a part of a range is
/// above, the answer is that it cannot be told, with both ends. So `worth_it` never stands beside a range
/// from loss to gain (docs/method.md §14).
const CPU_THRESHOLD: f64 = 0.005;
/// Smallest saving of a connection's waiting time that is worth a change, as a fraction.
const WAIT_THRESHOLD: f64 = 0.01;
/// Error of a measured imitation, as a fraction of the saving, or [`OF_COST`] of the cost over TCP where
/// that is more. The interval of a measurement says nothing about how alike two programs are. The error
/// is that of comparisons with real servers: an imitation that is wrong by some microseconds is wrong by
/// them where little is saved, too (Redis saved 0.2 µs, an imitation that replies at once 4.6 µs). A
/// server that polls and reads header and body apart, as MariaDB does, and a client that works between
/// its requests were tried, and changed nothing (docs/decisions/0015, docs/method.md §14).
const OF_SAVING: f64 = 0.5;
const OF_COST: f64 = 0.12;
/// The same, as a fraction of the saving, where a private server of the pair's own program was measured.
/// What still differs are the requests and their client. An imitation's ranges spanned a factor of ten:
/// `pgbench -S` with eight connections was predicted at 1.3 to 23 µs and measured 10.3 µs. With its own
/// program it gets 7.1 to 14.5. A narrower range for the imitation was rejected, because its error was
/// seen, and asking the observed server itself, because it would need an account and disturb what it
/// measures (docs/decisions/0094).
const OF_OWN_SAVING: f64 = 0.25;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// Extra cost of TCP over a Unix socket, measured on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// CPU time of client and server together, microseconds a request.
    pub cpu_us_per_request: Range,
    /// Time until the reply, microseconds a round trip.
    pub us_per_round_trip: Range,
    /// Cost of a connection with few round trips, from connect to close; `None` when it was not measured.
    pub connection: Option<ConnectionCosts>,
    /// Whether the measurement had less than its full time.
    pub hurried: bool,
}

/// Extra cost over TCP of a connection with a few round trips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionCosts {
    cpu_us: Range,
    us: Range,
    round_trips: f64,
}

/// Round trips of a connection that logs in to a database, asks once and says goodbye, as the kernel
/// counts segments. Where a workload can log in for each request (MariaDB, MySQL, PostgreSQL) that is
/// measured on a private server, and stands for the connection, its login and its first request. The
/// other round trips of a short connection save what a request saves (docs/method.md §14).
const OF_A_LOGIN: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Microseconds.
    pub tcp: f64,
    pub ratio_low: f64,
    pub ratio_high: f64,
}

impl Measured {
    /// The first comparison of this metric in a report of TCP against a Unix socket, if it has an interval.
    #[must_use]
    pub fn in_report(report: &Report, metric: &str) -> Option<Self> {
        let comparison = report.analysis.comparisons.iter().find(|comparison| comparison.metric == metric)?;
        Some(Measured {
            tcp: comparison.baseline_value,
            ratio_low: comparison.ci_low?,
            ratio_high: comparison.ci_high?,
        })
    }

    fn saving(self) -> Range {
        Range { low: self.tcp * (1.0 - self.ratio_high), high: self.tcp * (1.0 - self.ratio_low) }
    }

    /// Range of the saving, wider by the error of measuring an imitation instead of the real program.
    fn of_another_program(self) -> Range {
        let Range { low, high } = self.saving();
        Range { low: low - self.error(low), high: high + self.error(high) }
    }

    fn error(self, bound: f64) -> f64 {
        (OF_SAVING * bound.abs()).max(OF_COST * self.tcp)
    }

    /// Range of the saving, wider by the error of measuring other requests to the same program.
    fn of_other_requests(self) -> Range {
        let Range { low, high } = self.saving();
        Range { low: low - OF_OWN_SAVING * low.abs(), high: high + OF_OWN_SAVING * high.abs() }
    }
}

impl Costs {
    /// Costs from the CPU time at several numbers of connections, and from the latency of one. The ranges
    /// span all of them. `None` without any measurement.
    #[must_use]
    pub fn of(cpu: &[Measured], latency: &[Measured]) -> Option<Self> {
        Some(Costs {
            cpu_us_per_request: span(cpu)?,
            us_per_round_trip: span(latency)?,
            connection: None,
            hurried: false,
        })
    }

    /// Adds the CPU time and duration of a short connection.
    #[must_use]
    pub fn with_connection(self, cpu: Measured, latency: Measured) -> Self {
        let connection = ConnectionCosts { cpu_us: cpu.saving(), us: latency.saving(), round_trips: 1.0 };
        Costs { connection: Some(connection), ..self }
    }

    /// The same from connections to a private server of the pair's own program, with their login and one request.
    #[must_use]
    pub fn with_own_connection(self, cpu: Measured, latency: Measured) -> Self {
        let (cpu_us, us) = (cpu.of_other_requests(), latency.of_other_requests());
        Costs { connection: Some(ConnectionCosts { cpu_us, us, round_trips: OF_A_LOGIN }), ..self }
    }

    /// Costs from one measurement of a pair's shape. Its confidence interval does not include how much the
    /// imitation differs from the program, so both ranges are widened by that error.
    #[must_use]
    pub fn of_shape(self, cpu: Measured, latency: Measured) -> Self {
        Costs {
            cpu_us_per_request: cpu.of_another_program(),
            us_per_round_trip: latency.of_another_program(),
            ..self
        }
    }

    /// Costs from a measurement of a private server of the pair's own program, which is much closer than an imitation.
    #[must_use]
    pub fn of_own_program(self, cpu: Measured, latency: Measured) -> Self {
        Costs {
            cpu_us_per_request: cpu.of_other_requests(),
            us_per_round_trip: latency.of_other_requests(),
            ..self
        }
    }
}

fn span(measured: &[Measured]) -> Option<Range> {
    let ranges = measured.iter().map(|one| one.saving());
    ranges.reduce(|a, b| Range { low: a.low.min(b.low), high: a.high.max(b.high) })
}

/// Fills in what a switch saves in each piece of advice that has traffic, whatever obstacles there are.
pub fn predict(scan: &mut Scan, costs: &Costs) {
    for advice in &mut scan.advice {
        predict_one(advice, costs);
    }
}

/// The same of one piece of advice, with the costs for traffic of its shape.
pub fn predict_one(advice: &mut Advice, costs: &Costs) {
    let connections = advice.connections;
    advice.saving = advice.traffic.map(|traffic| saving(&traffic, connections, costs));
}

fn scale(range: Range, factor: f64) -> Range {
    Range { low: range.low * factor, high: range.high * factor }
}

/// Multiplies a range by a factor that has a relative error; 0.5 is 50 %.
fn scale_roughly(range: Range, factor: f64, error: f64) -> Range {
    let (less, more) = (factor * (1.0 - error).max(0.0), factor * (1.0 + error));
    Range { low: (range.low * less).min(range.low * more), high: (range.high * less).max(range.high * more) }
}

fn add(a: Range, b: Range) -> Range {
    Range { low: a.low + b.low, high: a.high + b.high }
}

/// CPU time and duration saved by a short connection with this many round trips.
fn of_short(costs: &Costs, round_trips: f64) -> (Range, Range) {
    let (cpu, us) = (costs.cpu_us_per_request, costs.us_per_round_trip);
    match costs.connection {
        Some(connection) => {
            let more = (round_trips - connection.round_trips).max(0.0);
            (add(connection.cpu_us, scale(cpu, more)), add(connection.us, scale(us, more)))
        }
        None => (scale(cpu, round_trips), scale(us, round_trips)),
    }
}

fn saving(traffic: &Traffic, connections: u32, costs: &Costs) -> Saving {
    let (long, short) = (traffic.round_trips_per_s, traffic.short_connections_per_s);
    let each = match traffic.short {
        Some(all) if short > 0.0 => all.round_trips_per_s / short,
        _ => 1.0,
    };
    let (short_cpu, short_us) = of_short(costs, each.max(1.0));
    let busy = f64::from(traffic.busy_connections.max(1));
    let at_once = f64::from(connections.max(traffic.busy_connections).max(1));
    let of_rate = |range, per_s: f64| scale_roughly(range, per_s * 1e-6, traffic.rate_error);
    let cpu_part = add(of_rate(costs.cpu_us_per_request, long), of_rate(short_cpu, short));
    let waiting_part = add(of_rate(costs.us_per_round_trip, long / busy), of_rate(short_us, short / at_once));
    let known = traffic.short.is_some() && short > 0.0;
    let reaches = [(cpu_part, CPU_THRESHOLD), (waiting_part, WAIT_THRESHOLD)];
    // One range must lie above its threshold, and none may reach below zero: who saves CPU time for certain and may
    // wait longer for it is told both ranges, and decides. Before, one range was enough, so that `worth_it` stood
    // beside a range from loss to gain.
    let is_above = reaches.iter().any(|(part, threshold)| part.low >= *threshold);
    let may_lose = reaches.iter().any(|(part, _)| part.low < 0.0);
    let worth_it = is_above && !may_lose;
    Saving {
        cpu_us_per_request: costs.cpu_us_per_request,
        cpu_s_per_day: scale(cpu_part, SECONDS_PER_DAY),
        us_per_round_trip: costs.us_per_round_trip,
        cpu_us_per_short_connection: known.then_some(short_cpu),
        us_per_short_connection: known.then_some(short_us),
        waiting_part,
        undecided: !worth_it && reaches.iter().any(|(part, threshold)| part.high >= *threshold),
        worth_it,
        hurried: costs.hurried,
    }
}

/// Message sizes are clamped to this range, in bytes.
const SIZES: std::ops::RangeInclusive<f64> = 16.0..=16_384.0;
const MOST_CONNECTIONS: u32 = 64;
const FEWEST: f64 = 50.0;
/// With one request in flight at a time, client and server together use at most one CPU; 10 % tolerance.
const ONE_AT_A_TIME: f64 = 1.1;
/// Client CPU time in microseconds that counts for a request when its shape is inferred.
/// Anything above it is application work between requests, such as making a page, and keeps no request
/// under way. Whether there is one request at a time decides the imitation: then both ends sleep at each
/// request whatever the server's work is, and who sleeps matters more than the transport
/// (docs/decisions/0015, docs/method.md §14).
const CLIENTS_PART_US: f64 = 20.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub connections: u32,
    /// Bytes of a message in one direction.
    pub size_bytes: u64,
    /// How the service handles connections: the value of `raw --server`.
    pub server: &'static str,
    /// CPU time of the service, microseconds a request.
    pub server_cpu_us_per_request: f64,
    pub kind: Option<Kind>,
}

/// Shape of an observed pair; `None` when it had too little traffic or its CPU time is not visible.
#[must_use]
pub fn shape(scan: &Scan, advice: &Advice) -> Option<Shape> {
    let traffic = advice.traffic?;
    let per_s = traffic.all_round_trips_per_s();
    if per_s < FEWEST {
        return None;
    }
    let server_cpu_us_per_request = traffic.server_cpu_us_per_request?;
    // The CPU time of short-lived clients cannot be read.
    let client_us = traffic.client_cpu_us_per_request.unwrap_or(0.0).min(CLIENTS_PART_US);
    let cpus = per_s * (client_us + server_cpu_us_per_request) * 1e-6;
    let kind = scan.services.get(advice.service).and_then(|service| service.kind);
    let mut bytes_per_s = traffic.bytes_per_s;
    if let Some(short) = traffic.short {
        bytes_per_s += short.bytes_per_s;
    }
    let size = bytes_per_s / per_s / 2.0;
    let connections = traffic.busy_connections.max(advice.connections);
    Some(Shape {
        connections: if cpus < ONE_AT_A_TIME { 1 } else { connections.clamp(1, MOST_CONNECTIONS) },
        size_bytes: size.clamp(*SIZES.start(), *SIZES.end()).round() as u64,
        server: match kind.map(|kind| kind.descriptor().threading).unwrap_or_default() {
            Threading::Connection => "threads",
            Threading::Rounds => "rounds",
            Threading::Event => "epoll",
        },
        server_cpu_us_per_request,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Costs = Costs {
        cpu_us_per_request: Range { low: 0.0, high: 0.0 },
        us_per_round_trip: Range { low: 0.0, high: 0.0 },
        connection: None,
        hurried: false,
    };

    #[test]
    fn the_arithmetic_of_the_method() {
        let one = Measured { tcp: 20.0, ratio_low: 0.5, ratio_high: 0.6 };
        let many = Measured { tcp: 10.0, ratio_low: 0.7, ratio_high: 0.8 };
        let costs =
            Costs::of(&[one, many], &[Measured { tcp: 30.0, ratio_low: 0.8, ratio_high: 0.9 }]).unwrap();
        assert!((costs.cpu_us_per_request.low - 2.0).abs() < 1e-9);
        assert!((costs.cpu_us_per_request.high - 10.0).abs() < 1e-9);
        let traffic = Traffic { round_trips_per_s: 10_000.0, busy_connections: 10, ..Traffic::default() };
        let saving = saving(&traffic, 1, &costs);
        // 10,000/s × 2 µs = 2 % of a CPU: 1728 s a day.
        assert!((saving.cpu_s_per_day.low - 1728.0).abs() < 1e-6);
        // 1,000/s on each connection × 3 to 6 µs.
        assert!((saving.waiting_part.high - 0.006).abs() < 1e-9);
        assert!(saving.worth_it);
        let idle = Traffic { round_trips_per_s: 10.0, busy_connections: 1, ..Traffic::default() };
        let idle = super::saving(&idle, 1, &costs);
        assert!(!idle.worth_it && !idle.undecided);
        let rough = Traffic { rate_error: 0.5, ..traffic };
        let rough = super::saving(&rough, 1, &costs);
        assert!(
            (rough.cpu_s_per_day.low - 864.0).abs() < 1e-6,
            "a rate that is known by half, half of 1728 s"
        );
        assert!((rough.waiting_part.high - 0.009).abs() < 1e-9);
        let short = Traffic { short_connections_per_s: 5_000.0, ..Traffic::default() };
        assert!(super::saving(&short, 1, &costs).worth_it, "a short connection counts as one round trip");
        let around_zero = Range { low: -1.0, high: 9.0 };
        let costs = Costs { cpu_us_per_request: around_zero, us_per_round_trip: around_zero, ..NOTHING };
        let doubtful = super::saving(&traffic, 1, &costs);
        assert!(!doubtful.worth_it && doubtful.undecided);
        assert!(Costs::of(&[], &[]).is_none());
    }

    #[test]
    fn another_program_makes_the_ranges_wider() {
        let around_zero = Range { low: -1.0, high: 9.0 };
        let costs = Costs { cpu_us_per_request: around_zero, us_per_round_trip: around_zero, ..NOTHING };
        let half = Measured { tcp: 20.0, ratio_low: 0.5, ratio_high: 0.6 };
        let none = Measured { tcp: 10.0, ratio_low: 0.95, ratio_high: 1.05 };
        let wide = costs.of_shape(half, none);
        // Half of 8 and of 10 µs, which is more than 12 % of 20 µs.
        assert!((wide.cpu_us_per_request.low - 4.0).abs() < 1e-9, "{wide:?}");
        assert!((wide.cpu_us_per_request.high - 15.0).abs() < 1e-9, "{wide:?}");
        let own = costs.of_own_program(half, none);
        // A quarter of 8 and of 10 µs, and of ±0.5 µs.
        assert!((own.cpu_us_per_request.low - 6.0).abs() < 1e-9, "{own:?}");
        assert!((own.cpu_us_per_request.high - 12.5).abs() < 1e-9, "{own:?}");
        assert!((own.us_per_round_trip.low + 0.625).abs() < 1e-9, "{own:?}");
        // A saving of zero has an error of 12 % of a round trip's time; the range of time is widened as well.
        assert!((wide.us_per_round_trip.low + 1.7).abs() < 1e-9, "{wide:?}");
        assert!((wide.us_per_round_trip.high - 1.7).abs() < 1e-9, "{wide:?}");
    }

    #[test]
    fn what_may_lose_in_one_way_is_not_worth_it_for_the_other() {
        let traffic = Traffic { round_trips_per_s: 10_000.0, busy_connections: 1, ..Traffic::default() };
        // 10,000/s × 2 µs is 2 % of a CPU, or of a connection's time.
        assert_eq!(prediction(&traffic, 1, (2.0, 4.0), (0.0, 3.0)), (true, false));
        assert_eq!(prediction(&traffic, 1, (2.0, 4.0), (-0.1, 3.0)), (false, true), "it may wait longer");
        assert_eq!(
            prediction(&traffic, 1, (-0.1, 4.0), (2.0, 3.0)),
            (false, true),
            "it may take more CPU time"
        );
        assert_eq!(
            prediction(&traffic, 1, (2.0, 4.0), (-3.0, -2.0)),
            (false, true),
            "it waits longer for certain"
        );
        assert_eq!(prediction(&traffic, 1, (-4.0, -2.0), (-3.0, -2.0)), (false, false));
    }

    fn prediction(traffic: &Traffic, connections: u32, cpu: (f64, f64), time: (f64, f64)) -> (bool, bool) {
        let cpu_us_per_request = Range { low: cpu.0, high: cpu.1 };
        let us_per_round_trip = Range { low: time.0, high: time.1 };
        let saving =
            saving(traffic, connections, &Costs { cpu_us_per_request, us_per_round_trip, ..NOTHING });
        (saving.worth_it, saving.undecided)
    }

    #[test]
    fn worth_it_needs_the_whole_range() {
        let traffic = Traffic { round_trips_per_s: 1000.0, busy_connections: 100, ..Traffic::default() };
        // 1,000/s × 5 µs is half a percent of a CPU, the threshold.
        assert_eq!(prediction(&traffic, 100, (5.0, 9.0), (5.0, 9.0)), (true, false));
        assert_eq!(
            prediction(&traffic, 100, (0.1, 5.0), (0.1, 5.0)),
            (false, true),
            "most of that range is not worth it"
        );
        assert_eq!(prediction(&traffic, 100, (0.1, 4.0), (0.1, 4.0)), (false, false));
    }
}

#[cfg(test)]
mod shape_tests {
    use samehost_model::scan::{Possible, Traffic};

    use super::*;

    fn shape_of(round_trips_per_s: f64, server: Option<f64>) -> Option<Shape> {
        let traffic = Traffic {
            bytes_per_s: round_trips_per_s * 400.0,
            round_trips_per_s,
            busy_connections: 8,
            client_cpu_us_per_request: Some(10.0),
            server_cpu_us_per_request: server,
            ..Traffic::default()
        };
        let advice = Advice {
            service: 0,
            client: String::new(),
            client_pids: vec![],
            now: String::new(),
            members: vec![],
            connections: 8,
            unseen: 0,
            socket: None,
            possible: Possible::Now,
            obstacles: vec![],
            traffic: Some(traffic),
            saving: None,
        };
        shape(&Scan::default(), &advice)
    }

    #[test]
    fn a_pair_that_keeps_less_than_a_cpu_busy_has_one_request_under_way() {
        let busy = shape_of(50_000.0, Some(30.0)).unwrap();
        assert_eq!((busy.connections, busy.size_bytes, busy.server), (8, 200, "epoll"));
        assert_eq!(shape_of(10_000.0, Some(30.0)).unwrap().connections, 1);
        assert!(shape_of(10.0, Some(30.0)).is_none(), "too quiet");
        assert!(shape_of(50_000.0, None).is_none(), "nothing known of the CPU time");
    }
}
