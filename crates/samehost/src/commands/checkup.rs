//! `samehost`: the checkup. A short measurement of each kind of use and of the servers that are installed, what it
//! means, and how to measure the servers that run.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context;
use samehost_bench::machine::Awake;
use samehost_model::Report;
use samehost_model::scan::Scan;
use samehost_report::{Around, Finding, FindingKind, Running};
use samehost_scan::Costs;
use serde_json::json;

use crate::checkup_cure::{CURE_TIME, cure, cure_part};
use crate::checkup_measure::{Bench, Spend};
use crate::checkup_parts::{Neighbour, Part, neighbours, parts};
use crate::checkup_race::{Leg, race};
use crate::checkup_worth::{Worth, here, worth_doing};
use crate::cli::CheckupOptions;
use crate::commands::bench::fresh_seed;
use crate::commands::scan::measured;
use crate::exit::{Ending, WrongUse};
use crate::{output, signals};

/// For all of it: looking, starting servers, measuring.
const BUDGET: Duration = Duration::from_secs(54);
const BUDGETS: std::ops::RangeInclusive<Duration> = Duration::from_secs(20)..=Duration::from_secs(600);

/// How long the traffic of what runs here is watched.
const MOMENT: Duration = Duration::from_secs(2);
pub fn checkup(options: &CheckupOptions) -> anyhow::Result<Ending> {
    let budget = options.budget.unwrap_or(BUDGET);
    if !BUDGETS.contains(&budget) {
        return Err(WrongUse("--budget takes 20s to 10m; fewer seconds tell nothing".into()).into());
    }
    let deadline = Instant::now() + budget;
    let paths = [&options.json, &options.html].into_iter().flatten();
    let is_stdout_taken = output::is_stdout_taken(paths.map(std::path::PathBuf::as_path))?;
    let interrupted = signals::watch()?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let mut bench = Bench { seed, interrupted, quiet: options.quiet, awake: false };
    // Looked at before any server of ours runs.
    let neighbours = neighbours();
    let looked = look(&bench.interrupted);
    let cure_part = looked.as_ref().and_then(cure_part);
    let mut legs: Vec<Leg> = parts().into_iter().map(Leg::new).collect();
    bench.prepare(legs.iter().map(|leg| &leg.part).chain(&cure_part))?;
    // How long a CPU takes to wake is the machine's affair and no transport's, and where it is a virtual one it takes longer
    // than everything else.
    bench.awake = Awake::is_possible();

    let mut table = Table::new(!is_stdout_taken);
    let mut failed = Vec::new();
    let kept = if cure_part.is_some() { CURE_TIME } else { Duration::ZERO };
    let left = || deadline.saturating_duration_since(Instant::now()).saturating_sub(kept);
    let mut measure = |leg: &mut Leg, others, time| bench.go_on(leg, others, time, &mut failed);
    let mut told = |legs: &mut [Leg]| {
        judge_together(legs);
        table.tell(&findings(legs), Which::Decided)
    };
    let without_time = race(&mut legs, &left, &mut measure, &mut told)?;
    table.tell(&findings(&legs), Which::All)?;

    let mut notes: Vec<String> = Vec::new();
    if !without_time.is_empty() {
        let names = without_time.join(" and ");
        notes.push(format!("No time was left for {names}; a longer --budget has some."));
    }
    notes.extend(samehost_bench::workloads::WORKLOADS.iter().flat_map(|workload| workload.checkup_hints()));
    notes.extend(failed);
    // Last: what people look for first is how the transports compare.
    let cured = cure_part.filter(|_| !bench.is_interrupted()).and_then(|part| {
        let made = bench.measure(&part, Spend::All(CURE_TIME));
        let failed = |error| format!("What CUBIC would bring here could not be measured: {error:#}.");
        made.map_err(|error| notes.push(failed(error))).ok().map(|report| (part, report))
    });
    let cure = looked.as_ref().map(|scan| cure(scan, cured.as_ref().map(|(_, report)| report)));
    let (here, mut worth) = priced(looked, &legs);
    worth.splice(0..0, cure.unwrap_or_default());

    let labelled = |leg: &Leg| Some((label(&leg.part), leg.report.clone()?));
    let mut reports: Vec<(String, Report)> = legs.iter().filter_map(labelled).collect();
    reports.extend(cured.map(|(part, report)| (label(&part), report)));
    if let Some(path) = &options.json {
        output::write_to(path, &as_json(&reports, &neighbours, &notes, &worth)?)?;
    }
    if let Some(path) = &options.html {
        let parts: Vec<(&str, &Report)> =
            reports.iter().map(|(label, report)| (label.as_str(), report)).collect();
        let mut bytes = Vec::new();
        samehost_report::render_page("Checkup", &notes, &parts, &mut bytes)?;
        output::write_to(path, &bytes)?;
    }
    if !is_stdout_taken {
        let worth: Vec<Running<'_>> =
            worth.iter().map(|one| Running { about: &one.about, line: &one.command }).collect();
        let around = Around { here: &here, running: &running(&neighbours), worth: &worth };
        print(|out| output::terminal().end_checkup(&findings(&legs), &around, &notes, out))?;
    }
    Ok(if bench.is_interrupted() { Ending::Interrupted } else { Ending::Done })
}

/// Writes to standard output, at once.
fn print(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    write(&mut bytes)?;
    let mut stdout = std::io::stdout();
    stdout.write_all(&bytes).and_then(|()| stdout.flush()).context("standard output")
}

/// The table, whose rows are shown as they are decided.
struct Table {
    is_shown: bool,
    is_begun: bool,
    /// Rows that were shown, by their place.
    shown: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Decided,
    All,
}

impl Table {
    fn new(is_shown: bool) -> Self {
        Table { is_shown, is_begun: false, shown: BTreeSet::new() }
    }

    /// Shows the rows that were not shown yet.
    fn tell(&mut self, findings: &[Finding<'_>], which: Which) -> anyhow::Result<()> {
        if !self.is_shown {
            return Ok(());
        }
        let terminal = output::terminal();
        if let (false, Some(first)) = (self.is_begun, findings.first()) {
            print(|out| terminal.begin_checkup(&first.report.head.host, out))?;
            self.is_begun = true;
        }
        for (place, finding) in findings.iter().enumerate() {
            // What the scheduler makes of a row stands below it.
            let is_below =
                finding.kind == FindingKind::Scheduler && self.shown.contains(&place.wrapping_sub(1));
            let is_known = which == Which::All || finding.is_decided() || is_below;
            if is_known && self.shown.insert(place) {
                print(|out| terminal.checkup_row(finding, out))?;
            }
        }
        Ok(())
    }
}

/// What runs here and what it does for a moment, before anything of ours runs; none where it cannot be seen.
fn look(interrupted: &AtomicBool) -> Option<Scan> {
    let mut scan = samehost_scan::collect(env!("CARGO_PKG_VERSION")).ok()?;
    samehost_scan::advise(&mut scan);
    samehost_scan::observe(&mut scan, MOMENT, interrupted);
    Some(scan)
}

/// What was seen, priced with what the checkup has just measured: a sentence, and what is worth doing.
fn priced(looked: Option<Scan>, legs: &[Leg]) -> (String, Vec<Worth>) {
    let Some(mut scan) = looked else { return (String::new(), Vec::new()) };
    let of = |kinds: &[FindingKind], metric: &str| {
        let is_one = |part: &Part| part.lines.iter().any(|line| kinds.contains(&line.kind));
        let raw = legs.iter().filter(|leg| leg.part.workload == "raw" && is_one(&leg.part));
        raw.filter_map(|leg| measured(leg.report.as_ref()?, metric)).collect::<Vec<_>>()
    };
    let cpu = of(&[FindingKind::RoundTrip, FindingKind::Busy], "total_cpu_per_op");
    if let Some(costs) = Costs::of(&cpu, &of(&[FindingKind::RoundTrip], "latency_mean")) {
        samehost_scan::predict(&mut scan, &costs);
    }
    (here(&scan), worth_doing(&scan))
}

/// The rows of the table are one answer: they are judged as one family, and not each report's for itself. Those that were
/// not measured yet belong to it.
fn judge_together(legs: &mut [Leg]) {
    let rows: Vec<(usize, usize)> = legs
        .iter()
        .filter(|leg| leg.report.is_some())
        .enumerate()
        .flat_map(|(place, leg)| leg.rows().map(move |(row, _)| (place, row)))
        .collect();
    let all: usize = legs.iter().map(Leg::asked).sum();
    let mut reports: Vec<&mut Report> = legs.iter_mut().filter_map(|leg| leg.report.as_mut()).collect();
    samehost_analysis::judge_rows(&mut reports, &rows, (all - rows.len().min(all)) as u32);
}

/// The rows of the table, with their labels.
fn findings(legs: &[Leg]) -> Vec<Finding<'_>> {
    legs.iter()
        .filter_map(|leg| Some((&leg.part.lines, leg.report.as_ref()?)))
        .flat_map(|(lines, report)| {
            lines.iter().map(move |line| Finding {
                label: &line.label,
                report,
                metric: line.metric,
                connections: line.connections,
                kind: line.kind,
            })
        })
        .collect()
}

fn running(neighbours: &[Neighbour]) -> Vec<Running<'_>> {
    neighbours.iter().map(|found| Running { about: &found.about, line: &found.line }).collect()
}

/// What a part is called.
fn label(part: &Part) -> String {
    match part.lines.as_slice() {
        [line] => line.label.clone(),
        [] => "large transfers over TCP, by congestion control".to_owned(),
        _ => part.workload.to_owned(),
    }
}

fn as_json(
    reports: &[(String, Report)],
    neighbours: &[Neighbour],
    notes: &[String],
    worth: &[Worth],
) -> anyhow::Result<Vec<u8>> {
    let parts: Vec<_> =
        reports.iter().map(|(label, report)| json!({ "label": label, "report": report })).collect();
    let running: Vec<_> = neighbours
        .iter()
        .map(|found| {
            json!({
                "workload": found.workload,
                "process": found.server.name,
                "pid": found.server.pid,
                "endpoints": found.server.endpoints,
                "command": found.line,
            })
        })
        .collect();
    let whole = json!({
        "schema": "samehost.checkup/1", "parts": parts, "running_servers": running, "notes": notes,
        "worth_doing": worth,
    });
    let mut bytes = serde_json::to_vec_pretty(&whole)?;
    bytes.push(b'\n');
    Ok(bytes)
}
