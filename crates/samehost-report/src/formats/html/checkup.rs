//! The checkup as one page: the answer as its heading, the table with a chart of its rows, what it means and what is worth
//! doing on the first screen; the measurement of each row below, with its tables. It needs no script: a page with every
//! chart and every trial of eleven measurements had 2.3 MB, and nobody found the answer in it.

use std::fmt::Write as _;
use std::io::{self, Write};

use samehost_model::Report;

use super::interval::{self, RatioAxis};
use super::page::{Articles, Front};
use super::{html as escaped, render_with, sentence};
use crate::measurement::{head, words};
use crate::verbs::checkup::{Around, Finding, NOTHING_WORTH, Running, answer, legend, meaning};

#[derive(Clone, Copy, Debug)]
pub struct CheckupPage<'a> {
    pub findings: &'a [Finding<'a>],
    pub around: Around<'a>,
    /// Failed measurements and hints.
    pub notes: &'a [String],
    pub reports: &'a [(&'a str, &'a Report)],
}

pub fn checkup_as_html(page: &CheckupPage<'_>, out: &mut dyn Write) -> io::Result<()> {
    let title = answer(page.findings);
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
    if around.is_known {
        let _ = writeln!(html, "<h2>Most worth doing here</h2>\n<ul>");
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
    let axis = RatioAxis::of(findings.iter().filter_map(Finding::comparison));
    let mut html = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Checkup\"><table class=\"rows\"><thead><tr>\
         <td></td><th scope=\"col\" class=\"right\">TCP</th><th scope=\"col\" class=\"right\">Unix</th>\
         <th scope=\"col\">Unix against TCP</th>",
    );
    let _ = writeln!(html, "<td>{}</td></tr></thead><tbody>", axis.head());
    for finding in findings {
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escaped(finding.label));
        let (Some([tcp, unix, answer]), Some(comparison)) = (finding.cells(), finding.comparison()) else {
            html.push_str("<td class=\"right dim\">not measured</td><td></td><td></td><td></td></tr>\n");
            continue;
        };
        let drawing = axis.row(comparison, interval::look(words::told(comparison)), None);
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
