//! Fuzzes every parser of external bytes: repeats its property tests with new random numbers, in rounds of
//! about ten seconds. Detects failures, hangs, and excessive memory use, for which the kernel kills the round.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::Account;
use super::scripts::build_test;

struct Target {
    name: &'static str,
    package: &'static str,
    /// Which tests of the package, in the words of cargo.
    tests: &'static str,
    /// Properties, by substrings of their names, with blanks between them.
    properties: &'static str,
}

const fn of_library(name: &'static str, package: &'static str, properties: &'static str) -> Target {
    Target { name, package, tests: "--lib", properties }
}

const TARGETS: &[Target] = &[
    of_library(
        "sock_diag and /proc",
        "samehost-system",
        "mutated::replies mutated::files no_bytes_panic no_text_panics",
    ),
    of_library("greetings, access lists, targets", "samehost-scan", "panic"),
    of_library(
        "MySQL, logging in",
        "samehost-login",
        "mysql::tests::a_login_ends mysql::packet mysql::login::tests::no_bytes",
    ),
    of_library(
        "PostgreSQL, logging in",
        "samehost-login",
        "postgres::tests::a_login_ends postgres::messages own_files::tests::no_text",
    ),
    of_library("Redis, memcached and URLs", "samehost-login", "redis:: memcached:: url::"),
    of_library("MySQL, measuring", "samehost-bench", "workloads::mysql::session"),
    of_library("PostgreSQL, measuring", "samehost-bench", "workloads::postgres::session"),
    of_library(
        "RESP and memcached, measuring",
        "samehost-bench",
        "workloads::redis::session workloads::memcached::dialogue",
    ),
    of_library("HTTP", "samehost-bench", "workloads::http builtin_servers::responder workloads::rpc"),
    of_library("FastCGI", "samehost-bench", "workloads::fastcgi"),
    of_library("journal", "samehost-transaction", "journal::tests::bent"),
    Target {
        tests: "--test transaction",
        ..of_library("journal, put back", "samehost-transaction", "properties")
    },
    Target {
        tests: "--test properties",
        ..of_library("every editor", "samehost-edit", "editors_keep_their_promises_on_torn_files")
    },
];

/// Duration to which the number of cases of a round is adjusted.
const ROUND: Duration = Duration::from_secs(10);
const HANGS: Duration = Duration::from_secs(180);
/// Limit of the address space of a round, in KiB; includes the tests' own threads and stacks.
const MEMORY: u64 = 4 << 20;
/// Number of cases in the first round; some take 0.1 s each.
const FIRST: u64 = 200;

pub(crate) fn fuzz(account: &mut Account) -> anyhow::Result<()> {
    let targets: Vec<&Target> = TARGETS.iter().filter(|target| account.wants(target.name)).collect();
    ensure!(!targets.is_empty(), "no target is called {:?}", account.only);
    let share = account.length / targets.len() as u32;
    let mut failed = Vec::new();
    account.tell("target | rounds | cases of each property, about | longest round | most memory | found");
    for target in targets {
        let program = build(target)?;
        ensure_each_fits(target, &program)?;
        let mut spent = Spent::default();
        let verdict = match rounds(target, &program, share, &mut spent) {
            Ok(()) => "nothing".to_owned(),
            Err(error) => {
                failed.push(target.name);
                // Further lines of a finding are indented.
                format!("{error:#}").replace('\n', "\n ")
            }
        };
        account.tell(&format!(
            "{} | {} | {} | {:.1} s | {} MiB | {verdict}",
            target.name,
            spent.rounds,
            spent.cases,
            spent.longest.as_secs_f64(),
            spent.memory >> 10
        ));
    }
    ensure!(failed.is_empty(), "something was found in: {}", failed.join(", "));
    Ok(())
}

#[derive(Default)]
struct Spent {
    rounds: u64,
    cases: u64,
    longest: Duration,
    /// Peak, in KiB.
    memory: u64,
}

/// Fails where a substring is in no test's name. A round runs the tests of all of them and passes while one is left: a
/// property whose file was renamed dropped out in silence, and the password files of PostgreSQL were not fuzzed.
fn ensure_each_fits(target: &Target, program: &Path) -> anyhow::Result<()> {
    for property in target.properties.split(' ') {
        let listed = Command::new(program).args([property, "--list"]).output()?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        ensure!(listed.contains(": test"), "{}: no test is called {property:?}", target.name);
    }
    Ok(())
}

fn rounds(target: &Target, program: &PathBuf, share: Duration, spent: &mut Spent) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut cases = FIRST;
    while begun.elapsed() < share {
        let round = Instant::now();
        run_round(target, program, cases, spent)?;
        let took = round.elapsed();
        spent.rounds += 1;
        spent.cases += cases;
        spent.longest = spent.longest.max(took);
        let scale = (ROUND.as_secs_f64() / took.as_secs_f64().max(0.01)).clamp(0.2, 10.0);
        cases = ((cases as f64 * scale) as u64).max(1);
    }
    Ok(())
}

fn run_round(target: &Target, program: &PathBuf, cases: u64, spent: &mut Spent) -> anyhow::Result<()> {
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY}; exec \"$@\""), "sh"])
        .arg(program)
        .args(target.properties.split(' '))
        .args(["--test-threads", "2"])
        .env("PROPTEST_CASES", cases.to_string())
        .env("PROPTEST_MAX_SHRINK_TIME", "20000")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let begun = Instant::now();
    loop {
        spent.memory = spent.memory.max(peak(&child));
        if child.try_wait()?.is_some() {
            break;
        }
        if begun.elapsed() > HANGS {
            child.kill()?;
            child.wait()?;
            bail!("a round of {cases} cases did not end within {} s", HANGS.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}", text.trim());
    Ok(())
}

fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) else { return 0 };
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn build(target: &Target) -> anyhow::Result<PathBuf> {
    let words = format!("-p {} --all-features {}", target.package, target.tests);
    build_test(&words.split(' ').collect::<Vec<_>>())
}
