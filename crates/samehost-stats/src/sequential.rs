//! A sequential test that can be evaluated after every block and stopped at any time, by a decision, a budget
//! or the user.
//!
//! The statistic is an e-value, the Bayes factor against "no effect", with the right-Haar prior for the scatter
//! (Pérez-Ortiz et al. 2024; Grünwald, de Heide & Koolen 2024). Under the alternative, effect ÷ scatter is
//! normal around 0 with standard deviation 1, or 5 with probability ¼. The wide component is for obvious
//! effects: with it, a few blocks or servers can give large odds. Under "no difference" the e-value ever exceeds
//! 1 ÷ α with probability at most α (Ville 1939), so 1 ÷ its running maximum is an anytime-valid p-value.

use crate::estimate::{Asked, Estimate, Method, estimate_pairs};
use crate::interval::Interval;
use crate::starts::Grouped;

/// Minimum blocks for a decision.
pub const FIRST_LOOK: usize = 5;

/// Mean, its standard error, and the degrees of freedom.
fn locate(values: &[f64], starts: &[Option<u32>]) -> (f64, f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    match Grouped::of(values, starts) {
        Some(grouped) => (mean, grouped.error(), grouped.degrees()),
        None => {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (mean, (squares / (n - 1.0) / n).sqrt(), n - 1.0)
        }
    }
}

/// Prior variances of effect ÷ scatter: for small effects, and for large ones.
const VARIANCES: [f64; 2] = [1.0, 25.0];

/// Prior probability of the variance for small effects.
const SMALL: f64 = 0.75;

/// 1 + n · variance, with n = ν + 1.
fn spread(degrees: f64, variance: f64) -> f64 {
    1.0 + (degrees + 1.0) * variance
}

/// ln of the e-value of t with these degrees of freedom: the weighted mean over both variances.
fn log_e(t: f64, degrees: f64) -> f64 {
    let [small, large] = VARIANCES.map(|variance| log_e_of(t, degrees, spread(degrees, variance)));
    let (small, large) = (small + SMALL.ln(), large + (1.0 - SMALL).ln());
    small.max(large) + (-(small - large).abs()).exp().ln_1p()
}

/// ln of r^(−½) · [(1 + t²/ν) ÷ (1 + t²/(ν r))]^((ν + 1)/2).
fn log_e_of(t: f64, degrees: f64, r: f64) -> f64 {
    let gain = match t * t / degrees {
        _ if t.is_nan() => 0.0,
        far if far.is_infinite() => r.ln(),
        odds => odds.ln_1p() - (odds / r).ln_1p(),
    };
    0.5 * ((degrees + 1.0) * gain - r.ln())
}

/// ln of the maximum odds that this number of blocks can give.
fn most_odds(blocks: usize) -> f64 {
    (blocks as f64 - 1.0) * 2.0_f64.ln()
}

/// Logarithm (at least 0) of the running maximum of the e-value against "the mean lies inside ±`limit`", with
/// blocks in order of time. At each look only the side of the mean counts. The odds of n blocks are limited
/// to 2^(n − 1): whatever the distribution of the noise, all blocks agree by chance that often.
#[must_use]
pub fn log_evidence(values: &[f64], starts: &[Option<u32>], limit: f64) -> f64 {
    let mut largest = 0.0_f64;
    for n in FIRST_LOOK..=values.len() {
        let (values, starts) = (&values[..n], &starts[..n.min(starts.len())]);
        let (mean, error, degrees) = locate(values, starts);
        if mean.abs() > limit {
            let odds = log_e((mean.abs() - limit) / error, degrees);
            largest = largest.max(odds.min(most_odds(n)));
        }
    }
    largest
}

/// Limit on the odds against a value inside the interval, × (1 − confidence): 9 for 95 %.
const ODDS_OF_INTERVAL: f64 = 0.45;

/// All values against which the current odds are below 9 to 1 (for 95 %). Uses the odds of small effects, or
/// those of large ones if there are too few degrees of freedom. By theory, the interval contains the true
/// value at all times simultaneously with at least 89 %; by simulation, when measuring stopped on a decision,
/// with 98 % (docs/method.md). `None` while no value can be excluded.
#[must_use]
pub fn repeated_interval(values: &[f64], starts: &[Option<u32>], confidence: f64) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let (mean, error, degrees) = locate(values, starts);
    let odds = ODDS_OF_INTERVAL / (1.0 - confidence);
    VARIANCES.into_iter().find_map(|variance| {
        let r = spread(degrees, variance);
        let bound = (odds * r.sqrt()).powf(2.0 / (degrees + 1.0));
        (bound < r).then(|| {
            let half_width = (degrees * (bound - 1.0) / (1.0 - bound / r)).sqrt() * error;
            Interval { low: mean - half_width, high: mean + half_width }
        })
    })
}

/// Ratio from paired log ratios that were evaluated after every block; the counterpart of [`estimate_pairs`]
/// for a number of blocks that was not fixed beforehand. The p-values are valid under any stopping rule. With
/// fewer than [`FIRST_LOOK`] blocks, equal to [`estimate_pairs`].
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
        p: Some((-log_evidence(log_ratios, starts, 0.0)).exp()),
        p_inside: Some((-log_evidence(log_ratios, starts, limit)).exp()),
        method: Method::SequentialT,
        n: log_ratios.len() as u32,
    })
}

/// Effect ÷ scatter of blocks that [`blocks_for_clear`] blocks should decide.
const CLEAR: f64 = 3.0;

/// Number of blocks that decides an effect of three times the scatter of blocks, with this many rows in the
/// family and this level.
#[must_use]
pub fn blocks_for_clear(rows: u32, alpha: f64) -> u32 {
    let wanted = (f64::from(rows.max(1)) / alpha).ln();
    let odds = |n: u32| log_e(CLEAR * f64::from(n).sqrt(), f64::from(n - 1)).min(most_odds(n as usize));
    (FIRST_LOOK as u32..100).find(|n| odds(*n) >= wanted).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_values_as_by_hand() {
        // ν 9, t 3: r 11, odds 1; ½ (10 · (ln 2 − ln (1 + 1/11)) − ln 11).
        let wanted = 0.5 * (10.0 * (2.0_f64.ln() - (12.0_f64 / 11.0).ln()) - 11.0_f64.ln());
        assert!((log_e_of(3.0, 9.0, 11.0) - wanted).abs() < 1e-12);
        assert!((log_e_of(0.0, 9.0, 11.0) + 0.5 * 11.0_f64.ln()).abs() < 1e-12, "no effect: odds for it");
        assert!((log_e_of(f64::INFINITY, 9.0, 11.0) - 4.5 * 11.0_f64.ln()).abs() < 1e-12);
        // The weighted mean of both: r 11 and 1 + 10 · 25.
        let both = 0.75 * log_e_of(3.0, 9.0, 11.0).exp() + 0.25 * log_e_of(3.0, 9.0, 251.0).exp();
        assert!((log_e(3.0, 9.0) - both.ln()).abs() < 1e-12);
    }

    #[test]
    fn blocks_that_a_clear_effect_needs() {
        assert_eq!(
            (blocks_for_clear(1, 0.05), blocks_for_clear(4, 0.05), blocks_for_clear(16, 0.05)),
            (6, 8, 10)
        );
    }

    #[test]
    fn the_interval_is_where_the_odds_end() {
        let values: Vec<f64> = (0..12).map(|i| 0.1 + f64::from(i * 5 % 12) / 100.0).collect();
        let none = vec![None; 12];
        let interval = repeated_interval(&values, &none, 0.95).unwrap();
        for end in [interval.low, interval.high] {
            let (mean, error, degrees) = locate(&values, &none);
            let odds = log_e_of((mean - end) / error, degrees, degrees + 2.0);
            assert!((odds - 9.0_f64.ln()).abs() < 1e-9, "{end}");
        }
        assert_eq!(repeated_interval(&values[..2], &none[..2], 0.95), None, "two blocks exclude nothing");
    }

    #[test]
    fn three_servers_give_an_interval_and_odds() {
        // Servers that differ more than blocks do: two degrees of freedom.
        let values = [0.50, 0.60, 0.65, 0.60, 0.50, 0.65];
        let starts: Vec<Option<u32>> = [0, 1, 2, 0, 1, 2].map(Some).to_vec();
        let interval = repeated_interval(&values, &starts, 0.95).unwrap();
        assert!(interval.low > 0.2 && interval.high < 1.0, "{interval:?}");
        assert!(log_evidence(&values, &starts, 0.02) > 10.0_f64.ln());
        let alike = [0.5, 0.5001, 0.4999, 0.5, 0.5001, 0.4999];
        assert_eq!(
            log_evidence(&alike, &[None; 6], 0.02),
            32.0_f64.ln(),
            "that six agree is no more than luck"
        );
    }

    #[test]
    fn evidence_grows_and_is_kept() {
        let clear: Vec<f64> = (0..20).map(|i| 0.2 + f64::from(i * 7 % 10) / 100.0).collect();
        let none = vec![None; 40];
        let evidence = |n: usize| log_evidence(&clear[..n], &none[..n], 0.02);
        assert_eq!(evidence(4), 0.0);
        assert!(evidence(5) > 0.0 && evidence(8) > evidence(5) && evidence(20) > 20.0_f64.ln());
        // Later blocks in the other direction do not revoke an earlier decision.
        let mut turned = clear.clone();
        turned.extend(clear.iter().map(|value| -value));
        assert!(log_evidence(&turned, &none, 0.02) >= evidence(20));
        // Values inside the limit give no evidence.
        assert_eq!(log_evidence(&clear, &none[..20], 0.5), 0.0);
        let estimate = estimate_sequential(
            &clear,
            &none[..20],
            &Asked { confidence: 0.95, limit: 0.02, multiplicity: 1.0 },
        )
        .unwrap();
        assert_eq!((estimate.method.name(), estimate.n), ("sequential-t", 20));
        assert!((estimate.p_inside.unwrap().ln() + evidence(20)).abs() < 1e-9);
    }
}
