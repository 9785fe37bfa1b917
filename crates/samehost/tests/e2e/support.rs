//! A home of its own for each test: state, runtime directory and temporary files go with it, and nothing may be
//! left running or lying about when it is dropped.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use samehost_testing::store_prices;
pub(crate) use samehost_testing::{Ended, wait_for};
use serde_json::Value;

/// Options of a measurement that is over soon and proves nothing but that it works.
pub(crate) const QUICK: &[&str] =
    &["--min-blocks", "2", "--max-blocks", "2", "--trial-time", "30ms", "--budget", "30s", "--seed", "7"];

/// The binary under test.
pub(crate) const SAMEHOST: &str = env!("CARGO_BIN_EXE_samehost");

/// A test's own directories.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("samehost-e2e-").tempdir().unwrap();
        for name in ["run", "state"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Home { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The binary with this home's directories.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(SAMEHOST);
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("GOCACHE", go_cache())
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&self.command(arguments).output().unwrap())
    }

    /// Runs a measurement that must succeed, and returns its report.
    pub(crate) fn measure(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, QUICK, &["--json", "-"]].concat());
        assert_eq!(ended.status, 0, "{arguments:?}: {}", ended.stderr);
        serde_json::from_str(&ended.stdout).unwrap()
    }

    /// Stores what a checkup with this kernel would have found out of a request and of a connection.
    pub(crate) fn store_prices(&self, kernel: &str) {
        store_prices(&self.path("state"), kernel);
    }

    /// The samples files stored in this home.
    pub(crate) fn stored(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("state/samehost")) else { return Vec::new() };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Processes that have this home in their command line.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let home = self.directory.path().to_string_lossy().into_owned();
        let pids =
            fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid: u32| {
            let line =
                String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).ok()?).replace('\0', " ");
            line.contains(&home).then_some((pid, line))
        })
        .collect()
    }

    /// Waits for everything of this home to be gone: processes, sockets, directories.
    /// That no process is left, and no directory but one that was made when the program was killed, before anything could
    /// watch over it: the next measurement removes it.
    pub(crate) fn assert_nothing_left_after_the_next(&self) {
        wait_for("every process to be gone", || self.processes().is_empty().then_some(()));
        self.measure(&["bench", "raw"]);
        self.assert_nothing_left();
    }

    pub(crate) fn assert_nothing_left(&self) {
        let left = || {
            let files: Vec<PathBuf> =
                fs::read_dir(self.path("run")).unwrap().map(|entry| entry.unwrap().path()).collect();
            (self.processes(), files)
        };
        let since = Instant::now();
        loop {
            let (processes, files) = left();
            if processes.is_empty() && files.is_empty() {
                return;
            }
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "left after a minute: {processes:?} {files:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts a built-in server on a Unix socket and a port of this home.
    pub(crate) fn serve(&self, server: &str, options: &[&str]) -> Server {
        let unix = format!("unix:{}", self.path(&format!("{server}.sock")).display());
        let listen = ["serve", server, "--listen", &unix, "--listen", "tcp:127.0.0.1:0"];
        let mut child = self.command(&[&listen, options].concat()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let first = read_line(&mut lines);
        assert_eq!(first, format!("listening on {unix}"));
        let tcp = read_line(&mut lines).trim_start_matches("listening on ").to_owned();
        Server { child, unix, tcp }
    }
}

fn read_line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A server that ends with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) unix: String,
    pub(crate) tcp: String,
}

impl Server {
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    pub(crate) fn wait(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What Go compiled, for all tests: its standard library takes more than a minute.
pub(crate) fn go_cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache")
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// Says on the real standard error, which a passing test's output is not, that something could not be tested here.
pub(crate) fn not_tested(what: &str) {
    let _ = writeln!(std::io::stderr(), "NOT TESTED {what}");
}

/// Everything a stream still has to say.
pub(crate) fn rest(mut stream: impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The counted trials of an arm, controls included.
pub(crate) fn trials<'a>(report: &'a Value, arm: &str) -> Vec<&'a Value> {
    report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] == arm).collect()
}

/// Whether a report or a comparison warns of this.
pub(crate) fn warns(holder: &Value, code: &str) -> bool {
    holder["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == code)
}

/// The comparison of a metric.
pub(crate) fn comparison<'a>(report: &'a Value, metric: &str) -> &'a Value {
    let comparisons = report["comparisons"].as_array().unwrap();
    comparisons
        .iter()
        .find(|comparison| comparison["metric"] == metric)
        .unwrap_or_else(|| panic!("{comparisons:?}"))
}

/// Checks that a target is verified as this transport and as no other one, and that a process of this program answers there.
pub(crate) fn assert_verified(target: &str, transport: &str, program: &str) {
    let home = Home::new();
    let verify = |expected: &str| home.run(&["verify", target, "--expect", expected, "--json"]);
    let ended = verify(transport);
    assert_eq!(ended.status, 0, "{target}: {}", ended.both());
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let proofs = found["proofs"].as_array().unwrap();
    let peer = proofs.iter().find(|one| one["by"] == "peer").unwrap_or_else(|| panic!("{found:#}"));
    assert!(peer["says"].as_str().unwrap().contains(program), "{target}: {found:#}");
    let other = if transport == "unix" { "tcp" } else { "unix" };
    assert_eq!(verify(other).status, 1, "{target} is no {other}");
}

/// The newest file of a directory, by name.
pub(crate) fn newest(files: &[PathBuf]) -> &Path {
    files.last().expect("a stored file")
}
