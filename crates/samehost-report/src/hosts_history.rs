//! The runs of many hosts on the terminal: hosts whose newest run differs from their earlier ones, then each host's ratios.

use std::collections::BTreeSet;
use std::io::{self, Write};

use samehost_analysis::{HostHistory, HostsHistory, Newest};
use samehost_model::printable::clean;

use crate::hosts::{MOST, more, ratio, standing, what};
use crate::line::{Line, Span, Tone, labelled, titled, wrap_spans};
use crate::page::Page;
use crate::terminal::Terminal;
use crate::text::count;

impl Terminal {
    /// Renders the runs of many hosts, and which of the newest differ.
    pub fn render_hosts_history(&self, found: &HostsHistory, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        page.section(head(found, columns));
        page.section(differ(found, columns));
        page.section(ratios(found, columns));
        self.print(&page, out)
    }
}

fn called(found: &HostsHistory) -> impl Iterator<Item = (&HostHistory, &Newest)> {
    let newest = found.histories.iter().filter_map(|history| Some((history, history.newest.as_ref()?)));
    newest.filter(|(_, newest)| newest.differs)
}

fn head(found: &HostsHistory, columns: usize) -> Vec<Line> {
    let names: BTreeSet<&str> = called(found).map(|(history, _)| history.host.as_str()).collect();
    let verdict = match names.len() {
        0 => "no newest run differs from the earlier ones of its host beyond chance".to_owned(),
        1 => "1 host's newest run differs from its earlier ones beyond chance".to_owned(),
        many => format!("{many} hosts' newest runs differ from their earlier ones beyond chance"),
    };
    let hosts = count(found.hosts as usize, "host");
    let mut lines = wrap_spans(&[Span::new(Tone::Bold, format!("Of {hosts} {verdict}"))], columns);
    let of = format!("{} of {hosts}", count(found.reports as usize, "report"));
    lines.extend(wrap_spans(&[Span::dim(of)], columns));
    lines
}

fn differ(found: &HostsHistory, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (history, newest) in called(found).take(MOST) {
        let (tone, word) = standing(newest.is_slower);
        let mut spans = vec![
            Span::new(Tone::Bold, clean(&history.host)),
            Span::new(tone, word),
            Span::plain(ratio(newest.ratio, newest.ci_low, newest.ci_high)),
            Span::dim(format!("{}; {}", what(&history.cell), when(history))),
        ];
        if !history.changed.is_empty() {
            spans.push(Span::new(Tone::Doubt, clean(&history.changed.join(", "))));
        }
        lines.extend(labelled(&Span::plain("  "), 4, &spans, columns));
    }
    lines.extend(more(called(found).count(), columns));
    titled("Hosts whose newest run differs from their earlier ones", lines)
}

/// The ratios of arms: what a host's runs have in common, whatever its hardware.
fn ratios(found: &HostsHistory, columns: usize) -> Vec<Line> {
    let all = || found.histories.iter().filter(|history| history.cell.arm.contains('÷'));
    let mut lines = Vec::new();
    for history in all().take(MOST) {
        let Some((newest, earlier)) = history.runs.split_last() else { continue };
        let mut spans = vec![
            Span::new(Tone::Bold, clean(&history.host)),
            Span::plain(format!("{:.3}", newest.value)),
            Span::dim(format!("{}; {}", what(&history.cell), when(history))),
        ];
        let low = earlier.iter().map(|run| run.value).reduce(f64::min);
        let high = earlier.iter().map(|run| run.value).reduce(f64::max);
        if let (Some(low), Some(high)) = (low, high) {
            spans.insert(2, Span::plain(format!("before: {low:.3}–{high:.3}")));
        }
        lines.extend(labelled(&Span::plain("  "), 4, &spans, columns));
    }
    lines.extend(more(all().count(), columns));
    titled("Ratios of the newest runs", lines)
}

/// How many runs, and from when to when.
fn when(history: &HostHistory) -> String {
    let day = |run: Option<&samehost_analysis::HostRun>| -> String {
        let start = run.map_or("", |run| run.started_at.as_str());
        clean(start.get(..10).unwrap_or(start))
    };
    let (first, last) = (day(history.runs.first()), day(history.runs.last()));
    let runs = count(history.runs.len(), "run");
    if first == last { format!("{runs}, {last}") } else { format!("{runs}, {first} to {last}") }
}
