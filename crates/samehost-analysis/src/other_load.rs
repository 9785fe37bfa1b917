//! What other programs used of the CPUs while measuring: how much, and which.

use std::collections::BTreeMap;

use samehost_model::{OtherProgram, Report, Trial};

/// CPU time of other programs that is worth a sentence, in percent of one CPU.
const WORTH_SAYING: f64 = 10.0;
/// Part of the others' CPU time from which on a program is named.
const NAMED: f64 = 0.1;
/// Most programs that are named.
const MOST_NAMED: usize = 3;
/// Minimum observation, in milliseconds. The kernel counts in ticks of about 10 ms: one tick within 100 ms is 5 % of two
/// CPUs, which is not significant.
pub(crate) const LEAST_SPAN_MS: f64 = 1000.0;

/// The load of other programs, over one report or several.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherLoad {
    /// Percent of one CPU, the mean over all trials, or of the whole measurement where its programs used more.
    pub percent: f64,
    /// The busiest programs.
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
