//! The workflows of GitHub: that they use nothing that others can change, and that actionlint has no complaint.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::files::names;
use crate::{servers, succeed};

const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint";
const VERSION: &str = "v1.7.7";

/// Checks all workflows.
pub(crate) fn lint() -> anyhow::Result<()> {
    let folder = crate::root().join(".github/workflows");
    let files: Vec<PathBuf> = names(&folder)?.iter().map(|name| folder.join(name)).collect();
    let mut complaints = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        complaints.extend(faults(&text).into_iter().map(|fault| format!("{}: {fault}", file.display())));
    }
    if !complaints.is_empty() {
        bail!("workflows:\n  {}", complaints.join("\n  "));
    }
    match actionlint() {
        Ok(program) => {
            succeed(Command::new(program).arg("-no-color").args(&files)).context("actionlint")?;
            println!("actionlint {VERSION}: {} workflow", files.len());
        }
        Err(error) => println!("workflows are not linted here, only read: {error:#}"),
    }
    Ok(())
}

/// actionlint, built once from Go's proxy, which also says whether it is the one that everybody gets.
fn actionlint() -> anyhow::Result<PathBuf> {
    let folder = crate::target().join("actionlint").join(VERSION);
    let program = folder.join("bin/actionlint");
    if program.is_file() {
        return Ok(program);
    }
    if !servers::is_there("go") {
        bail!("Go is missing, which builds actionlint: apt-get install golang-go");
    }
    let mut go = Command::new("go");
    go.args(["install", &format!("{ACTIONLINT}@{VERSION}")]).env("GOBIN", folder.join("bin"));
    // Without -modcacherw nobody but root could remove the folder.
    go.env("GOMODCACHE", folder.join("mod")).env("GOFLAGS", "-modcacherw").env("GOTOOLCHAIN", "local");
    go.env("CGO_ENABLED", "0");
    succeed(&mut go).context("proxy.golang.org is where it comes from (GOPROXY names another)")?;
    let modules: &Path = &folder.join("mod");
    fs::remove_dir_all(modules).with_context(|| modules.display().to_string())?;
    Ok(program)
}

/// What could be changed from outside, and what has more permissions than it says.
fn faults(workflow: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !workflow.lines().any(|line| line.trim_end() == "permissions: {}") {
        faults.push("no `permissions: {}`: each job says for itself what it may".to_owned());
    }
    let uses =
        workflow.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses: "));
    for action in uses {
        let commit =
            action.split_once('@').map_or("", |(_, rest)| rest.split(' ').next().unwrap_or_default());
        if commit.len() != 40 || !commit.bytes().all(|one| one.is_ascii_hexdigit()) {
            faults.push(format!("{action} is not pinned: name the commit in place of a tag"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_change_is_found() {
        let pinned = "- uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2\n";
        let workflow = |permissions: &str, uses: &str| format!("on: push\n{permissions}\njobs:\n  {uses}");
        assert_eq!(faults(&workflow("permissions: {}", pinned)), Vec::<String>::new());
        assert_eq!(faults(&workflow("permissions: write-all", pinned)).len(), 1);
        for loose in ["- uses: actions/checkout@v4\n", "uses: actions/checkout\n", "uses: a/b@main # 11bd\n"]
        {
            assert_eq!(faults(&workflow("permissions: {}", loose)).len(), 1, "{loose}");
        }
    }

    #[test]
    fn our_own_use_nothing_that_others_can_change() {
        let folder = crate::root().join(".github/workflows");
        let all = names(&folder).unwrap();
        assert!(!all.is_empty());
        for name in all {
            let text = fs::read_to_string(folder.join(&name)).unwrap();
            assert_eq!(faults(&text), Vec::<String>::new(), "{name}");
        }
    }
}
