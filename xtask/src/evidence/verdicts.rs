//! Does the tool decide what is there, and nothing that is not? Whole runs of the program, counted: checkups one after the
//! other, two arms that are the same, and a known difference.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Context;
use serde_json::Value;

use super::Account;
use crate::report;

/// So many of the runs are to decide this part of their rows.
const MOST: usize = 9;
const PART: f64 = 0.8;
const RUNS: usize = 10;

/// The rows that the checkup's table has of a part: those that were judged as one answer.
fn rows(part: &Value) -> anyhow::Result<Vec<(String, String, bool)>> {
    let report = &part["report"];
    let asked = report["plan"]["asked"].as_array().cloned().unwrap_or_default();
    let name = part["label"].as_str().unwrap_or_default();
    let comparisons = report["comparisons"].as_array().context("no comparisons")?;
    let mut rows = Vec::new();
    for question in &asked {
        let is_it = |found: &&Value| {
            let at = &question["connections"];
            found["metric"] == question["metric"] && (at.is_null() || *at == found["point"]["connections"])
        };
        let found = comparisons.iter().find(is_it);
        let metric = question["metric"].as_str().unwrap_or_default();
        let told = found.map_or_else(String::new, told);
        let decided = found.is_some_and(|found| found["verdict"] != "inconclusive");
        rows.push((format!("{name} {metric}"), told, decided));
    }
    Ok(rows)
}

pub(super) fn checkups(account: &mut Account<'_>) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let mut decided: BTreeMap<String, usize> = BTreeMap::new();
    let (mut longest, mut enough) = (0.0_f64, 0);
    for run in 1..=RUNS {
        let begun = Instant::now();
        let whole = report(&program, &["--seed", &run.to_string()])?;
        let seconds = begun.elapsed().as_secs_f64();
        longest = longest.max(seconds);
        let parts = whole["parts"].as_array().context("no parts")?;
        let mut count = (0, 0);
        for part in parts {
            for (row, told, is_decided) in rows(part)? {
                account.tell(&format!(
                    "run {run} | {row} | {told} | {}",
                    if is_decided { "decided" } else { "open" }
                ));
                *decided.entry(row).or_default() += usize::from(is_decided);
                count = (count.0 + usize::from(is_decided), count.1 + 1);
            }
        }
        enough += usize::from(count.0 as f64 >= PART * count.1 as f64);
        let steal = parts.iter().filter_map(|part| part["report"]["host"]["steal_percent"].as_f64());
        account.tell(&format!(
            "run {run}: {} of {} rows decided, {seconds:.0} s, steal up to {:.1} %",
            count.0,
            count.1,
            steal.fold(0.0, f64::max)
        ));
    }
    for (row, runs) in &decided {
        account.tell(&format!("{row}: decided in {runs} of {RUNS}"));
    }
    account.tell(&format!(
        "{enough} of {RUNS} checkups decide at least {:.0} % of their rows ({MOST} are to)",
        100.0 * PART
    ));
    let often = decided.values().filter(|runs| **runs >= MOST).count();
    account.tell(&format!(
        "{often} of {} rows are decided in at least {MOST} of {RUNS} checkups; the longest took {longest:.0} s",
        decided.len()
    ));
    Ok(())
}

/// Reports of two arms that are the same.
const SAME: usize = 200;

pub(super) fn same(account: &mut Account<'_>) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let subjects: [&[&str]; 4] = [
        &["bench", "raw", "--connections", "1,64"],
        &["bench", "redis", "--connections", "1,8"],
        &["bench", "mysql", "--connections", "8"],
        &[
            "bench",
            "proxy",
            "--backend",
            "built-in",
            "--backends",
            "1",
            "--http",
            "1.1",
            "--connections",
            "8",
        ],
    ];
    let mut called = 0;
    for number in 0..SAME {
        let subject = subjects[number % subjects.len()];
        let transport = if number % 8 < 4 { "unix,unix" } else { "tcp,tcp" };
        let seed = number.to_string();
        let more = ["--transports", transport, "--trial-time", "60ms", "--max-blocks", "12", "--seed", &seed];
        // Every other report: two processes behind the two arms, whose luck is none of the transports'.
        let apart: &[&str] = if number % 16 < 8 { &["--own-servers"] } else { &[] };
        let report = report(&program, &[subject, &more, apart].concat())?;
        let comparisons = report["comparisons"].as_array().context("no comparisons")?;
        let differs = |found: &&Value| found["verdict"] == "faster" || found["verdict"] == "slower";
        let wrong: Vec<&Value> = comparisons.iter().filter(differs).collect();
        for found in &wrong {
            account.tell(&format!(
                "report {number}, {} over {transport}{}: {} {} {:.3}",
                subject[1],
                if apart.is_empty() { "" } else { ", two servers" },
                found["metric"],
                found["verdict"],
                found["ratio"].as_f64().unwrap_or(f64::NAN)
            ));
        }
        called += usize::from(!wrong.is_empty());
    }
    account.tell(&format!(
        "{called} of {SAME} reports call two arms different that are the same (at most 17 may)"
    ));
    Ok(())
}

/// What a server that works longer in one of two arms that are the same is called: so many runs.
struct Longer {
    runs: usize,
    /// How much longer it works.
    by: &'static str,
    budget: &'static str,
    margin: &'static str,
    /// So many runs are to call it slower.
    wanted: usize,
}

pub(super) fn slowed(account: &mut Account<'_>) -> anyhow::Result<()> {
    longer(account, &Longer { runs: 50, by: "10%", budget: "10s", margin: "2%", wanted: 45 })
}

pub(super) fn known(account: &mut Account<'_>) -> anyhow::Result<()> {
    longer(account, &Longer { runs: 10, by: "3%", budget: "20s", margin: "0.01%", wanted: 9 })
}

fn longer(account: &mut Account<'_>, asked: &Longer) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let Longer { runs, by, budget, margin, wanted } = asked;
    let mut right = 0;
    for number in 1..=*runs {
        let seed = number.to_string();
        let words = ["bench", "raw", "--transports", "unix,unix", "--work", "100us", "--longer", by];
        let more = ["--until-decided", "--budget", budget, "--margin", margin, "--seed", &seed];
        let report = report(&program, &[&words[..], &more[..]].concat())?;
        let comparisons = report["comparisons"].as_array().context("no comparisons")?;
        let found =
            comparisons.iter().find(|found| found["metric"] == "latency_mean").context("no latency")?;
        account.tell(&format!("run {number}: {}: {}", told(found), found["verdict"]));
        right += usize::from(found["verdict"] == "slower");
    }
    account.tell(&format!(
        "{right} of {runs} runs call the arm that works {by} longer slower (at least {wanted} are to)"
    ));
    Ok(())
}

/// A ratio with its interval.
fn told(found: &Value) -> String {
    let of = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let (ratio, low, high) = (of("ratio"), of("ci_low"), of("ci_high"));
    format!("{ratio:.4} ({low:.4}\u{2013}{high:.4}), {} blocks", found["blocks"])
}
