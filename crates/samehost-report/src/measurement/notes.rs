//! Warnings grouped by code: those of the report, and those of single comparisons.

use samehost_model::printable::clean;
use samehost_model::{Code, Comparison, Reason, Report, Warning};

use crate::measurement::conditions::is_repeats;
use crate::measurement::view::View;
use crate::measurement::words;

pub(crate) struct Notes {
    pub(crate) code: Code,
    pub(crate) messages: Vec<String>,
}

pub(crate) fn headlines(warnings: &[Warning]) -> Vec<&Warning> {
    warnings.iter().filter(|warning| words::is_headline(warning.code)).collect()
}

pub(crate) fn notes(view: &View<'_>) -> Vec<Notes> {
    let report = view.report;
    let mut notes = Vec::new();
    for warning in &report.warnings {
        if !words::is_headline(warning.code) && !is_repeats(warning.code, &warning.subject) {
            add(&mut notes, warning.code, sentence(&warning.message));
        }
    }
    gather(
        &mut notes,
        &report.analysis.comparisons,
        &|comparison, note| is_shown(view, comparison, note),
        &|comparison| about(view, comparison),
    );
    notes
}

/// A comparison in words: `unix, latency p99, 64 connections`, without what all have in common.
fn about(view: &View<'_>, comparison: &Comparison) -> String {
    let mut parts = Vec::new();
    if view.candidates().len() > 1 {
        parts.push(view.name(&comparison.candidate));
    }
    parts.push(words::title(&comparison.metric));
    if view.is_sweep() {
        parts.push(view.point(&comparison.point));
    }
    parts.join(", ")
}

#[derive(Clone, Copy)]
pub(crate) enum Note<'a> {
    Reason(&'a Reason),
    Warning(&'a Warning),
}

impl Note<'_> {
    fn code(self) -> Code {
        match self {
            Note::Reason(reason) => reason.code(),
            Note::Warning(warning) => warning.code,
        }
    }

    fn message(self) -> String {
        match self {
            Note::Reason(reason) => reason.in_full(),
            Note::Warning(warning) => warning.message.clone(),
        }
    }

    /// Whether a note of another comparison says the same, with other numbers or of another metric.
    fn is_like(self, other: Note<'_>) -> bool {
        match (self, other) {
            (Note::Reason(reason), Note::Reason(other)) => reason.is_like(other),
            (Note::Warning(warning), Note::Warning(other)) => {
                let is_about_the_same = warning.subject == other.subject || warning.message == other.message;
                warning.code == other.code && is_about_the_same
            }
            _ => false,
        }
    }
}

/// Notes that say the same of several comparisons, each of another one. The subjects name these, in the same order.
struct Alike<'a> {
    notes: Vec<Note<'a>>,
    subjects: Vec<String>,
    /// The comparison that has the last of them, as a position.
    last: usize,
}

/// The reason of a comparison, and its warnings. An issue that is the reason is among the warnings.
fn notes_of(comparison: &Comparison) -> Vec<Note<'_>> {
    let mut notes = Vec::new();
    if let Some(reason) = &comparison.reason
        && !reason.is_bar()
    {
        notes.push(Note::Reason(reason));
    }
    notes.extend(comparison.warnings.iter().map(Note::Warning));
    notes
}

/// Adds the notes of comparisons, except those that are shown elsewhere. Notes that say the same are merged, with a list of
/// their subjects.
pub(crate) fn gather(
    notes: &mut Vec<Notes>,
    comparisons: &[Comparison],
    is_shown: &dyn Fn(&Comparison, Note<'_>) -> bool,
    about: &dyn Fn(&Comparison) -> String,
) {
    let mut groups: Vec<Alike<'_>> = Vec::new();
    for (index, comparison) in comparisons.iter().enumerate() {
        for note in notes_of(comparison) {
            if is_shown(comparison, note) {
                continue;
            }
            let subject = about(comparison);
            match groups.iter_mut().find(|group| group.last != index && group.notes[0].is_like(note)) {
                Some(group) => {
                    group.notes.push(note);
                    group.subjects.push(subject);
                    group.last = index;
                }
                None => groups.push(Alike { notes: vec![note], subjects: vec![subject], last: index }),
            }
        }
    }
    for Alike { notes: alike, subjects, .. } in groups {
        let messages: Vec<String> = alike.iter().map(|note| note.message()).collect();
        let message = sentence(&messages[0]);
        // With identical messages the subjects are not relevant.
        let is_same = messages.len() > 1 && messages.iter().all(|other| *other == messages[0]);
        let others = match subjects.len() {
            1 => String::new(),
            2 | 3 => format!(" Alike: {}.", subjects[1..].join("; ")),
            n => format!(" Alike: {}; {}; {} more.", subjects[1], subjects[2], n - 3),
        };
        let text = if is_same { message } else { format!("{}: {message}{others}", subjects[0]) };
        add(notes, alike[0].code(), text);
    }
}

pub(crate) fn add(notes: &mut Vec<Notes>, code: Code, message: String) {
    match notes.iter_mut().find(|group| group.code == code) {
        Some(group) if group.messages.contains(&message) => {}
        Some(group) => group.messages.push(message),
        None => notes.push(Notes { code, messages: vec![message] }),
    }
}

pub(crate) fn sentence(message: &str) -> String {
    let message = clean(message);
    let message = message.trim();
    if message.ends_with(['.', '!', '?']) { message.to_owned() } else { format!("{message}.") }
}

/// Whether the report or its answer has this note of a comparison already: a warning that the report repeats for all, the wanted
/// precision where the verdict is decided nevertheless, and over one point the reason of the first metric, which the answer words.
fn is_shown(view: &View<'_>, comparison: &Comparison, note: Note<'_>) -> bool {
    let report: &Report = view.report;
    match note {
        Note::Reason(reason) => {
            let is_first = view.metrics().first().is_some_and(|metric| metric.name == comparison.metric);
            is_first && !view.is_sweep() && words::cause(reason.code()).is_none()
        }
        Note::Warning(warning) => report.warnings.iter().any(|of_report| {
            let is_same = of_report.code == warning.code && of_report.message == warning.message;
            let is_precision = comparison.verdict.is_decided()
                && warning.code == Code::Imprecise
                && of_report.code == Code::Imprecise
                && of_report.subject == warning.subject;
            is_same || is_precision
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_once() {
        assert_eq!(sentence(" stop "), "stop.");
        assert_eq!(sentence("Stop?"), "Stop?");
    }
}
