//! `samehost run --trial`: what a trial has counted, as a report like any other.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use samehost_analysis::{analyse, smallest_found};
use samehost_bench::machine;
use samehost_model::human::{count, format_percent, format_seconds, format_value};
use samehost_model::{
    Arm, Better, Code, Comparison, DrawnConnections, Endpoint, Head, Host, MetricInfo, Plan, Point, Redactor,
    Report, Stopping, Transport, Trial, Verdict, Warning, WorkloadInfo,
};
use samehost_report::reason_of_no_time;
use samehost_run::{
    Doors, Mode, Terms, TrialError, Tried, TriedArm, TriedBlock, TriedPort, UnitPlan, UnitTrial, Way,
    may_be_tried, plan_unit,
};
use samehost_scan::p99_us;
use samehost_stats::FIRST_LOOK;
use samehost_system::clock;

use crate::cli::RunOptions;
use crate::exit::Ending;
use crate::output::{self, Target};
use crate::request::fresh_seed;
use crate::wrong_use::WrongUse;

/// What is compared, and its name in JSON; the first decides.
const TIME: &str = "exchange_time_us";
const MEAN: &str = "exchange_mean_us";
const P99: &str = "exchange_p99_us";
const HOP: &str = "hop_us";
/// The other parts are shown and not compared: what the server works, and how long it has others before, a transport changes by way of
/// caches and queues at most, and "work takes 49 % more" of 2 µs was the second sentence of an answer.
const OTHER_PARTS: [&str; 3] = ["waiting_us", "work_us", "client_us"];

pub struct Planned {
    pub asked: Asked,
    outputs: Vec<(&'static str, Target)>,
}

#[derive(Clone)]
pub struct Asked {
    pub terms: Terms,
    started_at: String,
    /// Read once, and not at each look at a trial: the program's connects wait meanwhile.
    host: Host,
}

pub fn planned(options: &RunOptions) -> anyhow::Result<Option<Planned>> {
    let Some(share) = options.trial else { return Ok(None) };
    if options.preload || !options.listen.is_empty() {
        return Err(WrongUse(
            "--trial is not to be had with a preloaded library (--preload, --listen): leave it out".into(),
        )
        .into());
    }
    let mut outputs = Vec::new();
    for (name, path) in [("json", &options.json), ("html", &options.html)] {
        let Some(path) = path else { continue };
        if path == Path::new("-") {
            return Err(WrongUse(format!("--{name} -: standard output is the program's; name a file")).into());
        }
        outputs.push((name, output::open(path)?));
    }
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let started_at = clock::utc_now();
    let terms = Terms {
        share,
        seed,
        length: options.trial_time,
        exact: options.exact,
        until_decided: options.until_decided,
    };
    Ok(Some(Planned { asked: Asked { terms, started_at, host: machine::host() }, outputs }))
}

impl Asked {
    /// Whether what was counted so far decides the exchange time at each port that was used: with the same analysis as the report's,
    /// whose test may be looked at after each block.
    pub fn is_decided(&self, tried: &Tried, options: &RunOptions) -> bool {
        let mut report = report(tried, options, self);
        analyse(&report).apply(&mut report);
        let mut found = report.analysis.comparisons.iter().filter(|one| one.metric == TIME).peekable();
        found.peek().is_some() && found.all(is_decided)
    }
}

impl Planned {
    /// Analyses what was counted and writes it: the text on standard error, for standard output is the program's.
    pub fn conclude(self, tried: &Tried, options: &RunOptions) -> anyhow::Result<()> {
        if tried.is_empty() && self.outputs.is_empty() {
            output::complain("nothing was tried: the program made no connection to a mapped port");
            return Ok(());
        }
        let mut report = report(tried, options, &self.asked);
        analyse(&report).apply(&mut report);
        let notes = notes(tried, &report, options);
        report.warnings.extend(notes);
        report.hide(&output::own_secrets());
        for (name, target) in self.outputs {
            let Some(renderer) = samehost_report::RENDERERS.iter().find(|one| one.name == name) else {
                continue;
            };
            let mut bytes = Vec::new();
            (renderer.render)(&report, &mut bytes).with_context(|| format!("rendering {name}"))?;
            output::write(target, &bytes)?;
        }
        if !options.quiet {
            output::show_beside(|terminal, out| terminal.render(&report, out))?;
        }
        Ok(())
    }
}

/// Doors of two servers are wrong use; what else keeps a trial from beginning is missing here.
pub fn refused(error: TrialError) -> anyhow::Error {
    match error {
        TrialError::TwoServers(..) => WrongUse(error.to_string()).into(),
        error => error.into(),
    }
}

/// A trial as the report of `bench`: arms, trials, comparisons. Connections are the unit, not requests: with requests, 24 to 69 % of
/// trials of equal arms are called different. A kind of report of its own was rejected, as nobody could compare, store or read it
/// with what there is (docs/decisions/0135).
fn report(tried: &Tried, options: &RunOptions, asked: &Asked) -> Report {
    let mut report = Report::new(head(tried, options, asked));
    let shown = shown(&tried.ports);
    let is_alone = shown.len() <= 1;
    for port in shown {
        let arms = arms(port, is_alone);
        for (arm, found) in arms.iter().zip(&port.arms).filter(|_| tried.void.is_none()) {
            for (block, counted) in (0..).zip(&found.blocks) {
                if counted.connections > 0 {
                    report.trials.push(trial(arm, block, found, counted, tried));
                }
            }
        }
        report.head.arms.extend(arms);
    }
    // A chart shows trials in this order, and a slope in it is read as drift: both ways of a block ran at the same time.
    report.trials.sort_by_key(|trial| trial.block);
    report
}

/// The ports that somebody connected to; the first one where nobody did, so that a report says of which ports nothing is known.
fn shown(ports: &[TriedPort]) -> Vec<&TriedPort> {
    let used: Vec<&TriedPort> = ports.iter().filter(|port| has_connections(port)).collect();
    if used.is_empty() { ports.iter().take(1).collect() } else { used }
}

fn has_connections(port: &TriedPort) -> bool {
    connections(port) > 0
}

fn head(tried: &Tried, options: &RunOptions, asked: &Asked) -> Head {
    let metrics = [TIME, MEAN, P99, HOP].map(|name| MetricInfo::own(name, "us", Better::Lower)).to_vec();
    let program = options.command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut workload = WorkloadInfo {
        name: "own traffic".into(),
        title: format!("own traffic of {program}"),
        metrics,
        ..WorkloadInfo::default()
    };
    let share = asked.terms.share;
    workload.parameters.insert("over_the_unix_socket".into(), share.to_string());
    let stamps = match tried.mode {
        Mode::Entries => "functions that send",
        Mode::Functions | Mode::FunctionsByCookie => "functions that send and receive",
        Mode::SystemCalls => "system calls",
        Mode::Arrivals => "arrivals",
    };
    workload.parameters.insert("stamped_by".into(), stamps.into());
    Head {
        samehost_version: env!("CARGO_PKG_VERSION").into(),
        started_at: asked.started_at.clone(),
        command: Redactor::default().words(std::env::args()),
        seed: asked.terms.seed,
        host: asked.host.clone(),
        workload,
        plan: Plan {
            max_blocks: tried.blocks(),
            looks: Vec::new(),
            stopping: if asked.terms.until_decided { Stopping::Decision } else { Stopping::Precision },
            // The program decides how much there is to measure.
            precision: 1e9,
            trial_s: None,
            budget_s: None,
            control: false,
            ..Plan::default()
        },
        ..Head::default()
    }
}

fn arms(port: &TriedPort, is_alone: bool) -> [Arm; 2] {
    let number = port.map.port;
    let mut point = Point { connections: connections(port), ..Point::default() };
    if !is_alone {
        point.parameters.insert("port".into(), number.to_string());
    }
    Way::BOTH.map(|way| {
        let (name, transport, endpoint) = match way {
            Way::Tcp => ("tcp", Transport::Tcp, format!("tcp:127.0.0.1:{number}").parse::<Endpoint>().ok()),
            Way::Unix => ("unix", Transport::Unix, Some(port.map.socket.clone())),
        };
        Arm {
            id: if is_alone { name.to_owned() } else { format!("{name}/{number}") },
            name: name.to_owned(),
            transport,
            endpoint,
            tls: false,
            capacity_per_s: None,
            point: point.clone(),
        }
    })
}

fn connections(port: &TriedPort) -> u32 {
    port.arms.iter().flat_map(|arm| &arm.blocks).map(|block| block.connections).sum::<u64>() as u32
}

fn trial(arm: &Arm, block: u32, found: &TriedArm, counted: &TriedBlock, tried: &Tried) -> Trial {
    let counts = &counted.counts;
    let mut trial = Trial {
        arm: arm.id.clone(),
        block,
        position: u32::from(arm.transport == Transport::Unix),
        // A block has its part of the whole time, and both arms share it.
        seconds: tried.seconds / f64::from(2 * tried.blocks()),
        operations: if tried.is_in_a_row { counted.exchanges() } else { counts.all_exchanges() },
        transport_observed: None,
        drawn: Some(DrawnConnections {
            connections: counted.connections,
            timed: counted.timed(),
            fell_back: counted.fell_back,
        }),
        ..Trial::default()
    };
    for (kind, number) in [("not connected", counted.refused), ("no reply", counted.unanswered)] {
        if number > 0 {
            trial.errors.insert(kind.into(), number);
        }
    }
    if found.no_time.is_some() {
        return trial;
    }
    let mut values = vec![(TIME, counted.typical_us()), (MEAN, counted.mean_us()), (P99, p99_us(counts))];
    if let Some(parts) = samehost_scan::parts(counts) {
        values.push((HOP, Some(parts.hop_us())));
        for (name, part) in OTHER_PARTS.into_iter().zip([parts.waiting_us, parts.work_us, parts.client_us]) {
            values.push((name, Some(part)));
        }
    }
    for (name, value) in values {
        if let Some(value) = value {
            trial.measurements.insert(name.into(), value);
        }
    }
    trial
}

/// What a reader has to keep in mind, besides what the analysis finds.
fn notes(tried: &Tried, report: &Report, options: &RunOptions) -> Vec<Warning> {
    let mut notes = Vec::new();
    if let Some(why) = &tried.void {
        let message = format!("the trial is void, and nothing of it is compared: {why}");
        notes.push(Warning::new(Code::NotMeasured, "void", message));
    }
    for port in &tried.ports {
        for (name, arm) in ["TCP", "the Unix socket"].into_iter().zip(&port.arms) {
            if let Some(why) = arm.no_time {
                let why = reason_of_no_time(why, None);
                let message = format!("requests over {name} at {} have no time: {why}", port.map);
                notes.push(Warning::new(Code::NotMeasured, name, message));
            }
        }
        if has_connections(port) {
            notes.push(Warning::new(Code::Note, "arms", shares(port)));
        }
    }
    if let Some(smallest) =
        report.analysis.comparisons.iter().find(|one| one.metric == TIME).and_then(smallest_found)
    {
        let message = format!(
            "a difference of {} or more would have been found in four of five such runs; more connections find smaller ones",
            format_percent(smallest)
        );
        notes.push(Warning::new(Code::Note, "smallest", message));
    }
    notes.extend(left_out(tried));
    if report.head.plan.stopping == Stopping::Decision && !is_answered(report) {
        let message = "the exchange time was not decided when the trial ended: its interval may be looked at all the time, and is wider \
                       than that of a trial of a fixed length";
        notes.push(Warning::new(Code::Note, "undecided", message));
    }
    if report.warnings.iter().any(|warning| warning.code == Code::FewConnections) {
        let program = options.command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
        let message = format!("a pool opens new connections with {}", setting(program));
        notes.push(Warning::new(Code::Note, "pool", message));
    }
    let message = "one server and the same CPUs served both: what the faster way spares them shortens the other's waiting too, so that \
                   a whole switch gains more than this shows the busier the server is";
    notes.push(Warning::new(Code::Note, "interference", message));
    notes
}

/// Whether a comparison is decided by the test that may be looked at after each block. Of fewer blocks the analysis has one that may be
/// looked at once: with it 10 % of equal arms were called different.
fn is_decided(comparison: &Comparison) -> bool {
    comparison.verdict != Verdict::Inconclusive && comparison.blocks as usize >= FIRST_LOOK
}

fn is_answered(report: &Report) -> bool {
    let mut times = report.analysis.comparisons.iter().filter(|one| one.metric == TIME);
    times.all(|one| one.verdict != Verdict::Inconclusive)
}

/// How many connections and exchanges went each way.
fn shares(port: &TriedPort) -> String {
    let [tcp, unix] = [&port.arms[0], &port.arms[1]].map(|arm| {
        let connections: u64 = arm.blocks.iter().map(|block| block.connections).sum();
        (connections, arm.counts.all_exchanges())
    });
    let fell_back: u64 = port.arms[1].blocks.iter().map(|block| block.fell_back).sum();
    let fell_back = match fell_back {
        0 => String::new(),
        number => format!(" ({} of them fell back to TCP)", count(number)),
    };
    format!(
        "{}: {} connections with {} exchanges{} over TCP, {}{fell_back} with {}{} over the Unix socket; a pool that gives work to whichever \
         connection is free gives the faster way more",
        port.map,
        count(tcp.0),
        count(tcp.1),
        p99(&port.arms[0]),
        count(unix.0),
        count(unix.1),
        p99(&port.arms[1])
    )
}

fn p99(arm: &TriedArm) -> String {
    match p99_us(&arm.counts).filter(|_| arm.no_time.is_none()) {
        Some(time) => format!(" (p99 {})", format_value(time, "us")),
        None => String::new(),
    }
}

fn left_out(tried: &Tried) -> Vec<Warning> {
    let mut notes = Vec::new();
    if tried.unserved > 0 {
        let message = format!(
            "{} connections to an address at which nobody listens over TCP were left alone: the program asks there before it asks where \
             somebody does",
            count(tried.unserved)
        );
        notes.push(Warning::new(Code::Note, "unserved", message));
    }
    if tried.apart > 0 {
        let message = format!(
            "{} connections went over TCP and are not in it, because one server was not known to be behind both doors when they were \
             made",
            count(tried.apart)
        );
        notes.push(Warning::new(Code::Note, "apart", message));
    }
    if tried.after_the_last_block > 0 {
        let message = format!(
            "{} connections came after the last whole block and are not in it",
            count(tried.after_the_last_block)
        );
        notes.push(Warning::new(Code::Note, "incomplete", message));
    }
    if tried.left_out > 0 {
        let message = format!(
            "the trial was full: {} later connections went over TCP and are not in it",
            count(tried.left_out)
        );
        notes.push(Warning::new(Code::Note, "full", message));
    }
    notes
}

/// What has a pool open new connections, by the program's name; of all that are known where it says nothing.
fn setting(program: &OsStr) -> String {
    let program = program.to_string_lossy();
    let known = [
        ("java", "maxLifetime of HikariCP (30 s or more)"),
        ("node", "maxLifetimeSeconds of pg's Pool"),
        ("python", "pool_recycle of SQLAlchemy, max_lifetime of psycopg_pool, CONN_MAX_AGE of Django"),
        (
            "php",
            "connections that are not persistent (without PDO::ATTR_PERSISTENT, or `p:` before the host)",
        ),
        ("dotnet", "Connection Lifetime of Npgsql"),
    ];
    match known.iter().find(|(name, _)| program.starts_with(name)) {
        Some((_, setting)) => (*setting).to_owned(),
        None => {
            "its longest lifetime: SetConnMaxLifetime of Go's database/sql, MaxConnLifetime of pgxpool, ConnMaxLifetime of go-redis, \
             max_lifetime of sqlx, maxLifetime of HikariCP, pool_recycle of SQLAlchemy"
                .to_owned()
        }
    }
}

/// `run --trial --unit`: what starts a service under a trial, printed, or installed where that is asked for.
pub fn of_unit(unit: &str, options: &RunOptions) -> anyhow::Result<Ending> {
    let program = std::env::current_exe().context("the path of this program")?;
    let (Some(share), Some(length)) = (options.trial, options.trial_time) else {
        return Err(WrongUse("--unit needs --trial and --for".into()).into());
    };
    let mut words = vec![format!("--trial={}", share.to_string().replace(' ', ""))];
    words.extend(options.seed.map(|seed| format!("--seed={seed}")));
    for (is_given, word) in [(options.exact, "--exact"), (options.until_decided, "--until-decided")] {
        if is_given {
            words.push(word.to_owned());
        }
    }
    let trial = UnitTrial { unit, maps: &options.map, options: words, length, program: &program };
    let root = options.systemd_root.as_path();
    let planned = plan_unit(root, &trial).map_err(|error| WrongUse(error.to_string()))?;
    for doubt in &planned.doubts {
        output::complain(&format!("{unit} has {doubt}; systemctl status says so where it does not start"));
    }
    // Units of another root are not those of this machine.
    if root == Path::new("/") {
        may_be_tried(options.map.iter().zip(&Doors::of_all(&options.map))).map_err(refused)?;
    }
    let length = format_seconds(length.as_secs_f64());
    if !options.install {
        output::print(by_hand(unit, &planned, &length).as_bytes())?;
        return Ok(Ending::Done);
    }
    output::complain(&format!(
        "{unit} is restarted twice: now, and half a minute after the trial, which takes {length}. Until then new connections of it go \
         over TCP or over the Unix socket"
    ));
    planned.install(root, |command| systemctl(root, command)).with_context(|| {
        format!("the trial of {unit} is not installed, and nothing of it is left below /run/systemd/system")
    })?;
    output::complain(&format!(
        "the report will be in {}; the trial takes itself away, and ends at once with: {}",
        planned.report.display(),
        planned.ends_at_once()
    ));
    Ok(Ending::Done)
}

/// What a person does to have it, and what takes it away.
fn by_hand(unit: &str, planned: &UnitPlan, length: &str) -> String {
    let mut text = String::new();
    for file in planned.ends.iter().chain([&planned.drop_in]) {
        text.push_str(&format!("# /{}\n{}\n", file.path.display(), file.text));
    }
    text.push_str(&format!("# {unit} is restarted twice: by the last command, and half a minute after the trial, which takes {length}.\n"));
    for command in planned.commands() {
        text.push_str(&format!("{}\n", command.join(" ")));
    }
    text.push_str(&format!("# The report will be in {}. To end it at once:\n", planned.report.display()));
    text.push_str(&format!("# {}\n", planned.ends_at_once()));
    text
}

/// Has systemd do something; of another root than this machine's it is only told.
fn systemctl(root: &Path, command: &[String]) -> io::Result<()> {
    let words = command.join(" ");
    let [name, arguments @ ..] = command else { return Ok(()) };
    if root != Path::new("/") {
        output::complain(&format!("not run for {}: {words}", root.display()));
        return Ok(());
    }
    let ended = Command::new(name).args(arguments).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ended.stderr);
    Err(io::Error::other(format!("{words}: {}", why.lines().next().unwrap_or("failed"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_nobody_connected_to_are_not_in_the_report() {
        fn port(number: u16, connections: u64) -> TriedPort {
            let mut arms = [TriedArm::default(), TriedArm::default()];
            arms[0].blocks[3].connections = connections;
            TriedPort { map: format!("{number}=/run/{number}.sock").parse().unwrap(), arms }
        }
        let numbers =
            |ports: &[TriedPort]| -> Vec<u16> { shown(ports).iter().map(|port| port.map.port).collect() };
        // Both arms of a port alone are called tcp and unix: with the first one too, each was there twice.
        assert_eq!(numbers(&[port(1, 0), port(2, 9)]), [2]);
        assert_eq!(numbers(&[port(1, 8), port(2, 0), port(3, 9)]), [1, 3]);
        assert_eq!(numbers(&[port(1, 0), port(2, 0)]), [1]);
    }

    #[test]
    fn a_pool_is_named_by_the_programs_name() {
        assert!(setting(OsStr::new("java")).contains("maxLifetime"));
        assert!(setting(OsStr::new("python3.11")).contains("pool_recycle"));
        assert!(setting(OsStr::new("shop")).contains("SetConnMaxLifetime"));
    }
}
