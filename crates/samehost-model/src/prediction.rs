//! Predictions for a whole from the gain of its part, compared with the measured gain of the whole.

use serde::{Deserialize, Serialize};

use crate::arm::Point;

/// A metric that is a part of another one: the time in the database is a part of the time of a page. Both are times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// Name of the part's metric.
    pub part: String,
    /// Name of the whole's metric.
    pub whole: String,
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bounds {
    /// The estimate.
    pub value: f64,
    /// Lower end of its interval; absent with fewer than two blocks.
    pub ci_low: Option<f64>,
    /// Upper end of its interval.
    pub ci_high: Option<f64>,
}

/// What a part's gain predicts for its whole, were nothing else to change, and what was measured. All are parts of
/// one, candidate ÷ baseline where they are ratios, over the blocks that have both metrics of both arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Where in the matrix.
    pub point: Point,
    /// Name of the part's metric.
    pub part: String,
    /// Name of the whole's metric.
    pub whole: String,
    /// Id of the baseline's arm.
    pub baseline: String,
    /// Id of the candidate's arm.
    pub candidate: String,
    /// The part ÷ the whole, of the baseline.
    pub share: Bounds,
    /// Candidate ÷ baseline, of the part.
    pub part_ratio: Bounds,
    /// Candidate ÷ baseline that the whole would have if nothing but the part changed.
    pub predicted: Bounds,
    /// Candidate ÷ baseline, of the whole.
    pub measured: Bounds,
    /// Measured ÷ predicted, block by block.
    pub deviation: Bounds,
    /// Whether the interval of `deviation` holds 1; absent where it has none.
    pub agrees: Option<bool>,
    /// Blocks in which all four values are known.
    pub blocks: u32,
}
