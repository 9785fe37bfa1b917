//! Issues of a report: for each arm one warning for all its trials, and the verdicts that it invalidates.
//!
//! Rules consider errors, CPU and the machine. They must not depend on which arm is faster.

pub(crate) mod machine;
pub(crate) mod processor;
mod self_check;

use samehost_model::human::{change, count, format_percent};
use samehost_model::{Code, Latency, Report, Trial, Warning};
use samehost_stats::trend;

use crate::index::{ArmTrials, Group, Index};
use crate::issue::{Invalidates, Issue};
use crate::reasons::reasons;

/// Error rate above which verdicts are invalid and errors become the headline.
const ERROR_RATE: f64 = 0.001;
/// Fraction of trials that are still disturbed after repeats, above which verdicts are invalid.
const POLLUTED: f64 = 0.2;
/// Lateness of the generator, as a fraction of the baseline's latency, above which it distorts the measurement.
const LATE: f64 = 0.2;
/// Relative change from the first to the second half of trials that counts as drift.
const DRIFT: f64 = 0.1;

/// All issues of a report's trials, errors first.
pub(crate) fn find_issues(report: &Report, index: &Index<'_>) -> Vec<Issue> {
    let arms = &index.arms;
    let mut issues: Vec<Issue> = arms.iter().filter_map(find_errors).collect();
    issues.extend(self_check::issue(report, index));
    issues.extend(arms.iter().filter_map(find_generator));
    issues.extend(find_lateness(index));
    issues.extend(arms.iter().filter_map(find_pollution));
    issues.extend(processor::issue(report, arms));
    issues.extend(machine::issue(arms));
    issues.extend(find_repeats(report));
    issues.extend(self_check::find_one_process(report, index));
    issues.extend(arms.iter().filter_map(find_load));
    issues.extend(arms.iter().filter_map(find_drift_inside));
    issues.extend(find_drift_over_blocks(report, index));
    issues.extend(arms.iter().flat_map(gather_said));
    issues
}

/// Error rate above one in a thousand, over all counted trials.
fn find_errors(trials: &ArmTrials<'_>) -> Option<Issue> {
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

/// Void trials of the open loop; if more than half are void, all verdicts are invalid.
fn find_generator(trials: &ArmTrials<'_>) -> Option<Issue> {
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

/// Lateness caused by the generator itself. Above a fifth of the baseline's latency it invalidates verdicts
/// about time for every arm of the point. The limit is the same for all arms, because one relative to each
/// arm's own latency would penalise the faster.
fn find_lateness(index: &Index<'_>) -> Vec<Issue> {
    let mut issues = Vec::new();
    for group in &index.groups {
        let own: Vec<&ArmTrials<'_>> =
            index.arms.iter().filter(|trials| trials.arm.point == group.baseline.point).collect();
        let median = |trials: &ArmTrials<'_>, read: fn(&Trial) -> &Option<Latency>| {
            trials.median(|trial| read(trial).as_ref()?.p50)
        };
        let baseline = own.iter().find(|trials| trials.arm.id == group.baseline.id);
        let Some(latency) = baseline.and_then(|trials| median(trials, |trial| &trial.latency_us)) else {
            continue;
        };
        let late = own.iter().filter_map(|trials| median(trials, |trial| &trial.lateness_us));
        let Some(late) = late.reduce(f64::max).filter(|late| *late > LATE * latency) else { continue };
        let message = format!(
            "the generator's median lateness was {late:.1} µs, more than a fifth of the median latency of {} ({latency:.1} µs): the generator is too large a part of the latencies",
            group.baseline.id
        );
        issues.extend(
            own.iter().map(|trials| {
                Issue::about(trials.arm, Code::GeneratorLate, Invalidates::Time, message.clone())
            }),
        );
    }
    issues
}

/// Trials that stayed disturbed because their repeats were used up.
fn find_pollution(trials: &ArmTrials<'_>) -> Option<Issue> {
    let polluted: Vec<&&Trial> = trials.counted.iter().filter(|s| !s.polluted.is_empty()).collect();
    if polluted.len() as f64 <= POLLUTED * trials.counted.len() as f64 {
        return None;
    }
    let message = format!(
        "{} of {} trials of {} were disturbed, and so were their repeats: {}",
        polluted.len(),
        trials.counted.len(),
        trials.arm.id,
        reasons(polluted.iter().flat_map(|s| s.polluted.iter().map(String::as_str)))
    );
    // CPU time taken by a hypervisor is not charged to processes, so CPU time per operation stays valid. A
    // foreign process also evicts caches, which affects it.
    let has_neighbour = polluted.iter().any(|trial| trial.machine.foreign_percent > machine::FOREIGN_PERCENT);
    let invalidates = if has_neighbour { Invalidates::Everything } else { Invalidates::Time };
    Some(Issue::about(trials.arm, Code::Remeasured, invalidates, message))
}

/// Number of trials that were set aside and repeated.
fn find_repeats(report: &Report) -> Option<Issue> {
    let aside: Vec<&Trial> = report.trials.iter().filter(|s| s.set_aside).collect();
    if aside.is_empty() {
        return None;
    }
    let message = format!(
        "{} {} measured again because other work disturbed the machine: {}",
        count(aside.len() as u64),
        if aside.len() == 1 { "trial was" } else { "trials were" },
        reasons(aside.iter().flat_map(|s| s.polluted.iter().map(String::as_str)))
    );
    Some(Issue {
        arm: None,
        warning: Warning::new(Code::Remeasured, "", message),
        invalidates: Invalidates::Nothing,
    })
}

/// An open loop whose server completed fewer requests than were due.
fn find_load(trials: &ArmTrials<'_>) -> Option<Issue> {
    let rate = trials.arm.point.rate_per_s?;
    let done = trials.median(|s| s.throughput_per_s)?;
    let achieved: Vec<f64> = trials.counted.iter().filter_map(|s| s.throughput_per_s).collect();
    if !crate::falls_short(&achieved, rate) {
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

/// Second half ÷ first half of a trial's operations.
fn halves(trial: &Trial) -> Option<f64> {
    let half = trial.tenths.len() / 2;
    let first: u64 = trial.tenths[..half].iter().sum();
    let second: u64 = trial.tenths[trial.tenths.len() - half..].iter().sum();
    (first > 0).then(|| second as f64 / first as f64)
}

/// Drift within trials: warm-up or slowing down.
fn find_drift_inside(trials: &ArmTrials<'_>) -> Option<Issue> {
    let ratio = trials.median(halves)?;
    if (ratio - 1.0).abs() <= DRIFT {
        return None;
    }
    let message = format!(
        "{} did {} operations in the second half of its trials than in the first ({}): it had not settled; longer trials (--trial-time) would tell",
        trials.arm.id,
        if ratio > 1.0 { "more" } else { "fewer" },
        change(ratio)
    );
    Some(Issue::about(trials.arm, Code::Drift, Invalidates::Nothing, message))
}

/// Drift from block to block of each point's baseline: a trend significant at 1 % that changes the first
/// metric by more than 10 % from end to end.
fn find_drift_over_blocks(report: &Report, index: &Index<'_>) -> Vec<Issue> {
    let Some(metric) = report.head.workload.metrics.first() else { return Vec::new() };
    let find = |group: &Group<'_>| {
        let values: Vec<(u32, f64)> = index.values(metric, &group.baseline.id).into_iter().collect();
        let series: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let (p, ratio) = (trend::p(&series)?, trend::end_to_end(&values)?);
        if p >= 0.01 || ratio.max(1.0 / ratio) <= 1.0 + DRIFT {
            return None;
        }
        let message = format!(
            "{} of {} drifted by {} from the first block to the last; the ratios stand, for each compares trials of one block, but the absolute values are an average over a change",
            metric.title(),
            group.baseline.id,
            change(ratio)
        );
        Some(Issue::about(group.baseline, Code::Drift, Invalidates::Nothing, message))
    };
    index.groups.iter().filter_map(find).collect()
}

/// Warnings of single trials, once per arm and code.
fn gather_said(trials: &ArmTrials<'_>) -> Vec<Issue> {
    let mut codes: Vec<Code> = trials.counted.iter().flat_map(|s| &s.warnings).map(|w| w.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let gather = |code: Code| {
        let said: Vec<&Warning> =
            trials.counted.iter().filter_map(|s| s.warnings.iter().find(|w| w.code == code)).collect();
        let message = format!(
            "in {} of {} trials of {}: {}",
            said.len(),
            trials.counted.len(),
            trials.arm.id,
            reasons(said.iter().map(|w| w.message.as_str()))
        );
        Issue::about(trials.arm, code, Invalidates::Nothing, message)
    };
    codes.into_iter().map(gather).collect()
}
