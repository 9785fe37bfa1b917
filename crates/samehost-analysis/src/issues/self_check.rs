//! Self-check: the baseline runs twice in each block. If the two differ, the harness or the machine creates
//! differences, and no difference of the report is valid. It never widens an interval, because every
//! comparison's interval already contains the noise of a quiet machine.

use samehost_model::human::{change, count};
use samehost_model::{Code, MetricInfo, Report, Warning};
use samehost_stats::{count_starts, distributions};

use crate::index::Index;
use crate::issue::{Invalidates, Issue};

/// Probability that a sound measurement fails its self-check.
const ALPHA: f64 = 0.01;
/// Minimum number of blocks for a self-check.
const LEAST_BLOCKS: usize = 5;

/// Self-check of the report's first metric: one test over all points (the smallest p-value × their number)
/// for a difference beyond the margin. A failure invalidates the whole report.
pub(crate) fn issue(report: &Report, index: &Index<'_>) -> Option<Issue> {
    let metric = report.head.workload.metrics.first()?;
    let tried: Vec<(f64, f64, String)> = index
        .groups
        .iter()
        .filter_map(|group| {
            let (ratio, p) = against_itself(report, index, metric, &group.baseline.id)?;
            Some((p, ratio, group.baseline.id.clone()))
        })
        .collect();
    let (p, ratio, arm) = tried.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let p = (p * tried.len() as f64).min(1.0);
    (p < ALPHA).then(|| {
        let message = format!(
            "the self-check failed: {} of {arm} differs by {} from {arm} itself, measured a second time in the same blocks (p {p:.4} over {} point{}); the harness or the machine causes differences, so no difference of this report counts; measure again, and look for what changes within a block",
            metric.title(),
            change(*ratio),
            count(tried.len() as u64),
            if tried.len() == 1 { "" } else { "s" }
        );
        Issue { arm: None, warning: Warning::new(Code::SelfCheck, "", message), invalidates: Invalidates::Everything }
    })
}

/// Control ÷ baseline, and the p-value of "inside the margin".
fn against_itself(report: &Report, index: &Index<'_>, metric: &MetricInfo, id: &str) -> Option<(f64, f64)> {
    let ratios = index.control_pairs(metric, id).log_ratios();
    if ratios.len() < LEAST_BLOCKS {
        return None;
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let limit = report.head.plan.margin.ln_1p();
    let side = if mean < 0.0 { -1.0 } else { 1.0 };
    let shifted: Vec<f64> = ratios.iter().map(|ratio| side * ratio - limit).collect();
    let located = distributions::locate_mean(&shifted, report.head.plan.confidence)?;
    Some((mean.exp(), if located.estimate > 0.0 { located.p } else { 1.0 }))
}

/// Warning that all blocks used one process of a private server, so that the variation between starts is not
/// in the intervals.
pub(crate) fn find_one_process(report: &Report, index: &Index<'_>) -> Option<Issue> {
    let groups = &index.groups;
    let is_compared = groups.iter().any(|group| !group.candidates.is_empty());
    let ids = || groups.iter().flat_map(|g| std::iter::once(g.baseline).chain(g.candidates.iter().copied()));
    let trials = || report.trials.iter().filter(|s| s.counts() && ids().any(|arm| arm.id == s.arm));
    let blocks = trials().map(|trial| trial.block).max()?;
    let of_trials: Vec<Option<u32>> = trials().map(|trial| trial.server_start).collect();
    let one = report.head.workload.server.managed
        && is_compared
        && blocks as usize + 1 >= LEAST_BLOCKS
        && count_starts(&of_trials) == Some(1);
    one.then(|| {
        let message = "one start of the server served all blocks, so the interval does not include how starts differ; repeat the measurement to see another start";
        Issue { arm: None, warning: Warning::new(Code::OneProcess, "", message), invalidates: Invalidates::Nothing }
    })
}
