//! Intervals, medians and ranks.

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    #[must_use]
    pub fn half_width(self) -> f64 {
        0.5 * (self.high - self.low)
    }

    /// Converts from logarithms to ratios.
    #[must_use]
    pub fn exp(self) -> Interval {
        Interval { low: self.low.exp(), high: self.high.exp() }
    }
}

/// Median; the mean of the middle two for an even number of values. `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

pub(crate) fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let n = sorted.len();
    if n == 0 {
        None
    } else if n % 2 == 1 {
        Some(sorted[n / 2])
    } else {
        Some(0.5 * (sorted[n / 2 - 1] + sorted[n / 2]))
    }
}

/// Twice the midrank of each value, with ranks from 1. Doubling makes the midranks of ties integers.
pub(crate) fn doubled_midranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let tied = order[from..].iter().take_while(|&&i| values[i] == values[order[from]]).count().max(1);
        for &i in &order[from..from + tied] {
            ranks[i] = 2 * from + tied + 1;
        }
        from += tied;
    }
    ranks
}

/// Σ(t³ − t) over groups of ties, a correction for the variance of normal approximations.
pub(crate) fn tie_correction(doubled_ranks: &[usize]) -> f64 {
    let mut sorted = doubled_ranks.to_vec();
    sorted.sort_unstable();
    let mut sum = 0.0;
    for group in sorted.chunk_by(|a, b| a == b) {
        let t = group.len() as f64;
        sum += t * t * t - t;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_midranks() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(doubled_midranks(&[5.0, 1.0, 5.0, 9.0]), [5, 2, 5, 8]);
        assert_eq!(doubled_midranks(&[2.0, 2.0, 2.0]), [4, 4, 4]);
        assert_eq!(tie_correction(&[5, 2, 5, 8]), 6.0);
    }
}
