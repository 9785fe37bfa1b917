//! `cargo xtask test`: all tests, or with `--quick` those that need neither root nor servers. Says beforehand how long
//! that took the last time, and what it installs. What only computes runs beside what waits for servers; what failed
//! beside the others is run once more, alone.
//!
//! What `--quick` leaves out is said where the tests are: a test target that needs servers has `servers` among its
//! `required-features`; the name of a single test that needs root, another's program or half a minute ends in one of
//! [`MARKS`].
//!
//! Five hundred tests with real servers share a machine, two at a time: a server's deadline, a port that was free a
//! moment ago, a name that another test's program has as well. Three landings failed by one such test each, and none of
//! the three failed again. Rejected: a retry beside the others, as it meets the same load; a retry of everything, as a
//! broken change would take twice as long to say so (so at most [`MOST`] are run again); and silence: what passed only
//! alone is named at the end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, pipe};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;

use crate::process::{Process, bytes, cargo_command};
use crate::{list, needs, root, servers, target};

/// Ends of the names of tests that `--quick` leaves out.
const MARKS: [&str; 3] = ["as_root", "with_programs", "at_length"];

const ALL: &str = "all tests";
const QUICK: &str = "quick tests";

/// How long a suite took: to build, with what it installs meanwhile, and to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Took {
    suite: &'static str,
    build_s: u64,
    run_s: u64,
    cpus: u64,
}

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Took { suite, build_s, run_s, cpus } = self;
        write!(f, "{suite} | {build_s} s to build | {run_s} s to run | {cpus} CPUs")
    }
}

impl Took {
    /// The line of this suite in a text that [`Took`] wrote.
    fn read(text: &str, suite: &'static str) -> Option<Took> {
        let start = format!("{suite} | ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start))?;
        let numbers: Vec<u64> =
            line.split(" | ").flat_map(|part| part.split(' ').next().unwrap_or_default().parse()).collect();
        let [build_s, run_s, cpus] = numbers[..] else { return None };
        Some(Took { suite, build_s, run_s, cpus })
    }
}

/// Runs all tests; and `lints`, commands of cargo that build no program, where the tests leave CPUs idle.
pub(crate) fn all(lints: &[Vec<&str>]) -> anyhow::Result<()> {
    announce(ALL);
    servers::announce();
    let begun = Instant::now();
    let options = ["--workspace", "--locked", "--all-features"];
    // On a new machine apt waits for the network for minutes, and compilers do not.
    let mut build = start_build(&options)?;
    needs()?;
    build.wait("building the tests")?;
    let build_s = begun.elapsed().as_secs();
    let begun = Instant::now();
    test_all(&options, lints)?;
    end(ALL, build_s, begun)
}

pub(crate) fn quick() -> anyhow::Result<()> {
    announce(QUICK);
    println!(
        "Left out: what needs servers, another's program, root or half a minute; `cargo xtask test` has it."
    );
    let skipped: Vec<&str> = MARKS.iter().flat_map(|mark| ["--skip", *mark]).collect();
    let begun = Instant::now();
    let options = ["--workspace", "--locked"];
    start_build(&options)?.wait("building the tests")?;
    let build_s = begun.elapsed().as_secs();
    let begun = Instant::now();
    let (passed, failed) = run(&[&["test"], &options[..], &["--no-fail-fast", "--"], &skipped].concat())?;
    judge(passed, &failed, &options)?;
    end(QUICK, build_s, begun)
}

fn start_build(options: &[&str]) -> anyhow::Result<Process> {
    let words = [&["test"], options, &["--no-run"]].concat();
    println!("$ cargo {}", words.join(" "));
    Process::start(&mut cargo_command(&words))
}

/// Says how long a suite took, and keeps it beside the other suite.
fn end(suite: &'static str, build_s: u64, begun: Instant) -> anyhow::Result<()> {
    let took = Took { suite, build_s, run_s: begun.elapsed().as_secs(), cpus: cpus() };
    println!("{took}");
    let before = fs::read_to_string(kept()).unwrap_or_default();
    let other = if suite == ALL { QUICK } else { ALL };
    let kept_of_other = Took::read(&before, other).map(|other| format!("{other}\n")).unwrap_or_default();
    Ok(fs::write(kept(), format!("{kept_of_other}{took}\n"))?)
}

/// Says how long a suite will take, by its last run here or else by the one that the repository has.
fn announce(suite: &'static str) {
    let here = fs::read_to_string(kept()).unwrap_or_default();
    let committed = fs::read_to_string(root().join("docs/evidence/tests.txt")).unwrap_or_default();
    let (took, place) = match (Took::read(&here, suite), Took::read(&committed, suite)) {
        (Some(took), _) => (took, "here, the last time"),
        (None, Some(took)) => (took, "where docs/evidence/tests.txt was made"),
        (None, None) => return println!("{suite}: nobody has kept how long they take."),
    };
    let Took { build_s, run_s, cpus: theirs, .. } = took;
    println!("{suite}: {} to build and {} to run {place},", minutes(build_s), minutes(run_s));
    println!("on {theirs} CPUs; this machine has {}.", cpus());
}

/// How long the suite took, with its build, where docs/evidence/tests.txt was made.
pub(crate) fn committed_s() -> Option<u64> {
    let committed = fs::read_to_string(root().join("docs/evidence/tests.txt")).ok()?;
    Took::read(&committed, ALL).map(|took| took.build_s + took.run_s)
}

fn kept() -> PathBuf {
    target().join("tests.txt")
}

fn cpus() -> u64 {
    thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

fn minutes(seconds: u64) -> String {
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}

/// Most failed tests that are run again; where more failed, something is broken.
const MOST: usize = 5;

#[derive(Debug, Default, PartialEq, Eq)]
struct Failed {
    /// Words that lead to each target, as `-p samehost --test e2e`.
    targets: Vec<String>,
    tests: Vec<String>,
    /// How many targets came to their own end with a failure; one that crashed did not.
    ended: usize,
    /// The sums that the targets printed at their ends.
    count_failed: usize,
    count_passed: usize,
}

impl Failed {
    fn note(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.ended += usize::from(result.starts_with("FAILED"));
            self.count_failed += number_before(result, " failed");
            self.count_passed += number_before(result, " passed");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.tests.push(name.to_owned());
        } else if let Some(target) = line.strip_prefix("    `").and_then(|rest| rest.strip_suffix('`')) {
            self.targets.push(target.to_owned());
        }
    }

    fn add(&mut self, other: Failed) {
        self.targets.extend(other.targets);
        self.tests.extend(other.tests);
        self.ended += other.ended;
        self.count_failed += other.count_failed;
        self.count_passed += other.count_passed;
    }

    /// Whether each failure is known by its name, and they are few.
    fn can_be_run_again(&self) -> bool {
        let are_known = self.ended == self.targets.len() && self.count_failed == self.tests.len();
        are_known && !self.tests.is_empty() && self.tests.len() <= MOST
    }

    /// The words that choose the kinds of target, as `--test e2e` of `-p samehost --test e2e`.
    fn kinds(&self) -> BTreeSet<&str> {
        self.targets.iter().filter_map(|target| target.splitn(3, ' ').nth(2)).collect()
    }
}

/// The number before a word, as 3 in `ok. 3 passed; 0 failed` before ` passed`.
fn number_before(text: &str, word: &str) -> usize {
    let before = text.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Test targets that start servers and wait for them for half of their time.
const WITH_SERVERS: [&str; 2] = ["e2e", "hostile"];

/// Runs all tests with `options`: what only computes runs while the others wait for servers.
///
/// One after the other, half of both CPUs was idle: 1,350 s of tests with servers, then 460 s of the rest. Beside each other, the rest
/// at a lower priority, all ended with the former, after 1,670 s. Rejected: more tests with servers at once, as they share ports, names of
/// programs and deadlines; the idle class (`chrt --idle`), which gets nothing while two tests measure, for a minute at times.
fn test_all(options: &[&str], lints: &[Vec<&str>]) -> anyhow::Result<()> {
    let mut front = [&["test"], options, &["--no-fail-fast"]].concat();
    let documentation = [&front[..], &["--doc"]].concat();
    let mut computing = [&front[..], &["--lib", "--bins"]].concat();
    let targets = test_targets()?;
    for name in &targets {
        let place = if WITH_SERVERS.contains(&name.as_str()) { &mut front } else { &mut computing };
        place.extend(["--test", name]);
    }
    thread::scope(|scope| {
        let behind = scope.spawn(|| {
            let tests = [run_behind(&computing)?, run_behind(&documentation)?];
            let lints: anyhow::Result<Vec<_>> = lints.iter().map(|lint| run_behind(lint)).collect();
            anyhow::Ok((tests, lints?))
        });
        let (mut passed, mut failed) = run(&front)?;
        let (tests, linted) = behind.join().map_err(|_| anyhow!("a thread panicked"))??;
        for (others_passed, others) in tests {
            passed &= others_passed;
            failed.add(others);
        }
        judge(passed, &failed, options)?;
        for (lint, (is_clean, _)) in lints.iter().zip(linted) {
            ensure!(is_clean, "`cargo {}` has something to say, above", lint.join(" "));
        }
        Ok(())
    })
}

fn test_targets() -> anyhow::Result<BTreeSet<String>> {
    let mut cargo = cargo_command(&["metadata", "--no-deps", "--format-version", "1", "--locked"]);
    let metadata: Value = serde_json::from_slice(&bytes(&mut cargo)?).context("reading cargo metadata")?;
    let mut names = BTreeSet::new();
    for package in list(&metadata, "packages")? {
        for target in list(package, "targets")? {
            if target["kind"][0] == "test" {
                names.insert(target["name"].as_str().context("no name")?.to_owned());
            }
        }
    }
    Ok(names)
}

/// Runs again, alone, what failed beside the others.
fn judge(passed: bool, failed: &Failed, options: &[&str]) -> anyhow::Result<()> {
    if passed {
        return Ok(());
    }
    if !failed.can_be_run_again() {
        bail!("{} tests failed", failed.tests.len());
    }
    println!("Failed beside the other tests, and run again alone: {}", failed.tests.join(", "));
    let names: Vec<&str> = failed.tests.iter().map(String::as_str).collect();
    let mut count_passed = 0;
    for kind in failed.kinds() {
        // With the same options as before: for a package alone, cargo would build its dependencies with other features.
        let kind: Vec<&str> = kind.split(' ').collect();
        let alone = ["--no-fail-fast", "--", "--exact", "--test-threads=1"];
        let (passed, again) = run(&[&["test"], options, &kind, &alone, &names].concat())?;
        ensure!(passed, "failed beside the other tests and alone: {}", again.tests.join(", "));
        count_passed += again.count_passed;
    }
    ensure!(count_passed >= names.len(), "did not run again: some of {}", names.join(", "));
    println!("PASSED ONLY ALONE, and is to be mended: {}", failed.tests.join(", "));
    Ok(())
}

fn run(arguments: &[&str]) -> anyhow::Result<(bool, Failed)> {
    println!("$ cargo {}", arguments.join(" "));
    follow(cargo_command(arguments), |line| println!("{line}"))
}

/// As [`run`], at a lower priority, and shows what was printed at the end.
fn run_behind(arguments: &[&str]) -> anyhow::Result<(bool, Failed)> {
    let mut lines = vec![format!("$ cargo {}", arguments.join(" "))];
    let cargo = cargo_command(arguments);
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(cargo.get_program()).args(arguments);
    let result = follow(command, |line| lines.push(line.to_owned()));
    println!("{}", lines.join("\n"));
    result
}

/// Runs cargo, hands on each line that it prints, and says whether it succeeded and what failed.
fn follow(mut command: Command, mut show: impl FnMut(&str)) -> anyhow::Result<(bool, Failed)> {
    let (reader, writer) = pipe()?;
    let mut child = command
        .current_dir(root())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .context("starting cargo")?;
    // It keeps both ends that it was given, and the pipe would have no end.
    drop(command);
    // A thread reads, as what a test left running may hold the pipe open after the end.
    let (lines, read) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    let mut failed = Failed::default();
    loop {
        match read.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                show(&line);
                failed.note(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok((child.wait()?.success(), failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let took = |suite| Took { suite, build_s: 95, run_s: 1800, cpus: 2 };
        let text = format!("$ cargo xtask evidence tests\n{}\n{}\n", took(ALL), took(QUICK));
        for suite in [ALL, QUICK] {
            assert_eq!(Took::read(&text, suite), Some(took(suite)), "{text}");
        }
        assert_eq!(Took::read("quick tests | soon", QUICK), None);
        assert_eq!((minutes(89).as_str(), minutes(95).as_str()), ("89 s", "2 min"));
    }

    fn read(text: &str) -> Failed {
        let mut failed = Failed::default();
        text.lines().for_each(|line| failed.note(line));
        failed
    }

    #[test]
    fn failures_are_known_by_target_and_name() {
        let text = "test scan::one ... FAILED\ntest scan::two ... ok\n\
                    test result: FAILED. 1 passed; 1 failed; 0 ignored\n\
                    error: 1 target failed:\n    `-p samehost --test e2e`\n";
        let failed = read(text);
        assert_eq!((&failed.tests[..], failed.count_passed), (&["scan::one".to_owned()][..], 1));
        assert_eq!(failed.targets, ["-p samehost --test e2e"]);
        assert_eq!(failed.kinds().into_iter().collect::<Vec<_>>(), ["--test e2e"]);
        assert!(failed.can_be_run_again());
    }

    #[test]
    fn a_crash_or_many_failures_are_final() {
        let crash = "test one ... FAILED\nerror: 1 target failed:\n    `-p samehost --lib`\n";
        assert!(!read(crash).can_be_run_again(), "the target did not come to its end");
        assert!(!read("error: could not compile `samehost`\n").can_be_run_again());
        let many = format!(
            "{}test result: FAILED. 0 passed; 6 failed\n    `-p samehost --lib`\n",
            "test one ... FAILED\n".repeat(6)
        );
        assert!(!read(&many).can_be_run_again());
    }
}
