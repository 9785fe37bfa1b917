//! `cargo xtask test`: all tests, or with `--quick` those that need neither root nor servers. Says beforehand how long that
//! took the last time, and what it installs.
//!
//! What `--quick` leaves out is said where the tests are: a test target that needs servers has `servers` among its
//! `required-features`; the name of a single test that needs root, another's program or half a minute ends in one of [`MARKS`].

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::{alone, cargo_program, needs, root, servers, target};

/// Ends of the names of tests that `--quick` leaves out.
const MARKS: [&str; 3] = ["as_root", "with_programs", "at_length"];

/// Which tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suite {
    All,
    Quick,
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Suite::All => "all tests",
            Suite::Quick => "quick tests",
        })
    }
}

/// How long a suite took: to build, with what it installs meanwhile, and to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Took {
    suite: Suite,
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
    fn read(text: &str, suite: Suite) -> Option<Took> {
        let start = format!("{suite} | ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start))?;
        let mut numbers = line.split(" | ").map(|part| part.split(' ').next()?.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Took { suite, build_s: next()?, run_s: next()?, cpus: next()? })
    }
}

/// All tests, with what they need.
pub(crate) fn all() -> anyhow::Result<()> {
    announce(Suite::All);
    servers::announce();
    let begun = Instant::now();
    let options = options(&["--all-features"]);
    // On a new machine apt waits for the network for minutes, and compilers do not.
    let mut build = Build::start(&options)?;
    needs()?;
    build.wait()?;
    let build_s = begun.elapsed().as_secs();
    let begun = Instant::now();
    alone::test_all(&options)?;
    end(Suite::All, build_s, begun)
}

/// The tests that need neither root nor servers.
pub(crate) fn quick() -> anyhow::Result<()> {
    announce(Suite::Quick);
    println!(
        "Left out: what needs servers, another's program, root or half a minute; `cargo xtask test` has it."
    );
    let skipped: Vec<&str> = MARKS.iter().flat_map(|mark| ["--skip", *mark]).collect();
    let begun = Instant::now();
    let options = options(&[]);
    Build::start(&options)?.wait()?;
    let build_s = begun.elapsed().as_secs();
    let begun = Instant::now();
    alone::test(&options, &skipped)?;
    end(Suite::Quick, build_s, begun)
}

/// Words for cargo that choose what is built and tested.
fn options(features: &[&'static str]) -> Vec<&'static str> {
    [&["--workspace", "--locked"], features].concat()
}

/// Cargo while it builds the tests; ended with this value.
struct Build(Child);

impl Build {
    fn start(options: &[&str]) -> anyhow::Result<Build> {
        let words = [&["test"], options, &["--no-run"]].concat();
        println!("$ cargo {}", words.join(" "));
        let cargo = Command::new(cargo_program()).args(words).current_dir(root()).spawn();
        Ok(Build(cargo.context("starting cargo")?))
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "the tests could not be built: cargo ended with {status}");
        Ok(())
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        // It has ended, unless something else failed meanwhile.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Says and keeps how long a suite took that ran from `begun` on.
fn end(suite: Suite, build_s: u64, begun: Instant) -> anyhow::Result<()> {
    let took = Took { suite, build_s, run_s: begun.elapsed().as_secs(), cpus: cpus() };
    println!("{took}");
    keep(&took)
}

/// Says how long a suite will take, by its last run here or else by the one that the repository has.
fn announce(suite: Suite) {
    let took = |path: &Path| Took::read(&fs::read_to_string(path).ok()?, suite);
    let committed = root().join("docs/evidence/tests.txt");
    let (took, place) = match (took(&kept()), took(&committed)) {
        (Some(took), _) => (took, "here, the last time"),
        (None, Some(took)) => (took, "where docs/evidence/tests.txt was made"),
        (None, None) => return println!("{suite}: nobody has kept how long they take."),
    };
    let Took { build_s, run_s, cpus: theirs, .. } = took;
    println!("{suite}: {} to build and {} to run {place},", minutes(build_s), minutes(run_s));
    println!("on {theirs} CPUs; this machine has {}.", cpus());
}

/// Keeps how long a suite took, beside those of the others.
fn keep(took: &Took) -> anyhow::Result<()> {
    let before = fs::read_to_string(kept()).unwrap_or_default();
    let mut all: Vec<Took> =
        [Suite::All, Suite::Quick].iter().filter_map(|suite| Took::read(&before, *suite)).collect();
    all.retain(|other| other.suite != took.suite);
    all.push(*took);
    let lines: Vec<String> = all.iter().map(|took| format!("{took}\n")).collect();
    Ok(fs::write(kept(), lines.concat())?)
}

/// The file with the figures of this machine.
pub(crate) fn kept() -> PathBuf {
    target().join("tests.txt")
}

fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

fn minutes(seconds: u64) -> String {
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let took = |suite| Took { suite, build_s: 95, run_s: 1800, cpus: 2 };
        let text = format!("$ cargo xtask evidence tests\n{}\n{}\n", took(Suite::All), took(Suite::Quick));
        for suite in [Suite::All, Suite::Quick] {
            assert_eq!(Took::read(&text, suite), Some(took(suite)), "{text}");
        }
        assert_eq!(Took::read("quick tests | soon", Suite::Quick), None);
        assert_eq!((minutes(89).as_str(), minutes(95).as_str()), ("89 s", "2 min"));
    }
}
