//! The comparison of many hosts on the terminal, and the runs of many hosts over time.

use std::collections::BTreeSet;
use std::io::{self, Write};

use samehost_analysis::{Cell, Difference, HostHistory, HostsCompared, HostsHistory, Newest};
use samehost_model::metric_title;
use samehost_model::printable::clean;

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, beyond, count, labelled, titled, wrap_spans};
use crate::measurement::view::ends;

/// Entries of a list that are shown; JSON has all.
const MOST: usize = 20;

impl Terminal {
    pub fn render_hosts(&self, found: &HostsCompared, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        page.section(head(verdict(found), of_what(found), columns));
        page.section(hosts(found, columns));
        page.section(factors(found, columns));
        if let Some(text) = not_compared(found) {
            page.section(wrap_spans(&[Span::new(Tone::Doubt, text)], columns));
        }
        self.print(&page, out)
    }

    pub fn render_hosts_history(&self, found: &HostsHistory, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        page.section(history_head(found, columns));
        page.section(differ(found, columns));
        page.section(ratios(found, columns));
        self.print(&page, out)
    }
}

fn head(verdict: String, of: String, columns: usize) -> Vec<Line> {
    let mut lines = wrap_spans(&[Span::new(Tone::Bold, verdict)], columns);
    lines.extend(wrap_spans(&[Span::dim(of)], columns));
    lines
}

pub(crate) fn verdict(found: &HostsCompared) -> String {
    let mut names: Vec<&str> = found.differ.iter().map(|host| host.host.as_str()).collect();
    names.dedup();
    let verdict = match names.len() {
        0 => "no host differs from those like it beyond chance".to_owned(),
        1 => "1 host differs from those like it beyond chance".to_owned(),
        many => format!("{many} hosts differ from those like them beyond chance"),
    };
    format!("Of {} {verdict}", count(found.hosts as usize, "host"))
}

pub(crate) fn of_what(found: &HostsCompared) -> String {
    format!(
        "{} of {}, {}",
        count(found.reports as usize, "report"),
        count(found.hosts as usize, "host"),
        count(found.environments as usize, "environment"),
    )
}

pub(crate) fn not_compared(found: &HostsCompared) -> Option<String> {
    if found.not_compared.is_empty() {
        return None;
    }
    Some(format!(
        "Not compared: {} with fewer than three reports, or with an environment that fewer than four others have.",
        count(found.not_compared.len(), "host")
    ))
}

/// A word for how a host stands among those like it, with its tone. A ratio of two arms is neither better nor worse.
pub(crate) fn standing(is_slower: Option<bool>) -> (Tone, &'static str) {
    match is_slower {
        Some(true) => (Tone::Bad, "slower"),
        Some(false) => (Tone::Good, "faster"),
        None => (Tone::Doubt, "differs"),
    }
}

pub(crate) fn what(cell: &Cell) -> String {
    clean(&format!("{}, {}, {}", cell.workload, cell.arm, metric_title(&cell.metric)))
}

pub(crate) fn ratio(difference: &Difference) -> String {
    let Difference { ratio, ci_low, ci_high, .. } = difference;
    format!("{ratio:.3} × ({ci_low:.3}–{ci_high:.3})")
}

fn hosts(found: &HostsCompared, columns: usize) -> Vec<Line> {
    let mut entries = Vec::new();
    for host in &found.differ {
        let (tone, word) = standing(host.is_slower);
        let (reports, peers) = (count(host.reports as usize, "report"), count(host.peers as usize, "host"));
        entries.push(vec![
            Span::new(Tone::Bold, clean(&host.host)),
            Span::new(tone, word),
            Span::plain(ratio(&host.difference)),
            Span::dim(format!("{}; {reports}, {peers} like it", what(&host.cell))),
        ]);
    }
    list("Hosts that differ from those with the same environment", &entries, columns)
}

fn factors(found: &HostsCompared, columns: usize) -> Vec<Line> {
    let mut entries = Vec::new();
    for factor in &found.factors {
        entries.push(vec![
            Span::new(Tone::Bold, clean(&format!("{} {}", factor.factors.join(", "), named(&factor.level)))),
            Span::plain(ratio(&factor.difference)),
            Span::plain(clean(&format!("of {}", named(&factor.usual)))),
            Span::dim(format!("{}; {}", what(&factor.cell), count(factor.hosts as usize, "host"))),
        ]);
    }
    list("Environments that differ from the usual one", &entries, columns)
}

pub(crate) fn named(level: &str) -> &str {
    if level.is_empty() { "none" } else { level }
}

/// Entries below a title, and how many there are beyond those that are shown.
fn list(title: &str, entries: &[Vec<Span>], columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for spans in entries.iter().take(MOST) {
        lines.extend(labelled(&Span::plain("  "), 4, spans, columns));
    }
    if let Some(more) = beyond(entries.len(), MOST) {
        let text = format!("and {more} more; --json has all");
        lines.extend(labelled(&Span::plain("  "), 2, &[Span::dim(text)], columns));
    }
    titled(title, lines)
}

fn called(found: &HostsHistory) -> impl Iterator<Item = (&HostHistory, &Newest)> {
    let newest = found.histories.iter().filter_map(|history| Some((history, history.newest.as_ref()?)));
    newest.filter(|(_, newest)| newest.differs)
}

fn history_head(found: &HostsHistory, columns: usize) -> Vec<Line> {
    let names: BTreeSet<&str> = called(found).map(|(history, _)| history.host.as_str()).collect();
    let verdict = match names.len() {
        0 => "no newest run differs from the earlier ones of its host beyond chance".to_owned(),
        1 => "1 host's newest run differs from its earlier ones beyond chance".to_owned(),
        many => format!("{many} hosts' newest runs differ from their earlier ones beyond chance"),
    };
    let hosts = count(found.hosts as usize, "host");
    let of = format!("{} of {hosts}", count(found.reports as usize, "report"));
    head(format!("Of {hosts} {verdict}"), of, columns)
}

fn differ(found: &HostsHistory, columns: usize) -> Vec<Line> {
    let mut entries = Vec::new();
    for (history, newest) in called(found) {
        let (tone, word) = standing(newest.is_slower);
        let mut spans = vec![
            Span::new(Tone::Bold, clean(&history.host)),
            Span::new(tone, word),
            Span::plain(ratio(&newest.difference)),
            Span::dim(format!("{}; {}", what(&history.cell), when(history))),
        ];
        if !history.changed.is_empty() {
            spans.push(Span::new(Tone::Doubt, clean(&history.changed.join(", "))));
        }
        entries.push(spans);
    }
    list("Hosts whose newest run differs from their earlier ones", &entries, columns)
}

/// The ratios of arms. They are what hosts can be held against each other by, whatever their hardware; a time of one machine says
/// little of another.
fn ratios(found: &HostsHistory, columns: usize) -> Vec<Line> {
    let mut entries = Vec::new();
    for history in found.histories.iter().filter(|history| history.cell.arm.contains('÷')) {
        let Some((newest, earlier)) = history.runs.split_last() else { continue };
        let mut spans = vec![
            Span::new(Tone::Bold, clean(&history.host)),
            Span::plain(format!("{:.3}", newest.value)),
            Span::dim(format!("{}; {}", what(&history.cell), when(history))),
        ];
        let earlier: Vec<f64> = earlier.iter().map(|run| run.value).collect();
        if let Some((low, high)) = ends(&earlier) {
            spans.insert(2, Span::plain(format!("before: {low:.3}–{high:.3}")));
        }
        entries.push(spans);
    }
    list("Ratios of the newest runs", &entries, columns)
}

fn when(history: &HostHistory) -> String {
    let (first, last) = (day(history.runs.first()), day(history.runs.last()));
    let runs = count(history.runs.len(), "run");
    if first == last { format!("{runs}, {last}") } else { format!("{runs}, {first} to {last}") }
}

fn day(run: Option<&samehost_analysis::HostRun>) -> String {
    let Some(run) = run else { return String::new() };
    let start = run.started_at.as_str();
    clean(start.get(..10).unwrap_or(start))
}
