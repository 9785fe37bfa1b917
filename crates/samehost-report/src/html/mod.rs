//! The report as one HTML file that opens offline: the answer first, tables, charts drawn by plotly.js, what the
//! numbers rest on, and the raw JSON to download. Each kind of chart is a file; charts without data do not occur.

mod about;
mod chart;
mod cpu;
pub(crate) mod escape;
mod figure;
mod flames;
mod page;
mod quantiles;
mod rates;
mod ratios;
mod scale;
mod sweeps;
mod timeline;

use std::io::{self, Write};

use samehost_model::Report;

use crate::view::View;
use chart::Chart;

pub(crate) use figure::table;
pub(crate) use page::Front;

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    render_page("", &[], &[("", report)], out)
}

/// Several reports as one page, each with its label, under a title; notes stand before them.
///
/// # Errors
/// When `out` cannot be written.
pub fn render_page(
    title: &str,
    notes: &[String],
    reports: &[(&str, &Report)],
    out: &mut dyn Write,
) -> io::Result<()> {
    render_with(&Front { title, notes, html: "" }, reports, out)
}

/// Several reports as one page, with what stands before them.
pub(crate) fn render_with(
    front: &Front<'_>,
    reports: &[(&str, &Report)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let bodies: Vec<page::Body<'_>> =
        reports.iter().map(|(label, report)| page::Body { label, report }).collect();
    page::write(front, &bodies, out)
}

/// Every chart for which the report has data, and what could not be drawn.
fn charts(view: &View<'_>) -> (Vec<Chart>, Option<String>) {
    let (quantiles, failure) = match quantiles::charts(view) {
        Ok(charts) => (charts, None),
        Err(error) => (Vec::new(), Some(format!("No picture of the latencies by percentile: {error}."))),
    };
    let mut charts: Vec<Chart> = ratios::chart(view).into_iter().collect();
    charts.extend(rates::chart(view));
    charts.extend(sweeps::charts(view));
    charts.extend(quantiles);
    charts.extend(cpu::chart(view));
    charts.extend(timeline::chart(view));
    (charts, failure)
}
