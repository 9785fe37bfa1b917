//! Stored results in order of time, each with its answer and the changes since the previous run of the same command.

use std::io::{self, Write};

use samehost_analysis::Changes;
use samehost_model::Report;
use samehost_model::printable::clean;

use crate::formats::page::Page;
use crate::formats::terminal::Terminal;
use crate::layout::text::{Line, Span, Tone, labelled, wrap_spans};
use crate::measurement::view::View;
use crate::measurement::{answer, head, words};
use crate::verbs::changes;

pub struct Run<'a> {
    /// Path of the stored file.
    pub file: &'a str,
    pub report: &'a Report,
    pub change: Change,
}

/// Comparison of a run with the previous one.
pub enum Change {
    /// The first stored run of this command.
    First,
    Since(Changes),
    /// The reason why the two runs cannot be compared.
    Unknown(String),
}

const INDENT: usize = 2;

impl Terminal {
    /// Renders stored results, each with the changes since the previous one.
    pub fn render_history(&self, runs: &[Run<'_>], out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        compose(&mut page, runs);
        self.print(&page, out)
    }
}

/// The newest run comes last, next to the prompt.
fn compose(page: &mut Page, runs: &[Run<'_>]) {
    for run in runs {
        let view = View::of(run.report);
        let mut lines = Vec::new();
        // When and what; `samehost report` of the file has how.
        let what = head::started(&run.report.head.started_at).into_iter().chain(head::what(&view));
        for line in head::flow(&what.collect::<Vec<_>>(), page.columns) {
            lines.push(Line::from(vec![Span::new(Tone::Bold, line)]));
        }
        for paragraph in answer::answer(&view) {
            lines.extend(wrap_spans(&paragraph, page.measure()));
        }
        for paragraph in changes_since(run) {
            lines.extend(labelled(&Span::dim("→"), INDENT, &paragraph, page.measure()));
        }
        lines.push(Line::from(vec![Span::dim(clean(run.file))]));
        page.section(lines);
    }
}

fn changes_since(run: &Run<'_>) -> Vec<Vec<Span>> {
    match &run.change {
        Change::First => vec![vec![Span::dim("the first stored run of this command")]],
        Change::Unknown(reason) => {
            vec![vec![Span::new(Tone::Doubt, format!("not comparable with the run before: {reason}"))]]
        }
        Change::Since(found) => {
            let mut paragraphs = vec![vec![Span::dim("since the run before:")]];
            paragraphs[0].extend(changes::summary(found, run.report).into_iter().flatten());
            let doubts = found.warnings.iter().map(|warning| {
                vec![
                    Span::new(Tone::Doubt, format!("{}:", words::code(warning.code))),
                    Span::plain(&warning.message),
                ]
            });
            paragraphs.extend(doubts);
            paragraphs
        }
    }
}
