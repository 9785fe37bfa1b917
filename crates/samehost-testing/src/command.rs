//! Commands that a test runs, and waiting for what they do; programs that it makes, files that it compares, and what the reports
//! of `samehost` must have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a test waits for anything.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Ended {
    /// Exit status; -1 after a signal.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    #[must_use]
    pub fn of(output: &Output) -> Self {
        Ended {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

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
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    drop(listener);
    wait_for("a port that is closed", || TcpStream::connect(address).err());
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

/// Whether the test runs as root. Servers then run as a user of their own, and some checks have nothing to refuse.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The name of the user who runs the tests.
///
/// # Panics
/// When he has none.
#[must_use]
pub fn own_name() -> String {
    must("id", &["-un"]).trim().to_owned()
}

/// Installs the WordPress below `root`, whose settings are written, as the site of `host` (a port may follow). WordPress' own
/// installer does it.
///
/// # Panics
/// When there is no PHP, or the installer does not say that it is done.
pub fn install_wordpress(root: &Path, host: &str) {
    let installer = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wordpress.php");
    let output = Command::new("php")
        .args(["-d", "display_errors=0"])
        .arg(installer)
        .arg(root)
        .arg(host)
        .output()
        .expect("PHP");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("installed"), "{output:?}");
}

// What every report must have, whatever it measured; and reports of hosts that differ by chance, made from a real one.

/// The arms that did nothing in any of their trials, and those of which an operation failed. A single trial of a few
/// milliseconds may be over before its first operation where others have the CPUs, and so may both of `noop`, which has no
/// server to fail.
#[must_use]
pub fn idle_or_failing(report: &Value) -> Vec<String> {
    let mut operations: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failing: BTreeSet<&str> = BTreeSet::new();
    for trial in report["trials"].as_array().into_iter().flatten() {
        let arm = trial["arm"].as_str().unwrap_or_default();
        *operations.entry(arm).or_default() += trial["operations"].as_u64().unwrap_or(0);
        if let Some(errors) = trial["errors"].as_object()
            && !errors.is_empty()
        {
            failing.insert(arm);
        }
    }
    if operations.is_empty() {
        return vec!["no arm was measured".into()];
    }
    let mut odd = Vec::new();
    for (arm, operations) in operations {
        if failing.contains(arm) || operations == 0 && arm != "noop" {
            odd.push(format!("{arm}: {operations} operations"));
        }
    }
    odd
}

/// A figure of a trial that the meters gave. It may be missing only where the trial says that they were read late.
///
/// # Panics
/// If it is missing without that warning.
#[must_use]
pub fn metered(trial: &Value, figure: &str) -> Option<f64> {
    let value = trial[figure].as_f64();
    let mut is_late = false;
    for warning in trial["warnings"].as_array().into_iter().flatten() {
        let message = warning["message"].as_str().unwrap_or_default();
        is_late |= warning["code"] == "not_measured" && message.contains("the meters were read");
    }
    assert!(value.is_some() || is_late, "{figure}: {trial}");
    value
}

/// Noise that is the same in each run: about normal, with a deviation of 1.
pub struct Noise(pub u64);

impl Noise {
    pub fn draw(&mut self) -> f64 {
        let mut uniform = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }
}

/// Makes the times of a report's comparisons longer by a factor, and its rates smaller, each with noise of the deviation
/// `within` of its logarithm. The ratios stay.
pub fn slow_down(comparisons: &mut Value, factor: f64, within: f64, noise: &mut Noise) {
    for comparison in comparisons.as_array_mut().expect("a list of comparisons") {
        let is_rate = ["throughput", "bandwidth"].iter().any(|rate| comparison["metric"] == *rate);
        for value in ["baseline_value", "candidate_value"] {
            let factor = factor * (within * noise.draw()).exp();
            let factor = if is_rate { 1.0 / factor } else { factor };
            comparison[value] = json!(comparison[value].as_f64().expect("a number") * factor);
        }
    }
}
