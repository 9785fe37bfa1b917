//! Programs that a chore starts: those that it waits for, and servers and loads that end with the value that holds them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// Longest time until a server answers; MariaDB needs some seconds on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// A program that runs beside the chore; dropping this stops it.
pub(crate) struct Process {
    child: Child,
    signal: Option<&'static str>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let name = command.get_program().display().to_string();
        let child = command.spawn().with_context(|| format!("{name} cannot be started; is it installed?"))?;
        Ok(Process { child, signal: None })
    }

    /// As [`Process::start`]; the program reads nothing, and what it writes is lost.
    pub(crate) fn start_silent(command: &mut Command) -> anyhow::Result<Self> {
        Self::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Stops it by this signal, as kill(1) names it, in place of SIGKILL: for programs whose children or shared memory
    /// would stay behind.
    pub(crate) fn stopped_by(mut self, signal: &'static str) -> Self {
        self.signal = Some(signal);
        self
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait_for_answer(
        &mut self,
        name: &str,
        mut answers: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !answers() {
            ensure!(begun.elapsed() < ANSWERS_WITHIN, "{name} does not answer");
            ensure!(self.child.try_wait()?.is_none(), "{name} ended at once");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until it ends; fails unless it succeeds.
    pub(crate) fn wait(&mut self, what: &str) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "{what} ended with {status}");
        Ok(())
    }

    /// The next lines of its output, which has to be a pipe. Further lines are not read by anybody.
    pub(crate) fn read_lines(&mut self, count: usize) -> anyhow::Result<Vec<String>> {
        let output = self.child.stdout.take().context("the server's output")?;
        let mut lines = BufReader::new(output).lines();
        let mut read = Vec::new();
        for _ in 0..count {
            read.push(lines.next().context("the server wrote too little")??);
        }
        Ok(read)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to stop.
        let _ = match self.signal {
            None => self.child.kill(),
            Some(signal) => {
                Command::new("kill").args(["-s", signal, &self.id().to_string()]).status().map(drop)
            }
        };
        let _ = self.child.wait();
    }
}

/// `samehost serve SERVICE --model MODEL` on a free port and on a Unix socket. `program` may begin with words that pin it.
/// Returns the server and its address, `127.0.0.1:PORT`.
pub(crate) fn serve(
    mut program: Command,
    service: &str,
    model: &str,
    socket: &Path,
) -> anyhow::Result<(Process, String)> {
    program.args(["serve", service, "--model", model, "--listen", "tcp:127.0.0.1:0", "--listen"]);
    let mut server =
        Process::start(program.arg(format!("unix:{}", socket.display())).stdout(Stdio::piped()))?;
    // A line for each address.
    let lines = server.read_lines(2)?;
    Ok((server, lines[0].trim_start_matches("listening on tcp:").to_owned()))
}

/// Runs a command; what it writes is part of the error.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    bytes(command).map(drop)
}

pub(crate) fn text(command: &mut Command) -> anyhow::Result<String> {
    Ok(String::from_utf8(bytes(command)?)?)
}

/// As [`text`], for output that is not text.
pub(crate) fn bytes(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("{name} cannot be started; is it installed?"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, errors.trim());
    Ok(output.stdout)
}

pub(crate) fn show(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("starting {what}"))?;
    ensure!(status.success(), "{what} ended with {status}");
    Ok(())
}

/// A time in seconds since 1970, in UTC and in the words of date(1).
pub(crate) fn date(epoch: u64, format: &str) -> anyhow::Result<String> {
    let mut date = Command::new("date");
    date.args(["--utc", &format!("--date=@{epoch}"), format]).env("LC_ALL", "C");
    Ok(text(&mut date)?.trim().to_owned())
}

/// A tar file whose bytes are the same whoever makes it: entries of root, by name, of one time.
pub(crate) fn tar(file: &Path, epoch: u64) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{epoch}")).arg("--file").arg(file);
    tar
}

pub(crate) fn sha256(file: &Path) -> anyhow::Result<String> {
    let line = text(Command::new("sha256sum").arg("--binary").arg(file))?;
    line.split(' ').next().map(str::to_owned).context("sha256sum printed nothing")
}

/// A program on the path, or where those of administrators are, or of a version of PostgreSQL in Debian.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = std::env::split_paths(&path).chain(versions.map(|version| version.path().join("bin")));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Cargo, in the repository: the one that runs this chore.
pub(crate) fn cargo_command(words: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo.args(words).current_dir(crate::root());
    cargo
}
