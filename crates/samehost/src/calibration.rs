//! What a request costs on this machine over each transport, measured to price the traffic that a scan has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use samehost_model::Report;
use samehost_model::scan::{Advice, Possible, Scan};
use samehost_report::FindingKind;
use samehost_scan::{Costs, Measured, Shape, predict_one, shape};

use crate::checkup::measure::{Bench, Spend};
use crate::checkup::parts::{Part, PartLine};
use crate::request::fresh_seed;

/// What is measured here to turn traffic into a saving: one connection for the latency, many for a busy server.
const CALIBRATION: &[(u32, FindingKind, &str, &str)] = &[
    (1, FindingKind::RoundTrip, "what a request costs here, one connection", "latency_mean"),
    (64, FindingKind::Busy, "what a request costs here, 64 connections", "total_cpu_per_op"),
];
/// Time for each part of the calibration.
const CALIBRATION_TIME: Duration = Duration::from_secs(6);
/// From so many short connections a second on it is measured what a connection costs.
const FEW_CONNECTIONS: f64 = 1.0;
/// Time for the part that only shows what the transport itself takes.
const BARE_TIME: Duration = Duration::from_secs(4);
/// The busiest pairs are measured each in its own shape; the rest is priced by the common calibration.
const MOST_SHAPES: usize = 3;

/// Says of each pair whose traffic was watched what a switch would save; nothing when it was stopped too early.
///
/// # Errors
/// When it cannot be measured.
pub fn price(scan: &mut Scan, interrupted: &Arc<AtomicBool>, quiet: bool) -> anyhow::Result<()> {
    if scan.advice.is_empty() || interrupted.load(Ordering::Relaxed) {
        return Ok(());
    }
    let Some(mut costs) = calibrate(interrupted, quiet)? else { return Ok(()) };
    let short = |advice: &Advice| advice.traffic.map_or(0.0, |traffic| traffic.short_connections_per_s);
    if scan.advice.iter().any(|advice| short(advice) >= FEW_CONNECTIONS) {
        costs = calibrate_connection(costs, interrupted, quiet)?;
    }
    samehost_scan::predict(scan, &costs);
    price_by_shape(scan, costs, interrupted, quiet)
}

/// Measures what TCP costs more than a Unix socket on this machine; none when it was stopped too early.
///
/// # Errors
/// When it cannot be measured.
pub fn calibrate(interrupted: &Arc<AtomicBool>, quiet: bool) -> anyhow::Result<Option<Costs>> {
    let (mut cpu, mut latency) = (Vec::new(), Vec::new());
    for (connections, kind, label, metric) in CALIBRATION.iter().copied() {
        let part = part(label, kind, connections, 128, Vec::new());
        let report = measure(&part, CALIBRATION_TIME, interrupted, quiet)?;
        cpu.extend(Measured::in_report(&report, "total_cpu_per_op"));
        if kind == FindingKind::RoundTrip {
            latency.extend(Measured::in_report(&report, metric));
        }
    }
    Ok(Costs::of(&cpu, &latency))
}

fn measure(
    part: &Part,
    time: Duration,
    interrupted: &Arc<AtomicBool>,
    quiet: bool,
) -> anyhow::Result<Report> {
    // What runs here sleeps as well.
    let bench = Bench { seed: fresh_seed(), interrupted: Arc::clone(interrupted), quiet, awake: false };
    bench.measure(part, Spend::All(time))
}

fn part(
    label: &str,
    kind: FindingKind,
    connections: u32,
    size: u64,
    parameters: Vec<(&'static str, String)>,
) -> Part {
    let line = PartLine { label: label.into(), kind, metric: "latency_mean", connections: None };
    Part {
        parameters,
        connections: vec![connections],
        size: Some(size),
        lines: vec![line],
        ..Part::new("raw")
    }
}

/// Adds what a connection with one round trip costs.
fn calibrate_connection(costs: Costs, interrupted: &Arc<AtomicBool>, quiet: bool) -> anyhow::Result<Costs> {
    let label = "what a connection costs here";
    let part = Part { workload: "connect", size: None, ..part(label, FindingKind::Server, 1, 0, Vec::new()) };
    let report = measure(&part, CALIBRATION_TIME, interrupted, quiet)?;
    let (cpu, latency) =
        (Measured::in_report(&report, "total_cpu_per_op"), Measured::in_report(&report, "latency_mean"));
    Ok(cpu.zip(latency).map_or(costs, |(cpu, latency)| costs.with_connection(cpu, latency)))
}

/// Prices the busiest pairs each with a measurement of its own shape.
fn price_by_shape(
    scan: &mut Scan,
    costs: Costs,
    interrupted: &Arc<AtomicBool>,
    quiet: bool,
) -> anyhow::Result<()> {
    let mut shapes: Vec<(usize, f64, Shape)> = Vec::new();
    for (at, advice) in scan.advice.iter().enumerate() {
        let rate = advice.traffic.map_or(0.0, |traffic| traffic.all_round_trips_per_s());
        if advice.possible != Possible::Cannot {
            shapes.extend(shape(scan, advice).map(|shape| (at, rate, shape)));
        }
    }
    shapes.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (at, _, shape) in shapes.into_iter().take(MOST_SHAPES) {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        if let Some(costs) = calibrate_shape(costs, &shape, interrupted, quiet)?
            && let Some(advice) = scan.advice.get_mut(at)
        {
            predict_one(advice, &costs);
        }
    }
    Ok(())
}

/// Measures requests of this shape. One at a time without any work: both ends sleep at each request whatever the work is.
/// Several at once first without, to see what the transport itself takes, then with the rest of the service's CPU time as
/// work: that decides who sleeps, and waking up is most of what a request costs.
fn calibrate_shape(
    costs: Costs,
    shape: &Shape,
    interrupted: &Arc<AtomicBool>,
    quiet: bool,
) -> anyhow::Result<Option<Costs>> {
    let model = ("server", shape.server.to_owned());
    let run = |label: &str, time, parameters| {
        let part = part(label, FindingKind::Server, shape.connections, shape.size_bytes, parameters);
        measure(&part, time, interrupted, quiet)
    };
    let alone = shape.connections == 1;
    let time = if alone { BARE_TIME + CALIBRATION_TIME } else { BARE_TIME };
    let bare = run("what requests of this shape cost here", time, vec![model.clone()])?;
    let own_us = Measured::in_report(&bare, "server_cpu_per_op").map_or(0.0, |measured| measured.tcp);
    let work_us = (shape.server_cpu_us_per_request - own_us).round();
    let report = if work_us >= 1.0 && !alone {
        let parameters = vec![model, ("work", format!("{work_us:.0}us"))];
        run("what they cost beside the service's work", CALIBRATION_TIME, parameters)?
    } else {
        bare
    };
    let (cpu, latency) =
        (Measured::in_report(&report, "total_cpu_per_op"), Measured::in_report(&report, "latency_mean"));
    Ok(cpu.zip(latency).map(|(cpu, latency)| costs.of_shape(cpu, latency)))
}
