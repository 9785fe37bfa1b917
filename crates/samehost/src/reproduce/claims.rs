//! Judges a claim by a report: finds the figure that answers it, and applies the verdict from `samehost-stats`.

use std::collections::BTreeMap;

use samehost_analysis::{Index, Judged, compare_arms, judge_alone, judge_ratio, judge_value};
use samehost_model::human::format_ratio;
use samehost_model::{
    Arm, ClaimOutcome, Comparison, Expected, Here, Judgement, LimitedBy, MetricInfo, Point, Report, Stopping,
    Transport,
};
use samehost_stats::{Asked, estimate, estimate_sequential};

use crate::reproduce::congestion::not_comparable;
use crate::reproduce::published::{At, Claim, Find};

pub fn not_measured(claim: &Claim) -> ClaimOutcome {
    ClaimOutcome {
        claim: claim.text.into(),
        published: claim.published.into(),
        expected: claim.expected,
        here: None,
        judgement: Judgement::NotMeasured,
        size: None,
        why: String::new(),
    }
}

/// Judges a claim by the experiment's reports: the first that answers it, or all of them together.
pub fn judge(claim: &Claim, reports: &[&Report]) -> ClaimOutcome {
    let outcome = match claim.find {
        Find::Works => Some(works(claim, reports)),
        _ => reports.iter().find_map(|report| by_figure(claim, report)),
    };
    outcome.unwrap_or_else(|| ClaimOutcome {
        judgement: Judgement::CannotTell,
        why: "nothing was measured that answers it".into(),
        ..not_measured(claim)
    })
}

fn by_figure(claim: &Claim, report: &Report) -> Option<ClaimOutcome> {
    match &claim.find {
        Find::Transports { metric, at } => {
            let found = transports(report, metric).into_iter().find(|found| at.is(&found.point))?;
            Some(answer(claim, found, report))
        }
        Find::Peak { metric } => Some(answer(claim, peak(report, metric)?, report)),
        Find::EveryPoint { metric } => every_point(claim, report, metric),
        Find::Points { metric, transport, from, to } => {
            let found = points(report, metric, (*transport, from), (*transport, to))?;
            Some(answer(claim, &found, report))
        }
        Find::Between { metric, from, to, at } => {
            let found = points(report, metric, (*from, at), (*to, at))?;
            Some(answer(claim, &found, report))
        }
        Find::Share { part, whole, transport } => judge_share(claim, report, part, whole, *transport),
        Find::Busy => judge_busy(claim, report),
        Find::Works => None,
    }
}

impl At {
    pub fn is(&self, point: &Point) -> bool {
        if self.connections.is_some_and(|connections| connections != point.connections) {
            return false;
        }
        if self.size.is_some_and(|size| point.size_bytes != Some(size)) {
            return false;
        }
        for (name, value) in &self.parameters {
            if point.parameters.get(*name).is_none_or(|found| found != value) {
                return false;
            }
        }
        true
    }
}

pub fn is_tcp_to_unix(found: &Comparison, report: &Report) -> bool {
    let (Some(from), Some(to)) = (report.arm(&found.baseline), report.arm(&found.candidate)) else {
        return false;
    };
    from.transport == Transport::Tcp && to.transport == Transport::Unix
}

/// Unix socket ÷ TCP of a metric, at each point.
fn transports<'a>(report: &'a Report, metric: &str) -> Vec<&'a Comparison> {
    let mut found = Vec::new();
    for comparison in &report.analysis.comparisons {
        if comparison.metric == metric && is_tcp_to_unix(comparison, report) {
            found.push(comparison);
        }
    }
    found
}

/// Comparison at the point where the product of both transports is largest. Choosing the maximum of a single
/// arm would bias the ratio towards that arm's random deviation.
fn peak<'a>(report: &'a Report, metric: &str) -> Option<&'a Comparison> {
    transports(report, metric).into_iter().max_by(|one, other| product(one).total_cmp(&product(other)))
}

fn product(found: &Comparison) -> f64 {
    found.baseline_value * found.candidate_value
}

fn points(report: &Report, metric: &str, from: (Transport, &At), to: (Transport, &At)) -> Option<Comparison> {
    let metric = metric_of(report, metric)?;
    compare_arms(report, metric, arm_at(report, from)?, arm_at(report, to)?)
}

fn arm_at<'a>(report: &'a Report, (transport, at): (Transport, &At)) -> Option<&'a Arm> {
    report.head.arms.iter().find(|arm| arm.transport == transport && at.is(&arm.point))
}

fn metric_of<'a>(report: &'a Report, name: &str) -> Option<&'a MetricInfo> {
    report.head.workload.metrics.iter().find(|metric| metric.name == name)
}

fn answer(claim: &Claim, found: &Comparison, report: &Report) -> ClaimOutcome {
    if let Some(why) = not_comparable(found, report) {
        let here = Some(here(found, report));
        return ClaimOutcome { here, judgement: Judgement::CannotTell, why, ..not_measured(claim) };
    }
    let Judged { judgement, size, mut why } = judge_ratio(&claim.expected, found);
    if let Some(more) = against_tls(found, report) {
        if !why.is_empty() {
            why.push_str("; ");
        }
        why.push_str(&more);
    }
    ClaimOutcome { here: Some(here(found, report)), judgement, size, why, ..not_measured(claim) }
}

/// The name of an arm; its id, where the report has no such arm.
fn name_of<'a>(report: &'a Report, id: &'a str) -> &'a str {
    match report.arm(id) {
        Some(arm) => &arm.name,
        None => id,
    }
}

fn here(found: &Comparison, report: &Report) -> Here {
    let (above, below) = (name_of(report, &found.candidate), name_of(report, &found.baseline));
    let of = if above == below {
        format!("{} ÷ {}", found.candidate, found.baseline)
    } else {
        format!("{above} ÷ {below}")
    };
    Here {
        of,
        metric: found.metric.clone(),
        value: found.ratio,
        low: found.ci_low,
        high: found.ci_high,
        unit: String::new(),
        blocks: found.blocks,
    }
}

/// The same ratio against TCP with TLS, if there is such an arm at the same point.
fn against_tls(found: &Comparison, report: &Report) -> Option<String> {
    let metric = metric_of(report, &found.metric)?;
    let mut here = report.head.arms.iter().filter(|arm| arm.point == found.point);
    let encrypted = here.find(|arm| arm.transport == Transport::TcpTls)?;
    let plain = report.arm(&found.candidate)?;
    let ratio = compare_arms(report, metric, encrypted, plain)?;
    let interval = match (ratio.ci_low, ratio.ci_high) {
        (Some(low), Some(high)) => format!(" ({}–{})", format_ratio(low), format_ratio(high)),
        _ => String::new(),
    };
    Some(format!("against TCP with TLS: {} ×{interval}", format_ratio(ratio.ratio)))
}

/// A claim about all points: every point must agree. Returns the one that agrees least.
fn every_point(claim: &Claim, report: &Report, metric: &str) -> Option<ClaimOutcome> {
    // The claim requires that all points agree, so each is tested without adjustment: agreement of all by
    // chance is not likelier than agreement of one. A contradiction is searched for among all points, so its
    // p-value is adjusted.
    let mut agree = 0;
    let mut count = 0;
    let mut least: Option<(&Comparison, ClaimOutcome)> = None;
    for found in transports(report, metric) {
        let outcome = in_its_favour(claim, found, report);
        count += 1;
        agree += u32::from(outcome.judgement == Judgement::Holds);
        if least.as_ref().is_none_or(|(_, so_far)| agreement(&outcome) < agreement(so_far)) {
            least = Some((found, outcome));
        }
    }
    let (found, mut least) = least?;
    let place = found.baseline.split_once('/').map_or("", |(_, place)| place);
    let why = if least.why.is_empty() { String::new() } else { format!(": {}", least.why) };
    least.why = format!("it holds at {agree} of {count} points; least at {place}{why}");
    Some(least)
}

/// How much an outcome agrees with its claim: by its judgement, then by how far the ratio lies on the claim's side.
fn agreement(outcome: &ClaimOutcome) -> (u8, f64) {
    let rank = match outcome.judgement {
        Judgement::DoesNotHold => 0,
        Judgement::CannotTell | Judgement::NotMeasured => 1,
        Judgement::Holds => 2,
    };
    let Some(here) = &outcome.here else { return (rank, f64::INFINITY) };
    let claims_less = matches!(outcome.expected, Expected::Below | Expected::Ratio { high: ..=1.0, .. });
    (rank, if claims_less { -here.value.ln() } else { here.value.ln() })
}

/// The answer of a point: alone where that agrees and among all points does not contradict.
fn in_its_favour(claim: &Claim, found: &Comparison, report: &Report) -> ClaimOutcome {
    let adjusted = answer(claim, found, report);
    let alone = answer(claim, &judge_alone(report, found), report);
    if adjusted.judgement != Judgement::DoesNotHold && alone.judgement == Judgement::Holds {
        alone
    } else {
        adjusted
    }
}

/// Whether exchanges succeeded over every transport without errors.
fn works(claim: &Claim, reports: &[&Report]) -> ClaimOutcome {
    let mut points = Vec::new();
    let mut judgement = if reports.is_empty() { Judgement::CannotTell } else { Judgement::Holds };
    for report in reports {
        let mut counts = Vec::new();
        for arm in report.head.arms.iter().filter(|arm| arm.transport != Transport::None) {
            let (mut good, mut bad) = (0, 0);
            for trial in report.trials.iter().filter(|trial| trial.arm == arm.id) {
                good += trial.operations;
                bad += trial.error_count();
            }
            if bad > 0 {
                judgement = Judgement::DoesNotHold;
            } else if good == 0 && judgement == Judgement::Holds {
                judgement = Judgement::CannotTell;
            }
            counts.push(format!("{good} exchanges over {}, {bad} errors", arm.name));
        }
        points.push(format!("{}: {}", report.head.workload.server.kind, counts.join(", ")));
    }
    ClaimOutcome { judgement, why: points.join("; "), ..not_measured(claim) }
}

/// One time as a share of another: the median over blocks, with the signed-rank interval.
fn judge_share(
    claim: &Claim,
    report: &Report,
    part: &str,
    whole: &str,
    transport: Transport,
) -> Option<ClaimOutcome> {
    let Expected::Value { low, high } = claim.expected else { return None };
    let arm = report.head.arms.iter().find(|arm| arm.transport == transport)?;
    let index = Index::of_report(report);
    let parts = times(report, &index, arm, part)?;
    let wholes = times(report, &index, arm, whole)?;
    let mut percents = Vec::new();
    for (block, part) in &parts {
        let Some(whole) = wholes.get(block) else { continue };
        percents.push((100.0 * part / whole).ln());
    }
    let found = match report.head.plan.stopping {
        Stopping::Precision => estimate(&percents, report.head.plan.confidence)?,
        Stopping::Decision => {
            let asked = Asked { confidence: report.head.plan.confidence, limit: 0.0, multiplicity: 1.0 };
            estimate_sequential(&percents, &vec![None; percents.len()], &asked)?
        }
    };
    let Judged { judgement, size, why } = judge_value(low, high, &found);
    let here = Here {
        of: arm.name.clone(),
        metric: format!("{part} of {whole}"),
        value: found.ratio,
        low: found.interval.map(|interval| interval.low),
        high: found.interval.map(|interval| interval.high),
        unit: "percent".into(),
        blocks: found.n,
    };
    Some(ClaimOutcome { here: Some(here), judgement, size, why, ..not_measured(claim) })
}

/// The times of a metric in microseconds, by block. `None` where the report lacks the metric, or it is not a time.
fn times(report: &Report, index: &Index, arm: &Arm, name: &str) -> Option<BTreeMap<u32, f64>> {
    let metric = metric_of(report, name)?;
    let unit = microseconds(&metric.unit)?;
    let values = index.values(metric, &arm.id);
    Some(values.into_iter().map(|(block, value)| (block, unit * value)).collect())
}

fn microseconds(unit: &str) -> Option<f64> {
    match unit {
        "us" => Some(1.0),
        "ms" => Some(1e3),
        "s" => Some(1e6),
        _ => None,
    }
}

/// The claim that the client was the bottleneck: holds if it was in every condition, does not hold if it was in none.
fn judge_busy(claim: &Claim, report: &Report) -> Option<ClaimOutcome> {
    let all = &report.analysis.limits;
    if all.is_empty() {
        return None;
    }
    let (mut limited, mut least, mut most) = (0, f64::INFINITY, 0.0_f64);
    for limit in all {
        limited += usize::from(limit.by == LimitedBy::Client);
        least = least.min(100.0 * limit.client_cpus);
        most = most.max(100.0 * limit.client_cpus);
    }
    let judgement = match limited {
        0 => Judgement::DoesNotHold,
        some if some == all.len() => Judgement::Holds,
        _ => Judgement::CannotTell,
    };
    let why = format!(
        "the client used {least:.0} to {most:.0} % of a CPU here, and was the limit in {limited} of {} conditions",
        all.len()
    );
    Some(ClaimOutcome { judgement, why, ..not_measured(claim) })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use samehost_model::{EffectSize, Head, Host, Trial, WorkloadInfo, metric};

    /// A report of throughput at these numbers of connections: 100 over TCP, and `factor` times that over the
    /// Unix socket.
    pub fn report(factors: &[(u32, f64)]) -> Report {
        let mut arms = Vec::new();
        let mut trials = Vec::new();
        for (connections, factor) in factors {
            let point = Point { connections: *connections, ..Point::default() };
            for (transport, speed) in [(Transport::Tcp, 100.0), (Transport::Unix, 100.0 * factor)] {
                let id = format!("{transport}/c{connections}");
                arms.push(Arm {
                    id: id.clone(),
                    name: transport.to_string(),
                    transport,
                    endpoint: None,
                    tls: false,
                    capacity_per_s: None,
                    point: point.clone(),
                });
                for block in 0..12 {
                    let wobble = 1.0 + 0.001 * f64::from((block * 7 + connections) % 5);
                    let throughput_per_s = Some(speed * wobble * f64::from(*connections));
                    let trial = Trial {
                        arm: id.clone(),
                        block,
                        seconds: 1.0,
                        operations: 1000,
                        throughput_per_s,
                        ..Trial::default()
                    };
                    if transport == Transport::Tcp {
                        trials.push(Trial { control: true, ..trial.clone() });
                    }
                    trials.push(trial);
                }
            }
        }
        let mut report = Report::new(Head {
            seed: 1,
            host: Host { cpus: 4, cpus_allowed: 4, ..Host::default() },
            workload: WorkloadInfo { metrics: vec![metric::THROUGHPUT.info()], ..WorkloadInfo::default() },
            arms,
            ..Head::default()
        });
        report.trials = trials;
        samehost_analysis::analyse(&report).apply(&mut report);
        report
    }

    fn claim(expected: Expected, find: Find) -> Claim {
        Claim { text: "a claim", published: "1.5 ×", expected, find }
    }

    const UP_TO: Expected = Expected::Ratio { low: 1.0, high: 1.5 };
    const ONE: At = At { connections: Some(1), size: None, parameters: BTreeMap::new() };
    const EIGHT: At = At { connections: Some(8), size: None, parameters: BTreeMap::new() };

    #[test]
    fn a_claim_is_answered_at_its_point() {
        let report = report(&[(1, 1.2), (8, 0.8)]);
        let judged = |at| judge(&claim(UP_TO, Find::Transports { metric: "throughput", at }), &[&report]);
        let one = judged(ONE);
        assert_eq!((one.judgement, one.size), (Judgement::Holds, Some(EffectSize::Inside)), "{one:?}");
        assert_eq!(one.here.as_ref().unwrap().of, "unix ÷ tcp");
        assert_eq!(judged(EIGHT).judgement, Judgement::DoesNotHold);
        let nowhere = judged(At { connections: Some(3), ..ONE });
        assert_eq!((nowhere.judgement, nowhere.here), (Judgement::CannotTell, None));
        assert!(nowhere.why.contains("nothing was measured"));
    }

    #[test]
    fn every_point_has_to_agree() {
        let every = claim(UP_TO, Find::EveryPoint { metric: "throughput" });
        let all = judge(&every, &[&report(&[(1, 1.3), (2, 1.2), (8, 1.4)])]);
        assert_eq!(all.judgement, Judgement::Holds);
        assert!(all.why.starts_with("it holds at 3 of 3 points; least at c2"), "{}", all.why);
        let not_all = judge(&every, &[&report(&[(1, 1.3), (2, 0.7), (8, 1.4)])]);
        assert_eq!(not_all.judgement, Judgement::DoesNotHold);
        assert!(not_all.why.starts_with("it holds at 2 of 3 points; least at c2"), "{}", not_all.why);
        let below = claim(Expected::Below, Find::EveryPoint { metric: "throughput" });
        let least = judge(&below, &[&report(&[(1, 0.7), (2, 0.9)])]);
        assert!(least.why.contains("least at c2"), "{}", least.why);
    }

    #[test]
    fn the_peak_is_where_both_do_most() {
        let report = report(&[(1, 1.3), (8, 1.1), (2, 1.4)]);
        let peak = judge(&claim(UP_TO, Find::Peak { metric: "throughput" }), &[&report]).here.unwrap();
        assert!((peak.value - 1.1).abs() < 0.01, "{peak:?}");
    }

    #[test]
    fn points_are_held_against_each_other() {
        let report = report(&[(1, 1.0), (8, 1.0)]);
        let find = Find::Points { metric: "throughput", transport: Transport::Unix, from: ONE, to: EIGHT };
        let more = judge(&claim(Expected::AtLeast { ratio: 7.0 }, find.clone()), &[&report]);
        assert_eq!(more.judgement, Judgement::Holds, "{more:?}");
        assert_eq!(judge(&claim(Expected::Below, find), &[&report]).judgement, Judgement::DoesNotHold);
    }

    #[test]
    fn transports_are_held_against_each_other_whichever_is_the_baseline() {
        let report = report(&[(1, 1.25), (8, 1.0)]);
        let between = |from, to, at| Find::Between { metric: "throughput", from, to, at };
        let (tcp, unix) = (Transport::Tcp, Transport::Unix);
        let less = judge(&claim(Expected::Below, between(unix, tcp, ONE)), &[&report]);
        assert_eq!(less.judgement, Judgement::Holds, "{less:?}");
        let here = less.here.unwrap();
        assert!(here.of == "tcp ÷ unix" && (here.value - 0.8).abs() < 0.01, "{here:?}");
        let same = |at| judge(&claim(Expected::Same, between(unix, tcp, at)), &[&report]).judgement;
        assert_eq!((same(ONE), same(EIGHT)), (Judgement::DoesNotHold, Judgement::Holds));
        let none = judge(&claim(Expected::Same, between(unix, Transport::TcpRun, ONE)), &[&report]);
        assert_eq!(none.judgement, Judgement::CannotTell);
    }

    #[test]
    fn a_share_is_a_percentage_of_the_whole_in_one_unit() {
        let mut report = report(&[(1, 1.0)]);
        let metrics = &mut report.head.workload.metrics;
        metrics.push(MetricInfo::own("query_ms", "ms", samehost_model::Better::Lower));
        metrics.push(MetricInfo::own("page_us", "us", samehost_model::Better::Lower));
        for trial in &mut report.trials {
            let wobble = 1.0 + 0.01 * f64::from(trial.block % 3);
            trial.measurements.insert("query_ms".into(), 5.0 * wobble);
            trial.measurements.insert("page_us".into(), 100_000.0);
        }
        let find = Find::Share { part: "query_ms", whole: "page_us", transport: Transport::Tcp };
        let judged = |low, high| judge(&claim(Expected::Value { low, high }, find.clone()), &[&report]);
        let found = judged(3.0, 6.0);
        assert_eq!(found.judgement, Judgement::Holds, "{found:?}");
        let here = found.here.unwrap();
        assert!((here.value - 5.05).abs() < 0.06 && here.unit == "percent", "{here:?}");
        assert_eq!(judged(10.0, 20.0).judgement, Judgement::DoesNotHold);
    }

    #[test]
    fn works_counts_errors_in_either() {
        let mut report = report(&[(1, 1.0)]);
        let works = claim(Expected::Works, Find::Works);
        assert_eq!(judge(&works, &[&report]).judgement, Judgement::Holds);
        report.trials[0].errors.insert("closed".into(), 1);
        assert_eq!(judge(&works, &[&report]).judgement, Judgement::DoesNotHold);
        report.trials.clear();
        assert_eq!(judge(&works, &[&report]).judgement, Judgement::CannotTell);
    }
}

#[cfg(test)]
mod busy_tests {
    use samehost_model::Limit;

    use super::*;

    fn report(limits: &[(LimitedBy, f64)]) -> Report {
        let limits = limits.iter().enumerate().map(|(arm, (by, client_cpus))| Limit {
            arm: arm.to_string(),
            by: *by,
            client_cpus: *client_cpus,
            proxy_cpus: 0.25,
            server_cpus: 0.5,
        });
        let mut report = tests::report(&[(1, 1.0)]);
        report.analysis.limits = limits.collect();
        report
    }

    #[test]
    fn the_client_was_the_limit_in_all_conditions_or_in_none() {
        let claim = Claim {
            text: "the client was the limit",
            published: "~ 100 %",
            expected: Expected::ClientLimit,
            find: Find::Busy,
        };
        let judgement =
            |limits: &[(LimitedBy, f64)]| judge_busy(&claim, &report(limits)).map(|found| found.judgement);
        let (client, waiting) = ((LimitedBy::Client, 0.99), (LimitedBy::Waiting, 0.2));
        assert_eq!(judgement(&[client, client]), Some(Judgement::Holds));
        assert_eq!(judgement(&[waiting, (LimitedBy::Server, 0.3)]), Some(Judgement::DoesNotHold));
        assert_eq!(judgement(&[client, waiting]), Some(Judgement::CannotTell));
        assert_eq!(judgement(&[]), None);
        let why = judge_busy(&claim, &report(&[client, waiting])).unwrap().why;
        assert!(why.contains("20 to 99 % of a CPU") && why.contains("1 of 2 conditions"), "{why}");
    }
}
