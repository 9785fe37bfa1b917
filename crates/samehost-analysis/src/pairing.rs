//! Pairs trials for comparisons: the same block, both good, no controls unless requested.

use std::collections::BTreeMap;

use samehost_model::{Arm, MetricInfo, Point, Report, Transport, Trial};

/// Arms of one point: the baseline and its candidates.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The point's first arm in the report's order.
    pub baseline: &'a Arm,
    /// All other arms.
    pub candidates: Vec<&'a Arm>,
}

/// Groups arms by point, in the report's order. Omits the harness's own arm, which has no transport.
#[must_use]
pub fn group(arms: &[Arm]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for arm in arms.iter().filter(|arm| arm.transport != Transport::None) {
        match groups.iter_mut().find(|group| group.baseline.point == arm.point) {
            Some(group) => group.candidates.push(arm),
            None => groups.push(Group { baseline: arm, candidates: Vec::new() }),
        }
    }
    groups
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side<'a> {
    /// An arm's own trials.
    Arm(&'a str),
    /// The baseline's second trial in each block (A/A).
    Control(&'a str),
}

/// The last good trial of each block.
fn last<'a>(trials: &'a [Trial], side: Side<'_>) -> BTreeMap<u32, &'a Trial> {
    let (id, control) = match side {
        Side::Arm(id) => (id, false),
        Side::Control(id) => (id, true),
    };
    let good = trials.iter().filter(|s| s.counts() && s.control == control && s.arm == id);
    good.map(|trial| (trial.block, trial)).collect()
}

/// A metric's value in each block: that of its last good trial, if it is positive. Blocks without one are
/// omitted; values are never imputed.
#[must_use]
pub fn values(trials: &[Trial], metric: &MetricInfo, side: Side<'_>) -> BTreeMap<u32, f64> {
    last(trials, side)
        .into_iter()
        .filter_map(|(block, trial)| Some((block, metric.value(trial)?)))
        .filter(|(_, value)| value.is_finite() && *value > 0.0)
        .collect()
}

/// Values of two sides in the blocks that have both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs {
    /// Denominator, one value per block.
    pub baseline: Vec<f64>,
    /// Numerator, one value per block.
    pub candidate: Vec<f64>,
    /// Server start on which each block was measured.
    pub starts: Vec<Option<u32>>,
}

impl Pairs {
    /// ln(candidate ÷ baseline), one value per block.
    #[must_use]
    pub fn log_ratios(&self) -> Vec<f64> {
        self.candidate.iter().zip(&self.baseline).map(|(c, b)| (c / b).ln()).collect()
    }
}

/// Pairs two sides by block.
#[must_use]
pub fn pair(trials: &[Trial], metric: &MetricInfo, baseline: Side<'_>, candidate: Side<'_>) -> Pairs {
    pair_with(&values(trials, metric, baseline), trials, metric, candidate)
}

/// Pairs two arms by block. If the baseline has a control in a block, uses the geometric mean of both: the
/// control is measured anyway, and the variance of the ratio falls by a quarter.
#[must_use]
pub fn pair_arms(trials: &[Trial], metric: &MetricInfo, baseline: &str, candidate: &str) -> Pairs {
    let again = values(trials, metric, Side::Control(baseline));
    let mut below = values(trials, metric, Side::Arm(baseline));
    for (block, value) in &mut below {
        if let Some(again) = again.get(block) {
            *value = (*value * again).sqrt();
        }
    }
    pair_with(&below, trials, metric, Side::Arm(candidate))
}

fn pair_with(
    below: &BTreeMap<u32, f64>,
    trials: &[Trial],
    metric: &MetricInfo,
    candidate: Side<'_>,
) -> Pairs {
    let mut pairs = Pairs::default();
    let last = last(trials, candidate);
    for (block, value) in values(trials, metric, candidate) {
        if let Some(base) = below.get(&block) {
            pairs.baseline.push(*base);
            pairs.candidate.push(value);
            pairs.starts.push(last.get(&block).and_then(|trial| trial.server_start));
        }
    }
    pairs
}

/// Seconds that one more block of this point takes: its arms, and the control if there is one.
pub(crate) fn block_seconds(report: &Report, point: &Point) -> Option<f64> {
    let ids: Vec<&str> =
        report.head.arms.iter().filter(|arm| arm.point == *point).map(|arm| arm.id.as_str()).collect();
    let trials = ids.len() as f64 + f64::from(u8::from(report.head.plan.control));
    let measured: Vec<f64> = report
        .trials
        .iter()
        .filter(|s| s.counts() && ids.contains(&s.arm.as_str()))
        .map(|s| s.seconds)
        .collect();
    let each = report.head.plan.trial_s.or_else(|| samehost_stats::median(&measured))?;
    Some(trials * each)
}
