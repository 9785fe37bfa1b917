//! Trials that other work on the machine disturbed.

use samehost_model::human::count;
use samehost_model::{Code, Report, Trial, Warning};

use super::machine;
use crate::index::ArmTrials;
use crate::issue::{Invalidates, Issue};
use crate::reasons::reasons;

/// Fraction of trials that are still disturbed after repeats, above which verdicts are invalid.
const POLLUTED: f64 = 0.2;

/// Trials that stayed disturbed because their repeats were used up.
pub(crate) fn find_pollution(trials: &ArmTrials<'_>) -> Option<Issue> {
    let polluted: Vec<&&Trial> = trials.counted.iter().filter(|s| !s.polluted.is_empty()).collect();
    if polluted.len() as f64 <= POLLUTED * trials.counted.len() as f64 {
        return None;
    }
    let message = format!(
        "{} of {} trials of {} were disturbed, and so were their repeats: {}",
        polluted.len(),
        trials.counted.len(),
        trials.arm.id,
        reasons(polluted.iter().flat_map(|s| s.polluted.iter().map(String::as_str)))
    );
    // CPU time taken by a hypervisor is not charged to processes, so CPU time per operation stays valid. A
    // foreign process also evicts caches, which affects it.
    let has_neighbour = polluted.iter().any(|trial| trial.machine.foreign_percent > machine::FOREIGN_PERCENT);
    let invalidates = if has_neighbour { Invalidates::Everything } else { Invalidates::Time };
    Some(Issue::about(trials.arm, Code::Remeasured, invalidates, message))
}

/// Number of trials that were set aside and repeated.
pub(crate) fn find_repeats(report: &Report) -> Option<Issue> {
    let aside: Vec<&Trial> = report.trials.iter().filter(|s| s.set_aside).collect();
    if aside.is_empty() {
        return None;
    }
    let message = format!(
        "{} {} measured again because other work disturbed the machine: {}",
        count(aside.len() as u64),
        if aside.len() == 1 { "trial was" } else { "trials were" },
        reasons(aside.iter().flat_map(|s| s.polluted.iter().map(String::as_str)))
    );
    Some(Issue {
        arm: None,
        warning: Warning::new(Code::Remeasured, "", message),
        invalidates: Invalidates::Nothing,
    })
}
