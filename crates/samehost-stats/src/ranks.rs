//! Analysis by ranks: of pairs, the Hodges–Lehmann estimate with Wilcoxon's signed-rank interval and test; of two samples
//! without pairs, as in two reports, the Hodges–Lehmann shift and the Mann–Whitney test.
//!
//! The former does not require a normal distribution, only a symmetric one. The difference of two trials of one block in
//! random order is symmetric. A single outlying block has little influence.

use crate::distributions;
use crate::interval::{Interval, doubled_midranks, median_of_sorted, tie_correction};

/// Minimum blocks for signed ranks; fewer are analysed by Student's t.
/// The smallest signed-rank p-value of n blocks is 2^(1−n). With 6 blocks no data whatever could decide
/// one of two comparisons, nor with 7 one of four. Ten suffice for up to 25 after Holm's adjustment.
/// Student's t assumes normal noise, so its results are labelled and carry a warning. In the simulation
/// it covered 94.6 to 95.5 % with 2, 5 and 8 blocks, normal and heavy-tailed (docs/method.md §2).
pub const SIGNED_RANK_FROM: usize = 10;

/// Maximum number of values with an exact null distribution; above, it is approximated as normal.
const EXACT_UP_TO: usize = 200;

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
    distributions::normal_upper_tail(distance / variance.sqrt())
}

/// The largest k with P(T ≤ k − 1) ≤ `tail` for the signed-rank statistic T of `n` untied values.
fn rank_for(n: usize, tail: f64) -> Option<usize> {
    if n > EXACT_UP_TO {
        let n = n as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let k = (n * (n + 1.0) / 4.0 + distributions::normal_quantile(tail) * deviation).floor();
        return if k >= 1.0 { Some(k as usize) } else { None };
    }
    let ranks: Vec<usize> = (1..=n).collect();
    // A tail is less than half.
    within(null_distribution(&ranks, n * (n + 1) / 4).into_iter(), tail)
}

/// How many of these probabilities, from the first on, are at most `tail` together; `None` if the first is more.
fn within(probabilities: impl Iterator<Item = f64>, tail: f64) -> Option<usize> {
    let (mut below, mut within) = (0.0, 0);
    for probability in probabilities {
        below += probability;
        if below > tail {
            break;
        }
        within += 1;
    }
    if within > 0 { Some(within) } else { None }
}

/// Maximum number of values per sample with an exact null distribution; above, it is approximated as normal.
const EXACT_SAMPLES: usize = 50;

/// Two samples prepared for the Mann–Whitney analysis (1947; Wilcoxon 1945; Hollander & Wolfe, ch. 4).
#[derive(Clone, Debug)]
pub(crate) struct RankSum {
    first: Vec<f64>,
    second: Vec<f64>,
    /// All differences second − first, sorted.
    differences: Vec<f64>,
}

impl RankSum {
    pub fn new(first: &[f64], second: &[f64]) -> Self {
        let mut differences: Vec<f64> =
            second.iter().flat_map(|b| first.iter().map(move |a| b - a)).collect();
        differences.sort_unstable_by(f64::total_cmp);
        RankSum { first: first.to_vec(), second: second.to_vec(), differences }
    }

    pub fn is_exact(&self) -> bool {
        self.first.len().max(self.second.len()) <= EXACT_SAMPLES
    }

    /// Hodges–Lehmann shift (1963): the median of all differences. `None` if a sample is empty.
    pub fn estimate(&self) -> Option<f64> {
        median_of_sorted(&self.differences)
    }

    /// Moses' interval (Hollander & Wolfe, sect. 4.3): from the k-th smallest to the k-th largest difference,
    /// with the largest k for which the distribution of U gives at least `confidence`. `None` if even the
    /// full range gives less: three against three at 95 %.
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let k = self.rank_for(0.5 * (1.0 - confidence))?;
        let last = self.differences.len().checked_sub(k)?;
        Some(Interval { low: *self.differences.get(k - 1)?, high: *self.differences.get(last)? })
    }

    fn rank_for(&self, tail: f64) -> Option<usize> {
        let (m, n) = (self.first.len(), self.second.len());
        if m == 0 || n == 0 {
            return None;
        }
        if !self.is_exact() {
            let (m, n) = (m as f64, n as f64);
            let deviation = (m * n * (m + n + 1.0) / 12.0).sqrt();
            let k = (0.5 * m * n + distributions::normal_quantile(tail) * deviation).floor();
            return if k >= 1.0 { Some(k as usize) } else { None };
        }
        let all = arrangements(m, n);
        // A tail is less than half.
        within(u_counts(m, n, m * n / 2).into_iter().map(|count| count / all), tail)
    }

    /// Two-sided p-value of "no shift". Up to [`EXACT_SAMPLES`] values per sample it is exact, with ties by the
    /// exact permutation distribution of the midranks; above, normal with corrections for ties and
    /// continuity. `None` if a sample is empty.
    pub fn p(&self) -> Option<f64> {
        let (m, n) = (self.first.len(), self.second.len());
        if m == 0 || n == 0 {
            return None;
        }
        let pooled: Vec<f64> = self.first.iter().chain(&self.second).copied().collect();
        let ranks = doubled_midranks(&pooled);
        let least = n * (n + 1);
        let doubled_u = ranks[m..].iter().sum::<usize>() - least;
        let smaller = doubled_u.min(2 * m * n - doubled_u);
        let ties = tie_correction(&ranks);
        let tail = match (self.is_exact(), ties == 0.0) {
            (true, true) => u_counts(m, n, smaller / 2).iter().sum::<f64>() / arrangements(m, n),
            (true, false) => permutation_tail(&ranks, n, smaller + least),
            (false, _) => {
                let (m, n) = (m as f64, n as f64);
                let all = m + n;
                let variance = m * n / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
                let distance = (0.5 * m * n - 0.5 * smaller as f64 - 0.5).max(0.0);
                if variance > 0.0 {
                    distributions::normal_upper_tail(distance / variance.sqrt())
                } else {
                    0.5
                }
            }
        };
        Some((2.0 * tail).min(1.0))
    }
}

/// Number of arrangements of m and n untied values with U = u, for every u up to `limit`: the coefficients of the
/// Gaussian binomial [m+n choose m] (Mann & Whitney 1947), counted exactly in integers. A coefficient needs only those before it.
fn u_counts(m: usize, n: usize, limit: usize) -> Vec<f64> {
    let mut counts = vec![0_i128; limit + 1];
    counts[0] = 1;
    for i in 1..=m {
        for u in (n + i..=limit).rev() {
            counts[u] -= counts[u - n - i];
        }
        for u in i..=limit {
            counts[u] += counts[u - i];
        }
    }
    counts.into_iter().map(|count| count as f64).collect()
}

/// Number of all arrangements of m and n values: m+n choose m.
fn arrangements(m: usize, n: usize) -> f64 {
    (1..=m).fold(1.0, |c, i| c * (n + i) as f64 / i as f64)
}

/// P(sum ≤ limit) of a random choice of `size` out of `ranks` (with ties), by dynamic programming over the
/// number chosen and their sum.
fn permutation_tail(ranks: &[usize], size: usize, limit: usize) -> f64 {
    let mut ways = vec![vec![0.0_f64; limit + 1]; size + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for chosen in (1..=size).rev() {
            let (before, after) = ways.split_at_mut(chosen);
            for sum in rank..=limit {
                after[0][sum] += before[chosen - 1][sum - rank];
            }
        }
    }
    ways[size].iter().sum::<f64>() / arrangements(size, ranks.len() - size)
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
        fn wave(n: u32) -> Vec<f64> {
            (0..n).map(|i| (f64::from(i) * 0.7).sin() + 0.1).collect()
        }
        let (exact, approximate) = (SignedRank::new(&wave(200)), SignedRank::new(&wave(201)));
        assert!(exact.is_exact() && !approximate.is_exact());
        assert!((exact.p().unwrap() - approximate.p().unwrap()).abs() < 0.02);
        let (a, b) = (exact.interval(0.95).unwrap(), approximate.interval(0.95).unwrap());
        assert!((a.low - b.low).abs() < 0.01 && (a.high - b.high).abs() < 0.01);
        let ranks: Vec<usize> = (1..=200).map(|rank| 2 * rank).collect();
        let counted: f64 = null_distribution(&ranks, 17_000).iter().sum();
        assert!((counted / normal_tail(17_000, &ranks) - 1.0).abs() < 0.01);
    }

    /// Hollander & Wolfe, table 4.1 (permeability of the amnion); R's `example(wilcox.test)`.
    const AT_TERM: [f64; 10] = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
    const EARLY: [f64; 5] = [1.15, 0.88, 0.90, 0.74, 1.21];

    #[test]
    fn hollander_and_wolfe_example_4_1() {
        // W = 35, one-sided p = 0.1272 (382/3003), two-sided 0.2544; shift 0.305, 95 % interval -0.15 … 0.76.
        let permeability = RankSum::new(&EARLY, &AT_TERM);
        assert!((permeability.p().unwrap() - 764.0 / 3003.0).abs() < 1e-12);
        assert!((permeability.estimate().unwrap() - 0.305).abs() < 1e-12);
        let interval = permeability.interval(0.95).unwrap();
        assert!((interval.low + 0.15).abs() < 1e-12, "{interval:?}");
        assert!((interval.high - 0.76).abs() < 1e-12, "{interval:?}");
    }

    #[test]
    fn critical_values_as_in_the_tables() {
        // Two-sided 5 % critical values of U (Mann & Whitney tables): k − 1 of our k.
        for (m, n, critical) in [
            (4, 4, 0),
            (5, 5, 2),
            (6, 6, 5),
            (8, 8, 13),
            (10, 10, 23),
            (5, 10, 8),
            (15, 15, 64),
            (20, 20, 127),
        ] {
            let made = RankSum::new(&vec![0.0; m], &vec![1.0; n]);
            assert_eq!(made.rank_for(0.025), Some(critical + 1), "{m} {n}");
        }
        assert_eq!(RankSum::new(&[1.0; 3], &[2.0; 3]).interval(0.95), None);
    }

    #[test]
    fn counts_are_all_arrangements() {
        let all: f64 = u_counts(50, 50, 2500).iter().sum();
        assert!((all / 1.008_913_445_455_641_9e29 - 1.0).abs() < 1e-12, "{all}");
        assert!((all / arrangements(50, 50) - 1.0).abs() < 1e-12);
        assert_eq!(u_counts(2, 2, 4), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(u_counts(2, 2, 2), [1.0, 1.0, 2.0]);
    }

    #[test]
    fn ties_by_hand() {
        // 1 2 against 2 3: midranks 1 2.5 | 2.5 4. Six choices of two; sums 3.5 3.5 5 5 6.5 6.5; ours 6.5.
        let tied = RankSum::new(&[1.0, 2.0], &[2.0, 3.0]);
        assert!((tied.p().unwrap() - 4.0 / 6.0).abs() < 1e-12);
        assert_eq!(RankSum::new(&[1.0; 4], &[1.0; 4]).p(), Some(1.0));
        // Without ties both exact methods agree.
        let ranks: Vec<usize> = (1..=15).map(|rank| 2 * rank).collect();
        let counted: f64 = u_counts(5, 10, 15).iter().sum::<f64>() / 3003.0;
        assert!((permutation_tail(&ranks, 10, 110 + 30) - counted).abs() < 1e-12);
    }

    #[test]
    fn normal_meets_exact_for_two_samples() {
        let wave =
            |n: u32, by: f64| -> Vec<f64> { (0..n).map(|i| (f64::from(i) * 0.7).sin() + by).collect() };
        let exact = RankSum::new(&wave(50, 0.0), &wave(50, 0.25));
        let approximate = RankSum::new(&wave(51, 0.0), &wave(50, 0.25));
        assert!(exact.is_exact() && !approximate.is_exact());
        assert!((exact.p().unwrap() - approximate.p().unwrap()).abs() < 0.02);
        let (a, b) = (exact.interval(0.95).unwrap(), approximate.interval(0.95).unwrap());
        assert!((a.low - b.low).abs() < 0.03 && (a.high - b.high).abs() < 0.03, "{a:?} {b:?}");
    }
}
