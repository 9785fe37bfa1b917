//! An issue: a warning about an arm or the whole report, and the verdicts that it invalidates; and reasons of several trials as one
//! sentence.

use samehost_model::human::{count, without_numbers};
use samehost_model::{Arm, Code, Family, MetricInfo, Placement, Warning};

/// Verdicts that an issue invalidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidates {
    /// None; it is only reported.
    Nothing,
    /// Verdicts about work per time.
    WorkRate,
    /// Verdicts about time: rates and latencies, but not CPU time per operation.
    Time,
    /// Verdicts about CPU time per operation.
    CpuTime,
    Everything,
}

/// A warning about an arm or the whole report, and the verdicts that it invalidates.
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

    /// Whether it invalidates the verdict about this metric of this arm.
    #[must_use]
    pub fn invalidates(&self, arm: &str, metric: &MetricInfo) -> bool {
        let concerns = self.arm.as_deref().is_none_or(|id| id == arm);
        concerns
            && match self.invalidates {
                Invalidates::Nothing => false,
                Invalidates::WorkRate => metric.is_rate_of_work(),
                Invalidates::Time => metric.family() != Family::Cpu,
                Invalidates::CpuTime => metric.family() == Family::Cpu,
                Invalidates::Everything => true,
            }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reasons_are_counted() {
        assert_eq!(reasons(["steal 3.5 %", "throttled", "steal 12 %"]), "steal 3.5 % (2×); throttled (1×)");
    }
}
