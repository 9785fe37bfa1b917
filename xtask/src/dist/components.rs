//! What the program consists of: the crates that are linked into it, those that only helped to compile it, and what is in it
//! besides crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Target;
use super::binary::clean;
use crate::text;

/// Part of the program.
#[derive(Debug, Default)]
pub(super) struct Component {
    pub(super) name: String,
    pub(super) version: String,
    /// Such as `pkg:cargo/serde@1.0.0`; unique.
    pub(super) url: String,
    /// As an SPDX expression.
    pub(super) licence: String,
    pub(super) repository: String,
    pub(super) sha256: String,
    pub(super) is_linked: bool,
    /// Folder of its sources.
    pub(super) folder: Option<PathBuf>,
    /// `url` of what it uses itself.
    pub(super) uses: Vec<String>,
}

/// All of them, sorted; the program itself is not among them.
pub(super) struct Components {
    pub(super) all: Vec<Component>,
    /// `url` of what the program uses itself.
    pub(super) used: Vec<String>,
}

impl Components {
    /// Asks cargo about the sources in a folder.
    pub(super) fn of(source: &Path, target: &Target) -> anyhow::Result<Self> {
        let linked = tree(source, target, "normal,no-proc-macro")?;
        let used = tree(source, target, "normal,build")?;
        let mut cargo = clean("cargo");
        cargo.args(["metadata", "--format-version=1", "--locked", "--filter-platform", &target.triple]);
        let metadata: Value = serde_json::from_str(&text(cargo.current_dir(source))?)?;
        let sums = sums(&fs::read_to_string(source.join("Cargo.lock"))?);
        let mut all = crates(&metadata, &linked, &used, &sums)?;
        let program = all.iter().position(|one| one.name == "samehost").context("cargo names no samehost")?;
        let used = all.remove(program).uses;
        let rustc = text(Command::new("rustc").arg("--version"))?;
        all.push(standard_library(rustc.split_whitespace().nth(1).unwrap_or_default()));
        all.push(charting_script(source)?);
        all.sort_by(|one, other| one.url.cmp(&other.url));
        Ok(Components { all, used })
    }
}

/// Names and versions of the crates that the program uses by edges of these kinds, with the features that it is built with.
fn tree(source: &Path, target: &Target, edges: &str) -> anyhow::Result<BTreeSet<(String, String)>> {
    let mut cargo = clean("cargo");
    cargo.args(["tree", "--locked", "-p", "samehost", "--prefix", "none", "--format", "{p}"]);
    cargo.args(["--edges", edges, "--target", &target.triple]);
    let text = text(cargo.current_dir(source))?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
        })
        .collect())
}

/// SHA-256 of each crate's archive, from Cargo.lock.
fn sums(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let field = |package: &str, name: &str| {
        let start = format!("{name} = \"");
        package.lines().find_map(|line| Some(line.strip_prefix(&start)?.trim_end_matches('"').to_owned()))
    };
    packages
        .filter_map(|one| Some(((field(one, "name")?, field(one, "version")?), field(one, "checksum")?)))
        .collect()
}

fn crates(
    metadata: &Value,
    linked: &BTreeSet<(String, String)>,
    used: &BTreeSet<(String, String)>,
    sums: &BTreeMap<(String, String), String>,
) -> anyhow::Result<Vec<Component>> {
    let mut all = BTreeMap::new();
    for package in metadata["packages"].as_array().context("cargo metadata: no packages")? {
        let key = (word(&package["name"]), word(&package["version"]));
        if !used.contains(&key) && !linked.contains(&key) {
            continue;
        }
        let component = Component {
            url: format!("pkg:cargo/{}@{}", key.0, key.1),
            // An old way to write OR.
            licence: word(&package["license"]).replace('/', " OR "),
            repository: word(&package["repository"]),
            sha256: sums.get(&key).cloned().unwrap_or_default(),
            is_linked: linked.contains(&key),
            folder: Path::new(&word(&package["manifest_path"])).parent().map(Path::to_owned),
            uses: Vec::new(),
            name: key.0,
            version: key.1,
        };
        all.insert(word(&package["id"]), component);
    }
    let found = all.len();
    ensure!(found >= used.len().max(linked.len()), "cargo metadata lacks crates that cargo tree lists");
    let urls: BTreeMap<String, String> = all.iter().map(|(id, one)| (id.clone(), one.url.clone())).collect();
    for node in metadata["resolve"]["nodes"].as_array().context("cargo metadata: no nodes")? {
        let Some(component) = all.get_mut(node["id"].as_str().unwrap_or_default()) else { continue };
        let edges = node["deps"].as_array().into_iter().flatten().filter(|edge| is_for_programs(edge));
        component.uses = edges.filter_map(|edge| urls.get(edge["pkg"].as_str()?).cloned()).collect();
        component.uses.sort();
        component.uses.dedup();
    }
    Ok(all.into_values().collect())
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether an edge is of another kind than for tests.
fn is_for_programs(edge: &Value) -> bool {
    edge["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"] != "dev")
}

fn standard_library(version: &str) -> Component {
    Component {
        name: "rust-std".into(),
        version: version.into(),
        url: format!("pkg:generic/rust-std@{version}"),
        licence: "(MIT OR Apache-2.0) AND MIT".into(),
        repository: "https://github.com/rust-lang/rust".into(),
        is_linked: true,
        ..Component::default()
    }
}

/// plotly.js, which the program writes into HTML pages; its head says which version it is.
fn charting_script(source: &Path) -> anyhow::Result<Component> {
    let script = source.join("crates/samehost-report/src/formats/html/plotly-basic.min.js.gz");
    let script = text(Command::new("gzip").arg("-dc").arg(script))?;
    let version =
        script.lines().take(5).find_map(|line| line.rsplit_once(" v")).context("plotly.js has no version")?.1;
    Ok(Component {
        name: "plotly.js".into(),
        version: version.into(),
        url: format!("pkg:npm/plotly.js@{version}"),
        licence: "MIT".into(),
        repository: "https://github.com/plotly/plotly.js".into(),
        is_linked: true,
        ..Component::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sums_are_read_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"a\"\n\
                    version = \"1.0.0\"\nsource = \"registry\"\nchecksum = \"aa\"\n";
        let sums = sums(lock);
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[&("a".to_owned(), "1.0.0".to_owned())], "aa");
    }

    #[test]
    fn what_is_linked_and_what_helped_to_build_is_told_apart() {
        let component = |name: &str| (name.to_owned(), "1.0.0".to_owned());
        let package = |name: &str| {
            json!({"name": name, "version": "1.0.0", "id": name, "license": "MIT/Apache-2.0",
                   "manifest_path": format!("/crates/{name}/Cargo.toml")})
        };
        let edge = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("own"), package("a"), package("builder"), package("tester")],
            "resolve": {"nodes": [{"id": "own", "deps": [
                edge("a", Value::Null), edge("builder", "build".into()), edge("tester", "dev".into()),
            ]}]},
        });
        let linked = BTreeSet::from([component("own"), component("a")]);
        let used = BTreeSet::from([component("own"), component("a"), component("builder")]);
        let all = crates(&metadata, &linked, &used, &BTreeMap::new()).unwrap();
        let seen: Vec<(&str, bool)> = all.iter().map(|one| (one.name.as_str(), one.is_linked)).collect();
        assert_eq!(seen, [("a", true), ("builder", false), ("own", true)]);
        assert_eq!(all[2].uses, ["pkg:cargo/a@1.0.0", "pkg:cargo/builder@1.0.0"]);
        assert_eq!(all[0].licence, "MIT OR Apache-2.0");
    }
}
