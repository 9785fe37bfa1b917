//! The published experiments, read from experiments.toml.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::published::Published;
use crate::wrong_use::WrongUse;

/// All experiments, in display order.
pub static EXPERIMENTS: LazyLock<Vec<Published>> =
    LazyLock::new(|| match read(include_str!("experiments.toml")) {
        Ok(experiments) => experiments,
        Err(error) => panic!("experiments.toml: {error}"),
    });

/// Contents of experiments.toml: shared texts by name, and the experiments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Experiments {
    sources: BTreeMap<String, String>,
    explanations: BTreeMap<String, String>,
    experiment: Vec<Published>,
}

fn read(text: &'static str) -> Result<Vec<Published>, String> {
    let file: Experiments = basic_toml::from_str(text).map_err(|error| error.to_string())?;
    let (sources, explanations) = (leaked(file.sources), leaked(file.explanations));
    let named = |texts: &BTreeMap<String, &'static str>, name: &str| {
        texts.get(name).copied().ok_or_else(|| format!("no text is called {name}"))
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
