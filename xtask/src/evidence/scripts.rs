//! Evidence that a test or a script gathers, which stands beside what it proves: a test is asked for more than it has time
//! for in `cargo test`, and prints what it found; `packaging/checking.py` says what a script is given and what it has to do.
//! Beside a test of that kind, what a socket saves by the kernel's times and by the measuring client's own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::Account;
use crate::process::{bytes, cargo_command};
use crate::{comparison, debug_program, list, release_program, target};

/// Runs the script of a folder of the tests with a program.
pub(super) fn of_tests(account: &mut Account, folder: &str, program: &Path) -> anyhow::Result<()> {
    gather(account, &format!("crates/samehost/tests/{folder}/check"), program, &[])
}

pub(super) fn shipped(account: &mut Account) -> anyhow::Result<()> {
    let program = target().join("debug/examples/addresses");
    bytes(&mut cargo_command(&["build", "--locked", "-p", "samehost-edit", "--example", "addresses"]))?;
    gather(account, "crates/samehost-edit/tests/shipped/check", &program, &[])
}

pub(super) fn ansible(account: &mut Account) -> anyhow::Result<()> {
    let (program, folder) = (debug_program()?, tempfile::tempdir()?);
    let package = packages(&program, folder.path())?.remove(0);
    gather(account, "packaging/ansible/check", &program, &[("PACKAGE", package)])
}

pub(super) fn kubernetes(account: &mut Account) -> anyhow::Result<()> {
    let (program, folder) = (crate::dist::program()?, tempfile::tempdir()?);
    let packages = packages(&program, folder.path())?.into_iter();
    let mut images = packages.filter(|path| path.extension().is_some_and(|end| end == "tar"));
    let image = images.next().context("no image: the program is not static")?;
    gather(account, "packaging/kubernetes/check", &program, &[("IMAGE", image)])
}

/// All packages of a program, of which that for Debian is the first.
fn packages(program: &Path, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    crate::package::all(program, crate::dist::epoch()?, &crate::dist::licences_of_others()?, folder)
}

/// Runs a script of the repository, and keeps what it writes to standard output, line by line.
fn gather(
    account: &mut Account,
    script: &str,
    program: &Path,
    variables: &[(&str, PathBuf)],
) -> anyhow::Result<()> {
    let mut command = Command::new(crate::root().join(script));
    command.args(&account.only).env("SAMEHOST", program).env("CARGO_TARGET_DIR", target());
    command.envs(variables.iter().cloned()).env("PYTHONDONTWRITEBYTECODE", "1").stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("starting {script}"))?;
    let output = child.stdout.take().context("its output is read once")?;
    for line in BufReader::new(output).lines() {
        account.tell(&line?);
    }
    let status = child.wait()?;
    ensure!(status.success(), "{script} ended with {status}: it wrote above what is wrong");
    Ok(())
}

/// The cases of the tests of `run`, with gigabytes, and over TCP and the Unix socket itself beside it.
pub(super) fn integrity(account: &mut Account) -> anyhow::Result<()> {
    let mut test = test_of_servers("what_both_sides_see_of_gigabytes_over_each_way");
    test.arg("--ignored");
    account.tell("case | over | what both sides saw");
    keep_findings(account, test, |line| line.strip_prefix("saw: ").map(str::to_owned))
}

/// What reaches a server of the words of each client that `how` knows; those in Rust take longer to build than a test may.
pub(super) fn clients(account: &mut Account) -> anyhow::Result<()> {
    let mut test = cargo_command(&["test", "--all-features", "--locked", "-p", "samehost", "--test", "e2e"]);
    test.args(["the_table_of_what_reaches_a_server", "--", "--ignored", "--nocapture", "--test-threads=1"]);
    account.tell("client | of | has to use | over, in its server's words | database or number | user | option | its words");
    keep_findings(account, test, |line| line.strip_prefix("held: ").map(str::to_owned))
}

pub(super) fn attribution(account: &mut Account) -> anyhow::Result<()> {
    account.tell("short connections of an observation that were booked on each program, and what it opened while the scan ran");
    let mut test = test_of_servers("short_connections_are_booked_on_who_opened_them");
    test.env("SAMEHOST_SCANS", "100").env("SAMEHOST_PROGRAM", release_program()?);
    keep_findings(account, test, |line| line.strip_prefix("booked: ").map(str::to_owned))
}

/// A test with servers, with all features of all crates, as `cargo xtask test` has them compiled.
fn test_of_servers(name: &str) -> Command {
    let mut test = cargo_command(&["test", "--workspace", "--all-features", "--locked", "--test", "e2e"]);
    test.args([name, "--", "--nocapture"]);
    test
}

/// Runs tests, and keeps what `read` makes of each line; fails with everything that was printed if a test failed.
pub(super) fn keep_findings(
    account: &mut Account,
    mut tests: Command,
    read: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<()> {
    let output = tests.output().context("starting cargo")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    for line in printed.lines().filter_map(read) {
        account.tell(&line);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "a test failed: {printed}{errors}");
    Ok(())
}

/// Compiles tests, which the words choose, and returns the last program of them.
pub(super) fn build_test(words: &[&str]) -> anyhow::Result<PathBuf> {
    let mut cargo = cargo_command(&["test", "--quiet", "--no-run", "--locked", "--message-format=json"]);
    let messages = bytes(cargo.args(words))?;
    let mut program = None;
    for line in String::from_utf8(messages)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        if message["profile"]["test"] == true
            && let Some(executable) = message["executable"].as_str()
        {
            program = Some(PathBuf::from(executable));
        }
    }
    program.with_context(|| format!("no such test: {}", words.join(" ")))
}

const COST: &str = "cost";
const SAVING: &str = "saving";
const MEMORY: &str = "memory";

/// What it costs a Redis to be looked at, what a socket saves, and whether the memory of what goes on looking grows.
pub(super) fn watching(account: &mut Account) -> anyhow::Result<()> {
    account.has_part(&[COST, SAVING, MEMORY])?;
    if account.wants(COST) {
        account.tell("CPU time of a saturated Redis and its 50 clients a request, while requests are timed ÷ while not, in blocks of 2 × 0.2 s");
        let mut test = test_of_servers("a_redis_that_is_watched_goes_on_as_root");
        test.env("SAMEHOST_BLOCKS", "40");
        keep_findings(account, test, |line| Some(format!("{COST} | {}", line.strip_prefix("watched: ")?)))?;
    }
    if account.wants(SAVING) {
        saving(account)?;
    }
    if account.wants(MEMORY) {
        let minutes = (account.length.as_secs() / 60).max(1).to_string();
        gather(
            account,
            "crates/samehost/tests/memory/check",
            &release_program()?,
            &[("MINUTES", minutes.into())],
        )?;
    }
    Ok(())
}

/// What a Unix socket saves of a request: by the kernel's times of the requests of `bench`, by their hop alone, and by the clock of `bench`.
fn saving(account: &mut Account) -> anyhow::Result<()> {
    const RUNS: usize = 3;
    let program = match std::env::var_os("SAMEHOST_PROGRAM") {
        Some(path) => path.into(),
        None => debug_program()?,
    };
    account.tell("what a Unix socket saves of a request, in µs: kernel's times, their hop, clock of bench; both ÷ the clock's");
    for workload in ["redis", "postgres", "mysql"] {
        for connections in ["1", "8"] {
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
    bench.args(["--budget", "14s", "--trial-time", "2s", "--json", "-"]);
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("starting bench")?;
    // Its servers have started by then.
    sleep(Duration::from_secs(6));
    let mut scan = Command::new(program);
    let scan = scan.args(["scan", "--observe", "3s", "--exact", "--json", "--quiet"]).output();
    let measured = bench.wait_with_output()?;
    let report: Value = serde_json::from_slice(&measured.stdout).context("what bench has measured")?;
    let scan: Value = serde_json::from_slice(&scan?.stdout).context("what was observed")?;
    let found = comparison(&report, "latency_mean")?;
    let clock = number(&found["baseline_value"])? - number(&found["candidate_value"])?;
    let ([tcp, tcp_hop], [unix, unix_hop]) = (exchanges(&scan, "tcp")?, exchanges(&scan, "unix_stream")?);
    let (kernel, hop) = (tcp - unix, tcp_hop - unix_hop);
    Ok(format!("{kernel:.2}, {hop:.2}, {clock:.2}; {:.2}, {:.2}", kernel / clock, hop / clock))
}

/// Means of our exchanges over a kind of socket, and of both their ways without the server, by the kernel's times in µs.
fn exchanges(scan: &Value, kind: &str) -> anyhow::Result<[f64; 2]> {
    for pair in list(&scan["exchanges"], "pairs")? {
        if pair["kind"] == kind && pair["first"].is_object() && pair["client"] == "samehost" {
            let parts = &pair["parts"];
            let hop = number(&parts["way_there_us"])? + number(&parts["way_back_us"])?;
            return Ok([number(&pair["first"]["mean_us"])?, hop]);
        }
    }
    bail!("no exchanges over {kind}")
}
