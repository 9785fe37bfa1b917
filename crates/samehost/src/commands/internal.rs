//! The hidden verbs, with which samehost starts itself.

use samehost_system::threads;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use samehost_bench::private_servers::{End, supervise as supervise_server};
use samehost_login::switch_and_connect;
use samehost_model::Endpoint;
use samehost_scan::Sender;
use samehost_system::nowhere;
use samehost_system::proc::descriptors::sends_at_once as asked;

use crate::cli::{BecomeServerOptions, SuperviseOptions};
use crate::exit::Ending;
use crate::wrong_use::WrongUse;

/// Stops a private server when this program is gone; see `samehost_bench::private_servers`.
pub fn supervise(options: &SuperviseOptions) -> anyhow::Result<Ending> {
    let program = std::env::current_exe().context("finding this program")?;
    let end = if options.at_once { End::AtOnce } else { End::Asked };
    let status = supervise_server(&program, &options.directory, options.account, end, &options.command)?;
    Ok(if status.success() { Ending::Done } else { Ending::CutShort })
}

pub fn become_server(options: &BecomeServerOptions) -> anyhow::Result<Ending> {
    Err(samehost_bench::private_servers::replace_with_server(
        options.parent, options.account, &options.command,
    )
    .into())
}

/// Whether this user can create a network namespace; prints the reason if not.
pub fn try_own_network() -> anyhow::Result<Ending> {
    match samehost_bench::network::try_own_network() {
        Ok(()) => Ok(Ending::Done),
        Err(error) => {
            writeln!(std::io::stderr(), "{error}")?;
            Ok(Ending::CutShort)
        }
    }
}

/// The client of `tcp+run`, which `samehost bench` starts under `samehost run`. It asks for host and port, and hands its sockets
/// over to whoever is at the other end of standard input.
pub fn hand_over(endpoint: &Endpoint) -> anyhow::Result<Ending> {
    samehost_transport::hand_over(endpoint, std::io::stdin().as_fd()).context("the socket that asks")?;
    Ok(Ending::Done)
}

/// This program once more, with a hidden verb, whatever became of its file.
pub fn another_of_us(verb: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(verb);
    command
}

/// Lets the calls of a program go on whose `samehost run` was killed; see `samehost_seccomp`.
pub fn stand_in() -> anyhow::Result<Ending> {
    samehost_run::stand_in()?;
    Ok(Ending::Done)
}

/// Connects as another user, in another process' namespaces. Reads a request from standard input; writes the connection and one
/// JSON object to standard output. Never receives a password. See `samehost_login::log_in_as`.
pub fn log_in_as() -> anyhow::Result<Ending> {
    switch_and_connect().map_err(|error| WrongUse(error.to_string()))?;
    Ok(Ending::Done)
}

/// Time for all answers together.
const PATIENCE: Duration = Duration::from_millis(500);
/// Most sockets that are asked.
const MOST: usize = 8;

/// Asks sockets of other processes for TCP_NODELAY, and writes a line for each: whether it sends small pieces at once. It is a
/// process of its own because a process that changes its files meanwhile can make it wait for ever; nobody waits for it then. See
/// `samehost_system::proc::descriptors`.
pub fn sends_at_once(sockets: &[u64]) -> anyhow::Result<Ending> {
    for pair in sockets.chunks_exact(2) {
        let (Ok(pid), inode) = (u32::try_from(pair[0]), pair[1]) else { continue };
        asked(pid, inode, |answer| {
            let mut out = std::io::stdout();
            // Nobody reads it any more where this fails.
            let _ = writeln!(out, "{}", word(answer)).and_then(|()| out.flush());
        });
    }
    Ok(Ending::Done)
}

fn word(answer: Option<bool>) -> &'static str {
    match answer {
        Some(true) => "at-once",
        Some(false) => "later",
        None => "unknown",
    }
}

/// Asks [`sends_at_once`] in a process of its own about each of these sockets; `None` where there is no answer in time.
pub fn ask(senders: &[Sender]) -> Vec<Option<bool>> {
    let mut answers = vec![None; senders.len()];
    let mut senders = &senders[..senders.len().min(MOST)];
    let Ok(program) = std::env::current_exe() else { return answers };
    if senders.is_empty() {
        return answers;
    }
    let mut command = Command::new(program);
    command.arg("sends-at-once");
    for sender in senders {
        command.args([sender.pid.to_string(), sender.inode.to_string()]);
    }
    command.stdin(nowhere()).stdout(Stdio::piped()).stderr(nowhere());
    let Ok(mut child) = command.spawn() else { return answers };
    let (told, lines) = mpsc::channel();
    let out = child.stdout.take();
    // Ends with the child, or with this program.
    let reading = threads::start(move || {
        let Some(out) = out else { return };
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let _ = told.send(line);
        }
    });
    if reading.is_err() {
        senders = &[];
    }
    let until = Instant::now() + PATIENCE;
    for answer in answers.iter_mut().take(senders.len()) {
        let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) else { break };
        *answer = [true, false].into_iter().find(|known| word(Some(*known)) == line);
    }
    let _ = child.kill();
    // Not waited for: it may not be killable.
    let _ = child.try_wait();
    answers
}
