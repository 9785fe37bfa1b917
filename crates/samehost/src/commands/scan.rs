//! `samehost scan`: what talks to what on this machine, and what could be done about it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use samehost_model::Report;
use samehost_model::scan::Scan;
use samehost_report::FindingKind;
use samehost_scan::{Costs, Measured};

use super::checkup::measure;
use crate::checkup_parts::{Part, PartLine};
use crate::cli::ScanOptions;
use crate::commands::bench::fresh_seed;
use crate::exit::{Ending, WrongUse};
use crate::{output, signals};

/// What is measured here to turn traffic into a saving: one connection for the latency, many for a busy server.
const CALIBRATION: &[(u32, FindingKind, &str, &str)] = &[
    (1, FindingKind::RoundTrip, "what a request costs here, one connection", "latency_mean"),
    (64, FindingKind::Busy, "what a request costs here, 64 connections", "total_cpu_per_op"),
];
/// Time for each part of the calibration.
const CALIBRATION_TIME: Duration = Duration::from_secs(6);
const PERIODS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

pub fn scan(options: &ScanOptions) -> anyhow::Result<Ending> {
    if options.observe.is_some_and(|period| !PERIODS.contains(&period)) {
        return Err(WrongUse("--observe takes 1s to 24h".into()).into());
    }
    let interrupted = signals::watch()?;
    let scan = look(options.observe, options.greet, options.quiet, &interrupted)?;
    let mut bytes = Vec::new();
    if options.json {
        serde_json::to_writer(&mut bytes, &scan)?;
        bytes.push(b'\n');
    } else {
        output::terminal().render_scan(&scan, &mut bytes)?;
    }
    std::io::stdout().write_all(&bytes).context("standard output")?;
    Ok(if interrupted.load(Ordering::Relaxed) { Ending::Interrupted } else { Ending::Done })
}

/// A scan with advice, and where the traffic was watched with what a switch would save.
pub(super) fn look(
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
    if let Some(period) = observe {
        samehost_scan::observe(&mut scan, period, interrupted);
        if !scan.advice.is_empty()
            && !interrupted.load(Ordering::Relaxed)
            && let Some(costs) = calibrate(interrupted, quiet)?
        {
            samehost_scan::predict(&mut scan, &costs);
        }
    }
    Ok(scan)
}

/// Measures what TCP costs more than a Unix socket on this machine; none when it was stopped too early.
///
/// # Errors
/// When it cannot be measured.
pub fn calibrate(interrupted: &Arc<AtomicBool>, quiet: bool) -> anyhow::Result<Option<Costs>> {
    let (mut cpu, mut latency) = (Vec::new(), Vec::new());
    for (connections, kind, label, metric) in CALIBRATION.iter().copied() {
        let line = PartLine { label: label.into(), kind, metric, connections: None };
        let part = Part {
            workload: "raw",
            parameters: &[],
            connections: vec![connections],
            size: Some(128),
            lines: vec![line],
            installed: false,
        };
        let report = measure(&part, CALIBRATION_TIME, fresh_seed(), interrupted, quiet)?;
        cpu.extend(measured(&report, "total_cpu_per_op"));
        if kind == FindingKind::RoundTrip {
            latency.extend(measured(&report, metric));
        }
    }
    Ok(Costs::of(&cpu, &latency))
}

pub(super) fn measured(report: &Report, metric: &str) -> Option<Measured> {
    let comparison = report.comparisons.iter().find(|comparison| comparison.metric == metric)?;
    Some(Measured {
        tcp: comparison.baseline_value,
        ratio_low: comparison.ci_low?,
        ratio_high: comparison.ci_high?,
    })
}
