//! `samehost compare FOLDER` and `samehost history FOLDER`: reports of many hosts, made from a real one.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use samehost_testing::{Noise, slow_down};
use serde_json::{Value, json};

use crate::support::{Ended, Home};

/// Metrics that any comparison of `bench raw` has.
const ALWAYS: [&str; 4] = ["latency_mean", "latency_p50", "throughput", "total_cpu_per_op"];

/// Reports of 60 hosts with three kernels, as [`altered`] makes them. `slow` is the factor of host 17.
pub(crate) fn reports(real: &Value, slow: f64) -> Vec<(String, Value)> {
    altered(real, |host, _, report| {
        report["host"]["kernel"] = json!(format!("6.{}", host % 3));
        if host == 17 { slow } else { 1.0 }
    })
}

/// Five reports of each of 60 hosts, in order of time: a host differs from another by 1 %, a report from the next by 2 %.
/// `alter` changes a report, the number of which it is told as well, and says the factor of its times.
///
/// Of the comparisons only those stay that every run has: on a busy machine a tail has too few requests, the noise then fell on
/// other values than on a quiet one, and a host that is slower by 10 % was found or not by what else ran.
fn altered(real: &Value, alter: impl Fn(usize, usize, &mut Value) -> f64) -> Vec<(String, Value)> {
    let mut real = real.clone();
    let comparisons = real["comparisons"].as_array_mut().unwrap();
    comparisons.retain(|comparison| ALWAYS.iter().any(|metric| comparison["metric"] == *metric));
    assert_eq!(comparisons.len(), ALWAYS.len());
    let mut noise = Noise(7);
    let mut all = Vec::new();
    for host in 0..60 {
        let own = (0.01 * noise.draw()).exp();
        for number in 0..5 {
            let mut report = real.clone();
            report["started_at"] = json!(format!("2026-11-{:02}T11:00:00Z", number + 1));
            let own = own * alter(host, number, &mut report);
            slow_down(&mut report["comparisons"], own, 0.02, &mut noise);
            all.push((format!("host{host}"), report));
        }
    }
    all
}

pub(crate) fn store(folder: &Path, reports: &[(String, Value)]) {
    for (number, (host, report)) in reports.iter().enumerate() {
        fs::create_dir_all(folder.join(host)).unwrap();
        fs::write(folder.join(host).join(format!("{number}.json")), report.to_string()).unwrap();
    }
}

/// Gives lines to a verb; its end, and its JSON.
fn fed(home: &Home, verb: &str, lines: &[String]) -> (Ended, Value) {
    let mut command = home.command(&[verb, "-", "--json", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let ended = Ended::of(&child.wait_with_output().unwrap());
    let json = serde_json::from_str(&ended.stdout).unwrap_or_default();
    (ended, json)
}

#[test]
fn the_slow_one_of_sixty_hosts_is_found_and_nothing_else() {
    let home = Home::new();
    let real = home.measure(&["bench", "raw"]);
    let folder = home.path("fleet");
    let slow = reports(&real, 1.10);
    store(&folder, &slow);
    fs::write(folder.join("broken.json"), "{").unwrap();
    let name = folder.display().to_string();
    let json = home.path("found.json");
    let compare = |more: &[&str]| home.run(&[&["compare", &name], more].concat());
    let ended = compare(&["--json", json.to_str().unwrap(), "--fail-on-slower"]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    assert!(ended.stdout.starts_with("Of 60 hosts 1 host differs"), "{}", ended.stdout);
    assert!(ended.stderr.contains("left out") && ended.stderr.contains("broken.json"), "{}", ended.stderr);
    let found: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&found["reports"], &found["environments"]), (&json!(300), &json!(3)));
    assert!(found["factors"].as_array().unwrap().is_empty(), "{found}");
    let differ = found["differ"].as_array().unwrap();
    assert!(!differ.is_empty() && differ.iter().all(|one| one["host"] == "host17"), "{found}");
    assert!(differ.iter().all(|one| one["is_slower"] == true), "{found}");

    // The same as lines, and as the plugin of kubectl has them.
    let named = slow.iter().map(|(host, report)| {
        let mut report = report.clone();
        report["host_name"] = json!(host);
        report.to_string()
    });
    let of_nodes = slow.iter().map(|(host, report)| format!("{{\"node\":\"{host}\",\"found\":{report}}}"));
    for lines in [named.collect::<Vec<_>>(), of_nodes.collect()] {
        let (ended, of_lines) = fed(&home, "compare", &lines);
        assert_eq!(ended.status, 0, "{}", ended.both());
        assert_eq!(of_lines["differ"], found["differ"]);
    }
    let (ended, none) = fed(&home, "compare", &["{\"node\":\"a\",\"found\":{}}".to_owned(), "x".to_owned()]);
    assert_eq!((ended.status, none), (2, Value::Null), "{}", ended.both());
    assert!(ended.stderr.contains("line 1") && ended.stderr.contains("line 2"), "{}", ended.stderr);

    fs::remove_dir_all(&folder).unwrap();
    store(&folder, &reports(&real, 1.0));
    let alike = compare(&["--fail-on-slower"]);
    assert_eq!(alike.status, 0, "{}", alike.both());
    assert!(alike.stdout.contains("no host differs"), "{}", alike.stdout);
    let one = folder.join("host1").join("5.json").display().to_string();
    assert_eq!(home.run(&["compare", &one]).status, 2, "one report is no comparison");
}

#[test]
fn parts_of_the_environment_that_differ_are_named_and_together_where_nothing_tells_them_apart() {
    let home = Home::new();
    let real = home.measure(&["bench", "raw"]);
    let folder = home.path("fleet");
    let compared = |alter: &dyn Fn(bool, &mut Value)| {
        // A third of the hosts has something else, and takes longer by 10 %.
        let reports = altered(&real, |host, _, report| {
            alter(host % 3 == 2, report);
            if host % 3 == 2 { 1.10 } else { 1.0 }
        });
        store(&folder, &reports);
        let ended = home.run(&["compare", folder.to_str().unwrap(), "--json", "-"]);
        assert_eq!(ended.status, 0, "{}", ended.both());
        fs::remove_dir_all(&folder).unwrap();
        serde_json::from_str::<Value>(&ended.stdout).unwrap()
    };
    let named = |found: &Value, factors: Value, level: &str, usual: &str| {
        assert_eq!(found["differ"], json!([]), "hosts are compared with their like");
        let all = found["factors"].as_array().unwrap();
        assert!(!all.is_empty(), "{found}");
        for one in all {
            let what = (&one["factors"], &one["level"], &one["usual"], &one["hosts"]);
            assert_eq!(what, (&factors, &json!(level), &json!(usual), &json!(20)), "{one}");
            let (low, high) = (one["ci_low"].as_f64().unwrap(), one["ci_high"].as_f64().unwrap());
            let ratio = if one["metric"] == "throughput" { 1.0 / 1.10 } else { 1.10 };
            assert!(low < ratio && ratio < high, "{one}");
        }
        all.len()
    };

    let found = compared(&|is_other, report| {
        report["host"]["kernel"] = json!(if is_other { "6.2" } else { "6.0" });
        report["host"]["cpu_model"] = json!(if is_other { "old" } else { "new" });
    });
    let both = named(&found, json!(["kernel", "CPU"]), "6.2, old", "6.0, new");

    let found = compared(&|is_other, report| {
        let value = if is_other { "cubic" } else { "bbr" };
        report["host"]["sysctls"]["net.ipv4.tcp_congestion_control"] = json!(value);
    });
    assert_eq!(named(&found, json!(["congestion control"]), "cubic", "bbr"), both);

    let found = compared(&|is_other, report| {
        report["host"]["mitigations"] = if is_other { json!(["b", "a"]) } else { json!([]) };
    });
    assert_eq!(named(&found, json!(["mitigations"]), "a, b", ""), both);

    // The same hosts, which take as long as the others.
    let reports = altered(&real, |host, _, report| {
        report["host"]["kernel"] = json!(if host % 3 == 2 { "6.2" } else { "6.0" });
        1.0
    });
    store(&folder, &reports);
    let alike = home.run(&["compare", folder.to_str().unwrap(), "--json", "-"]);
    let alike: Value = serde_json::from_str(&alike.stdout).unwrap();
    assert_eq!((&alike["factors"], &alike["environments"]), (&json!([]), &json!(2)));
}

#[test]
fn a_host_whose_newest_run_became_slower_is_found_in_its_history() {
    let home = Home::new();
    let real = home.measure(&["bench", "raw"]);
    let reports = |slow: f64| {
        altered(&real, |host, number, report| {
            let is_it = host == 17 && number == 4;
            report["host"]["kernel"] = json!(if is_it { "6.1" } else { "6.0" });
            report["command"] = json!(["samehost", "bench", "raw", "--json", format!("{number}.json")]);
            if is_it { slow } else { 1.0 }
        })
    };
    let folder = home.path("fleet");
    let name = folder.display().to_string();
    let slow = reports(4.0);
    store(&folder, &slow);
    let json = home.path("found.json");
    let ended = home.run(&["history", &name, "--json", json.to_str().unwrap(), "--fail-on-slower"]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    assert!(ended.stdout.starts_with("Of 60 hosts 1 host's newest run differs"), "{}", ended.stdout);
    assert!(ended.stdout.contains("kernel 6.0 → 6.1"), "{}", ended.stdout);
    let found: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&found["reports"], &found["hosts"]), (&json!(300), &json!(60)));
    let histories = found["histories"].as_array().unwrap();
    for one in histories {
        let runs = one["runs"].as_array().unwrap();
        assert!(runs.len() == 5 && runs.is_sorted_by_key(|run| run["started_at"].as_str()), "{one}");
        assert_eq!(one["command"], "bench raw", "where results go does not matter");
        let is_arm = !one["arm"].as_str().unwrap().contains('÷');
        assert_eq!(one["newest"]["differs"] == true, one["host"] == "host17" && is_arm, "{one}");
    }
    let is_slower = |one: &&Value| one["newest"]["is_slower"] == true;
    assert!(histories.iter().filter(is_slower).count() > 0, "{found}");

    // Lines in any order are the same.
    let mut lines: Vec<String> =
        slow.iter().map(|(host, report)| format!("{{\"node\":\"{host}\",\"found\":{report}}}")).collect();
    lines.reverse();
    let (ended, of_lines) = fed(&home, "history", &lines);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert_eq!(of_lines, found);

    fs::remove_dir_all(&folder).unwrap();
    store(&folder, &reports(1.0));
    let alike = home.run(&["history", &name, "--fail-on-slower"]);
    assert_eq!(alike.status, 0, "{}", alike.both());
    assert!(alike.stdout.starts_with("Of 60 hosts no newest run differs"), "{}", alike.stdout);
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    assert_eq!(home.run(&["history", &name]).status, 2, "nothing is there");
}
