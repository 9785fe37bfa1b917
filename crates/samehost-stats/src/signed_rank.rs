//! Paired analysis: Hodges–Lehmann estimate with Wilcoxon's signed-rank interval and test.
//!
//! Does not require a normal distribution, only a symmetric one. The difference of two trials of one block in
//! random order is symmetric. A single outlying block has little influence.

use crate::interval::{Interval, doubled_midranks, median_of_sorted, tie_correction};
use crate::normal;

/// Minimum blocks for signed ranks; fewer are analysed by Student's t. The signed-rank p-value of n blocks is at
/// least 2^(1−n), so with few blocks no data could pass Holm's adjustment. 10 blocks suffice for 25 comparisons.
pub const SIGNED_RANK_FROM: usize = 10;

/// Maximum number of values with an exact null distribution; above, it is approximated as normal.
pub const EXACT_UP_TO: usize = 200;

/// Differences prepared for Wilcoxon's analysis (Wilcoxon 1945; Hollander & Wolfe, ch. 3).
#[derive(Clone, Debug)]
pub struct SignedRank {
    differences: Vec<f64>,
    /// (x_i + x_j) / 2 for i ≤ j, sorted.
    walsh: Vec<f64>,
}

impl SignedRank {
    #[must_use]
    pub fn new(differences: &[f64]) -> Self {
        let n = differences.len();
        let mut walsh = Vec::with_capacity(n * (n + 1) / 2);
        for (i, a) in differences.iter().enumerate() {
            walsh.extend(differences[i..].iter().map(|b| 0.5 * (a + b)));
        }
        walsh.sort_unstable_by(f64::total_cmp);
        SignedRank { differences: differences.to_vec(), walsh }
    }

    /// Whether the null distribution is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.differences.len() <= EXACT_UP_TO
    }

    /// Hodges–Lehmann estimate (1963): the median of the Walsh averages. `None` without values.
    #[must_use]
    pub fn estimate(&self) -> Option<f64> {
        median_of_sorted(&self.walsh)
    }

    /// Tukey's interval (Hollander & Wolfe, sect. 3.3): from the k-th smallest to the k-th largest Walsh
    /// average, with the largest k for which the signed-rank distribution gives at least `confidence`. `None`
    /// if even the full range gives less: below 6 values at 95 %.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let k = rank_for(self.differences.len(), 0.5 * (1.0 - confidence))?;
        let last = self.walsh.len().checked_sub(k)?;
        Some(Interval { low: *self.walsh.get(k - 1)?, high: *self.walsh.get(last)? })
    }

    /// Two-sided p-value of "the location is 0": Wilcoxon (1945), zeros dropped, ties by midranks. Up to
    /// [`EXACT_UP_TO`] values by the exact permutation distribution of those midranks; above, normal with
    /// corrections for ties and continuity. `None` without values; 1 if all are zero.
    #[must_use]
    pub fn p(&self) -> Option<f64> {
        if self.differences.is_empty() {
            return None;
        }
        let nonzero: Vec<f64> = self.differences.iter().copied().filter(|d| *d != 0.0).collect();
        if nonzero.is_empty() {
            return Some(1.0);
        }
        let sizes: Vec<f64> = nonzero.iter().map(|d| d.abs()).collect();
        let ranks = doubled_midranks(&sizes);
        let positive: usize =
            ranks.iter().zip(&nonzero).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
        let all: usize = ranks.iter().sum();
        let smaller = positive.min(all - positive);
        let tail = if nonzero.len() <= EXACT_UP_TO {
            null_distribution(&ranks, smaller).iter().sum::<f64>()
        } else {
            normal_tail(smaller, &ranks)
        };
        Some((2.0 * tail).min(1.0))
    }
}

/// P(S = s) for every s up to `limit`, where S is the sum of a random subset of `ranks`: each is included with
/// probability ½. Dynamic programming; halving at each step avoids overflow for any n. A sum needs only those before it.
fn null_distribution(ranks: &[usize], limit: usize) -> Vec<f64> {
    let mut probability = vec![0.0; limit + 1];
    probability[0] = 1.0;
    let mut reached = 0;
    for &rank in ranks {
        reached = limit.min(reached + rank);
        for s in (0..=reached).rev() {
            let without = probability[s];
            let with = if s >= rank { probability[s - rank] } else { 0.0 };
            probability[s] = 0.5 * (without + with);
        }
    }
    probability
}

/// P(S ≤ smaller) by the normal distribution, for doubled ranks.
fn normal_tail(smaller: usize, ranks: &[usize]) -> f64 {
    let n = ranks.len() as f64;
    let mean = n * (n + 1.0) / 4.0;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tie_correction(ranks) / 48.0;
    let distance = (mean - 0.5 * smaller as f64 - 0.5).max(0.0);
    normal::upper_tail(distance / variance.sqrt())
}

/// The largest k with P(T ≤ k − 1) ≤ `tail` for the signed-rank statistic T of `n` untied values.
fn rank_for(n: usize, tail: f64) -> Option<usize> {
    if n > EXACT_UP_TO {
        let n = n as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let k = (n * (n + 1.0) / 4.0 + normal::quantile(tail) * deviation).floor();
        return if k >= 1.0 { Some(k as usize) } else { None };
    }
    let ranks: Vec<usize> = (1..=n).collect();
    let mut below = 0.0;
    // A tail is less than half.
    let within = null_distribution(&ranks, n * (n + 1) / 4)
        .iter()
        .take_while(|&&probability| {
            below += probability;
            below <= tail
        })
        .count();
    (n > 0 && within > 0).then_some(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hollander & Wolfe, table 3.1 (Hamilton depression scale); R's `example(wilcox.test)`.
    #[allow(clippy::approx_constant)]
    const DEPRESSION: [(f64, f64); 9] = [
        (1.83, 0.878),
        (0.50, 0.647),
        (1.62, 0.598),
        (2.48, 2.05),
        (1.68, 1.06),
        (1.88, 1.29),
        (1.55, 1.06),
        (3.06, 3.14),
        (1.30, 1.29),
    ];

    fn depression() -> SignedRank {
        SignedRank::new(&DEPRESSION.map(|(before, after)| after - before))
    }

    #[test]
    fn hollander_and_wolfe_example_3_1() {
        // T+ = 5, two-sided p = 0.0390625 (20/512); estimate -0.46; 96.1 % interval -0.786 … -0.010.
        let depression = depression();
        assert!((depression.p().unwrap() - 0.039_062_5).abs() < 1e-15);
        assert!((depression.estimate().unwrap() + 0.46).abs() < 1e-12);
        let interval = depression.interval(0.95).unwrap();
        assert!((interval.low + 0.786).abs() < 1e-12, "{interval:?}");
        assert!((interval.high + 0.010).abs() < 1e-12, "{interval:?}");
    }

    #[test]
    fn ranks_as_in_the_tables() {
        // Lower critical values of T, two-sided (Wilcoxon & Wilcox 1964): k − 1 of our k.
        for (n, alpha, critical) in [
            (6, 0.05, 0),
            (7, 0.05, 2),
            (8, 0.05, 3),
            (9, 0.05, 5),
            (10, 0.05, 8),
            (10, 0.10, 10),
            (10, 0.01, 3),
            (12, 0.05, 13),
            (15, 0.05, 25),
            (20, 0.05, 52),
            (20, 0.01, 37),
            (25, 0.05, 89),
            (30, 0.05, 137),
            (40, 0.05, 264),
            (50, 0.05, 434),
        ] {
            assert_eq!(rank_for(n, 0.5 * alpha), Some(critical + 1), "n {n}, alpha {alpha}");
        }
        assert_eq!(rank_for(5, 0.025), None);
        assert_eq!(rank_for(5, 0.05), Some(1));
        assert_eq!(rank_for(0, 0.5), None);
    }

    #[test]
    fn smallest_p_is_one_over_all_signs() {
        let rising: Vec<f64> = (1..=10).map(f64::from).collect();
        assert!((SignedRank::new(&rising).p().unwrap() - 2.0_f64.powi(-9)).abs() < 1e-15);
    }

    #[test]
    fn ties_and_zeros_by_hand() {
        // Ranks 1.5 1.5 3 4, the last negative: of 16 sign patterns, those with a rank sum ≤ 4 of the smaller
        // side are {}, {1.5}, {1.5}, {3}, {1.5 1.5}, {4}: 6/16, doubled 0.75.
        let tied = SignedRank::new(&[1.0, 1.0, 2.0, -3.0]);
        assert!((tied.p().unwrap() - 0.75).abs() < 1e-15);
        let with_zeros = SignedRank::new(&[0.0, 1.0, 1.0, 0.0, 2.0, -3.0]);
        assert_eq!(with_zeros.p(), tied.p());
        assert_eq!(SignedRank::new(&[0.0, 0.0]).p(), Some(1.0));
        assert_eq!(SignedRank::new(&[]).p(), None);
        assert_eq!(SignedRank::new(&[]).estimate(), None);
    }

    #[test]
    fn normal_meets_exact_at_the_border() {
        let wave = |n: u32| -> Vec<f64> { (0..n).map(|i| (f64::from(i) * 0.7).sin() + 0.1).collect() };
        let (exact, approximate) = (SignedRank::new(&wave(200)), SignedRank::new(&wave(201)));
        assert!(exact.is_exact() && !approximate.is_exact());
        assert!((exact.p().unwrap() - approximate.p().unwrap()).abs() < 0.02);
        let (a, b) = (exact.interval(0.95).unwrap(), approximate.interval(0.95).unwrap());
        assert!((a.low - b.low).abs() < 0.01 && (a.high - b.high).abs() < 0.01);
        let ranks: Vec<usize> = (1..=200).map(|rank| 2 * rank).collect();
        let counted: f64 = null_distribution(&ranks, 17_000).iter().sum();
        assert!((counted / normal_tail(17_000, &ranks) - 1.0).abs() < 0.01);
    }
}
