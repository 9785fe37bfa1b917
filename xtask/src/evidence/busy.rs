//! Verdicts on a machine at work: what the checkup decides beside a neighbour of our own and beside a site that serves
//! pages, how often equal arms are called different meanwhile, whether a slower arm is found, and how far ratios move.
//! The neighbours are loops that compute for a part of each 37 ms, and a site; they end with what holds them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use samehost_stats::distributions::{Location, locate_mean};
use serde_json::Value;

use super::verdicts::{Checkup, PART, ROWS, called_different, called_slower};
use super::{Account, in_words, is_decided};
use crate::bench::databases::Redis;
use crate::bench::foreign::Blog;
use crate::process::Process;
use crate::{list, number, report};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    key: &'static str,
    name: &'static str,
    /// Part of each 37 ms that a neighbour computes, a neighbour each.
    duties: &'static [f64],
    /// Seconds in which the neighbours work, and in which they rest; `None` if they always work.
    bursts: Option<(f64, f64)>,
}

const fn steady(key: &'static str, name: &'static str, duties: &'static [f64]) -> Load {
    Load { key, name, duties, bursts: None }
}

const QUIET: Load = steady("quiet", "nothing else", &[]);
const LOADS: [Load; 4] = [
    steady("30", "30 % of one CPU", &[0.3]),
    steady("60", "60 % of one CPU", &[0.6]),
    steady("100", "100 % of one CPU", &[1.0]),
    steady("both", "60 % of each CPU", &[0.6, 0.6]),
];
const BURSTS: Load =
    Load { key: "bursts", name: "bursts of 5 s on both CPUs", duties: &[1.0, 1.0], bursts: Some((5.0, 5.0)) };
const SITE: &str = "a site at 20 pages/s";
const PAGES_PER_S: f64 = 20.0;

/// The longest time until a checkup has decided enough of its rows.
const LONGEST_S: f64 = 60.0;
const LONGEST_QUIET_S: f64 = 30.0;

type Run = fn(&mut Account, &str, Load) -> anyhow::Result<()>;

/// All parts: `checkup quiet`, `same bursts`, …; `--only NAME` runs one.
fn parts() -> Vec<(String, Run, Load)> {
    let mut parts: Vec<(String, Run, Load)> = vec![("checkup quiet".into(), checkup, QUIET)];
    for load in LOADS {
        parts.push((format!("checkup {}", load.key), checkup, load));
    }
    parts.push(("checkup site".into(), site, QUIET));
    for load in LOADS.into_iter().chain([BURSTS]) {
        parts.push((format!("same {}", load.key), same, load));
    }
    for half in ["slowed 1", "slowed 2"] {
        parts.push((half.into(), slowed, LOADS[1]));
    }
    parts.push(("serving".into(), serving, QUIET));
    for (workload, _) in RATIOS {
        parts.push((format!("ratios {workload}"), ratios, QUIET));
    }
    parts
}

pub(super) fn busy(account: &mut Account) -> anyhow::Result<()> {
    let parts = parts();
    account.has_part(&parts.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>())?;
    for (name, run, load) in &parts {
        if account.wants(name) {
            run(account, name, *load)?;
        }
    }
    Ok(())
}

fn checkup(account: &mut Account, part: &str, load: Load) -> anyhow::Result<()> {
    let (runs, longest) = if load == QUIET { (10, LONGEST_QUIET_S) } else { (3, LONGEST_S) };
    let _beside = load.start()?;
    repeated(account, part, load.name, runs, longest)
}

fn site(account: &mut Account, part: &str, _: Load) -> anyhow::Result<()> {
    let _serving = Site::start(PAGES_PER_S)?;
    repeated(account, part, SITE, 3, LONGEST_S)
}

fn repeated(account: &mut Account, part: &str, load: &str, runs: usize, longest: f64) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let mut enough = 0;
    for run in 1..=runs {
        let Checkup { report, rows, seconds } = Checkup::run(&program, run)?;
        keep(&format!("{part}-{run}"), &report)?;
        let decided = rows.iter().filter(|row| row.is_decided).count();
        enough += usize::from(decided as f64 >= PART * ROWS.len() as f64 && seconds <= longest);
        account.tell(&format!(
            "{part} | {load}, run {run}: {decided} of {} rows decided in {seconds:.0} s; others used {}",
            ROWS.len(),
            others(list(&report, "parts")?)
        ));
        for row in &rows {
            account.tell(&format!("  {} | {} | {}", row.name, row.ratio, row.state()));
        }
    }
    account.tell(&format!(
        "{part} | {load}: {enough} of {runs} runs decide at least {:.0} % of the rows in at most {longest:.0} s",
        100.0 * PART
    ));
    Ok(())
}

/// Keeps a checkup's own report in `target/evidence/`, for whoever asks why a row is open.
fn keep(name: &str, whole: &Value) -> anyhow::Result<()> {
    let name = format!("evidence/{}.json", name.replace(' ', "-"));
    crate::write(&crate::target().join(name), whole.to_string())
}

/// CPU time of other programs over all parts, as the trials have it.
fn others(parts: &[Value]) -> String {
    let (mut used, mut span) = (0.0, 0.0);
    for trial in parts.iter().filter_map(|part| part["report"]["trials"].as_array()).flatten() {
        let span_ms = trial["machine"]["span_ms"].as_f64().unwrap_or(0.0);
        used += trial["machine"]["foreign_percent"].as_f64().unwrap_or(0.0) * span_ms;
        span += span_ms;
    }
    // The difference of two meters, which may come out a little below nothing.
    format!("{:.0} % of a CPU", f64::max(used / f64::max(span, 1.0), 0.0))
}

/// Reports of equal arms under each of five loads: 200 in all, at most 17 of which may call a difference.
const SAME: usize = 40;

fn same(account: &mut Account, part: &str, load: Load) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let subjects: [&[&str]; 4] = [
        &["raw", "--connections", "1,64"],
        &["redis", "--connections", "1,8"],
        &["memcached", "--connections", "1,64"],
        &["connect"],
    ];
    let _beside = load.start()?;
    let head = format!("{part} | ");
    let (called, directions) = called_different(account, &program, &head, SAME, &subjects)?;
    account.tell(&format!("{head}{}: {called}); by direction {directions:?}", load.name));
    Ok(())
}

/// Runs with one arm slower by 10 %, in each of two halves; 45 of all 50 have to find it.
const SLOWED: usize = 25;

fn slowed(account: &mut Account, part: &str, load: Load) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let first = if part.ends_with('1') { 1 } else { SLOWED + 1 };
    let (seeds, head) = (first..=first + SLOWED - 1, format!("{part} | "));
    let _beside = load.start()?;
    let right = called_slower(account, &program, &head, seeds, "--work 300us --longer 10% --budget 20s")?;
    account.tell(&format!(
        "{head}{}: {right} of {SLOWED} runs of at most 20 s call the arm that works 10 % longer slower",
        load.name
    ));
    Ok(())
}

/// Workloads of `ratios WORKLOAD`, and the time of each report: the shortest that `bench` takes for a proxy is 32 s.
const RATIOS: [(&str, &str); 7] = [
    ("raw", "8s"),
    ("redis", "8s"),
    ("memcached", "8s"),
    ("mysql", "8s"),
    ("postgres", "8s"),
    ("fastcgi", "8s"),
    ("proxy", "36s"),
];
/// Farthest that a ratio of CPU time may be from the quiet one.
const NEAR: f64 = 0.05;

/// What a workload of the checkup shows beside each load ÷ the quiet one: ratios, and what a request saves in microseconds.
///
/// The saving is told beside the ratio because a load adds to both arms alike: a wake-up of a CPU that somebody else uses took 15 µs
/// more here, twice a request. A ratio is nearer to 1 then, and says nothing of what a switch would bring.
fn ratios(account: &mut Account, part: &str, _: Load) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let named = RATIOS.into_iter().find(|(workload, _)| part.ends_with(workload));
    let (workload, budget) = named.context("no such workload")?;
    let mut near = Near::default();
    let mut quiet: BTreeMap<String, Row> = BTreeMap::new();
    for beside in [QUIET].into_iter().chain(LOADS) {
        let _beside = beside.start()?;
        let words = ["bench", workload, "--connections", "1,64", "--budget", budget, "--seed", "1"];
        let report = report(&program, &words)?;
        for found in list(&report, "comparisons")? {
            let metric = found["metric"].as_str().unwrap_or_default();
            if metric != "latency_mean" && metric != "total_cpu_per_op" {
                continue;
            }
            let row = Row {
                found: found.clone(),
                saved: (metric == "total_cpu_per_op").then(|| saved(&report, found)).transpose()?,
            };
            let name = format!("{}, {metric}", found["candidate"].as_str().unwrap_or_default());
            let about = format!("{part} | {name}: beside {}: {}", beside.name, row.in_words());
            match quiet.get(&name) {
                Some(base) => account.tell(&format!("{about}; ÷ quiet {}", near.compare(&row, base))),
                None => {
                    account.tell(&about);
                    quiet.insert(name, row);
                }
            }
        }
    }
    let Near { all, ratios, savings, savings_agree } = near;
    account.tell(&format!(
        "{part} | CPU time per request beside a load: the ratio is within {:.0} % of the quiet one in {ratios} of {all} cases; \
         the saving is so in {savings}, and in {savings_agree} the interval of saving ÷ quiet has 1",
        100.0 * NEAR
    ));
    Ok(())
}

struct Row {
    found: Value,
    /// Microseconds: mean over blocks with its 95 % interval.
    saved: Option<Location>,
}

impl Row {
    fn in_words(&self) -> String {
        let ratio = in_words(&self.found);
        let Some(Location { estimate, interval, .. }) = &self.saved else { return ratio };
        let takes = number(&self.found, "baseline_value");
        let (low, high) = (interval.low, interval.high);
        format!(
            "{ratio}; over TCP it takes {takes:.2} µs, and saves {estimate:.2} ({low:.2}\u{2013}{high:.2}) µs"
        )
    }
}

/// How many rows of CPU time are near to the quiet ones.
#[derive(Default)]
struct Near {
    all: usize,
    ratios: usize,
    savings: usize,
    savings_agree: usize,
}

impl Near {
    /// Counts a row, and returns how it compares with the quiet one, in words.
    fn compare(&mut self, row: &Row, base: &Row) -> String {
        let [ratio, low, high] = quotient(&row.found, &base.found);
        let words = format!("{ratio:.3} ({low:.3}\u{2013}{high:.3})");
        let (Some(saved), Some(base)) = (&row.saved, &base.saved) else { return words };
        self.all += 1;
        self.ratios += usize::from((ratio - 1.0).abs() <= NEAR);
        let times = saved.estimate / base.estimate;
        let error = relative_error(saved).hypot(relative_error(base));
        self.savings += usize::from((times - 1.0).abs() <= NEAR);
        self.savings_agree += usize::from((times - 1.0).abs() <= times * error);
        format!("{words}, saving {times:.2} (\u{b1}{:.0} %)", 100.0 * error)
    }
}

/// Half of the interval ÷ the estimate.
fn relative_error(location: &Location) -> f64 {
    (location.interval.high - location.interval.low) / 2.0 / location.estimate
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Microseconds of CPU time that a request takes less over the candidate, block by block.
fn saved(report: &Value, found: &Value) -> anyhow::Result<Location> {
    let mut blocks: BTreeMap<u64, [Vec<f64>; 2]> = BTreeMap::new();
    for trial in list(report, "trials")? {
        let arm = ["baseline", "candidate"].iter().position(|role| trial["arm"] == found[role]);
        let (Some(arm), Some(block)) = (arm, trial["block"].as_u64()) else { continue };
        let parts = ["client_cpu_us_per_op", "server_cpu_us_per_op"].map(|name| trial[name].as_f64());
        let [Some(client), Some(server)] = parts else { continue };
        blocks.entry(block).or_default()[arm].push(client + server);
    }
    let both = blocks.values().filter(|arms| arms.iter().all(|arm| !arm.is_empty()));
    let savings: Vec<f64> = both.map(|[tcp, unix]| mean(tcp) - mean(unix)).collect();
    locate_mean(&savings, 0.95).context("no blocks")
}

/// One ratio ÷ another, of independent reports, with an interval: half-widths on the log scale add like errors do.
fn quotient(found: &Value, base: &Value) -> [f64; 3] {
    let [middle, error] = log_ratio(found);
    let [base_middle, base_error] = log_ratio(base);
    let (middle, error) = (middle - base_middle, error.hypot(base_error));
    [middle, middle - error, middle + error].map(f64::exp)
}

fn log_ratio(found: &Value) -> [f64; 2] {
    let [ratio, low, high] = ["ratio", "ci_low", "ci_high"].map(|name| number(found, name).ln());
    [ratio, (high - low) / 2.0]
}

/// Longest time of a measurement of a server that serves others.
const SERVING: &str = "30s";

/// Servers that run already and serve a load of their own meanwhile: `bench redis` beside a client that asks 5,000 times a
/// second, and `bench mysql` on the database of a site that serves pages.
fn serving(account: &mut Account, part: &str, _: Load) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let directory = tempfile::tempdir()?;
    {
        let redis = Redis::start(directory.path())?;
        let _asked = start_load(&format!("asker 127.0.0.1:{} 5000", redis.port))?;
        let (tcp, unix) = (format!("tcp:127.0.0.1:{}", redis.port), format!("unix:{}", redis.socket));
        let words = ["bench", "redis", "--tcp", &tcp, "--unix", &unix, "--connections", "1,64"];
        served(account, part, "a Redis that answers 5,000 GET/s of another client", &program, &words)?;
    }
    let site = Site::start(PAGES_PER_S)?;
    let [tcp, unix] = site.blog.databases();
    // Of three arms; 64 would be more than a quarter of the connections that the server has left, which bench refuses.
    let words =
        ["bench", "mysql", "--tcp", &tcp, "--unix", &unix, "--read-only", "yes", "--connections", "1,8"];
    served(account, part, "the MariaDB of a site at 20 pages/s", &program, &words)
}

fn served(
    account: &mut Account,
    part: &str,
    name: &str,
    program: &Path,
    words: &[&str],
) -> anyhow::Result<()> {
    for run in 1..=3 {
        let seed = run.to_string();
        let more = ["--yes", "--budget", SERVING, "--seed", &seed];
        let begun = Instant::now();
        let report = report(program, &[words, &more].concat())?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut rows = Vec::new();
        let mut decided = 0;
        for found in list(&report, "comparisons")? {
            let metric = found["metric"].as_str().unwrap_or_default();
            if !["latency_p50", "latency_mean", "throughput", "total_cpu_per_op"].contains(&metric) {
                continue;
            }
            decided += usize::from(is_decided(found));
            let connections = &found["point"]["connections"];
            let verdict = found["verdict"].as_str().unwrap_or_default();
            rows.push(format!("  {metric}, {connections} connections: {}: {verdict}", in_words(found)));
        }
        account.tell(&format!(
            "{part} | {name}, run {run}: {decided} of {} rows decided in {seconds:.0} s; it used {:.0} % of a CPU for others before",
            rows.len(),
            number(&report["workload"], "server_for_others_percent")
        ));
        rows.iter().for_each(|row| account.tell(row));
    }
    Ok(())
}

/// Length of a neighbour's cycle: no multiple of a slice, a round or the kernel's tick.
const CYCLE: Duration = Duration::from_millis(37);

/// Runs the load of these words until it is killed: a neighbour by the part of the time that it works, and the seconds in which
/// it works and rests; the visitors of a site and the client of a Redis by its address and their requests a second.
pub(crate) fn run_load(words: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["neighbour", duty] => compute(duty.parse()?, None),
        ["neighbour", duty, works, rests] => compute(duty.parse()?, Some((works.parse()?, rests.parse()?))),
        ["reader", address, per_s] => read_pages(address, per_s.parse()?),
        ["asker", address, per_s] => ask(address, per_s.parse()?),
        _ => bail!("no such load: {}", words.join(" ")),
    }
}

/// Computes for a part of each cycle; with bursts only in the first seconds of each.
fn compute(duty: f64, bursts: Option<(f64, f64)>) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let is_resting = match bursts {
            Some((works, rests)) => begun.elapsed().as_secs_f64() % (works + rests) >= works,
            None => false,
        };
        let duty = if is_resting { 0.0 } else { duty };
        let until = Instant::now() + CYCLE.mul_f64(duty);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        if duty < 1.0 {
            std::thread::sleep(CYCLE.mul_f64(1.0 - duty));
        }
    }
}

impl Load {
    fn start(&self) -> anyhow::Result<Vec<Process>> {
        let mut running = Vec::new();
        for duty in self.duties {
            let bursts = self.bursts.map_or_else(String::new, |(works, rests)| format!(" {works} {rests}"));
            running.push(start_load(&format!("neighbour {duty}{bursts}"))?);
        }
        Ok(running)
    }
}

/// Starts a load of [`run_load`], which is this program.
fn start_load(words: &str) -> anyhow::Result<Process> {
    let mut load = Command::new(std::env::current_exe().context("finding this program")?);
    Process::start(load.arg("load").args(words.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()))
}

/// A WordPress, and a client that asks it for so many pages a second.
struct Site {
    // Stopped first.
    _reader: Process,
    blog: Blog,
}

impl Site {
    fn start(pages_per_s: f64) -> anyhow::Result<Self> {
        let blog = Blog::start()?;
        let reader = start_load(&format!("reader {} {pages_per_s}", blog.address()))?;
        Ok(Site { _reader: reader, blog })
    }
}

/// Sends so many GETs a second over one connection, one after the other in groups of 10 ms.
fn ask(address: &str, per_s: f64) -> anyhow::Result<()> {
    const GROUP: Duration = Duration::from_millis(10);
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let begun = Instant::now();
    let mut groups = 0_u32;
    let mut reply = [0; 64];
    loop {
        for _ in 0..(per_s * GROUP.as_secs_f64()) as u32 {
            stream.write_all(b"GET nothing\r\n")?;
            ensure!(stream.read(&mut reply)? > 0, "Redis closed the connection");
        }
        groups += 1;
        std::thread::sleep((GROUP * groups).saturating_sub(begun.elapsed()));
    }
}

/// Asks for the first page of a site so many times a second. A page that comes late delays no other.
fn read_pages(address: &str, per_s: f64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut page = 0_u32;
    loop {
        let due = Duration::from_secs_f64(f64::from(page) / per_s);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let address = address.to_owned();
        std::thread::spawn(move || read_page(&address));
        page += 1;
    }
}

/// Reads a page to its end; one that fails is one page less.
fn read_page(address: &str) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET / HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    std::io::copy(&mut stream, &mut std::io::sink())
}
