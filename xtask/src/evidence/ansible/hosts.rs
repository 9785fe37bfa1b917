//! Hosts that are namespaces of this machine, each with a root of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use super::Tools;
use crate::text;

/// The password of every host's database account.
pub(super) const PASSWORD: &str = "hunter2";

/// A host, which ends when this is dropped, or this process ends.
pub(super) struct Host {
    pub(super) name: &'static str,
    /// Enters the namespaces, waits for the host's first process.
    starter: Child,
    /// The host's first process.
    pub(super) pid: u32,
}

impl Drop for Host {
    fn drop(&mut self) {
        // It waits for the end of its input.
        self.starter.stdin.take();
        let _ = self.starter.wait();
    }
}

impl Host {
    /// Begins a host; its database account may log in from these hosts.
    pub(super) fn begin(
        name: &'static str,
        from: &[&str],
        root: &Path,
        tools: &Tools,
    ) -> anyhow::Result<Self> {
        let folder = tools.path(name);
        fs::create_dir(&folder)?;
        let mut starter = Command::new("unshare");
        starter
            .args(["--pid", "--fork", "--kill-child", "--mount", "--net", "--uts", "--ipc", "sh"])
            .arg(tools.collection.join("tests/hosts/host.sh"))
            .arg(name)
            .arg(&folder)
            .arg(root.join("crates/samehost-testing/src/wordpress.php"))
            .arg(PASSWORD)
            .args(from)
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(tools.path(&format!("{name}.log")))?);
        let starter = starter.spawn().context("unshare")?;
        Ok(Host { name, starter, pid: 0 })
    }

    /// Waits until its site is served.
    pub(super) fn wait(&mut self, tools: &Tools) -> anyhow::Result<()> {
        let output = self.starter.stdout.take().context("its output is read once")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let log = || fs::read_to_string(tools.path(&format!("{}.log", self.name))).unwrap_or_default();
        ensure!(line == "ready\n", "{} did not begin: {}", self.name, log());
        let starter = self.starter.id();
        let children = fs::read_to_string(format!("/proc/{starter}/task/{starter}/children"))?;
        self.pid = children.trim().parse().with_context(|| format!("children of unshare: {children}"))?;
        Ok(())
    }

    /// What a command prints on the host.
    pub(super) fn text(&self, words: &[&str]) -> anyhow::Result<String> {
        text(&mut self.command(words))
    }

    /// A command on the host.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.to_string(), "--all", "--root", "--wdns=/"]).args(words);
        command
    }

    /// Where a file of the host is for this process.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }
}
