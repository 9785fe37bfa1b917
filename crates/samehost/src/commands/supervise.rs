//! Hidden verbs that stop private servers when this program is gone; see `samehost_bench::private_servers`.

use std::io::Write;

use anyhow::Context;
use samehost_bench::private_servers::{End, supervise as supervise_server};

use crate::cli::{BecomeServerOptions, SuperviseOptions};
use crate::exit::Ending;

pub fn supervise(options: &SuperviseOptions) -> anyhow::Result<Ending> {
    let program = std::env::current_exe().context("finding this program")?;
    let end = if options.at_once { End::AtOnce } else { End::Asked };
    let status = supervise_server(&program, &options.directory, options.account, end, &options.command)?;
    Ok(if status.success() { Ending::Done } else { Ending::CutShort })
}

pub fn become_server(options: &BecomeServerOptions) -> anyhow::Result<Ending> {
    Err(samehost_bench::private_servers::replace_with_server(
        options.parent,
        options.account,
        &options.command,
    )
    .into())
}

/// Whether this user can create a network namespace; prints the reason if not.
pub fn try_own_network() -> anyhow::Result<Ending> {
    match samehost_bench::network::try_own_network() {
        Ok(()) => Ok(Ending::Done),
        Err(error) => {
            writeln!(std::io::stderr(), "{error}")?;
            Ok(Ending::CutShort)
        }
    }
}
