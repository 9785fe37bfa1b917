//! The flow from plan to samples: blocks, repeats of polluted trials, looks at precision. It knows no server and
//! no clock of its own, so that tests run it whole against a measurer of theirs.

use std::time::Duration;

use samehost_model::{Arm, MetricInfo, Outcome, Plan, Sample, Stopping, Trial};
use samehost_stats::pairing::pair_arms;
use samehost_stats::{FIRST_LOOK, decided, is_confirmed, least_blocks_for};

use crate::BenchError;
use crate::machine::{Pollution, judge_pollution};
use crate::schedule::{self, Group};

/// How often a trial is measured at most because the machine was not ours.
const MOST_ATTEMPTS: u32 = 3;
/// Repeats in all, as a part of the trials made so far, before we stop trying to outwait the machine.
const MOST_REPEATED: f64 = 0.5;

/// Makes single trials, and tells the time spent.
pub trait Measurer {
    /// Called before each block; restarts servers when it is time to.
    ///
    /// # Errors
    /// When a server does not come back.
    fn begin_block(&mut self, block: u32) -> Result<(), BenchError>;

    /// Makes one trial.
    ///
    /// # Errors
    /// When it could not be made at all; failed operations are counted in the sample.
    fn measure(&mut self, arm: &Arm, trial: &Trial) -> Result<Sample, BenchError>;

    /// Names the process that disturbs the machine, where one stands out.
    fn name_stranger(&mut self) -> Option<String>;

    /// Waits a moment for the machine to calm down.
    fn wait_for_calm(&mut self);

    /// Time since measuring began.
    fn elapsed(&self) -> Duration;
}

/// Is told what happens; by default not interested.
pub trait Observer {
    /// Measuring begins; `blocks` is the most there can be.
    fn begin(&mut self, _trials_per_block: usize, _plan: &Plan) {}
    /// A trial was made.
    fn sample(&mut self, _sample: &Sample) {}
    /// A block is complete; `active` points still want precision.
    fn block(&mut self, _blocks: u32, _active: usize) {}
    /// A step before or between blocks, in a few words.
    fn step(&mut self, _what: &str) {}
}

/// An observer that is not interested.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

/// What measuring gave, however it ended.
#[derive(Debug)]
pub struct Measured {
    /// All samples, in the order in which they were made.
    pub samples: Vec<Sample>,
    /// How it ended.
    pub outcome: Outcome,
    /// What failed, if something did.
    pub failure: Option<BenchError>,
}

/// Measures blocks until every point is precise, the most blocks are made, or the budget is spent.
pub fn measure(
    arms: &[Arm],
    plan: &Plan,
    first_metric: Option<&MetricInfo>,
    seed: u64,
    measurer: &mut dyn Measurer,
    observer: &mut dyn Observer,
) -> Measured {
    let groups = schedule::groups(arms);
    let active = groups.clone();
    let mut course = Course { arms, plan, first_metric, samples: Vec::new(), repeats: 0, groups, active };
    let first = schedule::block(arms, &course.groups, &course.active, plan.control, seed, 0);
    observer.begin(first.len(), plan);
    let (outcome, failure) = match course.run(seed, measurer, observer) {
        Ok(outcome) => (outcome, None),
        Err(BenchError::Interrupted) => (Outcome::Interrupted, None),
        Err(failure) => (Outcome::Failed, Some(failure)),
    };
    Measured { samples: course.samples, outcome, failure }
}

struct Course<'a> {
    arms: &'a [Arm],
    plan: &'a Plan,
    first_metric: Option<&'a MetricInfo>,
    samples: Vec<Sample>,
    repeats: usize,
    /// All points.
    groups: Vec<Group>,
    /// Points that still want blocks.
    active: Vec<Group>,
}

impl Course<'_> {
    fn run(
        &mut self,
        seed: u64,
        measurer: &mut dyn Measurer,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, BenchError> {
        for block in 0..self.plan.max_blocks {
            if self.is_over_budget(block, measurer.elapsed()) {
                return Ok(Outcome::OutOfBudget);
            }
            measurer.begin_block(block)?;
            for trial in
                schedule::block(self.arms, &self.groups, &self.active, self.plan.control, seed, block)
            {
                self.trial(&trial, measurer, observer)?;
            }
            match self.plan.stopping {
                Stopping::Precision if self.plan.looks.contains(&(block + 1)) => self.look(),
                Stopping::Decision => self.drop_decided(),
                Stopping::Precision => {}
            }
            observer.block(block + 1, self.active.len());
            if self.active.iter().all(|group| self.is_lone(group)) && block + 1 >= self.least() {
                return Ok(Outcome::Complete);
            }
        }
        Ok(Outcome::Complete)
    }

    /// The fewest blocks.
    fn least(&self) -> u32 {
        match self.plan.stopping {
            Stopping::Precision => self.plan.min_blocks,
            Stopping::Decision => (FIRST_LOOK as u32).min(self.plan.min_blocks),
        }
    }

    fn is_over_budget(&self, block: u32, elapsed: Duration) -> bool {
        let Some(budget) = self.plan.budget_s else { return false };
        let elapsed = elapsed.as_secs_f64();
        let comparisons: usize = self.groups.iter().map(|group| group.len() - 1).sum();
        let least = least_blocks_for(comparisons as u32).min(self.plan.min_blocks);
        // The next block takes as long as those before did, on average.
        let next = if block > 0 { elapsed / f64::from(block) } else { 0.0 };
        (elapsed + next > budget && block >= least) || (elapsed > 2.0 * budget && block >= 1)
    }

    /// Whether the budget is gone, so that there is no time left for repeats.
    fn is_spent(&self, elapsed: Duration) -> bool {
        self.plan.budget_s.is_some_and(|budget| elapsed.as_secs_f64() > budget)
    }

    fn trial(
        &mut self,
        trial: &Trial,
        measurer: &mut dyn Measurer,
        observer: &mut dyn Observer,
    ) -> Result<(), BenchError> {
        let Some(arm) = self.arms.iter().find(|arm| arm.id == trial.arm) else { return Ok(()) };
        for attempt in 0..MOST_ATTEMPTS {
            let mut sample = measurer.measure(arm, trial)?;
            sample.arm.clone_from(&trial.arm);
            sample.block = trial.block;
            sample.position = trial.position;
            sample.control = trial.control;
            sample.attempt = attempt;
            let Pollution(mut reasons) = judge_pollution(&sample.machine);
            let again = !reasons.is_empty()
                && attempt + 1 < MOST_ATTEMPTS
                && self.may_repeat()
                && !self.is_spent(measurer.elapsed());
            if sample.machine.foreign_percent > 0.0 && !reasons.is_empty() {
                sample.machine.foreign_process = measurer.name_stranger();
                Pollution(reasons) = judge_pollution(&sample.machine);
            }
            if again {
                measurer.wait_for_calm();
            }
            sample.polluted = reasons;
            sample.set_aside = again;
            self.repeats += usize::from(again);
            observer.sample(&sample);
            self.samples.push(sample);
            if !again {
                break;
            }
        }
        Ok(())
    }

    fn may_repeat(&self) -> bool {
        (self.repeats as f64) < MOST_REPEATED * self.samples.len() as f64 + f64::from(MOST_ATTEMPTS)
    }

    /// Drops the points whose every comparison is precise enough. It sees widths, never where an interval lies.
    fn look(&mut self) {
        let Some(metric) = self.first_metric else { return };
        let (arms, samples, plan) = (self.arms, &self.samples, self.plan);
        self.active.retain(|group| {
            let precise = group.len() > 1
                && group[1..].iter().all(|candidate| {
                    let (baseline, candidate) = (&arms[group[0]].id, &arms[*candidate].id);
                    let ratios = pair_arms(samples, metric, baseline, candidate).log_ratios();
                    is_confirmed(&ratios, &plan.looks, plan.precision, plan.confidence)
                });
            !precise
        });
    }

    /// Drops the points whose every comparison is decided, so that their time goes to the others. What decides sees the
    /// statistic that may be looked at after every block, of all points, and nothing else.
    fn drop_decided(&mut self) {
        let Some(metric) = self.first_metric else { return };
        let rows_of = |group: &Group| -> Vec<(&str, &str)> {
            let id = |arm: usize| self.arms[arm].id.as_str();
            group[1..].iter().map(|candidate| (id(group[0]), id(*candidate))).collect()
        };
        let rows: Vec<(&str, &str)> = self.groups.iter().flat_map(rows_of).collect();
        let decided = decided(&self.samples, metric, &rows, self.plan);
        let is_open = |row: &(&str, &str)| rows.iter().zip(&decided).any(|(one, done)| one == row && !done);
        let open: Vec<Group> = self
            .active
            .iter()
            .filter(|group| self.is_lone(group) || rows_of(group).iter().any(is_open))
            .cloned()
            .collect();
        self.active = open;
    }

    /// A group that compares nothing never gets precise; it accompanies the others and needs no blocks itself.
    fn is_lone(&self, group: &Group) -> bool {
        group.len() < 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use samehost_model::{Point, Transport};
    use std::collections::VecDeque;

    /// A measurer whose clock is a counter and whose machine misbehaves on command.
    #[derive(Default)]
    struct Scripted {
        trials: Vec<(String, bool)>,
        steal: VecDeque<f64>,
        noise: f64,
        fail_at: Option<usize>,
    }

    impl Measurer for Scripted {
        fn begin_block(&mut self, _: u32) -> Result<(), BenchError> {
            Ok(())
        }

        fn measure(&mut self, arm: &Arm, trial: &Trial) -> Result<Sample, BenchError> {
            if self.fail_at == Some(self.trials.len()) {
                return Err(BenchError::Usage("the server died".into()));
            }
            self.trials.push((arm.id.clone(), trial.control));
            let wobble = self.noise * ((self.trials.len() * 7919 % 100) as f64 / 50.0 - 1.0);
            let speed = if arm.transport == Transport::Unix { 130.0 } else { 100.0 };
            let mut sample = Sample {
                seconds: 1.0,
                operations: 1000,
                throughput_per_s: Some(speed * (1.0 + wobble)),
                ..Sample::default()
            };
            sample.machine.steal_percent = self.steal.pop_front().unwrap_or(0.0);
            Ok(sample)
        }

        fn name_stranger(&mut self) -> Option<String> {
            None
        }

        fn wait_for_calm(&mut self) {}

        fn elapsed(&self) -> Duration {
            Duration::from_secs(self.trials.len() as u64)
        }
    }

    fn arms() -> Vec<Arm> {
        [Transport::Tcp, Transport::Unix]
            .into_iter()
            .map(|transport| Arm {
                id: transport.to_string(),
                name: transport.to_string(),
                transport,
                endpoint: None,
                tls: false,
                capacity_per_s: None,
                point: Point { connections: 1, ..Point::default() },
            })
            .collect()
    }

    fn run(measurer: &mut Scripted, plan: &Plan) -> Measured {
        let metric = MetricInfo::built_in("throughput");
        measure(&arms(), plan, Some(&metric), 3, measurer, &mut Silent)
    }

    #[test]
    fn stops_at_the_first_look_that_confirms_precision() {
        let plan = Plan { budget_s: None, ..Plan::default() };
        let mut quiet = Scripted { noise: 0.001, ..Scripted::default() };
        let measured = run(&mut quiet, &plan);
        assert_eq!(measured.outcome, Outcome::Complete);
        assert_eq!(measured.samples.len(), 36, "twelve blocks of two arms and a control");
        let mut noisy = Scripted { noise: 0.4, ..Scripted::default() };
        assert_eq!(run(&mut noisy, &plan).samples.len(), 120, "forty blocks");
    }

    #[test]
    fn a_point_stops_when_it_is_decided() {
        let plan = Plan { budget_s: None, stopping: Stopping::Decision, ..Plan::default() };
        let mut clear = Scripted { noise: 0.02, ..Scripted::default() };
        let measured = run(&mut clear, &plan);
        assert_eq!(measured.outcome, Outcome::Complete);
        let blocks = measured.samples.len() / 3;
        assert!((5..10).contains(&blocks), "+30 % at 2 % noise is seen at once: {blocks} blocks");
        let mut noisy = Scripted { noise: 3.0, ..Scripted::default() };
        assert_eq!(run(&mut noisy, &plan).samples.len(), 120, "what is not decided gets all forty blocks");
    }

    #[test]
    fn a_budget_ends_it() {
        let plan = Plan { budget_s: Some(45.0), ..Plan::default() };
        let measured = run(&mut Scripted { noise: 0.4, ..Scripted::default() }, &plan);
        assert_eq!(measured.outcome, Outcome::OutOfBudget);
        assert_eq!(measured.samples.len(), 45);
        let plan = Plan { budget_s: Some(6.0), ..Plan::default() };
        let measured = run(&mut Scripted { noise: 0.4, ..Scripted::default() }, &plan);
        assert_eq!(measured.samples.len(), 15, "one comparison can be decided by five blocks, not by fewer");
    }

    #[test]
    fn a_polluted_trial_is_measured_again_up_to_a_limit() {
        let plan = Plan { budget_s: None, max_blocks: 10, ..Plan::default() };
        let mut stolen = Scripted { steal: VecDeque::from([0.0, 50.0, 0.0]), ..Scripted::default() };
        let measured = run(&mut stolen, &plan);
        let aside: Vec<&Sample> = measured.samples.iter().filter(|sample| sample.set_aside).collect();
        assert_eq!(aside.len(), 1);
        assert!(aside[0].polluted[0].contains("50 %"));
        assert_eq!(measured.samples.iter().filter(|sample| sample.counts()).count(), 30);
        let mut always = Scripted { steal: [50.0; 1000].into(), ..Scripted::default() };
        let measured = run(&mut always, &plan);
        let counted: Vec<&Sample> = measured.samples.iter().filter(|sample| sample.counts()).collect();
        assert_eq!(counted.len(), 30);
        assert!(counted.iter().all(|sample| !sample.polluted.is_empty()), "kept, and marked");
        assert!(measured.samples.len() <= 30 * 3);
    }

    #[test]
    fn a_failure_keeps_what_was_measured() {
        let plan = Plan { budget_s: None, ..Plan::default() };
        let measured = run(&mut Scripted { fail_at: Some(7), ..Scripted::default() }, &plan);
        assert_eq!(measured.outcome, Outcome::Failed);
        assert_eq!(measured.samples.len(), 7);
        assert!(measured.failure.unwrap().to_string().contains("the server died"));
    }
}
