//! The reproduction `samehost.reproduction/1`: published experiments, their claims, and the results on this machine.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::{Host, Report};

/// Name and version of the format.
pub const REPRODUCTION_SCHEMA: &str = "samehost.reproduction/1";

/// How thoroughly the experiments were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All of them in under five minutes.
    Quick,
    /// As narrow as the method asks for.
    #[default]
    Full,
}

impl fmt::Display for Mode {
    /// As in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Published experiments, made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reproduction {
    /// [`REPRODUCTION_SCHEMA`].
    pub schema: String,
    /// Version of samehost that measured.
    pub samehost_version: String,
    /// Start, as RFC 3339 in UTC.
    pub started_at: String,
    /// The command line.
    pub command: Vec<String>,
    /// How thoroughly.
    pub mode: Mode,
    /// Seed of the order of trials and of schedules.
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// Time from start to end, in seconds.
    pub seconds: f64,
    /// Whether a person stopped it before its end.
    pub interrupted: bool,
    /// The experiments, in the order in which they were asked for.
    pub experiments: Vec<Experiment>,
}

/// Whether an experiment could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExperimentState {
    /// It was measured.
    Measured,
    /// A program that it needs is not installed here.
    NotInstalled,
    /// It failed; the reason says how.
    Failed,
    /// A person stopped the reproduction before it was done.
    Interrupted,
}

/// One published experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Experiment {
    /// Its id, such as `P1`.
    pub id: String,
    /// What was measured, in a few words.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What it was measured on and with.
    pub setup: String,
    /// Whether it could be made here.
    pub state: ExperimentState,
    /// Why it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The Debian package that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// When it was measured, as RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_at: Option<String>,
    /// What is different here by intention, such as rates scaled to this machine.
    pub differs: Vec<String>,
    /// What may explain why this machine says something else.
    pub explanations: Vec<String>,
    /// What was claimed.
    pub claims: Vec<ClaimOutcome>,
    /// What was measured.
    pub measurements: Vec<Measurement>,
}

/// A measurement behind an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measurement {
    /// What it is called.
    pub label: String,
    /// All of it.
    pub report: Report,
}

/// What an article says of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Expected {
    /// A ratio of this size; both ends lie on the same side of 1, or one is 1. A published figure stands for all that
    /// round to it.
    Ratio {
        /// Smallest.
        low: f64,
        /// Largest.
        high: f64,
    },
    /// A ratio below 1, of no said size.
    Below,
    /// A ratio above 1, of no said size.
    Above,
    /// A ratio of at least this much, above 1.
    AtLeast {
        /// The ratio.
        ratio: f64,
    },
    /// No difference that a reader would notice: within ±5 %.
    Same,
    /// A value in this range, in the metric's unit.
    Value {
        /// Smallest.
        low: f64,
        /// Largest.
        high: f64,
    },
    /// It works over either, without an error.
    Works,
    /// The client was the limit.
    ClientLimit,
}

/// What this machine says of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// It agrees.
    Holds,
    /// It contradicts.
    DoesNotHold,
    /// The data do not decide.
    CannotTell,
    /// It was not asked.
    NotMeasured,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Judgement::Holds => "holds",
            Judgement::DoesNotHold => "does not hold",
            Judgement::CannotTell => "cannot tell",
            Judgement::NotMeasured => "not measured",
        })
    }
}

/// The published size held against this machine's interval. An effect is the distance from no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EffectSize {
    /// The published size is inside the interval: the two are not told apart.
    Inside,
    /// The effect is larger here.
    Larger,
    /// The effect is smaller here.
    Smaller,
}

/// What this machine measured about a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Here {
    /// What it is, such as `unix ÷ tcp`, or an arm.
    pub of: String,
    /// Name of the metric.
    pub metric: String,
    /// A ratio, or a value in `unit`.
    pub value: f64,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end of its interval.
    pub high: Option<f64>,
    /// Unit of the value; empty for a ratio.
    pub unit: String,
    /// Blocks behind it.
    pub blocks: u32,
}

/// A claim and what this machine says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimOutcome {
    /// The claim, in a few words.
    pub claim: String,
    /// The published figure, in the article's own terms where they are not a ratio.
    pub published: String,
    /// What the article's words amount to.
    pub expected: Expected,
    /// What was measured here; absent where no figure says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<Here>,
    /// What this machine says.
    pub judgement: Judgement,
    /// The published size against the interval, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<EffectSize>,
    /// What was found, or why it cannot be told; may be empty.
    pub why: String,
}

impl ClaimOutcome {
    /// Whether the published size is outside the interval.
    #[must_use]
    pub fn is_of_other_size(&self) -> bool {
        matches!(self.size, Some(EffectSize::Larger | EffectSize::Smaller))
    }
}
