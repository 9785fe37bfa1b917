//! What manual pages say beyond the command line's definition: examples, files, environment, related pages. The texts are in
//! `extras.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// A variable of the environment, or a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) text: String,
    /// Whether every page has it.
    #[serde(default)]
    pub(super) is_everywhere: bool,
}

/// What is added to one page.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Extra {
    /// Names in [`Extras::variable`].
    pub(super) variables: Vec<String>,
    /// Names in [`Extras::file`].
    pub(super) files: Vec<String>,
    /// Command and explanation.
    pub(super) examples: Vec<(String, String)>,
    /// Other pages, with their sections.
    pub(super) see: Vec<String>,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extras {
    pub(super) variable: Vec<Entry>,
    pub(super) file: Vec<Entry>,
    page: BTreeMap<String, Extra>,
}

pub(super) static EXTRAS: LazyLock<Extras> =
    LazyLock::new(|| match basic_toml::from_str(include_str!("extras.toml")) {
        Ok(extras) => extras,
        Err(error) => panic!("extras.toml: {error}"),
    });

/// What is added to a page.
pub(super) fn extra(page: &str) -> &'static Extra {
    static NOTHING: LazyLock<Extra> = LazyLock::new(Extra::default);
    let name = match page.strip_prefix("samehost-") {
        None => "program",
        Some(verb) if verb.starts_with("bench-") => "workload",
        Some(verb) => verb,
    };
    EXTRAS.page.get(name).unwrap_or(&NOTHING)
}
