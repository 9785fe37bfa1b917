//! The licences of what is linked into the program: each of them asks that its text accompanies copies.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::components::{Component, Components};
use crate::files::names;

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
        let found = of(one)?;
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
    // Writing to a String cannot fail.
    let _ = writeln!(
        all,
        "\nThese crates state their licence and have no text of it:\n  {}",
        without.join("\n  ")
    );
    for (names, text) in texts {
        let _ = writeln!(all, "\n{}\n{}\n\n{}", "=".repeat(78), names.join("\n"), text.trim_end());
    }
    Ok(all)
}

fn title(one: &Component) -> String {
    format!("{} {} ({})", one.name, one.version, one.licence)
}

/// Texts of a crate's licences.
fn of(one: &Component) -> anyhow::Result<Vec<String>> {
    let Some(folder) = &one.folder else { return Ok(Vec::new()) };
    let paths = names(folder)?
        .iter()
        .filter(|name| FILES.iter().any(|start| name.to_lowercase().starts_with(start)))
        .map(|name| folder.join(name))
        .collect::<Vec<_>>();
    paths.iter().filter(|path| path.is_file()).map(|path| read(path)).collect()
}

/// A text, with lines that end as on Unix, so that the same text stands once.
fn read(path: &Path) -> anyhow::Result<String> {
    let text = String::from_utf8_lossy(&fs::read(path)?).replace("\r\n", "\n");
    Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
