//! The published experiments, read from experiments.toml: what is run, what was claimed, and which figure of a report answers it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use samehost_model::{Expected, Mode, Transport};
use serde::{Deserialize, Deserializer};

use crate::wrong_use::WrongUse;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    #[serde(deserialize_with = "text")]
    pub id: &'static str,
    #[serde(deserialize_with = "text")]
    pub title: &'static str,
    #[serde(deserialize_with = "text")]
    pub source: &'static str,
    /// Hardware and software of the publication.
    #[serde(deserialize_with = "text")]
    pub setup: &'static str,
    /// Of the publication's machine, if known.
    pub cores: Option<u32>,
    #[serde(deserialize_with = "list")]
    pub measurements: &'static [Planned],
    #[serde(deserialize_with = "list")]
    pub claims: &'static [Claim],
    /// The publication's server, where another one may stand for it here.
    #[serde(default, deserialize_with = "maybe")]
    pub server: Option<&'static str>,
    /// In which the reproduction differs on purpose.
    #[serde(default, deserialize_with = "texts")]
    pub differs: &'static [&'static str],
    /// Possible explanations for different results on this machine.
    #[serde(default, deserialize_with = "texts")]
    pub explanations: &'static [&'static str],
}

impl Published {
    /// Whether it starts a server of somebody else's.
    pub fn starts_servers(&self) -> bool {
        !self.measurements.iter().all(|planned| planned.quick.line.starts_with("bench raw"))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    #[serde(deserialize_with = "text")]
    pub label: &'static str,
    /// For `--quick`: under six minutes for all experiments.
    pub quick: Command,
    /// As published, as far as this machine allows.
    pub full: Command,
}

/// A command line of `samehost`, without its budget.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Words after `samehost`.
    #[serde(deserialize_with = "text")]
    pub line: &'static str,
    /// Time that it takes, as its budget.
    pub seconds: f64,
    /// Length of a trial in milliseconds; `None` if a trial is one whole operation.
    pub trial_ms: Option<f64>,
}

impl Planned {
    pub fn command(&self, mode: Mode) -> Command {
        match mode {
            Mode::Quick => self.quick,
            Mode::Full => self.full,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// A few words, for a table of 80 columns.
    #[serde(deserialize_with = "text")]
    pub text: &'static str,
    /// Published figure in a few characters, as a ratio or in the publication's own terms.
    #[serde(deserialize_with = "text")]
    pub published: &'static str,
    pub expected: Expected,
    /// Which figure of the report answers the claim.
    pub find: Find,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "figure", rename_all = "snake_case", deny_unknown_fields)]
pub enum Find {
    /// Unix socket ÷ TCP at a point.
    Transports {
        #[serde(deserialize_with = "text")]
        metric: &'static str,
        #[serde(default)]
        at: At,
    },
    /// Unix socket ÷ TCP at the point where the product of both is largest.
    Peak {
        #[serde(deserialize_with = "text")]
        metric: &'static str,
    },
    /// Unix socket ÷ TCP at every point; the one that agrees least is shown.
    EveryPoint {
        #[serde(deserialize_with = "text")]
        metric: &'static str,
    },
    /// One point ÷ another, over one transport.
    Points {
        #[serde(deserialize_with = "text")]
        metric: &'static str,
        transport: Transport,
        /// Denominator.
        from: At,
        /// Numerator.
        to: At,
    },
    /// One transport ÷ another at a point.
    Between {
        #[serde(deserialize_with = "text")]
        metric: &'static str,
        /// Denominator.
        from: Transport,
        /// Numerator.
        to: Transport,
        #[serde(default)]
        at: At,
    },
    /// One time as a share of another over one transport, in percent.
    Share {
        #[serde(deserialize_with = "text")]
        part: &'static str,
        #[serde(deserialize_with = "text")]
        whole: &'static str,
        transport: Transport,
    },
    /// Whether exchanges succeeded over every transport.
    Works,
    /// Utilisation of the client and of the others, at every point.
    Busy,
}

/// A point of the matrix, given by the parameters that differ.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct At {
    pub connections: Option<u32>,
    /// Of a message, in bytes.
    pub size: Option<u64>,
    /// Of the workload.
    #[serde(deserialize_with = "pairs")]
    pub parameters: &'static [(&'static str, &'static str)],
}

/// Leaks a text, because experiments are read once and live as long as the program.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    String::deserialize(from).map(|text| &*text.leak())
}

fn maybe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'static str>, D::Error> {
    text(from).map(Some)
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
    Ok(pairs
        .into_iter()
        .map(|(name, value)| (&*name.leak(), &*value.leak()))
        .collect::<Vec<(&str, &str)>>()
        .leak())
}

/// All experiments, in display order.
pub static EXPERIMENTS: LazyLock<Vec<Published>> =
    LazyLock::new(|| match read(include_str!("experiments.toml")) {
        Ok(experiments) => experiments,
        Err(error) => panic!("experiments.toml: {error}"),
    });

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Experiments {
    sources: BTreeMap<String, String>,
    explanations: BTreeMap<String, String>,
    experiment: Vec<Published>,
}

#[derive(Debug, thiserror::Error)]
enum ExperimentsError {
    #[error(transparent)]
    Toml(#[from] basic_toml::Error),
    #[error("no text is called {0}")]
    NoText(String),
}

fn read(text: &'static str) -> Result<Vec<Published>, ExperimentsError> {
    let file: Experiments = basic_toml::from_str(text)?;
    let (sources, explanations) = (leaked(file.sources), leaked(file.explanations));
    let named = |texts: &BTreeMap<String, &'static str>, name: &str| {
        texts.get(name).copied().ok_or_else(|| ExperimentsError::NoText(name.to_owned()))
    };
    let mut published = Vec::new();
    for one in file.experiment {
        let mut why = Vec::new();
        for name in one.explanations {
            why.push(named(&explanations, name)?);
        }
        published.push(Published { source: named(&sources, one.source)?, explanations: why.leak(), ..one });
    }
    Ok(published)
}

fn leaked(texts: BTreeMap<String, String>) -> BTreeMap<String, &'static str> {
    texts.into_iter().map(|(name, text)| (name, &*text.leak())).collect()
}

/// Experiments with these ids, in the registry's order; all if `ids` is empty.
pub fn chosen(ids: &[String]) -> Result<Vec<&'static Published>, WrongUse> {
    if let Some(unknown) = ids.iter().find(|id| !known(id)) {
        let all: Vec<&str> = EXPERIMENTS.iter().map(|one| one.id).collect();
        return Err(WrongUse(format!("no experiment is called `{unknown}`; known are {}", all.join(", "))));
    }
    if ids.is_empty() {
        return Ok(EXPERIMENTS.iter().collect());
    }
    Ok(EXPERIMENTS.iter().filter(|one| ids.iter().any(|id| one.id.eq_ignore_ascii_case(id))).collect())
}

fn known(id: &str) -> bool {
    EXPERIMENTS.iter().any(|one| one.id.eq_ignore_ascii_case(id))
}
