//! The reproduction on a terminal: the summary, the table, and explanations.

use std::io::{self, Write};

use samehost_model::Reproduction;

use super::{LEGEND, TITLE, here, how, outcome, summary, unmeasured, whys};
use crate::formats::page::Page;
use crate::formats::terminal::Terminal;
use crate::layout::grid::{Align, Column, Grid};
use crate::layout::line::{Line, Span, Tone, labelled, wrap_spans};
use crate::measurement::head;

/// Indent of a claim: the longest id and a gap.
const INDENT: usize = 4;

impl Terminal {
    pub fn render_reproduction(&self, reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let set = |tone: Tone, lines: Vec<String>| {
            lines.into_iter().map(move |text| Line::from(vec![Span::new(tone, text)]))
        };
        let mut lines: Vec<Line> = set(Tone::Bold, vec![TITLE.into()]).collect();
        lines.extend(set(Tone::Dim, head::flow(&how(reproduction), page.columns)));
        if reproduction.interrupted {
            lines.extend(set(
                Tone::Doubt,
                vec!["Interrupted: run the same command again to continue.".into()],
            ));
        }
        page.section(lines);
        let measure = page.measure();
        page.section(wrap_spans(&[Span::new(Tone::Bold, summary(reproduction))], measure));
        let table = table(reproduction, page.columns);
        page.section(table);
        page.section(wrap_spans(&[Span::dim(LEGEND)], measure));
        let mut lines = Vec::new();
        for (experiment, sentences) in reproduction.experiments.iter().zip(whys(reproduction)) {
            let mut label = Span::new(Tone::Bold, &experiment.id);
            for sentence in sentences {
                lines.extend(labelled(&label, INDENT, &[Span::plain(sentence)], measure));
                label = Span::default();
            }
        }
        if !lines.is_empty() {
            lines.insert(0, Line::from(vec![Span::new(Tone::Bold, "Why")]));
        }
        page.section(lines);
        self.print(&page, out)
    }
}

/// A row with each experiment's name, followed by its claims.
fn table(reproduction: &Reproduction, columns: usize) -> Vec<Line> {
    let mut grid = Grid::new(vec![
        Column::new("", Align::Left),
        Column::new("published", Align::Right),
        Column::new("here", Align::Right),
        Column::new("", Align::Left),
    ]);
    let measured = || reproduction.experiments.iter().filter(|one| unmeasured(one).is_none());
    for claim in measured().flat_map(|one| &one.claims) {
        grid.push(vec![
            Span::plain(format!("{}{}", " ".repeat(INDENT), claim.claim)),
            Span::plain(&claim.published),
            claim.here.as_ref().map_or_else(|| Span::dim("–"), |found| Span::plain(here(found))),
            outcome(claim),
        ]);
    }
    let mut rows = if grid.rows.is_empty() { Vec::new() } else { grid.lines(columns) }.into_iter();
    let mut lines: Vec<Line> = rows.next().into_iter().collect();
    for experiment in &reproduction.experiments {
        let title = [Span::new(Tone::Bold, &experiment.title)];
        lines.extend(labelled(&Span::new(Tone::Bold, &experiment.id), INDENT, &title, columns));
        match unmeasured(experiment) {
            Some(reason) => {
                let text = [Span::new(Tone::Doubt, reason)];
                lines.extend(labelled(&Span::default(), INDENT, &text, columns));
            }
            None => lines.extend(rows.by_ref().take(experiment.claims.len())),
        }
    }
    lines
}
