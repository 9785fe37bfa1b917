//! Yardstick of `scan --observe`: its prediction for a running load, compared with `bench` of the same
//! program on the same server, alternating for several rounds.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Tools;

/// Number of rounds over all loads.
const ROUNDS: u32 = 2;
/// Time until a load's first measured trial, including server starts; the second value is for a retry.
const WARM: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(20)];

/// A load, and the JSON fields of its prediction and measurement.
struct Load {
    arguments: &'static [&'static str],
    /// Field of the saving in the scan.
    predicted: &'static str,
    /// Metric of the report with which it is compared.
    measured: &'static str,
    budget: &'static str,
}

const fn cpu(arguments: &'static [&'static str]) -> Load {
    Load { arguments, predicted: "cpu_us_per_request", measured: "total_cpu_per_op", budget: "15s" }
}

const LOADS: &[Load] = &[
    Load {
        arguments: &["wordpress"],
        predicted: "us_per_short_connection",
        measured: "database_ms",
        budget: "90s",
    },
    cpu(&["mysql", "--connections", "8"]),
    cpu(&["mysql", "--connections", "1"]),
    cpu(&["postgres", "--connections", "8"]),
    cpu(&["memcached", "--connections", "8"]),
    cpu(&["redis", "--connections", "4"]),
];

/// A load over TCP, stopped on drop.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGINT, like Ctrl-C, so that its servers are stopped as well.
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Prints prediction and measurement of each load in microseconds.
pub(super) fn predict(tools: &Tools) -> anyhow::Result<()> {
    println!("µs saved; the middle of a prediction is the geometric one\n");
    println!("{:<28} {:>22} {:>24} {:>10}", "load", "predicted (middle)", "measured (95 %)", "factor");
    for _ in 0..ROUNDS {
        for load in LOADS {
            let mut predicted = scanned(tools, load, WARM[0]);
            if predicted.is_err() {
                predicted = scanned(tools, load, WARM[1]);
            }
            let predicted = predicted?;
            let (value, low, high) = measured(tools, load)?;
            let words = format!("{:.1} ({:.1}–{:.1})", value, low, high);
            match predicted {
                Some((low, high)) => {
                    let middle = (low * high).sqrt();
                    let factor = (middle / value).max(value / middle);
                    let text = format!("{low:.1}–{high:.1} ({middle:.1})");
                    println!("{:<28} {text:>22} {words:>24} {factor:>10.2}", load.arguments.join(" "));
                }
                None => println!("{:<28} {:>22} {words:>24}", load.arguments.join(" "), "undecided"),
            }
        }
    }
    Ok(())
}

/// The range that a scan predicts while the load runs; `None` if it is undecided.
fn scanned(tools: &Tools, load: &Load, warm: Duration) -> anyhow::Result<Option<(f64, f64)>> {
    let mut child = Command::new(&tools.samehost);
    child.arg("bench").args(load.arguments).args(["--transports", "tcp", "--trial-time", "30s"]);
    let running =
        Running(child.args(["--budget", "90s"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    std::thread::sleep(warm);
    let scanned = scan_of(tools, running)?;
    let all = scanned["advice"].as_array().context("no advice")?;
    let busiest = all
        .iter()
        .filter(|one| {
            one["traffic"]["round_trips_per_s"].as_f64() > Some(50.0) || !one["traffic"]["short"].is_null()
        })
        .max_by(|a, b| rate(a).total_cmp(&rate(b)))
        .context("the scan did not see the load")?;
    let range = &busiest["saving"][load.predicted];
    let bounds = range["low"].as_f64().zip(range["high"].as_f64()).context("nothing was predicted")?;
    Ok((bounds.0 > 0.0).then_some(bounds))
}

fn rate(one: &Value) -> f64 {
    one["saving"]["cpu_s_per_day"]["high"].as_f64().unwrap_or(0.0)
}

/// A scan that observes a load, which is stopped before the scan measures.
pub(super) fn scan_of(tools: &Tools, running: Running) -> anyhow::Result<Value> {
    let mut scan = Command::new(&tools.samehost);
    scan.args(["scan", "--observe", "4s", "--json", "--quiet"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let scan = scan.spawn()?;
    // The scan observes for four seconds, and then measures, for which the machine should be idle.
    std::thread::sleep(Duration::from_millis(4700));
    drop(running);
    let scanned = scan.wait_with_output()?;
    serde_json::from_slice(&scanned.stdout).context("the scan")
}

/// The saving measured by `bench`, with its interval.
fn measured(tools: &Tools, load: &Load) -> anyhow::Result<(f64, f64, f64)> {
    let mut command = Command::new(&tools.samehost);
    command.arg("bench").args(load.arguments).args(["--budget", load.budget, "--quiet", "--json", "-"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the measurement ended with {}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let all = report["comparisons"].as_array().context("no comparisons")?;
    let found = all.iter().find(|one| one["metric"] == load.measured).context("no such metric")?;
    let unit = if load.measured.ends_with("_ms") { 1000.0 } else { 1.0 };
    saved(found, unit)
}

/// What a comparison says that is saved, in units of its metric × `unit`, with its interval.
pub(super) fn saved(comparison: &Value, unit: f64) -> anyhow::Result<(f64, f64, f64)> {
    let number = |name: &str| comparison[name].as_f64().with_context(|| format!("no {name} in {comparison}"));
    let tcp = unit * number("baseline_value")?;
    Ok((tcp * (1.0 - number("ratio")?), tcp * (1.0 - number("ci_high")?), tcp * (1.0 - number("ci_low")?)))
}
