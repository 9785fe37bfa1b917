//! The static program of a release: that it runs where nothing else is, how large it is, how fast it starts, and whether its C
//! library and its allocator make it slower than glibc's. And how long it takes to build the program from nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::{Account, in_words};
use crate::bench::{Echo, scan};
use crate::process::{cargo_command, succeed, text};
use crate::{list, number, target};

struct Programs {
    musl: PathBuf,
    glibc: PathBuf,
}

/// The name is what `--only` takes, and what the part's lines begin with.
type Part = (&'static str, fn(&mut Account, &Programs) -> anyhow::Result<()>);

const PARTS: &[Part] = &[
    ("size", size),
    ("sbom", sbom),
    ("empty root", empty_root),
    ("kernel", |account, programs| super::kernel::boot(account, &programs.musl)),
    ("aarch64", aarch64),
    ("start", starts),
    (SPEED, speed),
];
/// The only one that needs the program with this machine's C library.
const SPEED: &str = "speed";
/// Made before the others, because it makes the program anew.
const TWICE: &str = "twice";

pub(super) fn dist(account: &mut Account) -> anyhow::Result<()> {
    let parts: Vec<&Part> = PARTS.iter().filter(|(name, _)| account.wants(name)).collect();
    if account.wants(TWICE) {
        for line in crate::dist::twice()? {
            account.tell(&format!("{TWICE} | {line}"));
        }
        if parts.is_empty() {
            return Ok(());
        }
    }
    account.has_part(&PARTS.iter().map(|(name, _)| *name).chain([TWICE]).collect::<Vec<_>>())?;
    let musl = crate::dist::program(None)?;
    let glibc = match &account.before {
        Some(program) => program.clone(),
        None if parts.iter().any(|(name, _)| *name == SPEED) => crate::dist::dynamic_program()?,
        // No other part uses it.
        None => musl.clone(),
    };
    let programs = Programs { musl, glibc };
    parts.into_iter().try_for_each(|(_, part)| part(account, &programs))
}

fn size(account: &mut Account, programs: &Programs) -> anyhow::Result<()> {
    let program = &programs.musl;
    let mut parts: Vec<(u64, String)> = Vec::new();
    for line in text(Command::new("size").args(["-A", "-d"]).arg(program))?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, size, _] = words[..]
            && let Ok(size) = size.parse()
            && name != ".bss"
        {
            parts.push((size, name.to_owned()));
        }
    }
    parts.sort_by(|left, right| right.cmp(left));
    let parts: Vec<String> = parts.iter().take(7).map(|(size, name)| format!("{name} {size}")).collect();
    account.tell(&format!("size | {} bytes | {}", fs::metadata(program)?.len(), parts.join(", ")));
    Ok(())
}

/// The list of components, held against the schema of CycloneDX by its own library, from PyPI.
fn sbom(account: &mut Account, _: &Programs) -> anyhow::Result<()> {
    const LIBRARY: &str = "cyclonedx-python-lib[json-validation]==11.12.0";
    const VALIDATE: &str = "import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read()) or 'valid')";
    let folder = tempfile::tempdir()?;
    succeed(Command::new("python3").args(["-m", "venv"]).arg(folder.path()))?;
    succeed(Command::new(folder.path().join("bin/pip")).args(["install", "--quiet", LIBRARY]))?;
    let list = crate::dist::list_of_components()?;
    let output = text(Command::new(folder.path().join("bin/python")).args(["-c", VALIDATE]).arg(&list))?;
    let list: Value = serde_json::from_str(&fs::read_to_string(&list)?)?;
    let components = list["components"].as_array().map_or(0, Vec::len);
    account.tell(&format!("sbom | {components} components, CycloneDX 1.5, by {LIBRARY} | {}", output.trim()));
    ensure!(output.trim() == "valid", "the list of components does not keep to its schema");
    Ok(())
}

/// Runs the program in a root directory that has nothing but it, /proc and /tmp.
fn empty_root(account: &mut Account, programs: &Programs) -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    for folder in ["proc", "tmp"] {
        fs::create_dir(root.path().join(folder))?;
    }
    fs::copy(&programs.musl, root.path().join("samehost"))?;
    for words in [&["--version"][..], &["scan"], &["how", "redis"], &["--quiet", "--json", "-"]] {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--root"])
            .arg(root.path());
        let output = unshare.arg("/samehost").args(words).env_clear().output().context("starting unshare")?;
        let errors = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " / ");
        let found = String::from_utf8_lossy(&output.stdout);
        let found = match serde_json::from_str::<Value>(&found) {
            Ok(checkup) => rows(&checkup),
            Err(_) => found.lines().next().unwrap_or_default().to_owned(),
        };
        account.tell(&format!(
            "empty root | samehost {} | {} | {found} | {errors}",
            words.join(" "),
            output.status
        ));
        ensure!(output.status.success(), "in an empty root directory: {errors}");
    }
    let names = crate::names(root.path())?;
    account.tell(&format!("empty root | afterwards it has | {}", names.join(" ")));
    Ok(())
}

/// The program for the other processor, interpreted by qemu: a scan reads what qemu shows it of this machine.
fn aarch64(account: &mut Account, _: &Programs) -> anyhow::Result<()> {
    const QEMU: &str = "/usr/bin/qemu-aarch64-static";
    super::need(&[(QEMU, "qemu-user-static")])?;
    let program = crate::dist::program(Some("aarch64-unknown-linux-musl"))?;
    account.tell(&format!("aarch64 | {} bytes", fs::metadata(&program)?.len()));
    for words in [&["--version"][..], &["how", "redis"], &["scan"]] {
        let output = Command::new(QEMU).arg(&program).args(words).output().context("starting qemu")?;
        let found = String::from_utf8_lossy(&output.stdout);
        let first = found.lines().next().unwrap_or_default();
        account.tell(&format!("aarch64 | samehost {} | {} | {first}", words.join(" "), output.status));
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn rows(checkup: &Value) -> String {
    let parts = checkup["parts"].as_array().map_or(0, Vec::len);
    let notes = checkup["notes"].as_array().map_or(0, Vec::len);
    format!("{parts} parts measured, {notes} notes")
}

fn starts(account: &mut Account, of: &Programs) -> anyhow::Result<()> {
    let mut programs = scan::others(&mut |missing| account.tell(&format!("start | {missing}")));
    programs.insert(0, ("musl", of.musl.clone()));
    for (name, file) in &programs {
        account.tell(&format!("start | size of {name} | {} bytes", fs::metadata(file)?.len()));
    }
    let arms: Vec<String> = programs.iter().map(|(name, file)| scan::arm(name, file)).collect();
    let ours = compare(account, "start | --version, s", of, &arms, None)?;
    account.tell(&format!("start | --version of musl: {:.2} ms; the aim is less than 5", 1e3 * ours));
    Ok(())
}

fn speed(account: &mut Account, of: &Programs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let stored = folder.path().join("large.json");
    let words = "bench raw --min-blocks 100 --max-blocks 100 --trial-time 20ms --quiet";
    let measured = Command::new(&of.glibc).args(words.split(' ')).arg("--json").arg(&stored).status()?;
    ensure!(measured.success(), "samehost {words}: {measured}");
    let length = fs::metadata(&stored)?.len();
    let stored = stored.display().to_string();
    let versus = |words: &str| {
        [("glibc", &of.glibc), ("musl", &of.musl)]
            .map(|(name, file)| format!("{name}={} {words}", file.display()))
    };
    let page = format!("report {stored} --quiet --html {}", folder.path().join("page.html").display());
    compare(account, &format!("speed | a page of a report of {length} bytes, s"), of, &versus(&page), None)?;
    let arms = versus(&format!("compare {stored} {stored} --quiet"));
    compare(account, "speed | two such reports compared, s", of, &arms, None)?;
    let crowd = scan::crowd(&of.musl, folder.path())?;
    compare(account, "speed | scan --json, 10,000 sockets, s", of, &versus("scan --json"), None)?;
    drop(crowd);
    let trial = "--min-blocks 1 --max-blocks 1 --trial-time 500ms --quiet --json -";
    for (label, words, value) in [
        ("round trip, Unix socket, one CPU, µs", "bench raw --transports unix --placement same-core", "p50"),
        (
            "client CPU, 64 connections, µs",
            "bench raw --transports unix --connections 64",
            "client_cpu_us_per_op",
        ),
    ] {
        let pattern = crate::bench::field("unix", value);
        let arms = versus(&format!("{words} {trial}"));
        compare(account, &format!("speed | {label}"), of, &arms, Some(&pattern))?;
    }
    names(account, of, trial)
}

/// New connections to a name and to its address: what each C library takes to look a name up.
fn names(account: &mut Account, of: &Programs, trial: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let echo = Echo::start(&of.glibc, folder.path(), "epoll", "1")?;
    let mut arms = Vec::new();
    for host in ["localhost", "127.0.0.1"] {
        for (name, file) in [("glibc", &of.glibc), ("musl", &of.musl)] {
            let endpoint = echo.tcp.replace("127.0.0.1", host);
            let words = format!("bench connect --transports tcp --tcp {endpoint} --yes --no-control {trial}");
            arms.push(format!("{name}-{host}=taskset -c 0 {} {words}", file.display()));
        }
    }
    let pattern = crate::bench::field("tcp", "p50");
    compare(account, "speed | connect and one exchange, µs", of, &arms, Some(&pattern)).map(drop)
}

/// A line for each arm beside the first: wall time of the commands, or the value that they print. Returns the first arm's.
fn compare(
    account: &mut Account,
    label: &str,
    of: &Programs,
    arms: &[String],
    value: Option<&str>,
) -> anyhow::Result<f64> {
    let limits = ["bench", "command", "--budget", "40s", "--min-blocks", "20", "--max-blocks", "100"];
    let mut words = limits.to_vec();
    for arm in arms {
        words.extend(["--arm", arm]);
    }
    if let Some(pattern) = value {
        words.extend(["--better", "lower", "--value", pattern]);
    }
    let report = crate::report(&of.musl, &words)?;
    let metric = if value.is_some() { "value" } else { "wall_time" };
    let mut baseline = f64::NAN;
    for found in list(&report, "comparisons")?.iter().filter(|found| found["metric"] == metric) {
        baseline = number(found, "baseline_value");
        account.tell(&format!(
            "{label} | {} {:.4} | {} {:.4} | {}",
            found["baseline"].as_str().unwrap_or_default(),
            baseline,
            found["candidate"].as_str().unwrap_or_default(),
            number(found, "candidate_value"),
            in_words(found),
        ));
    }
    Ok(baseline)
}

/// The commit that is compared with: before builds were made faster.
const BEFORE: &str = "ed7c05c";
const ROUND: Duration = Duration::from_secs(480);
/// Ticks of the CPU times in /proc, per second.
const TICKS: f64 = 100.0;

struct Built {
    seconds: f64,
    cpu_s: f64,
    size: f64,
}

pub(super) fn build(account: &mut Account) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(target())?;
    let root = crate::root();
    let (earlier, built) = (folder.path().join("earlier"), folder.path().join("target"));
    crate::dist::copy_source(BEFORE, &earlier)
        .with_context(|| format!("the commit {BEFORE} is needed: clone with the whole history"))?;
    for sources in [&root, &earlier] {
        succeed(&mut cargo(sources, &["fetch", "--locked"]))?;
    }
    let rounds = (account.length.as_secs() / ROUND.as_secs()).max(1);
    let mut ratios = Vec::new();
    account.tell(&format!("round | {BEFORE} | now | ratio: seconds (of CPU time) to build for release"));
    for round in 1..=rounds {
        let before = from_nothing(&earlier, &built, &[])?;
        let now = from_nothing(&root, &built, &[])?;
        let ratio = now.seconds / before.seconds;
        account.tell(&format!("{round} | {before} | {now} | {ratio:.2}"));
        ratios.push(ratio);
    }
    let small = from_nothing(&root, &built, &["--no-default-features"])?;
    account.tell(&format!("--no-default-features | {small}"));
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    account.tell(&format!("{median:.2} of the time in the median"));
    Ok(())
}

impl std::fmt::Display for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0} s ({:.0} s), {:.1} MB", self.seconds, self.cpu_s, self.size)
    }
}

/// Cargo as a person starts it, without what the cargo around this chore says.
fn cargo(sources: &Path, words: &[&str]) -> Command {
    let mut command = cargo_command(words);
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_") && name != "CARGO_HOME" {
            command.env_remove(name);
        }
    }
    command.current_dir(sources);
    command
}

fn from_nothing(sources: &Path, target: &Path, features: &[&str]) -> anyhow::Result<Built> {
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    let (begun, cpu_before) = (Instant::now(), cpu_s_of_children()?);
    let mut command = cargo(sources, &["build", "--release", "--locked", "--offline", "--quiet"]);
    succeed(command.args(features).env("CARGO_TARGET_DIR", target))?;
    let (seconds, cpu_s) = (begun.elapsed().as_secs_f64(), cpu_s_of_children()? - cpu_before);
    let program = fs::metadata(target.join("release/samehost"))?;
    ensure!(program.is_file(), "no program was built");
    Ok(Built { seconds, cpu_s, size: program.len() as f64 / 1e6 })
}

/// CPU time of all processes that this one has waited for, and that they have waited for.
fn cpu_s_of_children() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // Fields 16 and 17; the name, which may have spaces, is the second.
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ').skip(13).take(2);
    let ticks: Vec<f64> = fields.flat_map(str::parse).collect();
    let [user, system] = ticks[..] else { bail!("/proc/self/stat has no CPU time of children") };
    Ok((user + system) / TICKS)
}
