//! Doubts about the machine: steal, throttling, foreign processes. The machine is common to all arms, so each
//! is said once for the report, with the arm that had most of it.

use samehost_model::{Code, Warning};

use crate::issue::{ArmTrials, Invalidates, Issue};
use crate::reasons::reasons;

/// Median steal above this, in percent of all CPUs' time.
const STEAL_PERCENT: f64 = 2.0;
/// Median foreign CPU time above this, in percent of one CPU.
pub(crate) const FOREIGN_PERCENT: f64 = 10.0;

/// What others took of the machine is judged over so long at least, in milliseconds. The kernel counts in ticks of 10 ms or
/// so: one that falls into a tenth of a second is 5 % of two CPUs, and says nothing.
pub const LEAST_SPAN_MS: f64 = 1000.0;

/// Softirqs that the kernel books to nobody, above this: CPU time per operation misses them.
const SOFTIRQ_PERCENT: f64 = 1.0;

pub(crate) fn issue(arms: &[ArmTrials<'_>]) -> Vec<Issue> {
    let steal = worst(arms, are_long_enough, STEAL_PERCENT, |s| s.machine.steal_percent).map(|worst| {
        let message = format!(
            "the hypervisor took {:.1} % of the CPU time (median over the trials of {}): noisy neighbours make the intervals wider",
            worst.value, worst.id
        );
        said(Code::Steal, &worst, message)
    });
    let foreign = worst(arms, are_long_enough, FOREIGN_PERCENT, |s| s.machine.foreign_percent).map(|worst| {
        let names = arms.iter().flat_map(|trials| &trials.counted);
        let names = reasons(names.filter_map(|s| s.machine.foreign_process.as_deref()));
        let who = if names.is_empty() { String::new() } else { format!(", most of it by {names}") };
        let message = format!(
            "other processes used {:.0} % of a CPU (median over the trials of {}){who}: stop them and measure again",
            worst.value, worst.id
        );
        said(Code::ForeignLoad, &worst, message)
    });
    [steal, find_throttling(arms), foreign, find_softirqs(arms)].into_iter().flatten().collect()
}

/// A kernel that books what softirqs take to no process. The receive path of TCP over loopback is one, and that of Unix
/// sockets is not: CPU time is then too small over TCP only.
fn find_softirqs(arms: &[ArmTrials<'_>]) -> Option<Issue> {
    let worst = worst(arms, |_| true, SOFTIRQ_PERCENT, |s| s.machine.softirq_percent.unwrap_or(0.0))?;
    let message = format!(
        "this kernel books the receive path of TCP to no process (CONFIG_IRQ_TIME_ACCOUNTING; {:.0} % of a CPU, median over the trials of {}): CPU time per operation is too small over TCP and cannot be compared; latency and throughput can, and so can CPU time after a start with `tsc=noirqtime`",
        worst.value, worst.id
    );
    Some(Issue { invalidates: Invalidates::CpuTime, ..said(Code::Softirq, &worst, message) })
}

/// A cgroup quota that ran out in any trial that counts. A median would hide what happens in bursts.
fn find_throttling(arms: &[ArmTrials<'_>]) -> Option<Issue> {
    let trials: Vec<f64> =
        arms.iter().flat_map(|trials| &trials.counted).map(|s| s.machine.throttled_ms).collect();
    let hit: Vec<f64> = trials.iter().copied().filter(|ms| *ms > 0.0).collect();
    if hit.is_empty() {
        return None;
    }
    let message = format!(
        "the cgroup's CPU quota ran out in {} of {} trials, for {:.0} ms in all: raise the quota and measure again",
        hit.len(),
        trials.len(),
        hit.iter().sum::<f64>().max(1.0)
    );
    Some(Issue {
        arm: None,
        warning: Warning::new(Code::Throttled, "", message),
        invalidates: Invalidates::Nothing,
    })
}

struct Worst {
    id: String,
    value: f64,
    /// Whether it is the only arm beyond the limit.
    alone: bool,
}

fn are_long_enough(trials: &ArmTrials<'_>) -> bool {
    let span: f64 = trials.counted.iter().map(|trial| trial.machine.span_ms).sum();
    // Reports of earlier versions do not tell.
    span == 0.0 || span >= LEAST_SPAN_MS
}

/// The arm whose median is the largest, where one of those that count lies beyond `limit`.
fn worst(
    arms: &[ArmTrials<'_>],
    counts: impl Fn(&ArmTrials<'_>) -> bool,
    limit: f64,
    read: impl Fn(&samehost_model::Trial) -> f64,
) -> Option<Worst> {
    let beyond: Vec<(&str, f64)> = arms
        .iter()
        .filter(|trials| counts(trials))
        .filter_map(|trials| Some((trials.arm.id.as_str(), trials.median(|s| Some(read(s)))?)))
        .filter(|(_, value)| *value > limit)
        .collect();
    let (id, value) = beyond.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Worst { id: id.to_owned(), value, alone: beyond.len() == 1 && arms.len() > 1 })
}

fn said(code: Code, worst: &Worst, message: String) -> Issue {
    let subject = if worst.alone { worst.id.as_str() } else { "" };
    Issue { arm: None, warning: Warning::new(code, subject, message), invalidates: Invalidates::Nothing }
}
