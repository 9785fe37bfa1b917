//! `samehost` without a verb: the checkup as a table; each row is shown when it is decided.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;
use samehost_model::Report;
#[cfg(feature = "html")]
use samehost_report::CheckupPage;
use samehost_report::{Around, Finding, Running};
use serde_json::json;

use crate::checkup::measure::Bench;
use crate::checkup::{self, BUDGETS, Checkup, Deadlines, Rows, findings};
use crate::cli::CheckupOptions;
use crate::exit::{Ending, NoReader, in_full};
use crate::request::fresh_seed;
use crate::wrong_use::WrongUse;
use crate::{output, signals, storage};

/// Total time on a machine at work, including the scan and server starts.
const BUDGET: Duration = Duration::from_secs(57);
/// Total time where four fifths of the rows are decided by then, as on a quiet machine. If they are not, a part has a second turn:
/// with 25 s here, one of 10 quiet checkups took more than 30 s by it, by less than half a second.
const QUIET: Duration = Duration::from_secs(24);

pub fn checkup(options: &CheckupOptions) -> anyhow::Result<Ending> {
    let budget = options.budget.unwrap_or(BUDGET);
    if !BUDGETS.contains(&budget) {
        return Err(WrongUse("--budget must be between 20s and 10m".into()).into());
    }
    let now = Instant::now();
    // Who names a time wants all of it for rows that are open.
    let with_enough = now + if options.budget.is_some() { budget } else { QUIET };
    let deadlines = Deadlines { last: now + budget, with_enough };
    let paths = [&options.json, &options.html].into_iter().flatten();
    let is_stdout_taken = output::is_stdout_taken(paths.map(std::path::PathBuf::as_path))?;
    let interrupted = signals::watch()?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let bench = Bench { seed, interrupted, quiet: options.quiet, whole: now..deadlines.last };
    let mut table = Table { is_shown: !is_stdout_taken, is_begun: false, shown: 0 };
    let done = checkup::run(&bench, deadlines, &mut |findings, rows| table.show(findings, rows))?;

    if let Some(prices) = done.prices.as_ref().filter(|_| !done.is_interrupted)
        && let Err(error) = storage::store_prices(prices)
    {
        output::complain(&format!("scan --observe will not know these prices: {}", in_full(&error)));
    }
    let reports = done.reports();
    if let Some(path) = &options.json {
        output::write_to(path, &as_json(&done, &reports)?)?;
    }
    let worth: Vec<Running<'_>> =
        done.worth.iter().map(|one| Running { about: &one.about, line: &one.command }).collect();
    let running: Vec<Running<'_>> =
        done.neighbours.iter().map(|found| Running { about: &found.about, line: &found.line }).collect();
    let around = Around { is_known: !done.saw_nothing, running: &running, worth: &worth };
    let findings = findings(&done.legs);
    #[cfg(feature = "html")]
    if let Some(path) = &options.html {
        let page = CheckupPage { findings: &findings, around, notes: &done.notes, reports: &reports };
        let mut bytes = Vec::new();
        samehost_report::checkup_as_html(&page, &mut bytes)?;
        output::write_to(path, &bytes)?;
    }
    if !is_stdout_taken {
        print(|out| output::terminal().end_checkup(&findings, &around, &done.notes, out))?;
    }
    Ok(match (done.is_interrupted, done.saw_nothing) {
        (true, _) => Ending::Interrupted,
        // The measurements stand, and nothing was said of the programs of this machine.
        (false, true) => Ending::CutShort,
        (false, false) => Ending::Done,
    })
}

fn print(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    write(&mut bytes)?;
    output::Stdout.write_all(&bytes).context("standard output")?;
    // Nobody waits for the rest of the measurement.
    if output::has_no_reader() { Err(NoReader.into()) } else { Ok(()) }
}

struct Table {
    is_shown: bool,
    is_begun: bool,
    shown: usize,
}

impl Table {
    fn show(&mut self, findings: &[Finding<'_>], rows: Rows) -> anyhow::Result<()> {
        if !self.is_shown {
            return Ok(());
        }
        let terminal = output::terminal();
        if let (false, Some(first)) = (self.is_begun, findings.first()) {
            print(|out| terminal.begin_checkup(&first.report.head.host, out))?;
            self.is_begun = true;
        }
        // Rows have one order on every machine and in every run: an open row holds those below it back.
        for finding in findings.iter().skip(self.shown) {
            if rows != Rows::All && !finding.is_decided() {
                break;
            }
            print(|out| terminal.checkup_row(finding, out))?;
            self.shown += 1;
        }
        Ok(())
    }
}

fn as_json(done: &Checkup, reports: &[(&str, &Report)]) -> anyhow::Result<Vec<u8>> {
    let parts: Vec<_> =
        reports.iter().map(|(label, report)| json!({ "label": label, "report": report })).collect();
    let running: Vec<_> = done
        .neighbours
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
        "schema": "samehost.checkup/1", "parts": parts, "running_servers": running, "notes": done.notes,
        "worth_doing": done.worth,
    });
    output::as_json(&whole)
}
