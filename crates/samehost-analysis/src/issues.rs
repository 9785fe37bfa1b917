//! Issues of a report: for each arm one warning for all its trials, or one for the whole report, and the verdicts that
//! each invalidates; reasons of several trials are one sentence.
//!
//! Rules consider errors, CPU and the machine. They must not depend on which arm is faster.

pub(crate) mod machine;
pub(crate) mod processor;
mod requests;
mod self_check;

use samehost_model::human::{count, without_numbers};
use samehost_model::{Arm, Code, Family, MetricInfo, Placement, Report, Warning};

use crate::index::Index;

pub use requests::time_for_percentile;

/// Which verdicts an issue bars. No rule may look at which arm is faster, so a bar is about a metric, never about a
/// direction. A condition that all arms meet alike bars nothing: in six reports under 15 % of foreign load 77 of 84
/// barred intervals lay beyond the margin all the same (docs/method.md §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidates {
    Nothing,
    WorkRate,
    /// Verdicts about time: rates and latencies, but not CPU time per operation.
    Time,
    CpuTime,
    Everything,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Issue {
    /// Id of the arm; `None` for all arms.
    pub arm: Option<String>,
    pub warning: Warning,
    pub invalidates: Invalidates,
}

impl Issue {
    pub(crate) fn about(arm: &Arm, code: Code, invalidates: Invalidates, message: String) -> Self {
        Issue { arm: Some(arm.id.clone()), warning: Warning::new(code, &arm.id, message), invalidates }
    }

    pub(crate) fn of_report(code: Code, invalidates: Invalidates, message: impl Into<String>) -> Self {
        Issue { arm: None, warning: Warning::new(code, "", message), invalidates }
    }

    #[must_use]
    pub fn invalidates(&self, arm: &str, metric: &MetricInfo) -> bool {
        if self.arm.as_ref().is_some_and(|id| id != arm) {
            return false;
        }
        match self.invalidates {
            Invalidates::Nothing => false,
            Invalidates::WorkRate => metric.is_rate_of_work(),
            Invalidates::Time => metric.family() != Family::Cpu,
            Invalidates::CpuTime => metric.family() == Family::Cpu,
            Invalidates::Everything => true,
        }
    }
}

/// Warnings of the issues that bar a verdict about this metric of any of these arms.
pub(crate) fn bars(issues: &[Issue], arms: &[&str], metric: &MetricInfo) -> Vec<Warning> {
    let mut bars = Vec::new();
    for issue in issues {
        if arms.iter().any(|arm| issue.invalidates(arm, metric)) {
            bars.push(issue.warning.clone());
        }
    }
    bars
}

pub(crate) fn shares_core(arm: &Arm) -> bool {
    arm.point.placement == Placement::SameCore
}

/// Merges texts that differ only in numbers; shows the first of each with its count. At most three reasons,
/// the most frequent first.
pub(crate) fn reasons<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut found: Vec<(String, &str, u64)> = Vec::new();
    for text in texts {
        let shape = without_numbers(text);
        match found.iter_mut().find(|(known, ..)| *known == shape) {
            Some((.., times)) => *times += 1,
            None => found.push((shape, text, 1)),
        }
    }
    found.sort_by_key(|(.., times)| std::cmp::Reverse(*times));
    let shown: Vec<String> =
        found.iter().take(3).map(|(_, text, times)| format!("{text} ({}×)", count(*times))).collect();
    let rest = if found.len() > 3 { format!("; and {} more", found.len() - 3) } else { String::new() };
    shown.join("; ") + &rest
}

/// All issues of a report's trials, errors first.
pub(crate) fn find_issues(report: &Report, index: &Index<'_>) -> Vec<Issue> {
    let arms = &index.arms;
    let mut issues: Vec<Issue> = arms.iter().filter_map(requests::find_errors).collect();
    issues.extend(self_check::issue(report, index));
    issues.extend(requests::find_drawn(report, index));
    issues.extend(arms.iter().filter_map(requests::find_generator));
    issues.extend(requests::find_lateness(index));
    issues.extend(processor::issue(report, arms));
    issues.extend(machine::issue(report, arms));
    issues.extend(machine::find_repeats(report));
    issues.extend(self_check::find_one_process(report, index));
    issues.extend(arms.iter().filter_map(requests::find_load));
    issues.extend(arms.iter().filter_map(self_check::find_drift_inside));
    issues.extend(self_check::find_drift_over_blocks(report, index));
    issues.extend(arms.iter().flat_map(requests::gather_said));
    issues.extend(requests::find_missing(report, index));
    issues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reasons_are_counted() {
        assert_eq!(reasons(["steal 3.5 %", "throttled", "steal 12 %"]), "steal 3.5 % (2×); throttled (1×)");
    }
}
