//! Checks whether verdicts are right, by counting over whole runs: repeated checkups, two equal arms, and a
//! known difference. Also measures the time to a verdict.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde_json::Value;

use super::{Account, in_words, is_decided};
use crate::{comparison, list, report};

/// At least this many runs must decide at least this fraction of their rows.
const MOST: usize = 9;
/// Fraction of [`ROWS`] that a checkup has to decide.
pub(super) const PART: f64 = 0.8;
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

pub(super) struct Row {
    pub(super) name: String,
    pub(super) ratio: String,
    pub(super) is_decided: bool,
}

impl Row {
    pub(super) fn state(&self) -> &'static str {
        if self.is_decided { "decided" } else { "open" }
    }
}

pub(super) struct Checkup {
    pub(super) report: Value,
    pub(super) rows: Vec<Row>,
    pub(super) seconds: f64,
}

impl Checkup {
    pub(super) fn run(program: &Path, seed: usize) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let report = report(program, &["--seed", &seed.to_string()])?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut rows = Vec::new();
        for part in list(&report, "parts")? {
            add_rows(part, &mut rows)?;
        }
        Ok(Checkup { report, rows, seconds })
    }
}

/// The rows of a part, which form one family: a row for each question that was asked.
fn add_rows(part: &Value, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let report = &part["report"];
    let label = part["label"].as_str().unwrap_or_default();
    let comparisons = list(report, "comparisons")?;
    for question in report["plan"]["asked"].as_array().into_iter().flatten() {
        let found = comparisons.iter().find(|found| {
            let at = &question["connections"];
            found["metric"] == question["metric"] && (at.is_null() || *at == found["point"]["connections"])
        });
        rows.push(Row {
            name: format!("{label} {}", question["metric"].as_str().unwrap_or_default()),
            ratio: found.map_or_else(String::new, in_words),
            is_decided: found.is_some_and(is_decided),
        });
    }
    Ok(())
}

pub(super) fn checkups(account: &mut Account) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let mut decided: BTreeMap<&str, usize> = ROWS.iter().map(|row| (*row, 0)).collect();
    let (mut longest, mut enough) = (0.0_f64, 0);
    for run in 1..=RUNS {
        let checkup = Checkup::run(&program, run)?;
        let mut count = 0;
        for (name, runs) in &mut decided {
            let Some(row) = checkup.rows.iter().find(|row| row.name == *name) else {
                account.tell(&format!("run {run} | {name} | no time was left | open"));
                continue;
            };
            account.tell(&format!("run {run} | {name} | {} | {}", row.ratio, row.state()));
            *runs += usize::from(row.is_decided);
            count += usize::from(row.is_decided);
        }
        enough += usize::from(count as f64 >= PART * ROWS.len() as f64);
        longest = longest.max(checkup.seconds);
        let parts = list(&checkup.report, "parts")?.iter();
        let steal = parts.filter_map(|part| part["report"]["host"]["steal_percent"].as_f64());
        account.tell(&format!(
            "run {run}: {count} of {} rows decided, {:.0} s, steal up to {:.1} %",
            ROWS.len(),
            checkup.seconds,
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

/// Runs so many reports of two equal arms, each over the next of four subjects, and keeps what is called different. Of sixteen
/// reports the first eight have a server for each arm, whose differences are not caused by the transport; of each eight the
/// first four are over Unix sockets. Returns how many called a difference, with the share's interval and a parenthesis that is
/// left open, and how often in each direction.
pub(super) fn called_different(
    account: &mut Account,
    program: &Path,
    head: &str,
    reports: usize,
    subjects: &[&[&str]; 4],
) -> anyhow::Result<(String, BTreeMap<String, u32>)> {
    let (mut called, mut directions) = (0, BTreeMap::new());
    for number in 0..reports {
        let subject = subjects[number % subjects.len()];
        let transport = if number % 8 < 4 { "unix,unix" } else { "tcp,tcp" };
        let seed = number.to_string();
        let more = ["--transports", transport, "--trial-time", "60ms", "--max-blocks", "12", "--seed", &seed];
        let (apart, servers): (&[&str], _) =
            if number % 16 < 8 { (&["--own-servers"], ", two servers") } else { (&[], "") };
        let report = report(program, &[&["bench"], subject, &more, apart].concat())?;
        let mut wrong = list(&report, "comparisons")?.to_vec();
        wrong.retain(|found| found["verdict"] == "faster" || found["verdict"] == "slower");
        for found in &wrong {
            let verdict = found["verdict"].as_str().unwrap_or_default();
            *directions.entry(verdict.to_owned()).or_insert(0) += 1;
            let (metric, words) = (&found["metric"], in_words(found));
            account.tell(&format!(
                "{head}report {number}, {} over {transport}{servers}: {metric} {verdict} {words}",
                subject[0]
            ));
        }
        called += usize::from(!wrong.is_empty());
    }
    let (low, high) = share(called, reports);
    let part = called as f64 / reports as f64;
    let [part, low, high] = [part, low, high].map(|part| 100.0 * part);
    let words = format!(
        "{called} of {reports} reports call two arms different that are the same: {part:.1} % ({low:.1}\u{2013}{high:.1} %"
    );
    Ok((words, directions))
}

const SAME: usize = 200;

pub(super) fn same(account: &mut Account) -> anyhow::Result<()> {
    let subjects: [&[&str]; 4] = [
        &["raw", "--connections", "1,64"],
        &["redis", "--connections", "1,8"],
        &["mysql", "--connections", "8"],
        &["proxy", "--backend", "built-in", "--backends", "1", "--http", "1.1", "--connections", "8"],
    ];
    let (called, _) = called_different(account, &crate::release_program()?, "", SAME, &subjects)?;
    account.tell(&format!("{called}; at most 17 may)"));
    Ok(())
}

/// Exact 95 % interval of a proportion (Clopper and Pearson 1934): all proportions for which neither tail is
/// rarer than 2.5 %.
fn share(count: usize, of: usize) -> (f64, f64) {
    // A function that decreases with the proportion has one root.
    let root = |falls: &dyn Fn(f64) -> f64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if falls(middle) > 0.0 { low = middle } else { high = middle }
        }
        low
    };
    let low = if count == 0 { 0.0 } else { root(&|share| at_most(count - 1, of, share) - 0.975) };
    let high = if count == of { 1.0 } else { root(&|share| at_most(count, of, share) - 0.025) };
    (low, high)
}

/// Probability of at most `most` of `of`, each with the probability `share`.
fn at_most(most: usize, of: usize, share: f64) -> f64 {
    let (mut term, mut sum) = ((1.0 - share).powi(of as i32), 0.0);
    for number in 0..=most {
        sum += term;
        term *= (of - number) as f64 / (number + 1) as f64 * share / (1.0 - share);
    }
    sum
}

pub(super) fn slowed(account: &mut Account) -> anyhow::Result<()> {
    longer(account, 50, "10%", "--work 300us --budget 10s --margin 2%", 45)
}

pub(super) fn known(account: &mut Account) -> anyhow::Result<()> {
    longer(account, 10, "3%", "--work 100us --budget 20s --margin 0.01%", 9)
}

/// Runs of two equal arms, one of which has a server that works longer, `by` a part of its work per request: for 10 % more,
/// that must be most of the request's time. `wanted` of the runs must call it slower.
fn longer(account: &mut Account, runs: usize, by: &str, options: &str, wanted: usize) -> anyhow::Result<()> {
    // Waking CPUs would take longer than the work of a request.
    let words = format!("--awake --longer {by} {options}");
    let right = called_slower(account, &crate::release_program()?, "", 1..=runs, &words)?;
    account.tell(&format!(
        "{right} of {runs} runs call the arm that works {by} longer slower (at least {wanted} are to)"
    ));
    Ok(())
}

/// How many runs, each with its seed, call an arm that works longer slower than an equal one in its mean latency, once that is
/// decided or the budget is over.
pub(super) fn called_slower(
    account: &mut Account,
    program: &Path,
    head: &str,
    seeds: RangeInclusive<usize>,
    options: &str,
) -> anyhow::Result<usize> {
    let mut right = 0;
    for seed in seeds {
        let words = format!("bench raw --transports unix,unix --until-decided --seed {seed} {options}");
        let report = report(program, &words.split(' ').collect::<Vec<_>>())?;
        let found = comparison(&report, "latency_mean")?;
        account.tell(&format!("{head}run {seed}: {}: {}", in_words(found), found["verdict"]));
        right += usize::from(found["verdict"] == "slower");
    }
    Ok(right)
}

const QUESTIONS: [(&str, &[u32]); 4] =
    [("raw", &[1, 64]), ("redis", &[1, 8, 64]), ("mysql", &[1, 8, 64]), ("postgres", &[1, 8, 64])];

/// Budgets in seconds, the longest first.
const BUDGETS: [u32; 5] = [60, 30, 15, 8, 4];
const LONGEST_S: f64 = BUDGETS[0] as f64;

pub(super) fn speed(account: &mut Account) -> anyhow::Result<()> {
    let before =
        account.before.clone().context("--before PROGRAM is needed: an earlier build of samehost")?;
    let now = crate::release_program()?;
    account.tell("workload, connections | before | now | now, CPUs kept awake: seconds until the mean latency is decided");
    let mut ratios = Vec::new();
    for (workload, levels) in QUESTIONS {
        for connections in levels {
            let words = format!("bench {workload} --connections {connections}");
            // An earlier program stops when its intervals are narrow or its budget ends: find the shortest
            // budget that decides.
            let mut earlier = None;
            for budget in BUDGETS {
                let decided = seconds_to_decide(&before, &format!("{words} --budget {budget}s"))?;
                if decided.is_none() {
                    break;
                }
                earlier = decided;
            }
            let until = format!("{words} --until-decided --budget 60s");
            let plain = seconds_to_decide(&now, &format!("{until} --awake=no"))?;
            let awake = seconds_to_decide(&now, &format!("{until} --awake"))?;
            let [theirs, ours, ours_awake] = [earlier, plain, awake].map(in_seconds);
            account.tell(&format!("{workload}, {connections} | {theirs} | {ours} | {ours_awake}"));
            ratios.push(earlier.unwrap_or(LONGEST_S) / plain.unwrap_or(LONGEST_S));
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

fn in_seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| format!("over {LONGEST_S:.0}"), |seconds| format!("{seconds:.1}"))
}

/// Time until the program has a verdict on the mean latency, in seconds; `None` without a verdict.
fn seconds_to_decide(program: &Path, words: &str) -> anyhow::Result<Option<f64>> {
    let begun = Instant::now();
    let report = report(program, &words.split(' ').collect::<Vec<_>>())?;
    let seconds = begun.elapsed().as_secs_f64();
    let is_decided = is_decided(comparison(&report, "latency_mean")?);
    Ok(is_decided.then_some(seconds))
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
