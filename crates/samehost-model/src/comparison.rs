//! Candidate ÷ baseline of one metric over all blocks, and what that amounts to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Point, Warning};

/// The interval of a ratio held against the practical margin and the noise floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The candidate is better (for a CPU metric: needs less) by more than margin and noise floor.
    Faster,
    /// The candidate is worse by more than margin and noise floor.
    Slower,
    /// The ratio lies inside the margin around 1.
    Equivalent,
    /// The data do not decide; the warnings say why.
    Inconclusive,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Equivalent => "equivalent",
            Verdict::Inconclusive => "inconclusive",
        })
    }
}

/// Candidate ÷ baseline of one metric at one point, over all blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Where in the matrix.
    pub point: Point,
    /// Name of the metric.
    pub metric: String,
    /// Id of the baseline's arm.
    pub baseline: String,
    /// Id of the candidate's arm.
    pub candidate: String,
    /// The baseline's median over its trials, in the metric's unit.
    pub baseline_value: f64,
    /// The candidate's median over its trials, in the metric's unit.
    pub candidate_value: f64,
    /// Candidate ÷ baseline: exp of the Hodges–Lehmann estimate of the blocks' log ratios.
    pub ratio: f64,
    /// Lower end of the interval of the ratio; absent with fewer than two blocks.
    pub ci_low: Option<f64>,
    /// Upper end of the interval of the ratio.
    pub ci_high: Option<f64>,
    /// Confidence that the interval has, at least: 0.95.
    pub confidence: f64,
    /// How the interval was made: `signed-rank`, `student-t` or `mann-whitney`.
    pub method: String,
    /// Blocks in which both arms have a value.
    pub blocks: u32,
    /// p-value of "no difference", Holm-adjusted over the points of this metric.
    pub p_adjusted: Option<f64>,
    /// What it amounts to.
    pub verdict: Verdict,
    /// Why it is inconclusive, or what to keep in mind.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// The baseline against itself in the same blocks: what this machine calls a difference where there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Control {
    /// Where in the matrix.
    pub point: Point,
    /// Name of the metric.
    pub metric: String,
    /// Second ÷ first run of the baseline.
    pub ratio: f64,
    /// Lower end of its interval.
    pub ci_low: Option<f64>,
    /// Upper end of its interval.
    pub ci_high: Option<f64>,
    /// The largest relative difference that this control cannot exclude: max(ci_high, 1/ci_low) − 1.
    pub noise_floor: Option<f64>,
}
