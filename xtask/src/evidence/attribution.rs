//! Whose the short connections are that `scan --observe` tells of: the test of that, with a hundred scans.

use std::process::Command;

use anyhow::{Context, bail};

use super::Account;

/// The test that makes the scans; `cargo test` makes two.
const TEST: &str = "short_connections_are_booked_on_who_opened_them";
const SCANS: &str = "100";

pub(super) fn attribution(account: &mut Account<'_>) -> anyhow::Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--all-features", "--locked", "-p", "samehost", "--test", "e2e"]);
    test.args([TEST, "--", "--nocapture"]).env("SAMEHOST_SCANS", SCANS).current_dir(account.root);
    test.env("SAMEHOST_PROGRAM", crate::release_program()?);
    let output = test.output().context("starting cargo")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    account.tell("short connections of an observation that were booked on each program, and what it opened while the scan ran");
    for line in said.lines().filter_map(|line| line.strip_prefix("booked: ")) {
        account.tell(line);
    }
    if !output.status.success() {
        bail!("{TEST}: {said}{errors}");
    }
    Ok(())
}
