//! `samehost verify`: which transport is really in use, with proof.

use std::io::Write;

use anyhow::Context;
use samehost_scan::{Target, TargetError};

use crate::cli::VerifyOptions;
use crate::exit::{Ending, WrongUse};
use crate::output;

pub fn verify(options: &VerifyOptions) -> anyhow::Result<Ending> {
    let target: Target = options.target.parse().map_err(|error: TargetError| WrongUse(error.to_string()))?;
    let mut found = samehost_scan::verify(&target, &options.target, env!("CARGO_PKG_VERSION"))?;
    if let Some(expected) = &options.expect {
        samehost_scan::expect(&mut found, expected);
    }
    let mut bytes = Vec::new();
    if options.json {
        serde_json::to_writer_pretty(&mut bytes, &found)?;
        bytes.push(b'\n');
    } else {
        output::terminal().render_verification(&found, &mut bytes)?;
    }
    std::io::stdout().write_all(&bytes).context("standard output")?;
    Ok(if found.as_expected == Some(false) { Ending::Finding } else { Ending::Done })
}
