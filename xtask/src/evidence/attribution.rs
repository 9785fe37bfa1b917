//! What a test prints when it is asked for more than a test may take: whose the short connections are that `scan --observe` tells of,
//! with a hundred scans; and what it costs a Redis to be looked at, in forty blocks. Beside that, what a socket saves by the kernel's
//! times and by the measuring client's own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::Account;
use crate::{debug_program, release_program};

/// Parts of `watching`: `--only` names one.
const COST: &str = "cost";
const SAVING: &str = "saving";
/// Servers whose saving is read off, and how many connections ask.
const SAVED: [(&str, [&str; 2]); 3] =
    [("redis", ["1", "8"]), ("postgres", ["1", "8"]), ("mysql", ["1", "8"])];
/// How often each is looked at.
const RUNS: usize = 3;

pub(super) fn attribution(account: &mut Account<'_>) -> anyhow::Result<()> {
    account.tell("short connections of an observation that were booked on each program, and what it opened while the scan ran");
    printed(
        account,
        "short_connections_are_booked_on_who_opened_them",
        ("SAMEHOST_SCANS", "100"),
        "booked: ",
        "",
        Some(&release_program()?),
    )
}

pub(super) fn watching(account: &mut Account<'_>) -> anyhow::Result<()> {
    let (is_cost, is_saving) = match account.only.as_deref() {
        None => (true, true),
        Some(only) => (only == COST, only == SAVING),
    };
    ensure!(is_cost || is_saving, "no part is called that; there are {COST}, {SAVING}");
    if is_cost {
        account.tell("CPU time of a saturated Redis and its 50 clients a request, while requests are timed ÷ while not, in blocks of 2 × 0.2 s");
        printed(
            account,
            "a_redis_that_is_watched_goes_on_as_root",
            ("SAMEHOST_BLOCKS", "40"),
            "watched: ",
            COST,
            None,
        )?;
    }
    if is_saving {
        saving(account)?;
    }
    Ok(())
}

/// What a Unix socket saves of a request: by the kernel's times of the requests of `bench`, by their hop alone, and by the clock of `bench`.
fn saving(account: &mut Account<'_>) -> anyhow::Result<()> {
    let program = std::env::var_os("SAMEHOST_PROGRAM").map_or_else(debug_program, |path| Ok(path.into()))?;
    account.tell("what a Unix socket saves of a request, in µs: kernel's times, their hop, clock of bench; both ÷ the clock's");
    for (workload, levels) in SAVED {
        for connections in levels {
            for run in 1..=RUNS {
                // Between two rounds no connection is open: such a run is reported and not repeated.
                let found = saved(&program, workload, connections).unwrap_or_else(|error| error.to_string());
                account
                    .tell(&format!("{SAVING} | {workload}, {connections} connections, run {run}: {found}"));
            }
        }
    }
    Ok(())
}

fn number(value: &Value) -> anyhow::Result<f64> {
    value.as_f64().context("a number is missing")
}

/// Both savings of one run of `bench`, which is observed meanwhile.
fn saved(program: &Path, workload: &str, connections: &str) -> anyhow::Result<String> {
    let mut bench = Command::new(program);
    bench.args(["bench", workload, "--transports", "tcp,unix", "--connections", connections]);
    // A round opens its connections and closes them: it lasts longer than the observation, which sees those that are open when it begins.
    bench
        .args(["--budget", "14s", "--trial-time", "2s", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let bench = bench.spawn().context("starting bench")?;
    // Its servers have started by then.
    sleep(Duration::from_secs(6));
    let mut scan = Command::new(program);
    let scan = scan.args(["scan", "--observe", "3s", "--exact", "--json", "--quiet"]).output();
    let measured = bench.wait_with_output()?;
    let report: Value = serde_json::from_slice(&measured.stdout).context("what bench has measured")?;
    let scan: Value = serde_json::from_slice(&scan?.stdout).context("what was observed")?;
    let comparisons = report["comparisons"].as_array().context("no comparisons")?;
    let found = comparisons.iter().find(|one| one["metric"] == "latency_mean").context("no latency")?;
    let clock = number(&found["baseline_value"])? - number(&found["candidate_value"])?;
    let pairs = scan["exchanges"]["pairs"].as_array().context("no exchanges")?;
    let mut means = [[0.0; 2]; 2];
    for (kind, own) in ["tcp", "unix_stream"].iter().zip(&mut means) {
        let mut its = pairs.iter().filter(|pair| pair["kind"] == *kind && pair["first"].is_object());
        let its = its
            .find(|pair| pair["client"] == "samehost")
            .with_context(|| format!("no exchanges over {kind}"))?;
        let parts = &its["parts"];
        *own = [
            number(&its["first"]["mean_us"])?,
            number(&parts["way_there_us"])? + number(&parts["way_back_us"])?,
        ];
    }
    let [kernel, hop] = [0, 1].map(|at| means[0][at] - means[1][at]);
    Ok(format!("{kernel:.2}, {hop:.2}, {clock:.2}; {:.2}, {:.2}", kernel / clock, hop / clock))
}

/// Runs a test with a variable that makes it longer, and keeps the lines that it prints for this.
fn printed(
    account: &mut Account<'_>,
    name: &str,
    variable: (&str, &str),
    prefix: &str,
    part: &str,
    program: Option<&Path>,
) -> anyhow::Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut test = Command::new(cargo);
    // With all features of all crates, as `cargo xtask test` has them compiled.
    test.args(["test", "--workspace", "--all-features", "--locked", "--test", "e2e"]);
    test.args([name, "--", "--nocapture"]).env(variable.0, variable.1).current_dir(account.root);
    if let Some(program) = program {
        test.env("SAMEHOST_PROGRAM", program);
    }
    let output = test.output().context("starting cargo")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for line in said.lines().filter_map(|line| line.strip_prefix(prefix)) {
        account.tell(&if part.is_empty() { line.to_owned() } else { format!("{part} | {line}") });
    }
    if !output.status.success() {
        bail!("{name}: {said}{errors}");
    }
    Ok(())
}
