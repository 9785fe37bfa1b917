//! Estimates a ratio with its interval from log ratios, and names the method used. Blocks of one start of a server are
//! grouped: a process may be faster or slower because of its memory layout, possibly over one transport only. Blocks of
//! one start share this, so they are not independent, and the interval must include it.

use crate::distributions::{self, Location};
use crate::interval::Interval;
use crate::ranks::{RankSum, SIGNED_RANK_FROM, SignedRank};
use crate::stopping::min_blocks_for;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Exact Wilcoxon signed-rank interval of paired blocks.
    SignedRank,
    /// Wilcoxon signed-rank interval with a normal null distribution.
    SignedRankNormal,
    /// Student's t on the log ratios.
    StudentT,
    /// Student's t with a variance component for starts of the server.
    StartsT,
    /// Interval of a sequential test, evaluated at a few numbers of blocks.
    SequentialT,
    /// Exact Mann–Whitney interval of two unpaired samples.
    MannWhitney,
    /// Mann–Whitney interval with a normal null distribution.
    MannWhitneyNormal,
    /// Welch's t on the logarithms of two unpaired samples.
    WelchT,
}

impl Method {
    /// Name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::SignedRank => "signed-rank",
            Method::SignedRankNormal => "signed-rank-normal",
            Method::StudentT => "student-t",
            Method::StartsT => "starts-t",
            Method::SequentialT => "sequential-t",
            Method::MannWhitney => "mann-whitney",
            Method::MannWhitneyNormal => "mann-whitney-normal",
            Method::WelchT => "welch-t",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Candidate ÷ baseline.
    pub ratio: f64,
    /// Interval with at least the requested confidence; `None` with fewer than two values.
    pub interval: Option<Interval>,
    /// Interval at 1 − 2α (90 % for 95 %), for two one-sided tests.
    pub narrow: Option<Interval>,
    /// Two-sided p-value of "the ratio is 1", unadjusted.
    pub p: Option<f64>,
    /// Two-sided p-value of "the ratio is inside ±limit"; `None` without a limit.
    pub p_inside: Option<f64>,
    pub method: Method,
    /// Number of values: blocks, or the size of the smaller sample.
    pub n: u32,
}

impl Estimate {
    /// Half of the interval's width on the log scale.
    #[must_use]
    pub fn log_half_width(&self) -> Option<f64> {
        self.interval.map(|interval| 0.5 * (interval.high / interval.low).ln())
    }

    /// Of a location on the log scale by one of Student's methods, at the confidence asked for and at that of the narrow
    /// interval; `only` is the estimate without one.
    fn by_t(only: f64, [located, narrow]: [Option<Location>; 2], method: Method, n: u32) -> Estimate {
        Estimate {
            ratio: located.map_or(only, |located| located.estimate).exp(),
            interval: located.map(|located| located.interval.exp()),
            narrow: narrow.map(|located| located.interval.exp()),
            p: located.map(|located| located.p),
            p_inside: None,
            method,
            n,
        }
    }

    /// Adds the p-value of "inside the limit", from the estimate of the values shifted towards 0 by the limit. The
    /// p-value is 1 if the shifted estimate is on the other side.
    #[must_use]
    pub fn with_shifted(self, side: f64, moved: Option<Estimate>) -> Estimate {
        let p_inside = match (self.p, moved) {
            (Some(_), Some(moved)) if side * moved.ratio.ln() > 0.0 => moved.p,
            (Some(_), Some(_)) => Some(1.0),
            _ => None,
        };
        Estimate { p_inside, ..self }
    }
}

/// Confidence of the interval for two one-sided tests at α = 1 − `confidence` (Schuirmann 1987).
fn narrow(confidence: f64) -> f64 {
    2.0 * confidence - 1.0
}

/// Ratio from paired log ratios, one per block: Hodges–Lehmann with the exact signed-rank interval from
/// [`SIGNED_RANK_FROM`] blocks on; the mean with Student's t for fewer blocks, or if no signed-rank interval
/// has that `confidence`. `None` without values.
#[must_use]
pub fn estimate(log_ratios: &[f64], confidence: f64) -> Option<Estimate> {
    estimate_from(log_ratios, confidence, SIGNED_RANK_FROM)
}

/// Like [`estimate`], with signed ranks from `signed_rank_from` blocks on.
fn estimate_from(log_ratios: &[f64], confidence: f64, signed_rank_from: usize) -> Option<Estimate> {
    let n = log_ratios.len() as u32;
    if log_ratios.len() >= signed_rank_from {
        let ranks = SignedRank::new(log_ratios);
        if let (Some(middle), Some(interval)) = (ranks.estimate(), ranks.interval(confidence)) {
            return Some(Estimate {
                ratio: middle.exp(),
                interval: Some(interval.exp()),
                narrow: ranks.interval(narrow(confidence)).map(Interval::exp),
                p: ranks.p(),
                p_inside: None,
                method: if ranks.is_exact() { Method::SignedRank } else { Method::SignedRankNormal },
                n,
            });
        }
    }
    let located = [confidence, narrow(confidence)].map(|level| distributions::locate_mean(log_ratios, level));
    Some(Estimate::by_t(*log_ratios.first()?, located, Method::StudentT, n))
}

/// Parameters of an estimate from paired log ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    pub confidence: f64,
    /// Limit that a difference must exceed, as a natural logarithm.
    pub limit: f64,
    /// Maximum factor by which the adjustment multiplies a p-value. Signed ranks have a smallest possible
    /// p-value, so a larger factor requires more blocks; with fewer blocks Student's t is used.
    pub multiplicity: f64,
}

impl Asked {
    /// Signed ranks from as many blocks on as can decide after the adjustment.
    fn estimate(&self, log_ratios: &[f64]) -> Option<Estimate> {
        let from = min_blocks_for(self.multiplicity.ceil() as u32) as usize;
        estimate_from(log_ratios, self.confidence, from)
    }
}

/// Ratio from paired log ratios with the server starts of their blocks. Includes the p-value of "the ratio is
/// inside ±limit": that of the values shifted by the limit towards 0, from the side of the estimate. If
/// several blocks share a start, the interval includes the variance between starts.
#[must_use]
pub fn estimate_pairs(log_ratios: &[f64], starts: &[Option<u32>], asked: &Asked) -> Option<Estimate> {
    let Asked { confidence, limit, .. } = *asked;
    let Some(grouped) = Grouped::of(log_ratios, starts) else {
        let plain = asked.estimate(log_ratios)?;
        let side = side_of(&plain);
        let moved: Vec<f64> = log_ratios.iter().map(|value| value - side * limit).collect();
        return Some(plain.with_shifted(side, asked.estimate(&moved)));
    };
    let n = log_ratios.len() as u32;
    let located = [confidence, narrow(confidence)].map(|level| Some(grouped.locate(0.0, level)));
    let found = Estimate::by_t(0.0, located, Method::StartsT, n);
    let side = side_of(&found);
    let moved = [Some(grouped.locate(side * limit, confidence)), None];
    Some(found.with_shifted(side, Some(Estimate::by_t(0.0, moved, Method::StartsT, n))))
}

/// 1 if the ratio is at least 1, else −1.
#[must_use]
pub fn side_of(estimate: &Estimate) -> f64 {
    if estimate.ratio < 1.0 { -1.0 } else { 1.0 }
}

/// Ratio second ÷ first of two unpaired samples of logarithms: Hodges–Lehmann shift with the Mann–Whitney
/// interval, or Welch's t if the samples are too small for that `confidence`. `None` if a sample is empty.
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
            p_inside: None,
            method: if ranks.is_exact() { Method::MannWhitney } else { Method::MannWhitneyNormal },
            n,
        });
    }
    let levels = [confidence, narrow(confidence)];
    let located = levels.map(|level| distributions::locate_shift(first, second, level));
    Some(Estimate::by_t(shift, located, Method::WelchT, n))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grouped {
    mean: f64,
    pub(crate) squared_error: f64,
    pub(crate) degrees: f64,
}

/// Number of starts; `None` if the start of any block is unknown.
#[must_use]
pub fn count_starts(starts: &[Option<u32>]) -> Option<u32> {
    let mut known: Vec<u32> = starts.iter().copied().collect::<Option<_>>()?;
    known.sort_unstable();
    known.dedup();
    (!known.is_empty()).then_some(known.len() as u32)
}

impl Grouped {
    /// One-way analysis of variance with server starts as groups; `None` for one start, a start for every
    /// block, or unknown starts. A process may be lucky with its memory layout over one transport only,
    /// and blocks of one start share that luck. The squared error of the mean is the larger of the mean
    /// square between starts and that of all blocks, ÷ n, so that differences between processes widen the
    /// interval and similar processes never narrow it. The degrees of freedom are (g − 1) + (n − g) ·
    /// min(1, within ÷ between)⁴ for g starts (Satterthwaite 1946). In simulation the worst coverage, of
    /// four starts, falls from 93.5 % to 91.5 % with a square in place of the fourth power, and to 90 %
    /// without one; with an eighth power nothing changes (docs/method.md §6).
    pub(crate) fn of(values: &[f64], starts: &[Option<u32>]) -> Option<Self> {
        let groups = count_starts(starts).filter(|_| starts.len() == values.len())? as usize;
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

    pub(crate) fn locate(self, shift: f64, confidence: f64) -> Location {
        distributions::locate(self.mean - shift, self.squared_error, self.degrees, confidence)
    }
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
    fn inside_the_limit_is_a_test_of_what_is_beyond_it() {
        fn asked(limit: f64) -> Asked {
            Asked { confidence: 0.95, limit, multiplicity: 1.0 }
        }
        let values: Vec<f64> = (0..12).map(|i| 0.1 + f64::from(i) / 100.0).collect();
        let estimated = |limit: f64| estimate_pairs(&values, &[None; 12], &asked(limit)).unwrap();
        assert_eq!(estimated(0.0).p_inside, estimated(0.0).p);
        // The interval starts at about 0.12: a limit inside it cannot be rejected, a smaller one can.
        assert!(estimated(0.05).p_inside.unwrap() < 0.001 && estimated(0.15).p_inside.unwrap() > 0.5);
        assert_eq!(estimated(0.3).p_inside, Some(1.0), "the estimate itself lies inside");
        let less: Vec<f64> = values.iter().map(|value| -value).collect();
        let mirrored = estimate_pairs(&less, &[None; 12], &asked(0.05)).unwrap();
        assert_eq!(mirrored.p_inside, estimated(0.05).p_inside);
        let starts: Vec<Option<u32>> = (0..12).map(|i| Some(i % 4)).collect();
        let grouped = estimate_pairs(&values, &starts, &asked(0.05)).unwrap();
        assert_eq!((grouped.method, grouped.n), (Method::StartsT, 12));
        assert!(
            grouped.p_inside.unwrap() < 0.05 && grouped.narrow.unwrap().low > grouped.interval.unwrap().low
        );
        assert_eq!(estimate_pairs(&values[..1], &[None], &asked(0.0)).unwrap().p_inside, None);
    }

    /// Clear data can decide every question, however many questions there are.
    #[test]
    fn no_number_of_questions_makes_an_answer_impossible() {
        for n in [5, 10, 12, 20] {
            let clear: Vec<f64> = (0..n).map(|i| 1.0 + f64::from(i % 3) / 1e6).collect();
            for multiplicity in [1.0, 20.0, 40.0, 100.0, 1000.0] {
                let asked = Asked { confidence: 0.95, limit: 0.02, multiplicity };
                let found = estimate_pairs(&clear, &vec![None; clear.len()], &asked).unwrap();
                assert!(found.p_inside.unwrap() * multiplicity < 0.05, "{n} blocks, times {multiplicity}");
            }
        }
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
        fn grouped(starts: [Option<u32>; 3]) -> Option<Grouped> {
            Grouped::of(&[1.0, 2.0, 3.0], &starts)
        }
        assert_eq!(grouped([Some(0), Some(1), Some(2)]), None, "a start for every block");
        assert_eq!(grouped([Some(4); 3]), None, "one start says nothing of another");
        assert_eq!(grouped([None, Some(1), Some(1)]), None, "an older report");
        assert_eq!(count_starts(&[Some(2), Some(0), Some(2)]), Some(2));
        assert_eq!(count_starts(&[None, Some(0)]), None);
        assert_eq!(count_starts(&[]), None);
    }
}
