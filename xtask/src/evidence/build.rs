//! How long it takes to build the program from nothing, as for a first `cargo run --release`: at an earlier commit and
//! now, in turns, and with `--no-default-features`. Crates are downloaded before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::Account;
use crate::{succeed, target};

/// The commit that is compared with: before builds were made faster.
const BEFORE: &str = "ed7c05c";
/// Length of a round, on two CPUs.
const ROUND: Duration = Duration::from_secs(480);
/// Ticks of the CPU times in /proc, per second.
const TICKS: f64 = 100.0;

/// A build from nothing.
struct Built {
    seconds: f64,
    cpu_s: f64,
    /// Size of the program in MB.
    size: f64,
}

/// The directory of the builds; gone when dropped.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn build(account: &mut Account<'_>) -> anyhow::Result<()> {
    let place = Place(target().join("evidence-build"));
    let earlier = place.0.join("earlier");
    unpack(account.root, &earlier)?;
    for sources in [account.root, &earlier] {
        succeed(cargo(sources).args(["fetch", "--locked"]))?;
    }
    let rounds = (account.length.as_secs() / ROUND.as_secs()).max(1);
    let mut ratios = Vec::new();
    account.tell(&format!("round | {BEFORE} | now | ratio: seconds (of CPU time) to build for release"));
    for round in 1..=rounds {
        let before = from_nothing(&earlier, &place.0.join("target"), &[])?;
        let now = from_nothing(account.root, &place.0.join("target"), &[])?;
        let ratio = now.seconds / before.seconds;
        account.tell(&format!("{round} | {before} | {now} | {ratio:.2}"));
        ratios.push(ratio);
    }
    let small = from_nothing(account.root, &place.0.join("target"), &["--no-default-features"])?;
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

/// Puts the files of the earlier commit into a directory.
fn unpack(root: &Path, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    let archive = directory.join("sources.tar");
    succeed(Command::new("git").args(["archive", BEFORE, "-o"]).arg(&archive).current_dir(root))
        .with_context(|| format!("the commit {BEFORE} is needed: clone with the whole history"))?;
    succeed(Command::new("tar").arg("-xf").arg(&archive).current_dir(directory))
}

/// Cargo as a person starts it, without what the cargo around this chore says.
fn cargo(sources: &Path) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_") && name != "CARGO_HOME") {
        command.env_remove(name);
    }
    command.current_dir(sources);
    command
}

fn from_nothing(sources: &Path, target: &Path, features: &[&str]) -> anyhow::Result<Built> {
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    let (begun, cpu_before) = (Instant::now(), cpu_s_of_children()?);
    let mut command = cargo(sources);
    command.args(["build", "--release", "--locked", "--offline", "--quiet"]).args(features);
    succeed(command.env("CARGO_TARGET_DIR", target))?;
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
    let ticks: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
    let [user, system] = ticks[..] else { bail!("/proc/self/stat has no CPU time of children") };
    Ok((user + system) / TICKS)
}
