//! The checkup as one page: the answer as its heading, the table with a chart of its rows, what it means and what is worth
//! doing on the first screen; the measurement of each row below, with its tables. It needs no script: a page with every
//! chart and every trial of eleven measurements had 2.3 MB, and nobody found the answer in it.

use std::fmt::Write as _;
use std::io::{self, Write};

use samehost_model::{Comparison, Report, Verdict};

use super::page::{Articles, Front};
use super::{html as escaped, render_with, sentence};
use crate::measurement::head;
use crate::verbs::checkup::{Around, Finding, FindingKind, NOTHING_WORTH, Running, answer, legend, meaning};

const WIDTH: f64 = 176.0;
const HEIGHT: f64 = 20.0;
/// Units at both ends of a drawing in which nothing is placed, so that a dot at an end is whole.
const PAD: f64 = 6.0;

#[derive(Clone, Copy, Debug)]
pub struct CheckupPage<'a> {
    /// Heading in place of the answer.
    pub title: Option<&'a str>,
    pub findings: &'a [Finding<'a>],
    pub around: Around<'a>,
    /// Failed measurements and hints.
    pub notes: &'a [String],
    pub reports: &'a [(&'a str, &'a Report)],
}

pub fn checkup_as_html(page: &CheckupPage<'_>, out: &mut dyn Write) -> io::Result<()> {
    let title = match page.title {
        Some(title) => title.to_owned(),
        None => answer(page.findings),
    };
    let front = Front { title: &title, html: &front(page), articles: Articles::WithoutCharts };
    render_with(&front, page.reports, out)
}

fn front(page: &CheckupPage<'_>) -> String {
    let mut html = String::new();
    if let Some((_, report)) = page.reports.first() {
        let head = &report.head;
        let how = [head::machine(&head.host), head.started_at.chars().take(10).collect()];
        let _ = writeln!(html, "<p class=\"how\">{}</p>", escaped(&how.join(" · ")));
    }
    let _ = writeln!(html, "<div class=\"front\"><div>{}", table(page.findings));
    let _ = writeln!(html, "<p class=\"about\">{}</p>", escaped(&legend(page.findings)));
    worth(&page.around, &mut html);
    html.push_str("</div>\n<div><h2>What it means</h2>\n<ul>");
    for one in meaning(page.findings, page.notes) {
        let _ = writeln!(html, "<li>{}</li>", sentence(&one));
    }
    html.push_str("</ul></div></div>\n");
    html
}

fn worth(around: &Around<'_>, html: &mut String) {
    if !around.here.is_empty() {
        let _ = writeln!(html, "<h2>Most worth doing here</h2>\n<ul>");
        let _ = writeln!(html, "<li>{}</li>", escaped(around.here));
        for one in around.worth {
            html.push_str(&with_command(one));
        }
        if around.worth.is_empty() {
            html.push_str(&with_command(&NOTHING_WORTH));
        }
        html.push_str("</ul>\n");
    }
    if !around.running.is_empty() {
        let title = "Servers that run here (not touched; measuring one puts load on it)";
        let _ = writeln!(html, "<h2>{title}</h2>\n<ul>");
        for one in around.running {
            html.push_str(&with_command(one));
        }
        html.push_str("</ul>\n");
    }
}

fn with_command(one: &Running<'_>) -> String {
    format!("<li>{}<pre><code>{}</code></pre></li>\n", escaped(one.about), escaped(one.line))
}

fn table(findings: &[Finding<'_>]) -> String {
    let axis = Axis::of(findings);
    let mut html = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Checkup\"><table class=\"rows\"><thead><tr>\
         <td></td><th scope=\"col\" class=\"right\">TCP</th><th scope=\"col\" class=\"right\">Unix</th>\
         <th scope=\"col\">Unix against TCP</th>",
    );
    let _ = writeln!(html, "<td>{}</td></tr></thead><tbody>", axis.head());
    for finding in findings {
        let label = escaped(finding.label.trim_start());
        let class = if finding.label.starts_with(' ') { " class=\"part\"" } else { "" };
        let _ = write!(html, "<tr><th scope=\"row\"{class}>{label}</th>");
        let (Some([tcp, unix, answer]), Some(comparison)) = (finding.cells(), finding.comparison()) else {
            html.push_str("<td class=\"right dim\">not measured</td><td></td><td></td><td></td></tr>\n");
            continue;
        };
        let drawing = axis.row(comparison, look(finding, comparison));
        let _ = writeln!(
            html,
            "<td class=\"right\">{}</td><td class=\"right\">{}</td><td>{}</td><td>{drawing}</td></tr>",
            escaped(&tcp),
            escaped(&unix),
            sentence(&answer)
        );
    }
    html.push_str("</tbody></table></div>");
    html
}

fn look(finding: &Finding<'_>, comparison: &Comparison) -> &'static str {
    match comparison.verdict {
        _ if finding.kind == FindingKind::Scheduler => "open",
        Verdict::Faster => "better",
        Verdict::Slower => "worse",
        Verdict::Equivalent => "same",
        Verdict::Inconclusive => "open",
    }
}

/// Logarithmic axis of ratios that all rows share.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(findings: &[Finding<'_>]) -> Self {
        let (mut low, mut high) = (0.5_f64, 1.25_f64);
        for comparison in findings.iter().filter_map(Finding::comparison) {
            for end in [Some(comparison.ratio), comparison.ci_low, comparison.ci_high].into_iter().flatten() {
                if end.is_finite() && end > 0.0 {
                    (low, high) = (low.min(end), high.max(end));
                }
            }
        }
        // One row that nothing is known of must not press all others together.
        Axis { low: low.max(0.1), high: high.min(10.0) }
    }

    fn place(&self, ratio: f64) -> f64 {
        let part = (ratio.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln();
        PAD + part * (WIDTH - 2.0 * PAD)
    }

    /// The axis itself: both ends in words. The line in each row is no difference.
    fn head(&self) -> String {
        format!(
            "<svg class=\"interval\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-hidden=\"true\">\
             <text x=\"{:.0}\" y=\"14\" text-anchor=\"start\">{:.0} % less</text>\
             <text x=\"{:.0}\" y=\"14\" text-anchor=\"end\">{:.0} % more</text></svg>",
            self.place(self.low),
            100.0 * (1.0 - self.low),
            self.place(self.high),
            100.0 * (self.high - 1.0)
        )
    }

    fn row(&self, comparison: &Comparison, look: &str) -> String {
        let middle = HEIGHT / 2.0;
        let none = self.place(1.0);
        let mut svg = format!(
            "<svg class=\"interval {look}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-hidden=\"true\">\
             <line class=\"none\" x1=\"{none:.1}\" x2=\"{none:.1}\" y1=\"0\" y2=\"{HEIGHT}\"/>"
        );
        if let (Some(low), Some(high)) = (comparison.ci_low, comparison.ci_high) {
            let (from, to) = (self.place(low), self.place(high));
            let _ = write!(svg, "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>");
        }
        let _ =
            write!(svg, "<circle cx=\"{:.1}\" cy=\"{middle}\" r=\"4\"/></svg>", self.place(comparison.ratio));
        svg
    }
}
