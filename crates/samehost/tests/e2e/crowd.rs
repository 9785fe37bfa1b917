//! A crowded machine: a process with a hundred thousand descriptors, and processes that are gone between two reads.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
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
        Crowd::start_with(program, &[])
    }

    fn start_with(program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", program])
            .args(arguments)
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

/// A hundred thousand descriptors, a fifth of them sockets: in one process, or in as many as the limit asks for where it
/// may not be raised. Says how many processes that took, and how many sockets they hold.
const MANY: &str = "
import os, resource, socket, sys
wanted = 100000
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, wanted + 100), max(hard, wanted + 100)))
except (ValueError, PermissionError):
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100
processes = -(-wanted // min(wanted, limit))
each = wanted // processes
def hold():
    global pairs
    pairs = [socket.socketpair() for _ in range(each // 10)]
    null = os.open('/dev/null', os.O_RDONLY)
    for _ in range(each - 2 * len(pairs)):
        os.dup(null)
# Each child holds its input, the end of which is that of the test, and tells by a pipe when it is done.
ready, tell = os.pipe()
for _ in range(processes - 1):
    if os.fork() == 0:
        hold()
        os.write(tell, b'.')
        sys.stdin.read()
        os._exit(0)
hold()
for _ in range(processes - 1):
    os.read(ready, 1)
print(processes, processes * (each // 10) * 2, flush=True)
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
    let (processes, expected) = crowd.first.split_once(' ').unwrap();
    let expected: usize = expected.parse().unwrap();
    if processes != "1" {
        not_tested(&format!(
            "100,000 descriptors in one process, for the limit may not be raised here; {processes} processes hold them"
        ));
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
    let ours: BTreeSet<u64> = found["processes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["pid"].as_u64() == Some(pid) || one["parent"].as_u64() == Some(pid))
        .filter_map(|one| one["pid"].as_u64())
        .collect();
    let is_ours = |one: &Value| one.as_u64().is_some_and(|pid| ours.contains(&pid));
    let holds = |socket: &&Value| socket["pids"].as_array().unwrap().iter().any(is_ours);
    let sockets = found["sockets"].as_array().unwrap().iter().filter(holds).count();
    assert_eq!(sockets, expected, "every socket has its owner");
    // On the real standard error, for whoever wants to know what it took.
    let took =
        format!("100000 descriptors, {sockets} sockets: {seconds:.3} s, {:.1} MiB", memory_kib / 1024.0);
    writeln!(std::io::stderr(), "{took}").unwrap();
    assert!(memory_kib < 64.0 * 1024.0, "{memory_kib} KiB");
}

/// Ten thousand connections of a process, in one of three ways: over TCP and left alone, over a Unix socket and left alone, or
/// over TCP by eight threads that open and close without a rest beside five thousand that stay.
const CONNECTED: &str = "
import resource, socket, sys, tempfile, threading
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
wanted = max(hard, 25000)
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
except (ValueError, PermissionError):
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = hard
many = (wanted - 1000) // 2
way = sys.argv[1]
directory = tempfile.TemporaryDirectory()
listener = socket.socket(socket.AF_UNIX if way == 'unix' else socket.AF_INET)
listener.bind(directory.name + '/s' if way == 'unix' else ('127.0.0.1', 0))
listener.listen(4096)
address = listener.getsockname()
held = []
for _ in range(min(many, 5000 if way == 'comes and goes' else 10000)):
    client = socket.socket(listener.family)
    client.connect(address)
    held += [client, listener.accept()[0]]
def come_and_go():
    while True:
        client = socket.create_connection(address)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')
        client.close()
def take():
    while True:
        try: listener.accept()[0].close()
        except OSError: pass
if way == 'comes and goes':
    for work in [take, take] + [come_and_go] * 8:
        threading.Thread(target=work, daemon=True).start()
print(len(held) // 2, flush=True)
sys.stdin.read()
";

/// A look at ten thousand connections costs as much as the scan itself. Observing took 12.6 s of a period of one second, because
/// it looked as often as ever; now the looks have a share of the period. A scan of the same crowd is the measure, for a busy
/// machine makes both slow; what a request costs is measured apart.
#[test]
fn observing_ends_with_its_period_whatever_ten_thousand_connections_do() {
    let home = Home::new();
    for way in ["tcp", "unix", "comes and goes"] {
        let crowd = Crowd::start_with(CONNECTED, &[way]);
        let stay: u32 = crowd.first.parse().expect("the number of connections");
        assert!(stay >= 400, "{stay} connections: is the limit of open files that low?");
        let begun = Instant::now();
        assert_eq!(home.run(&["scan", "--json"]).status, 0);
        let plain = begun.elapsed().as_secs_f64();
        let ended = home.run(&["scan", "--observe", "1s", "--json"]);
        assert_eq!(ended.status, 0, "{}", ended.stderr);
        let found: Value = serde_json::from_str(&ended.stdout).unwrap();
        let advice = found["advice"].as_array().unwrap().iter();
        let observed = advice.filter_map(|advice| advice["traffic"]["seconds"].as_f64()).fold(0.0, f64::max);
        writeln!(
            std::io::stderr(),
            "{stay} connections, {way}: scan {plain:.2} s, observed for 1 s {observed:.2} s"
        )
        .unwrap();
        assert!(observed > 0.5 || way == "unix", "{way}: {observed} s");
        assert!(observed <= 2.0 + 4.0 * plain, "{way}: {observed} s, a plain scan {plain} s");
    }
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
