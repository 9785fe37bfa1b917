//! Slices and rounds: the arms of a point take turns, and every arm keeps its own time and CPU time.

use serde_json::Value;

use crate::support::{Home, comparison, trials};

/// The arms' slices and those of the control.
fn sliced(report: &Value) -> Vec<&Value> {
    let all: Vec<&Value> = ["tcp", "unix"].iter().flat_map(|arm| trials(report, arm)).collect();
    assert!(!all.is_empty());
    all
}

#[test]
fn the_arms_of_a_point_take_turns_and_each_is_metered_by_itself() {
    let home = Home::new();
    let report = home.measure(&["bench", "raw"]);
    for sample in sliced(&report) {
        let slices = &sample["slices"];
        assert!(slices["number"].as_u64().unwrap() >= 6, "{sample}");
        assert!(slices["length_ms"].as_f64().unwrap() >= 0.25, "{sample}");
        let number = slices["number"].as_u64().unwrap() as f64;
        let in_all = number * slices["length_ms"].as_f64().unwrap() / 1e3;
        assert!((in_all - sample["seconds"].as_f64().unwrap()).abs() < 1e-6, "{sample}");
        // Requests that waited for a CPU are left out, of throughput and of latency alike.
        let interrupted = sample["interrupted_percent"].as_f64().unwrap();
        assert!((0.0..50.0).contains(&interrupted), "{sample}");
        let plain = sample["operations"].as_f64().unwrap() / sample["seconds"].as_f64().unwrap();
        let rate = sample["throughput_per_s"].as_f64().unwrap();
        assert!(rate > 0.8 * plain, "what is left out is slow: {sample}");
        // One connection: what is counted is nothing but requests, one after the other.
        let mean = sample["latency_us"]["mean"].as_f64().unwrap();
        assert!((mean * rate / 1e6 - 1.0).abs() < 0.01, "{sample}");
        for side in ["client", "server"] {
            let cpu = sample[format!("{side}_cpu_us_per_op")].as_f64().unwrap();
            assert!(cpu > 0.5 && cpu < 20.0 * mean, "{side}: {cpu} of {mean} µs");
        }
        assert!(sample["context_switches_per_op"].as_f64().unwrap() > 0.5, "{sample}");
    }
    let driven = &report["plan"]["driven"][0];
    assert_eq!(driven["slice_s"], 0.00025);
    home.assert_nothing_left();
}

#[test]
fn what_cannot_be_cut_says_why_and_is_measured_in_trials() {
    let home = Home::new();
    let why = |arguments: &[&str]| {
        let report = home.measure(arguments);
        let arms = ["tcp", "unix"];
        assert!(arms.iter().flat_map(|arm| trials(&report, arm)).all(|trial| trial["slices"].is_null()));
        report["plan"]["driven"][0]["undivided"].clone()
    };
    assert_eq!(why(&["bench", "raw", "--rate", "500"]), "open_loop");
    assert_eq!(why(&["bench", "raw", "--connections", "2", "--threads", "2"]), "threads");
    assert_eq!(why(&["bench", "connect"]), "workload");
}

/// Where there are two CPUs, both ends of one connection have one each, and the report says so; a server that somebody
/// else started is left where it is.
#[test]
fn one_connection_is_pinned_where_both_ends_are_ours() {
    let home = Home::new();
    let report = home.measure(&["bench", "raw"]);
    let cpus = report["host"]["cpus_allowed"].as_u64().unwrap();
    let driven = &report["plan"]["driven"][0];
    if cpus > 1 {
        assert_eq!(driven["placement"], "cross-core");
        assert_ne!(driven["client_cpus"], driven["server_cpus"]);
    } else {
        assert_eq!(driven["placement"], "free");
    }
    let free = home.measure(&["bench", "raw", "--placement", "free"]);
    assert!(free["plan"]["driven"][0]["client_cpus"].is_null());
    let server = home.serve("echo", &[]);
    let given = home.measure(&["bench", "raw", "--tcp", &server.tcp, "--transports", "tcp,tcp"]);
    assert_eq!(given["plan"]["driven"][0]["placement"], "free");
    assert!(given["plan"]["driven"][0]["slice_s"].as_f64().is_some(), "slices need no server of ours");
}

/// Rounds of some tenths of a second see what separate trials of the same time cannot.
#[test]
fn a_difference_is_decided_in_seconds() {
    let home = Home::new();
    let ended = home.run(&[
        "bench", "raw", "--work", "50us", "--longer", "90%", "--transports", "unix,unix", "--until-decided",
        "--budget", "30s", "--quiet", "--json", "-",
    ]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let found = comparison(&report, "latency_mean");
    assert_eq!(found["verdict"], "slower", "{found}");
    let server: Vec<f64> = ["unix", "unix#2"]
        .iter()
        .map(|arm| {
            let all = trials(&report, arm);
            all.iter().map(|t| t["server_cpu_us_per_op"].as_f64().unwrap()).sum::<f64>() / all.len() as f64
        })
        .collect();
    let more = server[1] - server[0];
    assert!((20.0..120.0).contains(&more), "45 µs of work were booked to the arm that had them: {server:?}");
    home.assert_nothing_left();
}

#[test]
fn cpus_are_kept_awake_unless_the_scheduler_is_asked_for_and_the_report_says_how() {
    let home = Home::new();
    for awake in [&["bench", "raw"][..], &["bench", "raw", "--awake"]] {
        let report = home.measure(awake);
        let by = report["plan"]["awake"].as_str().unwrap();
        assert!(["latency_request", "idle_threads"].contains(&by), "{by}");
    }
    for asleep in [&["bench", "raw", "--awake=no"][..], &["bench", "raw", "--placement", "free"]] {
        assert!(home.measure(asleep)["plan"]["awake"].is_null(), "{asleep:?}");
    }
}
