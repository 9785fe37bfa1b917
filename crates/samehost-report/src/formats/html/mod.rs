//! The report as one HTML file that works offline and needs no script: answer, tables, charts, conditions. Each kind of chart is a
//! file; charts without data are omitted.

mod chart;
mod checkup;
mod interval;
mod page;
mod percentiles;
mod ratios;
mod sweeps;

use std::io::{self, Write};

use samehost_model::Report;
use samehost_model::printable::clean;

use crate::measurement::view::View;
use chart::Chart;

pub(crate) use chart::table;
pub use checkup::{CheckupPage, checkup_as_html};
pub(crate) use page::{Articles, Front, render_with};

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    render_page("", &[("", report)], out)
}

/// Labelled reports as one page, with a title. A single report without a label needs none: its answer is the heading. The page loads
/// nothing and opens offline; nothing of a report becomes markup.
///
/// # Errors
/// Those of `out`.
pub fn render_page(title: &str, reports: &[(&str, &Report)], out: &mut dyn Write) -> io::Result<()> {
    render_with(&Front { title, html: "", articles: Articles::Whole }, reports, out)
}

/// All charts for which the report has data, and a sentence about any that could not be drawn.
fn charts(view: &View<'_>) -> (Vec<Chart>, Option<String>) {
    let mut charts = vec![ratios::chart(view), sweeps::ladder_chart(view)];
    charts.extend(sweeps::charts(view));
    let mut failure = None;
    match percentiles::chart(view) {
        Ok(chart) => charts.push(chart),
        Err(error) => failure = Some(format!("No picture of the latencies by percentile: {error}.")),
    }
    charts.retain(|chart| !chart.pictures.is_empty());
    (charts, failure)
}

/// Escapes text of a report for HTML, between tags or in a quoted attribute: nothing of it can become markup.
pub(crate) fn html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// The same of a sentence, in which no line ends between a number and its percent sign, or within a range (`47–55 %`). Not for what is
/// copied, such as a command.
pub(crate) fn sentence(text: &str) -> String {
    html(text).replace(" %", "&nbsp;%").replace('–', "–&NoBreak;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        assert_eq!(html("</title><script>a(\"'&')"), "&lt;/title&gt;&lt;script&gt;a(&quot;&#39;&amp;&#39;)");
    }
}
