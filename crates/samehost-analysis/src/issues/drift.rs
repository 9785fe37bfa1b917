//! Drift inside trials and from block to block.

use samehost_model::human::change;
use samehost_model::{Code, Report, Trial};
use samehost_stats::serial;

use crate::index::{ArmTrials, Index};
use crate::issue::{Invalidates, Issue};

/// Relative change from the first to the second half of trials that counts as drift.
const DRIFT: f64 = 0.1;

/// Second half ÷ first half of a trial's operations.
fn halves(trial: &Trial) -> Option<f64> {
    let half = trial.tenths.len() / 2;
    let first: u64 = trial.tenths[..half].iter().sum();
    let second: u64 = trial.tenths[trial.tenths.len() - half..].iter().sum();
    (first > 0).then(|| second as f64 / first as f64)
}

/// Drift within trials: warm-up or slowing down.
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
