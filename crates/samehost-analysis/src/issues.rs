//! Issues of a report: for each arm one warning for all its trials, and the verdicts that it invalidates.
//!
//! Rules consider errors, CPU and the machine. They must not depend on which arm is faster.

mod drift;
mod errors;
mod generator;
mod machine;
mod own_trial;
mod percentiles;
pub(crate) mod processor;
mod self_check;

pub use percentiles::time_for_percentile;

use samehost_model::Report;

use crate::index::Index;
use crate::issue::Issue;

/// All issues of a report's trials, errors first.
pub(crate) fn find_issues(report: &Report, index: &Index<'_>) -> Vec<Issue> {
    let arms = &index.arms;
    let mut issues: Vec<Issue> = arms.iter().filter_map(errors::find_errors).collect();
    issues.extend(self_check::issue(report, index));
    issues.extend(own_trial::issues(report, index));
    issues.extend(arms.iter().filter_map(generator::find_generator));
    issues.extend(generator::find_lateness(index));
    issues.extend(processor::issue(report, arms));
    issues.extend(machine::issue(report, arms));
    issues.extend(machine::find_repeats(report));
    issues.extend(self_check::find_one_process(report, index));
    issues.extend(arms.iter().filter_map(generator::find_load));
    issues.extend(arms.iter().filter_map(drift::find_drift_inside));
    issues.extend(drift::find_drift_over_blocks(report, index));
    issues.extend(arms.iter().flat_map(errors::gather_said));
    issues.extend(percentiles::find_missing(report, index));
    issues
}
