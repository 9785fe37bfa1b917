//! `samehost scan`: connections on this machine, and advice; what is over another transport than it is meant to be (`--expect`); or
//! metrics for what watches many hosts (`--prometheus`). And `samehost explain [CODE]`: what a code of a scan means, and what of it is on
//! this machine.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use samehost_model::scan::{EXPECTATION_SCHEMA, Inventory, Scan, Unexpected};
use samehost_model::switch::SwitchHealth;
use samehost_report::{Found, Metric, Notes, metrics_as_prometheus, metrics_of_scan};
use samehost_scan::{
    EXPLANATIONS, Expectation, Filter, Held, ScanError, Timed, at_place, explained, saw_processes,
};
use samehost_system::{interrupt, open};
use serde_json::json;

use super::internal::ask;
use crate::cli::ScanOptions;
use crate::exit::{self, Ending, in_full};
use crate::wrong_use::{WrongUse, of_named_file};
use crate::{output, signals, storage};

/// Longest file of `--expect`, in bytes: some ten thousand rules.
const LONGEST: u64 = 1 << 20;
const PERIODS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
/// Between two scans, from one look for a signal to the next.
const LOOK: Duration = Duration::from_millis(250);

pub fn scan(options: &ScanOptions) -> anyhow::Result<Ending> {
    for (option, period) in [("--observe", options.observe), ("--every", options.every)] {
        if period.is_some_and(|period| !PERIODS.contains(&period)) {
            return Err(WrongUse(format!("{option} takes 1s to 24h")).into());
        }
    }
    match options.every {
        Some(period) => again_and_again(options, period),
        None => once(options),
    }
}

/// Scans until a signal comes: that is how it is meant to end. What is wrong from the start ends it; what fails later
/// may be there the next time, such as a receiver that starts after it.
fn again_and_again(options: &ScanOptions, period: Duration) -> anyhow::Result<Ending> {
    opened(options)?;
    signals::watch()?;
    let mut last = Ending::Done;
    while !interrupt::is_requested() {
        let next = Instant::now() + period;
        match once(options) {
            // A signal ends it as well in the middle of a scan as between two.
            Err(_) if interrupt::is_requested() => return Ok(Ending::Done),
            Err(error) if exit::is_final(&error) => return Err(error),
            Err(error) => {
                output::complain(&in_full(&error));
                last = Ending::CutShort;
            }
            Ok(_) if output::has_no_reader() => return Ok(Ending::Done),
            Ok(ending) => last = ending,
        }
        while !interrupt::is_requested()
            && let left = next.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            std::thread::sleep(left.min(LOOK));
        }
    }
    // Its end by a signal is usual, and says nothing of what it saw.
    Ok(if last == Ending::CutShort { Ending::CutShort } else { Ending::Done })
}

/// What a scan is held against, read before a long observation; and what cannot be written is said then. Leaves nothing behind, should
/// the scan be killed.
fn opened(options: &ScanOptions) -> anyhow::Result<Option<Expectation>> {
    if let Some(path) = &options.prometheus {
        if path == Path::new("-") && options.json {
            return Err(WrongUse("only one output can go to standard output (`-`)".into()).into());
        }
        drop(output::open(path)?);
    }
    options.expect.as_deref().map(expectation).transpose()
}

/// A scan, what it is held against, and where it goes.
///
/// Metrics are written also of a scan that failed: what an earlier one found must not look current. What keeps them from being
/// written is the error of a scan that succeeded, and a message beside the error of one that did not.
fn once(options: &ScanOptions) -> anyhow::Result<Ending> {
    let expectation = opened(options)?;
    let interrupted = interrupt::flag();
    let (at, begun) = (Timestamp::now(), Instant::now());
    let timed = if options.exact { Timed::Exactly } else { Timed::Cheaply };
    let observed = options.observe.map(|period| (period, timed));
    let is_compared = expectation.is_some() || options.prometheus.is_some();
    let found = look(observed, &interrupted).and_then(|scan| {
        if is_compared {
            // What was not seen would count as gone, and nobody as unexpected.
            saw_processes(&scan)?;
        }
        Ok((samehost_scan::inventory(&scan), scan))
    });
    let mut checked = None;
    if let (Some(expectation), Ok((inventory, _))) = (expectation, &found) {
        checked = Some(expectation.hold(inventory));
    }
    let mut written = Ok(());
    if let Some(path) = &options.prometheus {
        let metrics = metrics(found.as_ref().ok(), checked.as_ref(), at, begun.elapsed());
        written = write(path, &metrics);
    }
    let (_, scan) = match found {
        Ok(found) => found,
        Err(error) => {
            if let Err(error) = written {
                output::complain(&in_full(&error));
            }
            return Err(error);
        }
    };
    let mut blind = None;
    let is_unexpected = checked.as_ref().is_some_and(|checked| !checked.unexpected.is_empty());
    if options.json || options.prometheus.is_none() {
        match checked {
            Some(checked) => show_unexpected(&checked.unexpected, options.json)?,
            None => blind = show(scan, options)?,
        }
    }
    written?;
    Ok(if interrupted.load(Ordering::Relaxed) {
        Ending::Interrupted
    } else if is_unexpected {
        Ending::Finding
    } else if let Some(why) = blind {
        output::complain(&why.to_string());
        Ending::CutShort
    } else {
        Ending::Done
    })
}

fn write(path: &Path, metrics: &[Metric]) -> anyhow::Result<()> {
    output::write(output::open_public(path)?, metrics_as_prometheus(metrics).as_bytes())
}

fn expectation(path: &Path) -> anyhow::Result<Expectation> {
    let text = open::read(path, LONGEST).map_err(|error| of_named_file(path, error))?;
    let expectation = Expectation::parse(&String::from_utf8_lossy(&text));
    Ok(expectation.map_err(|error| WrongUse(format!("{}, {error}", path.display())))?)
}

fn show_unexpected(unexpected: &[Unexpected], json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(&json!({ "schema": EXPECTATION_SCHEMA, "unexpected": unexpected }));
    }
    output::show(|terminal, out| terminal.render_unexpected(unexpected, out))
}

/// What is asked for, by words of a command line. A site's directory, or the name of an application, is what its sites connect to, as
/// switch and verify understand it too.
fn filter(scan: &Scan, words: &[String]) -> Filter {
    let mut filter = Filter::of(words);
    for word in words {
        let mut found = scan.clone();
        Filter::of(std::slice::from_ref(word)).apply(&mut found);
        if found.services.is_empty() && found.connections.is_empty() {
            filter.endpoints.extend(connected_to(scan, word));
        }
    }
    filter
}

#[cfg(feature = "switch")]
fn connected_to(scan: &Scan, target: &str) -> Vec<samehost_model::Endpoint> {
    let lines = samehost_switch::connecting(target, scan).map(|(lines, _)| lines).unwrap_or_default();
    lines.into_iter().map(|line| line.setting.endpoint).collect()
}

#[cfg(not(feature = "switch"))]
fn connected_to(_: &Scan, _: &str) -> Vec<samehost_model::Endpoint> {
    Vec::new()
}

/// Shows what was seen. One that saw no process has its sockets to show, and is an error nevertheless.
fn show(mut scan: Scan, options: &ScanOptions) -> anyhow::Result<Option<ScanError>> {
    let blind = saw_processes(&scan).err();
    let filter = filter(&scan, &options.names);
    filter.apply(&mut scan);
    if options.json {
        output::print_scan_as_json(&scan)?;
        return Ok(blind);
    }
    let notes = if filter.is_none() { Notes::Brief } else { Notes::Whole };
    output::show(|terminal, out| terminal.render_scan(&scan, notes, out))?;
    Ok(blind)
}

/// A scan with advice and, if traffic was observed, what the last checkup's prices make of it.
pub fn look(observe: Option<(Duration, Timed)>, interrupted: &AtomicBool) -> anyhow::Result<Scan> {
    let mut scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
    samehost_scan::advise(&mut scan);
    scan.dropped = samehost_scan::dropped(&scan);
    scan.findings = samehost_scan::findings(&scan);
    let held_back = match observe {
        Some((period, timed)) => {
            // After an interrupt, results so far are shown.
            signals::watch()?;
            samehost_scan::observe(&mut scan, period, timed, interrupted)
        }
        None => samehost_scan::held_back(&scan),
    };
    scan.findings.extend(held_back.findings(&scan, &ask(&held_back.senders(&scan))));
    if let (Some(_), Some(prices)) = (observe, storage::stored_prices()) {
        samehost_scan::predict(&mut scan, &prices);
    }
    Ok(scan)
}

/// The metrics of a scan, or those that say that it failed. They are one list with OpenTelemetry's names, which the file for
/// Prometheus translates as Prometheus itself does (docs/decisions/0101).
fn metrics(
    found: Option<&(Inventory, Scan)>,
    compared: Option<&Held>,
    at: Timestamp,
    took: Duration,
) -> Vec<Metric> {
    let health;
    let mut all = None;
    if let Some((inventory, scan)) = found {
        health = switches(scan);
        let unexpected = compared.map(|with| &with.by_service);
        all = Some(Found { scan, inventory, switches: health.as_ref(), unexpected });
    }
    let unix_seconds = at.as_duration().as_secs_f64();
    metrics_of_scan(env!("CARGO_PKG_VERSION"), unix_seconds, took.as_secs_f64(), all.as_ref())
}

/// What became of this user's switches. Journals that cannot be read leave the other metrics as they are.
#[cfg(feature = "switch")]
fn switches(scan: &Scan) -> Option<SwitchHealth> {
    let health = storage::switches::stores().and_then(|stores| Ok(samehost_switch::health(&stores, scan)?));
    match health {
        Ok(health) => Some(health),
        Err(error) => {
            output::complain(&format!("no metrics of switches: {}", in_full(&error)));
            None
        }
    }
}

#[cfg(not(feature = "switch"))]
fn switches(_: &Scan) -> Option<SwitchHealth> {
    None
}

/// Longest text of an error that is read, in bytes: a log has the error in its last lines, and a person pastes one.
const LONGEST_ERROR: u64 = 1 << 16;

pub fn explain(text: &str) -> anyhow::Result<Ending> {
    let mut text = text.to_owned();
    if text.is_empty() {
        output::show(|terminal, out| terminal.render_explanations(&EXPLANATIONS, out))?;
        return Ok(Ending::Done);
    }
    if text == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().take(LONGEST_ERROR).read_to_end(&mut bytes).context("standard input")?;
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    let Some((found, place)) = explained(&text) else {
        let known: Vec<&str> = EXPLANATIONS.iter().map(|known| known.code).collect();
        let words = format!(
            "this is no code, and no error that is known of a connection on this machine; codes are {}",
            known.join(", ")
        );
        return Err(WrongUse(words).into());
    };
    let scan = look(None, &interrupt::flag())?;
    let there = place.map(|place| at_place(&scan, &place)).unwrap_or_default();
    output::show(|terminal, out| terminal.render_explanation(found, &there, &scan, out))?;
    Ok(Ending::Done)
}
