//! A crowded machine: a process with a hundred thousand descriptors, and processes that are gone between two reads.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::support::{Home, SAMEHOST, not_tested, rest};

/// A Python program that says `ready` and stays, gone when dropped.
struct Crowd {
    child: Child,
    first: String,
}

impl Crowd {
    fn start(program: &str) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("install python3");
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        Crowd { child, first: first.trim().to_owned() }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As many descriptors as were wanted, a fifth of them sockets; fewer where the limit may not be raised.
const MANY: &str = "
import os, resource, socket, sys
wanted = 100000
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, wanted + 100), max(hard, wanted + 100)))
except (ValueError, PermissionError):
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = min(wanted, hard - 100)
pairs = [socket.socketpair() for _ in range(wanted // 10)]
null = os.open('/dev/null', os.O_RDONLY)
for _ in range(wanted - 2 * len(pairs)):
    os.dup(null)
print(wanted, flush=True)
sys.stdin.read()
";

/// Runs a command, and says what it took on one line: seconds and the most memory it had.
const MEASURED: &str = "
import resource, subprocess, sys, time
begun = time.monotonic()
status = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
print(status, time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
";

#[test]
fn a_hundred_thousand_descriptors_are_no_trouble() {
    let home = Home::new();
    let crowd = Crowd::start(MANY);
    let descriptors: usize = crowd.first.parse().unwrap();
    if descriptors < 100_000 {
        not_tested(&format!("descriptors beyond {descriptors}: the limit may not be raised here"));
    }
    let out = std::fs::File::create(home.path("scan.json")).unwrap();
    let mut run = Command::new("python3");
    run.args(["-c", MEASURED, SAMEHOST, "scan", "--json"]).stderr(out).stdout(Stdio::piped());
    let mut child = run.spawn().unwrap();
    let said = rest(child.stdout.take().unwrap());
    assert!(child.wait().unwrap().success());
    let numbers: Vec<f64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let (status, seconds, memory_kib) = (numbers[0], numbers[1], numbers[2]);
    assert_eq!(status, 0.0);
    let found: Value = serde_json::from_slice(&std::fs::read(home.path("scan.json")).unwrap()).unwrap();
    let pid = u64::from(crowd.child.id());
    let holds =
        |socket: &&Value| socket["pids"].as_array().unwrap().iter().any(|one| one.as_u64() == Some(pid));
    let sockets = found["sockets"].as_array().unwrap().iter().filter(holds).count();
    assert_eq!(sockets, descriptors / 10 * 2, "every socket has its owner");
    eprintln!("{descriptors} descriptors, {sockets} sockets: {seconds:.3} s, {:.1} MiB", memory_kib / 1024.0);
    assert!(memory_kib < 64.0 * 1024.0, "{memory_kib} KiB");
}

/// Processes that hold a socket for no longer than they live, which is not long.
const FORKS: &str = "
import os, socket, sys, select
print('ready', flush=True)
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(64)
while not select.select([sys.stdin], [], [], 0)[0]:
    pid = os.fork()
    if pid == 0:
        client = socket.create_connection(listener.getsockname())
        pair = socket.socketpair()
        os._exit(0)
    listener.accept()[0].close()
    os.waitpid(pid, 0)
";

#[test]
fn processes_that_vanish_meanwhile_are_no_error() {
    let home = Home::new();
    let crowd = Crowd::start(FORKS);
    assert_eq!(crowd.first, "ready");
    let begun = Instant::now();
    let mut scans = 0;
    while scans < 20 || (begun.elapsed().as_secs() < 2 && scans < 200) {
        let arguments: &[&str] = if scans % 2 == 0 { &["scan"] } else { &["scan", "--json"] };
        let ended = home.run(arguments);
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "scan {scans}");
        scans += 1;
    }
    // What is listed is whole: a process that is named is described.
    let found: Value = serde_json::from_str(&home.run(&["scan", "--json"]).stdout).unwrap();
    crate::schemas::assert_valid(&found);
}
