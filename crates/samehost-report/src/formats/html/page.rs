//! The page around the reports: head and style; the context of the measurement.

use std::io::{self, Write};

use samehost_model::human::{format_percent, format_seconds};
use samehost_model::printable::clean;
use samehost_model::{Report, Stopping};

use super::chart;
use crate::formats::html::charts;
use crate::layout::Span;
use crate::measurement::question::question;
use crate::measurement::view::View;
use crate::measurement::{answer, conditions, figures, head, notes, words};

const STYLE: &str = include_str!("style.css");
/// The page has no script and makes no network requests, whatever a report contains.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// A report with its label; without one it is called by what was measured.
type Labelled<'a> = (&'a str, &'a Report);

pub(crate) struct Front<'a> {
    /// Title of the page; when empty, the first report's question and answer.
    pub(crate) title: &'a str,
    pub(crate) html: &'a str,
    pub(crate) articles: Articles,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Articles {
    Whole,
    /// For a page whose front answers.
    WithoutCharts,
}

pub(crate) fn render_with(
    front: &Front<'_>,
    reports: &[Labelled<'_>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = match reports.first() {
        Some((_, report)) if front.title.is_empty() => question(&View::of(report)),
        _ => front.title.to_owned(),
    };
    let (safe, version) = (super::html(&title), env!("CARGO_PKG_VERSION"));
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"samehost {version}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{safe} · samehost</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>"
    )?;
    let many = reports.len() > 1 || !front.html.is_empty();
    if many {
        writeln!(out, "<h1>{}</h1>", super::sentence(&title))?;
        out.write_all(front.html.as_bytes())?;
        if !reports.is_empty() {
            contents(reports, out)?;
        }
    }
    for (index, labelled) in reports.iter().enumerate() {
        let heading = if many { None } else { Some(title.as_str()) };
        article(index, *labelled, heading, front.articles, out)?;
    }
    writeln!(
        out,
        "</main>\n<footer><p>Made by samehost {version}. This file is complete: it loads nothing, and runs no script.</p>\
         </footer>\n</body>\n</html>"
    )
}

fn called((label, report): Labelled<'_>) -> String {
    if label.is_empty() { head::what(&View::of(report)).join(", ") } else { label.to_owned() }
}

fn contents(reports: &[Labelled<'_>], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<nav aria-label=\"Reports\"><ul>")?;
    for (index, labelled) in reports.iter().enumerate() {
        writeln!(out, "<li><a href=\"#r{index}\">{}</a></li>", super::html(&called(*labelled)))?;
    }
    writeln!(out, "</ul></nav>")
}

/// One report; `heading` is that of a page which has no other.
fn article(
    index: usize,
    labelled: Labelled<'_>,
    heading: Option<&str>,
    articles: Articles,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (_, report) = labelled;
    let view = View::of(report);
    let prefix = format!("r{index}");
    writeln!(out, "<article id=\"{prefix}\" aria-labelledby=\"{prefix}-title\">\n<header>")?;
    match heading {
        Some(heading) => {
            writeln!(out, "<h1 id=\"{prefix}-title\">{}</h1>", super::sentence(heading))?;
        }
        None => {
            let title = super::html(&called(labelled));
            writeln!(out, "<h2 class=\"top\" id=\"{prefix}-title\">{title}</h2>")?;
        }
    }
    if let Some(text) = head::outcome(report.head.outcome, &report.head.plan) {
        writeln!(out, "<p class=\"doubt\">{}.</p>", super::html(&text))?;
    }
    for headline in notes::headlines(&report.warnings) {
        let label = words::code(headline.code).to_uppercase();
        let text = notes::sentence(&headline.message);
        writeln!(out, "<p class=\"loud\" role=\"alert\">{label}! {}</p>", super::html(&text))?;
    }
    for paragraph in answer::answer(&view).iter().chain(&answer::turns(&view)) {
        writeln!(out, "<p class=\"answer\">{}</p>", spans(paragraph))?;
    }
    let parameters: Vec<String> = head::what(&view).into_iter().chain(head::how(&view)).collect();
    writeln!(out, "<p class=\"how\">{}</p>\n</header>", super::html(&parameters.join(" · ")))?;
    tables(&view, out)?;
    if articles == Articles::Whole {
        drawings(&view, &prefix, out)?;
    }
    basis(&view, out)?;
    writeln!(out, "</article>")
}

fn drawings(view: &View<'_>, prefix: &str, out: &mut dyn Write) -> io::Result<()> {
    let (charts, failure) = charts(view);
    if !charts.is_empty() || failure.is_some() {
        writeln!(out, "<h2>Charts</h2>")?;
    }
    if let Some(failure) = failure {
        writeln!(out, "<p class=\"note\">{}</p>", super::html(&failure))?;
    }
    writeln!(out, "<div class=\"charts\">")?;
    for chart in &charts {
        out.write_all(chart::figure(chart, prefix).as_bytes())?;
    }
    writeln!(out, "</div>")
}

fn spans(spans: &[Span]) -> String {
    spans.iter().map(chart::span).collect::<Vec<_>>().join(" ")
}

fn tables(view: &View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (figures, _) = figures::figures(view);
    let shown: Vec<_> = figures.iter().filter(|figure| !figure.grid.rows.is_empty()).collect();
    if shown.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Results</h2>\n<div class=\"tables\">")?;
    for figure in shown {
        writeln!(out, "<div>")?;
        if !figure.title.is_empty() {
            writeln!(out, "<h3>{}</h3>", super::html(&figure.title))?;
        }
        let caption = if figure.title.is_empty() { "Results" } else { &figure.title };
        writeln!(out, "{}</div>", chart::table(&figure.grid, caption))?;
    }
    writeln!(out, "</div>")?;
    if let Some(legend) = figures::legend(view, &figures) {
        writeln!(out, "<p class=\"how\">{}</p>", super::html(&legend))?;
    }
    Ok(())
}

fn basis(view: &View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let report = view.report;
    let notes = notes::notes(view);
    if !notes.is_empty() {
        writeln!(out, "<h2>Warnings</h2>\n<ul class=\"warnings\">")?;
        for group in &notes {
            for message in &group.messages {
                let code = words::code(group.code);
                writeln!(out, "<li><span class=\"doubt\">{code}</span> {}</li>", super::html(message))?;
            }
        }
        writeln!(out, "</ul>")?;
    }
    writeln!(out, "<h2>What this rests on</h2>")?;
    for (grid, caption) in [
        (figures::besides(view), "Also measured"),
        (conditions::limits(view), "How busy client and server were"),
    ] {
        if let Some(grid) = grid {
            writeln!(out, "<h3>{caption}</h3>\n{}", chart::table(&grid, caption))?;
        }
    }
    let conditions = conditions::conditions(view);
    if !conditions.is_empty() {
        writeln!(out, "<h3>Evidence and conditions</h3>\n<dl>")?;
        for condition in &conditions {
            let (label, text) = (super::html(condition.label), super::html(&condition.text));
            writeln!(out, "<dt>{label}</dt><dd>{text}</dd>")?;
        }
        writeln!(out, "</dl>")?;
    }
    writeln!(out, "<h3>Method</h3>\n<p>{}</p>", super::html(&method(report)))?;
    writeln!(out, "<h3>Environment</h3>\n<dl>")?;
    for (label, value) in environment(report) {
        writeln!(out, "<dt>{}</dt><dd>{}</dd>", super::html(&label), super::html(&value))?;
    }
    writeln!(out, "</dl>")?;
    if !report.head.command.is_empty() {
        let command = super::html(&report.head.command.join(" "));
        writeln!(out, "<h3>Command</h3>\n<pre tabindex=\"0\"><code>{command}</code></pre>")?;
    }
    Ok(())
}

/// Environment as label and value; unknown values are omitted.
pub(crate) fn environment(report: &Report) -> Vec<(String, String)> {
    let (host, server) = (&report.head.host, &report.head.workload.server);
    let allowed = if host.cpus_allowed > 0 && host.cpus_allowed != host.cpus {
        format!("{} of {}", host.cpus_allowed, host.cpus)
    } else {
        host.cpus.to_string()
    };
    let quota = match host.cgroup_quota {
        Some(cpus) => format!("{cpus} CPUs"),
        None => String::new(),
    };
    let whose = if server.managed { "started by samehost" } else { "was running" };
    let server_text = if server.kind.is_empty() {
        String::new()
    } else {
        format!("{} {} ({whose})", server.kind, server.version).replace("  ", " ")
    };
    let known = [
        ("CPU", host.cpu_model.clone()),
        ("CPUs", if host.cpus > 0 { allowed } else { String::new() }),
        ("quota", quota),
        ("memory", if host.memory_mib > 0 { format!("{} MiB", host.memory_mib) } else { String::new() }),
        ("distribution", host.distribution.clone()),
        ("kernel", host.kernel.clone()),
        ("virtualization", host.virtualization.clone()),
        ("governor", host.governor.clone()),
        ("clock source", host.clock_source.clone()),
        ("mitigations", host.mitigations.join(", ")),
        ("stolen time", format!("{:.1} %", host.steal_percent)),
        ("server", server_text),
        ("started", report.head.started_at.clone()),
        ("seed", report.head.seed.to_string()),
        ("samehost", report.head.samehost_version.clone()),
    ];
    let mut all = Vec::new();
    for (label, value) in known {
        all.push((label.to_owned(), clean(&value)));
    }
    for (name, value) in &host.sysctls {
        all.push((clean(name), clean(value)));
    }
    all.retain(|(_, value)| !value.trim().is_empty());
    all
}

/// Explains how the numbers were obtained, for readers who have only this page.
pub(crate) fn method(report: &Report) -> String {
    let plan = &report.head.plan;
    let trial = match (plan.trial_s, head::slices(plan)) {
        (None, _) => "One run of the operation is a trial.".to_owned(),
        (Some(seconds), Some(slices)) => format!(
            "In a round the connections of all arms are open and take turns in {slices}; {} of each arm are one sample.",
            format_seconds(seconds)
        ),
        (Some(seconds), None) => format!("A trial is {} of checked operations.", format_seconds(seconds)),
    };
    if report.analysis.comparisons.is_empty() {
        return format!("{trial} Values are medians over trials.");
    }
    let often = if plan.control { "twice" } else { "once" };
    let compared = format!(
        "Every block runs each arm {often}, in a random order, so that what changes with time meets all arms alike."
    );
    let control = if plan.control {
        " The baseline also runs against itself. If the two differed, this report would give no verdict."
    } else {
        ""
    };
    let stopping = match plan.stopping {
        Stopping::Precision => format!(
            "How much to measure was decided beforehand: at fixed numbers of blocks ({} to {}) the precision of ±{} was \
             looked at.",
            plan.min_blocks,
            plan.max_blocks,
            format_percent(plan.precision)
        ),
        Stopping::Decision => format!(
            "Each point was measured until it was decided, by a test that is looked at after 7, 10, 14, 20 and so on, or for {} \
             blocks.",
            plan.max_blocks
        ),
    };
    // Reports of earlier versions have trials that were set aside; today's keep all (docs/method.md §7).
    let disturbed = if report.trials.iter().any(|trial| trial.set_aside) {
        "Trials that something else on the machine disturbed were measured again, by a rule that does not see the result."
    } else {
        "Trials that something else on the machine disturbed are kept: all arms meet it alike, and the interval has it."
    };
    format!(
        "{trial} {compared} The ratio is that of the blocks' log ratios with its {} interval, by the method that each \
         comparison names.{control} A verdict needs a p-value below 5 % of a difference within the margin (±{}), adjusted for all \
         that is asked (Holm); equivalent means the difference is shown to lie inside the margin. {stopping} {disturbed}",
        format_percent(plan.confidence),
        format_percent(plan.margin),
    )
}

#[cfg(test)]
mod tests {
    use samehost_model::{Head, Host};

    use super::*;

    #[test]
    fn what_is_unknown_is_left_out() {
        let report = Report::new(Head {
            samehost_version: "0".into(),
            seed: 7,
            host: Host { cpus: 8, cpus_allowed: 2, ..Host::default() },
            ..Head::default()
        });
        let labels: Vec<(String, String)> = environment(&report);
        let labels: Vec<&str> = labels.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["CPUs", "stolen time", "seed", "samehost"]);
        assert_eq!(environment(&report)[0].1, "2 of 8");
        assert_eq!(
            method(&report),
            "A trial is 0.5 s of checked operations. Values are medians over trials."
        );
    }
}
