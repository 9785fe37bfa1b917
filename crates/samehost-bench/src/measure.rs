//! From plan to trials: blocks and checks of precision. It knows no server and no clock, so that tests can run all
//! of it with a scripted measurer. Start reading at [`run_blocks`].
//!
//! No trial is measured again because other programs were at work. Until version 0.1 one was, up to twice. In bursts
//! of 5 s of every 15 s on both CPUs (raw and Redis, 1 and 64 connections, undivided trials, eight runs of 15 s each
//! way) the 95 % intervals were ±7.2 % in the median without repeats and ±9.5 % with them: the blocks that waiting
//! and repeating cost are worth more than the calm of those that are left. A steady load never ends at all, and
//! a rule that looks at the CPU time of others favours the arm that leaves them less of it.
//!
//! Order of trials (pure): every arm as often as each other one per block, in random order, balanced by reversing each order two
//! blocks later.

use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_analysis::{Index, Row, decided};
use samehost_model::{Arm, MetricInfo, Outcome, Plan, Slot, Stopping, Trial};
use samehost_stats::{FIRST_LOOK, blocks_for_clear, is_confirmed, least_blocks_for, look_after};

use crate::error::BenchError;

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
            let slots: Vec<ArmSlot<'_>> = planned.iter().filter_map(|slot| self.arm_slot(slot)).collect();
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

    fn arm_slot<'t>(&self, slot: &'t Slot) -> Option<ArmSlot<'t>>
    where
        'a: 't,
    {
        let arm = self.aim.arms.iter().find(|arm| arm.id == slot.arm)?;
        Some(ArmSlot { arm, planned: slot })
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

/// Arms of one point, as indices into the list of arms; the first is the baseline.
pub type Group = Vec<usize>;

/// Groups arms by point, in order of first appearance. The floor's arm is a group of its own.
pub fn groups(arms: &[Arm]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, arm) in arms.iter().enumerate() {
        match groups.iter_mut().find(|group| arms[group[0]].point == arm.point) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// The slots of a block: points in random order, with the arms of a point adjacent, because what is
/// compared should be measured close in time. Of four blocks the last two reverse the orders of the first
/// two (X, Y, X′, Y′), so that every arm has the same position on average and a linear drift cancels.
/// Reversing in the very next block was rejected: the same arm would stand on both sides of the border,
/// and what lasts longer than a trial would be in both blocks (95 % intervals then covered in 94.1 % of
/// simulated measurements, and in 95.0 % this way). Every block's order includes all `groups`, and those
/// that are not `active` are left out: a point that is finished in the middle of a cycle does not change
/// the order of the others (docs/method.md §1).
pub fn slots_of_block(
    arms: &[Arm],
    groups: &[Group],
    active: &[Group],
    plan: &Plan,
    seed: u64,
    block: u32,
) -> Vec<Slot> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(block / 4 * 2 + block % 2) << 32));
    let mut order: Vec<&Group> = groups.iter().collect();
    order.shuffle(&mut random);
    let mut planned = Vec::new();
    for group in order {
        let runs = plan.runs_in_a_block(group.len());
        let mut slots: Vec<(usize, bool)> = Vec::with_capacity(group.len() * runs);
        for arm in group {
            slots.extend((0..runs).map(|run| (*arm, run > 0)));
        }
        slots.shuffle(&mut random);
        if active.contains(group) {
            planned.extend(slots);
        }
    }
    if block % 4 >= 2 {
        planned.reverse();
    }
    let mut slots = Vec::with_capacity(planned.len());
    for (position, (arm, control)) in planned.into_iter().enumerate() {
        slots.push(Slot { arm: arms[arm].id.clone(), block, position: position as u32, control });
    }
    slots
}

#[cfg(test)]
mod tests_of_order {
    use samehost_model::{Point, Transport};

    use super::*;

    fn arms(points: u32, transports: &[Transport]) -> Vec<Arm> {
        (1..=points)
            .flat_map(|connections| {
                transports.iter().map(move |transport| Arm {
                    id: format!("{transport}/c{connections}"),
                    name: transport.to_string(),
                    transport: *transport,
                    endpoint: None,
                    tls: false,
                    capacity_per_s: None,
                    point: Point { connections, ..Point::default() },
                })
            })
            .collect()
    }

    /// A block's order as text: arms by first letter, a control in upper case, points in brackets.
    fn line(planned: &[Slot]) -> String {
        planned
            .iter()
            .map(|slot| {
                let first = slot.arm.chars().next().unwrap();
                if slot.control { first.to_ascii_uppercase() } else { first }
            })
            .collect()
    }

    #[test]
    fn every_arm_twice_a_block_and_reversed_two_blocks_later() {
        let arms = arms(1, &[Transport::Tcp, Transport::Unix]);
        let groups = groups(&arms);
        assert_eq!(groups, [vec![0, 1]]);
        let mut seen = std::collections::BTreeSet::new();
        for number in (0..80).filter(|number| number % 4 < 2) {
            let forth = line(&slots_of_block(&arms, &groups, &groups, &Plan::default(), 9, number));
            let back = line(&slots_of_block(&arms, &groups, &groups, &Plan::default(), 9, number + 2));
            assert_eq!(forth.chars().rev().collect::<String>(), back);
            let mut sorted: Vec<char> = forth.chars().collect();
            sorted.sort_unstable();
            assert_eq!(sorted, ['T', 'U', 't', 'u']);
            seen.insert(forth);
        }
        assert!(seen.len() >= 5, "orders are random: {seen:?}");
    }

    #[test]
    fn arms_of_a_point_stand_together_and_a_lone_arm_has_no_control() {
        fn level(slot: &Slot) -> &str {
            slot.arm.split('/').nth(1).unwrap()
        }
        let arms = arms(3, &[Transport::Tcp, Transport::Unix]);
        let groups = groups(&arms);
        for number in 0..10 {
            let planned = slots_of_block(&arms, &groups, &groups, &Plan::default(), 1, number);
            assert_eq!(planned.len(), 12);
            for point in planned.chunks(4) {
                assert!(point.iter().all(|slot| level(slot) == level(&point[0])));
            }
            assert!(planned.iter().enumerate().all(|(i, slot)| slot.position == i as u32));
        }
        let once = Plan { control: false, ..Plan::default() };
        let planned = slots_of_block(&arms, &groups, &groups, &once, 1, 0);
        assert!(planned.len() == 6 && planned.iter().all(|slot| !slot.control), "{planned:?}");
        let lone = super::groups(&arms[..1]);
        assert_eq!(slots_of_block(&arms[..1], &lone, &lone, &Plan::default(), 1, 0).len(), 1);
    }

    #[test]
    fn the_seed_decides() {
        let arms = arms(4, &[Transport::Tcp, Transport::Unix]);
        let groups = groups(&arms);
        assert_eq!(
            slots_of_block(&arms, &groups, &groups, &Plan::default(), 5, 3),
            slots_of_block(&arms, &groups, &groups, &Plan::default(), 5, 3)
        );
        assert_ne!(
            slots_of_block(&arms, &groups, &groups, &Plan::default(), 5, 2),
            slots_of_block(&arms, &groups, &groups, &Plan::default(), 6, 2)
        );
    }

    #[test]
    fn a_point_that_is_done_leaves_the_others_in_their_order() {
        fn ids(planned: Vec<Slot>) -> Vec<String> {
            planned.into_iter().map(|t| t.arm).collect()
        }
        let arms = arms(3, &[Transport::Tcp, Transport::Unix]);
        let groups = groups(&arms);
        let (active, done) = (&groups[1..], &groups[0]);
        for number in (0..20).filter(|number| number % 4 < 2) {
            let mut all = ids(slots_of_block(&arms, &groups, &groups, &Plan::default(), 9, number));
            let mut back = ids(slots_of_block(&arms, &groups, active, &Plan::default(), 9, number + 2));
            all.retain(|id| done.iter().all(|arm| arms[*arm].id != *id));
            back.reverse();
            assert_eq!(all, back, "block {} is still the reverse of block {number}", number + 2);
        }
    }
}
