//! What casts doubt on the trials, per arm: one warning for all its trials, and which verdicts it bars.
//!
//! A doubt looks at errors, CPU and the machine. It never looks at which arm came out ahead.

use samehost_model::{Arm, Code, Latency, MetricInfo, Placement, Report, Trial, Warning};

use crate::wording::{count, percent, reasons};
use crate::{machine, median, pairing, processor, self_check};

/// More failed operations than this bar a verdict and are the headline instead.
const ERROR_RATE: f64 = 0.001;
/// More disturbed trials than this, although measured again, bar a verdict.
const POLLUTED: f64 = 0.2;
/// A generator that is later than this part of the baseline's latency measures itself.
const LATE: f64 = 0.2;
/// Trials' second half ÷ first half beyond 1 ± this is drift.
const DRIFT: f64 = 0.1;

/// Which verdicts a doubt bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
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
pub struct Doubt {
    /// Id of the arm; absent for all of them.
    pub arm: Option<String>,
    /// What is odd.
    pub warning: Warning,
    /// Which verdicts it bars.
    pub bar: Bar,
}

impl Doubt {
    pub(crate) fn about(arm: &Arm, code: Code, bar: Bar, message: String) -> Self {
        Doubt { arm: Some(arm.id.clone()), warning: Warning::new(code, &arm.id, message), bar }
    }

    /// Whether it bars the verdict about this metric of this arm.
    #[must_use]
    pub fn bars(&self, arm: &str, metric: &MetricInfo) -> bool {
        let concerns = self.arm.as_deref().is_none_or(|id| id == arm);
        concerns
            && match self.bar {
                Bar::Nothing => false,
                Bar::WorkRate => metric.is_rate_of_work(),
                Bar::Time => !is_cpu(metric),
                Bar::CpuTime => is_cpu(metric),
                Bar::Everything => true,
            }
    }
}

/// Whether a metric is CPU time, which waiting does not change.
fn is_cpu(metric: &MetricInfo) -> bool {
    metric.name.contains("cpu")
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

/// Every doubt about a report's trials, errors first.
#[must_use]
pub fn find_doubts(report: &Report) -> Vec<Doubt> {
    let arms: Vec<ArmTrials<'_>> = report.head.arms.iter().map(|arm| ArmTrials::of(arm, report)).collect();
    let mut doubts: Vec<Doubt> = arms.iter().filter_map(doubt_errors).collect();
    doubts.extend(self_check::doubt(report));
    doubts.extend(arms.iter().filter_map(doubt_generator));
    doubts.extend(doubt_lateness(report, &arms));
    doubts.extend(arms.iter().filter_map(doubt_pollution));
    doubts.extend(processor::doubt(report, &arms));
    doubts.extend(machine::doubt(&arms));
    doubts.extend(doubt_repeats(report));
    doubts.extend(self_check::doubt_one_process(report));
    doubts.extend(arms.iter().filter_map(doubt_load));
    doubts.extend(arms.iter().filter_map(doubt_drift_inside));
    doubts.extend(doubt_drift_over_blocks(report));
    doubts.extend(arms.iter().flat_map(gather_said));
    doubts
}

/// More than one failed operation in a thousand, over all counted trials.
fn doubt_errors(trials: &ArmTrials<'_>) -> Option<Doubt> {
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
        "{} of {} operations of {} failed ({}; {}): failing is quick, so its speed means nothing",
        count(failed),
        count(tried),
        trials.arm.id,
        percent(failed as f64 / tried as f64),
        kinds.join(", ")
    );
    Some(Doubt::about(trials.arm, Code::Errors, Bar::Everything, message))
}

/// Void trials of the open loop; more than half bar everything.
fn doubt_generator(trials: &ArmTrials<'_>) -> Option<Doubt> {
    let why: Vec<&str> = trials.kept.iter().filter_map(|s| s.invalid.as_deref()).collect();
    if why.is_empty() {
        return None;
    }
    let most = 2 * why.len() > trials.kept.len();
    let message = format!(
        "{} of {} trials of {} are void: {}{}",
        why.len(),
        trials.kept.len(),
        trials.arm.id,
        reasons(why.iter().copied()),
        if most { "; too few are left to judge" } else { "" }
    );
    let bar = if most { Bar::Everything } else { Bar::Nothing };
    Some(Doubt::about(trials.arm, Code::GeneratorLate, bar, message))
}

/// A generator that sent late, of itself: where that is more than a fifth of the baseline's latency, it bars what is said
/// of the time of every arm of the point. One limit for all of them, for one that knew the arm's own latency would hit the
/// faster.
fn doubt_lateness(report: &Report, arms: &[ArmTrials<'_>]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    for group in pairing::group(&report.head.arms) {
        let own: Vec<&ArmTrials<'_>> =
            arms.iter().filter(|trials| trials.arm.point == group.baseline.point).collect();
        let median = |trials: &ArmTrials<'_>, read: fn(&Trial) -> &Option<Latency>| {
            trials.median(|trial| read(trial).as_ref()?.p50)
        };
        let baseline = own.iter().find(|trials| trials.arm.id == group.baseline.id);
        let Some(latency) = baseline.and_then(|trials| median(trials, |trial| &trial.latency_us)) else {
            continue;
        };
        let late = own.iter().filter_map(|trials| median(trials, |trial| &trial.lateness_us));
        let Some(late) = late.reduce(f64::max).filter(|late| *late > LATE * latency) else { continue };
        let message = format!(
            "the generator's median lateness was {late:.1} µs, more than a fifth of the median latency of {} ({latency:.1} µs): the latencies are too much its own",
            group.baseline.id
        );
        doubts.extend(
            own.iter()
                .map(|trials| Doubt::about(trials.arm, Code::GeneratorLate, Bar::Time, message.clone())),
        );
    }
    doubts
}

/// Trials that stayed disturbed because their repeats were used up.
fn doubt_pollution(trials: &ArmTrials<'_>) -> Option<Doubt> {
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
    // What a hypervisor takes of the CPUs is in no process's clock: CPU time per operation stands. A process beside ours
    // also takes of the caches, and that is.
    let has_neighbour = polluted.iter().any(|trial| trial.machine.foreign_percent > machine::FOREIGN_PERCENT);
    let bar = if has_neighbour { Bar::Everything } else { Bar::Time };
    Some(Doubt::about(trials.arm, Code::Remeasured, bar, message))
}

/// Trials set aside and measured again: counted, for the record.
fn doubt_repeats(report: &Report) -> Option<Doubt> {
    let aside: Vec<&Trial> = report.trials.iter().filter(|s| s.set_aside).collect();
    if aside.is_empty() {
        return None;
    }
    let message = format!(
        "{} {} measured again because the machine was not ours: {}",
        count(aside.len() as u64),
        if aside.len() == 1 { "trial was" } else { "trials were" },
        reasons(aside.iter().flat_map(|s| s.polluted.iter().map(String::as_str)))
    );
    Some(Doubt { arm: None, warning: Warning::new(Code::Remeasured, "", message), bar: Bar::Nothing })
}

/// An open loop whose server did less than what was asked.
fn doubt_load(trials: &ArmTrials<'_>) -> Option<Doubt> {
    let rate = trials.arm.point.rate_per_s?;
    let done = trials.median(|s| s.throughput_per_s)?;
    let achieved: Vec<f64> = trials.counted.iter().filter_map(|s| s.throughput_per_s).collect();
    if !crate::falls_short(&achieved, rate) {
        return None;
    }
    let message = format!(
        "{} did {} of the {} requests due per second: its queue grew all the time, and its latencies grow with the length of the trial",
        trials.arm.id,
        count(done.round() as u64),
        count(rate.round() as u64)
    );
    Some(Doubt::about(trials.arm, Code::Overload, Bar::Nothing, message))
}

/// Second half ÷ first half of a trial's operations.
fn halves(trial: &Trial) -> Option<f64> {
    let half = trial.tenths.len() / 2;
    let first: u64 = trial.tenths[..half].iter().sum();
    let second: u64 = trial.tenths[trial.tenths.len() - half..].iter().sum();
    (first > 0).then(|| second as f64 / first as f64)
}

/// Drift inside trials: warming up, or slowing down.
fn doubt_drift_inside(trials: &ArmTrials<'_>) -> Option<Doubt> {
    let ratio = trials.median(halves)?;
    if (ratio - 1.0).abs() <= DRIFT {
        return None;
    }
    let message = format!(
        "{} did {} operations in the second half of its trials than in the first ({}): it had not settled; longer trials (--trial-time) would tell",
        trials.arm.id,
        if ratio > 1.0 { "more" } else { "fewer" },
        crate::wording::change(ratio)
    );
    Some(Doubt::about(trials.arm, Code::Drift, Bar::Nothing, message))
}

/// Drift from block to block of each point's baseline: a trend significant at 1 % that changes the first
/// metric by more than a tenth from end to end.
fn doubt_drift_over_blocks(report: &Report) -> Vec<Doubt> {
    let Some(metric) = report.head.workload.metrics.first() else { return Vec::new() };
    let find = |group: &pairing::Group<'_>| {
        let side = pairing::Side::Arm(&group.baseline.id);
        let values: Vec<(u32, f64)> = pairing::values(&report.trials, metric, side).into_iter().collect();
        let series: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let (p, ratio) = (crate::trend::p(&series)?, crate::trend::end_to_end(&values)?);
        if p >= 0.01 || ratio.max(1.0 / ratio) <= 1.0 + DRIFT {
            return None;
        }
        let message = format!(
            "{} of {} drifted by {} from the first block to the last; the ratios stand, for each compares trials of one block, but the absolute values are an average over a change",
            metric.title(),
            group.baseline.id,
            crate::wording::change(ratio)
        );
        Some(Doubt::about(group.baseline, Code::Drift, Bar::Nothing, message))
    };
    pairing::group(&report.head.arms).iter().filter_map(find).collect()
}

/// What the measuring side said of single trials, once per arm and code.
fn gather_said(trials: &ArmTrials<'_>) -> Vec<Doubt> {
    let mut codes: Vec<Code> = trials.counted.iter().flat_map(|s| &s.warnings).map(|w| w.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let gather = |code: Code| {
        let said: Vec<&Warning> =
            trials.counted.iter().filter_map(|s| s.warnings.iter().find(|w| w.code == code)).collect();
        let message = format!(
            "in {} of {} trials of {}: {}",
            said.len(),
            trials.counted.len(),
            trials.arm.id,
            reasons(said.iter().map(|w| w.message.as_str()))
        );
        Doubt::about(trials.arm, code, Bar::Nothing, message)
    };
    codes.into_iter().map(gather).collect()
}

/// Whether client and server were put on one core on purpose.
pub(crate) fn shares_core(arm: &Arm) -> bool {
    arm.point.placement == Placement::SameCore
}
