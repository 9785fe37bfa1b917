//! The postgres workload through a pooler, end to end: the built binary, a real PgBouncer or Odyssey and a real PostgreSQL.

use std::collections::BTreeSet;

use samehost_testing::metered;
use serde_json::Value;

use super::support::{Here, TINY, assert_faultless, main_effects, parsed, path_to_newest, said};

const VIA: &[&str] = &["postgres", "--via", "pgbouncer", "--rows", "500"];

/// What every report of two hops has: what the kernel says of the hop in front, and the server of the one behind.
fn assert_sound(report: &Value, arms: &[(&str, &str, &str)]) {
    assert_behind(report, ("pgbouncer", "PgBouncer"), arms);
}

/// The same of a pooler of this word and name.
fn assert_behind(report: &Value, (word, title): (&str, &str), arms: &[(&str, &str, &str)]) {
    assert_faultless(report);
    let server = &report["workload"]["server"];
    assert_eq!(
        (server["kind"].as_str(), &server["managed"]),
        (Some(format!("{word} and postgresql").as_str()), &true.into())
    );
    let trials = report["trials"].as_array().unwrap();
    for (arm, front, behind) in arms {
        let of_arm: Vec<&Value> = trials.iter().filter(|trial| trial["arm"] == *arm).collect();
        assert!(!of_arm.is_empty(), "no trial of {arm}");
        for trial in of_arm {
            let observed = trial["transport_observed"].as_str().unwrap();
            let (before, after) = observed.split_once(&format!("; behind {title} the server says ")).unwrap();
            assert!(before.starts_with(front) && after.contains(behind), "{arm}: {observed}");
            assert!(metered(trial, "proxy_cpu_us_per_op").is_none_or(|cpu| cpu > 0.0), "{trial}");
        }
    }
    assert_eq!(report["limits"].as_array().unwrap().len(), arms.len(), "{}", report["limits"]);
}

const TCP: &str = "in front AF_INET stream tcp";
const UNIX: &str = "in front AF_UNIX stream";
/// The four combinations: arm, the hop in front, the hop behind.
const FOUR: &[(&str, &str, &str)] = &[
    ("tcp/front=tcp", TCP, ", 127.0.0.1:"),
    ("unix/front=tcp", TCP, ", Unix socket"),
    ("tcp/front=unix", UNIX, ", 127.0.0.1:"),
    ("unix/front=unix", UNIX, ", Unix socket"),
];

#[test]
fn both_hops_are_factors() {
    let report = Here::new().report(&[VIA, &["--connections", "4"]].concat());
    assert_sound(&report, FOUR);
    assert_eq!(main_effects(&report), ["front", "transport"].into());
    let combinations = report["combinations"].as_array().unwrap();
    let of_latency = combinations.iter().filter(|one| one["metric"] == "latency_mean");
    let arms: BTreeSet<&str> = of_latency.clone().map(|one| one["arm"].as_str().unwrap()).collect();
    assert_eq!(arms, ["tcp/front=unix", "unix/front=tcp", "unix/front=unix"].into());
    assert!(of_latency.clone().all(|one| one["against"] == "tcp/front=tcp"), "{combinations:?}");
    let compared: BTreeSet<&str> = report["workload"]["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|metric| metric["name"].as_str().unwrap())
        .collect();
    assert!(compared.contains("proxy_cpu_per_op"), "{compared:?}");
}

#[test]
fn both_hops_of_odyssey_are_factors() {
    let path = path_to_newest("usr/bin/odyssey");
    for arguments in [
        &["--connections", "4"][..],
        &["--pool", "session", "--statement", "update"],
        &["--connect", "per-query", "--protocol", "simple"],
    ] {
        let here = Here::new();
        let via = &["postgres", "--via", "odyssey", "--rows", "500"];
        let output = here.bench(&[via, arguments, TINY].concat()).env("PATH", &path).output().unwrap();
        here.assert_nothing_left();
        assert_behind(&parsed(&output), ("odyssey", "Odyssey"), FOUR);
    }
}

#[test]
fn either_pool_and_either_protocol_and_every_statement() {
    for (pool, protocol, statement) in [
        ("transaction", "simple", "update"),
        ("transaction", "extended", "select-1"),
        ("session", "extended", "point-select"),
        ("session", "simple", "select-1"),
    ] {
        let more = ["--pool", pool, "--protocol", protocol, "--statement", statement, "--front", "unix"];
        let report = Here::new().report(&[VIA, &more, &["--connections", "3"]].concat());
        assert_sound(&report, &[("tcp", UNIX, ", 127.0.0.1:"), ("unix", UNIX, ", Unix socket")]);
    }
}

#[test]
fn a_connection_to_the_pooler_for_each_query_is_a_login_there_and_none_behind() {
    let more = ["--connect", "per-query", "--front", "tcp"];
    let report = Here::new().report(&[VIA, &more].concat());
    assert_sound(&report, &[("tcp", TCP, ", 127.0.0.1:"), ("unix", TCP, ", Unix socket")]);
}

#[test]
fn both_ended_in_the_middle_are_missed_and_nothing_is_left() {
    let here = Here::new();
    let child = here.bench(&[VIA, &["--trial-time", "2s", "--quiet"]].concat()).spawn().unwrap();
    let (output, _) = here.without_servers(child);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    here.assert_nothing_left();
}
