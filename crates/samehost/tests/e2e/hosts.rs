//! `samehost compare FOLDER`: reports of many hosts, made from a real one.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Ended, Home};

/// Noise that is the same in each run of the test: about normal, with a deviation of 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        let mut uniform = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }
}

/// Reports of 60 hosts with three kernels: a host differs from another by 1 %, a report from the next by 2 %. `slow` is the
/// factor of host 17.
fn reports(real: &Value, slow: f64) -> Vec<(String, Value)> {
    let mut noise = Noise(7);
    let mut all = Vec::new();
    for host in 0..60 {
        let own = (0.01 * noise.next()).exp() * if host == 17 { slow } else { 1.0 };
        for _ in 0..5 {
            let mut report = real.clone();
            report["host"]["kernel"] = json!(format!("6.{}", host % 3));
            for comparison in report["comparisons"].as_array_mut().unwrap() {
                let is_rate = ["throughput", "bandwidth"].iter().any(|rate| comparison["metric"] == *rate);
                for value in ["baseline_value", "candidate_value"] {
                    let factor = own * (0.02 * noise.next()).exp();
                    let factor = if is_rate { 1.0 / factor } else { factor };
                    comparison[value] = json!(comparison[value].as_f64().unwrap() * factor);
                }
            }
            all.push((format!("host{host}"), report));
        }
    }
    all
}

fn store(folder: &Path, reports: &[(String, Value)]) {
    for (number, (host, report)) in reports.iter().enumerate() {
        fs::create_dir_all(folder.join(host)).unwrap();
        fs::write(folder.join(host).join(format!("{number}.json")), report.to_string()).unwrap();
    }
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

    // The same as lines.
    let mut child = home
        .command(&["compare", "-", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for (host, mut report) in slow {
        report["host_name"] = json!(host);
        writeln!(input, "{report}").unwrap();
    }
    drop(input);
    let lines = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(lines.status, 0, "{}", lines.both());
    assert_eq!(serde_json::from_str::<Value>(&lines.stdout).unwrap()["differ"], found["differ"]);

    fs::remove_dir_all(&folder).unwrap();
    store(&folder, &reports(&real, 1.0));
    let alike = compare(&["--fail-on-slower"]);
    assert_eq!(alike.status, 0, "{}", alike.both());
    assert!(alike.stdout.contains("no host differs"), "{}", alike.stdout);
    let one = folder.join("host1").join("5.json").display().to_string();
    assert_eq!(home.run(&["compare", &one]).status, 2, "one report is no comparison");
}
