//! What a scan of a busy host costs: 10,000 sockets listed by us, by ss and by lsof, alternating, evaluated by samehost's own
//! statistics for whole commands. Prints ratios and asserts none but the memory, because machines are shared.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::process::{Process, serve, show};

/// Servers that share the connections, because a real host has many processes.
const SERVERS: usize = 10;
/// Connections of each server over each transport; a connection has two sockets.
const EACH: usize = 250;
const MAX_KIB: u64 = 64 * 1024;

struct Crowd {
    _server: Process,
    _tcp: Vec<TcpStream>,
    _unix: Vec<UnixStream>,
}

impl Crowd {
    fn gather(program: &Path, folder: &Path, number: usize) -> anyhow::Result<Self> {
        let path = folder.join(format!("crowd-{number}.sock"));
        let (server, address) = serve(program, "echo", &path)?;
        let too_many = "10,000 sockets need 5,000 descriptors here: ulimit -n 20000";
        let tcp =
            (0..EACH).map(|_| TcpStream::connect(&address)).collect::<Result<_, _>>().context(too_many)?;
        let unix =
            (0..EACH).map(|_| UnixStream::connect(&path)).collect::<Result<_, _>>().context(too_many)?;
        Ok(Crowd { _server: server, _tcp: tcp, _unix: unix })
    }
}

/// Alternates `scan`, `ss -tuxp` and `lsof -nP -i -U`, and checks the memory used by `scan`.
pub(crate) fn scan() -> anyhow::Result<()> {
    let (program, folder) = (crate::release_program()?, tempfile::tempdir()?);
    let mut crowds = Vec::new();
    for number in 0..SERVERS {
        crowds.push(Crowd::gather(&program, folder.path(), number)?);
    }
    let sockets = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    println!("{SERVERS} servers; {}", sockets.lines().next().unwrap_or_default());
    let ours = format!("scan={} scan", program.display());
    let json = format!("scan-json={} scan --json", program.display());
    let mut command = Command::new(&program);
    command.args(["bench", "command", "--budget", "60s", "--min-blocks", "20", "--max-blocks", "60"]);
    for arm in ["ss=ss -tuxp", &ours, &json, "lsof=lsof -nP -i -U"] {
        command.args(["--arm", arm]);
    }
    show(&mut command, "the comparison")?;
    memory(&program)
}

fn memory(program: &Path) -> anyhow::Result<()> {
    for arguments in [&["scan"][..], &["scan", "--json"]] {
        let mut command = Command::new("/usr/bin/time");
        let output = command.args(["-f", "%M"]).arg(program).args(arguments).stdout(Stdio::null()).output();
        let output = output.context("install the package time")?;
        let text = String::from_utf8_lossy(&output.stderr);
        let kib: u64 =
            text.trim().lines().last().unwrap_or_default().parse().context("the output of time")?;
        println!("{}: {kib} KiB at most (allowed: {MAX_KIB})", arguments.join(" "));
        ensure!(kib <= MAX_KIB, "more than allowed");
    }
    Ok(())
}
