//! Successive trials: their autocorrelation, and their drift over blocks, with the p-value of a trend and its size.
//! Pairing cancels autocorrelation; without pairs, as between two reports, the interval must be widened.

use crate::distributions;
use crate::estimate::Estimate;
use crate::interval::{Interval, doubled_midranks, median, tie_correction};
use crate::ranks::RankSum;

/// Upper limit of the autocorrelation; the widening is then 4.4-fold.
/// Two reports have no pairs that remove a drift, and successive trials of an arm resemble each other.
/// Taken as independent they have too much weight: before intervals were widened and the noise floors
/// added, 42.5 % of 200 simulated pairs of reports of one unchanged machine had an arm called changed (2
/// % heavy-tailed noise). It is 0.8 % now. The limit keeps a short series with a trend from an infinite
/// interval (docs/method.md §11).
const LARGEST: f64 = 0.9;

/// Lag-1 autocorrelation, corrected for the bias of short series, and 0 if negative. r has n − 1 products
/// over n squares, so that its mean is ρ − (1 + 4ρ) / n (Kendall 1954, with the missing product); solved for
/// ρ this is (n·r + 1) / (n − 4). Drift counts as autocorrelation, as intended.
#[must_use]
pub fn autocorrelation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 6.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let products: f64 = values.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum();
    if squares == 0.0 { 0.0 } else { ((n * products / squares + 1.0) / (n - 4.0)).clamp(0.0, LARGEST) }
}

/// Squared standard error of a mean, without and with the autocorrelation of the series. With it, n values
/// are worth n (1 − ρ) / (1 + ρ) (Bayley & Hammersley 1946, for a first-order process). `None` for fewer than two.
fn squared_errors(values: &[f64]) -> Option<(f64, f64)> {
    let (_, squared) = distributions::mean_and_error(values)?;
    let alike = autocorrelation(values);
    Some((squared, squared * (1.0 + alike) / (1.0 - alike)))
}

/// Factor, at least 1, by which the interval of a shift between two series must be widened.
#[must_use]
pub fn widening(first: &[f64], second: &[f64]) -> f64 {
    let (Some((plain_1, true_1)), Some((plain_2, true_2))) = (squared_errors(first), squared_errors(second))
    else {
        return 1.0;
    };
    let plain = plain_1 + plain_2;
    if plain > 0.0 { ((true_1 + true_2) / plain).sqrt() } else { 1.0 }
}

/// Movement of a series: the shift from its first half to its second (Hodges & Lehmann 1963), as a relative
/// difference ≥ 0 of values given as logarithms. A movement of this size within one report can also occur
/// between two.
#[must_use]
pub fn movement(logs: &[f64]) -> Option<f64> {
    let (first, second) = logs.split_at(logs.len() / 2);
    Some(RankSum::new(first, second).estimate()?.abs().exp_m1())
}

impl Estimate {
    /// Widens the intervals by `factor` on the log scale. Rank tests give no p-value for a widened interval,
    /// so the p-value is the normal one for that interval, but at least the original.
    #[must_use]
    pub fn widened(self, factor: f64, confidence: f64) -> Estimate {
        if factor <= 1.0 {
            return self;
        }
        let ratio = self.ratio;
        let widen = |interval: Interval| Interval {
            low: ratio * (interval.low / ratio).powf(factor),
            high: ratio * (interval.high / ratio).powf(factor),
        };
        let wide = Estimate { interval: self.interval.map(widen), narrow: self.narrow.map(widen), ..self };
        let p = match (self.p, wide.log_half_width()) {
            (Some(before), Some(half_width)) if half_width > 0.0 => {
                let error = half_width / distributions::normal_quantile(0.5 * (1.0 + confidence));
                let normal = 2.0 * distributions::normal_upper_tail(ratio.ln().abs() / error);
                Some(before.max(normal))
            }
            (before, _) => before,
        };
        Estimate { p, ..wide }
    }
}

/// Two-sided p-value of "no trend" (Mann 1945, Kendall 1975): exact, by counting inversions, up to 50 untied
/// values; else normal with corrections for ties and continuity. `None` for fewer than three values.
#[must_use]
pub fn trend_p(values: &[f64]) -> Option<f64> {
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
    Some(if variance > 0.0 {
        (2.0 * distributions::normal_upper_tail(score / variance.sqrt())).min(1.0)
    } else {
        1.0
    })
}

/// P(k inversions) of a random order of n values, for every k: the sum of independent uniform numbers of inversions that
/// each further value makes with those before it.
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
    use crate::estimate::estimate_shift;

    #[test]
    fn resemblance_of_known_series() {
        let alternating: Vec<f64> = (0..20).map(|i| f64::from(i % 2)).collect();
        assert_eq!(autocorrelation(&alternating), 0.0);
        let line: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(autocorrelation(&line), LARGEST);
        // 0 0 0 1 1 1 and similar: r = Σ products / Σ squares = 0.75 / 1.5 = 0.5, corrected (6·0.5 + 1) / 2 > 0.9.
        assert_eq!(autocorrelation(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), LARGEST);
        assert_eq!(autocorrelation(&[1.0; 10]), 0.0);
        assert_eq!(autocorrelation(&[1.0, 2.0]), 0.0);
        let step = [0.0, 0.0, 0.0, 1.1_f64.ln(), 1.1_f64.ln(), 1.1_f64.ln()];
        assert!((movement(&step).unwrap() - 0.1).abs() < 1e-12);
        let fall: Vec<f64> = step.iter().map(|v| -v).collect();
        assert!((movement(&fall).unwrap() - 0.1).abs() < 1e-12);
        assert_eq!(movement(&[1.0]), None);
    }

    #[test]
    fn widening_acts_on_the_log_scale() {
        let plain = estimate_shift(&[0.0, 0.1, 0.2, 0.3], &[1.0, 1.1, 1.2, 1.3], 0.95).unwrap();
        let wide = plain.widened(2.0, 0.95);
        assert_eq!((wide.ratio, wide.n), (plain.ratio, plain.n));
        assert!((wide.log_half_width().unwrap() / plain.log_half_width().unwrap() - 2.0).abs() < 1e-12);
        // The interval is 0.7 … 1.3, widened 0.4 … 1.6: 1 lies 1.96 / 0.6 = 3.27 deviations off, p 0.0011, and
        // the ranks' own p of 2/70 is the larger.
        assert_eq!(wide.p, plain.p);
        let wider = plain.widened(10.0, 0.95);
        assert!((wider.p.unwrap() - 0.5136).abs() < 0.001, "{:?}", wider.p);
        assert_eq!(plain.widened(1.0, 0.95).p, plain.p);
        assert_eq!(widening(&[1.0], &[2.0]), 1.0);
    }

    #[test]
    fn exact_p_by_hand() {
        // Of 24 orders of four values, one is increasing and one decreasing.
        assert!((trend_p(&[1.0, 2.0, 3.0, 4.0]).unwrap() - 2.0 / 24.0).abs() < 1e-15);
        // Three orders have exactly one inversion: (1 + 3) / 24, doubled.
        assert!((trend_p(&[1.0, 3.0, 2.0, 4.0]).unwrap() - 8.0 / 24.0).abs() < 1e-15);
        assert_eq!(trend_p(&[1.0, 2.0]), None);
        assert_eq!(trend_p(&[1.0, 1.0, 1.0]), Some(1.0));
        let rising: Vec<f64> = (0..60).map(f64::from).collect();
        assert!(trend_p(&rising).unwrap() < 1e-9);
    }

    #[test]
    fn trend_reaches_from_end_to_end() {
        let doubling: Vec<(u32, f64)> = (0..11).map(|i| (i, 2.0_f64.powf(f64::from(i) / 10.0))).collect();
        assert!((end_to_end(&doubling).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(end_to_end(&[(0, 1.0)]), None);
    }
}
