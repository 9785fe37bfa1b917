//! The unit of the timer under a real systemd, in an emulated machine with Debian 12 and its kernel: the scan works with everything
//! that the unit takes away, with the drop-in for metrics too, and what the unit forbids is refused.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::{Account, kernel};
use crate::succeed;

/// What the first service of the machine does.
const TRIAL: &str = include_str!("sandbox/trial.sh");
/// What the unit forbids, tried one by one.
const PROBE: &str = include_str!("sandbox/probe.pl");
const WITH: &str = "systemd,systemd-sysv,prometheus-node-exporter";
const SERVICE: &str = "[Service]\nType=oneshot\nExecStart=/bin/bash /trial.sh\nStandardOutput=tty\nStandardError=tty\n\
                       TTYPath=/dev/ttyS0\n[Install]\nWantedBy=multi-user.target\n";

/// Starts the machine, and keeps what its trial found. `program` is the static one.
pub(super) fn sandbox(account: &mut Account<'_>, program: &Path) -> anyhow::Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        account.tell("unit | only tried on x86_64");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", &format!("--include={WITH}"), "bookworm"]);
    succeed(make.arg(&root))?;
    let package = crate::package::quick_deb(program, folder.path())?;
    fs::copy(package, root.join("samehost.deb"))?;
    succeed(Command::new("chroot").arg(&root).args(["dpkg", "--install", "/samehost.deb"]))?;
    for (name, text) in [
        ("trial.sh", TRIAL),
        ("probe.pl", PROBE),
        ("metrics.conf", &drop_in(account.root)?),
        ("etc/systemd/system/trial.service", SERVICE),
    ] {
        fs::write(root.join(name), text)?;
    }
    succeed(Command::new("systemctl").arg("--root").arg(&root).args(["enable", "trial.service"]))?;
    score(account, &root)?;
    // All of it is in memory.
    for dropped in ["samehost.deb", "var/lib/apt/lists", "var/cache", "usr/share/doc", "usr/share/locale"] {
        succeed(Command::new("rm").arg("-rf").arg(root.join(dropped)))?;
    }
    fs::create_dir_all(root.join("var/cache"))?;
    let archive = folder.path().join("root.cpio");
    kernel::archive(&root, &archive)?;
    let image = kernel::DEBIAN_12.fetch(folder.path())?;
    let words = "rdinit=/lib/systemd/systemd systemd.unit=trial.service";
    let output = kernel::machine(&image, &archive, 3072, words).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().filter_map(|line| line.split_once("held: "));
    let found: Vec<&str> = found.map(|(_, found)| found.trim()).collect();
    found.iter().for_each(|line| account.tell(&format!("unit | {line}")));
    ensure!(found.last() == Some(&"the end") && !found.iter().any(|line| line.contains("WRONG")), "{text}");
    Ok(())
}

/// What `systemd-analyze security` says of the unit in all, in its last line.
fn score(account: &mut Account<'_>, root: &Path) -> anyhow::Result<()> {
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager"]).arg(format!("--root={}", root.display()));
    let analysis = crate::text(analyze.arg("samehost-scan.service"))?;
    let last = analysis.lines().rfind(|line| line.contains("exposure level")).context("no score")?;
    let words: Vec<&str> = last.split_whitespace().filter(|word| word.is_ascii()).collect();
    account.tell(&format!("unit | systemd-analyze security --offline: {}", words.join(" ")));
    Ok(())
}

/// The drop-in that docs/metrics.md shows.
fn drop_in(root: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(root.join("docs/metrics.md"))?;
    let block = text.split("```ini\n").find(|block| block.contains("ExecStart=")).context("no drop-in")?;
    Ok(block.split("```").next().unwrap_or_default().to_owned())
}

// Packages of the static program: in fresh roots of Debian, in a root of rpm, in podman, and what lintian says of them. Longer
// than a test may take.

const NEEDED: &[(&str, &str)] = &[
    ("/usr/bin/mmdebstrap", "mmdebstrap"),
    ("/usr/bin/podman", "podman"),
    ("/usr/bin/crun", "crun"),
    ("/usr/bin/lintian", "lintian"),
    ("/usr/bin/rpm", "rpm"),
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    ("/usr/bin/cpio", "cpio"),
];

/// Parts: `--only` names one.
const TESTS: &str = "tests";
const UNIT: &str = "unit";

pub(super) fn packages(account: &mut Account<'_>) -> anyhow::Result<()> {
    super::need(NEEDED)?;
    let program = crate::dist::program()?;
    let (is_tests, is_unit) = match account.only.as_deref() {
        None => (true, true),
        Some(only) => (only == TESTS, only == UNIT),
    };
    ensure!(is_tests || is_unit, "no part is called that; there are {TESTS}, {UNIT}");
    if is_tests {
        tests(account, &program)?;
    }
    if is_unit {
        sandbox(account, &program)?;
    }
    Ok(())
}

/// The tests of packages, those that are too long for `cargo xtask test` too.
fn tests(account: &mut Account<'_>, program: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--all-features", "--locked", "-p", "xtask", "package::tests"]);
    test.args(["--", "--include-ignored", "--nocapture", "--test-threads=1"]).current_dir(account.root);
    test.env("SAMEHOST_BINARY", program);
    let output = test.output().context("starting cargo")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for line in said.lines().filter_map(|line| line.split_once("held: ")) {
        account.tell(&format!("{TESTS} | {}", line.1));
    }
    if !output.status.success() {
        bail!("{said}{errors}");
    }
    Ok(())
}
