//! `samehost scan` against `ss`, in two network namespaces, and what hostile or hidden processes make of it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use samehost_testing::{free_port, kernel};
use serde_json::Value;

use crate::support::{Home, SAMEHOST, not_tested, wait_for};

/// A process of a test, gone when dropped.
pub(crate) struct Held {
    child: Child,
    /// Open for as long as the process shall live: `nc` ends with its input.
    _stdin: Option<ChildStdin>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Held {
    pub(crate) fn start(program: impl AsRef<OsStr>, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments);
        Held::run(command)
    }

    /// A Redis on a port (0 for none) and a Unix socket, which answers; `more` are options.
    pub(crate) fn redis(home: &Home, port: u16, socket: &std::path::Path, more: &[&str]) -> Self {
        let mut command = samehost_testing::redis_server(port, &home.path("run"));
        command.arg("--unixsocket").arg(socket).args(more);
        let held = Held::run(command);
        wait_for("redis", || std::os::unix::net::UnixStream::connect(socket).ok());
        held
    }

    pub(crate) fn run(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take();
        Held { child, _stdin: stdin }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Host and port of `tcp:HOST:PORT`, as two words.
pub(crate) fn host_port(endpoint: &str) -> [&str; 2] {
    let (host, port) = endpoint.trim_start_matches("tcp:").rsplit_once(':').unwrap();
    [host, port]
}

/// What a scan says.
pub(crate) fn scan(home: &Home) -> Value {
    let ended = home.run(&["scan", "--json"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// The connection that a client process holds, once it is there with both ends.
pub(crate) fn connection_of(home: &Home, pid: u32) -> (Value, Value) {
    wait_for("the connection", || {
        let found = scan(home);
        let connections = found["connections"].as_array().unwrap();
        let one = connections.iter().find(|one| {
            has_pid(&one["client"], pid) && !one["server"]["pids"].as_array().unwrap().is_empty()
        })?;
        Some((one.clone(), found.clone()))
    })
}

fn has_pid(end: &Value, pid: u32) -> bool {
    end["pids"].as_array().unwrap().iter().any(|one| one.as_u64() == Some(u64::from(pid)))
}

/// A socket in words that both tools can be brought to.
type Words = BTreeSet<String>;

/// What `ss` lists, in the namespace of a process.
fn ss(namespace_of: Option<u32>) -> Words {
    ss_text(namespace_of).lines().filter_map(ss_line).collect()
}

/// What `ss` says, in the namespace of a process.
pub(crate) fn ss_text(namespace_of: Option<u32>) -> String {
    let mut command = match namespace_of {
        Some(pid) => {
            let mut command = Command::new("nsenter");
            command.args(["-t", &pid.to_string(), "-n", "ss"]);
            command
        }
        None => Command::new("ss"),
    };
    let output =
        command.args(["-H", "-n", "-t", "-u", "-x", "-a", "-p", "-e"]).output().expect("install iproute2");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ss_line(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let mut pids: BTreeSet<&str> = BTreeSet::new();
    for part in line.split("pid=").skip(1) {
        pids.insert(part.split(',').next()?);
    }
    let pids: Vec<&str> = pids.into_iter().collect();
    if fields[0].starts_with("u_") {
        // Local address and inode, peer's address and inode; an address may have blanks, the inodes stand before users.
        let at = fields
            .iter()
            .position(|field| field.starts_with("users:") || *field == "<->" || *field == "--")
            .unwrap_or(fields.len());
        let before: Vec<&str> = fields[..at]
            .iter()
            .copied()
            .filter(|field| field.bytes().all(|byte| byte.is_ascii_digit()))
            .collect();
        let [.., inode, peer] = before.as_slice() else { return None };
        return Some(format!("{} {inode} {peer} {pids:?}", fields[0]));
    }
    if matches!(fields[1], "TIME-WAIT" | "SYN-RECV") || !matches!(fields[0], "tcp" | "udp") {
        return None;
    }
    let inode = line.split("ino:").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or("0");
    Some(format!("{} {inode} {} {pids:?}", fields[0], fields[1]))
}

/// The same words from a scan, for a namespace.
fn ours(found: &Value, namespace: u64) -> Words {
    let sockets = found["sockets"].as_array().unwrap().iter();
    sockets
        .filter(|socket| socket["network_namespace"].as_u64() == Some(namespace))
        .map(|socket| {
            let mut pids: Vec<String> =
                socket["pids"].as_array().unwrap().iter().map(ToString::to_string).collect();
            pids.sort();
            let inode = &socket["inode"];
            let state = socket["state"].as_str().unwrap();
            match socket["kind"].as_str().unwrap() {
                "unix_stream" => {
                    format!("u_str {inode} {} {pids:?}", socket["peer_inode"].as_u64().unwrap_or(0))
                }
                "unix_dgram" => {
                    format!("u_dgr {inode} {} {pids:?}", socket["peer_inode"].as_u64().unwrap_or(0))
                }
                "unix_seqpacket" => {
                    format!("u_seq {inode} {} {pids:?}", socket["peer_inode"].as_u64().unwrap_or(0))
                }
                kind => {
                    let name = kind.trim_end_matches('6');
                    let state = match (name, state) {
                        ("udp", "close") => "UNCONN",
                        (_, "established") => "ESTAB",
                        (_, "listen") => "LISTEN",
                        (_, "fin_wait1") => "FIN-WAIT-1",
                        (_, "fin_wait2") => "FIN-WAIT-2",
                        (_, "close_wait") => "CLOSE-WAIT",
                        (_, "last_ack") => "LAST-ACK",
                        (_, other) => other,
                    };
                    format!("{name} {inode} {state} {pids:?}")
                }
            }
        })
        .collect()
}

/// How often two looks are repeated that disagree: other tests fork, and for a moment a child holds their sockets too.
const ATTEMPTS: usize = 40;

/// What stays there while both look is seen by both. How many sockets that were.
pub(crate) fn assert_same(home: &Home, namespace_of: Option<u32>, namespace: u64) -> usize {
    let mut doubts = String::new();
    for _ in 0..ATTEMPTS {
        let first = ours(&scan(home), namespace);
        let theirs = ss(namespace_of);
        let second = ours(&scan(home), namespace);
        let again = ss(namespace_of);
        // ss itself and the scan come and go; what both of its runs list is there to stay.
        let missing: Vec<&String> =
            theirs.intersection(&again).filter(|words| !second.contains(*words)).collect();
        let surplus: Vec<&String> =
            first.intersection(&second).filter(|words| !theirs.contains(*words)).collect();
        if missing.is_empty() && surplus.is_empty() {
            return second.len();
        }
        doubts = format!("only ss: {missing:#?}, only scan: {surplus:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{doubts}");
}

#[test]
fn lists_what_ss_lists_in_two_network_namespaces() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let [host, port] = host_port(&server.tcp);
    let over_tcp = Held::start("nc", &[host, port]);
    let path = home.path("echo.sock");
    let over_unix = Held::start("nc", &["-U", path.to_str().unwrap()]);
    let redis = home.path("redis.sock");
    let _redis = Held::redis(&home, 0, &redis, &[]);
    let (tcp, found) = connection_of(&home, over_tcp.pid());
    assert_eq!(tcp["kind"], "tcp");
    let (unix, _) = connection_of(&home, over_unix.pid());
    assert_eq!(
        (unix["kind"].as_str(), unix["server"]["address"].as_str()),
        (Some("unix_stream"), path.to_str())
    );
    let own = found["network_namespaces"][0]["inode"].as_u64().unwrap();
    assert_same(&home, None, own);
    if !is_root() {
        not_tested("without root: sockets in a second network namespace");
        return;
    }
    let other = home.path("other.sock");
    let script = format!(
        "ip link set lo up; exec {SAMEHOST} serve echo --listen tcp:127.0.0.1:7001 --listen unix:{}",
        other.display()
    );
    let second = Held::start("unshare", &["-n", "sh", "-c", &script]);
    wait_for("the server", || std::os::unix::net::UnixStream::connect(&other).ok());
    let pid = second.pid().to_string();
    let client = Held::start("nsenter", &["-t", &pid, "-n", "nc", "127.0.0.1", "7001"]);
    // A Unix socket with a path is reached from the first namespace as well.
    let across = Held::start("nc", &["-U", other.to_str().unwrap()]);
    let (inside, found) = connection_of(&home, client.pid());
    let namespace = inside["network_namespace"].as_u64().unwrap();
    assert_ne!(namespace, own);
    assert!(has_pid(&inside["server"], second.pid()));
    let service = &found["services"][inside["service"].as_u64().unwrap() as usize];
    assert_eq!(
        (service["kind"].as_str(), service["network_namespace"].as_u64()),
        (Some("samehost"), Some(namespace))
    );
    // The kernel puts the accepted end into the namespace of the client; the service is the other one's all the same.
    let (crossing, found) = connection_of(&home, across.pid());
    assert_eq!(crossing["network_namespace"].as_u64(), Some(own));
    let service = &found["services"][crossing["service"].as_u64().unwrap() as usize];
    assert_eq!(service["pid"].as_u64(), Some(u64::from(second.pid())));
    assert!(assert_same(&home, Some(second.pid()), namespace) >= 5);
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let home = Home::new();
    let program = home.path("run").join(OsStr::from_bytes(b"a\x1b[2J\n\xffb"));
    std::os::unix::fs::symlink(SAMEHOST, &program).unwrap();
    let socket = home.path("e\u{1b}[31mvil\n.sock");
    let listen = format!("unix:{}", socket.display());
    let _server =
        Held::start(&program, &["serve", "echo", "--listen", &listen, "--listen", "tcp:127.0.0.1:0"]);
    wait_for("the server", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let output = home.command(&["scan"]).env("COLUMNS", "80").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("valid UTF-8");
    assert!(text.contains("vil") && !text.contains('\u{1b}'), "{text:?}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let found = scan(&home);
    let names: Vec<&str> =
        found["processes"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(names.contains(&"a\u{1b}[2J\n\\xffb"), "{names:?}");
    fs::remove_file(program).unwrap();
}

#[test]
fn a_name_or_a_port_leaves_its_pairs_with_their_notes_in_full() {
    let home = Home::new();
    let server = home.serve("echo", &["--backlog", "1"]);
    let [host, port] = host_port(&server.tcp);
    let client = Held::start("nc", &[host, port]);
    connection_of(&home, client.pid());
    let whole = home.run(&["scan"]).stdout;
    assert!(whole.contains("• backlog: the backlog is only 1, and clients here"), "{whole}");
    assert!(whole.contains("samehost explain CODE") && !whole.contains("and restart it"), "{whole}");
    for filter in [&[port][..], &["samehost"], &["nc"]] {
        let shown = home.run(&[&["scan"], filter].concat());
        assert_eq!(shown.status, 0, "{}", shown.stderr);
        assert!(shown.stdout.contains(&server.tcp), "{filter:?}: {}", shown.stdout);
        let words = shown.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("Set the service's backlog to 512 or more, and restart it"), "{words}");
        let json: Value =
            serde_json::from_str(&home.run(&[&["scan", "--json"], filter].concat()).stdout).unwrap();
        // Other tests' programs have these names as well: ours is among them, and nobody else's is.
        let advice = json["advice"].as_array().unwrap();
        let ours = advice
            .iter()
            .filter(|advice| advice["client_pids"].as_array().unwrap().contains(&Value::from(client.pid())));
        assert_eq!(ours.count(), 1, "{filter:?}: {advice:?}");
        for advice in advice {
            let service = &json["services"][advice["service"].as_u64().unwrap() as usize];
            let names = [&advice["client"], &service["name"]].map(Value::to_string);
            let is_asked_for = filter[0] == port || names.iter().any(|name| name.contains(filter[0]));
            assert!(is_asked_for, "{filter:?}: {advice}");
        }
    }
    let none = home.run(&["scan", "no-such-service"]);
    assert!(
        none.status == 0 && none.stdout.contains("Nothing of that name or port is here."),
        "{}",
        none.stdout
    );
    assert_eq!(home.run(&["scan", "nc", "--every", "1s"]).status, 2);
}

#[test]
fn every_code_is_explained_with_what_is_here() {
    let home = Home::new();
    let listed = home.run(&["explain"]).stdout;
    for one in samehost_scan::EXPLANATIONS.iter() {
        assert!(listed.contains(one.code), "{}: {listed}", one.code);
    }
    let server = home.serve("echo", &["--backlog", "1"]);
    let [host, port] = host_port(&server.tcp);
    let client = Held::start("nc", &[host, port]);
    connection_of(&home, client.pid());
    let told = home.run(&["explain", "backlog"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("nc → samehost serve: the backlog is only 1"), "{told}");
    assert!(told.contains("matters Where more clients") && told.contains("undo Remove"), "{told}");
    assert_eq!(home.run(&["explain", "no-such-code"]).status, 2);
    // An error that names the place of a server here, and one that names nobody's.
    let refused = home.run(&["explain", &format!("Error: connect ECONNREFUSED {host}:{port}")]).stdout;
    let refused = refused.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(refused.contains("refused: Nobody listens at the address"), "{refused}");
    assert!(refused.contains(&format!("tcp:{host}:{port}: samehost serve")), "{refused}");
    let path = home.path("none/x.sock").display().to_string();
    let absent =
        home.run(&["explain", "dial", "unix", &format!("{path}:"), "connect:", "no such file or directory"]);
    let absent = absent.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(absent.contains("no-such-path:") && absent.contains("nobody listens there"), "{absent}");
    assert!(absent.contains("/none is not there"), "{absent}");
}

#[test]
fn an_ordinary_user_sees_some_and_is_told_the_rest() {
    if !is_root() {
        not_tested("without root: becoming another user");
        return;
    }
    let home = Home::new();
    let _server = home.serve("echo", &[]);
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", SAMEHOST, "scan"];
    let output = Command::new("setpriv").args(nobody).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("ordinary user") && text.contains("sudo samehost scan"), "{text}");
}

#[test]
fn a_hop_that_is_not_as_a_file_expects_is_named_and_exits_with_1() {
    let home = Home::new();
    let port = free_port();
    let _server = Held::redis(&home, port, &home.path("r.sock"), &[]);
    let port = port.to_string();
    let client = Held::start("nc", &["127.0.0.1", &port]);
    connection_of(&home, client.pid());
    let file = home.path("expected");
    let name = file.display().to_string();
    let scan = |rules: &str, more: &[&str]| {
        fs::write(&file, rules).unwrap();
        home.run(&[&["scan", "--expect", &name], more].concat())
    };
    let found = scan("redis unix # as set up\n", &["--json"]);
    assert_eq!(found.status, 1, "{}", found.stderr);
    let json: Value = serde_json::from_str(&found.stdout).unwrap();
    let endpoint = format!("tcp:127.0.0.1:{port}");
    let ours = |one: &&Value| one["endpoint"] == endpoint.as_str();
    let unexpected = json["unexpected"].as_array().unwrap();
    assert_eq!(unexpected.iter().filter(ours).count(), 1, "{json:#}");
    let told = scan("redis unix\n", &[]);
    let words = told.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.status == 1 && words.contains(&format!("{endpoint}, 1 connection; expected over unix")),
        "{words}"
    );
    let metrics = scan("redis unix\nmemcached tcp\n", &["--prometheus", "-"]);
    assert_eq!(metrics.status, 1);
    assert!(
        metrics.stdout.contains("samehost_hops_unexpected{samehost_service=\"redis\"}"),
        "{}",
        metrics.stdout
    );

    // Other tests' clients of Redis may be there as well; ours is excepted.
    let excepted = scan("redis unix except nc\n", &["--json"]);
    assert!(!excepted.stdout.contains(&endpoint), "{}", excepted.stdout);
    let wrong = scan("redis unix\nredis tcp\n", &[]);
    assert!(wrong.status == 2 && wrong.stderr.contains("line 2"), "{}", wrong.stderr);
    assert_eq!(home.run(&["scan", "--expect", "/nowhere/expected"]).status, 2);
}

#[test]
fn a_connection_that_opens_while_traffic_is_observed_and_stays_is_seen() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let [host, port] = host_port(&server.tcp);
    let observing = std::thread::spawn({
        let mut command = home.command(&["scan", "--json", "--quiet", "--observe", "3s"]);
        move || command.output().unwrap()
    });
    // After the first look. On a machine where that takes longer, it sees the connection itself.
    std::thread::sleep(Duration::from_millis(1500));
    let client = Held::start("nc", &[host, port]);
    connection_of(&home, client.pid());
    let found: Value = serde_json::from_slice(&observing.join().unwrap().stdout).unwrap();
    let now = format!("tcp:{host}:{port}");
    let hop = found["advice"].as_array().unwrap().iter().find(|one| one["now"] == now.as_str());
    let hop = hop.unwrap_or_else(|| panic!("{now}: {:#}", found["advice"]));
    assert_eq!((&hop["client_pids"][0], &hop["connections"]), (&Value::from(client.pid()), &Value::from(1)));
}

#[test]
fn an_observation_ends_in_time_and_without_a_price_it_says_what_finds_one() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let mut stream = TcpStream::connect(server.tcp.trim_start_matches("tcp:")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                stream.write_all(&[7]).unwrap();
                stream.read_exact(&mut [0]).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let begun = Instant::now();
    home.run(&["scan"]);
    let plain = begun.elapsed();
    let (how, when) = ("samehost checkup, as this", "Priced by the checkup of 2026-11-28 14:03 UTC.");
    for (stored, says) in [(None, how), (Some("6.0.0-other".to_owned()), how), (Some(kernel()), when)] {
        if let Some(kernel) = stored {
            home.store_prices(&kernel);
        }
        let begun = Instant::now();
        let ended = home.run(&["scan", "--observe", "1s"]);
        let took = begun.elapsed();
        assert!(ended.status == 0 && ended.stdout.contains(says), "{}", ended.both());
        let most = Duration::from_secs(5) + plain * 4;
        assert!(took < most, "{took:?}, a plain one {plain:?}");
    }
    stop.store(true, Ordering::Relaxed);
    busy.join().unwrap();
}

/// The advice on the clients of a server, from a second of observation while a client is busy.
fn observed(home: &Home, server: &str, busy: JoinHandle<()>, stop: &AtomicBool) -> Value {
    home.store_prices(&kernel());
    let ended = home.run(&["scan", "--json", "--quiet", "--observe", "1s"]);
    stop.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    crate::schemas::assert_valid(&found);
    found["advice"].as_array().unwrap().iter().find(|one| one["now"] == server).unwrap().clone()
}

#[test]
fn observed_traffic_is_counted_and_priced() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let mut stream = TcpStream::connect(server.tcp.trim_start_matches("tcp:")).unwrap();
    stream.set_nodelay(true).unwrap();
    let busy = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut reply = [0; 128];
            while !stop.load(Ordering::Relaxed) {
                stream.write_all(&[7; 128]).unwrap();
                stream.read_exact(&mut reply).unwrap();
            }
        }
    });
    let found = observed(&home, &server.tcp, busy, &stop);
    let (traffic, saving) = (&found["traffic"], &found["saving"]);
    let number = |value: &Value| value.as_f64().unwrap();
    // Each round trip is 128 bytes there and back, and at least two segments.
    let per_trip = number(&traffic["bytes_per_s"]) / number(&traffic["round_trips_per_s"]);
    assert!((200.0..320.0).contains(&per_trip), "{traffic}");
    assert!(
        number(&traffic["segments_per_s"]) >= 2.0 * number(&traffic["round_trips_per_s"]) * 0.99,
        "{traffic}"
    );
    assert!(
        number(&saving["cpu_us_per_request"]["high"]) >= number(&saving["cpu_us_per_request"]["low"]),
        "{saving}"
    );
    let most = number(&traffic["round_trips_per_s"]) * (1.0 + number(&traffic["rate_error"]));
    let day = number(&saving["cpu_us_per_request"]["high"]) * most * 0.0864;
    assert!((number(&saving["cpu_s_per_day"]["high"]) / day - 1.0).abs() < 1e-6, "{saving}");
}

#[test]
fn short_connections_are_heard_of_as_they_end() {
    const ROUND_TRIPS: u32 = 3;
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let address = server.tcp.trim_start_matches("tcp:").to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut reply = [0; 100];
            while !stop.load(Ordering::Relaxed) {
                let mut stream = TcpStream::connect(&address).unwrap();
                for _ in 0..ROUND_TRIPS {
                    stream.write_all(&[7; 100]).unwrap();
                    stream.read_exact(&mut reply).unwrap();
                }
                drop(stream);
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    let found = observed(&home, &server.tcp, busy, &stop);
    let (traffic, saving) = (&found["traffic"], &found["saving"]);
    let connections = traffic["short_connections_per_s"].as_f64().unwrap();
    assert!(connections > 1.0, "{traffic}");
    if !is_root() {
        assert!(traffic["short"].is_null(), "the kernel tells root only: {traffic}");
        not_tested("without root: what short connections did");
        return;
    }
    let each = traffic["short"]["round_trips_per_s"].as_f64().unwrap() / connections;
    assert!((each - f64::from(ROUND_TRIPS)).abs() < 0.2, "{traffic}");
    let bytes = traffic["short"]["bytes_per_s"].as_f64().unwrap() / connections;
    assert!((600.0..610.0).contains(&bytes), "the SYN and the FIN count as bytes: {traffic}");
    let saved = &saving["us_per_short_connection"];
    assert!(saved["high"].as_f64().unwrap() >= saved["low"].as_f64().unwrap(), "{saving}");
}
