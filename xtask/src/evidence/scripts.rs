//! Evidence that a script gathers, which stands beside what it proves: packages, and clients under `run`.
//! `packaging/checking.py` says what a script is given and what it has to do.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use super::Account;
use crate::{cargo, debug_program, suite, target};

pub(super) fn prometheus(account: &mut Account<'_>) -> anyhow::Result<()> {
    gather(account, "packaging/prometheus/check", &debug_program()?, &[])
}

pub(super) fn client_suites(account: &mut Account<'_>) -> anyhow::Result<()> {
    gather(account, "crates/samehost/tests/clients/check", &debug_program()?, &[])
}

pub(super) fn own_trials(account: &mut Account<'_>) -> anyhow::Result<()> {
    gather(account, "crates/samehost/tests/trials/check", &crate::release_program()?, &[])
}

pub(super) fn ansible(account: &mut Account<'_>) -> anyhow::Result<()> {
    cargo(&["build", "--locked", "-p", "samehost"])?;
    let (program, folder) = (target().join("debug/samehost"), tempfile::tempdir()?);
    let package = crate::package::quick_deb(&program, folder.path())?;
    gather(account, "packaging/ansible/check", &program, &[("PACKAGE", package)])
}

pub(super) fn kubernetes(account: &mut Account<'_>) -> anyhow::Result<()> {
    let (program, folder) = (crate::dist::program()?, tempfile::tempdir()?);
    let (version, epoch) = (env!("CARGO_PKG_VERSION"), crate::dist::epoch()?);
    let licences = crate::dist::licences_of_others()?;
    let packages = crate::package::all(&program, version, epoch, &licences, folder.path())?;
    let image = packages
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "tar"))
        .context("no image: the program is not static")?;
    gather(account, "packaging/kubernetes/check", &program, &[("IMAGE", image)])
}

/// Runs a script of the repository, and keeps what it writes to standard output, line by line.
fn gather(
    account: &mut Account<'_>,
    script: &str,
    program: &Path,
    variables: &[(&str, PathBuf)],
) -> anyhow::Result<()> {
    let mut command = Command::new(account.root.join(script));
    command.args(&account.only).env("SAMEHOST", program).env("CARGO_TARGET_DIR", target());
    command.envs(variables.iter().cloned()).env("PYTHONDONTWRITEBYTECODE", "1").stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("starting {script}"))?;
    let output = child.stdout.take().context("its output is read once")?;
    for line in BufReader::new(output).lines() {
        account.tell(&line?);
    }
    let status = child.wait()?;
    ensure!(status.success(), "{script} ended with {status}: it wrote above what is wrong");
    Ok(())
}

// How long the tests take: what `cargo xtask test` says beforehand to those who have not run it yet.

pub(super) fn suites(account: &mut Account<'_>) -> anyhow::Result<()> {
    suite::quick()?;
    suite::all()?;
    let kept = fs::read_to_string(suite::kept()).with_context(|| suite::kept().display().to_string())?;
    kept.lines().for_each(|line| account.tell(line));
    Ok(())
}

// The rows of `samehost how` whose clients take longer to build than a test may: those in Rust.

/// The test that holds them, which `cargo test` leaves out.
const TEST: &str = "every_row_of_rust_does_what_it_says";

pub(super) fn clients(account: &mut Account<'_>) -> anyhow::Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--all-features", "--locked", "-p", "samehost", "--test", "e2e"]);
    test.args([TEST, "--", "--ignored", "--nocapture"]).current_dir(account.root);
    let output = test.output().context("starting cargo")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    account.tell("client | has to use | over, in its server's words | its words");
    for line in said.lines().filter_map(|line| line.strip_prefix("held: ")) {
        account.tell(line);
    }
    if !output.status.success() {
        bail!("{TEST}: {said}{errors}");
    }
    Ok(())
}
