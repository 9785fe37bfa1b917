//! CSV with one row for each comparison, for spreadsheets and plots: raw values, units in their own column,
//! RFC 4180.
//!
//! An arm without a comparison has a row for each metric, with the candidate's columns empty.

use std::collections::BTreeSet;
use std::io::{self, Write};

use samehost_analysis::group;
use samehost_model::printable::clean;
use samehost_model::{Arm, Better, Comparison, MetricInfo, Point, Report};

use crate::measurement::{conditions, view};

const HEADER: [&str; 28] = [
    "workload", "connections", "rate_per_s", "size_bytes", "placement", "parameters", "metric", "unit",
    "better", "baseline", "candidate", "baseline_value", "candidate_value", "ratio", "ci_low", "ci_high",
    "confidence", "method", "blocks", "p_adjusted", "verdict", "noise_floor", "warnings", "started_at",
    "baseline_congestion", "candidate_congestion", "p_margin_adjusted", "grade",
];
/// How many columns there are from `started_at` on, and the place of `blocks`. New columns are added at the end, so that the places of
/// the others stay.
const LAST: usize = 5;
const BLOCKS: usize = 18;

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(HEADER)?;
    for comparison in &report.analysis.comparisons {
        writer.write_record(compared(report, comparison).into_iter().map(harmless))?;
    }
    for group in group(&report.head.arms).iter().filter(|group| group.candidates.is_empty()) {
        for metric in &report.head.workload.metrics {
            if let Some(row) = alone(report, group.baseline, metric) {
                writer.write_record(row.into_iter().map(harmless))?;
            }
        }
    }
    writer.flush()
}

/// A cell that no spreadsheet takes for a formula: a stored result may be of another host, and any text of it may begin with
/// `=`. An apostrophe before it makes it text. Numbers stay.
fn harmless(cell: String) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    if is_formula { format!("'{cell}") } else { cell }
}

/// Unrounded number; empty for NaN and infinities.
fn number(value: impl Into<Option<f64>>) -> String {
    match value.into() {
        Some(value) if value.is_finite() => value.to_string(),
        _ => String::new(),
    }
}

fn compared(report: &Report, comparison: &Comparison) -> Vec<String> {
    let metric = report.head.workload.metrics.iter().find(|metric| metric.name == comparison.metric);
    let floor = view::noise_floor(report, &comparison.point, &comparison.metric);
    let mut row = at(report, &comparison.point, &comparison.metric, metric);
    row.extend([
        clean(&comparison.baseline),
        clean(&comparison.candidate),
        number(comparison.baseline_value),
        number(comparison.candidate_value),
        number(comparison.ratio),
        number(comparison.ci_low),
        number(comparison.ci_high),
        number(comparison.confidence),
        clean(&comparison.method),
        comparison.blocks.to_string(),
        number(comparison.p_adjusted),
        comparison.verdict.to_string(),
        number(floor),
        codes(comparison),
        clean(&report.head.started_at),
        conditions::of_arm(report, &comparison.baseline),
        conditions::of_arm(report, &comparison.candidate),
        number(comparison.p_margin_adjusted),
        view::json_name(comparison.grade()),
    ]);
    row
}

fn alone(report: &Report, arm: &Arm, metric: &MetricInfo) -> Option<Vec<String>> {
    let values = view::values(report, &arm.id, |trial| metric.value(trial));
    let median = samehost_stats::median(&values)?;
    let mut row = at(report, &arm.point, &metric.name, Some(metric));
    row.extend([clean(&arm.id), String::new(), number(median)]);
    row.resize(HEADER.len() - LAST, String::new());
    row[BLOCKS] = values.len().to_string();
    row.extend([clean(&report.head.started_at), conditions::of_arm(report, &arm.id)]);
    row.resize(HEADER.len(), String::new());
    Some(row)
}

fn at(report: &Report, point: &Point, name: &str, metric: Option<&MetricInfo>) -> Vec<String> {
    let (unit, better) = match metric {
        Some(metric) if metric.better == Better::Higher => (clean(&metric.unit), "higher"),
        Some(metric) => (clean(&metric.unit), "lower"),
        None => (String::new(), ""),
    };
    let size = match point.size_bytes {
        Some(bytes) => bytes.to_string(),
        None => String::new(),
    };
    vec![
        clean(&report.head.workload.name),
        point.connections.to_string(),
        number(point.rate_per_s),
        size,
        point.placement.to_string(),
        view::own_parameters(point),
        clean(name),
        unit,
        better.to_owned(),
    ]
}

/// Distinct codes of the reason and the warnings, with their names in JSON.
fn codes(comparison: &Comparison) -> String {
    let mut names: BTreeSet<String> = BTreeSet::new();
    if let Some(reason) = &comparison.reason {
        names.insert(view::json_name(reason.code()));
    }
    for warning in &comparison.warnings {
        names.insert(view::json_name(warning.code));
    }
    names.into_iter().collect::<Vec<_>>().join(";")
}
