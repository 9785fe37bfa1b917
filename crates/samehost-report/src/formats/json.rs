//! The report as JSON, `samehost.report/1`, and the reproduction, `samehost.reproduction/1`: pretty-printed,
//! keys in a fixed order, with a final newline.
//!
//! NaN and infinities are omitted; JSON cannot represent them. Characters that could control a terminal are
//! escaped, including those beyond ASCII that JSON permits.

use std::io::{self, Write};

use samehost_model::printable::escape;
use samehost_model::{Report, Reproduction};
use serde::Serialize;

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    pretty(&only_numbers(report), out)
}

pub fn reproduction_as_json(reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
    let mut reproduction = reproduction.clone();
    for experiment in &mut reproduction.experiments {
        for measurement in &mut experiment.measurements {
            measurement.report = only_numbers(&measurement.report);
        }
    }
    pretty(&reproduction, out)
}

fn pretty(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    writeln!(out, "{}", escape(&text))
}

/// The report without NaN and infinities, which serde_json would write as an unexpected `null`.
fn only_numbers(report: &Report) -> Report {
    let mut report = report.clone();
    for trial in &mut report.trials {
        trial.measurements.retain(|_, value| value.is_finite());
    }
    let comparisons = &mut report.analysis.comparisons;
    comparisons.retain(|c| [c.ratio, c.baseline_value, c.candidate_value].iter().all(|v| v.is_finite()));
    report.analysis.controls.retain(|control| control.ratio.is_finite());
    report
}
