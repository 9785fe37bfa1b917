//! A screen under construction: sections of lines.

use crate::layout::text::{Line, Span, Tone, labelled, width};
use crate::measurement::notes::{self, Notes};
use crate::measurement::words;

/// Minimum width of a screen.
const NARROWEST: usize = 40;

/// Maximum width of running text; longer lines are hard to read.
const MEASURE: usize = 110;

/// A screen under construction.
pub(crate) struct Page {
    pub(crate) columns: usize,
    pub(crate) lines: Vec<Line>,
}

impl Page {
    pub(crate) fn new(width: usize) -> Self {
        Page { columns: width.max(NARROWEST), lines: Vec::new() }
    }

    /// Width of running text, in columns.
    pub(crate) fn measure(&self) -> usize {
        self.columns.min(MEASURE)
    }

    /// Adds lines after an empty one; does nothing for no lines.
    pub(crate) fn section(&mut self, lines: Vec<Line>) {
        if !lines.is_empty() && !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        self.lines.extend(lines);
    }

    /// Adds a warning that must not be missed.
    pub(crate) fn loud(&mut self, label: &str, message: &str) {
        let label = format!("{}!", label.to_uppercase());
        let text = [Span::new(Tone::Loud, notes::sentence(message))];
        let indent = width(&label) + 1;
        self.section(labelled(&Span::new(Tone::Loud, label), indent, &text, self.measure()));
    }

    /// Adds the warnings, grouped by code.
    pub(crate) fn notes(&mut self, notes: &[Notes]) {
        if notes.is_empty() {
            return;
        }
        let indent = notes.iter().map(|group| width(words::code(group.code))).max().unwrap_or(0) + 2;
        let mut lines = vec![Line::from(vec![Span::new(Tone::Bold, "Warnings")])];
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
