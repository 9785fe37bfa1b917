//! The report on a terminal or in a pipe, at any width from 40 columns on, with or without colour: head,
//! invalidating warnings, answer, tables, plots, conditions, warnings.

use std::io::{self, Write};

use samehost_model::Report;

use crate::layout::{Line, Span, Tone, labelled, width, wrap_spans};
use crate::measurement::notes::{self, Notes};
use crate::measurement::plots::{quantile_plot, ratio_plot};
use crate::measurement::view::View;
use crate::measurement::{answer, conditions, figures, head, words};

/// What is known of the place where text is shown. Each verb adds its own `render_…` beside what it shows.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Columns of a line at most; below 40 lines are longer than this.
    pub width: usize,
    pub color: bool,
}

impl Terminal {
    pub fn render(&self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let view = View::of(report);
        let mut page = Page::new(self.width);
        page.section(page.head(&view));
        for headline in notes::headlines(&report.warnings) {
            page.loud(words::code(headline.code), &headline.message);
        }
        page.answer(&view);
        page.figures(&view);
        page.pictures(&view);
        page.conditions(&view);
        page.notes(&notes::notes(&view));
        self.print(&page, out)
    }

    pub(crate) fn print(&self, page: &Page, out: &mut dyn Write) -> io::Result<()> {
        for line in &page.lines {
            writeln!(out, "{}", line.print(self.color))?;
        }
        Ok(())
    }
}

impl Page {
    fn head(&self, view: &View<'_>) -> Vec<Line> {
        let mut lines = Vec::new();
        for (tone, parts) in [(Tone::Bold, head::what(view)), (Tone::Dim, head::how(view))] {
            lines.extend(head::flow(tone, &parts, self.columns));
        }
        if let Some(text) = head::outcome(view.report.head.outcome, &view.report.head.plan) {
            lines.extend(wrap_spans(&[Span::new(Tone::Doubt, text)], self.measure()));
        }
        lines
    }

    fn answer(&mut self, view: &View<'_>) {
        let mut lines = Vec::new();
        for paragraph in answer::answer(view).iter().chain(&answer::turns(view)) {
            lines.extend(wrap_spans(paragraph, self.measure()));
        }
        self.section(lines);
    }

    fn figures(&mut self, view: &View<'_>) {
        let (figures, note) = figures::figures(view);
        let legend = figures::legend(view, &figures);
        for figure in figures.into_iter().filter(|figure| !figure.grid.rows.is_empty()) {
            let mut lines = wrap_spans(&[Span::new(Tone::Bold, figure.title)], self.columns);
            lines.extend(figure.grid.lines(self.columns));
            self.section(lines);
        }
        for note in legend.into_iter().chain(note) {
            self.section(wrap_spans(&[Span::dim(note)], self.measure()));
        }
    }

    fn pictures(&mut self, view: &View<'_>) {
        self.section(ratio_plot(view, self.columns));
        match quantile_plot(view, self.columns) {
            Ok(lines) => self.section(lines),
            Err(error) => {
                let text = format!("No picture of the latencies: {error}.");
                self.section(wrap_spans(&[Span::dim(text)], self.measure()));
            }
        }
    }

    fn conditions(&mut self, view: &View<'_>) {
        for grid in [figures::besides(view), conditions::limits(view)].into_iter().flatten() {
            self.section(grid.lines(self.columns));
        }
        let all = conditions::conditions(view);
        let indent = all.iter().map(|condition| width(condition.label)).max().unwrap_or(0) + 2;
        let mut lines = Vec::new();
        let mut before = "";
        for condition in &all {
            let label = if condition.label == before { "" } else { condition.label };
            before = condition.label;
            let text = [Span::plain(&condition.text)];
            lines.extend(labelled(&Span::dim(label), indent, &text, self.measure()));
        }
        self.section(lines);
    }
}

/// Columns of a screen at least, and of running text at most: longer lines are hard to read.
const NARROWEST: usize = 40;
const MEASURE: usize = 110;

/// A screen under construction: sections of lines, parted by empty ones. It knows no colours: [`Terminal::print`] sets them.
pub(crate) struct Page {
    pub(crate) columns: usize,
    pub(crate) lines: Vec<Line>,
}

impl Page {
    pub(crate) fn new(width: usize) -> Self {
        Page { columns: width.max(NARROWEST), lines: Vec::new() }
    }

    pub(crate) fn measure(&self) -> usize {
        self.columns.min(MEASURE)
    }

    pub(crate) fn section(&mut self, lines: Vec<Line>) {
        if !lines.is_empty() && !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        self.lines.extend(lines);
    }

    pub(crate) fn loud(&mut self, label: &str, message: &str) {
        let label = format!("{}!", label.to_uppercase());
        let text = [Span::new(Tone::Loud, notes::sentence(message))];
        let indent = width(&label) + 1;
        self.section(labelled(&Span::new(Tone::Loud, label), indent, &text, self.measure()));
    }

    pub(crate) fn notes(&mut self, notes: &[Notes]) {
        if notes.is_empty() {
            return;
        }
        let indent = notes.iter().map(|group| width(words::code(group.code))).max().unwrap_or(0) + 2;
        let mut lines = vec![Line::of(Tone::Bold, "Warnings")];
        for group in notes {
            let mut label = Span::new(Tone::Doubt, words::code(group.code));
            for message in &group.messages {
                lines.extend(labelled(&label, indent, &[Span::plain(message)], self.measure()));
                label = Span::default();
            }
        }
        self.section(lines);
    }
}
