//! Drift over blocks: the p-value of a trend, and its size.

use crate::interval::{doubled_midranks, median, tie_correction};
use crate::normal;

/// Two-sided p-value of "no trend" (Mann 1945, Kendall 1975): exact, by counting inversions, up to 50 untied
/// values; else normal with corrections for ties and continuity. `None` for fewer than three values.
#[must_use]
pub fn p(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < 3 {
        return None;
    }
    let mut falling = 0_usize;
    let mut rising = 0_usize;
    for (i, a) in values.iter().enumerate() {
        falling += values[i + 1..].iter().filter(|b| *b < a).count();
        rising += values[i + 1..].iter().filter(|b| *b > a).count();
    }
    let ties = n * (n - 1) / 2 - falling - rising;
    if ties == 0 && n <= 50 {
        let tail: f64 = inversion_distribution(n)[..=falling.min(rising)].iter().sum();
        return Some((2.0 * tail).min(1.0));
    }
    let size = n as f64;
    let ranks = doubled_midranks(values);
    // Σ t(t−1)(2t+5) is 2Σ(t³−t) + 3Σ(t²−t); the second sum counts tied pairs twice.
    let correction = 2.0 * tie_correction(&ranks) + 6.0 * ties as f64;
    let variance = (size * (size - 1.0) * (2.0 * size + 5.0) - correction) / 18.0;
    let score = (rising.abs_diff(falling) as f64 - 1.0).max(0.0);
    Some(if variance > 0.0 { (2.0 * normal::upper_tail(score / variance.sqrt())).min(1.0) } else { 1.0 })
}

/// P(k inversions) of a random order of n values.
fn inversion_distribution(n: usize) -> Vec<f64> {
    let mut probability = vec![1.0];
    for size in 2..=n {
        let mut next = vec![0.0; probability.len() + size - 1];
        for (k, p) in probability.iter().enumerate() {
            for entry in &mut next[k..k + size] {
                *entry += p / size as f64;
            }
        }
        probability = next;
    }
    probability
}

/// Last ÷ first value along the trend of logarithms: Theil–Sen slope (Sen 1968) × the distance between the
/// first and the last block. `None` for fewer than two blocks.
#[must_use]
pub fn end_to_end(blocks: &[(u32, f64)]) -> Option<f64> {
    let mut slopes = Vec::new();
    for (i, (from, a)) in blocks.iter().enumerate() {
        for (to, b) in &blocks[i + 1..] {
            slopes.push((b / a).ln() / (f64::from(*to) - f64::from(*from)));
        }
    }
    let steps = f64::from(blocks.last()?.0) - f64::from(blocks.first()?.0);
    Some((median(&slopes)? * steps).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_p_by_hand() {
        // Of 24 orders of four values, one is increasing and one decreasing.
        assert!((p(&[1.0, 2.0, 3.0, 4.0]).unwrap() - 2.0 / 24.0).abs() < 1e-15);
        // Three orders have exactly one inversion: (1 + 3) / 24, doubled.
        assert!((p(&[1.0, 3.0, 2.0, 4.0]).unwrap() - 8.0 / 24.0).abs() < 1e-15);
        assert_eq!(p(&[1.0, 2.0]), None);
        assert_eq!(p(&[1.0, 1.0, 1.0]), Some(1.0));
        let rising: Vec<f64> = (0..60).map(f64::from).collect();
        assert!(p(&rising).unwrap() < 1e-9);
    }

    #[test]
    fn trend_reaches_from_end_to_end() {
        let doubling: Vec<(u32, f64)> = (0..11).map(|i| (i, 2.0_f64.powf(f64::from(i) / 10.0))).collect();
        assert!((end_to_end(&doubling).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(end_to_end(&[(0, 1.0)]), None);
    }
}
