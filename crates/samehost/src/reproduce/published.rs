//! What a published experiment is: what was run, what was claimed, and which figure of a report answers it.

use std::collections::BTreeMap;

use samehost_model::{Expected, Mode, Transport};
use serde::{Deserialize, Deserializer};

/// A published experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its id, unique.
    #[serde(deserialize_with = "text")]
    pub id: &'static str,
    /// What was measured.
    #[serde(deserialize_with = "text")]
    pub title: &'static str,
    /// Where it was published.
    #[serde(deserialize_with = "text")]
    pub source: &'static str,
    /// What it was measured on and with.
    #[serde(deserialize_with = "text")]
    pub setup: &'static str,
    /// CPU cores of its machine, where it says so.
    pub cores: Option<u32>,
    /// What is run.
    #[serde(deserialize_with = "list")]
    pub measurements: &'static [Planned],
    /// What was claimed.
    #[serde(deserialize_with = "list")]
    pub claims: &'static [Claim],
    /// What is different here by intention.
    #[serde(default, deserialize_with = "texts")]
    pub differs: &'static [&'static str],
    /// What may explain that this machine says something else.
    #[serde(default, deserialize_with = "texts")]
    pub explanations: &'static [&'static str],
}

impl Published {
    /// Whether it starts a server that is not built in.
    pub fn starts_servers(&self) -> bool {
        !self.measurements.iter().all(|planned| planned.quick.line.starts_with("bench raw"))
    }
}

/// A measurement of an experiment, in both modes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// What it is called.
    #[serde(deserialize_with = "text")]
    pub label: &'static str,
    /// In under six minutes for all experiments.
    pub quick: Command,
    /// As the article did, as far as this machine can.
    pub full: Command,
}

/// A command line of `samehost`, without its budget.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The words after `samehost`.
    #[serde(deserialize_with = "text")]
    pub line: &'static str,
    /// Its budget, in seconds.
    pub seconds: f64,
    /// Length of a trial, in milliseconds; none where a trial is one whole operation.
    pub trial_ms: Option<f64>,
}

impl Planned {
    /// The command of a mode.
    pub fn command(&self, mode: Mode) -> Command {
        match mode {
            Mode::Quick => self.quick,
            Mode::Full => self.full,
        }
    }
}

/// A claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// In a few words, for a table of 80 columns.
    #[serde(deserialize_with = "text")]
    pub text: &'static str,
    /// The figure as a ratio or in the article's own terms, in a few characters.
    #[serde(deserialize_with = "text")]
    pub published: &'static str,
    /// What the words amount to.
    pub expected: Expected,
    /// Which figure of the report answers it.
    pub find: Find,
}

/// Which figure of the experiment's reports answers a claim.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "figure", rename_all = "snake_case", deny_unknown_fields)]
pub enum Find {
    /// Unix socket ÷ TCP at a point.
    Transports {
        /// The metric.
        #[serde(deserialize_with = "text")]
        metric: &'static str,
        /// The point.
        #[serde(default)]
        at: At,
    },
    /// Unix socket ÷ TCP at the point where both together do most.
    Peak {
        /// The metric.
        #[serde(deserialize_with = "text")]
        metric: &'static str,
    },
    /// Unix socket ÷ TCP at every point: the one that agrees least.
    EveryPoint {
        /// The metric.
        #[serde(deserialize_with = "text")]
        metric: &'static str,
    },
    /// One point ÷ another, over one transport.
    Points {
        /// The metric.
        #[serde(deserialize_with = "text")]
        metric: &'static str,
        /// The transport.
        transport: Transport,
        /// The point below the line.
        from: At,
        /// The point above it.
        to: At,
    },
    /// A time as a part of another over one transport, in percent.
    Share {
        /// The metric that is a part.
        #[serde(deserialize_with = "text")]
        part: &'static str,
        /// The metric that is the whole.
        #[serde(deserialize_with = "text")]
        whole: &'static str,
        /// The transport.
        transport: Transport,
    },
    /// That every exchange worked over either.
    Works,
    /// How busy the client was, and how busy the others were, at every point.
    Busy,
}

/// A point of the matrix, by what differs.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct At {
    /// Its connections.
    pub connections: Option<u32>,
    /// Its size.
    pub size: Option<u64>,
    /// Its own parameters.
    #[serde(deserialize_with = "pairs")]
    pub parameters: &'static [(&'static str, &'static str)],
}

/// A text that lives as long as the program: experiments are read once.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    String::deserialize(from).map(|text| &*text.leak())
}

fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<&'static [&'static str], D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    Ok(texts.into_iter().map(|text| &*text.leak()).collect::<Vec<&str>>().leak())
}

fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<&'static [T], D::Error> {
    Vec::deserialize(from).map(|list| &*list.leak())
}

fn pairs<'de, D: Deserializer<'de>>(from: D) -> Result<&'static [(&'static str, &'static str)], D::Error> {
    let pairs = BTreeMap::<String, String>::deserialize(from)?;
    let leaked = |(name, value): (String, String)| (&*name.leak(), &*value.leak());
    Ok(pairs.into_iter().map(leaked).collect::<Vec<(&str, &str)>>().leak())
}
