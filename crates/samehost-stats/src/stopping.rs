//! Stopping rules: looks fixed in advance, on precision alone, never on significance.

use crate::distributions;
use crate::ranks::{SIGNED_RANK_FROM, SignedRank};

/// Number of blocks after which every order and its reverse have occurred: X, Y, X reversed, Y reversed.
/// A linear drift inside blocks cancels over such a cycle, so looks at precision fall on whole cycles.
/// Reversing in the very next block was rejected: the same arm would stand on both sides of the border,
/// and noise that lasts longer than a trial would be in both blocks. In 20,000 simulated measurements
/// with such noise 95 % intervals covered 94.1 % that way and 95.0 % with the reversal two blocks later
/// (docs/method.md §1).
const CYCLE: u32 = 4;

/// Numbers of blocks at which precision is checked: from `min` in steps of √2 up to `max`. All but the last
/// are complete cycles of reversed orders, so that a drift within blocks cancels. A last step of less than a
/// fifth is merged into the one before.
#[must_use]
pub fn looks(min: u32, max: u32) -> Vec<u32> {
    let (min, max) = (min.max(1), max.max(1));
    let mut looks = Vec::new();
    let mut next = f64::from(min.next_multiple_of(CYCLE));
    while f64::from(whole(next)) * 1.2 < f64::from(max) {
        looks.push(whole(next));
        next *= std::f64::consts::SQRT_2;
    }
    looks.dedup();
    looks.push(max);
    looks
}

fn whole(blocks: f64) -> u32 {
    CYCLE * (blocks / f64::from(CYCLE)).round() as u32
}

/// Minimum blocks for any finding: the smallest n ≥ 10 whose smallest exact signed-rank p-value, 2^(1−n), is
/// below 5 % after Holm's adjustment over `comparisons`.
#[must_use]
pub fn min_blocks_for(comparisons: u32) -> u32 {
    for blocks in SIGNED_RANK_FROM as u32..100 {
        if 0.5_f64.powi(blocks as i32 - 1) * f64::from(comparisons) < 0.05 {
            return blocks;
        }
    }
    100
}

/// Minimum blocks at which a budget may end: the smallest n ≥ 5 with 2^−n · `comparisons` < 5 %, at most
/// that of signed ranks. That is 5 blocks for one comparison, 6 for two or three, 7 for up to six and 8
/// for up to twelve. With fewer, all blocks of some comparison may agree in direction by chance, and a
/// verdict by Student's t would rest on the assumption of normal noise alone. From [`SIGNED_RANK_FROM`]
/// blocks on the minimum for signed ranks holds (docs/method.md §3).
#[must_use]
pub fn least_blocks_for(comparisons: u32) -> u32 {
    for blocks in 5..SIGNED_RANK_FROM as i32 {
        if 0.5_f64.powi(blocks) * f64::from(comparisons) < 0.05 {
            return blocks as u32;
        }
    }
    min_blocks_for(comparisons)
}

/// Half-width of the interval on the log scale; computes only what stopping needs.
fn half_width(log_ratios: &[f64], confidence: f64) -> Option<f64> {
    if log_ratios.len() >= SIGNED_RANK_FROM
        && let Some(interval) = SignedRank::new(log_ratios).interval(confidence)
    {
        return Some(interval.half_width());
    }
    Some(distributions::locate_mean(log_ratios, confidence)?.interval.half_width())
}

/// Whether the interval of these log ratios has the requested precision: half-width ≤ ln(1 + `target`).
///
/// Not a stopping rule by itself: it stops where the noise happens to be small, and the intervals then cover
/// too rarely. Use [`is_confirmed`].
#[must_use]
pub fn is_precise(log_ratios: &[f64], target: f64, confidence: f64) -> bool {
    half_width(log_ratios, confidence).is_some_and(|half_width| half_width <= target.ln_1p())
}

/// The stopping rule, for use at one of the `looks`: precise now and at the look before, or twice as
/// precise now. A measurement that stops at the first narrow interval stops where the noise happened to
/// look small, and its interval then covers too rarely: 92.9 % in simulation where the confirmed rule
/// covered 93.9 %. A stricter confidence at the looks (99 %) was tried and stops later, but selects just
/// the same: at its worst it covered 92.9 %. Significance is never looked at, because repeated looks find
/// differences that are not there (docs/method.md §3).
#[must_use]
pub fn is_confirmed(log_ratios: &[f64], looks: &[u32], target: f64, confidence: f64) -> bool {
    let Some(now) = half_width(log_ratios, confidence) else { return false };
    let wanted = target.ln_1p();
    if 2.0 * now <= wanted {
        return true;
    }
    let before = looks.iter().map(|&look| look as usize).filter(|&look| look < log_ratios.len()).max();
    now <= wanted && before.is_some_and(|before| is_precise(&log_ratios[..before], target, confidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_few_and_end_at_most() {
        assert_eq!(looks(10, 40), [12, 16, 24, 32, 40]);
        assert_eq!(looks(10, 41), [12, 16, 24, 32, 41]);
        assert_eq!(looks(10, 10), [10]);
        assert_eq!(looks(2, 5), [4, 5]);
        assert_eq!(looks(20, 10), [10]);
        assert_eq!(looks(10, 11), [11]);
        for (min, max) in [(1, 100), (6, 64), (10, 1000)] {
            let looks = looks(min, max);
            assert!(looks.windows(2).all(|two| two[0] < two[1]), "{looks:?}");
            assert!(looks[..looks.len() - 1].iter().all(|look| look % 4 == 0 && *look >= min), "{looks:?}");
            assert_eq!(looks[looks.len() - 1], max);
        }
    }

    #[test]
    fn enough_blocks_to_survive_holm() {
        assert_eq!(min_blocks_for(1), 10);
        assert_eq!(min_blocks_for(25), 10);
        assert_eq!(min_blocks_for(26), 11);
        assert_eq!(min_blocks_for(100), 12);
        assert_eq!(min_blocks_for(1000), 16);
        for (comparisons, least) in [(0, 5), (1, 5), (2, 6), (3, 6), (4, 7), (12, 8), (25, 9), (26, 11)] {
            assert_eq!(least_blocks_for(comparisons), least, "{comparisons}");
        }
    }

    /// In every family, some data must be able to give a verdict at the minimum number of blocks.
    #[test]
    fn no_family_is_undecidable_at_its_least() {
        for comparisons in 1..=200 {
            let n = least_blocks_for(comparisons);
            let clear: Vec<f64> = (0..n).map(|i| 1.0 + f64::from(i % 3) / 1e6).collect();
            let p = crate::estimate::estimate(&clear, 0.95).unwrap().p.unwrap();
            assert!(p * f64::from(comparisons) < 0.05, "{comparisons} comparisons, {n} blocks: p {p}");
        }
    }

    #[test]
    fn precision_must_be_confirmed() {
        let scatter =
            |n: u32, by: f64| -> Vec<f64> { (0..n).map(|i| if i % 2 == 0 { by } else { -by }).collect() };
        let looks = looks(10, 40);
        // Half-width 0.019: precise at 12, confirmed only at 16; 0.0099 is confirmed immediately.
        assert!(is_precise(&scatter(12, 0.019), 0.02, 0.95));
        assert!(!is_confirmed(&scatter(12, 0.019), &looks, 0.02, 0.95));
        assert!(is_confirmed(&scatter(16, 0.019), &looks, 0.02, 0.95));
        assert!(is_confirmed(&scatter(12, 0.0099), &looks, 0.02, 0.95));
        assert!(!is_precise(&scatter(12, 0.021), 0.02, 0.95));
        assert!(!is_confirmed(&[0.0], &looks, 0.02, 0.95));
    }
}
