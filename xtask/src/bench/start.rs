//! Yardstick of starting: `--version` of this program and of other command-line tools in Rust, alternating.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use super::Tools;

/// Other tools, and how to get them.
const OTHERS: &[(&str, &str)] = &[
    ("rg", "apt-get install ripgrep"),
    ("hyperfine", "apt-get install hyperfine"),
    ("oha", "cargo install oha"),
];

/// Those of the other tools that are here; tells how to get the rest.
pub(crate) fn others(tell: &mut dyn FnMut(&str)) -> Vec<(&'static str, PathBuf)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find =
        |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let mut found = Vec::new();
    for (name, how) in OTHERS {
        match find(name) {
            Some(file) => found.push((*name, file)),
            None => tell(&format!("{name} is not here and is not compared: {how}")),
        }
    }
    found
}

/// An arm that starts a program and ends it at once.
pub(crate) fn arm(name: &str, program: &Path) -> String {
    format!("{name}={} --version", program.display())
}

pub(super) fn start(tools: &Tools) -> anyhow::Result<()> {
    let mut programs = others(&mut |missing| println!("{missing}"));
    // `cargo build --release` optimises what drives a load, and not how the program starts.
    println!("building the program with the packages' profile, some minutes");
    programs.insert(0, ("samehost", crate::dist::dynamic_program()?));
    let mut command = Command::new(&tools.samehost);
    command.args(["bench", "command", "--budget", "30s", "--min-blocks", "30", "--max-blocks", "200"]);
    for (name, program) in &programs {
        println!("{name}: {} bytes", std::fs::metadata(program)?.len());
        command.arg("--arm").arg(arm(name, program));
    }
    // With one arm there is nothing to compare.
    if programs.len() == 1 {
        command.arg("--arm").arg("true=true");
    }
    let status = command.status()?;
    ensure!(status.success(), "the comparison ended with {status}");
    Ok(())
}
