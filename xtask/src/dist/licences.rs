//! The licences of what is linked into the program, each of which asks that its text accompanies copies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Target;
use super::binary::clean;
use crate::names;
use crate::process::text;

/// A crate of somebody else's that is linked.
#[derive(Debug)]
struct Component {
    name: String,
    version: String,
    /// An SPDX expression.
    licence: String,
    folder: PathBuf,
}

/// Beginnings of the names of files with licences, in lower case.
const FILES: &[&str] = &["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// What stands for the parts that are not crates.
const OTHERS: &str = "\
The program also contains the Rust standard library (MIT OR Apache-2.0, the Rust Project Developers), musl libc
(MIT, Copyright 2005-2020 Rich Felker, et al.).
The sources of every crate, unchanged, those under CDDL-1.0 among them: https://crates.io/crates/NAME/VERSION
";

/// One text with the licences of all that a program of this source is made of.
pub(super) fn collect(source: &Path, target: &Target) -> anyhow::Result<String> {
    let linked = linked(source, target)?;
    let mut cargo = clean("cargo");
    cargo.args(["metadata", "--format-version=1", "--locked", "--filter-platform", &target.triple]);
    let metadata: Value = serde_json::from_str(&text(cargo.current_dir(source))?)?;
    let components = of_others(&metadata, &linked)?;
    ensure!(!components.is_empty(), "cargo metadata names no crate that is linked");
    joined(&components)
}

/// Names and versions of the crates that are linked, with the features that the program is built with.
fn linked(source: &Path, target: &Target) -> anyhow::Result<BTreeSet<(String, String)>> {
    let mut cargo = clean("cargo");
    cargo.args(["tree", "--locked", "-p", "samehost", "--prefix", "none", "--format", "{p}"]);
    cargo.args(["--edges", "normal,no-proc-macro", "--target", &target.triple]);
    let mut crates = BTreeSet::new();
    for line in text(cargo.current_dir(source))?.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        let Some(version) = version.strip_prefix('v') else { continue };
        crates.insert((name.to_owned(), version.to_owned()));
    }
    Ok(crates)
}

/// Those that are not of this workspace: our own have the program's licence.
fn of_others(metadata: &Value, linked: &BTreeSet<(String, String)>) -> anyhow::Result<Vec<Component>> {
    let mut all = Vec::new();
    let mut found = BTreeSet::new();
    for package in metadata["packages"].as_array().context("cargo metadata: no packages")? {
        let key = (word(&package["name"]), word(&package["version"]));
        if !linked.contains(&key) {
            continue;
        }
        found.insert(key.clone());
        if package["source"].is_null() {
            continue;
        }
        let manifest = PathBuf::from(word(&package["manifest_path"]));
        all.push(Component {
            // An old way to write OR.
            licence: word(&package["license"]).replace('/', " OR "),
            folder: manifest.parent().context("a manifest in a folder")?.to_owned(),
            name: key.0,
            version: key.1,
        });
    }
    ensure!(found == *linked, "cargo metadata lacks crates that cargo tree lists");
    Ok(all)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Each text stands once, after the names of those whose it is.
fn joined(components: &[Component]) -> anyhow::Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for one in components {
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
    let mut texts = Vec::new();
    for name in names(&one.folder)? {
        let path = one.folder.join(&name);
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
    fn what_is_linked_and_others_is_collected() {
        let component = |name: &str| (name.to_owned(), "1.0.0".to_owned());
        let package = |name: &str, source: Value| {
            json!({"name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source,
                   "manifest_path": format!("/crates/{name}/Cargo.toml")})
        };
        let registry = Value::from("registry");
        let metadata = json!({"packages": [
            package("own", Value::Null), package("a", registry.clone()), package("builder", registry),
        ]});
        let linked = BTreeSet::from([component("own"), component("a")]);
        let all = of_others(&metadata, &linked).unwrap();
        let seen: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((&seen[..], all[0].licence.as_str()), (&["a"][..], "MIT OR Apache-2.0"));
        let more = BTreeSet::from([component("own"), component("unknown")]);
        assert!(of_others(&metadata, &more).is_err());
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
            Component { name: name.into(), version: String::new(), licence: String::new(), folder: place }
        };
        let all = [package("a", Some("one text\r\n")), package("b", Some("one text\n")), package("c", None)];
        let text = joined(&all).unwrap();
        assert_eq!(text.matches("one text").count(), 1);
        assert!(text.contains("a  ()\nb  ()\n\none text\n"), "{text}");
        assert!(text.contains("no text of it:\n  c  ()\n"), "{text}");
    }
}
