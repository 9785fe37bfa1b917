//! The rpc workload and `serve rpc` end to end: the built binary, real servers, tiny measurements.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use samehost_testing::{metered, must};
use serde_json::Value;

use super::support::{Here, TINY, UNTIMED, assert_faultless, assert_refused, parsed, said};
use crate::support::send;

const GO: &[&str] = &["go-gob", "go-json"];

/// A compiler's cache that the tests share, so that only the first of them compiles Go's standard library.
fn with_cache(command: &mut Command) -> &mut Command {
    command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"))
}

/// A tiny measurement that must succeed, and its report.
fn report(here: &Here, arguments: &[&str]) -> Value {
    report_of(here, &[arguments, TINY].concat())
}

fn report_of(here: &Here, arguments: &[&str]) -> Value {
    let output = with_cache(&mut here.bench(&[&["rpc"], arguments].concat())).output().unwrap();
    here.assert_nothing_left();
    parsed(&output)
}

/// What every report must have, the kernel's word of both transports among it.
fn assert_sound(report: &Value) {
    assert_faultless(report);
    for trial in report["trials"].as_array().unwrap() {
        let family = match trial["arm"].as_str().unwrap() {
            "noop" => continue,
            tcp if tcp.starts_with("tcp") => "AF_INET stream tcp, 127.0.0.1:",
            _ => "AF_UNIX stream /",
        };
        assert!(trial["transport_observed"].as_str().unwrap().starts_with(family), "{trial}");
        // Where other programs had all CPUs, a tiny trial may be over before its first call.
        if trial["operations"] == 0 {
            continue;
        }
        for cpu in ["client_cpu_us_per_op", "server_cpu_us_per_op"] {
            assert!(metered(trial, cpu).is_none_or(|cpu| cpu > 0.0), "{cpu}: {trial}");
        }
        assert!(trial["latency_us"]["mean"].as_f64().unwrap() > 0.0, "{trial}");
    }
}

#[test]
fn grpc_over_both_transports_of_one_process() {
    let report = report(&Here::new(), &["--connections", "1,4"]);
    assert_sound(&report);
    let server = &report["workload"]["server"];
    assert_eq!(server["kind"], "samehost serve rpc (tonic)");
    assert_eq!(server["managed"], true);
    assert_eq!(server["pids"].as_array().unwrap().len(), 1, "one process for both");
}

#[test]
fn grpc_payloads_of_any_size_and_a_rate() {
    let large = ["--size", "1,5m", "--connections", "2", "--trial-time", "300ms"];
    assert_sound(&report_of(&Here::new(), &[&large, UNTIMED].concat()));
    assert_sound(&report(&Here::new(), &["--size", "10", "--reply", "64k", "--connections", "2"]));
    let report = report(&Here::new(), &["--rate", "400", "--connections", "4"]);
    assert_sound(&report);
    for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
        let rate = trial["throughput_per_s"].as_f64().unwrap();
        assert!(rate < 800.0, "400 calls a second are due: {rate}");
    }
}

#[test]
fn go_over_both_transports_of_one_process() {
    for protocol in GO {
        let report = report(&Here::new(), &["--protocol", protocol, "--connections", "1,4"]);
        assert_sound(&report);
        let server = &report["workload"]["server"];
        assert!(server["version"].as_str().unwrap().starts_with("go1."), "{server}");
        assert_eq!(server["pids"].as_array().unwrap().len(), 1, "one process for both");
    }
}

#[test]
fn go_has_payloads_of_any_size() {
    for protocol in GO {
        let here = Here::new();
        assert_sound(&report(&here, &["--protocol", protocol, "--size", "1,100k", "--connections", "2"]));
        assert_sound(&report(&here, &["--protocol", protocol, "--size", "10", "--reply", "64k"]));
    }
    assert_sound(&report(&Here::new(), &["--protocol", "go-json", "--rate", "400", "--connections", "2"]));
}

#[test]
fn a_server_killed_in_the_middle_is_missed_and_nothing_is_left() {
    for protocol in ["grpc", "go-gob", "go-json"] {
        let here = Here::new();
        let arguments = ["--protocol", protocol, "--connections", "4", "--trial-time", "1s", "--quiet"];
        let mut command = here.bench(&[&["rpc"], arguments.as_slice()].concat());
        let child = with_cache(&mut command).spawn().unwrap();
        let (output, _) = here.without_servers(child);
        assert_eq!(output.status.code(), Some(3), "{protocol}: {}", said(&output));
        let said = said(&output);
        // A server that is being started again is killed too.
        let names = ["127.0.0.1:", ".sock", "could not start the Go server"];
        assert!(names.iter().any(|name| said.contains(name)), "{protocol}: names no server: {said}");
        here.assert_nothing_left();
    }
}

#[test]
fn the_tool_killed_in_the_middle_leaves_nothing() {
    for protocol in ["grpc", "go-gob"] {
        let here = Here::new();
        let mut command = here.bench(&["rpc", "--protocol", protocol, "--trial-time", "1s", "--quiet"]);
        let mut child = with_cache(&mut command).spawn().unwrap();
        let servers = here.servers();
        child.kill().unwrap();
        child.wait().unwrap();
        here.assert_nothing_left();
        assert!(servers.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()), "{protocol}");
    }
}

#[test]
fn the_tool_killed_while_go_compiles_leaves_nothing() {
    let here = Here::new();
    // Its own empty cache: compiling takes seconds.
    let mut child =
        here.bench(&["rpc", "--protocol", "go-json", "--quiet"]).env_remove("GOCACHE").spawn().unwrap();
    here.wait_until_something_is_there();
    child.kill().unwrap();
    child.wait().unwrap();
    here.assert_nothing_left();
}

#[test]
fn where_go_is_missing_its_package_is_named_and_grpc_works() {
    let here = Here::new();
    for protocol in GO {
        let output =
            here.bench(&["rpc", "--protocol", protocol]).env("PATH", "/nonexistent").output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        let said = said(&output);
        assert!(said.contains("apt install golang-go") && said.contains("--protocol grpc"), "{said}");
        here.assert_nothing_left();
    }
    let output = here.bench(&[&["rpc"], TINY].concat()).env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_go_that_cannot_build_says_why() {
    let here = Here::new();
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    // A program that this process wrote may be busy when it is started: see `copy_program`.
    let script = "printf '#!/bin/sh\\necho net/rpc is not in std >&2\\nexit 1\\n' > $0; chmod +x $0";
    must("sh", &["-c", script, go.to_str().unwrap()]);
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let output = here.bench(&["rpc", "--protocol", "go-gob"]).env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("net/rpc is not in std"), "{}", said(&output));
    here.assert_nothing_left();
}

/// The Go program by itself, as Go users start theirs.
#[test]
fn the_go_server_takes_over_a_stale_socket() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("rpc");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samehost-bench/src/private_servers/go");
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(&program).current_dir(sources).env("CGO_ENABLED", "0");
    let built = with_cache(&mut build).output().expect("Go must be installed: cargo xtask servers");
    assert!(built.status.success(), "{}", said(&built));
    let socket = |name: &str| folder.path().join(name);
    for stale in [false, true] {
        assert_eq!(socket("gob").exists(), stale, "kill -9 leaves the file");
        let mut command = Command::new(&program);
        command.arg("serve").arg("-unix").arg(socket("gob")).arg("-json-unix").arg(socket("json"));
        let mut server = super::support::Server(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
        let lines: Vec<String> = lines.take(4).map_while(Result::ok).collect();
        assert!(lines.contains(&format!("gob on unix:{}", socket("gob").display())), "{lines:?}");
        UnixStream::connect(socket("gob")).unwrap();
        UnixStream::connect(socket("json")).unwrap();
    }
}

/// `samehost serve rpc` on a free port and a socket; ended when dropped.
struct Serving {
    child: Child,
    tcp: String,
    socket: PathBuf,
}

impl Serving {
    fn start(folder: &Path) -> Self {
        let socket = folder.join("rpc.sock");
        let unix = format!("unix:{}", socket.display());
        let mut child = serve(&["--listen", "tcp:127.0.0.1:0", "--listen", &unix]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut endpoint =
            || lines.next().unwrap().unwrap().strip_prefix("listening on ").unwrap().to_owned();
        let (tcp, second) = (endpoint(), endpoint());
        assert_eq!(second, unix);
        Serving { child, tcp, socket }
    }

    fn unix(&self) -> String {
        format!("unix:{}", self.socket.display())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samehost"));
    command.args(["serve", "rpc"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn fails(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    output
}

#[test]
fn a_server_that_runs_is_measured_and_its_cpu_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serving::start(folder.path());
    let report = report(&Here::new(), &["--tcp", &server.tcp, "--unix", &server.unix()]);
    assert_sound(&report);
    let about = &report["workload"]["server"];
    assert_eq!(about["managed"], false);
    assert_eq!(about["pids"].as_array().unwrap(), &[u64::from(server.child.id())]);
    let both = ["rpc", "--tcp", &server.tcp, "--transports", "tcp,unix"];
    let lone = fails(&mut Here::new().bench(&both));
    assert!(said(&lone).contains("give both --tcp and --unix"), "{}", said(&lone));
}

#[test]
fn it_ends_by_a_signal_and_takes_its_socket_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Serving::start(folder.path());
    assert!(std::fs::metadata(&server.socket).unwrap().file_type().is_socket());
    // Connections that are still open do not hold it up.
    let _tcp = TcpStream::connect(server.tcp.trim_start_matches("tcp:")).unwrap();
    let _unix = UnixStream::connect(&server.socket).unwrap();
    send(server.child.id(), Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the socket file goes with the server");
}

#[test]
fn an_endpoint_in_use_or_of_another_kind_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serving::start(folder.path());
    for endpoint in [server.tcp.clone(), server.unix()] {
        let output = fails(&mut serve(&["--listen", &endpoint]));
        let address = endpoint.split_once(':').unwrap().1;
        assert!(said(&output).contains(address), "{}", said(&output));
    }
    UnixStream::connect(&server.socket).expect("the first server still answers");
    for endpoint in ["tcp+tls:127.0.0.1:0", "seqpacket:/run/no.sock"] {
        let output = fails(&mut serve(&["--listen", endpoint]));
        assert!(said(&output).contains("tcp, tcp6, unix, abstract"), "{}", said(&output));
    }
    let output = fails(&mut serve(&["--listen", "tcp:127.0.0.1:0", "--model", "epoll"]));
    assert!(said(&output).contains("--model epoll"), "{}", said(&output));
}

#[test]
fn a_server_of_another_kind_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serving::start(folder.path());
    drop(server);
    let echo = Command::new(env!("CARGO_BIN_EXE_samehost"))
        .args(["serve", "echo", "--listen", "tcp:127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut echo = super::support::Server(echo);
    let mut line = String::new();
    BufReader::new(echo.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let endpoint = line.trim().strip_prefix("listening on ").unwrap();
    let bench = |endpoint: &str| {
        Here::new().bench(&["rpc", "--tcp", endpoint, "--transports", "tcp"]).output().unwrap()
    };
    let output = bench(endpoint);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains(endpoint) && said(&output).contains("gRPC"), "{}", said(&output));
    // A listener that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = bench(&format!("tcp:{}", silent.local_addr().unwrap()));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("no reply from"), "{}", said(&output));
}

#[test]
fn wrong_use_is_said_before_anything_starts() {
    assert_refused(
        "rpc",
        &[
            (&["--size", "65m"], "too large"),
            (&["--reply", "65m"], "too large"),
            (&["--reply", "much"], "much"),
            (&["--connections", "1025"], "at most 1024"),
            (&["--protocol", "go-gob", "--rate", "100"], "--rate"),
            (&["--protocol", "go-json", "--tcp", "tcp:127.0.0.1:1"], "--tcp"),
            (&["--protocol", "go-json", "--transports", "abstract,unix"], "abstract"),
        ],
    );
}
