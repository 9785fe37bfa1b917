//! Checks whether verdicts are right, by counting over whole runs: repeated checkups, and two equal arms.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::{Account, in_words, is_decided};
use crate::{list, report};

/// At least this many runs must decide at least this fraction of their rows.
const MOST: usize = 9;
/// Fraction of [`ROWS`] that a checkup has to decide.
const PART: f64 = 0.8;
const RUNS: usize = 10;
/// Rows of a checkup with all servers installed. A row that was omitted for lack of time counts as undecided.
const ROWS: [&str; 16] = [
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

struct Row {
    name: String,
    ratio: String,
    is_decided: bool,
}

impl Row {
    fn state(&self) -> &'static str {
        if self.is_decided { "decided" } else { "open" }
    }
}

struct Checkup {
    report: Value,
    rows: Vec<Row>,
    seconds: f64,
}

impl Checkup {
    fn run(program: &Path, seed: usize) -> anyhow::Result<Self> {
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

const SAME: usize = 200;

/// Reports of two equal arms, each over the next of four subjects; of each eight the first four are over Unix sockets. Keeps what
/// is called different.
pub(super) fn same(account: &mut Account) -> anyhow::Result<()> {
    let subjects: [&[&str]; 4] = [
        &["raw", "--connections", "1,64"],
        &["redis", "--connections", "1,8"],
        &["mysql", "--connections", "8"],
        &["proxy", "--backend", "built-in", "--backends", "1", "--http", "1.1", "--connections", "8"],
    ];
    let program = crate::release_program()?;
    let mut called = 0;
    for number in 0..SAME {
        let subject = subjects[number % subjects.len()];
        let transport = if number % 8 < 4 { "unix,unix" } else { "tcp,tcp" };
        let seed = number.to_string();
        let more = ["--transports", transport, "--trial-time", "60ms", "--max-blocks", "12", "--seed", &seed];
        let report = report(&program, &[&["bench"], subject, &more].concat())?;
        let mut is_called = false;
        for found in list(&report, "comparisons")? {
            let verdict = found["verdict"].as_str().unwrap_or_default();
            if verdict == "faster" || verdict == "slower" {
                is_called = true;
                let (metric, words) = (&found["metric"], in_words(found));
                account.tell(&format!(
                    "report {number}, {} over {transport}: {metric} {verdict} {words}",
                    subject[0]
                ));
            }
        }
        called += usize::from(is_called);
    }
    let (low, high) = share(called, SAME);
    let [part, low, high] = [called as f64 / SAME as f64, low, high].map(|part| 100.0 * part);
    account.tell(&format!(
        "{called} of {SAME} reports call two arms different that are the same: {part:.1} % ({low:.1}\u{2013}{high:.1} %; at most 17 may)"
    ));
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
