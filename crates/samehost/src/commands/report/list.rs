//! `samehost report list [FILE…]`: stored results of this machine in order of time, each compared with the previous run of the
//! same command.

use std::path::PathBuf;

use samehost_model::{Report, Verdict};
use samehost_report::{Change, Run};
use serde_json::{Value, json};

use crate::cli::ReportListOptions;
use crate::exit::{Ending, in_full};
use crate::wrong_use::WrongUse;
use crate::{output, storage};

/// Options with a value that do not affect what is measured.
const ASIDE: [&str; 6] = ["--json", "--csv", "--markdown", "--html", "--seed", "--assert"];

pub fn list(options: &ReportListOptions) -> anyhow::Result<Ending> {
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
