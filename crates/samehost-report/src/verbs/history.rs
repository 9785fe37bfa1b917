//! Stored results in order of time, each with its answer and the changes since the previous run of the same command.

use std::io::{self, Write};

use samehost_analysis::Changes;
use samehost_model::human::{format_percent, format_ratio_aligned, format_together};
use samehost_model::printable::clean;
use samehost_model::{Comparison, Report, Transport, Verdict};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Align, Column, Grid, Line, Span, Tone, labelled, wrap_spans};
use crate::measurement::notes::{self, Note, Notes};
use crate::measurement::view::View;
use crate::measurement::words;
use crate::measurement::{answer, head};

pub struct Run<'a> {
    pub file: &'a str,
    pub report: &'a Report,
    pub change: Change,
}

pub enum Change {
    First,
    Since(Changes),
    Unknown(String),
}

const INDENT: usize = 2;

impl Terminal {
    /// Renders stored runs. The newest comes last, next to the prompt. Each says when and what; `samehost report` of its file says how.
    pub fn render_history(&self, runs: &[Run<'_>], out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        for run in runs {
            let view = View::of(run.report);
            let mut what: Vec<String> = head::started(&run.report.head.started_at).into_iter().collect();
            what.extend(head::what(&view));
            let mut lines = head::flow(Tone::Bold, &what, page.columns);
            for paragraph in answer::answer(&view) {
                lines.extend(wrap_spans(&paragraph, page.measure()));
            }
            for paragraph in changes_since(run) {
                lines.extend(labelled(&Span::dim("→"), INDENT, &paragraph, page.measure()));
            }
            lines.push(Line::of(Tone::Dim, run.file));
            page.section(lines);
        }
        self.print(&page, out)
    }

    /// Renders the changes between two reports: each arm compared with itself, and the old ratio with the new one. The latter is the
    /// safer list: pairs remove the drift inside of each report (docs/method.md §11).
    pub fn render_changes(
        &self,
        changes: &Changes,
        old: &Report,
        new: &Report,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let mut lines = head::flow(Tone::Bold, &head::what(&View::of(new)), page.columns);
        for (name, report) in [("old", old), ("new", new)] {
            let mut parts = head::how(&View::of(report));
            if let Some(first) = parts.first_mut() {
                *first = format!("{name}: {first}");
            }
            lines.extend(head::flow(Tone::Dim, &parts, page.columns));
        }
        page.section(lines);
        for (name, report) in [("old", old), ("new", new)] {
            for headline in notes::headlines(&report.warnings) {
                page.loud(words::code(headline.code), &format!("in the {name} report: {}", headline.message));
            }
        }
        let mut changes = changes.clone();
        changes.arms.retain(|change| match new.arm(&change.baseline) {
            Some(arm) => arm.transport != Transport::None,
            None => true,
        });
        let sentences = summary(&changes, new);
        page.section(sentences.iter().flat_map(|text| wrap_spans(text, page.measure())).collect());
        table(&mut page, "new ÷ old, each arm against itself", new, &changes.arms);
        table(&mut page, "new ÷ old, of the ratio", new, &changes.ratios);
        page.notes(&doubts(&changes));
        self.print(&page, out)
    }
}

fn changes_since(run: &Run<'_>) -> Vec<Vec<Span>> {
    match &run.change {
        Change::First => vec![vec![Span::dim("the first stored run of this command")]],
        Change::Unknown(reason) => {
            vec![vec![Span::new(Tone::Doubt, format!("not comparable with the run before: {reason}"))]]
        }
        Change::Since(found) => {
            let mut first = vec![Span::dim("since the run before:")];
            first.extend(summary(found, run.report).into_iter().flatten());
            let mut paragraphs = vec![first];
            for warning in &found.warnings {
                let code = Span::new(Tone::Doubt, format!("{}:", words::code(warning.code)));
                paragraphs.push(vec![code, Span::plain(&warning.message)]);
            }
            paragraphs
        }
    }
}

/// Sentences about the changes: counts for arms and for ratios, then each arm whose first metric changed.
pub(crate) fn summary(changes: &Changes, new: &Report) -> Vec<Vec<Span>> {
    let mut rows = Vec::new();
    rows.extend(counted("Arms", &changes.arms));
    rows.extend(counted("Ratios", &changes.ratios));
    let Some(first) = new.head.workload.metrics.first() else { return rows };
    for c in &changes.arms {
        if c.metric != first.name || !words::is_difference(c) {
            continue;
        }
        let (words, than) = words::statement(first, c.ratio, c.point.rate_per_s.is_some());
        rows.push(vec![
            Span::new(words::tone(words::told(c)), format!("{}: {words}", clean(&c.baseline))),
            Span::plain(format!("{than} before.")),
        ]);
    }
    rows
}

fn table(page: &mut Page, title: &str, report: &Report, all: &[Comparison]) {
    if all.is_empty() {
        return;
    }
    let confidence = format!("{} interval", format_percent(report.head.plan.confidence));
    let mut grid = Grid::new(vec![
        Column::new("", Align::Left),
        Column::new("", Align::Left),
        Column::new("old", Align::Value),
        Column::new("new", Align::Value),
        Column::new("new ÷ old", Align::Right).or_short("ratio"),
        Column::new(confidence, Align::Right).spare(1),
        Column::new("verdict", Align::Left),
    ]);
    for wanted in &report.head.workload.metrics {
        let mut title = words::title(&wanted.name);
        for comparison in all.iter().filter(|c| c.metric == wanted.name) {
            let is_ratio = comparison.baseline.contains('÷');
            let values = [comparison.baseline_value, comparison.candidate_value];
            let texts = if is_ratio {
                values.iter().map(|value| format_ratio_aligned(*value)).collect()
            } else {
                format_together(&values, &wanted.unit)
            };
            let mut row = vec![Span::from(std::mem::take(&mut title)), Span::plain(&comparison.baseline)];
            row.extend(texts.into_iter().map(Span::from));
            let [ratio, interval] = words::ratio_cells(comparison.ratio, comparison.ends());
            row.extend([Span::new(Tone::Bold, ratio), Span::from(interval)]);
            row.push(Span::new(words::tone(words::told(comparison)), words::cell(Some(wanted), comparison)));
            grid.push(row);
        }
    }
    let mut lines = vec![Line::of(Tone::Bold, title)];
    lines.extend(grid.lines(page.columns));
    page.section(lines);
}

/// How many comparisons have each verdict: `Arms: 1 worse, 3 unchanged.`; `None` where there are none.
fn counted(what: &str, all: &[Comparison]) -> Option<Vec<Span>> {
    if all.is_empty() {
        return None;
    }
    let mut text = vec![Span::new(Tone::Bold, format!("{what}:"))];
    let mut left = all.len();
    for (verdict, tone, word) in [
        (Verdict::Slower, Tone::Bad, "worse"),
        (Verdict::Faster, Tone::Good, "better"),
        (Verdict::Equivalent, Tone::Plain, "unchanged"),
        (Verdict::Inconclusive, Tone::Doubt, "undecided"),
    ] {
        let number = all.iter().filter(|comparison| words::told(comparison) == verdict).count();
        if number == 0 {
            continue;
        }
        left -= number;
        let end = if left == 0 { "." } else { "," };
        text.push(Span::new(tone, format!("{number} {word}{end}")));
    }
    Some(text)
}

fn is_headline(_: &Comparison, note: Note<'_>) -> bool {
    matches!(note, Note::Warning(warning) if words::is_headline(warning.code))
}

fn doubts(changes: &Changes) -> Vec<Notes> {
    let mut found = Vec::new();
    for warning in &changes.warnings {
        notes::add(&mut found, warning.code, notes::sentence(&warning.message));
    }
    for all in [&changes.arms, &changes.ratios] {
        notes::gather(&mut found, all, &is_headline, &about);
    }
    found
}

fn about(c: &Comparison) -> String {
    format!("{}, {}", clean(&c.baseline), words::title(&c.metric))
}
