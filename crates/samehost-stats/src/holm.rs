//! Holm's adjustment for multiple comparisons, used for every family of verdicts: it needs no assumption about how the
//! comparisons depend on one another (docs/method.md §4).

/// Holm's step-down adjustment (Holm 1979). Under any dependence, the probability that any true null
/// hypothesis gets an adjusted p-value below α is at most α. Returned in the order of the input.
#[must_use]
pub fn adjust(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, &i) in order.iter().enumerate() {
        largest = largest.max(p_values[i] * (p_values.len() - rank) as f64).min(1.0);
        adjusted[i] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_r_p_adjust() {
        // p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02.
        let adjusted = adjust(&[0.01, 0.04, 0.03, 0.005]);
        for (found, wanted) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - wanted).abs() < 1e-15, "{adjusted:?}");
        }
        assert_eq!(adjust(&[0.7, 0.8]), [1.0, 1.0]);
        assert!(adjust(&[]).is_empty());
    }
}
