//! Trials that were measured again, in reports of versions that did so.

use samehost_model::human::count;
use samehost_model::{Code, Report, Trial, Warning};

use crate::issue::{Invalidates, Issue};
use crate::reasons::reasons;

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
