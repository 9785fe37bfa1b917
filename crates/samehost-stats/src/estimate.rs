//! From log ratios to a ratio with its interval, and which method made it.

use std::fmt;

use crate::signed_rank::SignedRank;
use crate::two_sample::RankSum;
use crate::{Interval, student};

/// Fewer blocks than this are analysed by Student's t. The signed-rank p-value of n blocks is never below 2^(1−n), so
/// that with few blocks no data whatever could pass Holm's adjustment; from 10 blocks on 25 comparisons can.
pub const SIGNED_RANK_FROM: usize = 10;

/// How an interval was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Exact Wilcoxon signed-rank interval of paired blocks.
    SignedRank,
    /// The same, its null distribution taken as normal.
    SignedRankNormal,
    /// Student's t on the log ratios.
    StudentT,
    /// Exact Mann–Whitney interval of two unpaired samples.
    MannWhitney,
    /// The same, its null distribution taken as normal.
    MannWhitneyNormal,
    /// Welch's t on the logarithms of two unpaired samples.
    WelchT,
}

impl Method {
    /// The name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::SignedRank => "signed-rank",
            Method::SignedRankNormal => "signed-rank-normal",
            Method::StudentT => "student-t",
            Method::MannWhitney => "mann-whitney",
            Method::MannWhitneyNormal => "mann-whitney-normal",
            Method::WelchT => "welch-t",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Candidate ÷ baseline.
    pub ratio: f64,
    /// Its interval, at the confidence asked for or a little more; absent with fewer than two values.
    pub interval: Option<Interval>,
    /// The interval at 1 − 2α (90 % for 95 %), which two one-sided tests look at.
    pub narrow: Option<Interval>,
    /// Two-sided p-value of "the ratio is 1", not yet adjusted.
    pub p: Option<f64>,
    /// How the interval was made.
    pub method: Method,
    /// Values it rests on: blocks, or the smaller of two samples.
    pub n: u32,
}

impl Estimate {
    /// Half of the interval's width on the log scale.
    #[must_use]
    pub fn log_half_width(&self) -> Option<f64> {
        self.interval.map(|interval| 0.5 * (interval.high / interval.low).ln())
    }
}

/// The confidence of the interval that two one-sided tests at α = 1 − `confidence` look at (Schuirmann 1987).
fn narrow(confidence: f64) -> f64 {
    2.0 * confidence - 1.0
}

/// The ratio behind paired log ratios, one a block: Hodges–Lehmann with the exact signed-rank interval from
/// [`SIGNED_RANK_FROM`] blocks on, the mean with Student's t below that or where no signed-rank interval has that `confidence`.
/// Absent for no values.
#[must_use]
pub fn estimate(log_ratios: &[f64], confidence: f64) -> Option<Estimate> {
    let n = log_ratios.len() as u32;
    if log_ratios.len() >= SIGNED_RANK_FROM {
        let ranks = SignedRank::new(log_ratios);
        if let (Some(middle), Some(interval)) = (ranks.estimate(), ranks.interval(confidence)) {
            return Some(Estimate {
                ratio: middle.exp(),
                interval: Some(interval.exp()),
                narrow: ranks.interval(narrow(confidence)).map(Interval::exp),
                p: ranks.p(),
                method: if ranks.is_exact() { Method::SignedRank } else { Method::SignedRankNormal },
                n,
            });
        }
    }
    let located = student::locate_mean(log_ratios, confidence);
    Some(Estimate {
        ratio: located.map_or(*log_ratios.first()?, |located| located.estimate).exp(),
        interval: located.map(|located| located.interval.exp()),
        narrow: student::locate_mean(log_ratios, narrow(confidence)).map(|located| located.interval.exp()),
        p: located.map(|located| located.p),
        method: Method::StudentT,
        n,
    })
}

/// The ratio second ÷ first of two unpaired samples of logarithms: Hodges–Lehmann's shift with Mann &
/// Whitney's interval, or Welch's t where the samples are too small for that `confidence`. Absent where a
/// side is empty.
#[must_use]
pub fn estimate_shift(first: &[f64], second: &[f64], confidence: f64) -> Option<Estimate> {
    let n = first.len().min(second.len()) as u32;
    let ranks = RankSum::new(first, second);
    let shift = ranks.estimate()?;
    if let Some(interval) = ranks.interval(confidence) {
        return Some(Estimate {
            ratio: shift.exp(),
            interval: Some(interval.exp()),
            narrow: ranks.interval(narrow(confidence)).map(Interval::exp),
            p: ranks.p(),
            method: if ranks.is_exact() { Method::MannWhitney } else { Method::MannWhitneyNormal },
            n,
        });
    }
    let located = student::locate_shift(first, second, confidence);
    Some(Estimate {
        ratio: located.map_or(shift, |located| located.estimate).exp(),
        interval: located.map(|located| located.interval.exp()),
        narrow: student::locate_shift(first, second, narrow(confidence))
            .map(|located| located.interval.exp()),
        p: located.map(|located| located.p),
        method: Method::WelchT,
        n,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_follows_the_number_of_blocks() {
        assert_eq!(estimate(&[], 0.95), None);
        let one = estimate(&[0.1], 0.95).unwrap();
        assert_eq!((one.interval, one.p), (None, None));
        assert!((one.ratio - 0.1_f64.exp()).abs() < 1e-15);
        let five = estimate(&[0.1, 0.12, 0.08, 0.11, 0.09], 0.95).unwrap();
        assert_eq!(five.method, Method::StudentT);
        let nine: Vec<f64> = (0..9).map(|i| 0.1 + f64::from(i) / 100.0).collect();
        assert_eq!(estimate(&nine, 0.95).unwrap().method, Method::StudentT);
        let ten: Vec<f64> = (0..10).map(|i| 0.1 + f64::from(i) / 100.0).collect();
        let ten_blocks = estimate(&ten, 0.95).unwrap();
        assert_eq!(ten_blocks.method, Method::SignedRank);
        let (interval, narrow) = (ten_blocks.interval.unwrap(), ten_blocks.narrow.unwrap());
        // k is 9: the ninth smallest Walsh average of 0.10, 0.11, …, 0.19 is 0.12.
        assert!((interval.low.ln() - 0.12).abs() < 1e-12 && (interval.high.ln() - 0.17).abs() < 1e-12);
        assert!(narrow.low >= interval.low && narrow.high <= interval.high);
        // At 99.9 % ten blocks are too few for the signed-rank interval.
        assert_eq!(estimate(&ten, 0.999).unwrap().method, Method::StudentT);
    }

    #[test]
    fn shift_falls_back_to_welch() {
        let small = estimate_shift(&[0.0, 0.1, 0.2], &[1.0, 1.1, 1.2], 0.95).unwrap();
        assert_eq!(small.method, Method::WelchT);
        assert!((small.ratio.ln() - 1.0).abs() < 1e-12);
        let enough = estimate_shift(&[0.0, 0.1, 0.2, 0.3], &[1.0, 1.1, 1.2, 1.3], 0.95).unwrap();
        assert_eq!(enough.method, Method::MannWhitney);
        assert_eq!(estimate_shift(&[], &[1.0], 0.95), None);
        assert_eq!(estimate_shift(&[0.0], &[1.0], 0.95).unwrap().interval, None);
    }
}
