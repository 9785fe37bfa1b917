//! Programs that a chore starts: those that it waits for, and servers and loads that end with the value that holds them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

/// A program that runs beside the chore; dropping this stops it.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let name = command.get_program().display().to_string();
        let child = command.spawn().with_context(|| format!("{name} cannot be started; is it installed?"))?;
        Ok(Process { child })
    }

    /// Waits until it ends; fails unless it succeeds.
    pub(crate) fn wait(&mut self, what: &str) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "{what} ended with {status}");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `samehost serve SERVICE` on a free port and on a Unix socket. Returns the server and its address, `127.0.0.1:PORT`.
pub(crate) fn serve(program: &Path, service: &str, socket: &Path) -> anyhow::Result<(Process, String)> {
    let mut command = Command::new(program);
    command.args(["serve", service, "--model", "epoll", "--listen", "tcp:127.0.0.1:0", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).stdout(Stdio::piped());
    let mut server = Process::start(&mut command)?;
    let output = server.child.stdout.take().context("the server's output")?;
    // A line for each address; further ones are not read by anybody.
    let first = BufReader::new(output).lines().take(2).collect::<Result<Vec<_>, _>>()?;
    let address = first.first().context("the server wrote nothing")?;
    let address = address.trim_start_matches("listening on tcp:").to_owned();
    Ok((server, address))
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
