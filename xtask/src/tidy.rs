//! House rules as code (docs/design.md): module docs, no file that grew past its design, no forgotten names.

use std::fs;
use std::path::Path;

use anyhow::bail;

/// A source file longer than this is asking for a split along the design's words.
const LONGEST: usize = 400;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["util.rs", "utils.rs", "helpers.rs", "helper.rs", "misc.rs", "common.rs", "manager.rs"];

/// Checks every source file below `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut complaints = Vec::new();
    let mut files = 0;
    for folder in ["crates", "xtask"] {
        walk(&root.join(folder), &mut |path, text| {
            files += 1;
            complaints
                .extend(faults(path, text).into_iter().map(|fault| format!("{}: {fault}", path.display())));
        })?;
    }
    if files == 0 {
        bail!("no source file below {}", root.display());
    }
    if complaints.is_empty() {
        println!("tidy: {files} files");
        Ok(())
    } else {
        bail!("house rules:\n{}", complaints.join("\n"))
    }
}

fn faults(path: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_test = path.components().any(|part| part.as_os_str() == "tests");
    if !text.starts_with("//!") && !text.starts_with("#!") {
        faults.push("begins without `//!`: say what it is and what it must not do".into());
    }
    let lines = text.lines().count();
    if lines > LONGEST && !is_test {
        faults.push(format!("{lines} lines, more than {LONGEST}: split it along the design's words"));
    }
    if EMPTY_NAMES.contains(&name.as_ref()) {
        faults.push("its name says nothing; name it after the type or verb inside".into());
    }
    for word in ["TODO", "FIXME", "XXX"] {
        if text.contains(word) && name != "tidy.rs" {
            faults.push(format!("has a {word}: do it or write it down as an issue"));
        }
    }
    faults
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path, &str)) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                walk(&path, visit)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path, &fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found() {
        let at = |path: &str, text: &str| faults(Path::new(path), text).len();
        assert_eq!(at("crates/a/src/endpoint.rs", "//! An endpoint.\n"), 0);
        assert_eq!(at("crates/a/src/utils.rs", "//! Things.\n"), 1);
        assert_eq!(at("crates/a/src/endpoint.rs", "fn f() {}\n"), 1);
        assert_eq!(at("crates/a/src/endpoint.rs", &"//! x\n".repeat(401)), 1);
        assert_eq!(at("crates/a/tests/all.rs", &"//! x\n".repeat(401)), 0);
    }
}
