//! Does the rule find what is there, and nothing else? Power is a promise as much as coverage is: a rule that never calls
//! anything is never wrong and useless.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use samehost_analysis::analyse;
use samehost_model::{Comparison, Grade, Report, Trial, Verdict, WorkloadInfo, metric};

use crate::noise::{Balance, Machine, Tail};
use crate::reports::head;

/// How servers are started over the blocks, and how much luck each start has with one transport.
#[derive(Clone, Copy, Debug)]
struct Process {
    luck: f64,
    starts: Starts,
}

#[derive(Clone, Copy, Debug)]
enum Starts {
    EachBlock,
    InTurn(u32),
    EveryThird,
}

impl Starts {
    fn of(self, block: u32) -> u32 {
        match self {
            Starts::EachBlock => block,
            Starts::InTurn(servers) => block % servers,
            Starts::EveryThird => block / 3,
        }
    }
}

const NO_LUCK: Process = Process { luck: 0.0, starts: Starts::EachBlock };

/// Noise of a trial for which ln(candidate ÷ baseline) of a block scatters by `sd`.
fn machine(sd: f64, tail: Tail) -> Machine {
    Machine::of(sd / std::f64::consts::SQRT_2, tail, Balance::Later)
}

/// One point, one candidate, one metric, a control, a fixed number of blocks.
fn measure(machine: &Machine, ratio: f64, blocks: u32, process: Process, random: &mut Random) -> Report {
    let mut report = head(&[1]);
    report.head.arms.truncate(2);
    report.head.workload =
        WorkloadInfo { metrics: vec![metric::THROUGHPUT.info()], ..WorkloadInfo::default() };
    let lucks: Vec<f64> = (0..blocks).map(|_| process.luck * gauss(random)).collect();
    for (block, row) in (0..).zip(machine.blocks(3, blocks, random)) {
        let start = process.starts.of(block);
        let luck = lucks[start as usize];
        for (position, (arm, more)) in [(0, 0.0), (1, ratio.ln() + luck), (0, 0.0)].into_iter().enumerate() {
            report.trials.push(Trial {
                arm: report.head.arms[arm].id.clone(),
                block,
                position: position as u32,
                control: position == 2,
                server_start: Some(start),
                seconds: 0.1,
                operations: 10_000,
                throughput_per_s: Some(20_000.0 * (row[position] + more).exp()),
                ..Trial::default()
            });
        }
    }
    report
}

fn gauss(random: &mut Random) -> f64 {
    StandardNormal.sample(random)
}

fn only(report: &Report) -> Comparison {
    analyse(report).analysis.comparisons.remove(0)
}

/// Percent of so many measurements of which something holds.
fn percent(number: u32, mut holds: impl FnMut() -> bool) -> f64 {
    let found = (0..number).filter(|_| holds()).count();
    100.0 * found as f64 / f64::from(number)
}

fn is_called(comparison: &Comparison) -> bool {
    matches!(comparison.verdict, Verdict::Faster | Verdict::Slower)
}

/// +15 %, noise of 10 % a block, margin 2 %, ten blocks, one comparison: eight of ten are found.
#[test]
fn ten_blocks_find_fifteen_percent_at_ten_percent_noise() {
    for (i, tail) in [Tail::Normal, Tail::Heavy].into_iter().enumerate() {
        let mut random = Random::seed_from_u64(97_000 + i as u64);
        let machine = machine(0.10, tail);
        let found = percent(2000, || {
            only(&measure(&machine, 1.15, 10, NO_LUCK, &mut random)).verdict == Verdict::Faster
        });
        println!("+15 %, noise 10 % {tail:?}, 10 blocks: called faster in {found:.1} %");
        assert!(found >= 80.0, "{tail:?}: power {found}");
    }
}

/// At most one null comparison in twenty is called, whatever luck a process has with one transport, however servers are
/// started; and the interval of a fixed number of blocks covers.
#[test]
fn a_processes_luck_is_not_taken_for_a_difference_at_length() {
    let kinds = [
        (Starts::EachBlock, 10),
        (Starts::InTurn(6), 10),
        (Starts::InTurn(6), 20),
        (Starts::InTurn(4), 20),
        (Starts::EveryThird, 12),
    ];
    for (i, luck) in [0.0, 0.03, 0.06].into_iter().enumerate() {
        for (j, sd) in [0.03, 0.10].into_iter().enumerate() {
            for (k, (starts, blocks)) in kinds.into_iter().enumerate() {
                let mut random = Random::seed_from_u64(98_000 + (100 * i + 10 * j + k) as u64);
                let machine = machine(sd, Tail::Disturbed);
                let process = Process { luck, starts };
                let mut covered = 0;
                let called = percent(1500, || {
                    let found = only(&measure(&machine, 1.0, blocks, process, &mut random));
                    covered += u32::from(found.ci_low < Some(1.0) && found.ci_high > Some(1.0));
                    is_called(&found)
                });
                let coverage = f64::from(covered) / 15.0;
                println!(
                    "luck {:.0} %, noise {:.0} %, {starts:?}, {blocks} blocks: called {called:.1} %, covered {coverage:.1} %",
                    100.0 * luck,
                    100.0 * sd
                );
                assert!(called <= 5.0, "{process:?} {blocks}: {called}");
                assert!(coverage >= 91.0, "{process:?} {blocks}: {coverage}");
            }
        }
    }
}

/// The words below a verdict keep theirs: "probably" is wrong in at most 5 % of null comparisons on a side.
#[test]
fn probably_means_twenty_to_one() {
    let mut random = Random::seed_from_u64(99_000);
    let machine = machine(0.05, Tail::Normal);
    let (mut wrong, number) = (0, 3000);
    for _ in 0..number {
        let found = only(&measure(&machine, 1.0 / 1.001, 10, NO_LUCK, &mut random));
        let says_more = found.ratio > 1.0;
        let grade = found.grade();
        let is_said = is_called(&found) || matches!(grade, Grade::Probable | Grade::SizeOpen);
        wrong += u32::from(says_more && is_said);
    }
    let wrong = 100.0 * f64::from(wrong) / f64::from(number);
    println!("a true -0.1 % is said to be probably more in {wrong:.1} %");
    assert!(wrong <= 6.0, "{wrong}");
}
