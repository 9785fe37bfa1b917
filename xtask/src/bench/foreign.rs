//! Yardstick of `scan --observe` for loads that are not ours: pgbench, sysbench, redis-benchmark, and wrk on WordPress. A scan
//! predicts the load's saving while it runs over TCP; then the same program measures it, over TCP and over the Unix socket in turn.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Tools;
use super::blog::Blog;
use super::mysql::MariaDb;
use super::postgres::Postgres;
use super::predict::{Running, saved, scan_of};
use super::redis::Redis;

/// Scans of each load.
const ROUNDS: u32 = 3;
/// Until the load's connections are made.
pub(super) const WARM: Duration = Duration::from_secs(3);
const CONNECTIONS: u32 = 8;

/// A load, which lasts until it is stopped, and what it costs over each transport.
pub(super) struct Load {
    pub(super) name: &'static str,
    port: u16,
    /// Field of the scan's saving.
    predicted: &'static str,
    pub(super) lasting: String,
    /// Most time and most blocks of the measurement.
    length: [&'static str; 2],
    /// Commands that print what an operation costs over TCP and over the Unix socket.
    costs: [String; 2],
    _server: Box<dyn std::any::Any>,
}

pub(super) type Start = fn(&Tools, &Path) -> anyhow::Result<Load>;

pub(super) const LOADS: &[Start] = &[pgbench, sysbench, redis_benchmark];

fn pgbench(tools: &Tools, family: &Path) -> anyhow::Result<Load> {
    let server = Postgres::start(tools)?;
    let costs = ["tcp", "unix"].map(|transport| server.pgbench(family, transport, CONNECTIONS));
    Ok(Load {
        name: "pgbench -S -c 8",
        port: server.port,
        predicted: "cpu_us_per_request",
        lasting: format!(
            "{}/pgbench -S -M prepared -n -c {CONNECTIONS} -T 60 -U samehost -h 127.0.0.1 -p {} postgres",
            server.bin.display(),
            server.port
        ),
        length: ["90s", "24"],
        costs,
        _server: Box::new(server),
    })
}

fn sysbench(_tools: &Tools, family: &Path) -> anyhow::Result<Load> {
    let server = MariaDb::with_table()?;
    let lasting = server.sysbench("tcp", CONNECTIONS, "run", "--events=0").replace("--time=0", "--time=60");
    let costs = ["tcp", "unix"].map(|transport| server.metered(family, transport, CONNECTIONS));
    Ok(Load {
        name: "sysbench, 8 threads",
        port: server.port,
        predicted: "cpu_us_per_request",
        lasting,
        length: ["90s", "24"],
        costs,
        _server: Box::new(server),
    })
}

fn redis_benchmark(tools: &Tools, family: &Path) -> anyhow::Result<Load> {
    let server = Redis::start(tools.directory.path(), &[])?;
    server.set_key_of_redis_benchmark()?;
    let costs = ["tcp", "unix"].map(|transport| server.redis_benchmark(family, transport, CONNECTIONS));
    Ok(Load {
        name: "redis-benchmark -c 8",
        port: server.port,
        predicted: "cpu_us_per_request",
        lasting: format!(
            "redis-benchmark -q {} -c {CONNECTIONS} -P 1 -t get -n 100000000",
            server.place("tcp")
        ),
        length: ["90s", "24"],
        costs,
        _server: Box::new(server),
    })
}

fn wrk(_tools: &Tools, _family: &Path) -> anyhow::Result<Load> {
    let server = Blog::start()?;
    let pages = crate::root().join("xtask/peers/pages.sh");
    Ok(Load {
        name: "wrk -c 2, WordPress",
        port: server.database.port,
        // A page has one connection to the database.
        predicted: "cpu_us_per_short_connection",
        lasting: server.wrk("tcp", 60),
        // A page scatters more than it saves: many short trials, because the machine's speed drifts.
        length: ["600s", "200"],
        costs: ["tcp", "unix"]
            .map(|transport| format!("sh {} {}", pages.display(), server.wrk(transport, 2))),
        _server: Box::new(server),
    })
}

/// What a scan said of a load: its range in µs, and its answer.
struct Predicted {
    low: f64,
    high: f64,
    answer: &'static str,
}

pub(super) fn foreign(tools: &Tools) -> anyhow::Result<()> {
    compare(tools, LOADS)
}

pub(super) fn pages(tools: &Tools) -> anyhow::Result<()> {
    compare(tools, &[wrk])
}

/// Prints prediction and measurement of each load, µs of CPU time an operation.
fn compare(tools: &Tools, loads: &[Start]) -> anyhow::Result<()> {
    let family = tools.compile("family")?;
    println!("µs of CPU time saved; the middle of a prediction is the geometric one\n");
    println!(
        "{:<21} {:>22} {:>6} {:>12} {:>22} {:>7}",
        "load", "predicted (middle)", "range", "answer", "measured (95 %)", "factor"
    );
    for start in loads {
        let load = start(tools, &family)?;
        let predicted: Vec<Predicted> =
            (0..ROUNDS).map(|_| scanned(tools, &load)).collect::<Result<_, _>>()?;
        let (value, low, high) = measured(tools, &load)?;
        for Predicted { low: least, high: most, answer } in predicted {
            let middle = (least.max(0.0) * most.max(0.0)).sqrt();
            let text = format!("{least:.1}–{most:.1} ({middle:.1})");
            let (range, factor) = if least > 0.0 {
                (format!("{:.1}", most / least), format!("{:.2}", (middle / value).max(value / middle)))
            } else {
                ("–".to_owned(), "–".to_owned())
            };
            let words = format!("{value:.1} ({low:.1}–{high:.1})");
            println!("{:<21} {text:>22} {range:>6} {answer:>12} {words:>22} {factor:>7}", load.name);
        }
    }
    Ok(())
}

/// What a scan predicts while the load runs.
fn scanned(tools: &Tools, load: &Load) -> anyhow::Result<Predicted> {
    let words: Vec<&str> = load.lasting.split_whitespace().collect();
    let mut child = Command::new(words[0]);
    child.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running(child.spawn().with_context(|| format!("starting {}", words[0]))?);
    std::thread::sleep(WARM);
    let scan = scan_of(tools, running)?;
    let now = format!("tcp:127.0.0.1:{}", load.port);
    let all = scan["advice"].as_array().context("no advice")?;
    let of_load = all.iter().find(|one| one["now"] == now.as_str() && one["saving"].is_object());
    let saving =
        &of_load.with_context(|| format!("the scan predicts nothing for {}: {all:#?}", load.name))?["saving"];
    let range = &saving[load.predicted];
    let (low, high) = range["low"].as_f64().zip(range["high"].as_f64()).context("no range")?;
    let answer = match (saving["worth_it"].as_bool(), saving["undecided"].as_bool()) {
        (Some(true), _) => "worth it",
        (_, Some(true)) => "undecided",
        _ => "not worth it",
    };
    Ok(Predicted { low, high, answer })
}

/// The saving that the load's own program shows, with its interval.
fn measured(tools: &Tools, load: &Load) -> anyhow::Result<(f64, f64, f64)> {
    let [tcp, unix] = &load.costs;
    let output = Command::new(&tools.samehost)
        .args(["bench", "command", "--better", "lower", "--value", "total_us_per_op ([\\d.]+)"])
        .args(["--budget", load.length[0], "--min-blocks", "8", "--max-blocks", load.length[1]])
        .args(["--quiet", "--json", "-"])
        .args(["--arm", &format!("tcp={tcp}"), "--arm", &format!("unix={unix}")])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the measurement ended with {}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let all = report["comparisons"].as_array().context("no comparisons")?;
    let found =
        all.iter().find(|one| one["metric"] == "value").with_context(|| format!("no value: {all:#?}"))?;
    saved(found, 1.0)
}

// Yardstick of how long `scan --observe 8s` takes while several loads keep the machine busy to its end: each of them is a pair
// that the scan measures a price for.

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
