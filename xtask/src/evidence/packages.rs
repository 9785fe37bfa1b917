//! Packages in fresh roots of Debian, and the image in podman: longer than a test may take.

use std::process::Command;

use anyhow::{Context, bail};

use super::Account;

pub(super) fn packages(account: &mut Account<'_>) -> anyhow::Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--all-features", "--locked", "-p", "xtask", "package::tests::suites"]);
    test.args(["--", "--ignored", "--nocapture", "--test-threads=1"]).current_dir(account.root);
    let output = test.output().context("starting cargo")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    account.tell("where | what was found");
    for line in said.lines().filter_map(|line| line.split_once("held: ")) {
        account.tell(line.1);
    }
    if !output.status.success() {
        bail!("{said}{errors}");
    }
    Ok(())
}
