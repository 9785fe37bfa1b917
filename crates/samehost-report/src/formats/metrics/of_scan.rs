//! The metrics of a scan. Labels have few values: kinds of services that samehost knows, transports, kinds of findings;
//! never a process, a client's port or a path.

use std::collections::BTreeMap;

use samehost_model::FindingCode;
use samehost_model::scan::{
    Advice, EXCHANGE_BOUNDS_US, ExchangeMode, Inventory, PairExchanges, Possible, Range, Scan,
};
use samehost_model::switch::SwitchHealth;

use super::MetricUnit::{Number, PerSecond, Ratio, Seconds};
use super::{Distribution, Metric, MetricKind, Sample};

const SERVICE: &str = "samehost.service";
/// OpenTelemetry's name; its values are `tcp` and `unix` here.
const TRANSPORT: &str = "network.transport";
/// Services that are not known by name share this one. With names of processes as values whoever starts programs could make as many
/// series as he likes (docs/decisions/0101).
const OTHER: &str = "other";
const SECONDS_PER_DAY: f64 = 86_400.0;

#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub scan: &'a Scan,
    /// The same in names that stay.
    pub inventory: &'a Inventory,
    /// None where it could not be read.
    pub switches: Option<&'a SwitchHealth>,
    /// Number of hops that are not as a file expects, by service; none without a file.
    pub unexpected: Option<&'a BTreeMap<String, u32>>,
}

/// Metrics of a scan that began at `unix_seconds` (since 1970) and took `seconds`. Without anything found they say that it failed.
/// Switches are counted, and their ids are not labels (docs/decisions/0101). Where the journal of switches could not be read, or no file of
/// expectations was given, their metrics are left out and not 0.
#[must_use]
pub fn metrics_of_scan(
    version: &str,
    unix_seconds: f64,
    seconds: f64,
    found: Option<&Found<'_>>,
) -> Vec<Metric> {
    let is_found = if found.is_some() { 1.0 } else { 0.0 };
    let build = Sample { labels: vec![("version", version.to_owned())], value: 1.0 };
    let mut metrics = vec![
        Metric::gauge("samehost.build.info", Number, vec![build]).help("The version of samehost."),
        Metric::gauge("samehost.scan.success", Number, Sample::alone(is_found))
            .help("Whether the last scan succeeded."),
        Metric::gauge("samehost.scan.timestamp", Seconds, Sample::alone(unix_seconds))
            .help("When the last scan began, since 1970."),
        Metric::gauge("samehost.scan.duration", Seconds, Sample::alone(seconds))
            .help("How long the last scan took."),
    ];
    if let Some(found) = found {
        let hidden = Sample::alone(found.scan.hidden.processes);
        metrics.push(
            Metric::gauge("samehost.scan.hidden_processes", Number, hidden)
                .help("Processes whose sockets the scan could not see."),
        );
        metrics.extend(hops(found.inventory));
        metrics.extend(could_switch(found.scan));
        metrics.extend(savings(found.scan));
        metrics.extend(exchanges(found.scan));
        metrics.push(findings(found.scan));
        metrics.push(dropped(found.scan));
        if let Some(health) = found.switches {
            metrics.extend(switches(health));
        }
        metrics.extend(found.unexpected.map(unexpected));
    }
    metrics
}

fn named(service: Option<&str>) -> String {
    service.unwrap_or(OTHER).to_owned()
}

fn service_of(scan: &Scan, service: usize) -> String {
    match scan.services.get(service).and_then(|service| service.kind) {
        Some(kind) => kind.name().to_owned(),
        None => named(None),
    }
}

/// Hops and their connections, by service and transport. A service that listens has both transports, so that 0 can be seen: a series
/// that only appears with its first hop has no increase.
fn hops(inventory: &Inventory) -> [Metric; 2] {
    let mut hops: BTreeMap<(String, &'static str), f64> = BTreeMap::new();
    let mut connections = BTreeMap::new();
    let listening = inventory.services.iter().map(|listening| &listening.service);
    for service in listening.chain(inventory.hops.iter().map(|hop| &hop.service)) {
        for transport in ["tcp", "unix"] {
            hops.insert((named(service.kind.as_deref()), transport), 0.0);
            connections.insert((named(service.kind.as_deref()), transport), 0.0);
        }
    }
    for hop in &inventory.hops {
        let transport = if hop.is_tcp() { "tcp" } else { "unix" };
        let key = (named(hop.service.kind.as_deref()), transport);
        *connections.entry(key.clone()).or_default() += f64::from(hop.connections);
        *hops.entry(key).or_default() += 1.0;
    }
    [
        Metric::gauge("samehost.hops", Number, by_service_and(TRANSPORT, hops))
            .help("Client programs connected to a service of the same host, by transport."),
        Metric::gauge("samehost.connections", Number, by_service_and(TRANSPORT, connections))
            .help("Connections of those client programs."),
    ]
}

fn by_service_and(
    label: &'static str,
    values: impl IntoIterator<Item = ((String, &'static str), f64)>,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for ((service, other), value) in values {
        samples.push(Sample { labels: vec![(SERVICE, service), (label, other.to_owned())], value });
    }
    samples
}

fn by_label(label: &'static str, values: impl IntoIterator<Item = (String, f64)>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (of, value) in values {
        samples.push(Sample { labels: vec![(label, of)], value });
    }
    samples
}

fn summed(values: impl Iterator<Item = (String, f64)>) -> Vec<Sample> {
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    for (service, value) in values {
        *all.entry(service).or_default() += value;
    }
    by_label(SERVICE, all)
}

/// Sums a value of advice over each service; services of whose advice none has a value are left out.
fn by_service(scan: &Scan, value: impl Fn(&Advice) -> Option<f64>) -> Vec<Sample> {
    summed(scan.advice.iter().filter_map(|advice| Some((service_of(scan, advice.service), value(advice)?))))
}

fn could_switch(scan: &Scan) -> [Metric; 2] {
    let mut all: BTreeMap<(String, &str), f64> = BTreeMap::new();
    for advice in &scan.advice {
        let possible = match advice.possible {
            Possible::Now => "now",
            Possible::AfterSetting => "after_setting",
            Possible::Unknown => "unknown",
            Possible::Cannot => "cannot",
            Possible::Tool => "tool",
        };
        *all.entry((service_of(scan, advice.service), possible)).or_default() += 1.0;
    }
    [
        Metric::gauge("samehost.tcp.hops", Number, by_service_and("samehost.possible", all)).help(
            "Client programs that use a service of the same host over TCP, by whether they could use a Unix socket.",
        ),
        Metric::gauge("samehost.hops.worth_switching", Number, by_service(scan, worth)).help(
            "Those of them whose predicted saving is worth a switch; only of a scan with --observe.",
        ),
    ]
}

fn worth(advice: &Advice) -> Option<f64> {
    let saving = advice.saving?;
    // Neither can be said of a pair that may have connections that nobody counted.
    if saving.uncounted && !saving.worth_it {
        return None;
    }
    Some(if saving.worth_it { 1.0 } else { 0.0 })
}

fn unexpected(found: &BTreeMap<String, u32>) -> Metric {
    Metric::gauge(
        "samehost.hops.unexpected",
        Number,
        summed(found.iter().map(|(service, number)| (service.clone(), f64::from(*number)))),
    )
    .help("Client programs that are connected over another transport than the file of --expect says.")
}

/// CPU cores that switches would save, by a part of each saving's range; what cannot be switched saves nothing.
fn saved_cores(scan: &Scan, part: fn(Range) -> f64) -> Vec<Sample> {
    by_service(scan, |advice| {
        if advice.possible >= Possible::Cannot {
            return None;
        }
        Some(part(advice.saving?.cpu_s_per_day) / SECONDS_PER_DAY)
    })
}

/// What switches would save, where traffic was observed: as cores, and under the names of before 0.2 as a ratio. The bounds are
/// metrics of their own, as a sum over a label with both would mean nothing (docs/decisions/0101).
fn savings(scan: &Scan) -> [Metric; 6] {
    let middle = saved_cores(scan, |range| f64::midpoint(range.low, range.high));
    let low = saved_cores(scan, |range| range.low);
    let high = saved_cores(scan, |range| range.high);
    [
        Metric::gauge("samehost.predicted_saving.cpu_cores", Number, middle.clone())
            .help("CPU cores that Unix sockets would save, predicted: the middle of the range."),
        Metric::gauge("samehost.predicted_saving.cpu_cores_low", Number, low.clone())
            .help("The lower bound of that range."),
        Metric::gauge("samehost.predicted_saving.cpu_cores_high", Number, high.clone())
            .help("The upper bound of that range."),
        Metric::gauge("samehost.predicted_saving.cpu", Ratio, middle)
            .help("CPU seconds per second that Unix sockets would save, predicted: the middle of the range."),
        Metric::gauge("samehost.predicted_saving.cpu_low", Ratio, low).help("The lower bound of that range."),
        Metric::gauge("samehost.predicted_saving.cpu_high", Ratio, high)
            .help("The upper bound of that range."),
    ]
}

/// Exchanges, by service and transport. A time that begins with the arrival has a name of its own: it is not to be compared
/// between transports.
fn exchanges(scan: &Scan) -> Vec<Metric> {
    let Some(exchanges) = &scan.exchanges else { return Vec::new() };
    let is_whole = exchanges.mode != Some(ExchangeMode::Arrivals);
    let (mean, p99) = if is_whole {
        ("samehost.exchange.duration", "samehost.exchange.duration_p99")
    } else {
        ("samehost.exchange.since_arrival", "samehost.exchange.since_arrival_p99")
    };
    let mut groups = Groups::new();
    for pair in exchanges.pairs.iter().filter(|pair| pair.exchanges_per_s > 0.0) {
        let transport = if pair.kind.is_unix() { "unix" } else { "tcp" };
        groups.entry((service_of(scan, pair.service), transport)).or_default().push(pair);
    }
    let name = if is_whole { "samehost.exchange.time" } else { "samehost.exchange.time_since_arrival" };
    let times = Metric::of(MetricKind::Histogram, name, Seconds, Vec::new())
        .help("Time until the first piece of a reply is read, of the last observation alone.");
    vec![
        Metric::gauge("samehost.exchange.rate", PerSecond, samples_of(&groups, per_s))
            .help("Requests with their replies; several commands in one write are one."),
        Metric::gauge(mean, Seconds, samples_of(&groups, mean_s))
            .help("Mean time until the first piece of a reply is read."),
        Metric::gauge(p99, Seconds, samples_of(&groups, longest_p99_s)).help("The longest p99 of a pair."),
        Metric::gauge("samehost.exchange.hop", Seconds, samples_of(&groups, hop_s))
            .help("Mean time of both ways, without waiting and work."),
        Metric { distributions: distributions(&groups), ..times },
    ]
}

fn distributions(groups: &Groups<'_>) -> Vec<Distribution> {
    let mut found = Vec::new();
    for ((service, transport), pairs) in groups {
        let mut one = Distribution {
            labels: vec![(SERVICE, service.clone()), (TRANSPORT, (*transport).to_owned())],
            bounds: EXCHANGE_BOUNDS_US.map(|bound| bound / MICROSECONDS).to_vec(),
            at_most: vec![0; EXCHANGE_BOUNDS_US.len()],
            ..Distribution::default()
        };
        for first in pairs.iter().filter_map(|pair| pair.first) {
            for (all, at_most) in one.at_most.iter_mut().zip(first.at_most) {
                *all += at_most;
            }
            one.count += first.count;
            one.sum += first.count as f64 * first.mean_us / MICROSECONDS;
        }
        if one.count > 0 {
            found.push(one);
        }
    }
    found
}

type Groups<'a> = BTreeMap<(String, &'static str), Vec<&'a PairExchanges>>;

fn samples_of(groups: &Groups<'_>, value: fn(&[&PairExchanges]) -> Option<f64>) -> Vec<Sample> {
    by_service_and(TRANSPORT, groups.iter().filter_map(|(of, pairs)| Some((of.clone(), value(pairs)?))))
}

const MICROSECONDS: f64 = 1e6;

fn per_s(pairs: &[&PairExchanges]) -> Option<f64> {
    Some(pairs.iter().map(|pair| pair.exchanges_per_s).sum())
}

fn mean_s(pairs: &[&PairExchanges]) -> Option<f64> {
    weighted(pairs.iter().filter_map(|pair| pair.first).map(|first| (first.count, first.mean_us)))
}

fn hop_s(pairs: &[&PairExchanges]) -> Option<f64> {
    weighted(pairs.iter().filter_map(|pair| pair.parts).map(|parts| (parts.count, parts.hop_us())))
}

fn longest_p99_s(pairs: &[&PairExchanges]) -> Option<f64> {
    let all = pairs.iter().filter_map(|pair| pair.first?.p99_us);
    all.max_by(f64::total_cmp).map(|longest| longest / MICROSECONDS)
}

/// The mean of means in microseconds by their numbers, in seconds; `None` without any.
fn weighted(means: impl Iterator<Item = (u64, f64)>) -> Option<f64> {
    let (mut number, mut sum) = (0, 0.0);
    for (count, mean) in means {
        number += count;
        sum += count as f64 * mean;
    }
    if number == 0 {
        return None;
    }
    Some(sum / number as f64 / MICROSECONDS)
}

/// Findings by kind. Kinds that are known begin at 0, so that the first finding is an increase.
fn findings(scan: &Scan) -> Metric {
    let mut numbers = Vec::new();
    for code in FindingCode::ALL {
        let number = scan.findings.iter().filter(|finding| finding.code == *code).count();
        numbers.push((code.to_string(), number as f64));
    }
    Metric::gauge("samehost.findings", Number, by_label("samehost.finding", numbers))
        .help("What the scan found worth knowing, by kind.")
}

fn dropped(scan: &Scan) -> Metric {
    let dropped = scan.dropped.iter().map(|one| (service_of(scan, one.service), f64::from(one.datagrams)));
    Metric::of(MetricKind::Counter, "samehost.datagrams.dropped", Number, summed(dropped))
        .help("Datagrams that a service dropped since it began, because its receive buffer was full.")
}

/// TCP coming back is two metrics: files that no longer say what a switch wrote, and client programs over TCP at services whose clients
/// a switch moved. The journal does not name the clients that moved, as most of a site's come and go, so the second counts others too;
/// an alert looks for more than in the week before (docs/decisions/0101).
fn switches(health: &SwitchHealth) -> [Metric; 5] {
    let states = health.states.iter().map(|(state, number)| (state.clone(), f64::from(*number)));
    let left = health.left_tcp.iter().map(|left| (named(left.service), f64::from(left.clients)));
    [
        Metric::gauge("samehost.switches", Number, by_label("samehost.state", states))
            .help("Switches in the journal, by state."),
        Metric::gauge("samehost.switches.drifted", Number, Sample::alone(health.drifted))
            .help("Switches in force of which a file does not say any more what they wrote."),
        Metric::gauge("samehost.switches.in_use", Number, Sample::alone(health.in_use)).help(
            "Switches in force whose application had a connection at the new place and none at the old one during the scan.",
        ),
        Metric::gauge("samehost.switches.not_followed", Number, Sample::alone(health.not_followed)).help(
            "Switches in force whose application had a connection at the old place and none at the new one during the scan.",
        ),
        Metric::gauge("samehost.switch.tcp_clients", Number, summed(left)).help(
            "Client programs over TCP at services from which a switch in force moved clients to Unix sockets.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{ExchangeTimes, Exchanges, SocketKind};

    use super::*;

    fn pair(kind: SocketKind, count: u64, mean_us: f64, p99_us: Option<f64>) -> PairExchanges {
        PairExchanges {
            client: "worker".to_owned(),
            kind,
            exchanges_per_s: 10.0,
            first: Some(ExchangeTimes {
                count,
                mean_us,
                p50_us: mean_us,
                p99_us,
                at_most: EXCHANGE_BOUNDS_US.map(|bound| if bound >= mean_us { count } else { 0 }),
            }),
            ..PairExchanges::default()
        }
    }

    fn values(mode: ExchangeMode) -> Vec<(&'static str, Vec<(String, f64)>)> {
        let pairs = vec![
            pair(SocketKind::Tcp, 300, 100.0, Some(500.0)),
            pair(SocketKind::Tcp6, 100, 300.0, Some(900.0)),
            pair(SocketKind::UnixStream, 10, 50.0, None),
        ];
        let exchanges = Exchanges { mode: Some(mode), pairs, ..Exchanges::default() };
        let scan = Scan { exchanges: Some(exchanges), ..Scan::default() };
        let mut all = Vec::new();
        for metric in super::exchanges(&scan) {
            let samples = metric.samples.iter().map(|one| (one.labels[1].1.clone(), one.value));
            all.push((metric.name, samples.collect()));
        }
        all
    }

    #[test]
    fn times_of_a_transport_are_one_histogram() {
        let pairs = vec![pair(SocketKind::Tcp, 300, 100.0, None), pair(SocketKind::Tcp6, 100, 300.0, None)];
        let exchanges =
            Exchanges { mode: Some(ExchangeMode::Entries), pairs, seconds: 10.0, ..Exchanges::default() };
        let scan = Scan { exchanges: Some(exchanges), ..Scan::default() };
        let metrics = super::exchanges(&scan);
        let metric = metrics.iter().find(|metric| metric.name == "samehost.exchange.time").unwrap();
        let [all] = metric.distributions.as_slice() else { panic!("{metric:?}") };
        assert_eq!((all.count, &all.at_most[2..6]), (400, &[0, 300, 300, 400][..]));
        assert!((all.sum - 0.06).abs() < 1e-12 && all.bounds[3] == 1e-4, "{all:?}");
    }

    #[test]
    fn times_of_a_service_are_weighted_and_none_without_a_beginning_has_the_others_name() {
        let values_of = values(ExchangeMode::Entries);
        let (tcp, unix) = ("tcp".to_owned(), "unix".to_owned());
        assert_eq!(values_of[0].1, [(tcp.clone(), 20.0), (unix.clone(), 10.0)]);
        assert_eq!(values_of[1], ("samehost.exchange.duration", vec![(tcp.clone(), 150e-6), (unix, 50e-6)]));
        assert_eq!(values_of[2].1, [(tcp, 900e-6)]);
        assert!(values_of[3].1.is_empty(), "no parts are known");
        let names: Vec<&str> = values(ExchangeMode::Arrivals).iter().map(|(name, _)| *name).collect();
        assert!(names.contains(&"samehost.exchange.since_arrival") && !names.contains(&values_of[1].0));
    }
}
