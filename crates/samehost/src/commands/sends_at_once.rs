//! Hidden verb that asks sockets of other processes for TCP_NODELAY, and the scan's question to it. It is a process of its
//! own because a process that changes its files meanwhile can make it wait for ever; nobody waits for it then. See
//! `samehost_system::proc::nodelay`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use samehost_scan::Sender;
use samehost_system::nowhere;
use samehost_system::proc::nodelay::sends_at_once as asked;

use crate::cli::SendsAtOnceOptions;
use crate::exit::Ending;

/// Time for all answers together.
const PATIENCE: Duration = Duration::from_millis(500);
/// Most sockets that are asked.
const MOST: usize = 8;

/// Writes a line for each socket: whether it sends small pieces at once.
pub fn sends_at_once(options: &SendsAtOnceOptions) -> anyhow::Result<Ending> {
    let sockets = options.sockets.chunks_exact(2);
    for (pid, inode) in sockets.filter_map(|pair| Some((u32::try_from(pair[0]).ok()?, pair[1]))) {
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

/// Whether each of these sockets sends small pieces at once; `None` where there is no answer in time.
pub fn ask(senders: &[Sender]) -> Vec<Option<bool>> {
    let mut answers = vec![None; senders.len()];
    let senders = &senders[..senders.len().min(MOST)];
    let Ok(program) = std::env::current_exe() else { return answers };
    if senders.is_empty() {
        return answers;
    }
    let sockets = senders.iter().flat_map(|one| [one.pid.to_string(), one.inode.to_string()]);
    let mut command = Command::new(program);
    command.arg("sends-at-once").args(sockets);
    command.stdin(nowhere()).stdout(Stdio::piped()).stderr(nowhere());
    let Ok(mut child) = command.spawn() else { return answers };
    let (told, lines) = mpsc::channel();
    let out = child.stdout.take();
    // Ends with the child, or with this program.
    std::thread::spawn(move || {
        for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
            let _ = told.send(line);
        }
    });
    let until = Instant::now() + PATIENCE;
    for answer in answers.iter_mut().take(senders.len()) {
        let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) else { break };
        *answer = [true, false].into_iter().find(|one| word(Some(*one)) == line);
    }
    let _ = child.kill();
    // Not waited for: it may not be killable.
    let _ = child.try_wait();
    answers
}
