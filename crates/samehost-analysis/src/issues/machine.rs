//! Issues of the machine: steal, throttling, and what other programs used of the CPUs while measuring: how much, and
//! which. They are conditions of the measurement, common to all arms: each is reported once and bars nothing.

use std::collections::BTreeMap;

use samehost_model::human::count;
use samehost_model::{Code, OtherProgram, Report, Trial, Warning};

use crate::index::ArmTrials;
use crate::issues::{Invalidates, Issue, reasons};

/// Median steal, in percent of all CPUs' time, from which on it is reported.
/// It bars nothing, like other work on the machine: the arms meet it alike, and the intervals are wider
/// for it. Trials were once measured again for such loads. In eight runs of 15 s each way, beside bursts
/// of 5 s of every 15, intervals were ±7.2 % in the median without repeats and ±9.5 % with them, because
/// repeats cost blocks (docs/method.md §7).
const STEAL_PERCENT: f64 = 2.0;

/// Limit of softirq time that the kernel charges to no process, in percent of a CPU.
/// TCP's receive path over loopback is a softirq in the time of whoever sends. Most kernels charge it to
/// the sender. One with CONFIG_IRQ_TIME_ACCOUNTING (RHEL and its relatives) charges it to nobody, so that
/// CPU time per operation is too small over TCP and right over a Unix socket. That comparison alone is
/// barred; latency and throughput are not affected. The kernels at hand charge the sender: the rule is
/// tested with recorded configurations and trials (docs/method.md §7).
const SOFTIRQ_PERCENT: f64 = 1.0;

pub(crate) fn issue(report: &Report, arms: &[ArmTrials<'_>]) -> Vec<Issue> {
    let steal = worst(arms, are_long_enough, STEAL_PERCENT, |s| s.machine.steal_percent).map(|worst| {
        let message = format!(
            "the hypervisor took {:.1} % of the CPU time (median over the trials of {}): the intervals are wider for it",
            worst.value, worst.id
        );
        machine_issue(Code::Steal, &worst, message)
    });
    let conditions =
        [steal, find_throttling(arms), find_others(report), find_serving(report), find_softirqs(arms)];
    conditions.into_iter().flatten().collect()
}

/// The load of other programs, once for the report and by name. It bars nothing (docs/method.md, section 7):
/// arms that are compared meet it in the same milliseconds or in random order, the intervals have what it
/// adds, and the self-check is measured under the same load. Barring everything above 15 % of one CPU
/// silenced samehost on every server at work, although 77 of 84 such intervals were clear of the margin.
fn find_others(report: &Report) -> Option<Issue> {
    let load = OtherLoad::of(&[report])?;
    Some(Issue::of_report(Code::ForeignLoad, Invalidates::Nothing, load.as_condition()))
}

/// CPU time that a measured server used for others, in percent of one CPU, from which on it is worth a sentence.
const SERVES_PERCENT: f64 = 3.0;

/// A server that serves others too. Where a thread serves one connection, the threads of ours were read. Elsewhere what it uses
/// for others is in the CPU time per operation of each arm, and more of it in an arm that does fewer operations in its
/// slices: ratios of CPU time are drawn to those of latency. Equal arms stay equal.
fn find_serving(report: &Report) -> Option<Issue> {
    let used = report.head.workload.server_for_others_percent.filter(|used| *used >= SERVES_PERCENT)?;
    let are_own = report.trials.iter().any(|trial| trial.server_threads.is_some());
    let meaning = if are_own {
        "its CPU time per operation is that of the threads that serve our connections"
    } else {
        "its CPU time per operation includes that, and ratios of CPU time are drawn to those of latency"
    };
    let message = format!(
        "the server used {used:.0} % of one CPU for others before it was measured: {meaning}; latency and throughput are as its clients have them"
    );
    Some(Issue {
        arm: None,
        warning: Warning::new(Code::ForeignLoad, "server", message),
        invalidates: Invalidates::Nothing,
    })
}

/// A kernel that charges softirqs to no process. TCP's receive path over loopback is a softirq and that of
/// Unix sockets is not, so CPU time is too small only over TCP.
fn find_softirqs(arms: &[ArmTrials<'_>]) -> Option<Issue> {
    let worst = worst(arms, |_| true, SOFTIRQ_PERCENT, |s| s.machine.softirq_percent.unwrap_or(0.0))?;
    let message = format!(
        "this kernel books the receive path of TCP to no process (CONFIG_IRQ_TIME_ACCOUNTING; {:.0} % of a CPU, median over the trials of {}): CPU time per operation is too small over TCP and cannot be compared; latency and throughput can, and so can CPU time after a start with `tsc=noirqtime`",
        worst.value, worst.id
    );
    Some(Issue { invalidates: Invalidates::CpuTime, ..machine_issue(Code::Softirq, &worst, message) })
}

/// A cgroup quota that was exhausted in any counted trial. A median would hide throttling, because it comes
/// in bursts.
fn find_throttling(arms: &[ArmTrials<'_>]) -> Option<Issue> {
    let (mut trials, mut throttled, mut all_ms) = (0, 0, 0.0);
    for trial in arms.iter().flat_map(|trials| &trials.counted) {
        trials += 1;
        if trial.machine.throttled_ms > 0.0 {
            throttled += 1;
            all_ms += trial.machine.throttled_ms;
        }
    }
    if throttled == 0 {
        return None;
    }
    let message = format!(
        "the cgroup's CPU quota ran out in {throttled} of {trials} trials, for {:.0} ms in all: the verdicts are about this machine with that quota",
        all_ms.max(1.0)
    );
    Some(Issue::of_report(Code::Throttled, Invalidates::Nothing, message))
}

/// Trials that were measured again, in reports of versions that did so.
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
    Some(Issue::of_report(Code::Remeasured, Invalidates::Nothing, message))
}

struct Worst {
    id: String,
    value: f64,
    /// Whether it is the only arm beyond the limit.
    alone: bool,
}

fn are_long_enough(trials: &ArmTrials<'_>) -> bool {
    let span: f64 = trials.counted.iter().map(|trial| trial.machine.span_ms).sum();
    // Reports of earlier versions do not contain the span.
    span == 0.0 || span >= LEAST_SPAN_MS
}

/// The arm with the largest median, if an arm that counts is beyond `limit`.
fn worst(
    arms: &[ArmTrials<'_>],
    counts: impl Fn(&ArmTrials<'_>) -> bool,
    limit: f64,
    read: impl Fn(&Trial) -> f64,
) -> Option<Worst> {
    let mut beyond: Vec<(&str, f64)> = Vec::new();
    for trials in arms.iter().filter(|trials| counts(trials)) {
        let Some(value) = trials.median(|trial| Some(read(trial))) else { continue };
        if value > limit {
            beyond.push((&trials.arm.id, value));
        }
    }
    let (id, value) = beyond.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Worst { id: id.to_owned(), value, alone: beyond.len() == 1 && arms.len() > 1 })
}

fn machine_issue(code: Code, worst: &Worst, message: String) -> Issue {
    let subject = if worst.alone { worst.id.as_str() } else { "" };
    Issue { arm: None, warning: Warning::new(code, subject, message), invalidates: Invalidates::Nothing }
}

/// CPU time of other programs that is worth a sentence, in percent of one CPU.
/// Other work is a condition, not a fault, and bars nothing: arms meet it in the same milliseconds, the
/// interval has what it adds, and the self-check runs under the same load. Before, 15 % of one CPU barred
/// everything. In six such reports 77 of 84 barred intervals lay wholly beyond the margin, and no ratio
/// had moved by more than 6 % from the quiet one (docs/method.md §7).
const WORTH_SAYING: f64 = 10.0;
/// Programs with a tenth of that time are named, at most three.
const NAMED: f64 = 0.1;
const MOST_NAMED: usize = 3;
/// Shortest observation, in milliseconds, that says what other programs used.
/// The kernel counts busy and idle time in ticks of about 10 ms: one tick within 100 ms is 5 % of two
/// CPUs, which means nothing. What others used is what was busy less what client and server used, and the
/// latter are known exactly. The difference may come out below zero and is kept so, because sums are
/// right then (docs/method.md §10).
const LEAST_SPAN_MS: f64 = 1000.0;

#[derive(Clone, Debug, PartialEq)]
pub struct OtherLoad {
    /// Percent of one CPU, the mean over all trials, or of the whole measurement where its programs used more.
    pub percent: f64,
    pub programs: Vec<OtherProgram>,
}

impl OtherLoad {
    /// The load during these reports' trials; `None` if there was none worth saying, or they were too short to tell.
    #[must_use]
    pub fn of(reports: &[&Report]) -> Option<Self> {
        let (mut used, mut span) = (0.0, 0.0);
        let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
        for report in reports {
            let (used_here, span_here) = used_during(&report.trials);
            used += used_here;
            span += span_here;
            for program in &report.head.host.other_programs {
                *by_name.entry(&program.name).or_default() += program.cpu_percent * span_here;
            }
        }
        let percent = used / span;
        if span < LEAST_SPAN_MS || percent <= WORTH_SAYING {
            return None;
        }
        let mut programs: Vec<OtherProgram> = Vec::new();
        for (name, in_all) in by_name {
            if in_all / span >= NAMED * percent {
                programs.push(OtherProgram { name: name.to_owned(), cpu_percent: in_all / span });
            }
        }
        programs.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent));
        programs.truncate(MOST_NAMED);
        // The total is of the trials, the programs are of the whole measurement, with the pauses between trials. Where the
        // programs come to more, that is the total: a part is never larger than its whole.
        let named: f64 = programs.iter().map(|program| program.cpu_percent).sum();
        let percent = percent.max(named);
        Some(OtherLoad { percent, programs })
    }

    /// `other programs used 62 % of one CPU meanwhile: mariadbd 41 %, php-fpm8.2 21 %`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut words = format!("other programs used {:.0} % of one CPU meanwhile", self.percent);
        for (place, program) in self.programs.iter().enumerate() {
            let lead = if place == 0 { ": " } else { ", " };
            words += &format!("{lead}{} {:.0} %", program.name, program.cpu_percent);
        }
        words
    }

    /// The load, and what it means for verdicts.
    ///
    /// With one connection and a neighbour at 100 % a request over TCP took 43 µs of CPU time, not 12, as each wake-up interrupts somebody;
    /// over the Unix socket as much more. The saving stayed (3.3 and 3.7 µs), and the ratio went from 0.74 to 0.91.
    #[must_use]
    pub fn as_condition(&self) -> String {
        format!(
            "{}; the verdicts are about this machine with that load: an idle one wakes programs for less, in both arms, and can have ratios farther from 1",
            self.in_words()
        )
    }
}

/// CPU time of others during the trials that count, in percent of one CPU × milliseconds, and the milliseconds.
fn used_during(trials: &[Trial]) -> (f64, f64) {
    let (mut used, mut span) = (0.0, 0.0);
    for trial in trials.iter().filter(|trial| trial.counts()) {
        // Reports of earlier versions do not contain the span.
        let length = if trial.machine.span_ms > 0.0 { trial.machine.span_ms } else { LEAST_SPAN_MS };
        used += trial.machine.foreign_percent * length;
        span += length;
    }
    (used, span)
}
