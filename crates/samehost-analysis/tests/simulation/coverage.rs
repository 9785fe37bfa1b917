//! Does the final 95 % interval cover the true ratio in 93–97 % of measurements, the stopping rule on?

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use samehost_stats::{estimate, is_confirmed, is_precise, looks};

use crate::noise::{Balance, Machine, Tail};

const MEASUREMENTS: u32 = 10_000;
const TARGET: f64 = 0.02;
const CONFIDENCE: f64 = 0.95;
const TRUE_RATIO: f64 = 1.1;

/// What came of many measurements on one machine.
struct Outcome {
    /// Percent of intervals that hold the true ratio.
    coverage: f64,
    /// Mean number of blocks at the end.
    blocks: f64,
    /// Percent that ended at each look.
    ended: Vec<f64>,
}

/// Measures again and again, each time until `stops` says so at a look or the looks are over.
fn measure(machine: &Machine, seed: u64, stops: impl Fn(&[f64], &[u32]) -> bool) -> Outcome {
    let mut random = Random::seed_from_u64(seed);
    let looks = looks(10, 40);
    let (mut covered, mut blocks, mut ended) = (0_u32, 0_u32, vec![0_u32; looks.len()]);
    for _ in 0..MEASUREMENTS {
        // A third arm, as the control, keeps the two compared apart in time.
        let rows = machine.blocks(3, 40, &mut random);
        let ratios: Vec<f64> = rows.iter().map(|row| TRUE_RATIO.ln() + row[1] - row[0]).collect();
        let last = looks.len() - 1;
        let end = (0..last).find(|&i| stops(&ratios[..looks[i] as usize], &looks)).unwrap_or(last);
        let interval = estimate(&ratios[..looks[end] as usize], CONFIDENCE).unwrap().interval.unwrap();
        covered += u32::from(interval.low <= TRUE_RATIO && TRUE_RATIO <= interval.high);
        blocks += looks[end];
        ended[end] += 1;
    }
    let all = f64::from(MEASUREMENTS);
    Outcome {
        coverage: 100.0 * f64::from(covered) / all,
        blocks: f64::from(blocks) / all,
        ended: ended.iter().map(|&n| 100.0 * f64::from(n) / all).collect(),
    }
}

fn confirmed(ratios: &[f64], looks: &[u32]) -> bool {
    is_confirmed(ratios, looks, TARGET, CONFIDENCE)
}

fn check(balance: Balance, tail: Tail) {
    for (i, own) in [0.005, 0.010, 0.014, 0.018, 0.022, 0.027, 0.035, 0.080].into_iter().enumerate() {
        let found = measure(&Machine::of(own, tail, balance), 90_000 + i as u64, confirmed);
        println!(
            "coverage {balance:?} {tail:?} noise {:.1} %: {:.1} % with {:.1} blocks; ended at 12/16/24/32/40: {:.0?}",
            100.0 * own,
            found.coverage,
            found.blocks,
            found.ended
        );
        assert!((93.0..=97.0).contains(&found.coverage), "{balance:?} {tail:?} {own}: {}", found.coverage);
    }
}

#[test]
fn intervals_cover_with_normal_noise() {
    check(Balance::Later, Tail::Normal);
}

#[test]
fn intervals_cover_with_heavy_tails() {
    check(Balance::Later, Tail::Heavy);
}

#[test]
fn intervals_cover_with_disturbed_trials() {
    check(Balance::Later, Tail::Disturbed);
}

#[test]
fn intervals_cover_when_the_next_block_is_reversed() {
    check(Balance::Next, Tail::Normal);
}

/// Why the rule asks for confirmation: stopping at the first narrow interval covers measurably less; the price is
/// some more blocks. This also shows that the simulation can tell a worse rule.
#[test]
fn the_first_narrow_interval_is_no_rule() {
    let machine = Machine::of(0.027, Tail::Normal, Balance::Next);
    let first = measure(&machine, 93_000, |ratios, _| is_precise(ratios, TARGET, CONFIDENCE));
    let ours = measure(&machine, 93_000, confirmed);
    println!(
        "first narrow interval: {:.1} % with {:.1} blocks; confirmed: {:.1} % with {:.1} blocks",
        first.coverage, first.blocks, ours.coverage, ours.blocks
    );
    assert!(first.coverage + 0.5 < ours.coverage, "{} {}", first.coverage, ours.coverage);
}

/// Why an order is reversed two blocks later and not in the next: noise that outlasts a trial then makes
/// neighbouring blocks alike. A fixed number of blocks, shared noise three times the own.
#[test]
fn reversal_in_the_next_block_costs_coverage() {
    let coverage = |balance| {
        let machine =
            Machine { shared: 0.03, walk: 0.0, drift: 0.0, ..Machine::of(0.01, Tail::Normal, balance) };
        let mut random = Random::seed_from_u64(95_000);
        let covers = |_: &u32| {
            let rows = machine.blocks(3, 20, &mut random);
            let ratios: Vec<f64> = rows.iter().map(|row| row[1] - row[0]).collect();
            let interval = estimate(&ratios, CONFIDENCE).unwrap().interval.unwrap();
            interval.low <= 1.0 && 1.0 <= interval.high
        };
        100.0 * (0..2 * MEASUREMENTS).filter(covers).count() as f64 / f64::from(2 * MEASUREMENTS)
    };
    let (next, later) = (coverage(Balance::Next), coverage(Balance::Later));
    println!("20 blocks, reversed in the next block: {next:.1} %, two blocks later: {later:.1} %");
    assert!(next + 0.3 < later && (94.5..=95.7).contains(&later), "{next} {later}");
}

/// Below ten blocks Student's t stands in: it must hold for normal noise, and not fall apart with heavy tails.
#[test]
fn few_blocks_cover_too() {
    for tail in [Tail::Normal, Tail::Heavy] {
        for blocks in [2, 5, 8] {
            let machine = Machine::of(0.02, tail, Balance::Later);
            let mut random = Random::seed_from_u64(94_000);
            let covers = |_: &u32| {
                let rows = machine.blocks(3, blocks, &mut random);
                let ratios: Vec<f64> = rows.iter().map(|row| row[1] - row[0]).collect();
                let interval = estimate(&ratios, CONFIDENCE).unwrap().interval.unwrap();
                interval.low <= 1.0 && 1.0 <= interval.high
            };
            let coverage = 100.0 * (0..MEASUREMENTS).filter(covers).count() as f64 / f64::from(MEASUREMENTS);
            println!("coverage of Student's t, {blocks} blocks, {tail:?}: {coverage:.1} %");
            assert!((94.0..=97.5).contains(&coverage), "{blocks} {tail:?}: {coverage}");
        }
    }
}
