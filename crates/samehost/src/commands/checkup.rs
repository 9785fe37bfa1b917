//! `samehost`: the checkup. A short measurement of each kind of use and of the servers that are installed, what it
//! means, and how to measure the servers that run.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use samehost_bench::workloads::{Parameters, Workload, workload};
use samehost_bench::{BenchError, Request, Wishes};
use samehost_model::scan::Scan;
use samehost_model::{Comparison, Report};
use samehost_report::{Around, Finding, FindingKind, Running};
use samehost_scan::Costs;
use serde_json::json;

use crate::checkup_cure::{CURE_TIME, cure, cure_part};
use crate::checkup_parts::{Neighbour, Part, neighbours, plan};
use crate::checkup_worth::{Worth, here, worth_doing};
use crate::cli::CheckupOptions;
use crate::commands::bench::fresh_seed;
use crate::commands::scan::measured;
use crate::exit::{Ending, WrongUse};
use crate::progress::Watcher;
use crate::{output, signals};

/// Starting servers and waiting for a calm machine come on top; all of it is to be over in a minute.
const BUDGET: Duration = Duration::from_secs(40);
const BUDGETS: std::ops::RangeInclusive<Duration> = Duration::from_secs(20)..=Duration::from_secs(600);

/// How long the traffic of what runs here is watched.
const MOMENT: Duration = Duration::from_secs(2);

pub fn checkup(options: &CheckupOptions) -> anyhow::Result<Ending> {
    let budget = options.budget.unwrap_or(BUDGET);
    if !BUDGETS.contains(&budget) {
        return Err(WrongUse("--budget takes 20s to 10m; fewer seconds tell nothing".into()).into());
    }
    let paths = [&options.json, &options.html].into_iter().flatten();
    let is_stdout_taken = output::is_stdout_taken(paths.map(std::path::PathBuf::as_path))?;
    let interrupted = signals::watch()?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    // Looked at before any server of ours runs.
    let neighbours = neighbours();
    let looked = look(&interrupted);
    let (mut parts, left) = plan(budget);
    // Last: what people look for first is how the transports compare.
    parts.extend(looked.as_ref().and_then(cure_part).map(|part| (part, CURE_TIME)));
    for (part, share) in &parts {
        let (workload, request) = request(part, *share, seed, &interrupted)?;
        if samehost_bench::needs_own_network(workload, &request) {
            // After the look at what runs here, which a user namespace would hide, and before the first thread.
            samehost_bench::network::prepare(&request.program)?;
            break;
        }
    }
    let mut notes: Vec<String> = Vec::new();
    if !left.is_empty() {
        notes.push(format!("No time was left for {}; a longer --budget has some.", left.join(" and ")));
    }
    notes.extend(samehost_bench::workloads::WORKLOADS.iter().flat_map(|workload| workload.checkup_hints()));
    let mut reports = Vec::new();
    for (part, share) in parts {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        match measure(&part, share, seed, &interrupted, options.quiet) {
            Ok(report) => reports.push((part, report)),
            Err(error) if part.lines.is_empty() && !interrupted.load(Ordering::Relaxed) => {
                notes.push(format!("What CUBIC would bring here could not be measured: {error:#}."));
            }
            Err(error) if part.installed && !interrupted.load(Ordering::Relaxed) => {
                notes.push(format!("{} is installed but could not be measured: {error:#}.", part.workload));
            }
            Err(error) => return Err(error),
        }
    }
    judge_together(&mut reports);
    let cure = looked.as_ref().map(|scan| cure(scan, &reports)).unwrap_or_default();
    let (here, mut worth) = priced(looked, &reports);
    worth.splice(0..0, cure);
    if let Some(path) = &options.json {
        output::write_to(path, &as_json(&reports, &neighbours, &notes, &worth)?)?;
    }
    if let Some(path) = &options.html {
        let labels: Vec<String> = reports.iter().map(|(part, _)| label(part)).collect();
        let parts: Vec<(&str, &Report)> =
            labels.iter().zip(&reports).map(|(label, (_, report))| (label.as_str(), report)).collect();
        let mut bytes = Vec::new();
        samehost_report::render_page("Checkup", &notes, &parts, &mut bytes)?;
        output::write_to(path, &bytes)?;
    }
    if !is_stdout_taken {
        let mut bytes = Vec::new();
        let worth: Vec<Running<'_>> =
            worth.iter().map(|one| Running { about: &one.about, line: &one.command }).collect();
        let around = Around { here: &here, running: &running(&neighbours), worth: &worth };
        output::terminal().render_checkup(&findings(&reports), &around, &notes, &mut bytes)?;
        std::io::stdout().write_all(&bytes).context("standard output")?;
    }
    Ok(if interrupted.load(Ordering::Relaxed) { Ending::Interrupted } else { Ending::Done })
}

/// What runs here and what it does for a moment, before anything of ours runs; none where it cannot be seen.
fn look(interrupted: &AtomicBool) -> Option<Scan> {
    let mut scan = samehost_scan::collect(env!("CARGO_PKG_VERSION")).ok()?;
    samehost_scan::advise(&mut scan);
    samehost_scan::observe(&mut scan, MOMENT, interrupted);
    Some(scan)
}

/// What was seen, priced with what the checkup has just measured: a sentence, and what is worth doing.
fn priced(looked: Option<Scan>, reports: &[(Part, Report)]) -> (String, Vec<Worth>) {
    let Some(mut scan) = looked else { return (String::new(), Vec::new()) };
    let of = |kinds: &[FindingKind], metric: &str| {
        let is_one = |part: &Part| part.lines.iter().any(|line| kinds.contains(&line.kind));
        let raw = reports.iter().filter(|(part, _)| part.workload == "raw" && is_one(part));
        raw.filter_map(|(_, report)| measured(report, metric)).collect::<Vec<_>>()
    };
    let cpu = of(&[FindingKind::RoundTrip, FindingKind::Busy], "total_cpu_per_op");
    if let Some(costs) = Costs::of(&cpu, &of(&[FindingKind::RoundTrip], "latency_mean")) {
        samehost_scan::predict(&mut scan, &costs);
    }
    (here(&scan), worth_doing(&scan))
}

/// The rows of the table are one answer: they are judged as one family, and not each report's for itself.
fn judge_together(reports: &mut [(Part, Report)]) {
    let rows: Vec<(usize, usize)> = reports
        .iter()
        .enumerate()
        .flat_map(|(i, (part, report))| {
            part.lines.iter().filter_map(move |line| {
                let is_it = |c: &Comparison| {
                    c.metric == line.metric && line.connections.is_none_or(|n| c.point.connections == n)
                };
                Some((i, report.comparisons.iter().position(is_it)?))
            })
        })
        .collect();
    let mut reports: Vec<&mut Report> = reports.iter_mut().map(|(_, report)| report).collect();
    samehost_stats::judge_rows(&mut reports, &rows);
}

fn findings(reports: &[(Part, Report)]) -> Vec<Finding<'_>> {
    reports
        .iter()
        .flat_map(|(part, report)| {
            part.lines.iter().map(move |line| Finding {
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
    reports: &[(Part, Report)],
    neighbours: &[Neighbour],
    notes: &[String],
    worth: &[Worth],
) -> anyhow::Result<Vec<u8>> {
    let parts: Vec<_> =
        reports.iter().map(|(part, report)| json!({ "label": label(part), "report": report })).collect();
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

/// What a part asks for.
fn request(
    part: &Part,
    budget: Duration,
    seed: u64,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<(&'static dyn Workload, Request)> {
    let workload = workload(part.workload)
        .ok_or_else(|| BenchError::Usage(format!("no workload is called {}", part.workload)))?;
    let mut parameters: Parameters =
        workload.parameters().iter().map(|p| (p.name.to_owned(), p.default.to_owned())).collect();
    parameters.extend(part.parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let wishes = if part.lines.is_empty() {
        let trial_time = Some(Duration::from_millis(80));
        Wishes { budget: Some(budget), trial_time, min_blocks: Some(12), ..Wishes::default() }
    } else if part.installed {
        // Two points in a share of time: short trials, and as few blocks as a verdict can do with.
        let trial_time = Some(Duration::from_millis(70));
        Wishes { budget: Some(budget), trial_time, min_blocks: Some(8), ..Wishes::default() }
    } else {
        Wishes { budget: Some(budget), min_blocks: Some(8), ..Wishes::default() }
    };
    let request = Request {
        connections: part.connections.clone(),
        sizes: part.size.into_iter().collect(),
        wishes,
        seed,
        parameters,
        transports: part.transports.clone(),
        congestion: part.congestion.clone(),
        congestion_by_routes: true,
        ..Request::new(
            std::env::current_exe().context("finding this program")?,
            std::env::args().collect(),
            Arc::clone(interrupted),
        )
    };
    Ok((workload, request))
}

pub(super) fn measure(
    part: &Part,
    budget: Duration,
    seed: u64,
    interrupted: &Arc<AtomicBool>,
    quiet: bool,
) -> anyhow::Result<Report> {
    let (workload, request) = request(part, budget, seed, interrupted)?;
    let mut watcher = Watcher::new(quiet, None);
    watcher.announce(part.lines.first().map_or(part.workload, |line| line.label.as_str()));
    let benched = samehost_bench::bench(workload, &request, &mut watcher);
    watcher.finish();
    let benched = benched?;
    match benched.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(benched.report),
    }
}
