//! Packages of the static program: in fresh roots of Debian, in a root of rpm, in podman, and what lintian says of them. Longer
//! than a test may take.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::Account;

const NEEDED: &[(&str, &str)] = &[
    ("/usr/bin/mmdebstrap", "mmdebstrap"),
    ("/usr/bin/podman", "podman"),
    ("/usr/bin/crun", "crun"),
    ("/usr/bin/lintian", "lintian"),
    ("/usr/bin/rpm", "rpm"),
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/usr/bin/cpio", "cpio"),
];

/// Parts: `--only` names one.
const TESTS: &str = "tests";
const UNIT: &str = "unit";

pub(super) fn packages(account: &mut Account<'_>) -> anyhow::Result<()> {
    super::need(NEEDED)?;
    let program = crate::dist::program()?;
    let (is_tests, is_unit) = match account.only.as_deref() {
        None => (true, true),
        Some(only) => (only == TESTS, only == UNIT),
    };
    ensure!(is_tests || is_unit, "no part is called that; there are {TESTS}, {UNIT}");
    if is_tests {
        tests(account, &program)?;
    }
    if is_unit {
        super::sandbox::sandbox(account, &program)?;
    }
    Ok(())
}

/// The tests of packages, those that are too long for `cargo xtask test` too.
fn tests(account: &mut Account<'_>, program: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--all-features", "--locked", "-p", "xtask", "package::tests"]);
    test.args(["--", "--include-ignored", "--nocapture", "--test-threads=1"]).current_dir(account.root);
    test.env("SAMEHOST_BINARY", program);
    let output = test.output().context("starting cargo")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for line in said.lines().filter_map(|line| line.split_once("held: ")) {
        account.tell(&format!("{TESTS} | {}", line.1));
    }
    if !output.status.success() {
        bail!("{said}{errors}");
    }
    Ok(())
}
