//! A client that is a program of its own and makes the whole load: it connects, says so, is told how long to warm up
//! and to count, and prints what it saw. Its CPU is read from outside, as the server's is. Closed loop only.
//!
//! It speaks JSON, a line each: `{"threads": N, "observed": "…"}` when it has connected; then what [`Seen`] has.
//! Between the two it reads `WARM_UP LENGTH`, nanoseconds, and it ends when its standard input does.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use samehost_model::Transport;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::clock::{Window, nanos, now, timespec};
use super::recorder::Tally;
use crate::BenchError;

/// From the order to the first request: it has time to read it.
const LEAD: Duration = Duration::from_millis(1);

/// A client to run.
#[derive(Clone, Debug)]
pub struct ClientJob {
    /// Its program and arguments.
    pub command: Vec<String>,
    /// Where it connects to, for messages.
    pub endpoint: String,
    /// What it must hold.
    pub transport: Transport,
}

/// What it says when it has connected.
#[derive(Debug, Deserialize)]
struct Ready {
    /// CPUs that it uses at most.
    threads: u32,
    /// What the kernel says of its socket.
    observed: String,
}

/// What it saw in the window.
#[derive(Debug, Default, Deserialize)]
struct Seen {
    operations: u64,
    errors: BTreeMap<String, u64>,
    tenths: [u64; 10],
    /// Nanoseconds, and how often.
    latency_ns: Vec<(u64, u64)>,
    /// Why a connection was lost; empty where none was.
    lost: String,
}

/// A client that has connected and waits for the order to begin.
pub struct ReadyClient<'a> {
    job: &'a ClientJob,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    errors: Option<JoinHandle<String>>,
    threads: u32,
    /// What the kernel says of its socket.
    pub observed: String,
}

impl<'a> ReadyClient<'a> {
    /// Starts it and waits until it has connected.
    ///
    /// # Errors
    /// When it cannot be started or does not connect.
    pub fn start(job: &'a ClientJob) -> Result<Self, BenchError> {
        let failed = |error| BenchError::io(format!("starting {}", job.command.join(" ")), error);
        let [program, arguments @ ..] = job.command.as_slice() else {
            return Err(failed(std::io::ErrorKind::InvalidInput.into()));
        };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(orders), Some(answers), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        let answers = BufReader::new(answers);
        let mut client = ReadyClient {
            job,
            child,
            orders,
            answers,
            errors: Some(std::thread::spawn(move || tail(errors))),
            threads: 1,
            observed: String::new(),
        };
        let ready: Ready = client.answer()?;
        client.threads = ready.threads.max(1);
        client.observed = ready.observed;
        let family = match job.transport {
            Transport::Unix | Transport::Abstract => "AF_UNIX stream ",
            Transport::Tcp6 => "AF_INET6 stream tcp,",
            _ => "AF_INET stream tcp,",
        };
        if client.observed.starts_with(family) {
            Ok(client)
        } else {
            Err(BenchError::WrongTransport { asked: job.transport, observed: client.observed.clone() })
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to begin.
    ///
    /// # Errors
    /// When it is gone.
    pub fn begin(&mut self, warm_up: Duration, length: Duration) -> Result<Window, BenchError> {
        let warm_up = warm_up + LEAD;
        let window = Window::from_now(warm_up, length);
        let order = format!("{} {}\n", nanos(warm_up), nanos(length));
        match self.orders.write_all(order.as_bytes()) {
            Ok(()) => Ok(window),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// What it saw, when its window is over.
    ///
    /// # Errors
    /// When it, or its server, went away.
    pub fn end(mut self) -> Result<Tally, BenchError> {
        let seen: Seen = self.answer()?;
        if !seen.lost.is_empty() {
            return Err(self.lost(&seen.lost));
        }
        let mut tally = Tally::new(false);
        tally.operations = seen.operations;
        tally.errors = seen.errors;
        tally.tenths = seen.tenths;
        for (latency, count) in seen.latency_ns {
            tally.latency.saturating_record_n(latency, count);
        }
        tally.threads = self.threads;
        Ok(tally)
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T, BenchError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(self.lost("it ended")),
            Ok(_) => serde_json::from_str(&line).map_err(|error| self.lost(&error.to_string())),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// The error that it was of no use, with its last words.
    fn lost(&mut self, reason: &str) -> BenchError {
        let _ = self.child.kill();
        let said = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let said = said.trim();
        BenchError::ServerLost {
            endpoint: self.job.endpoint.clone(),
            reason: if said.is_empty() { reason.to_owned() } else { format!("{reason}: {said}") },
            server_said: String::new(),
        }
    }
}

impl Drop for ReadyClient<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of what it wrote.
fn tail(mut errors: ChildStderr) -> String {
    let mut text = Vec::new();
    let _ = errors.read_to_end(&mut text);
    String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned()
}

/// Sleeps until a moment.
pub fn sleep_until(moment: super::clock::Nanos) {
    loop {
        let left = moment.saturating_sub(now());
        if left == 0 {
            return;
        }
        // Returns early only on a signal; the loop then sleeps for the rest.
        let _ = rustix::thread::nanosleep(&timespec(left));
    }
}
