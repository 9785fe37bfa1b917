//! Determines the best length of slices. For each length prints the error of a ratio, its parts between and within
//! rounds, the baseline's difference from itself, the cost of the first request after a switch, and the effect of
//! slice borders. Source of the table in docs/method.md and of the lengths in `samehost-bench`'s `driving`.

use anyhow::ensure;
use serde_json::Value;

use super::Tools;
use crate::list;

const LENGTHS: &[&str] = &["200us", "1ms", "3ms", "8ms", "20ms", "50ms", "100ms"];
const ROUNDS: &str = "8";
/// Measured time of an arm in a round.
const ROUND: &str = "300ms";
const SUBJECTS: &[(&str, &str)] =
    &[("raw", "1"), ("raw", "8"), ("raw", "64"), ("redis", "1"), ("redis", "8"), ("redis", "64")];

pub(super) fn variogram(tools: &Tools) -> anyhow::Result<()> {
    for (workload, connections) in SUBJECTS {
        for awake in [false, true] {
            if awake && *connections != "1" {
                continue;
            }
            let how = if awake { ", CPUs kept awake" } else { "" };
            println!("{workload}, connections: {connections}{how}; {ROUNDS} rounds of {ROUND} an arm\n");
            println!(
                "| slice | tcp µs | unix µs | unix ÷ tcp | error of ln ratio | between rounds | within | tcp ÷ tcp | its error | first request, tcp, unix | borders |"
            );
            println!("|---|---|---|---|---|---|---|---|---|---|---|");
            for length in LENGTHS {
                println!("{}", line(&measured(tools, workload, connections, length, awake)?, length)?);
            }
            println!();
        }
    }
    Ok(())
}

fn measured(
    tools: &Tools,
    workload: &str,
    connections: &str,
    slice: &str,
    awake: bool,
) -> anyhow::Result<Value> {
    let words = ["bench", workload, "--connections", connections, "--slice", slice];
    let how_much = ["--trial-time", ROUND, "--min-blocks", ROUNDS, "--max-blocks", ROUNDS];
    let awake = [if awake { "--awake" } else { "--awake=no" }];
    crate::report(&tools.samehost, &[&words[..], &how_much, &awake].concat())
}

/// The counted trials of an arm, by block.
fn samples(report: &Value, arm: &str, control: bool) -> anyhow::Result<Vec<Value>> {
    let mut samples = list(report, "trials")?.to_vec();
    samples
        .retain(|sample| sample["arm"] == arm && sample["control"] == control && sample["set_aside"] != true);
    samples.sort_by_key(|sample| sample["block"].as_u64());
    ensure!(!samples.is_empty(), "no samples of {arm}");
    Ok(samples)
}

fn values(samples: &[Value], part: &str, name: &str) -> Vec<f64> {
    samples.iter().filter_map(|sample| sample[part][name].as_f64()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Mean of ln(a ÷ b), and its standard deviation.
fn ratio(a: &[f64], b: &[f64]) -> (f64, f64) {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
    let middle = mean(&logs);
    let squares: f64 = logs.iter().map(|log| (log - middle).powi(2)).sum();
    (middle, (squares / (logs.len() as f64 - 1.0).max(1.0)).sqrt())
}

fn line(report: &Value, length: &str) -> anyhow::Result<String> {
    let [tcp, unix, control] =
        [samples(report, "tcp", false)?, samples(report, "unix", false)?, samples(report, "tcp", true)?];
    let [below, above, again] = [&tcp, &unix, &control].map(|arm| values(arm, "latency_us", "mean"));
    let [scatters, firsts] = ["scatter_percent", "first_ratio"]
        .map(|name| [&tcp, &unix].map(|arm| mean(&values(arm, "slices", name))));
    let rounds = (below.len() as f64).sqrt();
    let ((of_unix, scatter), (of_itself, own)) = (ratio(&above, &below), ratio(&again, &below));
    let within = scatters[0].hypot(scatters[1]);
    Ok(format!(
        "| {length} | {:.1} | {:.1} | {:.3} | {:.2} % | {:.2} % | {within:.1} % | {:.3} | {:.2} % | {:.2}, {:.2} | {:.1} % |",
        mean(&below),
        mean(&above),
        of_unix.exp(),
        100.0 * scatter / rounds,
        100.0 * scatter,
        of_itself.exp(),
        100.0 * own / rounds,
        firsts[0],
        firsts[1],
        mean(&values(&tcp, "slices", "border_percent")),
    ))
}
