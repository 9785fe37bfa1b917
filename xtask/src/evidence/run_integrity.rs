//! What becomes of bytes, ends and errors on a connection, over TCP and under `samehost run`: the cases of a program that
//! the tests play with less.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Account;
use crate::debug_program;

/// Plays both sides of every case.
const SCRIPT: &str = "crates/samehost/tests/e2e/run/integrity.py";

/// A case, how many bytes (or connections) it gets, and whether TCP has it too.
const CASES: &[(&str, u64, bool)] = &[
    ("transfer", 10_000_000_000, true),
    ("halfclose", 1_000_000_000, true),
    ("reset", 0, true),
    ("urgent", 0, true),
    ("stopped", 1_000_000_000, true),
    ("splice", 500_000_000, true),
    ("tls", 1_000_000_000, true),
    ("restart", 0, true),
    ("many", 2000, true),
    ("killed", 1_000_000_000, true),
    ("unsupervised", 1_000_000_000, false),
];

/// The server of all cases, stopped on drop.
struct Server {
    child: Child,
    directory: tempfile::TempDir,
    script: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn integrity(account: &mut Account<'_>) -> anyhow::Result<()> {
    let program = debug_program()?;
    let server = Server::start(account.root)?;
    account.tell("case | over | what both sides saw");
    for (case, size, is_for_tcp) in CASES {
        if account.only.as_deref().is_some_and(|only| only != *case) {
            continue;
        }
        let under = server.under_run(&program)?;
        let arms = [("TCP", Vec::new()), ("run", under)];
        for (arm, prefix) in arms.iter().filter(|(arm, _)| *arm == "run" || *is_for_tcp) {
            let seen = server.case(prefix, case, *size)?;
            let of = |name: &str| seen[name].as_str().filter(|text| !text.is_empty());
            let over = of("over").map_or_else(|| (*arm).to_owned(), |over| format!("{arm}, {over}"));
            let detail = of("detail").map_or_else(String::new, |detail| format!(" ({detail})"));
            account.tell(&format!("{case} | {over} | {}{detail}", of("says").unwrap_or_default()));
        }
    }
    Ok(())
}

impl Server {
    fn start(root: &Path) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let script = root.join(SCRIPT).display().to_string();
        let mut command = Command::new("python3");
        command.args([&script, "serve"]).arg(directory.path()).stdout(Stdio::piped());
        let child = command.spawn().context("install the package python3")?;
        let mut server = Server { child, directory, script };
        let output = server.child.stdout.take().context("the server's output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "ready\n", "the server did not start");
        Ok(server)
    }

    /// What starts a program with both ports mapped.
    fn under_run(&self, program: &Path) -> anyhow::Result<Vec<String>> {
        let mut words = vec![program.display().to_string(), "run".into(), "--quiet".into()];
        for (port, socket) in [("port", "data.sock"), ("echo.port", "echo.sock")] {
            let port = std::fs::read_to_string(self.directory.path().join(port))?;
            words.push("--map".into());
            words.push(format!("{port}={}", self.directory.path().join(socket).display()));
        }
        words.push("--".into());
        Ok(words)
    }

    /// Plays the client of a case.
    fn case(&self, prefix: &[String], case: &str, size: u64) -> anyhow::Result<Value> {
        let mut words = prefix.to_vec();
        words.extend(["python3", &self.script, "client"].map(String::from));
        words.extend([self.directory.path().display().to_string(), case.into(), size.to_string()]);
        let output = Command::new(&words[0]).args(&words[1..]).output()?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{case}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}
