//! The report as one HTML file that works offline: answer, tables, charts drawn by plotly.js, conditions, and
//! the raw JSON to download. Each kind of chart is a file; charts without data are omitted.

mod chart;
mod checkup;
mod cpu;
pub(crate) mod escape;
mod figure;
mod flames;
mod hosts;
mod page;
mod quantiles;
mod rates;
mod ratios;
mod sweeps;
mod timeline;

use std::io::{self, Write};

use samehost_model::Report;

use crate::measurement::view::View;
use chart::Chart;

pub use checkup::{CheckupPage, checkup_as_html};
pub(crate) use figure::table;
pub use hosts::hosts_as_html;
pub(crate) use page::{Articles, Front};

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    render_page("", &[("", report)], out)
}

/// Labelled reports as one page, with a title. A single report without a label needs none: its answer is the heading.
pub fn render_page(title: &str, reports: &[(&str, &Report)], out: &mut dyn Write) -> io::Result<()> {
    render_with(&Front { title, html: "", articles: Articles::Whole }, reports, out)
}

/// Several reports as one page, with a front part.
pub(crate) fn render_with(
    front: &Front<'_>,
    reports: &[(&str, &Report)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let bodies: Vec<page::Body<'_>> =
        reports.iter().map(|(label, report)| page::Body { label, report }).collect();
    page::write(front, &bodies, out)
}

/// All charts for which the report has data, and a sentence about any that could not be drawn.
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
