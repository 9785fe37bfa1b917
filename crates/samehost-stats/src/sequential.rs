//! A test that is evaluated at a few numbers of blocks, and may be stopped at any time, by a decision, a budget or the user.
//!
//! The looks are fixed beforehand: 7, 10, 14, 20, 28 … blocks, steps of √2. Each spends its own part of the level (Bonferroni over
//! looks; the parts sum to less than 1), so that the smallest p-value ÷ part of the looks so far is valid whenever one stops. A look
//! is Student's t, and what it spends is small: half a percent of the level is a fifth of a standard error.
//!
//! Rejected: an e-value after every block (a Bayes factor with a right-Haar prior, Ville 1939), which was here before. It is valid at
//! every moment, and pays for moments that nobody uses: with ten blocks of sixteen questions it decided an effect of 1.7 times the
//! scatter in 31 %, looks do in 66 %; with 14 blocks and an effect of 1.0, 18 and 32 %. A stop at the first narrow interval is not a test.

use crate::distributions::{critical, mean_and_error, two_sided_p};
use crate::estimate::{Asked, Estimate, Grouped, Method, estimate_pairs};
use crate::interval::Interval;

/// Minimum blocks for a decision: the first look.
/// Looks are at 7, 10, 14, 20, 28 … blocks, steps of √2, fixed beforehand. Whatever the noise is like, n
/// blocks point one way by luck with probability 2^(1−n), and no p-value goes below that. So seven blocks
/// decide something only among up to three questions, and ten among up to 25. A stop at the first narrow
/// interval or at a p-value was rejected: neither keeps its promise when it is looked at again and again
/// (docs/method.md §3a).
pub const FIRST_LOOK: usize = 7;

/// Parts of the level that the first two looks spend; each later look spends [`LATER`] of the one before,
/// 99 % in all. The first look is for few questions and spends little. An e-value after every block was
/// here before. It is valid at all moments and pays for moments that nobody uses: of sixteen questions
/// with an effect of 1.7 times the scatter, ten blocks decided 31 % by the e-value and 66 % by looks.
/// Parts that know how looks resemble each other (Pocock) would gain a little more, and hold for normal
/// noise with a known scatter only (docs/method.md §3a).
const SPENT: [f64; 2] = [0.12, 0.26];
const LATER: f64 = 0.7;

/// Number of blocks at a look, counted from 0.
fn blocks_at(look: u32) -> usize {
    (FIRST_LOOK as f64 * 2.0_f64.powf(0.5 * f64::from(look))).round() as usize
}

fn spent_at(look: u32) -> f64 {
    match SPENT.get(look as usize) {
        Some(part) => *part,
        None => SPENT[1] * LATER.powi(look as i32 - 1),
    }
}

/// The first look with at least this number of blocks.
fn look_of(blocks: usize) -> u32 {
    (0..).find(|look| blocks_at(*look) >= blocks).unwrap_or(u32::MAX)
}

/// Mean, its standard error, and the degrees of freedom; `None` for fewer than two values.
fn locate(values: &[f64], starts: &[Option<u32>]) -> Option<(f64, f64, f64)> {
    let (mean, squared_error) = mean_and_error(values)?;
    Some(match Grouped::of(values, starts) {
        Some(grouped) => (mean, grouped.squared_error.sqrt(), grouped.degrees),
        None => (mean, squared_error.sqrt(), values.len() as f64 - 1.0),
    })
}

/// Probability that all of this number of blocks point one way by chance, whatever the distribution of the noise.
fn luck(blocks: usize) -> f64 {
    0.5_f64.powi(blocks as i32 - 1)
}

/// P-value, valid at any time, that a look with this p-value gives.
fn valid_at(look: u32, p: f64) -> f64 {
    (p / spent_at(look)).max(luck(blocks_at(look)))
}

fn level_of(blocks: usize, confidence: f64) -> f64 {
    1.0 - (1.0 - confidence) * spent_at(look_of(blocks))
}

/// P-value of "the mean lies inside ±`limit`" at one look: that of a true mean at the limit, with both tails.
fn p_at_look(values: &[f64], starts: &[Option<u32>], limit: f64) -> f64 {
    let Some((mean, error, degrees)) = locate(values, starts) else { return 1.0 };
    let beyond = mean.abs() - limit;
    if beyond <= 0.0 {
        return 1.0;
    }
    if error == 0.0 {
        return 0.0;
    }
    0.5 * (two_sided_p(beyond / error, degrees) + two_sided_p((mean.abs() + limit) / error, degrees))
}

/// P-value of "the mean lies inside ±`limit`", valid under any stopping rule, with blocks in order of time: the smallest of the looks
/// so far, each ÷ what it spends, and never below the chance that so many blocks agree by luck. 1 before the first look.
#[must_use]
pub fn sequential_p(values: &[f64], starts: &[Option<u32>], limit: f64) -> f64 {
    let mut smallest = 1.0_f64;
    for look in 0.. {
        let n = blocks_at(look);
        if n > values.len() {
            break;
        }
        let p = p_at_look(&values[..n], &starts[..n.min(starts.len())], limit);
        smallest = smallest.min(valid_at(look, p));
    }
    smallest
}

/// Interval of the mean, at the level that the look spends which these blocks belong to: simultaneous over all looks (Jennison &
/// Turnbull 1989). `None` for fewer than two blocks.
#[must_use]
pub fn repeated_interval(values: &[f64], starts: &[Option<u32>], confidence: f64) -> Option<Interval> {
    let (mean, error, degrees) = locate(values, starts)?;
    let level = level_of(values.len(), confidence);
    let half_width = if error == 0.0 { 0.0 } else { critical(level, degrees) * error };
    Some(Interval { low: mean - half_width, high: mean + half_width })
}

/// Ratio from paired log ratios of a number of blocks that was not fixed beforehand; the counterpart of [`estimate_pairs`]. The
/// p-values are valid under any stopping rule. With fewer than [`FIRST_LOOK`] blocks, equal to [`estimate_pairs`].
#[must_use]
pub fn estimate_sequential(log_ratios: &[f64], starts: &[Option<u32>], asked: &Asked) -> Option<Estimate> {
    if log_ratios.len() < FIRST_LOOK {
        return estimate_pairs(log_ratios, starts, asked);
    }
    let Asked { confidence, limit, .. } = *asked;
    let mean = log_ratios.iter().sum::<f64>() / log_ratios.len() as f64;
    let interval = repeated_interval(log_ratios, starts, confidence).map(Interval::exp);
    Some(Estimate {
        ratio: mean.exp(),
        interval,
        // Two one-sided tests are also evaluated at every look, and no narrower interval is valid at all of them.
        narrow: interval,
        p: Some(sequential_p(log_ratios, starts, 0.0)),
        p_inside: Some(sequential_p(log_ratios, starts, limit)),
        method: Method::SequentialT,
        n: log_ratios.len() as u32,
    })
}

/// Most looks that are foreseen: the last is at some 10,000 blocks.
const MOST_LOOKS: u32 = 22;

/// Number of blocks at the first look after this many.
#[must_use]
pub fn look_after(blocks: u32) -> u32 {
    blocks_at(look_of(blocks as usize + 1)) as u32
}

/// Number of blocks at the first later look that decides whether the ratio is beyond a limit, if the estimate stays and its error
/// shrinks with 1/√n. `half_width` is that of [`repeated_interval`], `room` what lies between estimate and limit, both as natural
/// logarithms; `alpha` is what the family leaves to the question. `None` if there is no such look.
#[must_use]
pub fn look_that_decides(
    blocks: u32,
    half_width: f64,
    confidence: f64,
    room: f64,
    alpha: f64,
) -> Option<u32> {
    let n = f64::from(blocks);
    let level = level_of(blocks as usize, confidence);
    let scatter = half_width / critical(level, n - 1.0) * n.sqrt();
    first_that_decides(look_of(blocks as usize + 1), room / scatter, alpha)
}

/// Number of blocks at the first look, from this one on, that decides an effect of so many times the scatter of blocks.
fn first_that_decides(from: u32, effect: f64, alpha: f64) -> Option<u32> {
    for look in from..MOST_LOOKS {
        let n = blocks_at(look) as f64;
        let p = 0.5 * two_sided_p(effect * n.sqrt(), n - 1.0);
        if valid_at(look, p) <= alpha {
            return Some(n as u32);
        }
    }
    None
}

/// Effect ÷ scatter of blocks that [`blocks_for_clear`] blocks should decide.
/// The checkup gives each part the number of blocks by which such an effect is decided, ten among sixteen
/// rows, unless that takes twice the part's time. What is less clear gets further turns from the time
/// that is left, and the rows that need the least come first (docs/method.md §3a).
const CLEAR: f64 = 3.0;

/// Number of blocks at the first look that decides an effect of three times the scatter of blocks, with this many rows in the
/// family and this level.
#[must_use]
pub fn blocks_for_clear(rows: u32, alpha: f64) -> u32 {
    first_that_decides(0, CLEAR, alpha / f64::from(rows.max(1))).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_and_what_they_spend() {
        let looks: Vec<usize> = (0..10).map(blocks_at).collect();
        assert_eq!(looks, [7, 10, 14, 20, 28, 40, 56, 79, 112, 158]);
        assert_eq!([5, 7, 8, 10, 11, 80].map(look_of), [0, 0, 1, 1, 2, 8]);
        let spent: f64 = (0..1000).map(spent_at).sum();
        assert!(spent < 1.0 && spent > 0.98, "{spent}");
    }

    #[test]
    fn a_look_is_students_t_divided_by_what_it_spends() {
        // Student's first sleep data moved (1908): mean 0.75, standard error 0.5657, t 1.3257 with 9 degrees: p 0.2176.
        let sleep = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        assert!((p_at_look(&sleep, &[], 0.0) - 0.2176).abs() < 1e-4);
        // At the limit both tails count: (0.75 ∓ 0.5) ÷ 0.5657.
        let both = 0.5 * (two_sided_p(0.25 / 0.565_7, 9.0) + two_sided_p(1.25 / 0.565_7, 9.0));
        assert!((p_at_look(&sleep, &[], 0.5) - both).abs() < 1e-4);
        assert_eq!(p_at_look(&sleep, &[], 0.75), 1.0);
        let shifted = sleep.map(|value| value + 6.0);
        let p = p_at_look(&shifted, &[], 0.02) / 0.26;
        assert!(p < luck(7) && sequential_p(&shifted, &[None; 10], 0.02) == luck(10).max(p));
    }

    #[test]
    fn blocks_that_a_clear_effect_needs() {
        assert_eq!(
            (blocks_for_clear(1, 0.05), blocks_for_clear(4, 0.05), blocks_for_clear(16, 0.05)),
            (7, 10, 10)
        );
    }

    #[test]
    fn the_interval_is_students_at_what_the_look_spends() {
        let values: Vec<f64> = (0..12).map(|i| 0.1 + f64::from(i * 5 % 12) / 100.0).collect();
        let none = vec![None; 12];
        let interval = repeated_interval(&values, &none, 0.95).unwrap();
        let (mean, error, degrees) = locate(&values, &none).unwrap();
        let spent = two_sided_p((interval.high - mean) / error, degrees);
        assert!((spent - 0.05 * 0.26 * 0.7).abs() < 1e-9, "{spent}");
        assert_eq!(repeated_interval(&values[..1], &none[..1], 0.95), None);
        let alike = repeated_interval(&[0.1; 12], &none, 0.95).unwrap();
        assert!(alike.high - alike.low < 1e-12, "{alike:?}");
    }

    #[test]
    fn the_look_that_decides_is_foreseen() {
        assert_eq!([0, 6, 7, 9, 10, 40].map(look_after), [7, 7, 10, 10, 14, 56]);
        let values: Vec<f64> = (0..10).map(|i| 0.1 + f64::from(i * 7 % 10) / 100.0).collect();
        let half_width = repeated_interval(&values, &[None; 10], 0.95).unwrap().half_width();
        let decides = |room: f64, alpha: f64| look_that_decides(10, half_width, 0.95, room, alpha);
        // The scatter is 0.0303: 0.03 is 3.7, 4.4 and 5.2 standard errors at the next looks.
        assert_eq!([0.01, 0.002, 0.000_2].map(|alpha| decides(0.03, alpha)), [14, 20, 28].map(Some));
        assert_eq!(decides(1.0, 1e-5), Some(20), "14 blocks agree by luck in 1 of 8192 cases");
        assert_eq!(decides(1e-9, 0.05), None);
    }

    #[test]
    fn three_servers_give_an_interval_and_a_decision() {
        // Servers that differ more than blocks do: two degrees of freedom.
        let values = [0.50, 0.60, 0.65, 0.60, 0.50, 0.65, 0.55, 0.55, 0.65];
        let starts: Vec<Option<u32>> = [0, 1, 2, 0, 1, 2, 0, 1, 2].map(Some).to_vec();
        let interval = repeated_interval(&values, &starts, 0.95).unwrap();
        assert!(interval.low > 0.2 && interval.high < 1.0, "{interval:?}");
        let alike = [0.5, 0.5001, 0.4999, 0.5, 0.5001, 0.4999, 0.5];
        assert_eq!(sequential_p(&alike, &[None; 7], 0.02), luck(7), "that seven agree is no more than luck");
    }

    #[test]
    fn evidence_grows_and_is_kept() {
        let clear: Vec<f64> = (0..20).map(|i| 0.2 + f64::from(i * 7 % 10) / 100.0).collect();
        let none = vec![None; 40];
        let p = |n: usize| sequential_p(&clear[..n], &none[..n], 0.02);
        assert_eq!((p(6), p(9), p(13)), (1.0, p(7), p(10)), "between looks nothing changes");
        assert!(p(7) < 0.05 && p(10) < p(7) && p(20) < 0.001);
        // Later blocks in the other direction do not revoke an earlier decision.
        let mut turned = clear.clone();
        turned.extend(clear.iter().map(|value| -value));
        assert!(sequential_p(&turned, &none, 0.02) <= p(20));
        assert_eq!(sequential_p(&clear, &none[..20], 0.5), 1.0, "values inside the limit");
        let asked = Asked { confidence: 0.95, limit: 0.02, multiplicity: 1.0 };
        let estimate = estimate_sequential(&clear, &none[..20], &asked).unwrap();
        assert_eq!((estimate.method.name(), estimate.n), ("sequential-t", 20));
        assert_eq!(estimate.p_inside, Some(p(20)));
    }
}
