//! Tests of the flow from plan to trials, with a scripted measurer.

use super::*;
use samehost_model::{Point, Question, Transport, metric};

/// A measurer whose clock is a counter.
#[derive(Default)]
struct Scripted {
    trials: Vec<(String, bool)>,
    noise: f64,
    /// What other programs use all the time.
    foreign_percent: f64,
    fail_at: Option<usize>,
    in_rounds: bool,
    /// Number of slots of each call.
    rounds: Vec<usize>,
}

impl Scripted {
    fn one(&mut self, arm: &Arm, slot: &Slot) -> Result<Trial, BenchError> {
        if self.fail_at == Some(self.trials.len()) {
            return Err(BenchError::Usage("the server died".into()));
        }
        self.trials.push((arm.id.clone(), slot.control));
        let wobble = self.noise * ((self.trials.len() * 7919 % 100) as f64 / 50.0 - 1.0);
        let speed = if arm.transport == Transport::Unix { 130.0 } else { 100.0 };
        let mut trial = Trial {
            seconds: 1.0,
            operations: 1000,
            throughput_per_s: Some(speed * (1.0 + wobble)),
            ..Trial::default()
        };
        trial.machine.foreign_percent = self.foreign_percent;
        Ok(trial)
    }
}

impl Measurer for Scripted {
    fn begin_block(&mut self, _: u32) -> Result<(), BenchError> {
        Ok(())
    }

    fn takes_turns(&self, _: &Arm) -> bool {
        self.in_rounds
    }

    fn measure_slots(&mut self, slots: &[ArmSlot<'_>]) -> Result<Vec<Trial>, BenchError> {
        self.rounds.push(slots.len());
        slots.iter().map(|slot| self.one(slot.arm, slot.planned)).collect()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.trials.len() as u64)
    }
}

struct Silent;

impl Observer for Silent {}

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
    go_on(measurer, plan, Vec::new())
}

fn go_on(measurer: &mut Scripted, plan: &Plan, before: Vec<Trial>) -> Measured {
    let metrics = [metric::THROUGHPUT.info(), metric::LATENCY_MEAN.info()];
    let aim = Aim { arms: &arms(), plan, metrics: &metrics, seed: 3 };
    run_blocks(aim, before, measurer, &mut Silent)
}

#[test]
fn stops_at_the_first_look_that_confirms_precision() {
    let plan = Plan { budget_s: None, ..Plan::default() };
    let mut quiet = Scripted { noise: 0.001, ..Scripted::default() };
    let measured = run(&mut quiet, &plan);
    assert_eq!(measured.outcome, Outcome::Complete);
    assert_eq!(measured.trials.len(), 48, "twelve blocks of two arms, twice each");
    let mut noisy = Scripted { noise: 0.4, ..Scripted::default() };
    assert_eq!(run(&mut noisy, &plan).trials.len(), 160, "forty blocks");
}

#[test]
fn a_point_stops_when_it_is_decided() {
    let plan = Plan { budget_s: None, stopping: Stopping::Decision, ..Plan::default() };
    let mut clear = Scripted { noise: 0.02, ..Scripted::default() };
    let measured = run(&mut clear, &plan);
    assert_eq!(measured.outcome, Outcome::Complete);
    let blocks = measured.trials.len() / 4;
    assert!((5..10).contains(&blocks), "+30 % at 2 % noise is seen at once: {blocks} blocks");
    let mut noisy = Scripted { noise: 3.0, ..Scripted::default() };
    assert_eq!(run(&mut noisy, &plan).trials.len(), 160, "what is not decided gets all forty blocks");
}

#[test]
fn what_is_not_decided_is_gone_on_with() {
    let plan = Plan { budget_s: Some(24.0), stopping: Stopping::Decision, ..Plan::default() };
    let first = run(&mut Scripted { noise: 1.0, ..Scripted::default() }, &plan);
    assert_eq!((first.outcome, first.trials.len()), (Outcome::OutOfBudget, 24), "six blocks do not decide");
    let mut measurer = Scripted { noise: 0.02, ..Scripted::default() };
    let more = Plan { budget_s: Some(60.0), ..plan };
    let second = go_on(&mut measurer, &more, first.trials.clone());
    assert_eq!(second.outcome, Outcome::Complete);
    assert_eq!(second.trials[..24], first.trials, "what was measured counts");
    assert_eq!(second.trials[24].block, 6, "and blocks are counted on");
    assert!(measurer.trials.len() < 60, "{}", measurer.trials.len());
}

#[test]
fn only_what_is_asked_is_waited_for() {
    fn question(metric: &str, connections: Option<u32>) -> Question {
        Question { metric: metric.into(), connections }
    }
    fn plan(asked: Vec<Question>, others: u32) -> Plan {
        Plan { budget_s: None, stopping: Stopping::Decision, asked, others, ..Plan::default() }
    }
    fn blocks(asked: Vec<Question>, others: u32) -> usize {
        let clear = &mut Scripted { noise: 0.02, ..Scripted::default() };
        run(clear, &plan(asked, others)).trials.len() / 4
    }
    let alone = blocks(vec![question("throughput", Some(1))], 0);
    assert!((5..10).contains(&alone), "{alone}");
    let among_many = blocks(vec![question("throughput", Some(1))], 5000);
    assert!(among_many > alone, "of many questions each needs more: {among_many} blocks, not {alone}");
    // These trials have no latency, so nothing decides it.
    assert_eq!(blocks(vec![question("latency_mean", None)], 0), 40);
    // No question is about this point, so one block is enough.
    assert_eq!(blocks(vec![question("throughput", Some(8))], 0), 1);
}

#[test]
fn a_turn_over_its_budget_goes_on_to_a_look_that_is_near() {
    fn blocks(budget_s: f64) -> usize {
        let plan = Plan {
            budget_s: Some(budget_s),
            asked: vec![Question { metric: metric::THROUGHPUT.name.to_owned(), connections: None }],
            others: 15,
            stopping: Stopping::Decision,
            ..Plan::default()
        };
        run(&mut Scripted { noise: 3.0, ..Scripted::default() }, &plan).trials.len() / 4
    }
    // A block takes 4 s, and ten decide among sixteen questions.
    assert_eq!(blocks(17.0), 10, "twice the budget is over after nine blocks, and one is left to the look");
    assert_eq!(blocks(11.0), 6, "four blocks are left");
}

#[test]
fn a_budget_ends_it() {
    let plan = Plan { budget_s: Some(60.0), ..Plan::default() };
    let measured = run(&mut Scripted { noise: 0.4, ..Scripted::default() }, &plan);
    assert_eq!(measured.outcome, Outcome::OutOfBudget);
    assert_eq!(measured.trials.len(), 60);
    let plan = Plan { budget_s: Some(8.0), ..Plan::default() };
    let measured = run(&mut Scripted { noise: 0.4, ..Scripted::default() }, &plan);
    assert_eq!(measured.trials.len(), 20, "one comparison can be decided by five blocks, not by fewer");
}

/// Neither a steady load nor a burst costs a repeat, in rounds and in undivided trials.
#[test]
fn the_load_of_others_takes_no_block_and_no_time() {
    for in_rounds in [false, true] {
        let plan = Plan { budget_s: None, max_blocks: 10, ..Plan::default() };
        let mut busy = Scripted { in_rounds, foreign_percent: 100.0, ..Scripted::default() };
        let measured = run(&mut busy, &plan);
        assert_eq!(measured.trials.len(), 40, "ten blocks of four trials");
        assert!(measured.trials.iter().all(|trial| trial.counts() && trial.polluted.is_empty()));
    }
}

#[test]
fn a_failure_keeps_what_was_measured() {
    let plan = Plan { budget_s: None, ..Plan::default() };
    let measured = run(&mut Scripted { fail_at: Some(7), ..Scripted::default() }, &plan);
    assert_eq!(measured.outcome, Outcome::Failed);
    assert_eq!(measured.trials.len(), 7);
    assert!(measured.failure.unwrap().to_string().contains("the server died"));
}

#[test]
fn a_point_that_takes_turns_is_measured_in_rounds() {
    let plan = Plan { budget_s: None, max_blocks: 12, ..Plan::default() };
    let mut measurer = Scripted { in_rounds: true, noise: 0.001, ..Scripted::default() };
    let measured = run(&mut measurer, &plan);
    assert_eq!(measurer.rounds, [4; 12], "both arms twice at once");
    assert_eq!(measured.trials.len(), 48);
    for block in 0..12 {
        let of: Vec<&Trial> = measured.trials.iter().filter(|trial| trial.block == block).collect();
        let mut ids: Vec<(&str, bool)> = of.iter().map(|s| (s.arm.as_str(), s.control)).collect();
        ids.sort_unstable();
        assert_eq!(ids, [("tcp", false), ("tcp", true), ("unix", false), ("unix", true)]);
    }
}

#[test]
fn a_round_that_fails_keeps_the_rounds_before_it() {
    let plan = Plan { budget_s: None, ..Plan::default() };
    let measured = run(&mut Scripted { in_rounds: true, fail_at: Some(9), ..Scripted::default() }, &plan);
    assert_eq!(measured.outcome, Outcome::Failed);
    assert_eq!(measured.trials.len(), 8, "two whole rounds; a quarter of one is none");
}
