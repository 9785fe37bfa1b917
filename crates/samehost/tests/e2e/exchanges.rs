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
use samehost_testing::free_port;
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
struct Talk {
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

fn over_unix(path: &Path) -> (UnixListener, Talk) {
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
    let line = "How long requests take is not measured: it takes root, or CAP_BPF and CAP_PERFMON.";
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
