//! Variance between starts of a server. A process may be faster or slower because of its memory layout,
//! possibly over one transport only. Blocks of one start share this, so they are not independent, and the
//! interval must include it.

use crate::student::{self, Location};

/// Paired log ratios, grouped by server start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grouped {
    mean: f64,
    squared_error: f64,
    degrees: f64,
}

/// Number of starts; `None` if the start of any block is unknown.
#[must_use]
pub fn count(starts: &[Option<u32>]) -> Option<u32> {
    let mut known: Vec<u32> = starts.iter().copied().collect::<Option<_>>()?;
    known.sort_unstable();
    known.dedup();
    (!known.is_empty()).then_some(known.len() as u32)
}

impl Grouped {
    /// One-way analysis of variance with starts as groups. The squared error of the mean is the larger of the
    /// mean square between starts and that of all blocks, ÷ n: differences between processes can widen the
    /// interval, and similar processes never narrow it. The degrees of freedom are between g − 1 for the
    /// starts and n − 1 for the blocks, depending on how much of the mean square between starts is explained
    /// by the blocks within them: (g − 1) + (n − g) · min(1, within ÷ between)⁴. The power is conservative:
    /// without it, the intervals for different starts cover too rarely (docs/method.md).
    ///
    /// `None` if blocks are not grouped: one start, a start for every block, or unknown starts.
    pub(crate) fn of(values: &[f64], starts: &[Option<u32>]) -> Option<Self> {
        let groups = count(starts).filter(|_| starts.len() == values.len())? as usize;
        let n = values.len();
        if groups < 2 || groups == n {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let mut sums = std::collections::BTreeMap::<u32, (f64, f64)>::new();
        for (value, start) in values.iter().zip(starts.iter().flatten()) {
            let (sum, number) = sums.entry(*start).or_default();
            *sum += value;
            *number += 1.0;
        }
        let between: f64 = sums.values().map(|(sum, number)| number * (sum / number - mean).powi(2)).sum();
        let total: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let (starts, blocks) = ((groups - 1) as f64, (n - groups) as f64);
        let (ms_between, ms_within) = (between / starts, (total - between).max(0.0) / blocks);
        let ms_all = total / (n as f64 - 1.0);
        let explained = if ms_between > ms_within { ms_within / ms_between } else { 1.0 };
        Some(Grouped {
            mean,
            squared_error: ms_between.max(ms_all) / n as f64,
            degrees: starts + blocks * explained.powi(4),
        })
    }

    /// Interval and p-value of the mean after subtracting `shift`.
    pub(crate) fn locate(self, shift: f64, confidence: f64) -> Location {
        student::locate(self.mean - shift, self.squared_error, self.degrees, confidence)
    }

    /// Standard error of the mean.
    pub(crate) fn error(self) -> f64 {
        self.squared_error.sqrt()
    }

    pub(crate) fn degrees(self) -> f64 {
        self.degrees
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Two starts of two blocks: 1 3 | 5 7. Mean 4, between 16 with one degree, within 4 with two, in all 20 / 3.
        let starts = [Some(0), Some(0), Some(1), Some(1)];
        let grouped = Grouped::of(&[1.0, 3.0, 5.0, 7.0], &starts).unwrap();
        assert_eq!((grouped.mean, grouped.squared_error), (4.0, 4.0));
        assert!((grouped.degrees - 1.000_488_281_25).abs() < 1e-12, "1 + 2 · (2 ÷ 16)⁴");
        // Similar starts: the error is that of four independent blocks, with three degrees.
        let alike = Grouped::of(&[1.0, 3.0, 3.0, 1.0], &starts).unwrap();
        assert!((alike.squared_error - 1.0 / 3.0).abs() < 1e-12 && alike.degrees == 3.0, "{alike:?}");
    }

    #[test]
    fn blocks_that_are_not_grouped() {
        let grouped = |starts: [Option<u32>; 3]| Grouped::of(&[1.0, 2.0, 3.0], &starts);
        assert_eq!(grouped([Some(0), Some(1), Some(2)]), None, "a start for every block");
        assert_eq!(grouped([Some(4); 3]), None, "one start says nothing of another");
        assert_eq!(grouped([None, Some(1), Some(1)]), None, "an older report");
        assert_eq!(count(&[Some(2), Some(0), Some(2)]), Some(2));
        assert_eq!(count(&[None, Some(0)]), None);
        assert_eq!(count(&[]), None);
    }
}
