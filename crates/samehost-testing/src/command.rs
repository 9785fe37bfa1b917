//! Commands that a test runs, and waiting for what they do.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long a test waits for anything.
const LIMIT: Duration = Duration::from_secs(60);

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; -1 after a signal.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// The output of a command as text.
    #[must_use]
    pub fn of(output: &Output) -> Self {
        Ended {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output and standard error.
    #[must_use]
    pub fn both(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs a command that has to succeed, and gives what it wrote.
///
/// # Panics
/// When it does not succeed.
pub fn must(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let ended = Ended::of(&output.unwrap_or_else(|error| panic!("{program}: {error}")));
    assert!(ended.status == 0, "{program} {arguments:?}: {}", ended.stderr);
    ended.stdout
}

/// Waits until something holds; it polls, because there is nothing to wait on.
///
/// # Panics
/// After a minute.
pub fn wait_for<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A port that nothing listens on now.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    listener.and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// Options of the smallest measurement whose trials have no length of their own, as JSON on standard output.
#[rustfmt::skip]
pub const UNTIMED: &[&str] =
    &["--repeats", "0", "--min-blocks", "2", "--max-blocks", "2", "--budget", "60s", "--quiet", "--json", "-"];

/// Options of the smallest measurement, as JSON on standard output.
#[rustfmt::skip]
pub const TINY: &[&str] = &[
    "--trial-time", "50ms",
    "--repeats", "0", "--min-blocks", "2", "--max-blocks", "2", "--budget", "60s", "--quiet", "--json", "-",
];
