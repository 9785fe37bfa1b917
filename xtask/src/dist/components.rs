//! What the program consists of: the crates that are linked into it, those that only helped to compile it, and what is in it
//! besides crates. Of that, the list of components (SBOM) in the format of CycloneDX 1.5, which scanners of vulnerabilities
//! read, and the licences of what is linked, each of which asks that its text accompanies copies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::binary::clean;
use super::{Release, Target};
use crate::process::{date, text};
use crate::{VERSION, names};

#[derive(Debug, Default)]
pub(super) struct Component {
    pub(super) name: String,
    pub(super) version: String,
    /// Such as `pkg:cargo/serde@1.0.0`; unique.
    pub(super) url: String,
    /// An SPDX expression.
    pub(super) licence: String,
    pub(super) repository: String,
    pub(super) sha256: String,
    pub(super) is_linked: bool,
    pub(super) folder: Option<PathBuf>,
    /// `url` of what it uses itself.
    pub(super) uses: Vec<String>,
}

/// All parts of the program, sorted; the program itself is not among them.
/// cargo-cyclonedx was looked at. For crates it does all that this does, and it would replace some 200
/// lines. Lost would be the standard library and the charting script, which are linked and are not crates
/// of the lock file, and the compilers by which a hash can be reproduced. A step that adds these is half
/// of what the tool would spare (docs/decisions/0136).
pub(super) struct Components {
    pub(super) all: Vec<Component>,
    /// `url` of what the program uses itself.
    pub(super) used: Vec<String>,
}

impl Components {
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
    let mut crates = BTreeSet::new();
    for line in text(cargo.current_dir(source))?.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        let Some(version) = version.strip_prefix('v') else { continue };
        crates.insert((name.to_owned(), version.to_owned()));
    }
    Ok(crates)
}

/// SHA-256 of each crate's archive, by name and version, from Cargo.lock.
fn sums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let [name, version, sum] = ["name", "version", "checksum"].map(|name| field(package, name));
        if let (Some(name), Some(version), Some(sum)) = (name, version, sum) {
            sums.insert((name, version), sum);
        }
    }
    sums
}

fn field(package: &str, name: &str) -> Option<String> {
    let start = format!("{name} = \"");
    let value = package.lines().find_map(|line| line.strip_prefix(&start))?;
    Some(value.trim_end_matches('"').to_owned())
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
        let mut uses = BTreeSet::new();
        for edge in node["deps"].as_array().into_iter().flatten() {
            let is_for_programs =
                edge["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"] != "dev");
            if is_for_programs && let Some(url) = urls.get(&word(&edge["pkg"])) {
                uses.insert(url.clone());
            }
        }
        component.uses = uses.into_iter().collect();
    }
    Ok(all.into_values().collect())
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Something that is linked, and not a crate.
fn linked(kind: &str, name: &str, version: &str, licence: &str, repository: &str) -> Component {
    Component {
        name: name.into(),
        version: version.into(),
        url: format!("pkg:{kind}/{name}@{version}"),
        licence: licence.into(),
        repository: repository.into(),
        is_linked: true,
        ..Component::default()
    }
}

fn standard_library(version: &str) -> Component {
    let repository = "https://github.com/rust-lang/rust";
    linked("generic", "rust-std", version, "(MIT OR Apache-2.0) AND MIT", repository)
}

/// plotly.js, which the program writes into HTML pages; its head says which version it is.
fn charting_script(source: &Path) -> anyhow::Result<Component> {
    let script = source.join("crates/samehost-report/src/formats/html/plotly-basic.min.js.gz");
    let script = text(Command::new("gzip").arg("-dc").arg(script))?;
    let version =
        script.lines().take(5).find_map(|line| line.rsplit_once(" v")).context("plotly.js has no version")?.1;
    Ok(linked("npm", "plotly.js", version, "MIT", "https://github.com/plotly/plotly.js"))
}

/// Writes the list of components into a file, with the target and both compilers.
pub(super) fn write(release: &Release, components: &Components, file: &Path) -> anyhow::Result<()> {
    let time = date(release.epoch, "+%FT%TZ")?;
    let mut properties = vec![("target".to_owned(), release.target.triple.clone())];
    let compilers = release.target.compilers()?.into_iter();
    properties.extend(compilers.map(|(name, version)| (format!("compiler:{name}"), version)));
    let list = list(VERSION, &properties, &time, components);
    Ok(fs::write(file, format!("{list:#}\n"))?)
}

fn list(version: &str, properties: &[(String, String)], time: &str, components: &Components) -> Value {
    let program = format!("pkg:cargo/samehost@{version}");
    let uses = components.all.iter().map(|one| json!({"ref": one.url, "dependsOn": one.uses}));
    let own = json!({"ref": program, "dependsOn": components.used});
    let properties = properties.iter().map(|(name, value)| json!({"name": name, "value": value}));
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application", "bom-ref": program, "name": "samehost", "version": version,
                "purl": program, "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
            "properties": properties.collect::<Vec<_>>(),
        },
        "components": components.all.iter().map(component).collect::<Vec<_>>(),
        "dependencies": std::iter::once(own).chain(uses).collect::<Vec<_>>(),
    })
}

fn component(one: &Component) -> Value {
    let mut value = json!({
        "type": "library", "bom-ref": one.url, "purl": one.url, "name": one.name, "version": one.version,
        // What only helped to compile the program is not in it.
        "scope": if one.is_linked { "required" } else { "excluded" },
        "licenses": [{"expression": one.licence}],
    });
    if !one.sha256.is_empty() {
        value["hashes"] = json!([{"alg": "SHA-256", "content": one.sha256}]);
    }
    if !one.repository.is_empty() {
        value["externalReferences"] = json!([{"type": "vcs", "url": one.repository}]);
    }
    value
}

/// Beginnings of the names of files with licences, in lower case.
const FILES: &[&str] = &["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// What stands for the parts that are not crates.
const OTHERS: &str = "\
The program also contains the Rust standard library (MIT OR Apache-2.0, the Rust Project Developers), musl libc
(MIT, Copyright 2005-2020 Rich Felker, et al.) and plotly.js (MIT, Copyright 2012-2025 Plotly, Inc.).
The sources of every crate, unchanged, those under CDDL-1.0 among them: https://crates.io/crates/NAME/VERSION
";

/// One text with all licences; each text stands once, after the names of those whose it is.
pub(super) fn collect(components: &Components) -> anyhow::Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    // Our own crates have the program's licence.
    let linked = components.all.iter().filter(|one| one.is_linked && !one.sha256.is_empty());
    for one in linked {
        let found = licences(one)?;
        if found.is_empty() {
            without.push(title(one));
        }
        for text in found {
            texts.entry(text).or_default().push(title(one));
        }
    }
    let mut texts: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    let mut all = format!("Licences of what samehost is made of\n\n{OTHERS}");
    all += "\nThese crates state their licence and have no text of it:\n  ";
    all += &format!("{}\n", without.join("\n  "));
    for (names, text) in texts {
        all += &format!("\n{}\n{}\n\n{}\n", "=".repeat(78), names.join("\n"), text.trim_end());
    }
    Ok(all)
}

fn title(one: &Component) -> String {
    format!("{} {} ({})", one.name, one.version, one.licence)
}

fn licences(one: &Component) -> anyhow::Result<Vec<String>> {
    let Some(folder) = &one.folder else { return Ok(Vec::new()) };
    let mut texts = Vec::new();
    for name in names(folder)? {
        let path = folder.join(&name);
        if FILES.iter().any(|start| name.to_lowercase().starts_with(start)) && path.is_file() {
            texts.push(read(&path)?);
        }
    }
    Ok(texts)
}

/// A text, with lines that end as on Unix, so that the same text stands once.
fn read(path: &Path) -> anyhow::Result<String> {
    let text = String::from_utf8_lossy(&fs::read(path)?).replace("\r\n", "\n");
    Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
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

    #[test]
    fn a_list_names_components_and_what_uses_them() {
        let component = |name: &str, is_linked| Component {
            name: name.into(),
            version: "1.0.0".into(),
            url: format!("pkg:cargo/{name}@1.0.0"),
            licence: "MIT".into(),
            sha256: if is_linked { "aa".into() } else { String::new() },
            is_linked,
            ..Component::default()
        };
        let components = Components {
            all: vec![component("a", true), component("builder", false)],
            used: vec!["pkg:cargo/a@1.0.0".into()],
        };
        let properties = [("compiler:rustc".to_owned(), "rustc 1.95.0".to_owned())];
        let list = list("0.1.0", &properties, "2026-11-23T00:00:00Z", &components);
        assert_eq!(list["components"][0]["hashes"][0]["content"], "aa");
        assert_eq!(list["components"][0]["scope"], "required");
        assert_eq!(
            (&list["components"][1]["scope"], &list["components"][1]["hashes"]),
            (&"excluded".into(), &Value::Null)
        );
        assert_eq!(list["dependencies"][0]["dependsOn"][0], "pkg:cargo/a@1.0.0");
        assert_eq!(list["metadata"]["properties"][0]["value"], "rustc 1.95.0");
    }

    #[test]
    fn a_text_stands_once_with_all_names() {
        let folder = tempfile::tempdir().unwrap();
        let package = |name: &str, text: Option<&str>| {
            let place = folder.path().join(name);
            fs::create_dir(&place).unwrap();
            if let Some(text) = text {
                fs::write(place.join("LICENSE-MIT"), text).unwrap();
            }
            Component {
                name: name.into(),
                sha256: "aa".into(),
                is_linked: true,
                folder: Some(place),
                ..Component::default()
            }
        };
        let all =
            vec![package("a", Some("one text\r\n")), package("b", Some("one text\n")), package("c", None)];
        let text = collect(&Components { all, used: Vec::new() }).unwrap();
        assert_eq!(text.matches("one text").count(), 1);
        assert!(text.contains("a  ()\nb  ()\n\none text\n"), "{text}");
        assert!(text.contains("no text of it:\n  c  ()\n"), "{text}");
    }
}
