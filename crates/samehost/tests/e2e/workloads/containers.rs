//! The redis workload with its server in a container: the built binary, a real podman, tiny measurements. Nothing of
//! podman may stay, however the measurement ends.

use std::fs;
use std::process::Command;

use rustix::process::{Signal, geteuid};
use samehost_testing::{metered, wait_for};
use serde_json::Value;

use super::support::{Here, assert_faultless};
use crate::support::{not_tested, send};

const LONG: &[&str] = &["--trial-time", "2s", "--budget", "60s", "--quiet", "--json", "-"];

/// Processes whose command line names this directory: podman, conmon, and what publishes ports.
fn of_directory(directory: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(directory)).collect()
}

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        not_tested("without root: containers of a measurement");
    }
    is_root
}

#[test]
fn a_published_port_is_compared_with_a_socket_in_a_volume() {
    if !is_root() {
        return;
    }
    let places = ["machine", "podman-host", "podman-bridge", "podman-rootlesskit", "podman-slirp4netns"];
    let report = Here::new().report(&["redis", "--in", &places.join(",")]);
    assert_faultless(&report);
    let server = report["workload"]["server"]["kind"].as_str().unwrap();
    assert!(server.starts_with("redis in a container (podman "), "{server}");
    let trials = report["trials"].as_array().unwrap();
    for place in places {
        for (transport, family) in [("tcp", "AF_INET stream tcp, 127.0.0.1:"), ("unix", "AF_UNIX stream")] {
            let arm = format!("{transport}/in={place}");
            let of_arm: Vec<&Value> = trials.iter().filter(|trial| trial["arm"] == *arm).collect();
            assert!(!of_arm.is_empty(), "no trial of {arm}: {}", report["arms"]);
            for trial in of_arm {
                let observed = trial["transport_observed"].as_str().unwrap();
                assert!(observed.starts_with(family), "{arm}: {observed}");
                assert!(metered(trial, "server_cpu_us_per_op").is_none_or(|cpu| cpu > 0.0), "{trial}");
                let proxy = trial["proxy_cpu_us_per_op"].as_f64();
                let has_proxy = ["podman-rootlesskit", "podman-slirp4netns"].contains(&place);
                if has_proxy && transport == "tcp" {
                    assert!(proxy.is_some_and(|cpu| cpu > 1.0), "each byte goes through it: {trial}");
                }
            }
        }
    }
    let own = report["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == "own_network");
    assert!(own, "{}", report["warnings"]);
}

#[test]
fn two_places_are_a_factor() {
    if !is_root() {
        return;
    }
    let report = Here::new().report(&["redis", "--in", "machine,podman-bridge", "--connections", "4"]);
    assert_faultless(&report);
    let effects = report["effects"].as_array().unwrap();
    let is_main = |name: &str| {
        effects.iter().any(|effect| {
            let factors = effect["factors"].as_array().unwrap();
            factors.len() == 1 && factors[0]["name"] == name
        })
    };
    assert!(is_main("in") && is_main("transport"), "{effects:?}");
}

/// Measures in a container on a bridge, ends that by a signal, and waits until nothing of it is there.
fn ended_by(signal: Signal) {
    let here = Here::new();
    let mut child =
        here.bench(&[&["redis", "--in", "podman-bridge,podman-rootlesskit"], LONG].concat()).spawn().unwrap();
    let servers = here.servers();
    let directory = here.directory();
    let running = of_directory(&directory);
    assert!(running.iter().any(|line| line.contains("conmon")), "{running:?}");
    send(child.id(), signal);
    child.wait().unwrap();
    here.assert_nothing_left();
    wait_for("podman's processes to end", || of_directory(&directory).is_empty().then_some(()));
    assert!(servers.iter().all(|pid| !fs::exists(format!("/proc/{pid}")).unwrap()), "{servers:?}");
}

#[test]
fn nothing_of_podman_stays_after_ctrl_c_and_kill_9() {
    if !is_root() {
        return;
    }
    let interfaces = || Command::new("ip").args(["-o", "link"]).output().unwrap().stdout;
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
    let before = (interfaces(), mounts());
    ended_by(Signal::INT);
    ended_by(Signal::KILL);
    assert_eq!((interfaces(), mounts()), before, "the machine's interfaces and mounts");
}

#[test]
fn a_published_port_is_found_with_what_is_behind_it() {
    if !is_root() {
        return;
    }
    let here = Here::new();
    let places = "podman-bridge,podman-rootlesskit,podman-slirp4netns";
    let mut child = here.bench(&[&["redis", "--in", places], LONG].concat()).spawn().unwrap();
    here.servers();
    let scan = here.samehost(&["scan", "--json"]).output().unwrap();
    send(child.id(), Signal::INT);
    child.wait().unwrap();
    here.assert_nothing_left();
    let scan: Value = serde_json::from_slice(&scan.stdout).unwrap();
    let findings = scan["findings"].as_array().unwrap().iter();
    let published = findings.filter(|finding| finding["code"] == "published-port");
    let found: Vec<&str> = published.map(|finding| finding["found"].as_str().unwrap()).collect();
    for words in [
        ["conmon ", " for Redis in container ", "the packet filter rewrites"],
        ["rootlessport ", " passes every byte on to Redis in a container", "goes through this process too"],
        ["slirp4netns ", " passes every byte on to a container", "goes through this process too"],
    ] {
        let is_it = |found: &str| words.iter().all(|word| found.contains(word));
        assert!(found.iter().any(|found| is_it(found)), "{words:?} in {found:#?}");
    }
}
