//! The maps of the house: a file or folder that a crate's README, CONTRIBUTING or the design names has to be there. It reads
//! documents and names of files, and changes nothing.

use std::fs;
use std::path::Path;

use crate::{files, names};

const FOLDERS: [&str; 4] = ["crates", "xtask", "docs", "packaging"];
/// What stands for a name that the reader puts in, in `workloads/NAME/mod.rs` or `commands/VERB.rs`.
const PLACEHOLDERS: [&str; 4] = ["NAME", "VERB", "LANGUAGE", "VERSION"];

/// Each name of a file that is gone, with the document that has it.
pub(crate) fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        for path in files(&root.join(folder), &[])? {
            paths.push(path.strip_prefix(root)?.display().to_string());
        }
    }
    let mut documents = vec!["CONTRIBUTING.md".to_owned(), "docs/design.md".to_owned()];
    documents.extend(names(&root.join("crates"))?.iter().map(|name| format!("crates/{name}/README.md")));
    let mut faults = Vec::new();
    for document in documents {
        let text = fs::read_to_string(root.join(&document))?;
        for name in dead_names(&document, &text, &paths) {
            faults.push(format!("{document}: names `{name}`, which is not there"));
        }
    }
    Ok(faults)
}

/// The names in backticks that are paths and lead nowhere. A crate's README names its own files, and those of others from the
/// root on (`crates/…`); so a file of the same name in another crate does not hide that one's own is gone.
fn dead_names<'a>(document: &str, text: &'a str, paths: &[String]) -> Vec<&'a str> {
    let own = document.strip_suffix("README.md").unwrap_or_default();
    let is_there = |name: &str| {
        let wanted = format!("/{}/", name.trim_end_matches('/'));
        let is_from_root = name.starts_with("crates/");
        paths
            .iter()
            .any(|path| (is_from_root || path.starts_with(own)) && format!("/{path}/").contains(&wanted))
    };
    let prose = text.split("```").step_by(2);
    let quoted = prose.flat_map(|part| part.split('`').skip(1).step_by(2));
    quoted.filter(|name| is_path(name) && !is_there(name)).collect()
}

fn is_path(name: &str) -> bool {
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
    let has_placeholder = PLACEHOLDERS.iter().any(|word| name.contains(word));
    let is_below = |folder: &&str| name.strip_prefix(*folder).is_some_and(|rest| rest.starts_with('/'));
    let is_named = name.ends_with(".rs") || FOLDERS.iter().chain(&["src", "tests"]).any(is_below);
    is_plain && !has_placeholder && is_named && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead<'a>(document: &str, text: &'a str) -> Vec<&'a str> {
        let paths = ["crates/a/src/plan/stages.rs", "crates/b/src/gone.rs", "docs/design.md"];
        dead_names(document, text, &paths.map(str::to_owned))
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let text = "`gone.rs`, `src/gone.rs` and `src/plain/`; `docs/gone.md`";
        assert_eq!(
            dead("crates/a/README.md", text),
            ["gone.rs", "src/gone.rs", "src/plain/", "docs/gone.md"]
        );
        assert_eq!(dead("CONTRIBUTING.md", "`crates/a/src/gone.rs`"), ["crates/a/src/gone.rs"]);
    }

    #[test]
    fn what_is_there_or_no_path_is_right() {
        let text = "`stages.rs`, `plan/`-folders, `src/plan/` and `crates/b/src/gone.rs`; `Disk::of`, `src/NAME.rs`, `*.rs`, \
                    `.rs`, `tests/data/*.case`\n```sh\ncat `gone.rs`\n```\n`crates/a`";
        assert_eq!(dead("crates/a/README.md", text), Vec::<&str>::new());
        assert_eq!(
            dead("CONTRIBUTING.md", "`gone.rs`, `docs/design.md`, `crates/a/src/`"),
            Vec::<&str>::new()
        );
    }

    #[test]
    fn the_maps_of_this_house_lead_somewhere() {
        assert_eq!(faults(&crate::root()).unwrap(), Vec::<String>::new());
    }
}
