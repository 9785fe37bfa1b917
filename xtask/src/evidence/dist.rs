//! The static program of a release: that it runs where nothing else is, how large it is, how fast it starts, and whether its C
//! library and its allocator make it slower than glibc's.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Account;
use super::verdicts::told;
use crate::bench::{scan, start};
use crate::text;

/// The program of a release, and the same program with this machine's C library.
struct Programs {
    musl: PathBuf,
    glibc: PathBuf,
}

/// One part, which `--only` names: its lines begin with the name.
type Part = (&'static str, fn(&mut Account<'_>, &Programs) -> anyhow::Result<()>);

const PARTS: &[Part] =
    &[("size", size), ("empty root", empty_root), ("kernel", kernel), ("start", starts), ("speed", speed)];

pub(super) fn dist(account: &mut Account<'_>) -> anyhow::Result<()> {
    let only = account.only.clone();
    let parts = PARTS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name));
    let parts: Vec<&Part> = parts.collect();
    let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
    ensure!(!parts.is_empty(), "no part is called that; there are {}", known.join(", "));
    let glibc = account.before.clone().map_or_else(crate::dist::dynamic_program, Ok)?;
    let programs = Programs { musl: crate::dist::program()?, glibc };
    parts.into_iter().try_for_each(|(_, part)| part(account, &programs))
}

fn kernel(account: &mut Account<'_>, programs: &Programs) -> anyhow::Result<()> {
    super::kernel::boot(account, &programs.musl)
}

/// Size of the program and of its largest parts.
fn size(account: &mut Account<'_>, programs: &Programs) -> anyhow::Result<()> {
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
    parts.sort_by(|one, other| other.cmp(one));
    let parts: Vec<String> = parts.iter().take(7).map(|(size, name)| format!("{name} {size}")).collect();
    account.tell(&format!("size | {} bytes | {}", fs::metadata(program)?.len(), parts.join(", ")));
    Ok(())
}

/// Runs the program in a root directory that has nothing but it, /proc and /tmp.
fn empty_root(account: &mut Account<'_>, programs: &Programs) -> anyhow::Result<()> {
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
    let names = crate::files::names(root.path())?;
    account.tell(&format!("empty root | afterwards it has | {}", names.join(" ")));
    Ok(())
}

/// What a checkup found, in a line.
fn rows(checkup: &Value) -> String {
    let parts = checkup["parts"].as_array().map_or(0, Vec::len);
    let notes = checkup["notes"].as_array().map_or(0, Vec::len);
    format!("{parts} parts measured, {notes} notes")
}

/// Start of the program beside that of others.
fn starts(account: &mut Account<'_>, of: &Programs) -> anyhow::Result<()> {
    let mut programs = start::others();
    programs.insert(0, ("glibc", of.glibc.clone()));
    programs.insert(0, ("musl", of.musl.clone()));
    for (name, file) in &programs {
        account.tell(&format!("start | size of {name} | {} bytes", fs::metadata(file)?.len()));
    }
    let arms: Vec<String> = programs.iter().map(|(name, file)| start::arm(name, file)).collect();
    compare(account, "start | --version, s", of, &arms, None)
}

/// The static program beside the dynamic one, at work.
fn speed(account: &mut Account<'_>, of: &Programs) -> anyhow::Result<()> {
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
    Ok(())
}

/// A line for each arm beside the first: wall time of the commands, or the value that they print.
fn compare(
    account: &mut Account<'_>,
    label: &str,
    of: &Programs,
    arms: &[String],
    value: Option<&str>,
) -> anyhow::Result<()> {
    let limits = ["bench", "command", "--budget", "40s", "--min-blocks", "20", "--max-blocks", "100"];
    let mut words = limits.to_vec();
    arms.iter().for_each(|arm| words.extend(["--arm", arm]));
    words.extend(value.into_iter().flat_map(|pattern| ["--better", "lower", "--value", pattern]));
    let report = crate::report(&of.musl, &words)?;
    let metric = if value.is_some() { "value" } else { "wall_time" };
    let all = report["comparisons"].as_array().context("no comparisons")?;
    for found in all.iter().filter(|found| found["metric"] == metric) {
        let of = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
        account.tell(&format!(
            "{label} | {} {:.4} | {} {:.4} | {}",
            found["baseline"].as_str().unwrap_or_default(),
            of("baseline_value"),
            found["candidate"].as_str().unwrap_or_default(),
            of("candidate_value"),
            told(found),
        ));
    }
    Ok(())
}
