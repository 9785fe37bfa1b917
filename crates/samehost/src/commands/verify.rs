//! `samehost verify`: which transport is really in use, with proof.

use std::io::Write;

use anyhow::Context;
use samehost_login::Credentials;
use samehost_model::Secret;
use samehost_scan::{Target, TargetError};

use crate::cli::VerifyOptions;
use crate::exit::{Ending, WrongUse};
use crate::output;

pub fn verify(options: &VerifyOptions) -> anyhow::Result<Ending> {
    let target: Target = options.target.parse().map_err(|error: TargetError| WrongUse(error.to_string()))?;
    let (credentials, note) = credentials(&target, options)?;
    let mut found = samehost_scan::verify(&target, &options.target, &credentials, env!("CARGO_PKG_VERSION"))?;
    found.notes.extend(note);
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

/// Whom to log in as. The kernel's proofs need nobody, so a file that cannot be used is a note.
fn credentials(target: &Target, options: &VerifyOptions) -> anyhow::Result<(Credentials, Option<String>)> {
    let Target::Address { protocol, endpoint, .. } = target else { return Ok(Default::default()) };
    let (mut credentials, note) = match Credentials::of(*protocol, &options.target, endpoint) {
        Ok(credentials) => (credentials, None),
        Err(error) => (Credentials::default(), Some(error.to_string())),
    };
    if options.ask_password {
        let password = rpassword::prompt_password("Password: ").context(
            "asking for a password needs a terminal; the environment or an option file gives one too",
        )?;
        credentials.password = Some(Secret::new(password));
    }
    Ok((credentials, note))
}
