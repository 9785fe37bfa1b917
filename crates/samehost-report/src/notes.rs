//! Warnings grouped by code: those of the report, and those of single comparisons.

use samehost_model::human::shape;
use samehost_model::{Code, Comparison, Report, Verdict, Warning};

use crate::conditions::is_repeats;
use crate::view::View;
use crate::words;
use samehost_model::printable::clean;

/// Messages with the same code.
pub(crate) struct Notes {
    pub(crate) code: Code,
    pub(crate) messages: Vec<String>,
}

/// Warnings that invalidate the report; they come first.
pub(crate) fn headlines(warnings: &[Warning]) -> Vec<&Warning> {
    warnings.iter().filter(|warning| words::is_headline(warning.code)).collect()
}

/// All other warnings of the report and its comparisons, without duplicates.
pub(crate) fn notes(view: &View<'_>) -> Vec<Notes> {
    let report = view.report;
    let mut notes = Vec::new();
    for warning in &report.warnings {
        if !words::is_headline(warning.code) && !is_repeats(warning.code, &warning.subject) {
            add(&mut notes, warning.code, sentence(&warning.message));
        }
    }
    let about = |comparison: &Comparison| {
        let metric = words::title(&comparison.metric);
        let mut parts = vec![metric];
        if view.candidates().len() > 1 {
            parts.insert(0, view.name(&comparison.candidate));
        }
        if view.is_sweep() {
            parts.push(view.point(&comparison.point));
        }
        parts.join(", ")
    };
    gather(&mut notes, &report.analysis.comparisons, &|c, w| is_told(view, c, w), &about);
    notes
}

/// Adds warnings of comparisons. Messages that differ only in numbers are merged, with a list of their subjects.
pub(crate) fn gather(
    notes: &mut Vec<Notes>,
    comparisons: &[Comparison],
    skip: &dyn Fn(&Comparison, &Warning) -> bool,
    about: &dyn Fn(&Comparison) -> String,
) {
    let mut found: Vec<(Code, String, Vec<&str>, Vec<String>)> = Vec::new();
    for comparison in comparisons {
        for warning in comparison.warnings.iter().filter(|warning| !skip(comparison, warning)) {
            let shape = shape(&warning.message);
            match found.iter_mut().find(|(code, known, ..)| *code == warning.code && *known == shape) {
                Some((.., messages, subjects)) => {
                    messages.push(&warning.message);
                    subjects.push(about(comparison));
                }
                None => found.push((warning.code, shape, vec![&warning.message], vec![about(comparison)])),
            }
        }
    }
    for (code, _, messages, subjects) in found {
        let message = sentence(messages[0]);
        // With identical messages the subjects are not relevant.
        let same = messages.len() > 1 && messages.iter().all(|other| *other == messages[0]);
        let alike = match subjects.len() {
            1 => String::new(),
            2 | 3 => format!(" Alike: {}.", subjects[1..].join("; ")),
            n => format!(" Alike: {}; {}; {} more.", subjects[1], subjects[2], n - 3),
        };
        add(notes, code, if same { message } else { format!("{}: {message}{alike}", subjects[0]) });
    }
}

pub(crate) fn add(notes: &mut Vec<Notes>, code: Code, message: String) {
    match notes.iter_mut().find(|group| group.code == code) {
        Some(group) if group.messages.contains(&message) => {}
        Some(group) => group.messages.push(message),
        None => notes.push(Notes { code, messages: vec![message] }),
    }
}

/// The message with a full stop.
pub(crate) fn sentence(message: &str) -> String {
    let message = clean(message);
    let message = message.trim();
    if message.ends_with(['.', '!', '?']) { message.to_owned() } else { format!("{message}.") }
}

/// Whether the report or the answer already contains a comparison's warning.
fn is_told(view: &View<'_>, comparison: &Comparison, warning: &Warning) -> bool {
    let report: &Report = view.report;
    let whole = report.warnings.iter().any(|w| w.code == warning.code && w.message == warning.message);
    let decided = comparison.verdict != Verdict::Inconclusive;
    let missed = |w: &Warning| w.code == Code::Imprecise && w.subject == warning.subject;
    let precision = decided && warning.code == Code::Imprecise && report.warnings.iter().any(missed);
    let is_first = view.metrics().first().is_some_and(|metric| metric.name == comparison.metric);
    let reason = comparison.warnings.first().is_some_and(|first| std::ptr::eq(first, warning));
    let answered = is_first && !decided && reason && !view.is_sweep() && words::cause(warning.code).is_none();
    whole || precision || answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_numbers_are_one() {
        assert_eq!(shape("from -1.2 % to +3,400"), shape("from 12 % to -3"));
        assert_ne!(shape("a 1"), shape("b 1"));
        assert_eq!(sentence(" stop "), "stop.");
        assert_eq!(sentence("Stop?"), "Stop?");
    }
}
