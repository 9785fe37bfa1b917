//! The rpc workload end to end: the built binary, real servers, tiny measurements.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use samehost_testing::{metered, must};
use serde_json::Value;

use crate::support::go_cache;

use super::support::{Here, TINY, assert_faultless, parsed, said};

const GO: &[&str] = &["go-gob", "go-json"];

/// A tiny measurement that must succeed, and its report.
fn report(here: &Here, arguments: &[&str]) -> Value {
    let output = here.bench(&[&["rpc"], arguments, TINY].concat()).output().unwrap();
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
    }
    assert_sound(&report(&Here::new(), &["--protocol", "go-json", "--rate", "400", "--connections", "2"]));
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
    let built = build.env("GOCACHE", go_cache()).output().expect("Go must be installed: cargo xtask servers");
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
