//! The hidden verbs that keep private servers from outliving us; see `samehost_bench::fixtures`.

use anyhow::Context;

use crate::cli::{BecomeServerOptions, SuperviseOptions};
use crate::exit::Ending;

pub fn supervise(options: &SuperviseOptions) -> anyhow::Result<Ending> {
    let program = std::env::current_exe().context("finding this program")?;
    let status = samehost_bench::fixtures::supervise(&program, &options.directory, &options.command)?;
    Ok(if status.success() { Ending::Done } else { Ending::CutShort })
}

pub fn become_server(options: &BecomeServerOptions) -> anyhow::Result<Ending> {
    Err(samehost_bench::fixtures::replace_with_server(options.parent, &options.command).into())
}
