//! An issue: a warning about an arm or the whole report, and the verdicts that it invalidates.

use samehost_model::{Arm, Code, Family, MetricInfo, Placement, Report, Trial, Warning};
use samehost_stats::median;

/// Which verdicts a issue bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidates {
    /// None: it is only said.
    Nothing,
    /// Those about work per time.
    WorkRate,
    /// Those about time: rates and latencies, but not CPU time per operation.
    Time,
    /// Those about CPU time per operation.
    CpuTime,
    /// All.
    Everything,
}

/// A warning about an arm, or the whole report, and the verdicts it bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Issue {
    /// Id of the arm; absent for all of them.
    pub arm: Option<String>,
    /// What is odd.
    pub warning: Warning,
    /// Which verdicts it bars.
    pub invalidates: Invalidates,
}

impl Issue {
    pub(crate) fn about(arm: &Arm, code: Code, invalidates: Invalidates, message: String) -> Self {
        Issue { arm: Some(arm.id.clone()), warning: Warning::new(code, &arm.id, message), invalidates }
    }

    /// Whether it bars the verdict about this metric of this arm.
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

/// An arm with its trials, controls included: they are the same arm.
pub(crate) struct ArmTrials<'a> {
    pub(crate) arm: &'a Arm,
    /// Those that were not measured again.
    pub(crate) kept: Vec<&'a Trial>,
    /// Those of them that enter comparisons.
    pub(crate) counted: Vec<&'a Trial>,
}

impl<'a> ArmTrials<'a> {
    pub(crate) fn of(arm: &'a Arm, report: &'a Report) -> Self {
        let kept: Vec<&Trial> = report.trials.iter().filter(|s| s.arm == arm.id && !s.set_aside).collect();
        let counted = kept.iter().copied().filter(|s| s.counts()).collect();
        ArmTrials { arm, kept, counted }
    }

    /// The median over counted trials, of those that have the value.
    pub(crate) fn median(&self, read: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> =
            self.counted.iter().filter_map(|s| read(s)).filter(|value| value.is_finite()).collect();
        median(&values)
    }
}

/// Whether client and server were put on one core on purpose.
pub(crate) fn shares_core(arm: &Arm) -> bool {
    arm.point.placement == Placement::SameCore
}
