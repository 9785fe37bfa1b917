//! The test that may be looked at several times: is it ever wrong more often than it may be, and does it decide?

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use samehost_stats::{FIRST_LOOK, estimate, holm, repeated_interval, sequential_p};

use crate::noise::{Balance, Machine, Tail};

const MOST: usize = 40;
const MARGIN: f64 = 0.02;

/// Log ratios of blocks, the baseline being the mean of two trials; noise is that of candidate ÷ one trial.
fn blocks(sd: f64, tail: Tail, ratio: f64, random: &mut Random) -> Vec<f64> {
    let machine = Machine::of(sd / std::f64::consts::SQRT_2, tail, Balance::Later);
    let rows = machine.blocks(3, MOST as u32, random);
    rows.iter().map(|row| ratio.ln() + row[1] - 0.5 * (row[0] + row[2])).collect()
}

/// The first number of blocks at which p is below 5 %, or all of them.
fn stop(values: &[f64], limit: f64) -> (usize, bool) {
    let none = vec![None; values.len()];
    let found = (FIRST_LOOK..=values.len()).find(|&n| sequential_p(&values[..n], &none[..n], limit) < 0.05);
    (found.unwrap_or(values.len()), found.is_some())
}

#[test]
fn looking_after_every_block_calls_no_more() {
    for (i, tail) in [Tail::Normal, Tail::Heavy, Tail::Disturbed].into_iter().enumerate() {
        let mut random = Random::seed_from_u64(96_000 + i as u64);
        let number = 1500;
        let mut called = 0;
        let mut left = 0;
        for _ in 0..number {
            let values = blocks(0.10, tail, 1.0, &mut random);
            called += u32::from(stop(&values, 0.0).1);
            let none = vec![None; MOST];
            left += u32::from((FIRST_LOOK..=MOST).any(|n| {
                repeated_interval(&values[..n], &none[..n], 0.95).is_some_and(|i| i.low > 0.0 || i.high < 0.0)
            }));
        }
        let percent = |count: u32| 100.0 * f64::from(count) / f64::from(number);
        let (called, left) = (percent(called), percent(left));
        println!(
            "{tail:?}: called at any of {MOST} blocks, margin 0: {called:.1} %; interval ever without the truth: {left:.1} %"
        );
        assert!(called <= 5.0, "{called}");
        assert!(left <= 7.0, "{left}");
    }
}

/// What is shown after stopping on a decision: covers at least 93 %, and is in the median at most 1.5 times as wide as the
/// interval of that many blocks fixed beforehand. Where everybody sees the difference at the first look it is wider, 1.7 times.
#[test]
fn the_interval_after_stopping_covers_and_is_not_much_wider() {
    for (i, (ratio, sd)) in
        [(1.05_f64, 0.05), (1.15, 0.10), (1.15, 0.20), (1.5, 0.10)].into_iter().enumerate()
    {
        let mut random = Random::seed_from_u64(96_100 + i as u64);
        let number = 800;
        let (mut covered, mut widths, mut stopped) = (0, Vec::new(), 0);
        for _ in 0..number {
            let values = blocks(sd, Tail::Heavy, ratio, &mut random);
            let (n, decided) = stop(&values, MARGIN.ln_1p());
            stopped += n;
            let none = vec![None; n];
            let shown = repeated_interval(&values[..n], &none, 0.95).unwrap();
            covered += u32::from(shown.low <= ratio.ln() && ratio.ln() <= shown.high);
            let fixed = estimate(&values[..n], 0.95).unwrap().interval.unwrap();
            if decided {
                widths.push(shown.half_width() / (0.5 * (fixed.high / fixed.low).ln()));
            }
        }
        let coverage = 100.0 * f64::from(covered) / f64::from(number);
        let wider = samehost_stats::median(&widths).unwrap_or(1.0);
        println!(
            "{ratio}, noise {:.0} %: stopped after {:.1} blocks, covered {coverage:.1} %, {wider:.2} times as wide",
            100.0 * sd,
            stopped as f64 / f64::from(number)
        );
        assert!(coverage >= 93.0, "{ratio} {sd}: {coverage}");
        let most = if stopped < number as usize * 8 { 1.8 } else { 1.5 };
        assert!(wider <= most, "{ratio} {sd}: {wider}");
    }
}

/// Twelve rows, each +15 % at 10 % noise, margin 2 %: by 25 blocks eight of ten are decided, Holm over all twelve. And of
/// twelve rows without a difference at most one report in twenty calls any.
#[test]
fn twelve_rows_are_decided_by_twenty_five_blocks() {
    let limit = MARGIN.ln_1p();
    let decided = |rows: &[Vec<f64>]| {
        let none = [None; 25];
        let p: Vec<f64> = rows.iter().map(|row| sequential_p(&row[..25], &none, limit)).collect();
        holm::adjust(&p).iter().filter(|p| **p < 0.05).count()
    };
    let mut random = Random::seed_from_u64(96_200);
    let mut report = |effects: &[f64]| -> Vec<Vec<f64>> {
        effects.iter().map(|ratio| blocks(0.10, Tail::Normal, *ratio, &mut random)).collect()
    };
    let power = |found: usize, of: usize| 100.0 * found as f64 / of as f64;
    let all = power((0..100).map(|_| decided(&report(&[1.15; 12]))).sum(), 1200);
    // The hardest case: one row differs, and the eleven others spend its chances.
    let mut one = [1.0; 12];
    one[0] = 1.15;
    let lone = power((0..300).filter(|_| decided(&report(&one)) > 0).count(), 300);
    let wrong = power((0..300).filter(|_| decided(&report(&[1.0; 12])) > 0).count(), 300);
    println!(
        "twelve rows by 25 blocks: {all:.1} % decided; one of twelve: {lone:.1} %; none of twelve called in {wrong:.1} %"
    );
    assert!(all >= 80.0 && lone >= 80.0, "{all} {lone}");
    assert!(wrong <= 5.0, "{wrong}");
}

/// A few servers used in turn, each with luck of its own: the test knows of them, and the interval holds the truth.
#[test]
fn luck_is_no_evidence_at_any_time() {
    let kinds = [(4, 0.0), (4, 0.03), (4, 0.06), (3, 0.03), (3, 0.06), (6, 0.03), (6, 0.06)];
    for (i, (servers, luck)) in kinds.into_iter().enumerate() {
        let mut random = Random::seed_from_u64(96_300 + i as u64);
        let number = 600;
        let (mut called, mut left) = (0, 0);
        for _ in 0..number {
            let mut one = || -> f64 { StandardNormal.sample(&mut random) };
            let of: Vec<f64> = (0..servers.max(4)).map(|_| luck * one()).collect();
            let mut values = blocks(0.03, Tail::Normal, 1.0, &mut random);
            let starts: Vec<Option<u32>> = (0..MOST as u32).map(|block| Some(block % servers)).collect();
            for (block, value) in values.iter_mut().enumerate() {
                *value += of[block % servers as usize];
            }
            called += u32::from(sequential_p(&values, &starts, MARGIN.ln_1p()) < 0.05);
            left += u32::from((FIRST_LOOK..=MOST).any(|n| {
                let shown = repeated_interval(&values[..n], &starts[..n], 0.95);
                shown.is_some_and(|i| i.low > 0.0 || i.high < 0.0)
            }));
        }
        let percent = |count: u32| 100.0 * f64::from(count) / f64::from(number);
        let (called, left) = (percent(called), percent(left));
        println!(
            "{servers} servers in turn, luck {:.0} %: called at any time {called:.1} %; interval ever without the truth: {left:.1} %",
            100.0 * luck
        );
        assert!(called <= 5.0, "{servers}, {luck}: {called}");
        assert!(left <= 13.0, "{servers}, {luck}: {left}");
    }
}

/// Noise that is one of two values, as that of a connection that is fast or slow: that a few blocks agree is luck.
#[test]
fn two_speeds_are_no_evidence() {
    let mut random = Random::seed_from_u64(96_500);
    let number = 3000;
    let called = (0..number)
        .filter(|_| {
            let values: Vec<f64> = (0..MOST)
                .map(|_| {
                    let (side, jitter): (f64, f64) =
                        (StandardNormal.sample(&mut random), StandardNormal.sample(&mut random));
                    0.3_f64.copysign(side) + 0.005 * jitter
                })
                .collect();
            stop(&values, MARGIN.ln_1p()).1
        })
        .count();
    let called = 100.0 * called as f64 / f64::from(number);
    println!("two speeds, 30 % apart from the mean: called at any time {called:.1} %");
    assert!(called <= 5.0, "{called}");
}

/// What everybody sees needs few blocks: −25 % at 5 % noise, the last of sixteen rows, three servers in turn.
#[test]
fn a_clear_effect_is_decided_on_three_servers() {
    let mut random = Random::seed_from_u64(96_400);
    let starts: Vec<Option<u32>> = (0..8).map(|block| Some(block % 3)).collect();
    let number = 400;
    let found = (0..number)
        .filter(|_| {
            let values = blocks(0.05, Tail::Normal, 0.75, &mut random);
            sequential_p(&values[..8], &starts, MARGIN.ln_1p()) < 0.05
        })
        .count();
    let power = 100.0 * found as f64 / f64::from(number);
    println!("-25 % at 5 % noise, three servers, 8 blocks: {power:.1} %");
    assert!(power >= 80.0, "{power}");
}
