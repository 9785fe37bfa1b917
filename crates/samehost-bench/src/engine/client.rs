//! External client: a program of its own that generates the whole load, in a closed loop only. Its CPU time
//! is read from outside, as the server's is.
//!
//! Protocol: JSON, one object a line. The client connects and prints `{"threads": N, "observed": "…"}`. It
//! then reads `WARM_UP LENGTH` (nanoseconds) from stdin, drives the load, and prints the fields of `Seen`.
//! It exits when its stdin closes.

use samehost_system::threads;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use samehost_model::{Transport, Trial};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::recorder::Tally;
use super::trial::{self, Metered};
use super::workers::{in_one_thread, own_cpu_ns, precise_sleep};
use super::{Load, Surroundings, Window, nanos, now, session, sleep_until};
use crate::error::BenchError;
use crate::machine::{MachineMeter, ServerMeter, ServerUse, ThreadUse, families};

/// From the order to the first request: time for the client to read the order.
const LEAD: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
pub struct ClientJob {
    pub command: Vec<String>,
    pub endpoint: String,
    /// The transport that the client has to use: its own report of its socket is compared with it.
    pub transport: Transport,
}

/// Line that the client prints once it has connected.
#[derive(Default, Deserialize)]
struct Ready {
    /// Upper limit of the CPUs that it uses.
    threads: u32,
    observed: String,
}

/// Line that the client prints after the window.
#[derive(Debug, Default, Deserialize)]
struct Seen {
    operations: u64,
    errors: BTreeMap<String, u64>,
    tenths: [u64; 10],
    /// Pairs of latency in nanoseconds and count.
    latency_ns: Vec<(u64, u64)>,
    /// Why a connection was lost; empty if none was.
    lost: String,
}

struct ReadyClient<'a> {
    job: &'a ClientJob,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    errors: Option<JoinHandle<String>>,
    ready: Ready,
}

impl<'a> ReadyClient<'a> {
    fn start(job: &'a ClientJob) -> Result<Self, BenchError> {
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
        let errors = match threads::start(move || tail(errors)) {
            Ok(reading) => reading,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(error.into()));
            }
        };
        let mut client =
            ReadyClient { job, child, orders, answers, errors: Some(errors), ready: Ready::default() };
        client.ready = client.answer()?;
        let family = match job.transport {
            Transport::Unix | Transport::Abstract => "AF_UNIX stream ",
            Transport::Tcp6 => "AF_INET6 stream tcp,",
            _ => "AF_INET stream tcp,",
        };
        let observed = &client.ready.observed;
        if observed.starts_with(family) {
            Ok(client)
        } else {
            Err(BenchError::WrongTransport { asked: job.transport, observed: observed.clone() })
        }
    }

    fn begin(&mut self, warm_up: Duration, length: Duration) -> Result<Window, BenchError> {
        let warm_up = warm_up + LEAD;
        let window = Window::from_now(warm_up, length);
        let order = format!("{} {}\n", nanos(warm_up), nanos(length));
        match self.orders.write_all(order.as_bytes()) {
            Ok(()) => Ok(window),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Reads the results when the window is over.
    ///
    /// # Errors
    /// When the client or its server went away.
    fn end(mut self) -> Result<Tally, BenchError> {
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
        tally.threads = self.ready.threads.max(1);
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

    /// Kills the client and returns an error with the end of its stderr.
    fn lost(&mut self, reason: &str) -> BenchError {
        let _ = self.child.kill();
        let stderr = match self.errors.take() {
            Some(reader) => reader.join().unwrap_or_default(),
            None => String::new(),
        };
        let stderr = stderr.trim();
        let reason = if stderr.is_empty() { reason.to_owned() } else { format!("{reason}: {stderr}") };
        BenchError::lost(&self.job.endpoint, reason)
    }
}

impl Drop for ReadyClient<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Last 2,000 bytes of the client's stderr.
fn tail(mut errors: ChildStderr) -> String {
    let mut text = Vec::new();
    let _ = errors.read_to_end(&mut text);
    String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned()
}

/// Runs the client's load with the meters around its window. A thread of ours starts the client, so that it inherits
/// the CPU affinity, and sleeps until both ends of the window; the client's CPU time is read from outside, as the
/// server's is.
///
/// # Errors
/// When the client cannot be started, connects over another transport than it was asked to, or goes away, and as
/// [`BenchError::Hung`] when it has not ended after the window and twice the patience.
pub fn drive(job: ClientJob, load: &Load, surroundings: &Surroundings) -> Result<Trial, BenchError> {
    load.place(surroundings);
    let (warm_up, length) = (load.warm_up, load.length);
    let patience = warm_up + length + surroundings.patience * 2;
    in_one_thread(load, surroundings, job.endpoint.clone(), patience, move |around| {
        precise_sleep();
        let mut client = ReadyClient::start(&job)?;
        let (pid, family) = (client.child.id(), families(&around.server_pids));
        let window = client.begin(warm_up, length)?;
        let (client_use, metered) = meter(window, pid, &family, around);
        let seen = session::Seen::of_words(&client.ready.observed);
        let mut tally = client.end()?;
        tally.usage = client_use;
        let mut sample = trial::of_tally(&tally, window.seconds(), None, metered);
        seen.tell(&mut sample);
        Ok(sample)
    })
}

/// CPU time of client, server and the rest of the machine in the window.
fn meter(window: Window, pid: u32, family: &[u32], around: &Surroundings) -> (ThreadUse, Metered) {
    sleep_until(window.start);
    let begun = now();
    let machine = MachineMeter::begin();
    let (server, client) =
        (ServerMeter::begin(&around.server_pids, family), ServerMeter::begin(&[pid], &[pid]));
    let own_before = own_cpu_ns();
    sleep_until(window.end);
    let (machine, own) = (machine.stop(), own_cpu_ns().saturating_sub(own_before));
    let span = now() - begun;
    let (server, client) = (server.end(), client.end().unwrap_or_default());
    let ours = own + client.cpu_ns + server.map_or(0, |server| server.cpu_ns);
    let machine = machine.used(ours, around.cpus);
    // On an overloaded machine even this thread had to wait, so that the metered span is longer than the window.
    let part = (window.end - window.start) as f64 / span as f64;
    let in_window = |used: ServerUse| ServerUse { cpu_ns: (used.cpu_ns as f64 * part) as u64, ..used };
    (
        of_process(in_window(client)),
        Metered { server: server.map(in_window), proxy: None, machine, late_ms: None },
    )
}

/// Converts the use of a whole process to that of a thread. Its time waiting for a CPU is unknown.
fn of_process(used: ServerUse) -> ThreadUse {
    ThreadUse { cpu_ns: used.cpu_ns, wait_ns: 0, switches: used.switches.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(script: &str) -> ClientJob {
        ClientJob {
            command: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            endpoint: "unix:/run/s.sock".into(),
            transport: Transport::Unix,
        }
    }

    const READY: &str = r#"echo '{"threads": 2, "observed": "AF_UNIX stream /run/s.sock"}'; read order; "#;

    fn ended(seen: &str) -> Result<Tally, BenchError> {
        let job = job(&format!("{READY} echo '{seen}'"));
        let mut client = ReadyClient::start(&job)?;
        client.begin(Duration::ZERO, Duration::from_millis(1))?;
        client.end()
    }

    #[test]
    fn what_a_client_saw_is_a_tally() {
        let tally = ended(
            r#"{"operations": 3, "errors": {"e": 1}, "tenths": [3,0,0,0,0,0,0,0,0,0], "latency_ns": [[1000,2],[5000,1]], "lost": ""}"#,
        );
        let tally = tally.unwrap();
        assert_eq!((tally.operations, tally.errors["e"], tally.tenths[0]), (3, 1, 3));
        assert_eq!((tally.latency.len(), tally.latency.min(), tally.threads), (3, 1000, 2));
    }

    #[test]
    fn a_client_that_is_of_no_use_says_why() {
        fn start(script: &str) -> String {
            ReadyClient::start(&job(script)).err().unwrap().to_string()
        }
        let lost = r#"{"operations": 0, "errors": {}, "tenths": [0,0,0,0,0,0,0,0,0,0], "latency_ns": [], "lost": "unexpected EOF"}"#;
        let message = ended(lost).unwrap_err().to_string();
        assert!(message.contains("unix:/run/s.sock went away during the trial: unexpected EOF"));
        assert!(ended("nonsense").unwrap_err().to_string().contains("unix:/run/s.sock"));
        let silent = start("echo 'connection refused' >&2; exit 1");
        assert!(silent.contains("connection refused"), "{silent}");
        let other = start(r#"echo '{"threads": 1, "observed": "AF_INET stream tcp, a → b"}'"#);
        assert!(other.contains("asked for unix") && other.contains("AF_INET"), "{other}");
    }
}
