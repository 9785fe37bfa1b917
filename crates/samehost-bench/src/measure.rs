//! From plan to trials: blocks and checks of precision. It knows no server and no clock, so that tests can run all
//! of it with a scripted measurer. Start reading at [`run_blocks`].
//!
//! No trial is measured again because other programs were at work. Until version 0.1 one was, up to twice. In bursts
//! of 5 s of every 15 s on both CPUs (raw and Redis, 1 and 64 connections, undivided trials, eight runs of 15 s each
//! way) the 95 % intervals were ±7.2 % in the median without repeats and ±9.5 % with them: the blocks that waiting
//! and repeating cost are worth more than the calm of those that are left. A steady load never ends at all, and
//! a rule that looks at the CPU time of others favours the arm that leaves them less of it.

use std::time::Duration;

use samehost_analysis::{Index, Row, decided};
use samehost_model::{Arm, MetricInfo, Outcome, Plan, Slot, Stopping, Trial};
use samehost_stats::{FIRST_LOOK, blocks_for_clear, is_confirmed, least_blocks_for, look_after};

use crate::error::BenchError;
use crate::order::{Group, groups, slots_of_block};

#[derive(Clone, Copy, Debug)]
pub struct ArmSlot<'a> {
    pub arm: &'a Arm,
    pub planned: &'a Slot,
}

pub trait Measurer {
    /// Called before each block, numbered from 0 in this run; restarts servers when they are due.
    ///
    /// # Errors
    /// When a server does not start again.
    fn begin_block(&mut self, block: u32) -> Result<(), BenchError>;

    /// Whether the arms of this arm's point are measured together, in slices of a round.
    fn takes_turns(&self, arm: &Arm) -> bool;

    /// Measures the slots: a trial of one arm, or a round of all arms of a point. Returns a trial for each,
    /// in their order.
    ///
    /// # Errors
    /// When measuring was not possible at all; failed operations are counted in the trials.
    fn measure_slots(&mut self, slots: &[ArmSlot<'_>]) -> Result<Vec<Trial>, BenchError>;

    fn elapsed(&self) -> Duration;
}

pub trait Observer {
    fn begin(&mut self, _trials_per_block: usize, _plan: &Plan) {}
    fn trial(&mut self, _trial: &Trial) {}
    /// A block is complete; `active` points are not precise yet.
    fn block(&mut self, _blocks: u32, _active: usize) {}
    /// A step before or between blocks, in a few words.
    fn step(&mut self, _what: &str) {}
}

#[derive(Debug)]
pub struct Measured {
    /// All trials, in the order in which they were made.
    pub trials: Vec<Trial>,
    pub outcome: Outcome,
    pub failure: Option<BenchError>,
}

#[derive(Clone, Copy, Debug)]
pub struct Aim<'a> {
    pub arms: &'a [Arm],
    pub plan: &'a Plan,
    /// Metrics of each trial. If the plan has no questions, only the first decides.
    pub metrics: &'a [MetricInfo],
    pub seed: u64,
}

/// Measures blocks until every point is precise or decided, the maximum of blocks is reached, or the budget is spent.
/// Continues after the trials in `before`: they count, and the new blocks are numbered after theirs.
pub fn run_blocks(
    aim: Aim<'_>,
    before: Vec<Trial>,
    measurer: &mut dyn Measurer,
    observer: &mut dyn Observer,
) -> Measured {
    let Aim { arms, plan, seed, .. } = aim;
    let groups = groups(arms);
    let active = groups.clone();
    let begun = before.iter().map(|trial| trial.block + 1).max().unwrap_or(0);
    let mut blocks = BlockLoop { aim, begun, trials: before, groups, active };
    if begun > 0 && plan.stopping == Stopping::Decision {
        blocks.drop_decided();
    }
    let first = slots_of_block(arms, &blocks.groups, &blocks.active, plan, seed, begun);
    observer.begin(first.len(), plan);
    let (outcome, failure) = match blocks.run(measurer, observer) {
        Ok(outcome) => (outcome, None),
        Err(BenchError::Interrupted) => (Outcome::Interrupted, None),
        Err(failure) => (Outcome::Failed, Some(failure)),
    };
    Measured { trials: blocks.trials, outcome, failure }
}

/// Part of its budget that a turn may take in order to end at a look.
/// Nothing is decided between two looks, so a turn that ends between them has measured blocks that decide
/// nothing yet. It ends at the last look that it reaches in this part of its time, and what a row still
/// needs is foreseen up to a look as well (docs/method.md §3a).
const TO_THE_LOOK: f64 = 1.2;
/// A turn over its budget that is so many blocks from a look goes on to it: nine blocks of a proxy, beside other programs, decided
/// nothing, and the tenth would have taken 0.4 s.
const NEAR_THE_LOOK: u32 = 2;

struct BlockLoop<'a> {
    aim: Aim<'a>,
    begun: u32,
    trials: Vec<Trial>,
    groups: Vec<Group>,
    active: Vec<Group>,
}

impl<'a> BlockLoop<'a> {
    fn run(
        &mut self,
        measurer: &mut dyn Measurer,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, BenchError> {
        let Aim { arms, plan, seed, .. } = self.aim;
        for block in self.begun..plan.max_blocks.max(self.begun) {
            if self.is_over_budget(block, measurer.elapsed()) {
                return Ok(Outcome::OutOfBudget);
            }
            measurer.begin_block(block - self.begun)?;
            let planned = slots_of_block(arms, &self.groups, &self.active, plan, seed, block);
            let mut slots = Vec::with_capacity(planned.len());
            for slot in &planned {
                let Some(arm) = arms.iter().find(|arm| arm.id == slot.arm) else { continue };
                slots.push(ArmSlot { arm, planned: slot });
            }
            let are_together =
                |a: &ArmSlot<'_>, b: &ArmSlot<'_>| a.arm.point == b.arm.point && measurer.takes_turns(a.arm);
            let batches: Vec<&[ArmSlot<'_>]> = slots.chunk_by(are_together).collect();
            for batch in batches {
                self.together(batch, measurer, observer)?;
            }
            match plan.stopping {
                Stopping::Precision if plan.looks.contains(&(block + 1)) => self.look(),
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

    fn least(&self) -> u32 {
        let plan = self.aim.plan;
        match plan.stopping {
            Stopping::Precision => plan.min_blocks,
            Stopping::Decision => (FIRST_LOOK as u32).min(plan.min_blocks),
        }
    }

    fn is_over_budget(&self, block: u32, elapsed: Duration) -> bool {
        let plan = self.aim.plan;
        let Some(budget) = plan.budget_s else { return false };
        let elapsed = elapsed.as_secs_f64();
        let comparisons: usize = self.groups.iter().map(|group| group.len() - 1).sum();
        let least = least_blocks_for(comparisons as u32).min(plan.min_blocks);
        // A question among many is not given up before its blocks can decide it.
        let asked = self.groups.iter().map(|group| self.rows(group).len() as u32).sum::<u32>() + plan.others;
        let for_clear = blocks_for_clear(asked, 1.0 - plan.confidence);
        let is_decided_by_looks = !plan.asked.is_empty();
        let least = if is_decided_by_looks { least.max(for_clear) } else { least };
        // The next block is expected to take as long as those before on average.
        let now = block - self.begun;
        let next = if now > 0 { elapsed / f64::from(now) } else { 0.0 };
        let to_the_look = look_after(block).max(least) - block;
        let at_the_look = elapsed + next * f64::from(to_the_look);
        // Nothing is decided between two looks: a turn ends at the last one that it reaches.
        let fits =
            if is_decided_by_looks { at_the_look <= TO_THE_LOOK * budget } else { elapsed + next <= budget };
        let is_near = is_decided_by_looks && to_the_look <= NEAR_THE_LOOK && at_the_look <= 3.0 * budget;
        (!fits && block >= least) || (elapsed > 2.0 * budget && now >= 1 && !is_near)
    }

    fn together(
        &mut self,
        slots: &[ArmSlot<'_>],
        measurer: &mut dyn Measurer,
        observer: &mut dyn Observer,
    ) -> Result<(), BenchError> {
        for (slot, mut trial) in slots.iter().zip(measurer.measure_slots(slots)?) {
            trial.arm.clone_from(&slot.planned.arm);
            trial.block = slot.planned.block;
            trial.position = slot.planned.position;
            trial.control = slot.planned.control;
            observer.trial(&trial);
            self.trials.push(trial);
        }
        Ok(())
    }

    /// Drops the points whose comparisons are all precise enough. It sees widths, never where an interval lies.
    fn look(&mut self) {
        let Aim { arms, metrics, .. } = self.aim;
        let Some(metric) = metrics.first() else { return };
        let index = Index::of(arms, &self.trials);
        let mut open = Vec::new();
        for group in &self.active {
            if !self.is_precise(group, &index, metric) {
                open.push(group.clone());
            }
        }
        self.active = open;
    }

    /// Whether all comparisons of a point are precise enough. A point without a comparison is never precise.
    fn is_precise(&self, group: &Group, index: &Index<'_>, metric: &MetricInfo) -> bool {
        let Aim { arms, plan, .. } = self.aim;
        let Some((baseline, candidates)) = group.split_first() else { return false };
        for candidate in candidates {
            let ratios = index.pairs(metric, &arms[*baseline].id, &arms[*candidate].id).log_ratios();
            if !is_confirmed(&ratios, &plan.looks, plan.precision, plan.confidence) {
                return false;
            }
        }
        !candidates.is_empty()
    }

    /// Drops the points whose questions are all decided, so that their time goes to the others. The decision
    /// uses only the test that may be looked at several times, over all questions.
    fn drop_decided(&mut self) {
        let rows_of: Vec<Vec<Row<'_>>> = self.groups.iter().map(|group| self.rows(group)).collect();
        let decided = decided(&Index::of(self.aim.arms, &self.trials), &rows_of.concat(), self.aim.plan);
        let mut decided = decided.into_iter();
        let mut open: Vec<Group> = Vec::new();
        for (group, rows) in self.groups.iter().zip(&rows_of) {
            let open_rows = decided.by_ref().take(rows.len()).filter(|done| !done).count();
            if self.active.contains(group) && (self.is_lone(group) || open_rows > 0) {
                open.push(group.clone());
            }
        }
        self.active = open;
    }

    fn rows(&self, group: &Group) -> Vec<Row<'a>> {
        let Aim { arms, plan, metrics, .. } = self.aim;
        let Some((baseline, candidates)) = group.split_first() else { return Vec::new() };
        let (baseline, point) = (arms[*baseline].id.as_str(), &arms[*baseline].point);
        let mut rows = Vec::new();
        for (place, metric) in metrics.iter().enumerate() {
            let is_first = plan.asked.is_empty() && place == 0;
            if !is_first && !plan.asked.iter().any(|question| question.is_about(&metric.name, point)) {
                continue;
            }
            for candidate in candidates {
                rows.push(Row { metric, baseline, candidate: arms[*candidate].id.as_str() });
            }
        }
        rows
    }

    /// A group without a comparison, such as the floor's, never gets precise; it accompanies the others and needs no blocks
    /// itself.
    fn is_lone(&self, group: &Group) -> bool {
        group.len() < 2
    }
}

#[cfg(test)]
mod tests;
