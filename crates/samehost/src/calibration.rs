//! Measures the cost of a request over each transport on this machine, to predict the saving for observed traffic.

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

/// Measurements of the calibration: one connection for the latency, many for a busy server.
const CALIBRATION: &[(u32, FindingKind, &str, &str)] = &[
    (1, FindingKind::RoundTrip, "what a request costs here, one connection", "latency_mean"),
    (64, FindingKind::Busy, "what a request costs here, 64 connections", "total_cpu_per_op"),
];
const CALIBRATION_TIME: Duration = Duration::from_secs(6);
/// Short connections per second from which on the cost of a connection is measured.
const FEW_CONNECTIONS: f64 = 1.0;
/// Time to measure the transport without work in the server.
const BARE_TIME: Duration = Duration::from_secs(4);
/// Number of the busiest pairs that are each measured in their own shape. The rest use the common calibration.
const MOST_SHAPES: usize = 3;

/// Predicts the saving of a switch for each pair with observed traffic; does nothing if interrupted early.
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

/// Measures the extra cost of TCP over a Unix socket on this machine; `None` if interrupted early.
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
    // CPUs may sleep, as they do under the observed traffic.
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

/// Adds the cost of a connection with one round trip.
fn calibrate_connection(costs: Costs, interrupted: &Arc<AtomicBool>, quiet: bool) -> anyhow::Result<Costs> {
    let label = "what a connection costs here";
    let part = Part { workload: "connect", size: None, ..part(label, FindingKind::Server, 1, 0, Vec::new()) };
    let report = measure(&part, CALIBRATION_TIME, interrupted, quiet)?;
    let (cpu, latency) =
        (Measured::in_report(&report, "total_cpu_per_op"), Measured::in_report(&report, "latency_mean"));
    Ok(cpu.zip(latency).map_or(costs, |(cpu, latency)| costs.with_connection(cpu, latency)))
}

/// Predicts for each of the busiest pairs with a measurement of its own shape.
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

/// Measures requests of this shape. One at a time is measured without work, because both ends sleep at every
/// request anyway. Several at once are measured without work first, for the cost of the transport, then with the
/// rest of the service's CPU time as work: this determines who sleeps, and wake-ups are most of a request's cost.
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
