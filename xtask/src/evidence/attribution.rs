//! What a test prints when it is asked for more than a test may take: whose the short connections are that `scan --observe` tells of,
//! with a hundred scans; and what it costs a Redis to be looked at, in forty blocks.

use std::process::Command;

use anyhow::{Context, bail};

use super::Account;

pub(super) fn attribution(account: &mut Account<'_>) -> anyhow::Result<()> {
    account.tell("short connections of an observation that were booked on each program, and what it opened while the scan ran");
    printed(account, "short_connections_are_booked_on_who_opened_them", ("SAMEHOST_SCANS", "100"), "booked: ")
}

pub(super) fn watching(account: &mut Account<'_>) -> anyhow::Result<()> {
    account.tell("CPU time of a saturated Redis and its 50 clients a request, while requests are timed ÷ while not, in blocks of 2 × 0.2 s");
    printed(account, "a_redis_that_is_watched_goes_on_as_root", ("SAMEHOST_BLOCKS", "40"), "watched: ")
}

/// Runs a test with a variable that makes it longer, and keeps the lines that it prints for this.
fn printed(
    account: &mut Account<'_>,
    name: &str,
    variable: (&str, &str),
    prefix: &str,
) -> anyhow::Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--all-features", "--locked", "-p", "samehost", "--test", "e2e"]);
    test.args([name, "--", "--nocapture"]).env(variable.0, variable.1).current_dir(account.root);
    test.env("SAMEHOST_PROGRAM", crate::release_program()?);
    let output = test.output().context("starting cargo")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for line in said.lines().filter_map(|line| line.strip_prefix(prefix)) {
        account.tell(line);
    }
    if !output.status.success() {
        bail!("{name}: {said}{errors}");
    }
    Ok(())
}
