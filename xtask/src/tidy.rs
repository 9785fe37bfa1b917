//! House rules as code (docs/design.md): module documentation, length of files and functions, meaningful names. And the rules
//! of the workflows of GitHub: they use nothing that others can change, and actionlint has no complaint.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use samehost_services::Kind;

use crate::gauge::{self, Source};
use crate::process::{find_program, succeed};
use crate::{files, maps, names};

/// Length of a source file, in lines, above which tidy suggests a review.
const LONG_FILE: usize = 600;
/// Maximum length of a function, in lines from its signature to its closing brace.
const LONGEST_FUNCTION: usize = 60;
const CRATES_WITH_UNSAFE: [&str; 3] = ["samehost-bpf", "samehost-preload", "samehost-seccomp"];
const EMPTY_NAMES: &[&str] =
    &["util.rs", "utils.rs", "helpers.rs", "helper.rs", "misc.rs", "common.rs", "manager.rs"];

/// Checks all sources and manifests below `root`, and prints the figures of the gauge. The error names every fault.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut complaints = Vec::new();
    let mut sources = Vec::new();
    let all = [files(&root.join("crates"), &["rs"])?, files(&root.join("xtask"), &["rs"])?].concat();
    for path in &all {
        let text = &fs::read_to_string(path)?;
        for fault in faults(path, text) {
            complaints.push(format!("{}: {fault}", path.display()));
        }
        // The gauge names what it looks for.
        let is_counted = !is_test(path) && !path.ends_with("gauge.rs");
        if is_counted && is_below(path, "src") {
            let own = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            sources.push(Source { path: path.strip_prefix(root)?.to_owned(), text: own.to_owned() });
        }
        let lines = text.lines().count();
        if lines > LONG_FILE && !is_test(path) {
            println!("warning: {}: {lines} lines, more than {LONG_FILE}", path.display());
        }
    }
    for path in files(&root.join("crates"), &["toml"])? {
        if path.ends_with("Cargo.toml")
            && let Some(fault) = lints_fault(&path, &fs::read_to_string(&path)?)
        {
            complaints.push(format!("{}: {fault}", path.display()));
        }
    }
    ensure!(!all.is_empty(), "no source file below {}", root.display());
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    complaints.extend(gauge::read(root, &sources)?);
    complaints.extend(maps::faults(root)?);
    if complaints.is_empty() {
        println!("tidy: {} files", all.len());
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
        for (name, lines) in long_functions(text) {
            faults.push(format!("{name} has {lines} lines, more than {LONGEST_FUNCTION}"));
        }
    }
    if EMPTY_NAMES.contains(&name.as_ref()) {
        faults.push("its name says nothing; name it after the type or verb inside".into());
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_ascii_lowercase();
    // Chores may name any package.
    if is_below(path, "crates") && is_below(path, "src") && !is_test(path) {
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
    let is_unsafe = CRATES_WITH_UNSAFE.iter().any(|name| is_below(path, name));
    let wanted =
        if is_unsafe { "undocumented_unsafe_blocks = \"deny\"" } else { "[lints]\nworkspace = true" };
    let is_package = manifest.contains("[package]") && path.parent()?.parent()?.ends_with("crates");
    (is_package && !manifest.contains(wanted)).then(|| format!("lacks `{wanted}`"))
}

pub(crate) fn is_test(path: &Path) -> bool {
    is_below(path, "tests") || is_below(path, "tests.rs")
}

fn is_below(path: &Path, name: &str) -> bool {
    path.components().any(|part| part.as_os_str() == name)
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

const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint";
const ACTIONLINT_VERSION: &str = "v1.7.7";

pub(crate) fn lint_workflows() -> anyhow::Result<()> {
    let folder = crate::root().join(".github/workflows");
    let files: Vec<PathBuf> = names(&folder)?.iter().map(|name| folder.join(name)).collect();
    let mut complaints = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        for fault in workflow_faults(&text) {
            complaints.push(format!("{}: {fault}", file.display()));
        }
    }
    if !complaints.is_empty() {
        bail!("workflows:\n  {}", complaints.join("\n  "));
    }
    match actionlint() {
        Ok(program) => {
            succeed(Command::new(program).arg("-no-color").args(&files)).context("actionlint")?;
            println!("actionlint {ACTIONLINT_VERSION}: {} workflow", files.len());
        }
        Err(error) => println!("workflows are not linted here, only read: {error:#}"),
    }
    Ok(())
}

/// actionlint, built once from Go's proxy, which also says whether it is the one that everybody gets.
fn actionlint() -> anyhow::Result<PathBuf> {
    let folder = crate::target().join("actionlint").join(ACTIONLINT_VERSION);
    let program = folder.join("bin/actionlint");
    if program.is_file() {
        return Ok(program);
    }
    if find_program("go").is_none() {
        bail!("Go is missing, which builds actionlint: apt-get install golang-go");
    }
    let mut go = Command::new("go");
    go.args(["install", &format!("{ACTIONLINT}@{ACTIONLINT_VERSION}")]).env("GOBIN", folder.join("bin"));
    // Without -modcacherw nobody but root could remove the folder.
    go.env("GOMODCACHE", folder.join("mod")).env("GOFLAGS", "-modcacherw").env("GOTOOLCHAIN", "local");
    go.env("CGO_ENABLED", "0");
    succeed(&mut go).context("proxy.golang.org is where it comes from (GOPROXY names another)")?;
    fs::remove_dir_all(folder.join("mod"))?;
    Ok(program)
}

/// What could be changed from outside, and what has more permissions than it says.
fn workflow_faults(workflow: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !workflow.lines().any(|line| line.trim_end() == "permissions: {}") {
        faults.push("no `permissions: {}`: each job says for itself what it may".to_owned());
    }
    for line in workflow.lines() {
        let Some(action) = line.trim().trim_start_matches("- ").strip_prefix("uses: ") else { continue };
        let (_, version) = action.split_once('@').unwrap_or_default();
        let commit = version.split(' ').next().unwrap_or_default();
        if commit.len() != 40 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            faults.push(format!("{action} is not pinned: name the commit in place of a tag"));
        }
    }
    faults
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

    #[test]
    fn what_others_can_change_is_found() {
        let pinned = "- uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2\n";
        let workflow = |permissions: &str, uses: &str| format!("on: push\n{permissions}\njobs:\n  {uses}");
        assert_eq!(workflow_faults(&workflow("permissions: {}", pinned)), Vec::<String>::new());
        assert_eq!(workflow_faults(&workflow("permissions: write-all", pinned)).len(), 1);
        for loose in ["- uses: actions/checkout@v4\n", "uses: actions/checkout\n", "uses: a/b@main # 11bd\n"]
        {
            assert_eq!(workflow_faults(&workflow("permissions: {}", loose)).len(), 1, "{loose}");
        }
    }

    #[test]
    fn our_own_use_nothing_that_others_can_change() {
        let folder = crate::root().join(".github/workflows");
        let all = names(&folder).unwrap();
        assert!(!all.is_empty());
        for name in all {
            let text = fs::read_to_string(folder.join(&name)).unwrap();
            assert_eq!(workflow_faults(&text), Vec::<String>::new(), "{name}");
        }
    }
}
