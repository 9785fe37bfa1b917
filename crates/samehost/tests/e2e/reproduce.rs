//! The published experiments: measured, judged and written in every format; interrupted and gone on with; one whose
//! server is not installed does not stop the others.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::html::{drawn, open};
use crate::support::{Ended, Home, rest, send, wait_for};
use crate::workloads::path_to_newest;

fn read(home: &Home, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(home.path(name)).unwrap()).unwrap()
}

fn experiment<'a>(reproduction: &'a Value, id: &str) -> &'a Value {
    let all = reproduction["experiments"].as_array().unwrap();
    all.iter().find(|experiment| experiment["id"] == id).unwrap_or_else(|| panic!("{id} is there"))
}

/// Ids of the experiments kept for the next call.
fn kept(home: &Home) -> Vec<String> {
    let Ok(entries) = fs::read_dir(home.path("state/samehost/reproduce/quick")) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut ids: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
    ids.sort();
    ids
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
    assert!(ended.stderr.contains("2 experiments, at most about 3 seconds"), "{}", ended.stderr);
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
    assert!(opened.document.contains("data-ready=\"all\""), "every chart was drawn");
    assert!(drawn(&opened.document, "r0-ratios") && drawn(&opened.document, "r1-ratios"));
    assert!(opened.document.contains("Published experiments on this machine"));
    assert!(kept(&home).is_empty(), "a whole reproduction leaves nothing to go on with");
    home.assert_nothing_left();
}

#[test]
fn an_interrupted_one_goes_on_where_it_stopped() {
    let home = Home::new();
    let json = home.path("r.json");
    let call = ["reproduce", "G1", "G2", "--quick", "--budget", "8s", "--json", json.to_str().unwrap()];
    let mut child = home.command(&call).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the first experiment", || (kept(&home) == ["G1"]).then_some(()));
    send(child.id(), Signal::INT);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{}", rest(child.stderr.take().unwrap()));
    let table = rest(child.stdout.take().unwrap());
    assert!(table.contains("a round trip takes less time") && table.contains("Interrupted"), "{table}");
    let first = read(&home, "r.json");
    assert_eq!(first["interrupted"], true);
    assert_eq!(experiment(&first, "G2")["state"], "interrupted");
    home.assert_nothing_left();

    let ended = home.run(&call);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("G1 measured already"), "{}", ended.stderr);
    let second = read(&home, "r.json");
    let (before, now) = (experiment(&first, "G1"), experiment(&second, "G1"));
    assert_eq!(now["kept"], true);
    assert_eq!(before["measurements"], now["measurements"], "not measured again");
    assert_eq!(experiment(&second, "G2")["state"], "measured");
    assert_eq!(experiment(&second, "G2")["kept"], false);
    assert!(kept(&home).is_empty());
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
    assert_eq!(kept(&home), ["G3"], "what is there need not be measured again once the server is");

    let again = run(&["P1", "G3"]);
    assert!(again.stdout.contains("not measured: needs mariadb-server"), "{}", again.stdout);
    assert!(again.stderr.contains("G3 measured already"), "{}", again.stderr);
    let fresh = run(&["P1", "G3", "--fresh"]);
    assert!(!fresh.stderr.contains("measured already"), "{}", fresh.stderr);
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
