//! Issues of a measurement that differs from itself. The baseline runs twice in each block: if the two differ, the
//! harness or the machine creates differences, and no difference of the report is valid. The self-check never widens an
//! interval, because every comparison's interval already contains the noise of a quiet machine. Drift is such a
//! difference inside trials and from block to block.

use samehost_model::human::{change, count};
use samehost_model::{Code, MetricInfo, Report, Trial};
use samehost_stats::{count_starts, distributions, serial};

use crate::index::{ArmTrials, Index};
use crate::issues::{Invalidates, Issue};

/// Probability that a sound measurement fails its self-check, over all points of the first metric
/// together. The control is the baseline run once more in each block. As a veto over single verdicts, or
/// as a second width of each interval, it was rejected: the noise of a quiet machine is in the interval
/// already, and asking a difference to clear it twice needs some six times the blocks, so that hardly
/// anything was decided. What it can see and an interval cannot is a harness that treats places in a
/// block differently; then the whole report is barred, once (docs/method.md §5).
const ALPHA: f64 = 0.01;
const LEAST_BLOCKS: usize = 5;

/// Self-check of the report's first metric: one test over all points (the smallest p-value × their number)
/// for a difference beyond the margin. A failure invalidates the whole report.
pub(crate) fn issue(report: &Report, index: &Index<'_>) -> Option<Issue> {
    let metric = report.head.workload.metrics.first()?;
    let mut points = 0;
    let mut worst: Option<(AgainstItself, &str)> = None;
    for group in &index.groups {
        let arm = group.baseline.id.as_str();
        let Some(found) = against_itself(report, index, metric, arm) else { continue };
        points += 1;
        if worst.as_ref().is_none_or(|(known, _)| found.p.total_cmp(&known.p).is_lt()) {
            worst = Some((found, arm));
        }
    }
    let (AgainstItself { ratio, p }, arm) = worst?;
    let p = (p * points as f64).min(1.0);
    if p >= ALPHA {
        return None;
    }
    let message = format!(
        "the self-check failed: {} of {arm} differs by {} from {arm} itself, measured a second time in the same blocks (p {p:.4} over {} point{}); the harness or the machine causes differences, so no difference of this report counts; measure again, and look for what changes within a block",
        metric.title(),
        change(ratio),
        count(points),
        if points == 1 { "" } else { "s" }
    );
    Some(Issue::of_report(Code::SelfCheck, Invalidates::Everything, message))
}

struct AgainstItself {
    /// Control ÷ baseline.
    ratio: f64,
    /// P-value of "inside the margin".
    p: f64,
}

/// Student's t for the log ratios moved by the margin towards 0, from the side on which their mean lies; 1 where the mean
/// itself lies inside. `None` with too few blocks.
fn against_itself(
    report: &Report,
    index: &Index<'_>,
    metric: &MetricInfo,
    id: &str,
) -> Option<AgainstItself> {
    let ratios = index.control_pairs(metric, id).log_ratios();
    if ratios.len() < LEAST_BLOCKS {
        return None;
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let limit = report.head.plan.margin.ln_1p();
    let side = if mean < 0.0 { -1.0 } else { 1.0 };
    let shifted: Vec<f64> = ratios.iter().map(|ratio| side * ratio - limit).collect();
    let located = distributions::locate_mean(&shifted, report.head.plan.confidence)?;
    Some(AgainstItself { ratio: mean.exp(), p: if located.estimate > 0.0 { located.p } else { 1.0 } })
}

/// Warning that all blocks used one process of a private server, so that the variation between starts is not
/// in the intervals.
pub(crate) fn find_one_process(report: &Report, index: &Index<'_>) -> Option<Issue> {
    let is_compared = index.groups.iter().any(|group| !group.candidates.is_empty());
    if !report.head.workload.server.managed || !is_compared {
        return None;
    }
    let mut blocks = 0;
    let mut starts: Vec<Option<u32>> = Vec::new();
    for group in &index.groups {
        for arm in group.arms() {
            for trial in report.trials.iter().filter(|trial| trial.counts() && trial.arm == arm.id) {
                blocks = blocks.max(trial.block as usize + 1);
                starts.push(trial.server_start);
            }
        }
    }
    if blocks < LEAST_BLOCKS || count_starts(&starts) != Some(1) {
        return None;
    }
    let message = "one start of the server served all blocks, so the interval does not include how starts differ; repeat the measurement to see another start";
    Some(Issue::of_report(Code::OneProcess, Invalidates::Nothing, message))
}

/// Relative change from the first to the second half of the trials that counts as drift.
/// Drift is reported and bars nothing. The arms of a block meet the same machine, so ratios inside blocks
/// absorb a drift; only absolute values suffer from it. In the simulations a machine that drifts by 8 %
/// over 40 blocks leaves the verdicts on ratios sound, so the sentence is kept for what a reader of the
/// absolute values has to know (docs/method.md §7).
const DRIFT: f64 = 0.1;

/// Second half ÷ first half of a trial's operations.
fn halves(trial: &Trial) -> Option<f64> {
    let half = trial.tenths.len() / 2;
    let first: u64 = trial.tenths[..half].iter().sum();
    let second: u64 = trial.tenths[trial.tenths.len() - half..].iter().sum();
    if first > 0 { Some(second as f64 / first as f64) } else { None }
}

pub(crate) fn find_drift_inside(trials: &ArmTrials<'_>) -> Option<Issue> {
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
pub(crate) fn find_drift_over_blocks(report: &Report, index: &Index<'_>) -> Vec<Issue> {
    // Blocks of an own trial are not one after the other: each has every 24th block of the coin.
    if report.trials.iter().any(|trial| trial.drawn.is_some()) {
        return Vec::new();
    }
    let Some(metric) = report.head.workload.metrics.first() else { return Vec::new() };
    let mut issues = Vec::new();
    for group in &index.groups {
        let values: Vec<(u32, f64)> = index.values(metric, &group.baseline.id).into_iter().collect();
        let series: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let (Some(p), Some(ratio)) = (serial::trend_p(&series), serial::end_to_end(&values)) else {
            continue;
        };
        if p >= 0.01 || ratio.max(1.0 / ratio) <= 1.0 + DRIFT {
            continue;
        }
        let message = format!(
            "{} of {} drifted by {} from the first block to the last; the ratios stand, for each compares trials of one block, but the absolute values are an average over a change",
            metric.title(),
            group.baseline.id,
            change(ratio)
        );
        issues.push(Issue::about(group.baseline, Code::Drift, Invalidates::Nothing, message));
    }
    issues
}
