//! The proxy workload end to end: the built binary, a real nginx, and every kind of backend.

use std::collections::BTreeSet;

use samehost_testing::metered;
use serde_json::Value;

use super::support::{Here, assert_faultless, assert_refused, said};

fn words<'a>(values: &'a Value, name: &str) -> BTreeSet<&'a str> {
    values.as_array().unwrap().iter().map(|value| value[name].as_str().unwrap()).collect()
}

/// What a report of the whole matrix has.
fn assert_sound(report: &Value, conditions: usize) {
    assert_faultless(report);
    for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
        assert!(metered(trial, "proxy_cpu_us_per_op").is_none_or(|cpu| cpu > 0.0), "{trial}");
    }
    let evidence = report["evidence"].as_array().unwrap();
    for (arm, asked) in
        [("tcp", "nginx says that it asks 127.0.0.1:"), ("unix", "nginx says that it asks unix:/")]
    {
        let of_arm = || evidence.iter().filter(|one| one["arm"].as_str().unwrap().starts_with(arm));
        assert!(of_arm().count() > 0);
        assert!(of_arm().all(|one| one["observed"].as_str().unwrap().contains(asked)), "{evidence:?}");
    }
    assert_eq!(report["limits"].as_array().unwrap().len(), conditions, "{}", report["limits"]);
}

#[test]
fn eight_conditions_of_the_built_in_server() {
    let report = Here::new().report(&["proxy", "--backend", "built-in", "--connections", "4"]);
    assert_sound(&report, 8);
    let effects: Vec<&Value> = report["effects"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|effect| effect["metric"] == "throughput")
        .collect();
    assert_eq!(effects.len(), 7, "three factors, three pairs, and all of them");
    assert_eq!(words(&effects[0]["factors"], "name").len(), 1);
    let mains = effects.iter().filter(|effect| effect["factors"].as_array().unwrap().len() == 1);
    let mains: BTreeSet<&str> = mains.map(|effect| effect["factors"][0]["name"].as_str().unwrap()).collect();
    assert_eq!(mains, ["backends", "http", "transport"].into());
}

#[test]
fn thin_puma_and_gunicorn() {
    for backend in ["thin", "puma", "gunicorn"] {
        let report = Here::new().report(&[
            "proxy",
            "--backend",
            backend,
            "--backends",
            "2",
            "--connections",
            "2",
            "--front",
            "tcp",
        ]);
        assert_sound(&report, 4);
        assert!(report["workload"]["server"]["kind"].as_str().unwrap().to_lowercase().contains(backend));
    }
}

#[test]
fn one_condition_has_no_effects() {
    let report = Here::new().report(&["proxy", "--backend", "built-in", "--backends", "1", "--http", "1.1"]);
    assert_sound(&report, 2);
    assert!(report.get("effects").is_none());
}

#[test]
fn a_backend_killed_in_the_middle_is_missed_and_nothing_is_left() {
    let here = Here::new();
    let arguments =
        ["proxy", "--backend", "built-in", "--backends", "1", "--connections", "4", "--trial-time", "2s"];
    let child = here.bench(&[&arguments[..], &["--quiet"]].concat()).spawn().unwrap();
    let (output, _) = here.without_servers(child);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    here.assert_nothing_left();
}

#[test]
fn what_is_missing_is_named_with_its_package() {
    let here = Here::new();
    let output = here.bench(&["proxy"]).env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("apt install thin ruby-sinatra"), "{}", said(&output));
    here.assert_nothing_left();
    // nginx is where servers are, whatever PATH says.
    if let Some(output) = here.bench_without("/usr/sbin", &["proxy", "--backend", "built-in"]) {
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(said(&output).contains("apt install nginx-light"), "{}", said(&output));
    }
}

#[test]
fn wrong_use_is_said_before_anything_starts() {
    assert_refused(
        "proxy",
        &[
            (&["--backends", "17"], "at most 16"),
            (&["--backends", "0"], "not a number"),
            (&["--http", "2"], "none of 1.0, 1.1"),
            (&["--backend", "apache"], "possible values"),
            (&["--size", "17m"], "too large"),
            (&["--tcp", "tcp:127.0.0.1:80"], "takes no --tcp"),
        ],
    );
}
