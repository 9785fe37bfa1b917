//! Failed operations, and warnings that the measuring side gave to single trials.

use samehost_model::human::{count, format_percent};
use samehost_model::{Code, Warning};

use crate::index::ArmTrials;
use crate::issue::{Invalidates, Issue, reasons};

/// Error rate above which verdicts are invalid and errors become the headline.
const ERROR_RATE: f64 = 0.001;

/// Error rate above one in a thousand, over all counted trials.
pub(crate) fn find_errors(trials: &ArmTrials<'_>) -> Option<Issue> {
    let failed: u64 = trials.counted.iter().map(|s| s.error_count()).sum();
    let good: u64 = trials.counted.iter().map(|s| s.operations).sum();
    let tried = failed + good;
    if tried == 0 || failed as f64 <= ERROR_RATE * tried as f64 {
        return None;
    }
    let mut kinds: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for (kind, number) in trials.counted.iter().flat_map(|s| &s.errors) {
        *kinds.entry(kind).or_default() += number;
    }
    let mut kinds: Vec<_> = kinds.into_iter().filter(|(_, number)| *number > 0).collect();
    kinds.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    let kinds: Vec<String> =
        kinds.iter().map(|(kind, number)| format!("{kind}: {}", count(*number))).collect();
    let message = format!(
        "{} of {} operations of {} failed ({}; {}): a failure takes less time than a reply, so its speed means nothing",
        count(failed),
        count(tried),
        trials.arm.id,
        format_percent(failed as f64 / tried as f64),
        kinds.join(", ")
    );
    Some(Issue::about(trials.arm, Code::Errors, Invalidates::Everything, message))
}

/// Warnings of single trials, once per arm and code.
pub(crate) fn gather_said(trials: &ArmTrials<'_>) -> Vec<Issue> {
    let mut codes: Vec<Code> = trials.counted.iter().flat_map(|s| &s.warnings).map(|w| w.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let mut issues = Vec::new();
    for code in codes {
        let given: Vec<&Warning> =
            trials.counted.iter().filter_map(|s| s.warnings.iter().find(|w| w.code == code)).collect();
        let message = format!(
            "in {} of {} trials of {}: {}",
            given.len(),
            trials.counted.len(),
            trials.arm.id,
            reasons(given.iter().map(|w| w.message.as_str()))
        );
        issues.push(Issue::about(trials.arm, code, Invalidates::Nothing, message));
    }
    issues
}
