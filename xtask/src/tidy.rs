//! House rules as code (docs/design.md): module documentation, length of files and functions, meaningful names.

use std::fs;
use std::path::Path;

use anyhow::bail;
use samehost_services::Kind;

use crate::files::walk;
use crate::gauge::{self, Source};

/// Length of a source file, in lines, above which tidy suggests a review.
const LONG_FILE: usize = 600;
/// Maximum length of a function, in lines from its signature to its closing brace.
const LONGEST_FUNCTION: usize = 60;
/// The crates with `unsafe`.
const UNSAFE: [&str; 3] = ["samehost-bpf", "samehost-preload", "samehost-seccomp"];
/// File names that do not describe the contents.
const EMPTY_NAMES: &[&str] =
    &["util.rs", "utils.rs", "helpers.rs", "helper.rs", "misc.rs", "common.rs", "manager.rs"];

/// Checks all source files below `root`.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut complaints = Vec::new();
    let mut sources = Vec::new();
    let mut files = 0;
    for folder in ["crates", "xtask"] {
        walk(&root.join(folder), "rs", &mut |path| {
            let text = &fs::read_to_string(path)?;
            files += 1;
            complaints
                .extend(faults(path, text).into_iter().map(|fault| format!("{}: {fault}", path.display())));
            // The gauge names what it looks for.
            let is_counted = !is_test(path) && !path.ends_with("gauge.rs");
            if is_counted && path.components().any(|part| part.as_os_str() == "src") {
                let own = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
                sources.push(Source { path: path.strip_prefix(root)?.to_owned(), text: own.to_owned() });
            }
            let lines = text.lines().count();
            if lines > LONG_FILE && !is_test(path) {
                println!("warning: {}: {lines} lines, more than {LONG_FILE}", path.display());
            }
            Ok(())
        })?;
    }
    walk(&root.join("crates"), "toml", &mut |path| {
        if path.ends_with("Cargo.toml") {
            let text = fs::read_to_string(path)?;
            complaints.extend(lints_fault(path, &text).map(|fault| format!("{}: {fault}", path.display())));
        }
        Ok(())
    })?;
    if files == 0 {
        bail!("no source file below {}", root.display());
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    complaints.extend(gauge::read(&sources));
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
    if !text.starts_with("//!") && !text.starts_with("#!") {
        faults.push("begins without `//!`: say what it is and what it must not do".into());
    }
    if !is_test(path) {
        let long = long_functions(text).into_iter();
        faults.extend(
            long.map(|(name, lines)| format!("{name} has {lines} lines, more than {LONGEST_FUNCTION}")),
        );
    }
    if EMPTY_NAMES.contains(&name.as_ref()) {
        faults.push("its name says nothing; name it after the type or verb inside".into());
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_ascii_lowercase();
    // Chores may name any package.
    let is_program = |path: &Path| path.components().any(|part| part.as_os_str() == "crates");
    if is_program(path) && path.components().any(|part| part.as_os_str() == "src") && !is_test(path) {
        for kind in Kind::all().filter(|kind| kind.descriptor().place.is_none()) {
            if code.contains(kind.name()) {
                faults
                    .push(format!("names {kind}: what is its own stands in its descriptor, and only there"));
            }
        }
    }
    for word in ["TODO", "FIXME", "XXX"] {
        if text.contains(word) && name != "tidy.rs" {
            faults.push(format!("has a {word}: do it or write it down as an issue"));
        }
    }
    faults
}

/// A package takes the workspace's lints, which forbid `unsafe`, or is one that says why each block is sound.
fn lints_fault(path: &Path, manifest: &str) -> Option<String> {
    let is_unsafe = path.components().any(|part| UNSAFE.iter().any(|name| part.as_os_str() == *name));
    let wanted =
        if is_unsafe { "undocumented_unsafe_blocks = \"deny\"" } else { "[lints]\nworkspace = true" };
    let is_package = manifest.contains("[package]") && path.parent()?.parent()?.ends_with("crates");
    (is_package && !manifest.contains(wanted)).then(|| format!("lacks `{wanted}`"))
}

/// Whether a source has only tests.
pub(crate) fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

/// Functions that are too long, with their lengths. Ends are found by indentation, which rustfmt guarantees.
fn long_functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some((before, after)) = code.split_once("fn ") else { continue };
        let is_signature = before.is_empty() || before.starts_with("pub") || before == "const ";
        if !is_signature || code.ends_with('}') || code.ends_with(';') {
            continue;
        }
        let closing = format!("{}}}", &line[..line.len() - code.len()]);
        let Some(length) = lines[start..].iter().position(|line| *line == closing) else { continue };
        if length + 1 > LONGEST_FUNCTION {
            let name = after.split(['(', '<']).next().unwrap_or_default();
            long.push((name.to_owned(), length + 1));
        }
    }
    long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_without_the_lints_are_found() {
        let fault = |name: &str, text: &str| {
            lints_fault(Path::new(&format!("crates/{name}/Cargo.toml")), &format!("[package]\n{text}"))
                .is_some()
        };
        assert!(!fault("a", "[lints]\nworkspace = true\n"));
        assert!(fault("a", "undocumented_unsafe_blocks = \"deny\""));
        assert!(!fault("samehost-seccomp", "undocumented_unsafe_blocks = \"deny\""));
        assert!(fault("samehost-seccomp", "[lints]\nworkspace = true\n"));
    }

    #[test]
    fn faults_are_found() {
        let fault_count = |path: &str, text: &str| faults(Path::new(path), text).len();
        assert_eq!(fault_count("crates/a/src/endpoint.rs", "//! An endpoint.\n"), 0);
        assert_eq!(fault_count("crates/a/src/utils.rs", "//! Things.\n"), 1);
        assert_eq!(fault_count("crates/a/src/endpoint.rs", "fn f() {}\n"), 1);
        let long = format!("//! x\npub fn f(a: u8) -> u8 {{\n{}    a\n}}\n", "    let a = a;\n".repeat(58));
        assert_eq!(fault_count("crates/a/src/endpoint.rs", &long), 1);
        assert_eq!(fault_count("crates/a/src/endpoint.rs", &long.replacen("    let a = a;\n", "", 1)), 0);
        assert_eq!(fault_count("crates/a/tests/all.rs", &long), 0);
        let valkey = "//! x\nfn f() -> &str { \"valkey\" }\n";
        assert_eq!(fault_count("crates/a/src/endpoint.rs", valkey), 1);
        assert_eq!(fault_count("crates/a/src/endpoint.rs", &format!("//! x\n#[cfg(test)]\n{valkey}")), 0);
    }
}
