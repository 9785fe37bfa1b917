//! Yardsticks of `scan`: a host with 10,000 sockets, listed by us, by ss and by lsof, alternating; the sockets are
//! connections to ten echo servers, half over TCP and half over Unix sockets. And of `scan --observe`: its prediction for
//! a running load, compared with `bench` of the same program on the same server, alternating for several rounds.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Tools;
use crate::process::{Process, find_program, serve};
use crate::{comparison, list, report};

/// Servers that share the connections, because a real host has many processes.
const SERVERS: usize = 10;
/// Connections of each server over each transport; a connection has two sockets.
const EACH: usize = 250;
const MOST_KIB: u64 = 64 * 1024;

pub(crate) struct Crowd {
    _server: Process,
    _tcp: Vec<TcpStream>,
    _unix: Vec<UnixStream>,
}

impl Crowd {
    fn gather(program: &Path, folder: &Path, number: usize) -> anyhow::Result<Self> {
        let path = folder.join(format!("crowd-{number}.sock"));
        let (server, address) = serve(Command::new(program), "echo", "epoll", &path)?;
        let too_many = "10,000 sockets need 5,000 descriptors here: ulimit -n 20000";
        let tcp =
            (0..EACH).map(|_| TcpStream::connect(&address)).collect::<Result<_, _>>().context(too_many)?;
        let unix =
            (0..EACH).map(|_| UnixStream::connect(&path)).collect::<Result<_, _>>().context(too_many)?;
        Ok(Crowd { _server: server, _tcp: tcp, _unix: unix })
    }
}

pub(crate) fn crowd(program: &Path, folder: &Path) -> anyhow::Result<Vec<Crowd>> {
    (0..SERVERS).map(|number| Crowd::gather(program, folder, number)).collect()
}

/// Alternates `scan`, `ss -tuxp` and `lsof -nP -i -U`, and checks the memory used by `scan`.
pub(super) fn scan(tools: &Tools) -> anyhow::Result<()> {
    let crowd = crowd(&tools.samehost, tools.directory.path())?;
    let sockets = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    println!("{} servers; {}", crowd.len(), sockets.lines().next().unwrap_or_default());
    let ours = format!("scan={} scan", tools.samehost.display());
    let json = format!("scan-json={} scan --json", tools.samehost.display());
    let arms = ["ss=ss -tuxp".to_owned(), ours, json, "lsof=lsof -nP -i -U".to_owned()];
    tools.alternate("--budget 60s --min-blocks 20 --max-blocks 60", None, &arms)?;
    memory(tools)
}

fn memory(tools: &Tools) -> anyhow::Result<()> {
    for arguments in [&["scan"][..], &["scan", "--json"]] {
        let mut command = Command::new("/usr/bin/time");
        let output =
            command.args(["-f", "%M"]).arg(&tools.samehost).args(arguments).stdout(Stdio::null()).output();
        let output = output.context("install the package time")?;
        let text = String::from_utf8_lossy(&output.stderr);
        let kib: u64 =
            text.trim().lines().last().unwrap_or_default().parse().context("the output of time")?;
        println!("{}: {kib} KiB at most (allowed: {MOST_KIB})", arguments.join(" "));
        ensure!(kib <= MOST_KIB, "more than allowed");
    }
    Ok(())
}

// Yardstick of starting: `--version` of this program and of other command-line tools in Rust, alternating.

const OTHERS: &[(&str, &str)] = &[
    ("rg", "apt-get install ripgrep"),
    ("hyperfine", "apt-get install hyperfine"),
    ("oha", "cargo install oha"),
];

/// Those of the other tools that are here; tells how to get the rest.
pub(crate) fn others(tell: &mut dyn FnMut(&str)) -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    for (name, how) in OTHERS {
        match find_program(name) {
            Some(file) => found.push((*name, file)),
            None => tell(&format!("{name} is not here and is not compared: {how}")),
        }
    }
    found
}

pub(crate) fn arm(name: &str, program: &Path) -> String {
    format!("{name}={} --version", program.display())
}

pub(super) fn start(tools: &Tools) -> anyhow::Result<()> {
    let mut programs = others(&mut |missing| println!("{missing}"));
    // `cargo build --release` optimises what drives a load, and not how the program starts.
    println!("building the program with the packages' profile, some minutes");
    programs.insert(0, ("samehost", crate::dist::dynamic_program()?));
    let mut arms = Vec::new();
    for (name, program) in &programs {
        println!("{name}: {} bytes", std::fs::metadata(program)?.len());
        arms.push(arm(name, program));
    }
    // With one arm there is nothing to compare.
    if arms.len() == 1 {
        arms.push("true=true".into());
    }
    tools.alternate("--budget 30s --min-blocks 30 --max-blocks 200", None, &arms)
}

const ROUNDS_OF_PREDICTION: u32 = 2;
/// Time until a load's first measured trial, including server starts; the second value is for a retry.
const WARM: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(20)];

struct Load {
    arguments: &'static [&'static str],
    predicted: &'static str,
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

pub(super) fn predict(tools: &Tools) -> anyhow::Result<()> {
    println!("µs saved; the middle of a prediction is the geometric one\n");
    println!("{:<28} {:>22} {:>24} {:>10}", "load", "predicted (middle)", "measured (95 %)", "factor");
    for _ in 0..ROUNDS_OF_PREDICTION {
        for load in LOADS {
            let mut predicted = scanned(tools, load, WARM[0]);
            if predicted.is_err() {
                predicted = scanned(tools, load, WARM[1]);
            }
            let predicted = predicted?;
            let (value, low, high) = measured(tools, load)?;
            let words = format!("{value:.1} ({low:.1}–{high:.1})");
            let name = load.arguments.join(" ");
            let Some((low, high)) = predicted else {
                println!("{name:<28} {:>22} {words:>24}", "undecided");
                continue;
            };
            let middle = (low * high).sqrt();
            let factor = (middle / value).max(value / middle);
            let text = format!("{low:.1}–{high:.1} ({middle:.1})");
            println!("{name:<28} {text:>22} {words:>24} {factor:>10.2}");
        }
    }
    Ok(())
}

/// The range that a scan predicts while the load runs; `None` if it is undecided.
fn scanned(tools: &Tools, load: &Load, warm: Duration) -> anyhow::Result<Option<(f64, f64)>> {
    let mut child = Command::new(&tools.samehost);
    child.arg("bench").args(load.arguments).args(["--transports", "tcp", "--trial-time", "30s"]);
    // SIGINT, like Ctrl-C, so that its servers are stopped as well.
    let running = Process::start_silent(child.args(["--budget", "90s"]))?.stopped_by("INT");
    std::thread::sleep(warm);
    let scanned = scan_of(tools, running)?;
    let busiest = list(&scanned, "advice")?
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
pub(super) fn scan_of(tools: &Tools, running: Process) -> anyhow::Result<Value> {
    let mut scan = Command::new(&tools.samehost);
    scan.args(["scan", "--observe", "4s", "--json", "--quiet"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let scan = scan.spawn()?;
    // The scan observes for four seconds, and then measures, for which the machine should be idle.
    std::thread::sleep(Duration::from_millis(4700));
    drop(running);
    let scanned = scan.wait_with_output()?;
    serde_json::from_slice(&scanned.stdout).context("the scan")
}

fn measured(tools: &Tools, load: &Load) -> anyhow::Result<(f64, f64, f64)> {
    let report = report(&tools.samehost, &[&["bench"], load.arguments, &["--budget", load.budget]].concat())?;
    let found = comparison(&report, load.measured)?;
    let unit = if load.measured.ends_with("_ms") { 1000.0 } else { 1.0 };
    saved(found, unit)
}

/// What a comparison says that is saved, in units of its metric × `unit`, with its interval.
pub(super) fn saved(comparison: &Value, unit: f64) -> anyhow::Result<(f64, f64, f64)> {
    let number = |name: &str| comparison[name].as_f64().with_context(|| format!("no {name} in {comparison}"));
    let tcp = unit * number("baseline_value")?;
    Ok((tcp * (1.0 - number("ratio")?), tcp * (1.0 - number("ci_high")?), tcp * (1.0 - number("ci_low")?)))
}
