//! What the tests of the workloads share: the built binary with a runtime directory of its own, its report,
//! and whether anything of it is left.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
pub use samehost_testing::{TINY, UNTIMED};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{SAMEHOST, send};

/// The binary in surroundings of its own: private servers live in `runtime`, which must be empty at the end.
pub struct Here {
    runtime: TempDir,
    state: TempDir,
    begun: SystemTime,
}

impl Here {
    pub fn new() -> Self {
        let runtime = tempfile::Builder::new().prefix("sh").tempdir().unwrap();
        // As /run is: servers that give up root's rights must be able to pass.
        fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o711)).unwrap();
        Here { runtime, state: tempfile::tempdir().unwrap(), begun: SystemTime::now() }
    }

    /// When it was made, in seconds since 1970.
    pub fn begun_s(&self) -> u64 {
        self.begun.duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    /// `samehost bench` with these arguments.
    pub fn bench(&self, arguments: &[&str]) -> Command {
        self.samehost(&[&["bench"], arguments].concat())
    }

    /// `samehost` with these arguments.
    pub fn samehost(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(SAMEHOST);
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            // Where private databases are made.
            .env("TMPDIR", self.runtime.path())
            .env("XDG_STATE_HOME", self.state.path())
            .env("XDG_DATA_HOME", self.state.path())
            .env("GOCACHE", crate::support::go_cache())
            .env_remove("REDISCLI_AUTH")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A tiny measurement that must succeed, and its report.
    pub fn report(&self, arguments: &[&str]) -> Value {
        let output = self.bench(&[arguments, TINY].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        self.assert_nothing_left();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs `samehost bench` where a directory of programs is empty. Only root can do that, to this command alone;
    /// nobody else gets an answer.
    pub fn bench_without(&self, directory: &str, arguments: &[&str]) -> Option<Output> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let bench = self.bench(arguments);
        let hidden = format!("mount -t tmpfs none {directory} && exec \"$@\"");
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &hidden, "sh"])
            .arg(bench.get_program())
            .args(bench.get_args())
            .envs(bench.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .output()
            .unwrap();
        self.assert_nothing_left();
        Some(output)
    }

    /// Waits until a measurement has made its first trial.
    fn wait_for_trial(&self) {
        let begun = Instant::now();
        while !self.has_trial() {
            // Go builds its own library first, where the cache is empty.
            assert!(begun.elapsed() < Duration::from_secs(240), "no trial was made");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the private servers of a measurement that has made its first trial, and those that it starts afresh for its next
    /// blocks, until it ends. Tells what it said, and what was killed.
    pub fn without_servers(&self, mut child: Child) -> (Output, Vec<u32>) {
        self.wait_for_trial();
        let mut killed = Vec::new();
        while child.try_wait().unwrap().is_none() {
            let servers: Vec<u32> = self.supervisors().into_iter().flat_map(children).collect();
            servers.iter().copied().for_each(kill);
            killed.extend(servers);
            std::thread::sleep(Duration::from_millis(20));
        }
        (child.wait_with_output().unwrap(), killed)
    }

    /// Waits until a measurement has made its first trial, and tells the processes of its private servers.
    pub fn servers(&self) -> Vec<u32> {
        self.wait_for_trial();
        let found: Vec<u32> = self.supervisors().into_iter().flat_map(children).collect();
        assert!(!found.is_empty(), "no server");
        found
    }

    fn has_trial(&self) -> bool {
        let Ok(files) = fs::read_dir(self.state.path().join("samehost")) else { return false };
        files
            .flatten()
            .any(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.contains(r#""line":"trial""#)))
    }

    /// Processes that name our runtime directory on their command line; a supervisor does.
    fn supervisors(&self) -> Vec<u32> {
        let own = self.runtime.path().to_str().unwrap();
        processes().into_iter().filter(|pid| command_line(*pid).contains(own)).collect()
    }

    /// The directory in which its private servers live.
    pub fn directory(&self) -> String {
        self.runtime.path().display().to_string()
    }

    /// Waits until something was started.
    pub fn wait_until_something_is_there(&self) {
        let begun = Instant::now();
        while self.supervisors().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing was started");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// That no process and no file is left.
    pub fn assert_nothing_left(&self) {
        let begun = Instant::now();
        loop {
            let files: Vec<_> =
                fs::read_dir(self.runtime.path()).unwrap().flatten().map(|e| e.path()).collect();
            let processes = self.supervisors();
            if files.is_empty() && processes.is_empty() {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "left behind: {files:?} {processes:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A program of the cache of newer servers (`cargo xtask servers`), by its path there.
pub fn newest(program: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let path = target.join("servers/root").join(program);
    assert!(path.exists(), "{} is missing: cargo xtask servers fetches it", path.display());
    path
}

/// The PATH of a measurement that is to start this program of the cache.
pub fn path_to_newest(program: &str) -> String {
    path_with(newest(program).parent().unwrap())
}

fn path_with(directory: &Path) -> String {
    format!("{}:{}", directory.display(), std::env::var("PATH").unwrap())
}

/// That each operation of a measurement with these arguments is a whole table of 1,000 rows. The report.
pub fn assert_whole_operations(arguments: &[&str]) -> Value {
    let here = Here::new();
    let report = parsed(&here.bench(arguments).output().unwrap());
    here.assert_nothing_left();
    for trial in report["trials"].as_array().unwrap() {
        assert_eq!(trial["operations"], 1000, "{trial}");
        assert!(trial["bytes_per_s"].as_f64().unwrap() > 0.0);
    }
    report
}

/// What a program said, for messages.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The report on standard output of a measurement that must have succeeded.
pub fn parsed(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Kills by pid, and without mercy.
pub fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

/// That each of these command lines of a workload is refused as wrong use, with this word, and leaves nothing.
pub fn assert_refused(workload: &str, cases: &[(&[&str], &str)]) {
    for (arguments, word) in cases {
        let here = Here::new();
        let output = here.bench(&[&[workload], *arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{arguments:?}: {}", said(&output));
        here.assert_nothing_left();
    }
}

/// That nobody but its owner can measure a server at this socket, and hears that it lacks the permission. Only root can
/// try it.
pub fn assert_closed_to_others(workload: &str, socket: &str) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", SAMEHOST])
        .args(["bench", workload, "--transports", "unix", "--unix", socket])
        .env("XDG_STATE_HOME", open.path())
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    assert!([Some(2), Some(3)].contains(&output.status.code()), "{}", said(&output));
    assert!(said(&output).to_lowercase().contains("permission"), "{}", said(&output));
}

/// A small file system of its own; gone when dropped.
pub struct Small(TempDir);

impl Small {
    pub fn mount(size: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size},mode=1777"), "tmpfs"])
            .arg(directory.path())
            .status();
        assert!(mounted.is_ok_and(|status| status.success()), "root may mount a tmpfs");
        Small(directory)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Checks of a database's report that nothing failed, and that kernel and server said of each transport what it is; the
/// server's part contains the words of `view`.
pub fn assert_views(report: &Value, transports: &[&str], view: impl Fn(&str) -> &'static [&'static str]) {
    // On a busy machine a second block may not fit the budget.
    let outcome = report["outcome"].as_str().unwrap();
    assert!(["complete", "out_of_budget"].contains(&outcome), "{outcome}");
    assert_eq!(samehost_testing::idle_or_failing(report), Vec::<String>::new());
    let trials = report["trials"].as_array().unwrap();
    for transport in transports {
        let family = if *transport == "unix" { "AF_UNIX stream" } else { "AF_INET stream tcp" };
        let of_arm = |trial: &&Value| trial["arm"].as_str().unwrap().split('/').next() == Some(*transport);
        let mut observed =
            trials.iter().filter(of_arm).map(|trial| trial["transport_observed"].as_str().unwrap());
        assert!(observed.clone().count() > 0, "no trial of {transport}");
        let all = observed
            .all(|text| text.starts_with(family) && view(transport).iter().all(|words| text.contains(words)));
        assert!(all, "{transport}: {}", report["evidence"]);
    }
}

/// Checks what every report of a comparison of TCP with a Unix socket must have where the server has a view of its
/// connections.
pub fn assert_sound(report: &Value) {
    let arms: Vec<&str> =
        report["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert!(arms.contains(&"tcp") && arms.contains(&"unix"), "{arms:?}");
    assert_proved(report, "the server says addr=");
}

/// Checks that a report is whole, that nothing failed in it, and that kernel and server said of both transports
/// what they are; the server's part contains these words.
pub fn assert_proved(report: &Value, words: &str) {
    assert_faultless(report);
    for (arm, family) in [("tcp", "AF_INET stream tcp"), ("unix", "AF_UNIX stream")] {
        let seen = report["evidence"].as_array().unwrap().iter().any(|evidence| {
            let observed = evidence["observed"].as_str().unwrap();
            evidence["arm"].as_str().unwrap().starts_with(arm)
                && observed.starts_with(family)
                && observed.contains(words)
        });
        assert!(seen, "{}", report["evidence"]);
    }
}

/// The factors whose own effects a report has.
pub fn main_effects(report: &Value) -> BTreeSet<&str> {
    let effects = report["effects"].as_array().unwrap().iter();
    let factors = effects.map(|effect| effect["factors"].as_array().unwrap());
    factors.filter(|factors| factors.len() == 1).map(|one| one[0]["name"].as_str().unwrap()).collect()
}

/// Checks that a report is whole and that nothing failed in it.
pub fn assert_faultless(report: &Value) {
    assert_eq!(report["outcome"], "complete");
    let trials = report["trials"].as_array().unwrap();
    assert!(trials.len() >= 6);
    assert_eq!(samehost_testing::idle_or_failing(report), Vec::<String>::new());
}

/// A server of the test's own, ended when dropped.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts a program on a free port: `start` makes its command line. Ready when it accepts.
    pub fn on_port(start: impl Fn(u16) -> Command) -> (Server, u16) {
        for _ in 0..5 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let child = start(port).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let mut server = Server(child.expect("the server must be installed: cargo xtask servers"));
            for _ in 0..1000 {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return (server, port);
                }
                if server.0.try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("the server does not start");
    }
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if text.contains("\0supervise\0") { text } else { String::new() }
}

fn children(pid: u32) -> Vec<u32> {
    let text =
        fs::read_to_string(Path::new("/proc").join(format!("{pid}/task/{pid}/children"))).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
