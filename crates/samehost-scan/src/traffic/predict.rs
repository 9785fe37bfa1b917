//! Predicts what a switch saves: observed traffic × what a request cost over each transport in the last checkup of this machine. Pure;
//! the arithmetic is explained in docs/method.md, section 14.

use samehost_model::Comparison;
use samehost_model::scan::{Possible, Price, Prices, Range, Saving, Scan, Traffic};
use samehost_services::Kind;

/// Smallest saving of CPU time that is worth a change, as a fraction of one CPU.
/// A switch is worth it when the whole range of the CPU time is above this, or the whole range of the
/// waiting time above [`WAIT_THRESHOLD`], and neither reaches below zero. Where only a part of a range is
/// above, the answer is that it cannot be told, with both ends. So `worth_it` never stands beside a range
/// from loss to gain (docs/method.md §14).
const CPU_THRESHOLD: f64 = 0.005;
/// Smallest saving of a connection's waiting time that is worth a change, as a fraction.
const WAIT_THRESHOLD: f64 = 0.01;
/// Error of a price that another program was measured for, as a fraction of the saving, or [`OF_COST`] of the
/// cost over TCP where that is more. The interval of a measurement says nothing about how alike two programs
/// are. The error is that of comparisons with real servers: what is wrong by some microseconds is wrong by them
/// where little is saved, too (Redis saved 0.2 µs, a server that replies at once 4.6 µs). Playing each observed
/// service, with its messages, connections and threads, did no better than this, and took up to 15 s of every
/// observation (docs/decisions/0094, docs/method.md §14).
const OF_SAVING: f64 = 0.5;
const OF_COST: f64 = 0.12;
/// The same, as a fraction of the saving, where a server of the pair's own kind was measured. What still differs
/// are the requests and their client: `pgbench -S` with eight connections saved 10.3 µs, and its own program
/// said 7.1 to 14.5 (docs/decisions/0094).
const OF_OWN_SAVING: f64 = 0.25;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// What was measured of one metric over both transports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Microseconds.
    tcp: f64,
    ratio_low: f64,
    ratio_high: f64,
}

/// For whom a price is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceFor {
    /// Any program: the transport alone was measured.
    AnyProgram,
    /// Programs of the kind that was measured.
    ItsKind,
}

impl Measured {
    /// What a comparison of TCP with a Unix socket says, if it has an interval.
    #[must_use]
    pub fn in_comparison(comparison: &Comparison) -> Option<Self> {
        Some(Measured {
            tcp: comparison.baseline_value,
            ratio_low: comparison.ci_low?,
            ratio_high: comparison.ci_high?,
        })
    }

    /// Range of the saving, wider by what the program that was measured may differ from the one that pays.
    fn saving(self, of: PriceFor) -> Range {
        let (low, high) = (self.tcp * (1.0 - self.ratio_high), self.tcp * (1.0 - self.ratio_low));
        let error = |bound: f64| match of {
            PriceFor::AnyProgram => (OF_SAVING * bound.abs()).max(OF_COST * self.tcp),
            PriceFor::ItsKind => OF_OWN_SAVING * bound.abs(),
        };
        Range { low: low - error(low), high: high + error(high) }
    }
}

/// A price from CPU times at several numbers of connections and from the latency of one: ranges that span all of them. `None` where
/// either was not measured.
#[must_use]
pub fn price(cpu: &[Measured], latency: &[Measured], of: PriceFor) -> Option<Price> {
    Some(Price { cpu_us: span(cpu, of)?, us: span(latency, of)? })
}

fn span(measured: &[Measured], of: PriceFor) -> Option<Range> {
    let ranges = measured.iter().map(|one| one.saving(of));
    ranges.reduce(|a, b| Range { low: a.low.min(b.low), high: a.high.max(b.high) })
}

/// Fills in what a switch saves in each piece of advice that has traffic, whatever obstacles there are.
pub fn predict(scan: &mut Scan, prices: &Prices) {
    for advice in &mut scan.advice {
        if advice.possible == Possible::Tool {
            continue;
        }
        let kind = scan.services.get(advice.service).and_then(|service| service.kind);
        let costs = Costs::of_kind(prices, kind);
        let connections = advice.connections;
        advice.saving = advice.traffic.map(|traffic| saving(&traffic, connections, &costs));
    }
    scan.priced_at = Some(prices.at.clone());
}

/// What a pair pays.
struct Costs {
    request: Price,
    /// For a connection that asks once.
    connection: Option<Price>,
}

impl Costs {
    fn of_kind(prices: &Prices, kind: Option<Kind>) -> Self {
        let family = kind.map(|kind| kind.family().name()).unwrap_or_default();
        Costs {
            request: prices.requests.get(family).copied().unwrap_or(prices.request),
            connection: prices.connections.get(family).copied().or(prices.connection),
        }
    }
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

/// What a short connection with this many round trips saves: a connection that asks once, and what the others save.
fn of_short(costs: &Costs, round_trips: f64) -> Price {
    let request = costs.request;
    let Some(connection) = costs.connection else {
        return Price { cpu_us: scale(request.cpu_us, round_trips), us: scale(request.us, round_trips) };
    };
    let more = (round_trips - 1.0).max(0.0);
    Price {
        cpu_us: add(connection.cpu_us, scale(request.cpu_us, more)),
        us: add(connection.us, scale(request.us, more)),
    }
}

fn saving(traffic: &Traffic, connections: u32, costs: &Costs) -> Saving {
    let (long, short) = (traffic.round_trips_per_s, traffic.short_connections_per_s);
    let each = match traffic.short {
        Some(all) if short > 0.0 => all.round_trips_per_s / short,
        _ => 1.0,
    };
    let of_short = of_short(costs, each.max(1.0));
    let busy = f64::from(traffic.busy_connections.max(1));
    let at_once = f64::from(connections.max(traffic.busy_connections).max(1));
    let of_rate = |range, per_s: f64| scale_roughly(range, per_s * 1e-6, traffic.rate_error);
    let cpu_part = add(of_rate(costs.request.cpu_us, long), of_rate(of_short.cpu_us, short));
    let waiting_part = add(of_rate(costs.request.us, long / busy), of_rate(of_short.us, short / at_once));
    // Nobody saves more than all of the time.
    let waiting_part = Range { low: waiting_part.low.min(1.0), high: waiting_part.high.min(1.0) };
    let known = traffic.short.is_some() && short > 0.0;
    let reaches = [(cpu_part, CPU_THRESHOLD), (waiting_part, WAIT_THRESHOLD)];
    // One range must lie above its threshold, and none may reach below zero: who saves CPU time for certain and may
    // wait longer for it is told both ranges, and decides. Before, one range was enough, so that `worth_it` stood
    // beside a range from loss to gain.
    let is_above = reaches.iter().any(|(part, threshold)| part.low >= *threshold);
    let may_lose = reaches.iter().any(|(part, _)| part.low < 0.0);
    let worth_it = is_above && !may_lose;
    let uncounted = traffic.uncounted_connections_per_s > 0.0;
    Saving {
        uncounted,
        cpu_us_per_request: costs.request.cpu_us,
        cpu_s_per_day: scale(cpu_part, SECONDS_PER_DAY),
        us_per_round_trip: costs.request.us,
        cpu_us_per_short_connection: known.then_some(of_short.cpu_us),
        us_per_short_connection: known.then_some(of_short.us),
        waiting_part,
        // What is in no count may be this pair's: that it is not worth it cannot be said then.
        undecided: !worth_it
            && (uncounted || reaches.iter().any(|(part, threshold)| part.high >= *threshold)),
        worth_it,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(low: f64, high: f64) -> Range {
        Range { low, high }
    }

    fn costs(cpu_us: Range, us: Range) -> Costs {
        Costs { request: Price { cpu_us, us }, connection: None }
    }

    #[test]
    fn the_arithmetic_of_the_method() {
        let one = Measured { tcp: 20.0, ratio_low: 0.5, ratio_high: 0.6 };
        let many = Measured { tcp: 10.0, ratio_low: 0.7, ratio_high: 0.8 };
        let range = span(&[one, many], PriceFor::ItsKind).unwrap();
        // 2 to 10 µs, wider by a quarter of each.
        assert!((range.low - 1.5).abs() < 1e-9 && (range.high - 12.5).abs() < 1e-9, "{range:?}");
        assert!(price(&[one], &[], PriceFor::ItsKind).is_none());
        let costs = costs(bounds(2.0, 10.0), bounds(3.0, 6.0));
        let traffic = Traffic { round_trips_per_s: 10_000.0, busy_connections: 10, ..Traffic::default() };
        let saving = saving(&traffic, 1, &costs);
        // 10,000/s × 2 µs = 2 % of a CPU: 1728 s a day.
        assert!((saving.cpu_s_per_day.low - 1728.0).abs() < 1e-6);
        // 1,000/s on each connection × 3 to 6 µs.
        assert!((saving.waiting_part.high - 0.006).abs() < 1e-9);
        assert!(saving.worth_it);
        let idle = Traffic { round_trips_per_s: 10.0, busy_connections: 1, ..Traffic::default() };
        let uncounted = Traffic { uncounted_connections_per_s: 100.0, ..idle };
        let idle = super::saving(&idle, 1, &costs);
        assert!(!idle.worth_it && !idle.undecided);
        let uncounted = super::saving(&uncounted, 1, &costs);
        assert!(!uncounted.worth_it && uncounted.undecided && uncounted.uncounted);
        let rough = Traffic { rate_error: 0.5, ..traffic };
        let rough = super::saving(&rough, 1, &costs);
        assert!(
            (rough.cpu_s_per_day.low - 864.0).abs() < 1e-6,
            "a rate that is known by half, half of 1728 s"
        );
        assert!((rough.waiting_part.high - 0.009).abs() < 1e-9);
        let short = Traffic { short_connections_per_s: 5_000.0, ..Traffic::default() };
        assert!(super::saving(&short, 1, &costs).worth_it, "a short connection counts as one round trip");
        let doubtful = self::costs(bounds(-1.0, 9.0), bounds(-1.0, 9.0));
        let doubtful = super::saving(&traffic, 1, &doubtful);
        assert!(!doubtful.worth_it && doubtful.undecided);
        let crowded = Traffic { round_trips_per_s: 1e6, busy_connections: 1, ..Traffic::default() };
        let crowded = super::saving(&crowded, 1, &costs);
        assert_eq!(crowded.waiting_part, bounds(1.0, 1.0), "nobody saves more than all of the time");
    }

    #[test]
    fn another_program_makes_the_ranges_wider() {
        let half = Measured { tcp: 20.0, ratio_low: 0.5, ratio_high: 0.6 };
        let none = Measured { tcp: 10.0, ratio_low: 0.95, ratio_high: 1.05 };
        let price_for = |of| price(&[half], &[none], of).unwrap();
        let is_near = |range: Range, low: f64, high: f64| {
            assert!((range.low - low).abs() < 1e-9 && (range.high - high).abs() < 1e-9, "{range:?}");
        };
        // Half of 8 and of 10 µs, which is more than 12 % of 20 µs.
        is_near(price_for(PriceFor::AnyProgram).cpu_us, 4.0, 15.0);
        // A saving of zero has an error of 12 % of a round trip's time.
        is_near(price_for(PriceFor::AnyProgram).us, -1.7, 1.7);
        // A quarter of 8 and of 10 µs, and of ±0.5 µs.
        is_near(price_for(PriceFor::ItsKind).cpu_us, 6.0, 12.5);
        is_near(price_for(PriceFor::ItsKind).us, -0.625, 0.625);
    }

    #[test]
    fn a_pair_pays_the_price_of_its_kind_and_a_short_connection_that_of_its_own() {
        let exactly = |us: f64| Price { cpu_us: bounds(us, us), us: bounds(us, us) };
        let prices = Prices {
            request: exactly(1.0),
            connection: Some(exactly(10.0)),
            requests: [("redis".to_owned(), exactly(3.0))].into(),
            connections: [("php-fpm".to_owned(), exactly(30.0))].into(),
            ..Prices::default()
        };
        let of_kind = |kind, round_trips| of_short(&Costs::of_kind(&prices, kind), round_trips).us.low;
        assert_eq!(Costs::of_kind(&prices, Some(Kind::Valkey)).request, exactly(3.0), "it is like Redis");
        assert_eq!(Costs::of_kind(&prices, Some(Kind::Nginx)).request, exactly(1.0));
        assert_eq!(of_kind(Some(Kind::PhpFpm), 1.0), 30.0);
        assert_eq!(of_kind(Some(Kind::Redis), 3.0), 16.0, "a connection, and two requests more");
        assert_eq!(of_kind(None, 1.0), 10.0);
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
        let costs = costs(bounds(cpu.0, cpu.1), bounds(time.0, time.1));
        let saving = saving(traffic, connections, &costs);
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
