//! `samehost scan`: connections on this machine, and advice; or what changed since an earlier scan.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use samehost_model::scan::{EXPECTATION_SCHEMA, Scan, Unexpected};
use samehost_report::Notes;
use samehost_scan::{Expectation, Filter, Timed};
use samehost_system::{clock, interrupt, open};
use serde_json::json;

use super::scan_changes::{Baseline, show_changes};
use super::scan_metrics::Receivers;
use super::sends_at_once::ask;
use crate::calibration::price;
use crate::cli::ScanOptions;
use crate::exit::Ending;
use crate::scans::Scans;
use crate::wrong_use::WrongUse;
use crate::{exit, output, signals};

/// Longest file of `--expect`, in bytes: some ten thousand rules.
const LONGEST: u64 = 1 << 20;
const PERIODS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
/// From one look for a signal to the next, between two scans.
const LOOK: Duration = Duration::from_millis(250);

pub fn scan(options: &ScanOptions) -> anyhow::Result<Ending> {
    for (option, period) in [("--observe", options.observe), ("--every", options.every)] {
        if period.is_some_and(|period| !PERIODS.contains(&period)) {
            return Err(WrongUse(format!("{option} takes 1s to 24h")).into());
        }
    }
    options.every.map_or_else(|| once(options), |period| again_and_again(options, period))
}

/// Scans until a signal comes: that is how it is meant to end. What is wrong from the start ends it; what fails later
/// may be there the next time, such as a receiver that starts after it.
fn again_and_again(options: &ScanOptions, period: Duration) -> anyhow::Result<Ending> {
    drop(Destinations::open(options)?);
    signals::watch()?;
    while !interrupt::is_requested() {
        let next = Instant::now() + period;
        match once(options) {
            // A signal ends it as well in the middle of a scan as between two.
            Err(_) if interrupt::is_requested() => return Ok(Ending::Done),
            Err(error) if exit::is_final(&error) => return Err(error),
            Err(error) => output::complain(&exit::in_full(&error)),
            Ok(_) if output::has_no_reader() => return Ok(Ending::Done),
            Ok(_) => {}
        }
        while !interrupt::is_requested()
            && let left = next.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            std::thread::sleep(left.min(LOOK));
        }
    }
    Ok(Ending::Done)
}

/// What a scan is compared with, and where it goes.
struct Destinations {
    earlier: Option<Baseline>,
    expectation: Option<Expectation>,
    history: Option<Scans>,
    receivers: Receivers,
}

impl Destinations {
    /// Opened first: a place that is not safe is known before a long observation.
    fn open(options: &ScanOptions) -> anyhow::Result<Self> {
        Ok(Destinations {
            earlier: options.since.as_ref().map(|since| Baseline::open(since, options.save)).transpose()?,
            expectation: options.expect.as_deref().map(expectation).transpose()?,
            history: options.save.then(Scans::open).transpose()?,
            receivers: Receivers::open(options)?,
        })
    }
}

fn once(options: &ScanOptions) -> anyhow::Result<Ending> {
    let Destinations { earlier, expectation, history, receivers } = Destinations::open(options)?;
    let interrupted = interrupt::flag();
    let (at, begun) = (Timestamp::now(), Instant::now());
    let is_compared = history.is_some() || earlier.is_some() || expectation.is_some() || !receivers.is_none();
    let timed = if options.exact { Timed::Exactly } else { Timed::Cheaply };
    let observed = options.observe.map(|period| (period, timed));
    let found = look(observed, options.greet, options.quiet, &interrupted).and_then(|scan| {
        let taken_at = clock::utc(at);
        let inventory = is_compared.then(|| samehost_scan::inventory(&scan, &taken_at)).transpose()?;
        Ok((scan, inventory))
    });
    let inventory = found.as_ref().ok().and_then(|(_, inventory)| inventory.as_ref());
    let checked = expectation.zip(inventory).map(|(expectation, inventory)| expectation.hold(inventory));
    // Also of a scan that failed: what an earlier one found must not look current.
    let ending = receivers.tell(found.as_ref().ok(), checked.as_ref(), at, begun.elapsed());
    let (scan, inventory) = match found {
        Ok(found) => found,
        Err(error) => {
            if let Err(error) = ending {
                output::complain(&exit::in_full(&error));
            }
            return Err(error);
        }
    };
    let mut is_changed = false;
    let is_unexpected = checked.as_ref().is_some_and(|checked| !checked.unexpected.is_empty());
    if let (Some(earlier), Some(inventory)) = (earlier, &inventory) {
        let changes = earlier.changes(inventory)?;
        is_changed = changes.is_changed;
        show_changes(&changes, options.json)?;
    } else if options.json || receivers.is_none() {
        match checked {
            Some(checked) => show_unexpected(&checked.unexpected, options.json)?,
            None => show(scan, options)?,
        }
    }
    if let (Some(history), Some(inventory)) = (&history, &inventory) {
        history.keep(inventory, at)?;
    }
    ending?;
    Ok(if interrupted.load(Ordering::Relaxed) {
        Ending::Interrupted
    } else if options.fail_on_change && is_changed || is_unexpected {
        Ending::Finding
    } else {
        Ending::Done
    })
}

/// Reads the file of `--expect`.
fn expectation(path: &Path) -> anyhow::Result<Expectation> {
    let text = open::read(path, LONGEST).map_err(|error| WrongUse(format!("{}: {error}", path.display())))?;
    let expectation = Expectation::parse(&String::from_utf8_lossy(&text));
    Ok(expectation.map_err(|error| WrongUse(format!("{}, {error}", path.display())))?)
}

fn show_unexpected(unexpected: &[Unexpected], json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(&json!({ "schema": EXPECTATION_SCHEMA, "unexpected": unexpected }));
    }
    output::show(|terminal, out| terminal.render_unexpected(unexpected, out))
}

fn show(mut scan: Scan, options: &ScanOptions) -> anyhow::Result<()> {
    let filter = Filter { names: options.names.clone(), ports: options.port.clone() };
    filter.apply(&mut scan);
    if options.json {
        return output::print_scan_as_json(&scan);
    }
    let notes = if filter.is_none() { Notes::Brief } else { Notes::Whole };
    output::show(|terminal, out| terminal.render_scan(&scan, notes, out))
}

/// A scan with advice and, if traffic was observed, predicted savings.
pub fn look(
    observe: Option<(Duration, Timed)>,
    greet: bool,
    quiet: bool,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<Scan> {
    let mut scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
    if greet {
        samehost_scan::greet(&mut scan);
    }
    samehost_scan::advise(&mut scan);
    scan.dropped = samehost_scan::dropped(&scan);
    scan.findings = samehost_scan::findings(&scan);
    let held_back = match observe {
        Some((period, timed)) => {
            // After an interrupt, results so far are shown and private servers are stopped.
            signals::watch()?;
            samehost_scan::observe(&mut scan, period, timed, interrupted)
        }
        None => samehost_scan::held_back(&scan),
    };
    scan.findings.extend(held_back.findings(&scan, &ask(&held_back.senders(&scan))));
    if let Some((period, _)) = observe {
        price(&mut scan, period, interrupted, quiet)?;
    }
    Ok(scan)
}
