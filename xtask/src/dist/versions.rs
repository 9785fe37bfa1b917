//! Whether the version, the changelog, the schemas and the documents agree, before anything is built.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::process::text;
use crate::{VERSION, files};

/// Checks the tree, and what else a release has when `release` is wanted.
pub(super) fn check(root: &Path, release: bool) -> anyhow::Result<()> {
    let changelog = fs::read_to_string(root.join("CHANGELOG.md")).context("CHANGELOG.md")?;
    let known = in_sources(root)?;
    let mut faults = schema_faults(root, &known)?;
    faults.extend(changelog_faults(&changelog, VERSION, release));
    for schema in known {
        if !schema.ends_with("/1") && !changelog.contains(&schema) {
            faults.push(format!(
                "CHANGELOG.md does not mention {schema}: say what readers of JSON have to change"
            ));
        }
    }
    if release {
        faults.extend(git_faults(root)?);
    }
    ensure!(faults.is_empty(), "version, changelog and schemas do not agree:\n  {}", faults.join("\n  "));
    Ok(())
}

/// The changelog begins with the version, or with what comes next.
fn changelog_faults(changelog: &str, version: &str, release: bool) -> Vec<String> {
    let headings: Vec<&str> = changelog.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let is_version = |heading: &&str| heading.split_whitespace().next() == Some(version);
    let mut faults = Vec::new();
    match headings.first() {
        Some(first) if is_version(first) => {}
        Some(&"Unreleased") if release => faults.push(format!(
            "CHANGELOG.md begins with \"## Unreleased\": rename it to \"## {version} - YYYY-MM-DD\""
        )),
        Some(&"Unreleased") if headings.iter().any(is_version) => faults.push(format!(
            "CHANGELOG.md has {version} already: raise `version` in [workspace.package] for what is unreleased"
        )),
        Some(&"Unreleased") => {}
        first => faults.push(format!(
            "CHANGELOG.md begins with \"## {}\", and the version is {version}",
            first.copied().unwrap_or_default()
        )),
    }
    faults
}

/// A release is made of a commit that has its tag and of nothing else.
fn git_faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let git = |arguments: &[&str]| text(Command::new("git").args(arguments).current_dir(root));
    let mut faults = Vec::new();
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    if !changed.trim().is_empty() {
        faults.push(format!(
            "these changes are not committed:\n    {}",
            changed.trim().replace('\n', "\n    ")
        ));
    }
    let tags = git(&["tag", "--points-at", "HEAD"])?;
    if !tags.lines().any(|tag| tag.strip_prefix('v') == Some(VERSION)) {
        faults.push(format!("the last commit has no tag v{VERSION}: git tag -s v{VERSION}"));
    }
    Ok(faults)
}

/// Each schema file is of a format that the program writes, and the documents name no other format.
fn schema_faults(root: &Path, known: &BTreeSet<String>) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for path in files(&root.join("crates/samehost-model/schema"), &["json"])? {
        let schema: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        // The last hyphen stands for the slash.
        let (word, number) = stem.rsplit_once('-').unwrap_or((&stem, ""));
        let expected = format!("samehost.{word}/{number}");
        if schema["title"] != expected.as_str() {
            faults.push(format!("{}: its title is {}, not {expected}", path.display(), schema["title"]));
        }
        if !known.contains(&expected) {
            faults.push(format!("{}: the program writes no {expected}", path.display()));
        }
    }
    let mut documents = files(&root.join("docs"), &["md"])?;
    documents.push(root.join("README.md"));
    for path in documents {
        let mut unknown = formats(&fs::read_to_string(&path)?);
        unknown.retain(|name| !known.contains(name));
        faults.extend(unknown.iter().map(|name| format!("{}: the program writes no {name}", path.display())));
    }
    Ok(faults)
}

fn in_sources(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut known = BTreeSet::new();
    let sources = root.join("crates");
    for path in files(&sources, &["rs"])? {
        if !path.components().any(|part| part.as_os_str() == "tests") {
            // What is written is a string; comments may speak of others, and so may tests, which end a file.
            let text = fs::read_to_string(path)?;
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            known.extend(text.split('"').filter(|part| part.starts_with("samehost.")).flat_map(formats));
        }
    }
    let sources = sources.display();
    ensure!(!known.is_empty(), "no source below {sources} names a format such as samehost.report/1");
    Ok(known)
}

/// The names of formats in a text: `samehost.`, a word, a slash, a number.
fn formats(text: &str) -> Vec<String> {
    let mut formats = Vec::new();
    for rest in text.split("samehost.").skip(1) {
        let Some((word, number)) = rest.split_once('/') else { continue };
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        if is_word && !digits.is_empty() {
            formats.push(format!("samehost.{word}/{digits}"));
        }
    }
    formats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_agrees_with_itself() {
        check(&crate::root(), false).unwrap();
    }

    #[test]
    fn changelogs_have_the_version() {
        let faults = |text: &str, release| changelog_faults(text, "0.2.0", release).len();
        let new = "# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-01-01\n";
        assert_eq!((faults(new, false), faults(new, true)), (0, 1));
        let released = "## 0.2.0 - 2026-02-02\n\n## 0.1.0 - 2026-01-01\n";
        assert_eq!((faults(released, false), faults(released, true)), (0, 0));
        let forgotten = "## Unreleased\n\n## 0.2.0 - 2026-02-02\n";
        assert_eq!((faults(forgotten, false), faults(forgotten, true)), (1, 1));
        assert_eq!((faults("## 0.3.0\n", false), faults("# Changelog\n", false)), (1, 1));
    }

    #[test]
    fn formats_are_found_in_sentences() {
        let text =
            "(`samehost.report/1`), samehost.scan-changes/12; samehost.invalid/schema and samehost.toml";
        assert_eq!(formats(text), ["samehost.report/1", "samehost.scan-changes/12"]);
    }

    #[test]
    fn documents_and_schemas_that_name_other_formats_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("crates/a/src/lib.rs", "const A: &str = \"samehost.report/1\";\n");
        write("crates/samehost-model/schema/report-1.json", "{\"title\": \"samehost.report/1\"}");
        write("README.md", "samehost.report/1\n");
        write("docs/a.md", "samehost.report/1\n");
        let faults = || schema_faults(folder.path(), &in_sources(folder.path()).unwrap()).unwrap();
        assert_eq!(faults(), Vec::<String>::new());
        write("docs/a.md", "samehost.report/2\n");
        write("crates/samehost-model/schema/report-2.json", "{\"title\": \"samehost.report/1\"}");
        assert_eq!(faults().len(), 3);
    }
}
