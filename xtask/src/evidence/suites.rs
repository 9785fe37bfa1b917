//! How long the tests take: what `cargo xtask test` says beforehand to those who have not run it yet.

use std::fs;

use anyhow::Context;

use super::Account;
use crate::suite;

pub(super) fn suites(account: &mut Account<'_>) -> anyhow::Result<()> {
    suite::quick()?;
    suite::all()?;
    let kept = fs::read_to_string(suite::kept()).with_context(|| suite::kept().display().to_string())?;
    kept.lines().for_each(|line| account.tell(line));
    Ok(())
}
