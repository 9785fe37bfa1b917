//! Consent for measuring running servers: shows the impact, prompts, and refuses if it would use too much of
//! the servers' remaining capacity.

use std::io::{self, BufRead, IsTerminal, Write};

use samehost_bench::{BenchError, Impact};

use crate::output;

/// Consent given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// None; a prompt is required.
    Ask,
    /// Within the limits (`--yes`).
    Given,
    /// Also beyond the limits (`--yes=over-limits`).
    OverLimits,
}

impl Consent {
    /// Parses the value of `--yes`.
    pub fn of_option(yes: Option<&str>) -> Self {
        match yes {
            None => Consent::Ask,
            Some("over-limits") => Consent::OverLimits,
            Some(_) => Consent::Given,
        }
    }

    /// Shows the impact on each server, and prompts unless consent was given.
    pub fn of(self, impacts: &[Impact], seconds: f64) -> Result<(), BenchError> {
        let beyond: Vec<String> = impacts
            .iter()
            .flat_map(|impact| impact.beyond.iter().map(move |reason| format!("{}: {reason}", impact.server)))
            .collect();
        let asks = impacts.iter().any(Impact::needs_consent);
        if asks || !beyond.is_empty() {
            for line in lines(impacts, seconds) {
                output::complain(&line);
            }
        }
        if !beyond.is_empty() && self != Consent::OverLimits {
            return Err(BenchError::Usage(format!(
                "nothing was written: {}; --yes=over-limits does it all the same",
                beyond.join("; ")
            )));
        }
        if !asks || self != Consent::Ask {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(BenchError::Usage(
                "nothing was written: others use this server too, and standard input is not a terminal; use --yes to agree".into(),
            ));
        }
        match ask() {
            Ok(true) => Ok(()),
            Ok(false) => Err(BenchError::Usage("nothing was written, and nothing was measured".into())),
            Err(error) => Err(BenchError::io("asking on the terminal", error)),
        }
    }
}

fn lines(impacts: &[Impact], seconds: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for impact in impacts {
        let does = if impact.needs_consent() {
            format!("for at most about {seconds:.0} s, the measurement")
        } else {
            "the measurement only reads".to_owned()
        };
        lines.push(format!("{}: {does}", impact.server));
        lines.extend(impact.does.iter().map(|line| format!("  - {line}")));
        lines.extend(impact.found.iter().chain(&impact.beyond).map(|line| format!("  ({line})")));
    }
    lines
}

fn ask() -> io::Result<bool> {
    let mut stderr = io::stderr();
    write!(stderr, "Do this? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
