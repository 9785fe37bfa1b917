//! The published experiments, read from experiments.toml: what is run, what was claimed, and which figure of a report answers it.
//! Texts are borrowed from that file, so that none of them may have an escape.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use samehost_model::{Expected, Mode, Transport};
use serde::Deserialize;

use crate::wrong_use::WrongUse;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    pub id: &'static str,
    pub title: &'static str,
    pub source: &'static str,
    /// Hardware and software of the publication.
    pub setup: &'static str,
    /// Of the publication's machine, if known.
    pub cores: Option<u32>,
    pub measurements: Vec<Planned>,
    pub claims: Vec<Claim>,
    /// The publication's server, where another one may stand for it here.
    pub server: Option<&'static str>,
    /// In which the reproduction differs on purpose.
    #[serde(default)]
    pub differs: Vec<&'static str>,
    /// Possible explanations for different results on this machine.
    #[serde(default)]
    pub explanations: Vec<&'static str>,
}

impl Published {
    fn is(&self, id: &str) -> bool {
        self.id.eq_ignore_ascii_case(id)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
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
    pub text: &'static str,
    /// Published figure in a few characters, as a ratio or in the publication's own terms.
    pub published: &'static str,
    pub expected: Expected,
    /// Which figure of the report answers the claim.
    pub find: Find,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "figure", rename_all = "snake_case", deny_unknown_fields)]
pub enum Find {
    /// Unix socket ÷ TCP at a point.
    Transports {
        metric: &'static str,
        #[serde(default)]
        at: At,
    },
    /// Unix socket ÷ TCP at the point where the product of both is largest.
    Peak { metric: &'static str },
    /// Unix socket ÷ TCP at every point; the one that agrees least is shown.
    EveryPoint { metric: &'static str },
    /// One point ÷ another, over one transport.
    Points {
        metric: &'static str,
        transport: Transport,
        /// Denominator.
        from: At,
        /// Numerator.
        to: At,
    },
    /// One transport ÷ another at a point.
    Between {
        metric: &'static str,
        /// Denominator.
        from: Transport,
        /// Numerator.
        to: Transport,
        #[serde(default)]
        at: At,
    },
    /// One time as a share of another over one transport, in percent.
    Share { part: &'static str, whole: &'static str, transport: Transport },
    /// Whether exchanges succeeded over every transport.
    Works,
    /// Utilisation of the client and of the others, at every point.
    Busy,
}

/// A point of the matrix, given by the parameters that differ.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub struct At {
    pub connections: Option<u32>,
    /// Of a message, in bytes.
    pub size: Option<u64>,
    /// Of the workload.
    pub parameters: BTreeMap<&'static str, &'static str>,
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
    sources: BTreeMap<&'static str, &'static str>,
    explanations: BTreeMap<&'static str, &'static str>,
    experiment: Vec<Published>,
}

#[derive(Debug, thiserror::Error)]
enum ExperimentsError {
    #[error(transparent)]
    Toml(#[from] basic_toml::Error),
    #[error("no text is called {0}")]
    NoText(&'static str),
}

fn read(text: &'static str) -> Result<Vec<Published>, ExperimentsError> {
    let Experiments { sources, explanations, experiment: mut published } = basic_toml::from_str(text)?;
    for one in &mut published {
        one.source = sources.get(one.source).ok_or(ExperimentsError::NoText(one.source))?;
        for name in &mut one.explanations {
            *name = explanations.get(name).ok_or(ExperimentsError::NoText(name))?;
        }
    }
    Ok(published)
}

/// Experiments with these ids, in the registry's order; all if `ids` is empty.
pub fn chosen(ids: &[String]) -> Result<Vec<&'static Published>, WrongUse> {
    if let Some(unknown) = ids.iter().find(|id| !EXPERIMENTS.iter().any(|one| one.is(id))) {
        let all: Vec<&str> = EXPERIMENTS.iter().map(|one| one.id).collect();
        return Err(WrongUse(format!("no experiment is called `{unknown}`; known are {}", all.join(", "))));
    }
    Ok(EXPERIMENTS.iter().filter(|one| ids.is_empty() || ids.iter().any(|id| one.is(id))).collect())
}
