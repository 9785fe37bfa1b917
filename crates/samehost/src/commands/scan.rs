//! `samehost scan`: connections on this machine, and advice; or what changed since an earlier scan (`--since`), or metrics for what
//! watches many hosts (`--prometheus`, `--otlp`). And `samehost explain [CODE]`: what a code of a scan means, and what of it is on
//! this machine.

use std::borrow::Borrow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use samehost_model::scan::{
    Compared, EXPECTATION_SCHEMA, Hop, Inventory, ReturnedHop, Scan, ScanChanges, Unexpected,
};
use samehost_model::switch::SwitchHealth;
use samehost_report::{Found, Metric, Notes, metrics_as_prometheus, metrics_of_scan};
use samehost_scan::{EXPLANATIONS, Expectation, Filter, Held, Timed, changes, explanation, is_same_hop};
use samehost_system::{clock, interrupt, open};
use serde_json::json;

use super::internal::ask;
use crate::calibration::price;
use crate::cli::ScanOptions;
use crate::exit::{self, Ending, in_full};
use crate::otlp::Exporter;
use crate::scans::{Earlier, Scans, Since, read_named, when};
use crate::wrong_use::WrongUse;
use crate::{output, signals};

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
    drop(Destinations::open(options)?);
    signals::watch()?;
    while !interrupt::is_requested() {
        let next = Instant::now() + period;
        match once(options) {
            // A signal ends it as well in the middle of a scan as between two.
            Err(_) if interrupt::is_requested() => return Ok(Ending::Done),
            Err(error) if exit::is_final(&error) => return Err(error),
            Err(error) => output::complain(&in_full(&error)),
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

struct Destinations {
    earlier: Option<Baseline>,
    expectation: Option<Expectation>,
    history: Option<Scans>,
    receivers: Receivers,
}

impl Destinations {
    /// Opens all of them before a long observation: a place that is not safe is known then.
    fn open(options: &ScanOptions) -> anyhow::Result<Self> {
        Ok(Destinations {
            earlier: options.since.as_ref().map(|since| Baseline::open(since, options.save)).transpose()?,
            expectation: options.expect.as_deref().map(expectation).transpose()?,
            history: options.save.then(Scans::open).transpose()?,
            receivers: Receivers::open(options)?,
        })
    }
}

/// A scan, what it is compared with, and where it goes.
///
/// Metrics are sent also of a scan that failed: what an earlier one found must not look current. What keeps them from being sent is
/// the error of a scan that succeeded, and a message beside the error of one that did not.
fn once(options: &ScanOptions) -> anyhow::Result<Ending> {
    let Destinations { earlier, expectation, history, receivers } = Destinations::open(options)?;
    let interrupted = interrupt::flag();
    let (at, begun) = (Timestamp::now(), Instant::now());
    let is_compared = history.is_some() || earlier.is_some() || expectation.is_some() || !receivers.is_none();
    let timed = if options.exact { Timed::Exactly } else { Timed::Cheaply };
    let observed = options.observe.map(|period| (period, timed));
    let taken_at = if is_compared { Some(at) } else { None };
    let found = look_and_list(options, observed, taken_at, &interrupted);
    let mut checked = None;
    if let (Some(expectation), Ok((_, Some(inventory)))) = (expectation, &found) {
        checked = Some(expectation.hold(inventory));
    }
    let ending = receivers.tell(found.as_ref().ok(), checked.as_ref(), at, begun.elapsed());
    let (scan, inventory) = match found {
        Ok(found) => found,
        Err(error) => {
            if let Err(error) = ending {
                output::complain(&in_full(&error));
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

/// A scan, and its inventory where it is compared with something.
fn look_and_list(
    options: &ScanOptions,
    observed: Option<(Duration, Timed)>,
    taken_at: Option<Timestamp>,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<(Scan, Option<Inventory>)> {
    let scan = look(observed, options.greet, options.quiet, interrupted)?;
    let inventory = match taken_at {
        Some(at) => Some(samehost_scan::inventory(&scan, &clock::utc(at))?),
        None => None,
    };
    Ok((scan, inventory))
}

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

/// The scan to compare with, read before the new one is made.
#[derive(Debug)]
struct Baseline {
    earlier: Option<Earlier>,
    /// Where it is from; `None` for a file that was named.
    history: Option<Scans>,
}

impl Baseline {
    /// Reads it. Nothing is stored yet: that is an error unless the new scan is about to be.
    pub(super) fn open(since: &Since, is_saved: bool) -> anyhow::Result<Self> {
        let time = match since {
            Since::File(path) => return Ok(Baseline { earlier: Some(read_named(path)?), history: None }),
            Since::Last => Timestamp::MAX,
            Since::Time(time) => *time,
        };
        let history = Scans::open()?;
        let earlier = history.at(time)?;
        if earlier.is_none() && !is_saved {
            return Err(history.nothing().into());
        }
        Ok(Baseline { earlier, history: Some(history) })
    }

    /// What changed since then. Hops that a scan before it saw are not new.
    pub(super) fn changes(&self, new: &Inventory) -> anyhow::Result<ScanChanges> {
        let Some(earlier) = &self.earlier else {
            let now = Compared { taken_at: new.taken_at.clone(), as_root: new.as_root, file: None };
            return Ok(ScanChanges::none(&new.samehost_version, None, now));
        };
        let mut found = changes(&earlier.inventory, new, Some(&earlier.file.display().to_string()));
        if let Some(history) = &self.history {
            let files = history.files()?;
            let older = files.iter().rev().skip_while(|file| file.path != earlier.file).skip(1);
            find_returned(&mut found, older.filter_map(|file| history.read(file)));
        }
        Ok(found)
    }
}

/// Finds among the new hops those that older scans saw, the newest of them first, until none is left to look for.
pub(super) fn find_returned<I: Borrow<Inventory>>(
    found: &mut ScanChanges,
    mut older: impl Iterator<Item = I>,
) {
    while !found.new_hops.is_empty()
        && let Some(inventory) = older.next()
    {
        returned(found, inventory.borrow());
    }
    found.weigh();
}

/// Moves the hops that an older scan saw from the new ones to those that returned.
fn returned(found: &mut ScanChanges, older: &Inventory) {
    let Some(seen_at) = &older.taken_at else { return };
    let (again, new): (Vec<Hop>, Vec<Hop>) =
        found.new_hops.drain(..).partition(|hop| older.hops.iter().any(|other| is_same_hop(other, hop)));
    found.new_hops = new;
    found.returned_hops.extend(again.into_iter().map(|hop| ReturnedHop { hop, seen_at: seen_at.clone() }));
}

fn show_changes(changes: &ScanChanges, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(changes);
    }
    output::show(|terminal, out| terminal.render_scan_changes(changes, &in_words, out))
}

/// A time of a stored scan in words; as it stands where it is not a time.
pub(super) fn in_words(time: &str) -> String {
    time.parse().map_or_else(|_| time.to_owned(), when)
}

struct Receivers {
    file: Option<PathBuf>,
    otlp: Option<Exporter>,
}

impl Receivers {
    /// Detects what cannot be written before a long observation. Leaves nothing behind, should the scan be killed.
    pub(super) fn open(options: &ScanOptions) -> Result<Self, WrongUse> {
        if let Some(path) = &options.prometheus {
            if path == Path::new("-") && (options.json || options.since.is_some()) {
                return Err(WrongUse("only one output can go to standard output (`-`)".into()));
            }
            drop(output::open(path)?);
        }
        let otlp = options.otlp.as_ref().map(|url| Exporter::open(url.as_deref())).transpose()?;
        Ok(Receivers { file: options.prometheus.clone(), otlp })
    }

    pub(super) fn is_none(&self) -> bool {
        self.file.is_none() && self.otlp.is_none()
    }

    /// Writes the metrics of a scan, or that it failed.
    pub(super) fn tell(
        &self,
        found: Option<&(Scan, Option<Inventory>)>,
        compared: Option<&Held>,
        at: Timestamp,
        took: Duration,
    ) -> anyhow::Result<()> {
        if self.is_none() {
            return Ok(());
        }
        let metrics = metrics(found, compared, at, took);
        if let Some(path) = &self.file {
            output::write(output::open_public(path)?, metrics_as_prometheus(&metrics).as_bytes())?;
        }
        if let Some(otlp) = &self.otlp {
            otlp.send(&metrics)?;
        }
        Ok(())
    }
}

/// The metrics of a scan, or those that say that it failed. They are one list with OpenTelemetry's names, which the file for
/// Prometheus translates as Prometheus itself does: a rule or a dashboard works whichever way they came
/// (docs/decisions/0101).
fn metrics(
    found: Option<&(Scan, Option<Inventory>)>,
    compared: Option<&Held>,
    at: Timestamp,
    took: Duration,
) -> Vec<Metric> {
    let health;
    let mut all = None;
    if let Some((scan, Some(inventory))) = found {
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
    let health =
        crate::storage::switches::stores().and_then(|stores| Ok(samehost_switch::health(&stores, scan)?));
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

pub fn explain(code: Option<&str>) -> anyhow::Result<Ending> {
    let Some(code) = code else {
        output::show(|terminal, out| terminal.render_explanations(&EXPLANATIONS, out))?;
        return Ok(Ending::Done);
    };
    let Some(found) = explanation(code) else {
        let known: Vec<&str> = EXPLANATIONS.iter().map(|known| known.code).collect();
        return Err(WrongUse(format!("no code is called `{code}`; there are {}", known.join(", "))).into());
    };
    let scan = look(None, false, true, &interrupt::flag())?;
    output::show(|terminal, out| terminal.render_explanation(found, &scan, out))?;
    Ok(Ending::Done)
}
