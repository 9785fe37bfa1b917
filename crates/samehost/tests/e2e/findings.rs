//! What `scan` finds beside pairs: full queues, ports that run out, sockets that everybody may use, small writes that
//! wait; and that it is silent where there is nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, geteuid};
use serde_json::Value;

use crate::scan::Held;
use crate::support::{Home, SAMEHOST, not_tested, send};
use crate::unseen::Program;

/// The findings of one kind that name this.
pub(crate) fn found(scan: &str, code: &str, name: &str) -> Vec<String> {
    let scan: Value = serde_json::from_str(scan).unwrap();
    let findings = scan["findings"].as_array().unwrap().iter();
    let of_kind = findings.filter(|finding| finding["code"] == code);
    let words = of_kind.map(|finding| {
        assert!(!finding["remedy"].as_str().unwrap().is_empty(), "{finding}");
        finding["found"].as_str().unwrap().to_owned()
    });
    words.filter(|words| words.contains(name)).collect()
}

pub(crate) fn scan(home: &Home) -> String {
    let ended = home.run(&["scan", "--json"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    ended.stdout
}

/// A program that accepts nobody, with a backlog; the port.
fn hung(backlog: u32) -> (Child, u16) {
    let script = format!(
        "import socket,time\ns=socket.socket()\ns.bind(('127.0.0.1',0))\ns.listen({backlog})\nprint(s.getsockname()[1],flush=True)\ntime.sleep(600)"
    );
    let mut child = Command::new("python3").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

#[test]
fn a_full_queue_is_found_and_one_with_room_is_not() {
    let home = Home::new();
    let (mut full, port) = hung(1);
    let (mut room, other) = hung(2);
    let connect = |port: u16| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let held = [connect(port), connect(port), connect(other), connect(other)];
    let seen = scan(&home);
    let words = found(&seen, "full-queue", &format!("127.0.0.1:{port}:"));
    assert!(matches!(words.as_slice(), [one] if one.contains("(2 wait, backlog 1)")), "{words:?}");
    assert!(found(&seen, "full-queue", &format!("127.0.0.1:{other}:")).is_empty(), "one more may wait");
    let shown = home.run(&["scan"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("Worth knowing") && shown.contains("(2 wait, backlog 1)"), "{shown}");
    drop(held);
    for child in [&mut full, &mut room] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_socket_for_everybody_is_found_unless_a_directory_or_its_mode_keeps_others_out() {
    let home = Home::new();
    let folder = home.path("shared");
    fs::create_dir(&folder).unwrap();
    let (open, closed) = (folder.join("open.sock"), folder.join("closed.sock"));
    let _open = Held::redis(&home, 0, &open, &["--unixsocketperm", "777"]);
    let _closed = Held::redis(&home, 0, &closed, &["--unixsocketperm", "770"]);
    let mode = |mode: u32| {
        let home = folder.parent().unwrap();
        fs::set_permissions(home, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o700);
    assert!(found(&scan(&home), "open-to-everybody", "open.sock").is_empty(), "nobody may pass");
    mode(0o755);
    let seen = scan(&home);
    let words = found(&seen, "open-to-everybody", "open.sock");
    assert!(matches!(words.as_slice(), [one] if one.starts_with("Redis: every local user")), "{words:?}");
    assert!(found(&seen, "open-to-everybody", "closed.sock").is_empty(), "its mode is 0770");
}

/// Takes datagrams at a port and at a socket, and keeps them.
const RECEIVES: &str = "import socket, sys, time
u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0))
p = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); p.bind(sys.argv[1])
print(u.getsockname()[1], flush=True)
while True: u.recv(65536)";

/// A receiver of datagrams, with its port and its socket.
struct Receiver {
    child: Child,
    port: u16,
    path: String,
}

impl Receiver {
    fn start(home: &Home) -> Self {
        let path = home.path("metrics.sock").display().to_string();
        let mut python = Command::new("/usr/bin/python3");
        let mut child = python.args(["-c", RECEIVES, &path]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Receiver { child, port: line.trim().parse().unwrap(), path }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        send(self.child.id(), Signal::CONT);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_sends_datagrams_is_named_and_what_was_dropped_is_counted() {
    let home = Home::new();
    let receiver = Receiver::start(&home);
    let port = format!("udp 127.0.0.1:{}", receiver.port);
    let address = ("127.0.0.1", receiver.port);
    let unconnected = UdpSocket::bind("127.0.0.1:0").unwrap();
    unconnected.send_to(b"a:1|c", address).unwrap();
    let seen = scan(&home);
    assert!(found(&seen, "datagrams-over-udp", &port).is_empty(), "the kernel knows no peer of it");
    assert!(found(&seen, "datagrams-dropped", &port).is_empty());
    let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
    connected.connect(address).unwrap();
    let unix = UnixDatagram::unbound().unwrap();
    unix.connect(&receiver.path).unwrap();
    send(receiver.child.id(), Signal::STOP);
    for _ in 0..2000 {
        connected.send(b"a:1|c").unwrap();
    }
    let seen = scan(&home);
    let words = found(&seen, "datagrams-over-udp", &port);
    let own = format!(" {} sends datagrams to python3 at {port}:", std::process::id());
    assert!(matches!(words.as_slice(), [one] if one.contains(&own)), "{words:?}");
    let words = found(&seen, "datagrams-dropped", &port);
    let [one] = words.as_slice() else { panic!("{words:?}") };
    let dropped: u32 = one.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((1..2000).contains(&dropped), "the queue holds some, and not all: {one}");
    let shown = home.run(&["scan"]).stdout;
    assert!(shown.contains(&format!("unix dgram {}", receiver.path)), "the peer of a Unix socket: {shown}");
}

/// In a network namespace with 64 ports, and the kernel's reuse of TIME_WAIT as given: how many are taken by 40
/// connections that the client has closed.
fn ports_taken(reuse: u32, before: &str) -> Vec<String> {
    let script = format!(
        "ip link set lo up
        cd /proc/sys/net/ipv4 && echo 20000 20063 > ip_local_port_range && echo {reuse} > tcp_tw_reuse
        python3 -c 'import socket
s = socket.socket(); s.bind((\"127.0.0.1\", 5000)); s.listen(9)
for _ in range(40):
    c = socket.create_connection((\"127.0.0.1\", 5000)); a, _ = s.accept(); c.close(); a.recv(1); a.close()'
        {before}
        exec {SAMEHOST} scan --json"
    );
    let output = Command::new("unshare").args(["-n", "sh", "-ec", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    found(&String::from_utf8_lossy(&output.stdout), "ports-run-out", "to 127.0.0.1:5000")
}

#[test]
fn ports_that_run_out_are_counted_towards_one_destination() {
    if !geteuid().is_root() {
        not_tested("without root: a network namespace with few ports");
        return;
    }
    let words = ports_taken(0, "");
    let expected =
        "40 of the 64 ports for connections to 127.0.0.1:5000 are taken (0 connected, 40 in TIME_WAIT)";
    assert!(matches!(words.as_slice(), [one] if one.starts_with(expected)), "{words:?}");
    // The kernel gives such a port to a new connection of the loopback after a second.
    assert_eq!(ports_taken(2, "sleep 1.2"), Vec::<String>::new());
}

/// Answers each request of two bytes with one.
const ANSWERS: &str = "import socket
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(9); print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); got = b''
    while True:
        more = c.recv(65536)
        if not more: break
        got += more
        if len(got) >= 2: c.send(b'x'); got = got[2:]";

/// Sends requests for ever: a head and a body in two writes, or in one; at once, or as the kernel likes.
const ASKS: &str = "import socket, sys
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
if 'at-once' in sys.argv: c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
number = 0
while True:
    if 'one-write' in sys.argv: c.send(b'hb')
    else: c.send(b'h'); c.send(b'b')
    c.recv(1); number += 1
    if number == 60: print('chatty', flush=True)";

/// Sends as much as fits, for ever, as small as the kernel likes.
const STREAMS: &str = "import socket, sys
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
print('streams', flush=True)
while True: c.send(bytes(3000))";
/// Reads and answers nothing.
const READS: &str = "import socket
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(9); print(s.getsockname()[1], flush=True)
c, _ = s.accept()
while c.recv(1 << 20): pass";

#[test]
fn small_writes_that_wait_are_found_and_others_are_not() {
    if !geteuid().is_root() {
        not_tested("without root: TCP_NODELAY of other processes");
        return;
    }
    let home = Home::new();
    // Of several scans: a request may have been answered just then.
    let waits = |answers: &str, asks: &str, options: &[&str], scans: usize| {
        let server = Program::start(answers, &[]);
        let client = Program::start(asks, &[&[server.line.as_str()], options].concat());
        let name = format!("tcp:127.0.0.1:{}: ", server.line);
        let all = (0..scans).map(|_| found(&scan(&home), "small-writes-wait", &name));
        let words: Vec<String> = all.flatten().collect();
        (words, client.pid())
    };
    let (slow, pid) = waits(ANSWERS, ASKS, &[], 8);
    let told = slow.first().expect("most of its time one byte waits for another");
    assert!(told.contains(&format!("1 bytes of python3 {pid} waited")), "{told}");
    assert_eq!(waits(ANSWERS, ASKS, &["at-once"], 4).0, Vec::<String>::new());
    assert_eq!(waits(ANSWERS, ASKS, &["one-write"], 4).0, Vec::<String>::new());
    assert_eq!(waits(READS, STREAMS, &[], 4).0, Vec::<String>::new());
}
