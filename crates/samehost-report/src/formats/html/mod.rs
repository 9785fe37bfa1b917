//! The report as one HTML file that works offline: answer, tables, charts drawn by plotly.js, conditions, and
//! the raw JSON to download. Each kind of chart is a file; charts without data are omitted.

mod chart;
mod checkup;
mod cpu;
mod flames;
mod hosts;
mod page;
mod quantiles;
mod ratios;
mod sweeps;
mod timeline;

use std::fmt::Write as _;
use std::io::{self, Write};

use samehost_model::Report;
use samehost_model::printable::{clean, is_hidden};

use crate::measurement::view::View;
use chart::Chart;

pub(crate) use chart::table;
pub use checkup::{CheckupPage, checkup_as_html};
pub use hosts::hosts_as_html;
pub(crate) use page::{Articles, Front, render_with};

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    render_page("", &[("", report)], out)
}

/// Labelled reports as one page, with a title. A single report without a label needs none: its answer is the heading. The page loads
/// nothing, opens offline, and has each report as JSON, which `samehost report` reads again; nothing of a report becomes markup.
///
/// # Errors
/// Those of `out`.
pub fn render_page(title: &str, reports: &[(&str, &Report)], out: &mut dyn Write) -> io::Result<()> {
    render_with(&Front { title, html: "", articles: Articles::Whole }, reports, out)
}

/// All charts for which the report has data, and a sentence about any that could not be drawn.
fn charts(view: &View<'_>) -> (Vec<Chart>, Option<String>) {
    let (quantiles, failure) = match quantiles::charts(view) {
        Ok(charts) => (charts, None),
        Err(error) => (Vec::new(), Some(format!("No picture of the latencies by percentile: {error}."))),
    };
    let mut charts = vec![ratios::chart(view), sweeps::ladder_chart(view)];
    charts.extend(sweeps::charts(view));
    charts.extend(quantiles);
    charts.extend(cpu::chart(view));
    charts.push(timeline::chart(view));
    charts.retain(|chart| !chart.views.is_empty());
    (charts, failure)
}

// Escapes text of a report for HTML, for JSON inside a `<script>`, and for chart labels. Nothing from a
// report can become markup or close the element that contains it.

/// Escapes text between tags or in a quoted attribute.
pub(crate) fn html(text: &str) -> String {
    chart(text).replace('"', "&quot;").replace('\'', "&#39;")
}

/// The same of a sentence, in which no line ends between a number and its percent sign, or within a range (`47–55 %`). Not for what is
/// copied, such as a command.
pub(crate) fn sentence(text: &str) -> String {
    html(text).replace(" %", "&nbsp;%").replace('–', "–&NoBreak;")
}

/// Escapes text that plotly.js draws: it interprets some tags and entities, and `%{` starts a template.
pub(crate) fn chart(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Escapes JSON inside a `<script>`: characters that could close the element or start a comment become `\u`
/// escapes. They occur only in strings, so the value is unchanged.
pub(crate) fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        if matches!(c, '<' | '>' | '&') || (is_hidden(c) && c != '\n') {
            for unit in c.encode_utf16(&mut units) {
                // Writing to a String cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        assert_eq!(html("</title><script>a(\"'&')"), "&lt;/title&gt;&lt;script&gt;a(&quot;&#39;&amp;&#39;)");
        assert_eq!(chart("<a href='javascript:x'>%{x}"), "&lt;a href='javascript:x'&gt;%{x}");
    }

    #[test]
    fn json_says_the_same_without_ending_its_script() {
        let value = serde_json::json!({ "</script><!--": "a & b \u{2028} \u{e0001} µs" });
        let text = json(&value.to_string());
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{e0001}']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
