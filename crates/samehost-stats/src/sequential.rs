//! A test that may be looked at after every block and stopped whenever one likes: by a decision, a budget or a person.
//!
//! The statistic is an e-value: fair odds against "no difference", the Bayes factor of "effect ÷ scatter is normal around
//! 0 with standard deviation 1" against "no effect", with the right-Haar prior of the scatter (Pérez-Ortiz et al. 2024;
//! Grünwald, de Heide & Koolen 2024). Under "no difference" it exceeds 1 ÷ α at any time with a chance of at most α
//! (Ville 1939), so 1 ÷ its largest value so far is a p-value at every moment.

use samehost_model::{MetricInfo, Plan, Sample};

use crate::estimate::{Asked, Estimate, Method};
use crate::family::OF_THE_ANSWER;
use crate::pairing::pair_arms;
use crate::starts::Grouped;
use crate::{Interval, estimate_pairs, holm};

/// Fewer blocks decide nothing.
pub const FIRST_LOOK: usize = 5;

/// Mean, its standard error, and the degrees of freedom of that.
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

/// ln of the e-value of this t with these degrees of freedom:
/// (1 + n)^(−½) · [(1 + t²/ν) ÷ (1 + t²/(ν (1 + n)))]^((ν + 1)/2), n = ν + 1.
fn log_e(t: f64, degrees: f64) -> f64 {
    let r = 2.0 + degrees;
    let gain = match t * t / degrees {
        _ if t.is_nan() => 0.0,
        far if far.is_infinite() => r.ln(),
        odds => odds.ln_1p() - (odds / r).ln_1p(),
    };
    0.5 * ((degrees + 1.0) * gain - r.ln())
}

/// The largest e-value so far (its logarithm, at least 0) against "the mean lies inside ±`limit`", with blocks in the order
/// of time. Only the side counts on which the mean lies at each look.
#[must_use]
pub fn log_evidence(values: &[f64], starts: &[Option<u32>], limit: f64) -> f64 {
    let mut largest = 0.0_f64;
    for n in FIRST_LOOK..=values.len() {
        let (values, starts) = (&values[..n], &starts[..n.min(starts.len())]);
        let (mean, error, degrees) = locate(values, starts);
        if mean.abs() > limit {
            largest = largest.max(log_e((mean.abs() - limit) / error, degrees));
        }
    }
    largest
}

/// What the odds against a value must stay below for it to be in the interval, × (1 − confidence): 9 for 95 %.
const ODDS_OF_INTERVAL: f64 = 0.45;

/// The values that the odds of this moment are not 9 to 1 against (for 95 %). By theory it holds the truth at all moments
/// at once with at least 89 %; when measuring stopped on a decision, by simulation, with 98 % (docs/method.md). Absent
/// while no value can be excluded.
#[must_use]
pub fn repeated_interval(values: &[f64], starts: &[Option<u32>], confidence: f64) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let (mean, error, degrees) = locate(values, starts);
    let r = 2.0 + degrees;
    let odds = ODDS_OF_INTERVAL / (1.0 - confidence);
    let bound = (odds * r.sqrt()).powf(2.0 / (degrees + 1.0));
    (bound < r).then(|| {
        let half_width = (degrees * (bound - 1.0) / (1.0 - bound / r)).sqrt() * error;
        Interval { low: mean - half_width, high: mean + half_width }
    })
}

/// The ratio behind paired log ratios that were looked at after every block, as [`estimate_pairs`] gives it for a number
/// of blocks fixed beforehand. Its p-values hold whenever measuring stopped. Before [`FIRST_LOOK`] nothing was looked at.
#[must_use]
pub fn estimate_sequential(log_ratios: &[f64], starts: &[Option<u32>], asked: &Asked) -> Option<Estimate> {
    if log_ratios.len() < FIRST_LOOK {
        return estimate_pairs(log_ratios, starts, asked);
    }
    let Asked { confidence, limit, .. } = *asked;
    let mean = log_ratios.iter().sum::<f64>() / log_ratios.len() as f64;
    // It holds at all looks at once, so that one after which the degrees of freedom fell too low for any takes nothing back.
    let at = |n: usize| repeated_interval(&log_ratios[..n], &starts[..n.min(starts.len())], confidence);
    let interval = (FIRST_LOOK..=log_ratios.len()).rev().find_map(at).map(Interval::exp);
    Some(Estimate {
        ratio: mean.exp(),
        interval,
        // Two one-sided tests that may be made at every look: no narrower interval holds at each of them.
        narrow: interval,
        p: Some((-log_evidence(log_ratios, starts, 0.0)).exp()),
        p_inside: Some((-log_evidence(log_ratios, starts, limit)).exp()),
        method: Method::SequentialT,
        n: log_ratios.len() as u32,
    })
}

/// A question about a pair of arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// What is asked about.
    pub metric: &'a MetricInfo,
    /// Id of the arm that the other is compared with.
    pub baseline: &'a str,
    /// Id of the other.
    pub candidate: &'a str,
}

/// Effect ÷ scatter of blocks that is to be decided by [`blocks_for_clear`] blocks.
const CLEAR: f64 = 3.0;

/// The blocks by which an effect of three times the scatter of blocks is decided, where so many rows are one answer at
/// this level. With two or three fewer nothing is, however clear: n blocks give odds of (n + 1)^((n − 1) ÷ 2) at most.
#[must_use]
pub fn blocks_for_clear(rows: u32, alpha: f64) -> u32 {
    let wanted = (f64::from(rows.max(1)) / alpha).ln();
    let is_enough = |n: &u32| log_e(CLEAR * f64::from(*n).sqrt(), f64::from(n - 1)) >= wanted;
    (FIRST_LOOK as u32..100).find(is_enough).unwrap_or(100)
}

/// Which rows are decided, so that they need no more blocks: the odds against "inside the margin" pass Holm's adjustment
/// over all rows, or the repeated interval lies inside the margin. The rows are the plan's questions and those of other
/// measurements that it names, all 5 % for them; or the first metric's, which have a part of the 5 % at least. It may be
/// asked after every block; it sees nothing else.
#[must_use]
pub fn decided(samples: &[Sample], rows: &[Row<'_>], plan: &Plan) -> Vec<bool> {
    let asked =
        Asked { confidence: plan.confidence, limit: plan.margin.ln_1p(), multiplicity: rows.len() as f64 };
    let estimates: Vec<Option<Estimate>> = rows
        .iter()
        .map(|row| {
            let pairs = pair_arms(samples, row.metric, row.baseline, row.candidate);
            let enough = pairs.candidate.len() >= FIRST_LOOK;
            enough.then(|| estimate_sequential(&pairs.log_ratios(), &pairs.starts, &asked))?
        })
        .collect();
    let mut p_values: Vec<f64> =
        estimates.iter().map(|found| found.and_then(|found| found.p_inside).unwrap_or(1.0)).collect();
    p_values.extend(std::iter::repeat_n(1.0, plan.others as usize));
    let part = if plan.asked.is_empty() { OF_THE_ANSWER } else { 1.0 };
    let alpha = part * (1.0 - plan.confidence);
    let same = |found: Estimate| {
        found.interval.is_some_and(|i| i.low > 1.0 / (1.0 + plan.margin) && i.high < 1.0 + plan.margin)
    };
    let adjusted = holm::adjust(&p_values);
    estimates.iter().zip(adjusted).map(|(found, p)| p < alpha || found.is_some_and(same)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_values_as_by_hand() {
        // ν 9, t 3: r 11, odds 1; ½ (10 · (ln 2 − ln (1 + 1/11)) − ln 11).
        let wanted = 0.5 * (10.0 * (2.0_f64.ln() - (12.0_f64 / 11.0).ln()) - 11.0_f64.ln());
        assert!((log_e(3.0, 9.0) - wanted).abs() < 1e-12);
        assert!((log_e(0.0, 9.0) + 0.5 * 11.0_f64.ln()).abs() < 1e-12, "no effect: odds for it");
        assert!((log_e(f64::INFINITY, 9.0) - 4.5 * 11.0_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn blocks_that_a_clear_effect_needs() {
        // n 5, t 3√5, ν 4: ½ (5 · (ln 12.25 − ln (1 + 45/24)) − ln 6) = 2.73: odds of 15, too few for one row at 5 %.
        assert_eq!(
            (blocks_for_clear(1, 0.05), blocks_for_clear(4, 0.05), blocks_for_clear(16, 0.05)),
            (6, 7, 9)
        );
        assert!(log_e(1e9, 5.0).exp() < 320.0, "six blocks decide nothing among sixteen rows");
    }

    #[test]
    fn the_interval_is_where_the_odds_end() {
        let values: Vec<f64> = (0..12).map(|i| 0.1 + f64::from(i * 5 % 12) / 100.0).collect();
        let none = vec![None; 12];
        let interval = repeated_interval(&values, &none, 0.95).unwrap();
        for end in [interval.low, interval.high] {
            let (mean, error, degrees) = locate(&values, &none);
            assert!((log_e((mean - end) / error, degrees) - 9.0_f64.ln()).abs() < 1e-9, "{end}");
        }
        assert_eq!(repeated_interval(&values[..3], &none[..3], 0.95), None, "three blocks exclude nothing");
    }

    #[test]
    fn an_interval_is_not_lost_again() {
        // By the sixth block servers differ by more than blocks do: two degrees of freedom, and no odds of nine.
        let values = [0.50, 0.60, 0.65, 0.60, 0.50, 0.65];
        let starts: Vec<Option<u32>> = [0, 1, 2, 0, 1, 2].map(Some).to_vec();
        assert_eq!(repeated_interval(&values, &starts, 0.95), None);
        let before = repeated_interval(&values[..5], &starts[..5], 0.95).unwrap();
        let asked = Asked { confidence: 0.95, limit: 0.02, multiplicity: 1.0 };
        let estimate = estimate_sequential(&values, &starts, &asked).unwrap();
        assert_eq!(estimate.interval, Some(before.exp()));
    }

    #[test]
    fn evidence_grows_and_is_kept() {
        let clear: Vec<f64> = (0..20).map(|i| 0.2 + f64::from(i * 7 % 10) / 100.0).collect();
        let none = vec![None; 40];
        let at = |n: usize| log_evidence(&clear[..n], &none[..n], 0.02);
        assert_eq!(at(4), 0.0);
        assert!(at(5) > 0.0 && at(8) > at(5) && at(20) > 20.0_f64.ln());
        // What turns later does not take back what was decided at its time.
        let mut turned = clear.clone();
        turned.extend(clear.iter().map(|value| -value));
        assert!(log_evidence(&turned, &none, 0.02) >= at(20));
        // Inside the limit nothing is evidence.
        assert_eq!(log_evidence(&clear, &none[..20], 0.5), 0.0);
        let estimate = estimate_sequential(
            &clear,
            &none[..20],
            &Asked { confidence: 0.95, limit: 0.02, multiplicity: 1.0 },
        )
        .unwrap();
        assert_eq!((estimate.method.name(), estimate.n), ("sequential-t", 20));
        assert!((estimate.p_inside.unwrap().ln() + at(20)).abs() < 1e-9);
    }
}
