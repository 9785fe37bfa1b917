//! Clients that no process holds when `scan` looks: they join the pair that they are of, or are named after the unit that
//! made them; and where nothing says who they are, scan does not guess.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::scan::scan;
use crate::support::{Home, not_tested, wait_for};

/// A Python program that says one line when it is ready, and is killed at the end of the test.
pub(crate) struct Program {
    child: Child,
    pub(crate) line: String,
}

impl Program {
    pub(crate) fn start(script: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command
            .args(["-c", script])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Program { child, line: line.trim().to_owned() }
    }

    /// A server that accepts everybody, reads nothing and closes nothing.
    fn server() -> Self {
        Program::start(
            "import socket
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(9); print(s.getsockname()[1], flush=True)
kept = []
while True: kept.append(s.accept())",
            &[],
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects as often as it is told to, and closes that many connections again.
const CLIENT: &str = "import socket, sys, time
port, number, closed = map(int, sys.argv[1:])
all = [socket.create_connection(('127.0.0.1', port)) for _ in range(number)]
for one in all[:closed]: one.close()
print('ready', flush=True)
time.sleep(600)";

/// Fills a connection, so that the kernel is not done with it when the process is gone.
const FILLER: &str = "import os, socket, sys
with open(sys.argv[2], 'w') as group: group.write(str(os.getpid()))
c = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); c.setblocking(False)
try:
    while True: c.send(bytes(65536))
except BlockingIOError: pass
print('full', flush=True)";

/// What the advice on a port says, once there are that many connections.
fn advice_on(home: &Home, port: &str, connections: u64) -> Vec<Value> {
    wait_for("the connections", || {
        let found = scan(home);
        let advice = found["advice"].as_array().unwrap().iter();
        let its: Vec<Value> =
            advice.filter(|one| one["now"] == format!("tcp:127.0.0.1:{port}")).cloned().collect();
        let all: u64 = its.iter().map(|one| one["connections"].as_u64().unwrap()).sum();
        (all == connections).then_some(its)
    })
}

#[test]
fn a_pair_is_one_line_where_a_part_of_its_connections_is_closed() {
    let home = Home::new();
    let server = Program::server();
    let client = Program::start(CLIENT, &[&server.line, "3", "1"]);
    let advice = advice_on(&home, &server.line, 3);
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert_eq!(advice[0]["client_pids"][0].as_u64(), Some(client.pid().into()), "{advice:?}");
    assert_eq!(advice[0]["unseen"], 1, "{advice:?}");
    let shown = home.run(&["scan"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("127.0.0.1:{}, 3 connections, 1 of them of no visible process", server.line);
    assert!(shown.contains(&line), "{shown}");
    drop(client);
    let quiet = Program::server();
    let _client = Program::start(CLIENT, &[&quiet.line, "2", "0"]);
    assert!(advice_on(&home, &quiet.line, 2)[0]["unseen"].is_null(), "both are open");
}

/// A control group as systemd would make it for a unit, gone at the end.
struct Unit(PathBuf);

impl Unit {
    fn new(name: &str) -> Option<Self> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let mount = mounts.into_iter().find(|mount| mount.join("cgroup.procs").exists())?;
        let slice = mount.join(format!("{name}.slice"));
        let _ = fs::create_dir(&slice);
        let unit = slice.join(name);
        fs::create_dir(&unit).ok()?;
        Some(Unit(unit))
    }

    fn processes(&self) -> String {
        self.0.join("cgroup.procs").to_string_lossy().into_owned()
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // A group is busy until its last process has been waited for.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = fs::remove_dir(self.0.parent().unwrap());
    }
}

#[test]
fn a_client_whose_process_is_gone_is_named_after_its_unit_and_of_no_unit_after_nothing() {
    let name = format!("samehost-gone-{}.service", std::process::id());
    let Some(unit) = Unit::new(&name) else {
        not_tested("without a control group: clients named after their unit");
        return;
    };
    let home = Home::new();
    let of = |group: &str| {
        let server = Program::server();
        let mut client = Program::start(FILLER, &[&server.line, group]);
        client.child.wait().unwrap();
        let advice = advice_on(&home, &server.line, 1);
        assert!(advice[0]["client_pids"].as_array().unwrap().is_empty(), "{advice:?}");
        advice[0]["client"].as_str().unwrap().to_owned()
    };
    assert_eq!(of(&unit.processes()), name);
    let nowhere = unit.0.ancestors().nth(2).unwrap().join("cgroup.procs");
    assert_eq!(of(&nowhere.to_string_lossy()), "not visible");
}

/// The advice on the clients of a server after a second of observation.
fn observed(home: &Home, server: &str) -> Option<Value> {
    let ended = home.run(&["scan", "--json", "--quiet", "--observe", "1s"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    crate::schemas::assert_valid(&found);
    found["advice"].as_array().unwrap().iter().find(|one| one["now"] == server).cloned()
}

#[test]
fn clients_that_connect_for_a_moment_are_caught_and_no_others_are_guessed() {
    let home = Home::new();
    let (slow, fast) = (home.serve("echo", &[]), home.serve("http", &[]));
    let stop = Arc::new(AtomicBool::new(false));
    // Open as long as a page of PHP keeps its database, and closed as long.
    let busy = std::thread::spawn({
        let (stop, address) = (Arc::clone(&stop), slow.tcp.trim_start_matches("tcp:").to_owned());
        move || {
            while !stop.load(Ordering::Relaxed) {
                let stream = TcpStream::connect(&address).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                drop(stream);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    let port = fast.tcp.rsplit(':').next().unwrap();
    let script = "import socket, sys, time
print('ready', flush=True)
while True:
    socket.create_connection(('127.0.0.1', int(sys.argv[1]))).close(); time.sleep(0.01)";
    let short = Program::start(script, &[port]);
    // A look costs more on a busy machine, and fewer fit into a second: not every second catches this client.
    wait_for("the client that is open half of the time to be caught", || {
        let first = observed(&home, &slow.tcp)?;
        let caught = first["client_pids"][0].as_u64()?;
        assert_eq!(caught, u64::from(std::process::id()), "{first}");
        Some(())
    });
    let second = wait_for("the client of very short connections", || observed(&home, &fast.tcp));
    stop.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    drop(short);
    // Open for less than a look takes; if it was caught all the same, it is the program, or its connection without it.
    let client = second["client"].as_str().unwrap();
    let is_guessed =
        !["short-lived clients", "not visible"].contains(&client) && !client.starts_with("python3");
    assert!(!is_guessed, "{second}");
}

/// Stays connected and asks ten times a second; or connects anew for each exchange of twenty, as a page of PHP does.
const TALKER: &str = "import encodings.idna, os, socket, sys, time
port, uid, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.setgid(uid); os.setuid(uid)
def ask(s):
    s.sendall(b'*1\\r\\n$4\\r\\nPING\\r\\n')
    assert s.recv(64) == b'+PONG\\r\\n'
print('ready', flush=True)
if how == 'stays':
    s = socket.create_connection(('127.0.0.1', port))
    while True: ask(s); time.sleep(0.1)
while True:
    s = socket.create_connection(('127.0.0.1', port))
    for _ in range(20): ask(s); time.sleep(0.002)
    s.close(); time.sleep(0.05)";

#[test]
fn short_connections_are_never_booked_on_whoever_stays_connected_as_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "the kernel tells only root of connections that end: run this test as root"
    );
    let home = Home::new();
    let port = samehost_testing::free_port();
    let folder = tempfile::tempdir().unwrap();
    let mut server = samehost_testing::redis_server(port, folder.path());
    let _server = Program { child: server.stdout(Stdio::null()).spawn().unwrap(), line: String::new() };
    wait_for("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
    let port = port.to_string();
    // Two programs of one name; what tells them apart is the account.
    let stays = Program::start(TALKER, &[&port, "54401", "stays"]);
    let comes = Program::start(TALKER, &[&port, "54402", "comes"]);
    let ended = home.run(&["scan", "--json", "--quiet", "--observe", "2s"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let at = |pid: u32| {
        let mut all = found["advice"].as_array().unwrap().iter();
        all.find(|one| one["client_pids"].as_array().unwrap().iter().any(|its| its == pid)).cloned()
    };
    let stayed = at(stays.pid()).unwrap_or_else(|| panic!("the one that stays is seen: {}", found["advice"]));
    assert_eq!(stayed["traffic"]["short_connections_per_s"], 0.0, "{stayed}");
    let came = at(comes.pid())
        .unwrap_or_else(|| panic!("the one that comes and goes is caught: {}", found["advice"]));
    assert!(came["traffic"]["short_connections_per_s"].as_f64().unwrap() > 2.0, "{came}");
}
