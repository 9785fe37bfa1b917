//! `samehost how`: configuration of a service for a Unix socket, and how each client connects to it.

use samehost_scan::{HowError, Question, Target, TargetError, UrlParts};

use crate::cli::HowOptions;
use crate::exit::Ending;
use crate::output;
use crate::wrong_use::WrongUse;

pub fn how(options: &HowOptions) -> anyhow::Result<Ending> {
    let wrong = |error: TargetError| WrongUse(error.to_string());
    let url = options.url.as_deref().map(str::parse::<Target>).transpose().map_err(wrong)?;
    let parts = options.url.as_deref().map(UrlParts::of).unwrap_or_default();
    let question = Question { service: options.service.clone(), client: options.client.clone(), url, parts };
    let scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
    let answer =
        samehost_scan::how(&question, &scan).map_err(|error: HowError| WrongUse(error.to_string()))?;
    if options.json {
        output::print_json(&answer)?;
        return Ok(Ending::Done);
    }
    output::show(|terminal, out| terminal.render_how(&answer, out))?;
    Ok(Ending::Done)
}
