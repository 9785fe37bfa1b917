//! The checkup: a short measurement of each kind of use and of the installed servers, its interpretation, and
//! how to measure the running servers. Prints nothing.

pub mod measure;
pub mod parts;
mod price;
pub mod race;
mod worth;

use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use samehost_analysis::OtherLoad;
use samehost_bench::private_servers::{self, Ahead};
use samehost_bench::workload::CheckupEntry;
use samehost_bench::workloads::workload;
use samehost_model::Report;
use samehost_model::scan::{Prices, Scan};
use samehost_report::Finding;
use samehost_scan::{ScanError, Timed};
use samehost_system::nowhere;
use serde_json::Value;

use self::measure::{Bench, Spend};
use self::parts::{Neighbour, Part, neighbours, parts, server_kind};
use self::price::prices;
use self::race::{Left, Leg, race};
use self::worth::{MOST, Worth, worth_doing};
use crate::exit::in_full;
use worth::{CURE_TIME, Cure, cure, cure_part};

/// CPU time of other programs, in percent of one CPU, from which on a machine counts as at work.
/// There trials that cannot be divided into slices are longer, because they meet the load one after the
/// other. Slices meet it in the same milliseconds, so their arms need no such rule. On a quiet machine
/// the trials of other installed servers are a quarter shorter, as blocks limit a decision there, and not
/// their length (docs/method.md §3a).
const AT_WORK_PERCENT: f64 = 25.0;
/// Factor by which the trials of an installed server are longer on a machine at work, if its arms cannot take turns within a trial.
///
/// PHP-FPM, 14 blocks each beside a program that used 60 % of each of two CPUs: a block's ln ratio of times scattered by 44 and 96 %
/// (standard deviation) with 35 ms, by 19 and 27 % with 75. For the others it was tried too: Redis, memcached and the databases
/// scattered less with 50 or 75 ms, and had so many blocks less that no more rows were decided in a checkup (six with, 9 to 13 of
/// 16 rows; five without, 10 to 14). On a quiet machine blocks limit a decision, not their length, so that the others' are shorter there.
const LONGER: u32 = 2;
/// For which the traffic of running programs is observed, before the first server of ours starts.
const OBSERVED: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    Decided,
    All,
}

pub struct Checkup {
    pub legs: Vec<Leg>,
    /// Measurement of the remedy of a slow loopback.
    cured: Option<(Part, Report)>,
    pub neighbours: Vec<Neighbour>,
    /// What failed, and hints.
    pub notes: Vec<String>,
    pub worth: Vec<Worth>,
    /// What a request costs here, for the scans that follow; `None` where it was not measured.
    pub prices: Option<Prices>,
    pub is_interrupted: bool,
    /// What runs here could not be looked at.
    pub saw_nothing: bool,
}

impl Checkup {
    pub fn reports(&self) -> Vec<(&str, &Report)> {
        let mut reports = Vec::new();
        for leg in &self.legs {
            reports.extend(leg.report.as_ref().map(|report| (label(&leg.part), report)));
        }
        reports.extend(self.cured.iter().map(|(part, report)| (label(part), report)));
        reports
    }
}

/// When the checkup ends: in any case, and where enough rows are decided by then.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    pub last: Instant,
    pub with_enough: Instant,
}

/// Budgets that a checkup takes.
pub const BUDGETS: RangeInclusive<Duration> = Duration::from_secs(20)..=Duration::from_secs(600);
/// What one more server takes, its start included, about.
const OF_A_SERVER: Duration = Duration::from_secs(10);

/// Names the servers for which no time was left.
fn without(names: &[&str], budget: Duration) -> Option<String> {
    if names.is_empty() {
        return None;
    }
    let minutes = minutes_for(budget, names.len());
    let names = names.join(", ");
    Some(format!("Not measured, as the time was over: {names}. Give it more: samehost --budget {minutes}m."))
}

/// Minutes of a checkup that has this budget and room for so many servers more, at most as many as it takes.
fn minutes_for(budget: Duration, servers: usize) -> u64 {
    let wanted = (budget + OF_A_SERVER * servers as u32).min(*BUDGETS.end());
    wanted.as_secs().div_ceil(60)
}

/// Scans the machine, measures every part until a deadline, and shows rows as they are decided: `show` is called after each
/// measurement, and once at the end with [`Rows::All`].
///
/// # Errors
/// Only what `show` returns, and what keeps a built-in server from being measured. An installed server that fails is named
/// in the notes, and so is the remedy of a slow loopback.
pub fn run(
    bench: &Bench,
    deadlines: Deadlines,
    show: &mut dyn FnMut(&[Finding<'_>], Rows) -> anyhow::Result<()>,
) -> anyhow::Result<Checkup> {
    let budget = deadlines.last.saturating_duration_since(Instant::now());
    // Must precede any server of ours.
    let neighbours = neighbours();
    let mut legs: Vec<Leg> = parts().into_iter().map(Leg::new).collect();
    let mut ahead = begin_ahead(&legs);
    let (looked, unseen) = match look(&bench.interrupted) {
        Ok(scan) => (Some(scan), None),
        Err(ScanError::Interrupted) => (None, None),
        Err(error) => (None, Some(format!("What runs here was not looked at: {error}."))),
    };
    // Why one failed is told where its server is started.
    ahead.retain_mut(|made| made.finish().is_ok());
    let cure_part = looked.as_ref().and_then(cure_part);
    bench.prepare(legs.iter().map(|leg| &leg.part).chain(&cure_part))?;

    let mut failed = Vec::new();
    let kept = if cure_part.is_some() { CURE_TIME } else { Duration::ZERO };
    let until = |end: Instant| end.saturating_duration_since(Instant::now()).saturating_sub(kept);
    let left = Left { in_all: &|| until(deadlines.last), with_enough: &|| until(deadlines.with_enough) };
    let mut is_at_work = None;
    let mut measure =
        |leg: &mut Leg, open, time| turn(bench, leg, (open, time), &mut is_at_work, &mut failed);
    let mut decided = |legs: &mut [Leg]| {
        judge_together(legs);
        show(&findings(legs), Rows::Decided)
    };
    let without_time = race(&mut legs, &left, &mut measure, &mut decided)?;
    show(&findings(&legs), Rows::All)?;

    let mut notes: Vec<String> = without(&without_time, budget).into_iter().collect();
    for workload in samehost_bench::workloads::WORKLOADS {
        if let Some(CheckupEntry::Hints(hints)) = workload.checkup() {
            notes.extend(hints());
        }
    }
    notes.extend(failed);
    let saw_nothing = unseen.is_some();
    notes.extend(unseen);
    // Last, because the comparison of transports is more important.
    let cured = measure_cure(bench, cure_part, &mut notes);
    let cure = looked.as_ref().and_then(|scan| cure(scan, cured.as_ref().map(|(_, report)| report)));
    let prices = prices(&legs);
    let mut worth = priced(looked, prices.as_ref());
    match cure {
        Some(Cure::Worth(lines)) => drop(worth.splice(0..0, lines)),
        Some(Cure::Not(note)) => notes.push(note),
        None => {}
    }
    worth.truncate(MOST);
    let is_interrupted = bench.is_interrupted();
    Ok(Checkup { legs, cured, neighbours, notes, worth, prices, is_interrupted, saw_nothing })
}

/// Measures the remedy of a slow loopback, if there is one and nobody interrupted; a failure becomes a note.
fn measure_cure(bench: &Bench, part: Option<Part>, notes: &mut Vec<String>) -> Option<(Part, Report)> {
    let part = part?;
    if bench.is_interrupted() {
        return None;
    }
    match bench.measure(&part, Spend::All(CURE_TIME)) {
        Ok(report) => Some((part, report)),
        Err(error) => {
            notes.push(format!("What CUBIC would bring here could not be measured: {}.", in_full(&error)));
            None
        }
    }
}

/// A part's turn; the first part's says whether the machine is at work.
fn turn(
    bench: &Bench,
    leg: &mut Leg,
    (open, time): (u32, Duration),
    is_at_work: &mut Option<bool>,
    failed: &mut Vec<String>,
) -> anyhow::Result<()> {
    if leg.part.installed && leg.begun == 1 {
        adapt(&mut leg.part, *is_at_work == Some(true));
    }
    bench.go_on(leg, open, time, failed)?;
    if is_at_work.is_none() {
        *is_at_work = leg.report.as_ref().map(is_beside_others);
    }
    Ok(())
}

/// Adapts the length of the trials of a part with an installed server to what else the machine does.
fn adapt(part: &mut Part, is_at_work: bool) {
    match (is_at_work, part.is_undivided) {
        (true, true) => part.trial *= LONGER,
        (false, false) => part.trial = part.trial * 3 / 4,
        _ => {}
    }
}

/// Whether other programs used enough of the CPUs during these trials.
fn is_beside_others(report: &Report) -> bool {
    OtherLoad::of(&[report]).is_some_and(|load| load.percent > AT_WORK_PERCENT)
}

/// Begins to make the data directories of the databases that will be measured, as nothing is measured yet. For root only: as
/// an ordinary user, [`Bench::prepare`] must come before any thread of ours.
fn begin_ahead(legs: &[Leg]) -> Vec<Ahead> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let mut ahead = Vec::new();
    for leg in legs {
        let Some(server) = workload(leg.part.workload).and_then(server_kind) else { continue };
        if let Some(Ok(made)) = private_servers::begin_ahead(server.kind, &program) {
            ahead.push(made);
        }
    }
    ahead
}

/// Scans the machine and briefly observes its traffic, before any program of ours runs.
fn look(interrupted: &AtomicBool) -> Result<Scan, ScanError> {
    let mut scan = samehost_scan::collect_seeing(env!("CARGO_PKG_VERSION"))?;
    samehost_scan::advise(&mut scan);
    samehost_scan::observe(&mut scan, OBSERVED, Timed::Not, interrupted);
    Ok(scan)
}

/// Recommended actions, by predictions for the scan from the checkup's own measurements.
fn priced(looked: Option<Scan>, prices: Option<&Prices>) -> Vec<Worth> {
    let Some(mut scan) = looked else { return Vec::new() };
    if let Some(prices) = prices {
        samehost_scan::predict(&mut scan, prices);
    }
    worth_doing(&scan, &can_switch)
}

/// Whether `samehost switch SERVICE --dry-run` has a plan. Asked of the program itself, as a user would.
fn can_switch(service: &str) -> bool {
    let Ok(program) = std::env::current_exe() else { return false };
    let mut asked = Command::new(program);
    asked.args(["switch", service, "--dry-run", "--json"]).stdin(nowhere());
    let Ok(output) = asked.output() else { return false };
    let Ok(plan) = serde_json::from_slice::<Value>(&output.stdout) else { return false };
    plan["outcome"] == "planned"
}

/// Adjusts the verdicts of all rows as one family instead of per report. Rows not measured yet are included.
fn judge_together(legs: &mut [Leg]) {
    let mut rows = Vec::new();
    for (place, leg) in legs.iter().filter(|leg| leg.report.is_some()).enumerate() {
        rows.extend(leg.rows().map(|(row, _)| (place, row)));
    }
    let all: usize = legs.iter().map(Leg::asked).sum();
    let mut reports: Vec<&mut Report> = legs.iter_mut().filter_map(|leg| leg.report.as_mut()).collect();
    samehost_analysis::judge_rows(&mut reports, &rows, (all - rows.len().min(all)) as u32);
}

/// The rows of the table that were measured so far.
pub fn findings(legs: &[Leg]) -> Vec<Finding<'_>> {
    let mut findings = Vec::new();
    for leg in legs {
        let Some(report) = &leg.report else { continue };
        for line in &leg.part.lines {
            findings.push(Finding {
                label: &line.label,
                report,
                metric: line.metric,
                connections: line.connections,
                level: line.level,
                kind: line.kind,
            });
        }
    }
    findings
}

fn label(part: &Part) -> &str {
    match part.lines.as_slice() {
        [line] => &line.label,
        [] => "large transfers over TCP, by congestion control",
        _ => part.workload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_budget_has_room_for_what_was_left_out() {
        fn minutes(seconds: u64, servers: usize) -> u64 {
            minutes_for(Duration::from_secs(seconds), servers)
        }
        assert_eq!([minutes(20, 4), minutes(20, 5), minutes(57, 1), minutes(590, 2)], [1, 2, 2, 10]);
    }
}
