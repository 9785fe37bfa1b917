//! Packages of the static program: in fresh roots of Debian, in a root of rpm, in podman, and what lintian says of them. Longer
//! than a test may take.

use std::process::Command;

use anyhow::{Context, bail};

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

pub(super) fn packages(account: &mut Account<'_>) -> anyhow::Result<()> {
    super::need(NEEDED)?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--all-features", "--locked", "-p", "xtask", "package::tests"]);
    test.args(["--", "--include-ignored", "--nocapture", "--test-threads=1"]).current_dir(account.root);
    let program = crate::dist::program()?;
    test.env("SAMEHOST_BINARY", &program);
    let output = test.output().context("starting cargo")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    account.tell("where | what was found");
    for line in said.lines().filter_map(|line| line.split_once("held: ")) {
        account.tell(line.1);
    }
    if !output.status.success() {
        bail!("{said}{errors}");
    }
    super::sandbox::sandbox(account, &program)
}
