//! How long requests take, as `scan --observe` says it: against the clock of the client, against what Redis counts, and without
//! the rights.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use samehost_scan::{Observer, Timed};
use samehost_stats::ranks::SignedRank;
use samehost_testing::free_port;
use samehost_testing::postgres::Cluster;
use serde_json::Value;

use crate::scan::{Held, is_root};
use crate::schemas::assert_valid;
use crate::support::{Ended, Home, SAMEHOST, not_tested, rest, send, wait_for};

/// How long a server works on each request.
const WORK: Duration = Duration::from_micros(500);
/// Tries of what the other tests may disturb.
const TRIES: usize = 5;

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A server and a client of this process, one request at a time, until this is dropped.
pub(crate) struct Talk {
    clock: Arc<Clock>,
    threads: Vec<JoinHandle<()>>,
}

/// What the client's clock says.
#[derive(Default)]
struct Clock {
    ends: AtomicBool,
    nanoseconds: AtomicU64,
    requests: AtomicU64,
}

impl Talk {
    fn start(mut client: Box<dyn Stream>, mut server: Box<dyn Stream>) -> Self {
        let clock = Arc::new(Clock::default());
        let own = Arc::clone(&clock);
        let server = std::thread::spawn(move || {
            let mut request = [0; 64];
            while server.read_exact(&mut request).is_ok() {
                std::thread::sleep(WORK);
                if server.write_all(&request).is_err() {
                    return;
                }
            }
        });
        let client = std::thread::spawn(move || {
            while !own.ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                client.write_all(&[7; 64]).unwrap();
                client.read_exact(&mut [0; 64]).unwrap();
                own.nanoseconds.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
                own.requests.fetch_add(1, Ordering::Relaxed);
            }
        });
        Talk { clock, threads: vec![client, server] }
    }

    /// All nanoseconds and requests so far.
    fn so_far(&self) -> [f64; 2] {
        [&self.clock.nanoseconds, &self.clock.requests].map(|number| number.load(Ordering::Relaxed) as f64)
    }

    /// The mean since then, in microseconds.
    fn mean_since(&self, [nanoseconds, requests]: [f64; 2]) -> f64 {
        let now = self.so_far();
        (now[0] - nanoseconds) / (now[1] - requests) / 1000.0
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.clock.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn over_tcp() -> (TcpListener, Talk) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for end in [&client, &server] {
        end.set_nodelay(true).unwrap();
    }
    (listener, Talk::start(Box::new(client), Box::new(server)))
}

pub(crate) fn over_unix(path: &Path) -> (UnixListener, Talk) {
    let listener = UnixListener::bind(path).unwrap();
    let client = UnixStream::connect(path).unwrap();
    let (server, _) = listener.accept().unwrap();
    (listener, Talk::start(Box::new(client), Box::new(server)))
}

/// A scan that observes until it is told to end.
struct Observing(Child);

impl Observing {
    /// Starts it, and waits until it measures.
    fn start(home: &Home, options: &[&str]) -> Self {
        let mut command = home.command(&["scan", "--observe", "10m", "--quiet"]);
        let child = command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let observing = Observing(child);
        let pid = observing.0.id();
        wait_for("its programs in the kernel", || (programs(pid) >= 4).then_some(()));
        observing
    }

    fn end(mut self) -> Ended {
        send(self.0.id(), Signal::INT);
        let stdout = rest(self.0.stdout.take().unwrap());
        let stderr = rest(self.0.stderr.take().unwrap());
        let status = self.0.wait().unwrap().code().unwrap_or(-1);
        Ended { status, stdout, stderr }
    }

    fn found(self) -> Value {
        let ended = self.end();
        let found = serde_json::from_str(&ended.stdout);
        let found = found.unwrap_or_else(|error| panic!("{error}: {}", ended.both()));
        assert_valid(&found);
        found
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Programs that a process has in the kernel.
fn programs(pid: u32) -> usize {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let places = descriptors.flatten().filter_map(|one| std::fs::read_link(one.path()).ok());
    places.filter(|place| place.to_string_lossy().contains("bpf-prog")).count()
}

/// The exchanges of a service over a kind of socket.
fn pairs<'a>(found: &'a Value, pid: u32, kind: &str) -> Vec<&'a Value> {
    let services = found["services"].as_array().unwrap();
    let is_its = |pair: &&Value| {
        let service = &services[pair["service"].as_u64().unwrap() as usize];
        service["pid"] == pid && pair["kind"] == kind
    };
    found["exchanges"]["pairs"].as_array().unwrap().iter().filter(is_its).collect()
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("{name}: {of}"))
}

#[test]
fn a_time_is_that_of_the_clients_clock_over_both_transports_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take");
        return;
    }
    let is_kept = (0..TRIES).any(|_| {
        let home = Home::new();
        let (_tcp, tcp) = over_tcp();
        let (_unix, unix) = over_unix(&home.path("a.sock"));
        let observing = Observing::start(&home, &["--exact", "--json"]);
        let before = [tcp.so_far(), unix.so_far()];
        std::thread::sleep(Duration::from_secs(3));
        let clocks = [tcp.mean_since(before[0]), unix.mean_since(before[1])];
        let found = observing.found();
        let mode = found["exchanges"]["mode"].as_str().unwrap();
        assert!(["entries", "system_calls"].contains(&mode), "{mode}");
        ["tcp", "unix_stream"].into_iter().zip(clocks).all(|(kind, clock)| {
            let pairs = pairs(&found, std::process::id(), kind);
            assert_eq!(pairs.len(), 1, "{kind}: {}", found["exchanges"]);
            let (first, parts) = (&pairs[0]["first"], &pairs[0]["parts"]);
            let mean = number(first, "mean_us");
            let names = ["way_there_us", "waiting_us", "work_us", "way_back_us", "client_us"];
            let sum: f64 = names.iter().map(|name| number(parts, name)).sum();
            assert!(number(first, "count") > 500.0 && number(parts, "work_us") >= 500.0, "{first} {parts}");
            (mean - clock).abs() <= (0.05 * clock).max(3.0) && (sum - mean).abs() <= (0.02 * mean).max(1.5)
        })
    });
    assert!(is_kept, "each time something was wrong");
}

#[test]
fn without_a_beginning_no_transports_are_compared_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take");
        return;
    }
    let home = Home::new();
    let (_listener, _talk) = over_unix(&home.path("a.sock"));
    let observing = Observing::start(&home, &[]);
    std::thread::sleep(Duration::from_secs(1));
    let shown = observing.end().stdout;
    assert!(shown.contains("How long requests take"), "{shown}");
    if shown.contains("after the request arrived") {
        assert!(shown.contains("way there") && !shown.contains(": hop "), "{shown}");
    } else {
        assert!(shown.contains(": hop "), "{shown}");
    }
}

#[test]
fn the_advice_says_what_part_the_hop_is_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take");
        return;
    }
    let home = Home::new();
    let (_listener, _talk) = over_tcp();
    let observing = Observing::start(&home, &["--exact"]);
    std::thread::sleep(Duration::from_secs(1));
    let shown = observing.end().stdout;
    assert!(shown.contains("a request takes ") && shown.contains("of which the hop "), "{shown}");
}

#[test]
fn who_connects_to_a_unix_socket_is_named_and_a_late_server_is_found_as_root() {
    if !is_root() {
        not_tested("without root: who connects to Unix sockets");
        return;
    }
    let home = Home::new();
    let path = home.path("late.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let ends = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let _accepted = listener.accept();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        scope.spawn(|| {
            // More than are accepted, so that each comes behind one that waits.
            while !ends.load(Ordering::Relaxed) {
                drop(UnixStream::connect(&path));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let observing = Observing::start(&home, &["--json"]);
        std::thread::sleep(Duration::from_secs(2));
        let found = observing.found();
        ends.store(true, Ordering::Relaxed);
        let _last = UnixStream::connect(&path);
        found
    });
    let place = path.to_str().unwrap();
    let openers = found["exchanges"]["unix_openers"].as_array().unwrap();
    let own: Vec<&Value> = openers.iter().filter(|one| one["socket"] == place).collect();
    assert_eq!(own.len(), 1, "{openers:?}");
    assert_eq!(own[0]["pid"], std::process::id());
    assert!(number(own[0], "connections_per_s") > 5.0, "{openers:?}");
    let findings = found["findings"].as_array().unwrap();
    let is_it =
        |one: &&Value| one["code"] == "slow-accept" && one["subject"].as_str().unwrap().contains(place);
    assert_eq!(findings.iter().filter(is_it).count(), 1, "{findings:?}");
}

#[test]
fn who_may_not_load_a_program_is_told_what_is_missing() {
    let home = Home::new();
    let mut command = Command::new("setpriv");
    if is_root() {
        command.arg("--bounding-set=-bpf,-perfmon,-sys_admin");
    } else {
        command.arg("--no-new-privs");
    }
    let ended = Ended::of(
        &command
            .args([SAMEHOST, "scan", "--observe", "1s", "--quiet", "no such service"])
            .env("XDG_RUNTIME_DIR", home.path("run"))
            .env("COLUMNS", "200")
            .stdin(Stdio::null())
            .output()
            .unwrap(),
    );
    assert_eq!(ended.status, 0, "{}", ended.both());
    let line = if is_root() {
        "How long requests take is not measured: bpf(2) takes CAP_BPF and CAP_PERFMON, which this root has not;"
    } else {
        "How long requests take is not measured: bpf(2) takes root, or CAP_BPF and CAP_PERFMON; try as root (sudo)."
    };
    assert!(ended.stdout.contains(line), "{}", ended.both());
}

/// Commands of one kind that a Redis has run.
fn calls(socket: &Path, command: &str) -> f64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"INFO commandstats\r\nQUIT\r\n").unwrap();
    let text = rest(stream);
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0.0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// A benchmark that is stopped before it has done much.
fn stopped(options: &[&str], command: &str) -> Held {
    let benchmark =
        Held::start("redis-benchmark", &[options, &["-n", "50000", "-c", "2", "-t", command]].concat());
    std::thread::sleep(Duration::from_millis(150));
    send(benchmark.pid(), Signal::STOP);
    benchmark
}

#[test]
fn a_redis_counts_as_many_over_both_transports_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take");
        return;
    }
    let home = Home::new();
    let (port, socket) = (free_port(), home.path("redis.sock"));
    let redis = Held::redis(&home, port, &socket, &[]);
    let by_port = port.to_string();
    let mut over_tcp = stopped(&["-p", &by_port], "get");
    let mut over_unix = stopped(&["-s", socket.to_str().unwrap()], "set");
    let before = ["get", "set"].map(|command| calls(&socket, command));
    let observing = Observing::start(&home, &["--json"]);
    // All sockets have been named by then.
    std::thread::sleep(Duration::from_secs(1));
    for benchmark in [&mut over_tcp, &mut over_unix] {
        send(benchmark.pid(), Signal::CONT);
    }
    for benchmark in [&mut over_tcp, &mut over_unix] {
        wait_for("the end of a benchmark", || benchmark.has_ended().then_some(()));
    }
    let after = ["get", "set"].map(|command| calls(&socket, command));
    let found = observing.found();
    let seconds = number(&found["exchanges"], "seconds");
    for (kind, at) in [("tcp", 0), ("unix_stream", 1)] {
        let mut seen = 0.0;
        for pair in pairs(&found, redis.pid(), kind) {
            if pair["client"] == "redis-benchmark" {
                seen += number(pair, "exchanges_per_s") * seconds;
            }
        }
        let run = after[at] - before[at];
        assert!(run > 5000.0, "{kind}: {run} were left");
        assert!((seen / run - 1.0).abs() <= 0.02, "{kind}: {seen} seen of {run}; {}", found["exchanges"]);
    }
}

/// CPU time of all threads of a process, in nanoseconds.
fn cpu_time(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let mut all = 0.0;
    for thread in threads {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        all += text.split(' ').next().and_then(|first| first.parse::<f64>().ok()).unwrap_or(0.0);
    }
    all
}

/// Nanoseconds of CPU time of both processes for each command that the Redis ran in a slice.
fn slice(socket: &Path, pids: [u32; 2]) -> f64 {
    let so_far = || [calls(socket, "get"), cpu_time(pids[0]) + cpu_time(pids[1])];
    let before = so_far();
    std::thread::sleep(Duration::from_millis(200));
    let after = so_far();
    (after[1] - before[1]) / (after[0] - before[0])
}

/// What it costs a saturated Redis to be looked at, which nothing here asserts: `cargo xtask evidence watching` prints it.
#[test]
#[allow(clippy::print_stdout, reason = "the figures are for a reader")]
fn a_redis_that_is_watched_goes_on_as_root() {
    if !is_root() {
        not_tested("without root: what it costs to be looked at");
        return;
    }
    let blocks = std::env::var("SAMEHOST_BLOCKS").ok().and_then(|number| number.parse().ok()).unwrap_or(2);
    let home = Home::new();
    let (port, socket) = (free_port(), home.path("redis.sock"));
    let redis = Held::redis(&home, port, &socket, &[]);
    let by_port = port.to_string();
    for (kind, place) in [("tcp", ["-p", &by_port]), ("unix", ["-s", socket.to_str().unwrap()])] {
        let load = [&place[..], &["-n", "1000000000", "-c", "50", "-t", "get"]].concat();
        let mut benchmark = Held::start("redis-benchmark", &load);
        let pids = [redis.pid(), benchmark.pid()];
        wait_for("the load", || (calls(&socket, "get") > 0.0).then(|| slice(&socket, pids)));
        for timed in [Timed::Cheaply, Timed::Exactly] {
            let mut logarithms = Vec::new();
            let mut without = Vec::new();
            for block in 0..blocks {
                let mut pair = [0.0; 2];
                // Either comes first in every other block.
                for is_watched in if block % 2 == 0 { [false, true] } else { [true, false] } {
                    let mut observer = Observer::new(timed);
                    if is_watched {
                        let mut scan = samehost_scan::collect("0").unwrap();
                        samehost_scan::advise(&mut scan);
                        observer.measure(&mut scan);
                        assert!(scan.exchanges.unwrap().mode.is_some());
                    }
                    pair[usize::from(is_watched)] = slice(&socket, pids);
                }
                logarithms.push((pair[1] / pair[0]).ln());
                without.push(pair[0]);
            }
            let ranks = SignedRank::new(&logarithms);
            let (ratio, interval) = (ranks.estimate().unwrap().exp(), ranks.interval(0.95));
            let (low, high) =
                interval.map_or((0.0, 0.0), |interval| (interval.low.exp(), interval.high.exp()));
            without.sort_by(f64::total_cmp);
            println!(
                "watched: {kind}, {timed:?}: {blocks} blocks, CPU time of both a request {ratio:.3} ({low:.3} to {high:.3}) of {:.2} µs",
                without[without.len() / 2] / 1000.0
            );
        }
        assert!(!benchmark.has_ended());
    }
}

/// A pgbench whose transactions are one statement each, the first of which waits until the lock is free.
fn pgbench(home: &Home, host: &str, port: u16) -> Held {
    let script = home.path("locked.sql");
    std::fs::write(&script, "SELECT pg_advisory_xact_lock_shared(7);\n").unwrap();
    let [port, script] = [port.to_string(), script.display().to_string()];
    let own = ["-n", "-c", "1", "-t", "2000", "-U", "by_trust", "-h", host, "-p", &port, "-f", &script];
    Held::start("pgbench", &[&own[..], &["shop"]].concat())
}

#[test]
fn a_postgres_has_as_many_exchanges_as_its_client_has_transactions_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take");
        return;
    }
    let home = Home::new();
    let cluster = Cluster::start(20);
    let socket = cluster.socket();
    let directory = Path::new(socket.trim_start_matches("unix:")).parent().unwrap().display().to_string();
    let mut lock = Command::new("psql")
        .args(["-qAt", "-h", &directory, "-p", &cluster.port.to_string(), "-U", "admin", "shop"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    lock.stdin.as_mut().unwrap().write_all(b"SELECT pg_advisory_lock(7);\n").unwrap();
    let locks = |is_granted: &str| {
        let all = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND";
        cluster.sql("shop", &format!("{all} {is_granted}"))
    };
    wait_for("the lock", || (locks("granted") == "1").then_some(()));
    let mut clients = ["127.0.0.1", &directory].map(|host| pgbench(&home, host, cluster.port));
    wait_for("both to wait", || (locks("NOT granted") == "2").then_some(()));
    let observing = Observing::start(&home, &["--json"]);
    std::thread::sleep(Duration::from_secs(1));
    drop(lock.stdin.take());
    lock.wait().unwrap();
    for client in &mut clients {
        wait_for("the end of pgbench", || client.has_ended().then_some(()));
    }
    let found = observing.found();
    let seconds = number(&found["exchanges"], "seconds");
    let pairs = found["exchanges"]["pairs"].as_array().unwrap();
    for kind in ["tcp", "unix_stream"] {
        let own: Vec<&Value> =
            pairs.iter().filter(|pair| pair["client"] == "pgbench" && pair["kind"] == kind).collect();
        let seen: f64 = own.iter().map(|pair| number(pair, "exchanges_per_s") * seconds).sum();
        // What was sent before it was looked at is not among them.
        assert!((seen / 2000.0 - 1.0).abs() <= 0.02, "{kind}: {seen} of 2000; {}", found["exchanges"]);
        assert!(own.iter().all(|pair| pair["no_time"].is_null()), "{own:?}");
    }
}

/// A private nginx that speaks HTTP/2 without TLS on a port and on a Unix socket, and counts its requests at `/status`.
struct Http2 {
    home: Home,
    port: u16,
    nginx: Held,
}

impl Http2 {
    fn start() -> Self {
        let (home, port) = (Home::new(), free_port());
        let folder = home.path("").display().to_string();
        let mut text = format!(
            "daemon off; master_process off; pid {folder}/pid; error_log {folder}/log; events {{}}\nhttp {{ access_log off; keepalive_requests 10000000;\n"
        );
        for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            text.push_str(&format!("{name}_temp_path {folder}/{name};\n"));
        }
        text.push_str(&format!(
            "server {{ listen 127.0.0.1:{port} http2; location / {{ return 200 'ok'; }} }}\nserver {{ listen unix:{folder}/status.sock; location / {{ stub_status; }} }} }}\n"
        ));
        let conf = home.path("nginx.conf");
        std::fs::write(&conf, text).unwrap();
        let nginx = Held::start("/usr/sbin/nginx", &["-c", conf.to_str().unwrap()]);
        wait_for("nginx", || TcpStream::connect(("127.0.0.1", port)).ok());
        Http2 { home, port, nginx }
    }

    /// Requests so far.
    fn requests(&self) -> f64 {
        let mut stream = UnixStream::connect(self.home.path("status.sock")).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let text = rest(stream);
        let line = text.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    }

    /// What is seen of a client with so many requests at once on one connection: the pair, how many exchanges, and how many requests
    /// the server counted meanwhile.
    fn asked(&self, at_once: &str) -> (Value, f64, f64) {
        let url = format!("http://127.0.0.1:{}/", self.port);
        let mut client = Held::start("h2load", &["-n", "60000", "-c", "1", "-m", at_once, &url]);
        std::thread::sleep(Duration::from_millis(150));
        send(client.pid(), Signal::STOP);
        let before = self.requests();
        let observing = Observing::start(&self.home, &["--json"]);
        // All sockets have been named by then.
        std::thread::sleep(Duration::from_secs(1));
        send(client.pid(), Signal::CONT);
        wait_for("the end of h2load", || client.has_ended().then_some(()));
        let requests = self.requests() - before;
        let found = observing.found();
        let pairs = pairs(&found, self.nginx.pid(), "tcp");
        let pair = pairs.into_iter().find(|pair| pair["client"] == "h2load");
        let pair = pair.unwrap_or_else(|| panic!("{}", found["exchanges"])).clone();
        let seen = number(&pair, "exchanges_per_s") * number(&found["exchanges"], "seconds");
        (pair, seen, requests)
    }
}

#[test]
fn http2_has_times_one_at_a_time_and_none_of_a_request_where_many_share_a_connection_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take");
        return;
    }
    let http2 = Http2::start();
    let (pair, seen, requests) = http2.asked("1");
    // The request for the count is one of them.
    assert!(requests > 5000.0 && (seen / requests - 1.0).abs() <= 0.02, "{seen} of {requests}; {pair}");
    assert!(pair["no_time"].is_null() && number(&pair["first"], "mean_us") > 0.0, "{pair}");
    let (pair, seen, requests) = http2.asked("16");
    // What is in one write is one exchange; whatever is taken apart of it overlaps.
    let is_refused = pair["no_time"] == "overlapping" && pair["first"].is_null();
    assert!(requests > 5000.0 && (is_refused || seen * 4.0 < requests), "{seen} of {requests}; {pair}");
}

/// The only pair of a program with the service of a process, over TCP.
fn pair_of(found: &Value, service: u32, client: &str) -> Value {
    let all = pairs(found, service, "tcp");
    let pair = all.into_iter().find(|pair| pair["client"] == client);
    pair.unwrap_or_else(|| panic!("{client}: {}", found["exchanges"])).clone()
}

#[test]
fn a_subscriber_and_a_replica_of_a_redis_have_no_times_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take");
        return;
    }
    let (home, of_replica) = (Home::new(), Home::new());
    let (port, socket) = (free_port(), home.path("redis.sock"));
    let redis = Held::redis(&home, port, &socket, &["--repl-diskless-sync-delay", "0"]);
    let by_port = port.to_string();
    let replica_socket = of_replica.path("replica.sock");
    let _replica = Held::redis(&of_replica, 0, &replica_socket, &["--replicaof", "127.0.0.1", &by_port]);
    let _subscriber = Held::start("redis-cli", &["-p", &by_port, "subscribe", "news"]);
    let ask = |command: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
        rest(stream)
    };
    wait_for("the replica", || ask("INFO replication").contains("state=online").then_some(()));
    wait_for("the subscriber", || ask("PUBSUB NUMSUB news").contains(":1").then_some(()));
    let observing = Observing::start(&home, &["--json"]);
    for number in 0..250 {
        ask(&format!("SET key {number}"));
        ask("PUBLISH news word");
        std::thread::sleep(Duration::from_millis(10));
    }
    let found = observing.found();
    let subscriber = pair_of(&found, redis.pid(), "redis-cli");
    assert!(subscriber["no_time"] == "unasked" && subscriber["first"].is_null(), "{subscriber}");
    let replica = pair_of(&found, redis.pid(), "redis-server");
    assert!(
        ["unasked", "streaming"].iter().any(|why| replica["no_time"] == *why) && replica["first"].is_null(),
        "{replica}"
    );
}

/// Listens, and takes each notice as it comes.
const LISTENER: &str = "import select, sys, psycopg2
db = psycopg2.connect(host='127.0.0.1', port=sys.argv[1], user='by_trust', dbname='shop')
db.autocommit = True
db.cursor().execute('LISTEN news')
open(sys.argv[2], 'w').write('.')
while True:
    select.select([db], [], [])
    db.poll()
";

#[test]
fn a_listener_of_a_postgres_has_no_times_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take");
        return;
    }
    let (home, cluster) = (Home::new(), Cluster::start(20));
    let listens = home.path("listens");
    let words = ["-c", LISTENER, &cluster.port.to_string(), listens.to_str().unwrap()];
    let _listener = Held::start("/usr/bin/python3", &words);
    wait_for("the listener", || listens.exists().then_some(()));
    let observing = Observing::start(&home, &["--json"]);
    let notices = "DO $$ BEGIN FOR i IN 1..100 LOOP PERFORM pg_notify('news', i::text); COMMIT; PERFORM pg_sleep(0.02); END LOOP; END $$";
    cluster.sql("shop", notices);
    let found = observing.found();
    let pairs = found["exchanges"]["pairs"].as_array().unwrap();
    let own: Vec<&Value> =
        pairs.iter().filter(|pair| pair["client"] == "python3" && pair["kind"] == "tcp").collect();
    assert_eq!(own.len(), 1, "{}", found["exchanges"]);
    assert!(own[0]["no_time"] == "unasked" && own[0]["first"].is_null(), "{}", own[0]);
}
