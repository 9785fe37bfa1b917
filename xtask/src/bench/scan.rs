//! Yardstick of `scan`: a host with 10,000 sockets, listed by us, by ss and by lsof, alternating. The sockets
//! are connections to ten echo servers, half over TCP and half over Unix sockets.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};

use super::Tools;

/// Servers that share the connections, because a real host has many processes.
const SERVERS: usize = 10;
/// Connections of each server over each transport; a connection has two sockets.
const EACH: usize = 250;
/// Memory limit for a scan.
const MOST_KIB: u64 = 64 * 1024;

/// A server with its clients, stopped on drop.
pub(crate) struct Crowd {
    child: Child,
    _tcp: Vec<TcpStream>,
    _unix: Vec<UnixStream>,
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Crowd {
    fn gather(program: &Path, folder: &Path, number: usize) -> anyhow::Result<Self> {
        let path = folder.join(format!("crowd-{number}.sock"));
        let mut child = Command::new(program)
            .args(["serve", "echo", "--model", "epoll", "--listen", "tcp:127.0.0.1:0"])
            .arg("--listen")
            .arg(format!("unix:{}", path.display()))
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("the server's output")?).lines();
        let first = lines.next().context("the server said nothing")??;
        let address = first.trim_start_matches("listening on tcp:").to_owned();
        lines.next().context("the server said one line only")??;
        let too_many = "10,000 sockets need 5,000 descriptors here: ulimit -n 20000";
        let tcp =
            (0..EACH).map(|_| TcpStream::connect(&address)).collect::<Result<_, _>>().context(too_many)?;
        let unix =
            (0..EACH).map(|_| UnixStream::connect(&path)).collect::<Result<_, _>>().context(too_many)?;
        Ok(Crowd { child, _tcp: tcp, _unix: unix })
    }
}

/// Servers with 10,000 sockets.
pub(crate) fn crowd(program: &Path, folder: &Path) -> anyhow::Result<Vec<Crowd>> {
    (0..SERVERS).map(|number| Crowd::gather(program, folder, number)).collect()
}

/// Alternates `scan`, `ss -tuxp` and `lsof -nP -i -U`, and checks the memory used by `scan`.
pub(super) fn scan(tools: &Tools) -> anyhow::Result<()> {
    let crowd = crowd(&tools.samehost, tools.directory.path())?;
    let sockets = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    println!("{} servers; {}", crowd.len(), sockets.lines().next().unwrap_or_default());
    let ours = format!("scan={} scan", tools.samehost.display());
    let json = format!("scan-json={} scan --json", tools.samehost.display());
    let arms = ["ss=ss -tuxp".to_owned(), ours, json, "lsof=lsof -nP -i -U".to_owned()];
    let mut command = Command::new(&tools.samehost);
    command.args(["bench", "command", "--budget", "60s", "--min-blocks", "20", "--max-blocks", "60"]);
    for arm in &arms {
        command.args(["--arm", arm]);
    }
    let status = command.status()?;
    if !status.success() {
        bail!("the comparison ended with {status}");
    }
    memory(tools)
}

/// Prints the peak memory of one scan, as measured by time(1).
fn memory(tools: &Tools) -> anyhow::Result<()> {
    for arguments in [&["scan"][..], &["scan", "--json"]] {
        let mut command = Command::new("/usr/bin/time");
        let output =
            command.args(["-f", "%M"]).arg(&tools.samehost).args(arguments).stdout(Stdio::null()).output();
        let output = output.context("install the package time")?;
        let text = String::from_utf8_lossy(&output.stderr);
        let kib: u64 =
            text.trim().lines().last().unwrap_or_default().parse().context("the output of time")?;
        println!("{}: {kib} KiB at most (allowed: {MOST_KIB})", arguments.join(" "));
        ensure!(kib <= MOST_KIB, "more than allowed");
    }
    Ok(())
}

// Yardstick of starting: `--version` of this program and of other command-line tools in Rust, alternating.

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
