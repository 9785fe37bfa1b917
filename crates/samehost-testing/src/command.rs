//! Commands that a test runs, and waiting for what they do; programs that it makes, and files that it compares.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
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

/// `samehost` at a path, with a state directory of its own, no colours and no input.
#[must_use]
pub fn samehost(program: &str, state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("XDG_STATE_HOME", state)
        .env("XDG_RUNTIME_DIR", state)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

/// A Redis on a port of 127.0.0.1 (0 for none) that keeps its files in a directory; the caller adds the rest and starts it.
#[must_use]
pub fn redis_server(port: u16, directory: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(directory);
    command
}

/// Runs a command line on a terminal, does `meanwhile` when it asks, and answers. Gives its exit status and what the
/// terminal showed.
///
/// # Panics
/// When it cannot be run, or ends without asking.
#[must_use]
pub fn on_a_terminal(line: &str, state: &Path, answer: &str, meanwhile: impl FnOnce()) -> (i32, String) {
    let mut child = Command::new("script")
        .args(["-qec", line, "/dev/null"])
        .env("XDG_STATE_HOME", state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program `script` of util-linux");
    let (mut input, mut output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let (mut shown, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&shown).contains("[y/N]") {
        let read = output.read(&mut byte).expect("output");
        assert_eq!(read, 1, "{}", String::from_utf8_lossy(&shown));
        shown.push(byte[0]);
    }
    meanwhile();
    writeln!(input, "{answer}").expect("it reads the answer");
    drop(input);
    output.read_to_end(&mut shown).expect("output");
    let status = child.wait().expect("its status").code().unwrap_or(-1);
    (status, String::from_utf8_lossy(&shown).into_owned())
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
/// A child that another thread has just forked holds the listener until it executes its program, and answers for as
/// long: who then waits for a server on this port would not wait.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr()).expect("a free port");
    wait_for("a port that is closed", || std::net::TcpStream::connect(address).is_err().then_some(()));
    address.port()
}

/// Options of the smallest measurement whose trials have no length of their own, as JSON on standard output.
#[rustfmt::skip]
pub const UNTIMED: &[&str] =
    &["--min-blocks", "2", "--max-blocks", "2", "--budget", "60s", "--quiet", "--json", "-"];

/// Options of the smallest measurement, as JSON on standard output.
#[rustfmt::skip]
pub const TINY: &[&str] = &[
    "--trial-time", "100ms",
    "--min-blocks", "2", "--max-blocks", "2", "--budget", "60s", "--quiet", "--json", "-",
];

/// Copies a program, to be started under another name. `cp` does it: what this process had open for writing could not be
/// started ("Text file busy") while a child that another thread just forked still holds the descriptor.
///
/// # Panics
/// When `cp` fails, as where the program is not installed.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let [from, to] = [from.as_ref(), to.as_ref()].map(|path| path.to_str().expect("a path in UTF-8"));
    must("cp", &["--preserve=mode", from, to]);
}

/// The files of a directory and of those in it: content by path.
///
/// # Panics
/// When one cannot be read.
#[must_use]
pub fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                ahead.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).expect("a path below the directory");
            found.insert(name.to_owned(), fs::read(&path).expect("a file"));
        }
    }
    found
}
