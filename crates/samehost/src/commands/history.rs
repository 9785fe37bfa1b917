//! `samehost history [FILE…]`: stored results of this machine in order of time, each compared with the previous run of the
//! same command; those of many hosts, and the scans that were kept.

use std::path::{Path, PathBuf};

use samehost_analysis::{Histories, HostReport};
use samehost_model::scan::{Inventory, ScanChanges};
use samehost_model::{Report, Verdict};
use samehost_report::{Change, Run};
use samehost_scan::changes;
use serde_json::{Value, json};

use super::compare::{Gathered, gather, has_hosts, no_report};
use crate::cli::HistoryOptions;
use crate::commands::scan::{find_returned, in_words};
use crate::exit::{Ending, in_full};
use crate::scans::Scans;
use crate::wrong_use::WrongUse;
use crate::{output, storage};

/// Options with a value that do not affect what is measured.
const ASIDE: [&str; 6] = ["--json", "--csv", "--markdown", "--html", "--seed", "--assert"];

pub fn history(options: &HistoryOptions) -> anyhow::Result<Ending> {
    if options.scans {
        return scan_history(options.json.as_deref());
    }
    if let [place] = options.files.as_slice()
        && has_hosts(place)
    {
        return history_hosts(place, options);
    }
    let named = !options.files.is_empty();
    let files = if named { options.files.clone() } else { storage::all() };
    let mut results: Vec<(PathBuf, Report)> = Vec::new();
    for file in files {
        match storage::read(&file) {
            Ok(report) => results.push((file, report)),
            Err(error) if named => return Err(error),
            // A damaged file must not hide the others.
            Err(error) => output::complain(&format!("left out: {}", in_full(&error))),
        }
    }
    if results.is_empty() {
        let text = "nothing is stored yet; run `samehost bench` first, or name files written with --json";
        return Err(WrongUse(text.into()).into());
    }
    results.sort_by(|a, b| a.1.head.started_at.cmp(&b.1.head.started_at));
    let names: Vec<String> = results.iter().map(|(file, _)| file.display().to_string()).collect();
    let before: Vec<Option<usize>> = (0..results.len()).map(|i| previous(&results, i)).collect();
    let mut slower = 0;
    let mut runs = Vec::new();
    for (index, (_, report)) in results.iter().enumerate() {
        let change = match before[index] {
            None => Change::First,
            Some(old) => match samehost_analysis::compare(&results[old].1, report) {
                Ok(changes) => {
                    slower += changes.arms.iter().filter(|c| c.verdict == Verdict::Slower).count();
                    Change::Since(changes)
                }
                Err(error) => Change::Unknown(error.to_string()),
            },
        };
        runs.push(Run { file: &names[index], report, change });
    }
    output::json_or_show(
        options.json.as_deref(),
        || {
            let all: Vec<Value> =
                runs.iter().zip(&before).map(|(run, old)| as_json(run, old.map(|i| &names[i]))).collect();
            json!({ "schema": "samehost.history/1", "runs": all })
        },
        |terminal, out| terminal.render_history(&runs, out),
    )?;
    if options.fail_on_slower && slower > 0 {
        output::complain(&format!("{slower} comparisons became slower from one run to the next"));
        return Ok(Ending::Finding);
    }
    Ok(Ending::Done)
}

/// The newest earlier run of the same measurement.
fn previous(results: &[(PathBuf, Report)], index: usize) -> Option<usize> {
    let newer = &results[index].1.head;
    results[..index].iter().rposition(|(_, report)| {
        report.head.workload.name == newer.workload.name
            && measures(&report.head.command) == measures(&newer.command)
    })
}

/// Words of a command line that determine what is measured, without the program's path and output options.
fn measures(command: &[String]) -> Vec<&str> {
    let mut words = command.iter().skip(1).map(String::as_str);
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or(word);
        match word {
            "--quiet" | "-q" => {}
            _ if ASIDE.contains(&word) => {
                words.next();
            }
            _ if ASIDE.contains(&name) => {}
            _ => kept.push(word),
        }
    }
    kept
}

fn as_json(run: &Run<'_>, previous: Option<&String>) -> Value {
    let report = run.report;
    let headline = report.head.workload.metrics.first().map(|metric| {
        let of = report.analysis.comparisons.iter().filter(|c| c.metric == metric.name).collect::<Vec<_>>();
        json!({ "metric": metric, "comparisons": of })
    });
    let (changes, reason) = match &run.change {
        Change::First => (None, None),
        Change::Since(changes) => (Some(changes), None),
        Change::Unknown(reason) => (None, Some(reason)),
    };
    json!({
        "file": run.file, "started_at": report.head.started_at, "command": report.head.command,
        "workload": report.head.workload.name, "host": report.head.host, "headline": headline,
        "previous": previous, "changes": changes, "not_comparable": reason,
    })
}

impl Gathered for Histories {
    fn add(&mut self, host: &str, report: &HostReport) {
        Histories::add(self, host, &measures(&report.command).join(" "), report);
    }

    fn merge(&mut self, other: Self) {
        Histories::merge(self, other);
    }
}

fn history_hosts(place: &Path, options: &HistoryOptions) -> anyhow::Result<Ending> {
    let found = gather::<Histories>(place)?.in_order();
    if found.reports == 0 {
        return Err(no_report(place));
    }
    output::json_or_show(
        options.json.as_deref(),
        || &found,
        |terminal, out| terminal.render_hosts_history(&found, out),
    )?;
    let newest = found.histories.iter().filter_map(|history| history.newest.as_ref());
    let slower = newest.filter(|newest| newest.is_slower == Some(true)).count();
    if options.fail_on_slower && slower > 0 {
        output::complain(&format!(
            "{slower} of the newest runs are slower than the earlier ones of their host"
        ));
        return Ok(Ending::Finding);
    }
    Ok(Ending::Done)
}

struct Kept {
    file: String,
    taken_at: String,
    /// Since the one before; `None` for the first one.
    changes: Option<ScanChanges>,
}

fn scan_history(json: Option<&Path>) -> anyhow::Result<Ending> {
    let history = Scans::open()?;
    let kept = compared(&history)?;
    if kept.is_empty() {
        return Err(history.nothing().into());
    }
    let scans: Vec<(&str, Option<&ScanChanges>)> =
        kept.iter().map(|one| (one.taken_at.as_str(), one.changes.as_ref())).collect();
    output::json_or_show(
        json,
        || kept_as_json(&kept),
        |terminal, out| terminal.render_scan_history(&scans, &in_words, out),
    )?;
    Ok(Ending::Done)
}

fn kept_as_json(kept: &[Kept]) -> Value {
    let mut scans = Vec::new();
    for one in kept {
        scans.push(json!({ "file": one.file, "taken_at": one.taken_at, "changes": one.changes }));
    }
    json!({ "schema": "samehost.scan-history/1", "scans": scans })
}

/// All kept scans, the oldest first, each compared with the one before.
fn compared(history: &Scans) -> anyhow::Result<Vec<Kept>> {
    let mut all: Vec<Kept> = Vec::new();
    // Those before `last`.
    let mut seen: Vec<Inventory> = Vec::new();
    let mut last: Option<(Inventory, String)> = None;
    for file in history.files()? {
        let Some(inventory) = history.read(&file) else { continue };
        let name = file.path.display().to_string();
        let mut found = None;
        if let Some((old, file)) = &last {
            let mut since = changes(old, &inventory, Some(file));
            find_returned(&mut since, seen.iter().rev());
            found = Some(since);
        }
        let taken_at = inventory.taken_at.clone().unwrap_or_default();
        all.push(Kept { file: name.clone(), taken_at, changes: found });
        seen.extend(last.replace((inventory, name)).map(|(old, _)| old));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_results_go_does_not_tell_runs_apart() {
        fn words(text: &str) -> Vec<String> {
            text.split(' ').map(str::to_owned).collect()
        }
        let one = words("/usr/bin/samehost bench raw --size 128 --json a.json --seed=7 -q");
        let two = words("samehost bench raw --size 128 --html b.html");
        assert_eq!(measures(&one), ["bench", "raw", "--size", "128"]);
        assert_eq!(measures(&one), measures(&two));
        assert_ne!(measures(&one), measures(&words("samehost bench raw --size 256")));
    }
}
