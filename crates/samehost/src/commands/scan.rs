//! `samehost scan`: connections on this machine, and advice.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use samehost_model::scan::Scan;
use samehost_system::interrupt;

use super::sends_at_once::ask;
use crate::calibration::price;
use crate::cli::ScanOptions;
use crate::exit::Ending;
use crate::wrong_use::WrongUse;
use crate::{output, signals};

const PERIODS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

pub fn scan(options: &ScanOptions) -> anyhow::Result<Ending> {
    if options.observe.is_some_and(|period| !PERIODS.contains(&period)) {
        return Err(WrongUse("--observe takes 1s to 24h".into()).into());
    }
    let interrupted = interrupt::flag();
    let scan = look(options.observe, options.greet, options.quiet, &interrupted)?;
    if options.json {
        output::print_compact_json(&scan)?;
    } else {
        let mut bytes = Vec::new();
        output::terminal().render_scan(&scan, &mut bytes)?;
        std::io::stdout().write_all(&bytes).context("standard output")?;
    }
    Ok(if interrupted.load(Ordering::Relaxed) { Ending::Interrupted } else { Ending::Done })
}

/// A scan with advice and, if traffic was observed, predicted savings.
pub fn look(
    observe: Option<Duration>,
    greet: bool,
    quiet: bool,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<Scan> {
    let mut scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
    if greet {
        samehost_scan::greet(&mut scan);
    }
    samehost_scan::advise(&mut scan);
    scan.findings = samehost_scan::findings(&scan);
    let held_back = match observe {
        Some(period) => {
            // After an interrupt, results so far are shown and private servers are stopped.
            signals::watch()?;
            samehost_scan::observe(&mut scan, period, interrupted)
        }
        None => samehost_scan::held_back(&scan),
    };
    scan.findings.extend(held_back.findings(&scan, &ask(&held_back.senders(&scan))));
    if let Some(period) = observe {
        price(&mut scan, period, interrupted, quiet)?;
    }
    Ok(scan)
}
