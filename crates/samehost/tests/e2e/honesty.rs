//! What must show, and what must not be claimed: a stalled server, a busy neighbour, a shared CPU.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Home, Server, comparison, trials, warns};

/// Stops the server for 200 ms once a second until dropped.
struct Staller {
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Server>>,
}

impl Staller {
    fn start(server: Server) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                server.signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(200));
                server.signal(Signal::CONT);
                std::thread::sleep(Duration::from_millis(800));
            }
            server
        });
        Staller { done, thread: Some(thread) }
    }
}

impl Drop for Staller {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[test]
fn a_stalled_server_shows_in_an_open_loop_and_hides_in_a_closed_one() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let unix = server.unix.clone();
    let staller = Staller::start(server);
    let measure = |more: &[&str]| -> Value {
        let common = ["bench", "raw", "--transports", "unix", "--unix", &unix, "--trial-time", "3s"];
        let ended =
            home.run(&[&common, more, &["--min-blocks", "1", "--max-blocks", "1", "--json", "-"]].concat());
        assert_eq!(ended.status, 0, "{}", ended.stderr);
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let worst = |report: &Value| trials(report, "unix")[0]["latency_us"]["p99_9"].as_f64();
    let open = measure(&["--rate", "4000", "--connections", "4"]);
    let closed = measure(&[]);
    drop(staller);
    let open = worst(&open).expect("12,000 operations are enough for p99.9");
    assert!(
        open > 100_000.0,
        "p99.9 of the open loop is {open} µs although the server stood still for 200 ms"
    );
    // A loaded machine may be too slow for the 10,000 operations that a p99.9 needs; then there is none to hide in.
    if let Some(closed) = worst(&closed) {
        assert!(closed < 100_000.0, "a closed loop asks nothing while the server stands still: {closed} µs");
    }
}

/// Enough blocks for a verdict, if there were nothing to say against one.
const SIX_BLOCKS: &[&str] = &["--min-blocks", "6", "--max-blocks", "6", "--budget", "30s", "--json", "-"];

/// A process that uses a CPU until dropped.
struct BusyLoop(Child);

impl BusyLoop {
    fn start() -> Self {
        let script = "while :; do :; done";
        BusyLoop(Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_neighbour_is_named_and_silences_nothing() {
    let home = Home::new();
    let busy = BusyLoop::start();
    // Two arms that differ by far, in trials one after the other, which a neighbour meets less evenly than slices.
    let slowed = ["bench", "raw", "--transports", "unix,unix", "--work", "300us", "--longer", "90%"];
    // Six blocks were too few beside a compiler, and sixteen beside two: as many as it takes.
    let blocks = ["--until-decided", "--max-blocks", "200", "--budget", "2m", "--json", "-", "--quiet"];
    let ended = home.run(&[&slowed[..], &["--rate", "500", "--trial-time", "200ms"], &blocks].concat());
    drop(busy);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(warns(&report, "foreign_load"), "{}", report["warnings"]);
    let programs = report["host"]["other_programs"].as_array().unwrap();
    assert!(programs.iter().any(|program| program["name"] == "sh"), "{programs:?}");
    assert_eq!(comparison(&report, "latency_mean")["verdict"], "slower");
    for comparison in report["comparisons"].as_array().unwrap() {
        assert_ne!(comparison["grade"], "barred", "{comparison}");
    }
    home.assert_nothing_left();
}

#[test]
fn a_client_that_shares_its_only_cpu_with_the_server_is_not_believed() {
    let home = Home::new();
    let cpu = first_allowed_cpu();
    let arguments = [&["bench", "raw", "--connections", "8", "--trial-time", "50ms"], SIX_BLOCKS].concat();
    let output = Command::new("taskset")
        .args(["-c", &cpu, crate::support::SAMEHOST])
        .args(arguments)
        .env("XDG_RUNTIME_DIR", home.path("run"))
        .env("XDG_STATE_HOME", home.path("state"))
        .output()
        .expect("taskset (util-linux)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(warns(&report, "shared_cpu"), "{}", report["warnings"]);
    for metric in ["throughput", "latency_mean"] {
        assert_eq!(comparison(&report, metric)["verdict"], "inconclusive");
    }
    let ended = home.run(&[
        "bench", "raw", "--placement", "same-core", "--trial-time", "50ms", "--min-blocks", "2",
        "--max-blocks", "2", "--budget", "30s", "--json", "-",
    ]);
    assert_eq!(ended.status, 0, "asked for, it is an experiment like any other: {}", ended.stderr);
}

fn first_allowed_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    list.split([',', '-']).next().unwrap().to_owned()
}
