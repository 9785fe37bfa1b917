//! The proxy workload end to end: the built binary, a real nginx, and every kind of backend.

use std::collections::BTreeSet;

use samehost_testing::metered;
use serde_json::Value;

use super::support::{Here, assert_faultless, main_effects};

fn words<'a>(values: &'a Value, name: &str) -> BTreeSet<&'a str> {
    values.as_array().unwrap().iter().map(|value| value[name].as_str().unwrap()).collect()
}

/// What a report of the whole matrix has behind nginx.
fn assert_sound(report: &Value, conditions: usize) {
    assert_behind(report, conditions, &[("nginx", "127.0.0.1:", "unix:/")]);
}

/// What a report of the whole matrix has behind these servers, which say so of their TCP and of their Unix servers.
fn assert_behind(report: &Value, conditions: usize, fronts: &[(&str, &str, &str)]) {
    assert_faultless(report);
    for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
        assert!(metered(trial, "proxy_cpu_us_per_op").is_none_or(|cpu| cpu > 0.0), "{trial}");
    }
    let evidence = report["evidence"].as_array().unwrap();
    for (arm, is_unix) in [("tcp", false), ("unix", true)] {
        let of_arm = || evidence.iter().filter(|one| one["arm"].as_str().unwrap().starts_with(arm));
        assert!(of_arm().count() > 0);
        let asked = |(title, tcp, unix): &(&str, &str, &str)| {
            format!("{title} says that it asks {}", if is_unix { unix } else { tcp })
        };
        let is_told = |one: &Value| {
            let observed = one["observed"].as_str().unwrap();
            fronts.iter().any(|front| observed.contains(&asked(front)))
        };
        assert!(of_arm().all(is_told), "{evidence:?}");
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
    assert_eq!(main_effects(&report), ["backends", "http", "transport"].into());
}

/// Checks a measurement of backends whose kind has these words.
fn assert_measured(backends: &[(&str, &str)]) {
    for (backend, words) in backends {
        let settings = ["--backends", "2", "--connections", "2", "--front", "tcp"];
        let report = Here::new().report(&[&["proxy", "--backend", backend], &settings[..]].concat());
        assert_sound(&report, 4);
        let kind = report["workload"]["server"]["kind"].as_str().unwrap();
        assert!(kind.contains(&format!(" and {words}")), "{kind}");
    }
}

#[test]
fn thin_puma_and_gunicorn() {
    assert_measured(&[("thin", "Thin"), ("puma", "Puma"), ("gunicorn", "gunicorn")]);
}

#[test]
fn uvicorn_node_and_its_cluster() {
    assert_measured(&[("uvicorn", "uvicorn"), ("node", "Node:"), ("node-cluster", "Node's cluster")]);
}

#[test]
fn tomcat() {
    let settings = ["--backends", "1", "--connections", "2", "--http", "1.1"];
    let report = Here::new().report(&[&["proxy", "--backend", "tomcat"], &settings[..]].concat());
    assert_sound(&report, 2);
}

#[test]
fn apache_and_haproxy_in_front() {
    for (via, title, tcp, unix) in
        [("apache", "Apache", "127.0.0.1:", "unix:/"), ("haproxy", "HAProxy", "127.0.0.1:", "unix:")]
    {
        let settings = ["--backends", "2", "--connections", "2"];
        let report =
            Here::new().report(&[&["proxy", "--via", via, "--backend", "built-in"], &settings[..]].concat());
        assert_behind(&report, 4, &[(title, tcp, unix)]);
        let server = report["workload"]["server"]["kind"].as_str().unwrap();
        assert!(server.starts_with(&format!("{title} and ")), "{server}");
        // Apache has no Unix socket in front.
        let front = if via == "apache" { "in front AF_INET" } else { "in front AF_UNIX" };
        let evidence = report["evidence"].as_array().unwrap();
        let is_so = |one: &&Value| one["observed"].as_str().unwrap().starts_with(front);
        assert_eq!(evidence.iter().filter(is_so).count(), 4, "{evidence:?}");
    }
}

#[test]
fn the_server_in_front_and_its_transport_are_factors() {
    let both = ["--via", "nginx,haproxy", "--front", "unix,tcp"];
    let rest = ["--backend", "built-in", "--backends", "1", "--http", "1.1"];
    let report = Here::new().report(&[&["proxy"], &both[..], &rest].concat());
    assert_behind(&report, 8, &[("nginx", "127.0.0.1:", "unix:/"), ("HAProxy", "127.0.0.1:", "unix:")]);
    assert_eq!(main_effects(&report), ["front", "transport", "via"].into());
}

#[test]
fn one_condition_has_no_effects() {
    let report = Here::new().report(&["proxy", "--backend", "built-in", "--backends", "1", "--http", "1.1"]);
    assert_sound(&report, 2);
    assert!(report.get("effects").is_none());
}
