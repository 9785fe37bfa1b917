//! The flow from plan to samples: blocks, repeats of polluted trials, looks at precision. It knows no server and
//! no clock of its own, so that tests run it whole against a measurer of theirs.

use std::time::Duration;

use samehost_model::{Arm, MetricInfo, Outcome, Plan, Sample, Stopping, Trial};
use samehost_stats::pairing::pair_arms;
use samehost_stats::{FIRST_LOOK, decided, is_confirmed, least_blocks_for};

use crate::BenchError;
use crate::machine::{Pollution, judge_pollution};
use crate::schedule::{self, Group};

/// Repeats in all, as a part of the trials made so far, before we stop trying to outwait the machine.
const MOST_REPEATED: f64 = 0.5;

/// An arm to be measured, and its place in the plan.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// The arm.
    pub arm: &'a Arm,
    /// Its place.
    pub trial: &'a Trial,
}

/// Measures, and tells the time spent.
pub trait Measurer {
    /// Called before each block; restarts servers when it is time to.
    ///
    /// # Errors
    /// When a server does not come back.
    fn begin_block(&mut self, block: u32) -> Result<(), BenchError>;

    /// Whether this arm and those of its point are measured together, in slices of a round.
    fn takes_turns(&self, _arm: &Arm) -> bool {
        false
    }

    /// Measures what has one slot: a trial of an arm, or a round of all arms of a point that take turns. Gives a sample for
    /// each, in their order.
    ///
    /// # Errors
    /// When it could not be done at all; failed operations are counted in the samples.
    fn measure(&mut self, slots: &[Slot<'_>]) -> Result<Vec<Sample>, BenchError>;

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

impl<'a> Course<'a> {
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
            let trials =
                schedule::block(self.arms, &self.groups, &self.active, self.plan.control, seed, block);
            let slots: Vec<Slot<'_>> = trials.iter().filter_map(|trial| self.slot(trial)).collect();
            let are_together =
                |a: &Slot<'_>, b: &Slot<'_>| a.arm.point == b.arm.point && measurer.takes_turns(a.arm);
            let batches: Vec<&[Slot<'_>]> = slots.chunk_by(are_together).collect();
            for batch in batches {
                self.together(batch, measurer, observer)?;
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

    fn slot<'t>(&self, trial: &'t Trial) -> Option<Slot<'t>>
    where
        'a: 't,
    {
        let arm = self.arms.iter().find(|arm| arm.id == trial.arm)?;
        Some(Slot { arm, trial })
    }

    /// Measures a trial, or a round: one and the other is disturbed, and repeated, as a whole.
    fn together(
        &mut self,
        slots: &[Slot<'_>],
        measurer: &mut dyn Measurer,
        observer: &mut dyn Observer,
    ) -> Result<(), BenchError> {
        for attempt in 0..=self.plan.repeats {
            let mut samples = measurer.measure(slots)?;
            let is_polluted = |sample: &Sample| !judge_pollution(&sample.machine).0.is_empty();
            let again = samples.iter().any(is_polluted)
                && attempt < self.plan.repeats
                && self.may_repeat()
                && !self.is_spent(measurer.elapsed());
            let has_strangers = |sample: &Sample| sample.machine.foreign_percent > 0.0;
            let stranger = if samples.iter().any(|sample| is_polluted(sample) && has_strangers(sample)) {
                measurer.name_stranger()
            } else {
                None
            };
            if again {
                measurer.wait_for_calm();
            }
            for (slot, sample) in slots.iter().zip(&mut samples) {
                sample.arm.clone_from(&slot.trial.arm);
                sample.block = slot.trial.block;
                sample.position = slot.trial.position;
                sample.control = slot.trial.control;
                sample.attempt = attempt;
                sample.machine.foreign_process.clone_from(&stranger);
                let Pollution(reasons) = judge_pollution(&sample.machine);
                sample.polluted = reasons;
                sample.set_aside = again;
                self.repeats += usize::from(again);
                observer.sample(sample);
            }
            self.samples.extend(samples);
            if !again {
                break;
            }
        }
        Ok(())
    }

    fn may_repeat(&self) -> bool {
        (self.repeats as f64) < MOST_REPEATED * self.samples.len() as f64 + f64::from(self.plan.repeats + 1)
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
mod tests;
