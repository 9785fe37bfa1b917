//! Issues of the requests: failed operations, percentiles that no trial has enough requests for, an open loop that sends
//! late or is due more than the server can do, warnings that the measuring side gave to single trials, and in an own
//! trial (`run --trial`) connections that went another way than they were drawn for, or were too few.

use std::collections::BTreeMap;
use std::time::Duration;

use samehost_model::human::{count, format_percent};
use samehost_model::{Arm, Code, DrawnConnections, Latency, MetricInfo, Point, Report, Warning, metric};
use samehost_stats::median;

use crate::index::{ArmTrials, Index};
use crate::issues::{Invalidates, Issue, reasons};
use crate::ladder::falls_short;

/// Percentiles that need many requests, and how many: ten beyond the percentile (docs/method.md, section 8).
const NEEDS: [(&str, f64); 2] = [(metric::LATENCY_P99.name, 1_000.0), (metric::LATENCY_P99_9.name, 10_000.0)];
/// Part of the needed requests that an advised trial has, since trials differ.
/// A percentile needs ten operations beyond it in each trial. Where trials have too few, the report names
/// the trial time that has enough, a fifth more than needed, and does not pool the requests of several
/// trials (docs/method.md §8).
const SPARE: f64 = 1.2;
/// Longest trial that is advised, in seconds.
const LONGEST_S: f64 = 60.0;

/// Length of a trial, in tenths of a second, that would have enough requests for this percentile at this point: a
/// thousand for p99 and ten thousand for p99.9, and a fifth more. `None` for another metric, where trials have enough,
/// and where it would take more than a minute.
#[must_use]
pub fn time_for_percentile(report: &Report, metric: &MetricInfo, point: &Point) -> Option<Duration> {
    time_at(report, &Index::of_report(report), metric, point)
}

fn time_at(report: &Report, index: &Index<'_>, metric: &MetricInfo, point: &Point) -> Option<Duration> {
    let (_, wanted) = NEEDS.iter().find(|(name, _)| *name == metric.name)?;
    let trial_s = report.head.plan.trial_s?;
    let fewest = fewest_requests(index, point)?;
    let needed_s = trial_s * SPARE * wanted / fewest;
    if fewest >= *wanted || needed_s > LONGEST_S {
        return None;
    }
    let tenths = (needed_s * 10.0).ceil() as u64;
    Some(Duration::from_millis(tenths * 100))
}

/// The median requests of a trial, of the arm of this point that has the fewest; `None` without latencies.
fn fewest_requests(index: &Index<'_>, point: &Point) -> Option<f64> {
    let mut fewest = f64::INFINITY;
    for trials in index.arms.iter().filter(|trials| trials.arm.point == *point) {
        let requests = trials.median(|trial| {
            let Latency { mean, .. } = trial.latency_us.as_ref()?;
            mean.map(|_| trial.operations as f64)
        });
        fewest = requests.unwrap_or(fewest).min(fewest);
    }
    if fewest.is_finite() && fewest > 0.0 { Some(fewest) } else { None }
}

/// One sentence for each percentile that is missing at some point, with the longest trial time that any point needs.
pub(crate) fn find_missing(report: &Report, index: &Index<'_>) -> Vec<Issue> {
    let mut issues = Vec::new();
    for metric in &report.head.workload.metrics {
        let mut longest: Option<(Duration, f64)> = None;
        for compared in index.groups.iter().filter(|group| !group.candidates.is_empty()) {
            let point = &compared.baseline.point;
            let Some(time) = time_at(report, index, metric, point) else { continue };
            let requests = fewest_requests(index, point).unwrap_or_default();
            if longest.is_none_or(|(known, _)| time > known) {
                longest = Some((time, requests));
            }
        }
        let Some((time, requests)) = longest else { continue };
        let message = format!(
            "{} is not compared everywhere: trials have about {} requests, which are too few; --trial-time {:?} has enough",
            metric.title(),
            count(requests.round() as u64),
            time
        );
        let warning = Warning::new(Code::NotMeasured, &metric.name, message);
        issues.push(Issue { arm: None, warning, invalidates: Invalidates::Nothing });
    }
    issues
}

/// Error rate above which no verdict is given and the errors become the headline.
/// A failure is quick. A full backlog made a Unix socket look ten times faster while 50,000 of its 65,000
/// replies were errors (502). Throughput counts checked replies alone, and a failed operation has no
/// latency, but a server that refuses has less to do for the others: more than one failure in a thousand,
/// in either arm, bars everything (docs/method.md §7).
const ERROR_RATE: f64 = 0.001;

pub(crate) fn find_errors(trials: &ArmTrials<'_>) -> Option<Issue> {
    let failed: u64 = trials.counted.iter().map(|s| s.error_count()).sum();
    let good: u64 = trials.counted.iter().map(|s| s.operations).sum();
    let tried = failed + good;
    if tried == 0 || failed as f64 <= ERROR_RATE * tried as f64 {
        return None;
    }
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, number) in trials.counted.iter().flat_map(|s| &s.errors) {
        *kinds.entry(kind).or_default() += number;
    }
    let mut kinds: Vec<_> = kinds.into_iter().filter(|(_, number)| *number > 0).collect();
    kinds.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    let kinds: Vec<String> =
        kinds.iter().map(|(kind, number)| format!("{kind}: {}", count(*number))).collect();
    let message = format!(
        "{} of {} operations of {} failed ({}; {}): a failure takes less time than a reply, so its speed means nothing",
        count(failed),
        count(tried),
        trials.arm.id,
        format_percent(failed as f64 / tried as f64),
        kinds.join(", ")
    );
    Some(Issue::about(trials.arm, Code::Errors, Invalidates::Everything, message))
}

/// Warnings of single trials, once per arm and code.
pub(crate) fn gather_said(trials: &ArmTrials<'_>) -> Vec<Issue> {
    let mut codes: Vec<Code> = trials.counted.iter().flat_map(|s| &s.warnings).map(|w| w.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let mut issues = Vec::new();
    for code in codes {
        let given: Vec<&Warning> =
            trials.counted.iter().filter_map(|s| s.warnings.iter().find(|w| w.code == code)).collect();
        let message = format!(
            "in {} of {} trials of {}: {}",
            given.len(),
            trials.counted.len(),
            trials.arm.id,
            reasons(given.iter().map(|w| w.message.as_str()))
        );
        issues.push(Issue::about(trials.arm, code, Invalidates::Nothing, message));
    }
    issues
}

/// Median lateness of the generator, as a fraction of the baseline's median latency, above which no
/// verdict is given about times. A generator that sends late measures itself. A tenth was tried first: on
/// a virtual machine the timers alone are late by an eighth of a database's latency, so nothing could be
/// measured there. Lateness is in both arms alike and moves a ratio towards 1, never away from it. The
/// limit is the baseline's for every arm, because with each arm's own latency the faster arm alone would
/// lose its trials (docs/method.md §9).
const LATE: f64 = 0.2;

/// Void trials of the open loop; if more than half are void, all verdicts are invalid.
pub(crate) fn find_generator(trials: &ArmTrials<'_>) -> Option<Issue> {
    let why: Vec<&str> = trials.kept.iter().filter_map(|s| s.invalid.as_deref()).collect();
    if why.is_empty() {
        return None;
    }
    let most = 2 * why.len() > trials.kept.len();
    let message = format!(
        "{} of {} trials of {} are void: {}{}",
        why.len(),
        trials.kept.len(),
        trials.arm.id,
        reasons(why.iter().copied()),
        if most { "; too few are left to judge" } else { "" }
    );
    let invalidates = if most { Invalidates::Everything } else { Invalidates::Nothing };
    Some(Issue::about(trials.arm, Code::GeneratorLate, invalidates, message))
}

/// Lateness caused by the generator itself, of the arm that is latest. Above [`LATE`] it bars verdicts about time
/// for every arm of the point.
pub(crate) fn find_lateness(index: &Index<'_>) -> Vec<Issue> {
    let mut issues = Vec::new();
    for group in &index.groups {
        let own: Vec<&ArmTrials<'_>> =
            index.arms.iter().filter(|trials| trials.arm.point == group.baseline.point).collect();
        let Some(baseline) = own.iter().find(|trials| trials.arm.id == group.baseline.id) else { continue };
        let Some(latency) = baseline.median(|trial| trial.latency_us.as_ref()?.p50) else { continue };
        let mut late = 0.0;
        for trials in &own {
            late = trials.median(|trial| trial.lateness_us.as_ref()?.p50).unwrap_or(0.0).max(late);
        }
        if late <= LATE * latency {
            continue;
        }
        let message = format!(
            "the generator's median lateness was {late:.1} µs, more than a fifth of the median latency of {} ({latency:.1} µs): the generator is too large a part of the latencies",
            group.baseline.id
        );
        for trials in own {
            issues.push(Issue::about(trials.arm, Code::GeneratorLate, Invalidates::Time, message.clone()));
        }
    }
    issues
}

/// An open loop whose server completed fewer requests than were due.
pub(crate) fn find_load(trials: &ArmTrials<'_>) -> Option<Issue> {
    let rate = trials.arm.point.rate_per_s?;
    let achieved = trials.read(|s| s.throughput_per_s);
    let done = median(&achieved)?;
    if !falls_short(&achieved, rate) {
        return None;
    }
    let message = format!(
        "{} did {} of the {} requests due per second: its queue grew all the time, and its latencies grow with the length of the trial",
        trials.arm.id,
        count(done.round() as u64),
        count(rate.round() as u64)
    );
    Some(Issue::about(trials.arm, Code::Overload, Invalidates::Nothing, message))
}

/// Part of the connections drawn for the Unix socket that may fall back to TCP; above it there is no
/// verdict. What falls back is analysed as it was drawn, because leaving it out would leave out what is
/// special about these connections. So it counts for the arm whose way it did not go, and draws both arms
/// together. Above one in a hundred the report gives no verdict and says why (docs/method.md §17).
const FELL_BACK: f64 = 0.01;
/// Connections of both arms below which there is no verdict: ten blocks of four.
/// The unit is the connection. Requests of one connection share its process, its query and its minute;
/// with requests as the unit 24 to 69 % of simulated trials of equal arms were called different. With
/// fewer than ten blocks the test of ranks can give no p-value that is small enough, and with four
/// connections that stay, any difference found is one between these four. The report then names the
/// setting with which a pool opens new ones (docs/decisions/0135).
const FEWEST: u64 = 40;

pub(crate) fn find_drawn(report: &Report, index: &Index<'_>) -> Vec<Issue> {
    let mut issues: Vec<Issue> = index.arms.iter().filter_map(find_fallen_back).collect();
    for group in &index.groups {
        issues.extend(find_few(report, group.baseline));
    }
    issues
}

fn find_fallen_back(trials: &ArmTrials<'_>) -> Option<Issue> {
    let drawn = sum(trials.counted.iter().filter_map(|trial| trial.drawn));
    if drawn.fell_back as f64 <= FELL_BACK * drawn.connections as f64 {
        return None;
    }
    let message = format!(
        "{} of {} connections that were drawn for {} went over TCP ({}): they are counted as they were drawn, so that the difference is \
         not that between the transports; the summary of the run, or --log, says why they stayed",
        count(drawn.fell_back),
        count(drawn.connections),
        trials.arm.id,
        format_percent(drawn.fell_back as f64 / drawn.connections as f64)
    );
    Some(Issue::about(trials.arm, Code::TransportMismatch, Invalidates::Everything, message))
}

fn find_few(report: &Report, baseline: &Arm) -> Option<Issue> {
    let mut drawn = Vec::new();
    for trial in &report.trials {
        if report.arm(&trial.arm).is_some_and(|arm| arm.point == baseline.point) {
            drawn.extend(trial.drawn);
        }
    }
    let all = sum(drawn.iter().copied());
    if drawn.is_empty() || all.timed >= FEWEST {
        return None;
    }
    let message = format!(
        "{} connection{} with requests came while it was tried, and {FEWEST} are needed: connections are compared, not requests, for \
         those of one connection are alike; let it run for longer, and where a pool keeps its connections, have it open new ones \
         from time to time",
        if all.timed == 0 { "no".to_owned() } else { format!("only {}", count(all.timed)) },
        if all.timed == 1 { "" } else { "s" },
    );
    Some(Issue::about(baseline, Code::FewConnections, Invalidates::Everything, message))
}

fn sum(all: impl Iterator<Item = DrawnConnections>) -> DrawnConnections {
    let mut sum = DrawnConnections::default();
    for one in all {
        sum.connections += one.connections;
        sum.timed += one.timed;
        sum.fell_back += one.fell_back;
    }
    sum
}
