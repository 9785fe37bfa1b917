//! The baseline against its control (A/A).

use samehost_model::{Control, MetricInfo, Point, Report};
use samehost_stats::estimate;

use crate::index::Index;

/// Compares the baseline with its control, for each point and metric that has control trials.
#[must_use]
pub(crate) fn compare_controls(report: &Report, index: &Index<'_>) -> Vec<Control> {
    let mut controls = Vec::new();
    for group in &index.groups {
        for metric in &report.head.workload.metrics {
            let id = &group.baseline.id;
            let pairs = index.control_pairs(metric, id);
            let Some(estimate) = estimate(&pairs.log_ratios(), report.head.plan.confidence) else { continue };
            controls.push(Control {
                point: group.baseline.point.clone(),
                metric: metric.name.clone(),
                ratio: estimate.ratio,
                ci_low: estimate.interval.map(|interval| interval.low),
                ci_high: estimate.interval.map(|interval| interval.high),
                noise_floor: estimate.interval.map(|interval| interval.high.max(1.0 / interval.low) - 1.0),
            });
        }
    }
    controls
}

pub(crate) fn noise_floor(controls: &[Control], point: &Point, metric: &MetricInfo) -> Option<f64> {
    controls.iter().find(|c| c.point == *point && c.metric == metric.name)?.noise_floor
}
