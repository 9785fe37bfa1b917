//! The rows of `samehost how` whose clients take longer to build than a test may: those in Rust.

use std::process::Command;

use anyhow::{Context, bail};

use super::Account;

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
