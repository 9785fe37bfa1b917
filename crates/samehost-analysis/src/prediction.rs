//! Predicts the gain of a whole from the gain of its part: if a part of share x takes y less, the whole
//! becomes x·y shorter, provided that nothing else changes. Computed by block, because a disturbance of a
//! block affects both values.

use samehost_model::{Arm, Bounds, Code, MetricInfo, Part, Prediction, Report, Warning, metric_title};
use samehost_stats::{Estimate, estimate};

use crate::index::Index;

/// Predictions for every part that the workload names, at every point and for every candidate; and warnings about
/// blocks that allow no prediction.
pub(crate) fn predict(report: &Report, index: &Index<'_>) -> (Vec<Prediction>, Vec<Warning>) {
    let (mut predictions, mut warnings) = (Vec::new(), Vec::new());
    for group in &index.groups {
        for part in &report.head.workload.parts {
            for candidate in &group.candidates {
                let mut left_out = 0;
                let prediction = predict_one(report, index, part, [group.baseline, candidate], &mut left_out);
                let used = prediction.as_ref().map_or(0, |prediction| prediction.blocks);
                if left_out > 0 {
                    warnings.push(impossible(part, candidate, left_out, used + left_out));
                }
                predictions.extend(prediction);
            }
        }
    }
    (predictions, warnings)
}

/// Warns about blocks in which the part gained at least the whole's time.
fn impossible(part: &Part, candidate: &Arm, left_out: u32, all: u32) -> Warning {
    let (name, whole) = (metric_title(&part.part), metric_title(&part.whole));
    let message = format!(
        "{left_out} of {all} blocks are left out of what the gain of {name} predicts for {whole} over {}: in them {name} gained as much time as {whole} takes",
        candidate.id
    );
    Warning::new(Code::Note, format!("{}: {}", candidate.id, part.whole), message)
}

/// A prediction; counts the blocks that are left out of it.
fn predict_one(
    report: &Report,
    index: &Index<'_>,
    part: &Part,
    [baseline, candidate]: [&Arm; 2],
    left_out: &mut u32,
) -> Option<Prediction> {
    let metric = |name: &str| report.head.workload.metrics.iter().find(|metric| metric.name == name);
    let (part_metric, whole_metric) = (metric(&part.part)?, metric(&part.whole)?);
    let scale = seconds(part_metric)? / seconds(whole_metric)?;
    let (part_before, part_after) =
        (index.values(part_metric, &baseline.id), index.values(part_metric, &candidate.id));
    let (whole_before, whole_after) =
        (index.values(whole_metric, &baseline.id), index.values(whole_metric, &candidate.id));
    let [mut shares, mut parts, mut predicted, mut measured, mut deviations] = [const { Vec::new() }; 5];
    for (block, whole) in &whole_before {
        let (Some(before), Some(after), Some(whole_after)) =
            (part_before.get(block), part_after.get(block), whole_after.get(block))
        else {
            continue;
        };
        let share = before * scale / whole;
        let ratio = after / before;
        let prediction = 1.0 - share * (1.0 - ratio);
        // Without change elsewhere the whole would take no time or less, which has no logarithm.
        if prediction <= 0.0 {
            *left_out += 1;
            continue;
        }
        shares.push(share.ln());
        parts.push(ratio.ln());
        predicted.push(prediction.ln());
        measured.push((whole_after / whole).ln());
        deviations.push((whole_after / whole / prediction).ln());
    }
    let bounds = |logs: &[f64]| estimate(logs, report.head.plan.confidence).map(|estimate| bounds(&estimate));
    let deviation = bounds(&deviations)?;
    Some(Prediction {
        point: baseline.point.clone(),
        part: part.part.clone(),
        whole: part.whole.clone(),
        baseline: baseline.id.clone(),
        candidate: candidate.id.clone(),
        share: bounds(&shares)?,
        part_ratio: bounds(&parts)?,
        predicted: bounds(&predicted)?,
        measured: bounds(&measured)?,
        deviation,
        agrees: deviation.ci_low.zip(deviation.ci_high).map(|(low, high)| low <= 1.0 && 1.0 <= high),
        blocks: deviations.len() as u32,
    })
}

fn bounds(estimate: &Estimate) -> Bounds {
    Bounds {
        value: estimate.ratio,
        ci_low: estimate.interval.map(|interval| interval.low),
        ci_high: estimate.interval.map(|interval| interval.high),
    }
}

/// Seconds of one unit of a metric; `None` if it is not a time.
fn seconds(metric: &MetricInfo) -> Option<f64> {
    match metric.unit.as_str() {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    }
}
