//! Ten thousand reports of many hosts, simulated from a real one: how long `compare` and `history` take, how much memory, and
//! which hosts they name.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use samehost_testing::{Noise, slow_down};
use serde_json::{Map, Value, json};

use super::{Account, need};
use crate::process::succeed;
use crate::{list, release_program};

const REPORTS: usize = 10_000;
const HOSTS: usize = 300;
const KERNELS: usize = 3;
/// The slower host, and by what.
const SLOW: usize = 17;
const FACTOR: f64 = 1.10;
/// Standard deviations of the logarithm: of a host from another, and of a report from the next.
const BETWEEN: f64 = 0.01;
const WITHIN: f64 = 0.02;
/// Most that a command may take.
const LONGEST_S: f64 = 10.0;
const MOST_MIB: f64 = 200.0;
/// Has the system forget what files hold.
const FORGET: &str = "import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        file = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)";

pub(super) fn hosts(account: &mut Account) -> anyhow::Result<()> {
    need(&[("/usr/bin/time", "time"), ("/usr/bin/python3", "python3")])?;
    let samehost = release_program()?;
    let work = tempfile::tempdir()?;
    let real = crate::report(&samehost, &["bench", "raw", "--budget", "20s"])?;
    let (folder, lines) = (work.path().join("fleet"), work.path().join("lines"));
    let bytes = simulate(real, &folder, &lines)?;
    account.tell(&format!(
        "simulated | {REPORTS} reports of {HOSTS} hosts with {KERNELS} kernels from a real one, {} kB each; host{SLOW} is slower \
         by {:.0} %",
        bytes / REPORTS as u64 / 1_000,
        100.0 * (FACTOR - 1.0)
    ));
    let mut timings = Vec::new();
    for (verb, how, from) in [
        ("compare", "folder, in the system's cache", Some(&folder)),
        ("compare", "folder, not in its cache", Some(&folder)),
        ("compare", "standard input", None),
        ("history", "folder, in the system's cache", Some(&folder)),
        ("history", "standard input", None),
    ] {
        match from {
            Some(folder) if how.contains("not in") => {
                succeed(Command::new("python3").args(["-c", FORGET]).arg(folder))?;
            }
            Some(folder) => {
                succeed(Command::new("grep").args(["-rqs", "no such text"]).arg(folder)).unwrap_or(());
            }
            None => {}
        }
        let found = timed(&samehost, work.path(), verb, from.map(PathBuf::as_path), &lines)?;
        account.tell(&format!(
            "{verb} | {how} | {:.1} s, {:.0} MiB at most | named: {}",
            found.seconds,
            found.mib,
            found.named.iter().cloned().collect::<Vec<_>>().join(", ")
        ));
        timings.push((verb, how, found));
    }
    let slow = BTreeSet::from([format!("host{SLOW}")]);
    for (verb, how, found) in &timings {
        // Its newest run is as slow as its earlier ones.
        let wanted = if *verb == "compare" { slow.clone() } else { BTreeSet::new() };
        ensure!(found.named == wanted, "{verb}, {how}: {:?} were named", found.named);
        let is_kept = found.seconds < LONGEST_S && found.mib < MOST_MIB;
        ensure!(is_kept, "{verb}, {how}: {:.1} s, {:.0} MiB", found.seconds, found.mib);
    }
    Ok(())
}

struct Found {
    seconds: f64,
    mib: f64,
    named: BTreeSet<String>,
}

/// Runs a verb on the reports of a folder, or else on the lines.
fn timed(
    samehost: &Path,
    work: &Path,
    verb: &str,
    folder: Option<&Path>,
    lines: &Path,
) -> anyhow::Result<Found> {
    let [took, json] = ["took", "found.json"].map(|name| work.join(name));
    let mut command = Command::new("/usr/bin/time");
    command.args(["--format", "%e %M", "--output"]).arg(&took);
    command.arg(samehost).arg(verb).arg(folder.unwrap_or(Path::new("-")));
    command.arg("--json").arg(&json).stdout(Stdio::null());
    if folder.is_none() {
        command.stdin(File::open(lines)?);
    }
    ensure!(command.status()?.success(), "{command:?} failed");
    let took = fs::read_to_string(took)?;
    let (seconds, kib) = took.trim().split_once(' ').context("of time(1)")?;
    let found: Value = serde_json::from_slice(&fs::read(json)?)?;
    ensure!(found["reports"] == REPORTS, "{}", found["reports"]);
    let mut named = BTreeSet::new();
    for name in ["differ", "factors", "histories"] {
        for host in list(&found, name).unwrap_or_default() {
            if name == "histories" && host["newest"]["differs"] != true {
                continue;
            }
            let name = host["host"].as_str().or_else(|| host["level"].as_str());
            named.extend(name.map(str::to_owned));
        }
    }
    Ok(Found { seconds: seconds.parse()?, mib: kib.parse::<f64>()? / 1024.0, named })
}

/// Writes the reports into a folder for each host, and all of them as lines. Returns the size of the lines in bytes.
fn simulate(real: Value, folder: &Path, lines: &Path) -> anyhow::Result<u64> {
    let Value::Object(mut rest) = real else { anyhow::bail!("a report is an object") };
    let mut take = |name: &str| rest.remove(name).with_context(|| format!("no {name} in the report"));
    let (mut host, comparisons) = (take("host")?, take("comparisons")?);
    take("started_at")?;
    // The part that is the same in all.
    let rest = Value::Object(rest).to_string();
    let rest = rest.strip_prefix('{').context("an object")?;
    let mut noise = Noise(7);
    let own: Vec<f64> = (0..HOSTS).map(|_| (BETWEEN * noise.draw()).exp()).collect();
    let mut all = BufWriter::new(File::create(lines)?);
    for number in 0..REPORTS {
        let at = number % HOSTS;
        host["kernel"] = json!(format!("6.{}", at % KERNELS));
        let factor = own[at] * if at == SLOW { FACTOR } else { 1.0 };
        let mut head = Map::new();
        head.insert("host".into(), host.clone());
        head.insert("comparisons".into(), slowed(&comparisons, factor, &mut noise));
        let day = number / HOSTS;
        head.insert(
            "started_at".into(),
            json!(format!("2026-{:02}-{:02}T11:00:00Z", 1 + day / 28, 1 + day % 28)),
        );
        let head = Value::Object(head).to_string();
        let head = head.strip_suffix('}').context("an object")?;
        let place = folder.join(format!("host{at}"));
        fs::create_dir_all(&place)?;
        fs::write(place.join(format!("{number}.json")), format!("{head},{rest}"))?;
        writeln!(all, "{{\"node\":\"host{at}\",\"found\":{head},{rest}}}")?;
    }
    all.flush()?;
    Ok(fs::metadata(lines)?.len())
}

/// Comparisons whose times are longer by a factor, with noise.
fn slowed(comparisons: &Value, factor: f64, noise: &mut Noise) -> Value {
    let mut comparisons = comparisons.clone();
    slow_down(&mut comparisons, factor, WITHIN, noise);
    for comparison in comparisons.as_array_mut().into_iter().flatten() {
        let [candidate, baseline] =
            ["candidate_value", "baseline_value"].map(|name| comparison[name].as_f64().unwrap_or_default());
        comparison["ratio"] = json!(candidate / baseline);
    }
    comparisons
}
