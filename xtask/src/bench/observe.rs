//! Yardstick of how long `scan --observe 8s` takes while several loads keep the machine busy to its end: each of them is a pair
//! that the scan measures a price for.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Tools;
use super::foreign::{LOADS, Load, WARM};
use super::predict::Running;
use super::redis::Redis;

const ROUNDS: u32 = 3;
/// What docs/scan.md promises.
const MOST: Duration = Duration::from_secs(30);

/// Prints how long each scan took, and what it predicted a saving for.
pub(super) fn observe(tools: &Tools) -> anyhow::Result<()> {
    let family = tools.compile("family")?;
    let loads = LOADS.iter().map(|start| start(tools, &family)).collect::<anyhow::Result<Vec<Load>>>()?;
    let folder = tempfile::tempdir()?;
    let short = Redis::start(folder.path(), &[])?;
    let command_lines: Vec<String> = loads
        .iter()
        .map(|load| load.lasting.clone())
        .chain([format!("redis-benchmark -q -k 0 -p {} -c 4 -t get -n 100000000", short.port)])
        .collect();
    println!(
        "busy at once: {}, redis-benchmark -k 0\n",
        loads.iter().map(|load| load.name).collect::<Vec<_>>().join(", ")
    );
    for _ in 0..ROUNDS {
        let running = command_lines.iter().map(|line| run(line)).collect::<anyhow::Result<Vec<_>>>()?;
        std::thread::sleep(WARM);
        let begun = Instant::now();
        let output = Command::new(&tools.samehost)
            .args(["scan", "--observe", "8s", "--json", "--quiet"])
            .stderr(Stdio::inherit())
            .output()?;
        let took = begun.elapsed();
        drop(running);
        ensure!(output.status.success(), "the scan ended with {}", output.status);
        let scan: Value = serde_json::from_slice(&output.stdout).context("the scan")?;
        let all = scan["advice"].as_array().context("no advice")?;
        let priced = all.iter().filter(|one| one["saving"].is_object()).count();
        println!("{:.1} s, {priced} pairs with a prediction", took.as_secs_f64());
        ensure!(priced > loads.len(), "not every load was seen: {all:#?}");
        ensure!(took <= MOST, "more than {} s", MOST.as_secs());
    }
    Ok(())
}

fn run(line: &str) -> anyhow::Result<Running> {
    let mut words = line.split_whitespace();
    let program = words.next().context("a program")?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Running(command.spawn().with_context(|| format!("starting {program}"))?))
}
