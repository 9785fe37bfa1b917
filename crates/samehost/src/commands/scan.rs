//! `samehost scan`: what talks to what on this machine, and what could be done about it.

use std::io::Write;

use anyhow::Context;

use crate::cli::ScanOptions;
use crate::exit::Ending;
use crate::output;

pub fn scan(options: &ScanOptions) -> anyhow::Result<Ending> {
    let mut scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
    samehost_scan::advise(&mut scan);
    let mut bytes = Vec::new();
    if options.json {
        serde_json::to_writer(&mut bytes, &scan)?;
        bytes.push(b'\n');
    } else {
        output::terminal().render_scan(&scan, &mut bytes)?;
    }
    std::io::stdout().write_all(&bytes).context("standard output")?;
    Ok(Ending::Done)
}
