//! The open loop: void trials, a late generator, a rate that the server cannot do.

use samehost_model::Code;
use samehost_model::human::count;

use crate::index::{ArmTrials, Index};
use crate::issues::{Invalidates, Issue, reasons};
use crate::ladder::falls_short;

/// Median lateness of the generator, as a fraction of the baseline's median latency, above which no
/// verdict is given about times. A generator that sends late measures itself. A tenth was tried first: on
/// a virtual machine the timers alone are late by an eighth of a database's latency, so nothing could be
/// measured there. Lateness is in both arms alike and moves a ratio towards 1, never away from it. The
/// limit is the baseline's for every arm, because with each arm's own latency the faster arm alone would
/// lose its trials (docs/decisions/0055).
const LATE: f64 = 0.2;

/// Void trials of the open loop; if more than half are void, all verdicts are invalid.
pub(crate) fn find_generator(trials: &ArmTrials<'_>) -> Option<Issue> {
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
    let invalidates = if most { Invalidates::Everything } else { Invalidates::Nothing };
    Some(Issue::about(trials.arm, Code::GeneratorLate, invalidates, message))
}

/// Lateness caused by the generator itself. Above a fifth of the baseline's latency it invalidates verdicts
/// about time for every arm of the point. The limit is the same for all arms, because one relative to each
/// arm's own latency would penalise the faster.
pub(crate) fn find_lateness(index: &Index<'_>) -> Vec<Issue> {
    let mut issues = Vec::new();
    for group in &index.groups {
        let own: Vec<&ArmTrials<'_>> =
            index.arms.iter().filter(|trials| trials.arm.point == group.baseline.point).collect();
        let baseline = own.iter().find(|trials| trials.arm.id == group.baseline.id);
        let latency = baseline.and_then(|trials| trials.median(|trial| trial.latency_us.as_ref()?.p50));
        let Some(latency) = latency else { continue };
        let late = own.iter().filter_map(|trials| trials.median(|trial| trial.lateness_us.as_ref()?.p50));
        let Some(late) = late.reduce(f64::max).filter(|late| *late > LATE * latency) else { continue };
        let message = format!(
            "the generator's median lateness was {late:.1} µs, more than a fifth of the median latency of {} ({latency:.1} µs): the generator is too large a part of the latencies",
            group.baseline.id
        );
        issues.extend(
            own.iter().map(|trials| {
                Issue::about(trials.arm, Code::GeneratorLate, Invalidates::Time, message.clone())
            }),
        );
    }
    issues
}

/// An open loop whose server completed fewer requests than were due.
pub(crate) fn find_load(trials: &ArmTrials<'_>) -> Option<Issue> {
    let rate = trials.arm.point.rate_per_s?;
    let done = trials.median(|s| s.throughput_per_s)?;
    let achieved: Vec<f64> = trials.counted.iter().filter_map(|s| s.throughput_per_s).collect();
    if !falls_short(&achieved, rate) {
        return None;
    }
    let message = format!(
        "{} did {} of the {} requests due per second: its queue grew all the time, and its latencies grow with the length of the trial",
        trials.arm.id,
        count(done.round() as u64),
        count(rate.round() as u64)
    );
    Some(Issue::about(trials.arm, Code::Overload, Invalidates::Nothing, message))
}
