//! Predicts the gain of a whole from the gain of its part: if a part of share x takes y less, the whole
//! becomes x·y shorter, provided that nothing else changes. Computed by block, because a disturbance of a
//! block affects both values.

use samehost_model::{Arm, Bounds, Code, MetricInfo, Part, Prediction, Report, Warning, metric_title};
use samehost_stats::estimate;

use crate::index::Index;

/// Predictions for every part that the workload names, at every point and for every candidate; and warnings about
/// blocks that allow no prediction.
pub(crate) fn predict(report: &Report, index: &Index<'_>) -> (Vec<Prediction>, Vec<Warning>) {
    let (mut predictions, mut warnings) = (Vec::new(), Vec::new());
    for group in &index.groups {
        for part in &report.head.workload.parts {
            for candidate in &group.candidates {
                let Some(blocks) = Blocks::of(report, index, part, [group.baseline, candidate]) else {
                    continue;
                };
                let left_out = blocks.left_out;
                let prediction = blocks.predict(report, part, [group.baseline, candidate]);
                let used = if let Some(prediction) = &prediction { prediction.blocks } else { 0 };
                if left_out > 0 {
                    warnings.push(impossible(part, candidate, left_out, used + left_out));
                }
                predictions.extend(prediction);
            }
        }
    }
    (predictions, warnings)
}

fn impossible(part: &Part, candidate: &Arm, left_out: u32, all: u32) -> Warning {
    let (name, whole) = (metric_title(&part.part), metric_title(&part.whole));
    let message = format!(
        "{left_out} of {all} blocks are left out of what the gain of {name} predicts for {whole} over {}: in them {name} gained as much time as {whole} takes",
        candidate.id
    );
    Warning::new(Code::Note, format!("{}: {}", candidate.id, part.whole), message)
}

/// Logarithms of a prediction's values in each block that has the part and the whole of both arms.
#[derive(Default)]
struct Blocks {
    /// Part ÷ whole of the baseline.
    shares: Vec<f64>,
    /// The part, candidate ÷ baseline.
    parts: Vec<f64>,
    /// The whole, candidate ÷ baseline: as the part predicts it, as it was measured, and measured ÷ predicted.
    predicted: Vec<f64>,
    measured: Vec<f64>,
    deviations: Vec<f64>,
    /// Blocks in which the part gained at least the whole's time. Without change elsewhere the whole would take no time
    /// or less, which has no logarithm.
    left_out: u32,
}

impl Blocks {
    /// `None` where the part or the whole is not measured, or is not a time.
    fn of(report: &Report, index: &Index<'_>, part: &Part, [baseline, candidate]: [&Arm; 2]) -> Option<Self> {
        let (part_metric, whole_metric) = (metric(report, &part.part)?, metric(report, &part.whole)?);
        let scale = seconds(part_metric)? / seconds(whole_metric)?;
        let part_before = index.values(part_metric, &baseline.id);
        let part_after = index.values(part_metric, &candidate.id);
        let whole_before = index.values(whole_metric, &baseline.id);
        let whole_after = index.values(whole_metric, &candidate.id);
        let mut blocks = Blocks::default();
        for (block, whole) in &whole_before {
            let (Some(before), Some(after), Some(whole_after)) =
                (part_before.get(block), part_after.get(block), whole_after.get(block))
            else {
                continue;
            };
            let share = before * scale / whole;
            let ratio = after / before;
            let predicted = 1.0 - share * (1.0 - ratio);
            if predicted <= 0.0 {
                blocks.left_out += 1;
                continue;
            }
            blocks.shares.push(share.ln());
            blocks.parts.push(ratio.ln());
            blocks.predicted.push(predicted.ln());
            blocks.measured.push((whole_after / whole).ln());
            blocks.deviations.push((whole_after / whole / predicted).ln());
        }
        Some(blocks)
    }

    /// Each value estimated over blocks like any log ratio, at the plan's confidence. The prediction agrees with the
    /// measurement where the interval of measured ÷ predicted has 1 inside. `None` without a block.
    fn predict(&self, report: &Report, part: &Part, [baseline, candidate]: [&Arm; 2]) -> Option<Prediction> {
        let confidence = report.head.plan.confidence;
        let deviation = bounds(&self.deviations, confidence)?;
        let agrees = match (deviation.ci_low, deviation.ci_high) {
            (Some(low), Some(high)) => Some(low <= 1.0 && 1.0 <= high),
            _ => None,
        };
        Some(Prediction {
            point: baseline.point.clone(),
            part: part.part.clone(),
            whole: part.whole.clone(),
            baseline: baseline.id.clone(),
            candidate: candidate.id.clone(),
            share: bounds(&self.shares, confidence)?,
            part_ratio: bounds(&self.parts, confidence)?,
            predicted: bounds(&self.predicted, confidence)?,
            measured: bounds(&self.measured, confidence)?,
            deviation,
            agrees,
            blocks: self.deviations.len() as u32,
        })
    }
}

fn metric<'a>(report: &'a Report, name: &str) -> Option<&'a MetricInfo> {
    report.head.workload.metrics.iter().find(|metric| metric.name == name)
}

fn bounds(logarithms: &[f64], confidence: f64) -> Option<Bounds> {
    let estimate = estimate(logarithms, confidence)?;
    Some(Bounds {
        value: estimate.ratio,
        ci_low: estimate.interval.map(|interval| interval.low),
        ci_high: estimate.interval.map(|interval| interval.high),
    })
}

/// Seconds of one unit of the metric; `None` if it is not a time.
fn seconds(metric: &MetricInfo) -> Option<f64> {
    match metric.unit.as_str() {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    }
}
