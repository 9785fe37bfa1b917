//! The published experiments: measured, judged and written in every format; interrupted; one whose server is not installed does
//! not stop the others.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::html::{drawn, open};
use crate::support::{Ended, Home, rest, send};
use crate::workloads::path_to_newest;

fn read(home: &Home, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(home.path(name)).unwrap()).unwrap()
}

fn experiment<'a>(reproduction: &'a Value, id: &str) -> &'a Value {
    let all = reproduction["experiments"].as_array().unwrap();
    all.iter().find(|experiment| experiment["id"] == id).unwrap_or_else(|| panic!("{id} is there"))
}

#[test]
fn a_reproduction_is_written_in_every_format() {
    let home = Home::new();
    let path = |name: &str| home.path(name).to_str().unwrap().to_owned();
    let (json, html, markdown) = (path("r.json"), path("r.html"), path("r.md"));
    let files = ["--json", &json, "--html", &html, "--markdown", &markdown];
    let ended = home
        .run(&[&["reproduce", "G3", "g1", "--quick", "--budget", "3s", "--seed", "7"], &files[..]].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("2 experiments, at most about 3 s"), "{}", ended.stderr);
    let reproduction = read(&home, "r.json");
    let schema = include_str!("../../../samehost-model/schema/reproduction-1.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let faults: Vec<String> = schema.iter_errors(&reproduction).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(reproduction["schema"], "samehost.reproduction/1");
    let ids: Vec<&Value> =
        reproduction["experiments"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, ["G1", "G3"], "in the registry's order");
    let latency = experiment(&reproduction, "G1");
    assert_eq!(latency["state"], "measured");
    let report = &latency["measurements"][0]["report"];
    let trips = report["comparisons"].as_array().unwrap();
    let trip = trips.iter().find(|comparison| comparison["metric"] == "latency_mean").unwrap();
    assert_eq!(latency["claims"][0]["here"]["value"], trip["ratio"], "what was measured, nothing else");
    assert_ne!(latency["claims"][0]["judgement"], "not_measured");
    assert_eq!(experiment(&reproduction, "G3")["claims"][0]["judgement"], "holds");
    assert!(report["command"].to_string().contains("bench"), "the reader can run it alone");
    let table = fs::read_to_string(&markdown).unwrap();
    assert!(table.contains("**G1**") && table.contains("0.64 ×"), "{table}");
    assert!(ended.stdout.contains("a round trip takes less time"), "{}", ended.stdout);
    let opened = open(&home, &home.path("r.html"), &["--dump-dom"]);
    assert_eq!(opened.console, "", "the console is silent");
    assert!(drawn(&opened.document, "r0-ratios") && drawn(&opened.document, "r1-ratios"));
    assert!(opened.document.contains("Published experiments on this machine"));
    home.assert_nothing_left();
}

#[test]
fn an_interrupted_one_shows_what_is_measured_by_then() {
    let home = Home::new();
    let json = home.path("r.json");
    let call = ["reproduce", "G1", "G2", "--quick", "--budget", "9s", "--json", json.to_str().unwrap()];
    let mut child = home.command(&call).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Progress in a pipe names the experiment that is measured.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("G2 bulk stream")), "the first experiment is measured by then");
    send(child.id(), Signal::INT);
    let left = lines.collect::<Vec<_>>();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{left:?}");
    let table = rest(child.stdout.take().unwrap());
    assert!(table.contains("a round trip takes less time") && table.contains("Interrupted"), "{table}");
    let made = read(&home, "r.json");
    assert_eq!(made["interrupted"], true);
    assert_eq!(experiment(&made, "G1")["state"], "measured");
    assert_eq!(experiment(&made, "G2")["state"], "interrupted");
    home.assert_nothing_left();
}

#[test]
fn what_is_not_installed_is_named_and_the_others_are_measured() {
    let home = Home::new();
    let run = |arguments: &[&str]| {
        let mut command = home.command(&[&["reproduce", "--quick", "--budget", "2s"], arguments].concat());
        Ended::of(&command.env("PATH", "/nonexistent").output().unwrap())
    };
    let ended = run(&["P1", "G3", "--json", "-"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let reproduction: Value = serde_json::from_str(&ended.stdout).unwrap();
    let missing = experiment(&reproduction, "P1");
    assert_eq!((&missing["state"], &missing["package"]), (&"not_installed".into(), &"mariadb-server".into()));
    assert_eq!(missing["claims"][0]["judgement"], "not_measured");
    let part = experiment(&reproduction, "G3");
    assert_eq!((&part["state"], &part["claims"][0]["judgement"]), (&"measured".into(), &"holds".into()));
    assert!(part["differs"].to_string().contains("golang-go"), "net/rpc needs Go: {}", part["differs"]);
    let again = run(&["P1", "G3"]);
    assert!(again.stdout.contains("not measured: needs mariadb-server"), "{}", again.stdout);
    assert_eq!(run(&["P1", "--quiet"]).status, 3, "nothing at all was measured");
    home.assert_nothing_left();
}

/// P1 to P4 and D were measured on MySQL, so they run on one too, not on MariaDB alone.
#[test]
fn the_experiments_on_mysql_run_on_a_real_mysql() {
    let home = Home::new();
    let arguments =
        ["reproduce", "P1", "P2", "P3", "P4", "D", "--quick", "--budget", "12s", "--server", "mysql"];
    let mut command = home.command(&[&arguments, &["--json", "-"][..]].concat());
    let ended = Ended::of(&command.env("PATH", path_to_newest("usr/sbin/mysqld")).output().unwrap());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let reproduction: Value = serde_json::from_str(&ended.stdout).unwrap();
    for (id, then) in [
        ("P1", "Percona Server"),
        ("P2", "Percona Server"),
        ("P3", "Percona Server"),
        ("P4", "Percona Server"),
        ("D", "MySQL 8.0"),
    ] {
        let found = experiment(&reproduction, id);
        assert_eq!(found["state"], "measured", "{id}: {}", found["reason"]);
        let report = &found["measurements"][0]["report"];
        assert_eq!(report["workload"]["server"]["kind"], "mysql", "{id}");
        let differs = found["differs"].to_string();
        assert!(
            differs.contains("MySQL 9") && differs.contains(&format!("in place of {then}.")),
            "{differs}"
        );
        for claim in found["claims"].as_array().unwrap() {
            assert_ne!(claim["judgement"], "not_measured", "{id}: {claim}");
        }
    }
    home.assert_nothing_left();
}

#[test]
fn an_unknown_experiment_names_the_known_ones() {
    let home = Home::new();
    let ended = home.run(&["reproduce", "P9"]);
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("`P9`") && ended.stderr.contains("W, P1, P2, P3"), "{}", ended.stderr);
    let ended = home.run(&["reproduce", "G1", "--json", "/nonexistent/r.json"]);
    assert_eq!(ended.status, 2, "before anything is measured: {}", ended.stderr);
    let ended = home.run(&["reproduce", "G1", "--json", "-", "--html", "-"]);
    assert_eq!(ended.status, 2, "{}", ended.stderr);
}
