//! An issue: a warning about an arm or the whole report, and the verdicts that it invalidates.

use samehost_model::{Arm, Code, Family, MetricInfo, Placement, Report, Trial, Warning};
use samehost_stats::median;

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

/// An arm with its trials, including controls, which measure the same arm.
pub(crate) struct ArmTrials<'a> {
    pub(crate) arm: &'a Arm,
    /// Trials that were not set aside.
    pub(crate) kept: Vec<&'a Trial>,
    /// Kept trials that enter comparisons.
    pub(crate) counted: Vec<&'a Trial>,
}

impl<'a> ArmTrials<'a> {
    pub(crate) fn of(arm: &'a Arm, report: &'a Report) -> Self {
        let kept: Vec<&Trial> = report.trials.iter().filter(|s| s.arm == arm.id && !s.set_aside).collect();
        let counted = kept.iter().copied().filter(|s| s.counts()).collect();
        ArmTrials { arm, kept, counted }
    }

    /// Median over the counted trials that have the value.
    pub(crate) fn median(&self, read: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> =
            self.counted.iter().filter_map(|s| read(s)).filter(|value| value.is_finite()).collect();
        median(&values)
    }
}

/// Whether client and server were deliberately placed on one core.
pub(crate) fn shares_core(arm: &Arm) -> bool {
    arm.point.placement == Placement::SameCore
}
