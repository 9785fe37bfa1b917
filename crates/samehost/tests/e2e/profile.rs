//! `bench --profile` with the real perf: where the CPU time of each arm went, after all that is measured, and nothing
//! left of it.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Home, QUICK, rest, send, wait_for, warns};

fn samples(list: &Value) -> u64 {
    list.as_array().unwrap().iter().map(|one| one["samples"].as_u64().unwrap()).sum()
}

/// Processes that work in a directory of this home: perf does.
fn working_in(home: &Home) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let run = home.path("run");
    pids.filter(|pid: &u32| {
        let directory = fs::read_link(format!("/proc/{pid}/cwd"));
        directory.is_ok_and(|directory: PathBuf| directory.starts_with(&run))
    })
    .collect()
}

#[test]
fn each_arm_has_a_profile_and_the_differences_are_told() {
    let home = Home::new();
    let (json, page) = (home.path("result.json"), home.path("report.html"));
    let files = ["--json", json.to_str().unwrap(), "--html", page.to_str().unwrap()];
    let ended = home.run(&[&["bench", "raw", "--profile"], QUICK, &files].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    home.assert_nothing_left();
    assert!(ended.stdout.contains("Functions that differ most, µs per operation: unix against tcp"));
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let profiles = report["profiles"].as_array().unwrap();
    assert_eq!(profiles.iter().map(|profile| &profile["arm"]).collect::<Vec<_>>(), ["tcp", "unix"]);
    for profile in profiles {
        let all = profile["samples"].as_u64().unwrap();
        assert!(all > 10, "two seconds of a loop: {all}");
        for list in ["roles", "functions", "stacks"] {
            assert_eq!(samples(&profile[list]), all, "{list}");
        }
        let roles: Vec<&Value> =
            profile["roles"].as_array().unwrap().iter().map(|role| &role["role"]).collect();
        assert_eq!(roles, ["client", "server"]);
        let stacks = profile["stacks"].to_string();
        if profile["kernel_symbols"] == true {
            let wanted = if profile["arm"] == "tcp" { "tcp_sendmsg" } else { "unix_stream" };
            assert!(stacks.contains(wanted), "{stacks}");
        } else {
            assert!(warns(&report, "not_measured"), "it says that names are hidden");
        }
    }
    let differences = report["profile_differences"].as_array().unwrap();
    assert_eq!(differences.len(), 10);
    for pair in differences.windows(2) {
        let size = |one: &Value| one["difference_us_per_op"].as_f64().unwrap().abs();
        assert!(size(&pair[0]) >= size(&pair[1]), "the most first");
    }
    assert!(
        report["trials"].as_array().unwrap().iter().all(|trial| trial["seconds"].as_f64().unwrap() < 1.0)
    );
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg class=\"flame\"").count(), 2);
    // What was stored as it came has the profiles too.
    let again = home.run(&["report", "--json", "-"]);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["profile_differences"], report["profile_differences"]);
}

#[test]
fn without_perf_nothing_is_measured() {
    let home = Home::new();
    let empty = home.path("empty");
    fs::create_dir(&empty).unwrap();
    let output =
        home.command(&[&["bench", "raw", "--profile"], QUICK].concat()).env("PATH", &empty).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("apt install linux-perf") && said.contains("linux-tools-generic"), "{said}");
    assert!(output.stdout.is_empty() && home.stored().is_empty());
    home.assert_nothing_left();
}

#[test]
fn ctrl_c_or_a_kill_while_profiling_leaves_nothing() {
    for signal in [Signal::INT, Signal::KILL] {
        let home = Home::new();
        let mut child = home
            .command(&[&["bench", "raw", "--profile"], QUICK].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let is_perf = |(_, line): &(u32, String)| {
            line.contains("samehost-profile")
                && !line.contains("supervise")
                && !line.contains("become-server")
        };
        wait_for("perf", || home.processes().iter().any(is_perf).then_some(()));
        wait_for("perf's directory", || (!working_in(&home).is_empty()).then_some(()));
        send(child.id(), signal);
        let status = child.wait().unwrap();
        if signal == Signal::INT {
            assert_eq!(status.code(), Some(130), "{}", rest(child.stderr.take().unwrap()));
            assert!(rest(child.stdout.take().unwrap()).contains("tcp"), "what was measured is shown");
        }
        home.assert_nothing_left();
        wait_for("perf to be gone", || working_in(&home).is_empty().then_some(()));
    }
}
