//! Autocorrelation of successive trials. Pairing cancels it; without pairs, as between two reports, the
//! interval must be widened.

use crate::estimate::Estimate;
use crate::interval::Interval;
use crate::normal;
use crate::two_sample::RankSum;

/// Upper limit of the autocorrelation; the widening is then 4.4-fold.
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
/// are worth n (1 − ρ) / (1 + ρ) (Bayley & Hammersley 1946, for a first-order process).
fn squared_errors(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squared = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0) / n;
    let alike = autocorrelation(values);
    (squared, squared * (1.0 + alike) / (1.0 - alike))
}

/// Factor, at least 1, by which the interval of a shift between two series must be widened.
#[must_use]
pub fn widening(first: &[f64], second: &[f64]) -> f64 {
    if first.len() < 2 || second.len() < 2 {
        return 1.0;
    }
    let ((plain_1, true_1), (plain_2, true_2)) = (squared_errors(first), squared_errors(second));
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
        let p = wide.log_half_width().filter(|half_width| *half_width > 0.0).map(|half_width| {
            let error = half_width / normal::quantile(0.5 * (1.0 + confidence));
            2.0 * normal::upper_tail(ratio.ln().abs() / error)
        });
        Estimate { p: self.p.zip(p).map_or(self.p, |(before, after)| Some(before.max(after))), ..wide }
    }
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
}
