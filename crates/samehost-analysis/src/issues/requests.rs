//! Issues of the requests: failed operations, warnings that the measuring side gave to single trials, and percentiles
//! that no trial has enough requests for: which, and what would bring them.

use std::time::Duration;

use samehost_model::human::{count, format_percent};
use samehost_model::{Code, Latency, MetricInfo, Point, Report, Warning, metric};

use crate::index::{ArmTrials, Index};
use crate::issues::{Invalidates, Issue, reasons};

/// Percentiles that need many requests, and how many: ten beyond the percentile (docs/method.md, section 8).
const NEEDS: [(&str, f64); 2] = [(metric::LATENCY_P99.name, 1_000.0), (metric::LATENCY_P99_9.name, 10_000.0)];
/// Part of the needed requests that an advised trial has, since trials differ.
/// A percentile needs ten operations beyond it in each trial. Where trials have too few, the report names
/// the trial time that has enough, a fifth more than needed, and does not pool the requests of several
/// trials (docs/method.md §8).
const SPARE: f64 = 1.2;
/// Longest trial that is advised, in seconds.
const LONGEST_S: f64 = 60.0;

/// Length of a trial that would have enough requests for this percentile at this point; `None` if it is no such
/// metric, trials have enough, or no reasonable length would do.
#[must_use]
pub fn time_for_percentile(report: &Report, metric: &MetricInfo, point: &Point) -> Option<Duration> {
    time_at(report, &Index::of_report(report), metric, point)
}

fn time_at(report: &Report, index: &Index<'_>, metric: &MetricInfo, point: &Point) -> Option<Duration> {
    let (_, wanted) = NEEDS.iter().find(|(name, _)| *name == metric.name)?;
    let trial_s = report.head.plan.trial_s?;
    let fewest = fewest_requests(index, point)?;
    let needed_s = trial_s * SPARE * wanted / fewest;
    // In tenths of a second.
    (fewest < *wanted && needed_s <= LONGEST_S)
        .then(|| Duration::from_millis((needed_s * 10.0).ceil() as u64 * 100))
}

/// The median requests of a trial, of the arm of this point that has the fewest; `None` without latencies.
fn fewest_requests(index: &Index<'_>, point: &Point) -> Option<f64> {
    let here = index.arms.iter().filter(|trials| trials.arm.point == *point);
    let requests = here.filter_map(|trials| {
        trials.median(|trial| {
            let Latency { mean, .. } = trial.latency_us.as_ref()?;
            mean.map(|_| trial.operations as f64)
        })
    });
    requests.reduce(f64::min).filter(|requests| *requests > 0.0)
}

/// One sentence for each percentile that is missing at some point.
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

/// Error rate above one in a thousand, over all counted trials.
pub(crate) fn find_errors(trials: &ArmTrials<'_>) -> Option<Issue> {
    let failed: u64 = trials.counted.iter().map(|s| s.error_count()).sum();
    let good: u64 = trials.counted.iter().map(|s| s.operations).sum();
    let tried = failed + good;
    if tried == 0 || failed as f64 <= ERROR_RATE * tried as f64 {
        return None;
    }
    let mut kinds: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
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
