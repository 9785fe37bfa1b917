//! An issue: a warning about an arm or the whole report, and the verdicts that it invalidates.

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
