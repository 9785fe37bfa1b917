//! What a matrix says as a whole: effects of factors over all levels of the others, combinations of their levels, bottlenecks of
//! arms, and predictions for a whole from the gain of its part, compared with the measured gain of the whole.

use serde::{Deserialize, Serialize};

use crate::arm::Point;

/// A factor with two levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Factor {
    /// `transport`, or the name of a parameter.
    pub name: String,
    /// The level that the other is held against.
    pub from: String,
    /// The other level.
    pub to: String,
}

/// A main effect (one factor) or an interaction (several) of one metric, over all blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Effect {
    /// What is the same for all arms that it is estimated from: the factors are not among the parameters.
    pub point: Point,
    /// Name of the metric.
    pub metric: String,
    /// One for a main effect, several for an interaction.
    pub factors: Vec<Factor>,
    /// Of a main effect, `to` ÷ `from` as a geometric mean over the levels of all other factors. Of an interaction of
    /// two, the ratio of one at the other's `to`, divided by that at its `from`; and so on for more.
    pub ratio: f64,
    /// Lower end of the interval of the ratio; absent with fewer than two blocks.
    pub ci_low: Option<f64>,
    /// Upper end.
    pub ci_high: Option<f64>,
    /// Confidence that the interval has, at least: 0.95.
    pub confidence: f64,
    /// Blocks in which all arms have a value.
    pub blocks: u32,
}

/// One combination of all factors' levels against the first, of one metric, over all blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Combination {
    /// Id of the arm that has the combination.
    pub arm: String,
    /// Id of the arm that has the first level of every factor.
    pub against: String,
    /// Name of the metric.
    pub metric: String,
    /// `arm` ÷ `against`.
    pub ratio: f64,
    /// Lower end of the interval of the ratio; absent with fewer than two blocks.
    pub ci_low: Option<f64>,
    /// Upper end.
    pub ci_high: Option<f64>,
    /// Confidence that the interval has, at least: 0.95.
    pub confidence: f64,
    /// Blocks in which all combinations have a value.
    pub blocks: u32,
}

/// What kept an arm from doing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// The client never rested.
    Client,
    /// What stands between client and server used all CPUs that it can use.
    Proxy,
    /// The server used all CPUs that it can use.
    Server,
    /// Together they left the machine no CPU.
    Machine,
    /// Nobody: each waited for the others, as with one request at a time.
    Waiting,
}

/// Who was the limit of an arm in a closed loop with something between client and server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limit {
    /// Id of the arm.
    pub arm: String,
    /// Who it was.
    pub by: LimitedBy,
    /// CPUs that the client used, the median of the trials.
    pub client_cpus: f64,
    /// The same of what stands between.
    pub proxy_cpus: f64,
    /// The same of the server.
    pub server_cpus: f64,
}

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
