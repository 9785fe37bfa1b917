//! What becomes of bytes, ends and errors on a connection, over TCP, over the Unix socket itself and under `samehost run`, both ways: the
//! cases of a program that the tests play with less.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Account;
use crate::debug_program;
use crate::process::Process;

const SCRIPT: &str = "crates/samehost/tests/e2e/run/integrity.py";

/// What a connection goes over.
#[derive(Clone, Copy)]
struct Arm {
    name: &'static str,
    /// Options of `run`; `None` where the client is not under it.
    run: Option<&'static [&'static str]>,
    /// Whether the client is given the Unix socket.
    is_native: bool,
}

const TCP: Arm = Arm { name: "TCP", run: None, is_native: false };
const NATIVE: Arm = Arm { name: "Unix socket", run: None, is_native: true };
const PRELOAD: Arm = Arm { name: "run --preload", run: Some(&["--preload"]), is_native: false };
const RUN: Arm = Arm { name: "run", run: Some(&[]), is_native: false };
const ALL: &[Arm] = &[TCP, NATIVE, PRELOAD];

/// A case, its size in bytes (or connections), and the arms that it has beside `run`.
const CASES: &[(&str, u64, &[Arm])] = &[
    ("transfer", 10_000_000_000, ALL),
    ("halfclose", 1_000_000_000, ALL),
    ("reset", 0, ALL),
    ("urgent", 0, ALL),
    ("stopped", 1_000_000_000, ALL),
    ("splice", 500_000_000, ALL),
    ("tls", 1_000_000_000, ALL),
    ("restart", 0, &[TCP, PRELOAD]),
    ("many", 2000, ALL),
    ("killed", 1_000_000_000, ALL),
    ("unsupervised", 1_000_000_000, &[]),
];

struct Server {
    _process: Process,
    directory: tempfile::TempDir,
    script: String,
}

pub(super) fn integrity(account: &mut Account) -> anyhow::Result<()> {
    let cases: Vec<&str> = CASES.iter().map(|(case, ..)| *case).collect();
    account.has_part(&cases)?;
    let program = debug_program()?;
    let server = Server::start()?;
    account.tell("case | over | what both sides saw");
    for (case, size, beside) in CASES {
        if !account.wants(case) {
            continue;
        }
        for arm in beside.iter().chain(&[RUN]) {
            let seen = server.case(&program, *arm, case, *size)?;
            let text = |name: &str| seen[name].as_str().filter(|text| !text.is_empty());
            let name = arm.name;
            let over = text("over").map_or_else(|| name.to_owned(), |over| format!("{name}, {over}"));
            let detail = text("detail").map_or_else(String::new, |detail| format!(" ({detail})"));
            account.tell(&format!("{case} | {over} | {}{detail}", text("says").unwrap_or_default()));
        }
    }
    Ok(())
}

impl Server {
    fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let script = crate::root().join(SCRIPT).display().to_string();
        let mut command = Command::new("python3");
        command.args([&script, "serve"]).arg(directory.path()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        ensure!(process.read_lines(1)? == ["ready"], "the server did not start");
        Ok(Server { _process: process, directory, script })
    }

    /// The words before a program that start it with both ports mapped.
    fn under_run(&self, program: &Path, options: &[&str]) -> anyhow::Result<Vec<String>> {
        let mut words = vec![program.display().to_string(), "run".into(), "--quiet".into()];
        words.extend(options.iter().map(|option| (*option).to_owned()));
        for (port, socket) in [("port", "data.sock"), ("echo.port", "echo.sock")] {
            let port = std::fs::read_to_string(self.directory.path().join(port))?;
            words.push("--map".into());
            words.push(format!("{port}={}", self.directory.path().join(socket).display()));
        }
        words.push("--".into());
        Ok(words)
    }

    fn case(&self, program: &Path, arm: Arm, case: &str, size: u64) -> anyhow::Result<Value> {
        let mut words = match arm.run {
            Some(options) => self.under_run(program, options)?,
            None => Vec::new(),
        };
        words.extend(["python3", &self.script, "client"].map(String::from));
        words.extend([self.directory.path().display().to_string(), case.into(), size.to_string()]);
        if arm.is_native {
            words.push("native".into());
        }
        let output = Command::new(&words[0]).args(&words[1..]).output()?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{case}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}
