//! Checks whether verdicts are right, by counting over whole runs: repeated checkups, two equal arms, and a
//! known difference. Also measures the time to a verdict.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde_json::Value;

use super::Account;
use crate::report;

/// At least this many runs must decide at least this fraction of their rows.
const MOST: usize = 9;
const PART: f64 = 0.8;
const RUNS: usize = 10;
/// Rows of a checkup with all servers installed. A row that was omitted for lack of time counts as undecided.
pub(super) const ROWS: [&str; 16] = [
    "one request and its reply latency_mean",
    "CPU per request, 64 at once total_cpu_per_op",
    "large transfers, 512 KiB writes bandwidth",
    "a new connection per request latency_mean",
    "fastcgi latency_mean",
    "fastcgi total_cpu_per_op",
    "redis latency_mean",
    "redis total_cpu_per_op",
    "memcached latency_mean",
    "memcached total_cpu_per_op",
    "proxy latency_mean",
    "proxy total_cpu_per_op",
    "mysql latency_mean",
    "mysql total_cpu_per_op",
    "postgres latency_mean",
    "postgres total_cpu_per_op",
];

/// Rows of a part in the checkup's table, which form one family.
pub(super) fn rows(part: &Value) -> anyhow::Result<Vec<(String, String, bool)>> {
    let report = &part["report"];
    let asked = report["plan"]["asked"].as_array().cloned().unwrap_or_default();
    let name = part["label"].as_str().unwrap_or_default();
    let comparisons = report["comparisons"].as_array().context("no comparisons")?;
    let mut rows = Vec::new();
    for question in &asked {
        let found = comparisons.iter().find(|found| {
            let at = &question["connections"];
            found["metric"] == question["metric"] && (at.is_null() || *at == found["point"]["connections"])
        });
        let metric = question["metric"].as_str().unwrap_or_default();
        let words = found.map_or_else(String::new, in_words);
        let decided = found.is_some_and(|found| found["verdict"] != "inconclusive");
        rows.push((format!("{name} {metric}"), words, decided));
    }
    Ok(rows)
}

pub(super) fn checkups(account: &mut Account<'_>) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let mut decided: BTreeMap<&str, usize> = ROWS.iter().map(|row| (*row, 0)).collect();
    let (mut longest, mut enough) = (0.0_f64, 0);
    for run in 1..=RUNS {
        let begun = Instant::now();
        let whole = report(&program, &["--seed", &run.to_string()])?;
        let seconds = begun.elapsed().as_secs_f64();
        longest = longest.max(seconds);
        let parts = whole["parts"].as_array().context("no parts")?;
        let measured: Vec<_> = parts.iter().map(rows).collect::<anyhow::Result<Vec<_>>>()?.concat();
        let mut count = 0;
        for (row, runs) in &mut decided {
            let found = measured.iter().find(|(name, ..)| name == row);
            let is_decided = found.is_some_and(|(.., is_decided)| *is_decided);
            let answer = found.map_or("no time was left", |(_, told, _)| told);
            let state = if is_decided { "decided" } else { "open" };
            account.tell(&format!("run {run} | {row} | {answer} | {state}"));
            *runs += usize::from(is_decided);
            count += usize::from(is_decided);
        }
        enough += usize::from(count as f64 >= PART * ROWS.len() as f64);
        let steal = parts.iter().filter_map(|part| part["report"]["host"]["steal_percent"].as_f64());
        account.tell(&format!(
            "run {run}: {count} of {} rows decided, {seconds:.0} s, steal up to {:.1} %",
            ROWS.len(),
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
        ROWS.len()
    ));
    Ok(())
}

/// Number of reports of two equal arms.
const SAME: usize = 200;

pub(super) fn same(account: &mut Account<'_>) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let subjects: [&[&str]; 4] = [
        &["bench", "raw", "--connections", "1,64"],
        &["bench", "redis", "--connections", "1,8"],
        &["bench", "mysql", "--connections", "8"],
        &[
            "bench", "proxy", "--backend", "built-in", "--backends", "1", "--http", "1.1", "--connections",
            "8",
        ],
    ];
    let mut called = 0;
    for number in 0..SAME {
        let subject = subjects[number % subjects.len()];
        let transport = if number % 8 < 4 { "unix,unix" } else { "tcp,tcp" };
        let seed = number.to_string();
        let more = ["--transports", transport, "--trial-time", "60ms", "--max-blocks", "12", "--seed", &seed];
        // In every other report the arms have separate servers, whose differences are not caused by the transport.
        let apart: &[&str] = if number % 16 < 8 { &["--own-servers"] } else { &[] };
        let report = report(&program, &[subject, &more, apart].concat())?;
        let comparisons = report["comparisons"].as_array().context("no comparisons")?;
        let wrong: Vec<&Value> = comparisons
            .iter()
            .filter(|found| found["verdict"] == "faster" || found["verdict"] == "slower")
            .collect();
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
    let (low, high) = share(called, SAME);
    account.tell(&format!(
        "{called} of {SAME} reports call two arms different that are the same: {:.1} % ({:.1}\u{2013}{:.1} %; at most 17 may)",
        100.0 * called as f64 / SAME as f64,
        100.0 * low,
        100.0 * high
    ));
    Ok(())
}

/// Exact 95 % interval of a proportion (Clopper and Pearson 1934): all proportions for which neither tail is
/// rarer than 2.5 %.
pub(super) fn share(count: usize, of: usize) -> (f64, f64) {
    // Probability of at most `most` of them.
    let up_to = |most: usize, share: f64| {
        let (mut term, mut sum) = ((1.0 - share).powi(of as i32), 0.0);
        for number in 0..=most {
            sum += term;
            term *= (of - number) as f64 / (number + 1) as f64 * share / (1.0 - share);
        }
        sum
    };
    // A function that decreases with the proportion has one root.
    let root = |falls: &dyn Fn(f64) -> f64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if falls(middle) > 0.0 { low = middle } else { high = middle }
        }
        low
    };
    let low = if count == 0 { 0.0 } else { root(&|share| up_to(count - 1, share) - 0.975) };
    let high = if count == of { 1.0 } else { root(&|share| up_to(count, share) - 0.025) };
    (low, high)
}

/// Runs of two equal arms, one of which has a server that works longer.
struct Longer {
    runs: usize,
    /// Work per request in the other arm. For 10 % more, it must be most of the request's time.
    work: &'static str,
    /// How much longer it works.
    by: &'static str,
    budget: &'static str,
    margin: &'static str,
    /// Number of runs that must call it slower.
    wanted: usize,
}

pub(super) fn slowed(account: &mut Account<'_>) -> anyhow::Result<()> {
    longer(account, &Longer { runs: 50, work: "300us", by: "10%", budget: "10s", margin: "2%", wanted: 45 })
}

pub(super) fn known(account: &mut Account<'_>) -> anyhow::Result<()> {
    longer(account, &Longer { runs: 10, work: "100us", by: "3%", budget: "20s", margin: "0.01%", wanted: 9 })
}

fn longer(account: &mut Account<'_>, asked: &Longer) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let Longer { runs, work, by, budget, margin, wanted } = asked;
    let mut right = 0;
    for number in 1..=*runs {
        let seed = number.to_string();
        // Waking CPUs would take longer than the work of a request.
        let words = ["bench", "raw", "--awake", "--transports", "unix,unix", "--work", work, "--longer", by];
        let more = ["--until-decided", "--budget", budget, "--margin", margin, "--seed", &seed];
        let report = report(&program, &[&words[..], &more[..]].concat())?;
        let comparisons = report["comparisons"].as_array().context("no comparisons")?;
        let found =
            comparisons.iter().find(|found| found["metric"] == "latency_mean").context("no latency")?;
        account.tell(&format!("run {number}: {}: {}", in_words(found), found["verdict"]));
        right += usize::from(found["verdict"] == "slower");
    }
    account.tell(&format!(
        "{right} of {runs} runs call the arm that works {by} longer slower (at least {wanted} are to)"
    ));
    Ok(())
}

/// A ratio with its interval.
pub(super) fn in_words(found: &Value) -> String {
    let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let (ratio, low, high) = (number("ratio"), number("ci_low"), number("ci_high"));
    format!("{ratio:.4} ({low:.4}\u{2013}{high:.4}), {} blocks", found["blocks"])
}

/// Workloads and connections for both programs.
const QUESTIONS: [(&str, &[u32]); 4] =
    [("raw", &[1, 64]), ("redis", &[1, 8, 64]), ("mysql", &[1, 8, 64]), ("postgres", &[1, 8, 64])];

/// Budgets in seconds, the longest first.
const BUDGETS: [u32; 5] = [60, 30, 15, 8, 4];

pub(super) fn speed(account: &mut Account<'_>) -> anyhow::Result<()> {
    let before =
        account.before.clone().context("--before PROGRAM is needed: an earlier build of samehost")?;
    let now = crate::release_program()?;
    account.tell("workload, connections | before | now | now, CPUs kept awake: seconds until the mean latency is decided");
    let mut ratios = Vec::new();
    for (workload, levels) in QUESTIONS {
        for connections in levels {
            let connections = connections.to_string();
            let words = ["bench", workload, "--connections", &connections];
            // An earlier program stops when its intervals are narrow or its budget ends: find the shortest
            // budget that decides.
            let mut earlier = None;
            for budget in BUDGETS {
                match decided(&before, &words, &["--budget", &format!("{budget}s")])? {
                    Some(seconds) => earlier = Some(seconds),
                    None => break,
                }
            }
            let until = ["--until-decided", "--budget", "60s"];
            let plain = decided(&now, &words, &[&until[..], &["--awake=no"]].concat())?;
            let awake = decided(&now, &words, &[&until[..], &["--awake"]].concat())?;
            let longest = f64::from(BUDGETS[0]);
            let in_seconds =
                |seconds: Option<f64>| seconds.map_or(format!("over {longest:.0}"), |it| format!("{it:.1}"));
            account.tell(&format!(
                "{workload}, {connections} | {} | {} | {}",
                in_seconds(earlier),
                in_seconds(plain),
                in_seconds(awake)
            ));
            ratios.push(earlier.unwrap_or(longest) / plain.unwrap_or(longest));
        }
    }
    ratios.sort_by(f64::total_cmp);
    account.tell(&format!(
        "{:.1} times less in the median, where over {} counts as {} (5 are asked)",
        ratios[ratios.len() / 2],
        BUDGETS[0],
        BUDGETS[0]
    ));
    Ok(())
}

/// Time until the program has a verdict on the mean latency, in seconds; `None` without a verdict.
fn decided(program: &Path, words: &[&str], more: &[&str]) -> anyhow::Result<Option<f64>> {
    let begun = Instant::now();
    let report = report(program, &[words, more].concat())?;
    let seconds = begun.elapsed().as_secs_f64();
    let comparisons = report["comparisons"].as_array().context("no comparisons")?;
    let found = comparisons.iter().find(|found| found["metric"] == "latency_mean").context("no latency")?;
    Ok((found["verdict"] != "inconclusive").then_some(seconds))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_share_has_its_exact_interval() {
        // Values of R's binom.test(7, 200) and binom.test(0, 20).
        let near = |(low, high): (f64, f64), wanted: (f64, f64)| {
            assert!((low - wanted.0).abs() < 1e-4 && (high - wanted.1).abs() < 1e-4, "{low} {high}");
        };
        near(super::share(7, 200), (0.014_186, 0.070_781));
        near(super::share(0, 20), (0.0, 0.168_433));
    }
}
