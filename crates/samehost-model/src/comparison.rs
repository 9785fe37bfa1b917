//! Candidate ÷ baseline of one metric over all blocks, with its verdict.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::arm::Point;
use crate::human;
use crate::reason::Reason;
use crate::warning::Warning;

/// The interval of a ratio held against the practical margin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The candidate is better (for a CPU metric: needs less) by more than the margin.
    Faster,
    /// The candidate is worse by more than the margin.
    Slower,
    /// The ratio lies inside the margin around 1.
    Equivalent,
    /// The data do not decide; [`Comparison::reason`] says why.
    #[default]
    Inconclusive,
}

impl Verdict {
    /// Whether the verdict is other than inconclusive.
    #[must_use]
    pub fn is_decided(self) -> bool {
        self != Verdict::Inconclusive
    }
}

impl fmt::Display for Verdict {
    /// As in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How much a comparison knows, from a verdict down to nothing. Every grade stands beside the estimate and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The verdict is not inconclusive: beyond the margin, or inside it.
    Decided,
    /// There is a difference; whether it is more than the margin is open.
    SizeOpen,
    /// Of this comparison alone, the direction is wrong once in 20 times at most.
    Probable,
    /// The same once in 5 times at most.
    Leaning,
    /// Nothing can be told.
    Open,
    /// An issue forbids a verdict, whatever the numbers.
    Barred,
}

/// Candidate ÷ baseline of one metric at one point, over all blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The baseline's median over its blocks, in the metric's unit; of a block with a control it is the geometric mean of
    /// both trials.
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
    /// The interval that two one-sided tests look at, 90 % for 95 %: lower end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrow_low: Option<f64>,
    /// Its upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrow_high: Option<f64>,
    /// How the interval was made: `signed-rank`, `student-t`, `starts-t` (Student's t that knows of several starts of the
    /// server) or `mann-whitney`.
    pub method: String,
    /// Blocks in which both arms have a value.
    pub blocks: u32,
    /// Starts of the server that the blocks were measured on; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_starts: Option<u32>,
    /// p-value of "no difference", of this comparison alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// p-value of "inside the margin", of this comparison alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_margin: Option<f64>,
    /// p-value of "no difference", adjusted for all that is asked; 0.05 is the threshold.
    pub p_adjusted: Option<f64>,
    /// p-value of "inside the margin", adjusted for all that is asked: below 0.05 it is `faster` or `slower`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_margin_adjusted: Option<f64>,
    /// What it amounts to.
    pub verdict: Verdict,
    /// How much it knows; absent in reports of versions that did not grade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade: Option<Grade>,
    /// Why it is inconclusive; absent with a verdict, and in reports of versions that had it as the first of the warnings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What to keep in mind, whatever the verdict.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

impl Comparison {
    /// Whether more blocks could decide it: it is inconclusive, and no issue invalidates it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.verdict.is_decided() && self.grade() != Grade::Barred
    }

    /// Seconds of measuring that would decide it if its estimate stays the same; `None` with a verdict, or where no
    /// reasonable number of blocks would.
    #[must_use]
    pub fn seconds_to_decide(&self) -> Option<f64> {
        self.reason.as_ref()?.more?.seconds
    }

    /// Whether its interval says nothing ([`human::is_too_wide`]).
    #[must_use]
    pub fn is_too_wide(&self) -> bool {
        self.ends().is_some_and(|(low, high)| human::is_too_wide(low, high))
    }

    /// Whether its interval spans no difference; `false` without one.
    #[must_use]
    pub fn spans_none(&self) -> bool {
        self.ends().is_some_and(|(low, high)| low <= 1.0 && high >= 1.0)
    }

    /// Both ends of its interval; `None` with fewer than two blocks.
    #[must_use]
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.ci_low.zip(self.ci_high)
    }

    /// Strength of the evidence. For reports without grades it is derived from the verdict.
    #[must_use]
    pub fn grade(&self) -> Grade {
        self.grade.unwrap_or(match self.verdict {
            Verdict::Inconclusive => Grade::Open,
            _ => Grade::Decided,
        })
    }
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
