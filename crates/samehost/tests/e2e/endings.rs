//! How a measurement can end: Ctrl-C, kill -9, a dead server, a full disk, a closed pipe. Nothing measured is
//! lost, and nothing is left running.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ended, Home, QUICK, newest, rest, send, wait_for};

const LONG: &[&str] = &["bench", "raw", "--trial-time", "40ms", "--min-blocks", "300", "--max-blocks", "300"];

/// Trials stored so far in the home's samples file.
fn stored_trials(home: &Home) -> usize {
    let files = home.stored();
    let Some(file) = files.last() else { return 0 };
    std::fs::read_to_string(file)
        .unwrap_or_default()
        .lines()
        .filter(|line| line.contains("\"trial\""))
        .count()
}

#[test]
fn ctrl_c_stops_cleanly_and_reports_what_was_measured() {
    let home = Home::new();
    let json = home.path("report.json");
    let mut child = home
        .command(&[LONG, &["--json", json.to_str().unwrap()]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("ten trials", || (stored_trials(&home) >= 10).then_some(()));
    send(child.id(), Signal::INT);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{}", rest(child.stderr.take().unwrap()));
    assert!(rest(child.stdout.take().unwrap()).contains("tcp"), "what was measured is shown");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["outcome"], "interrupted");
    assert!(report["trials"].as_array().unwrap().len() >= 10);
    home.assert_nothing_left();
}

#[test]
fn kill_9_loses_at_most_the_trial_in_flight() {
    let home = Home::new();
    let mut child = home.command(LONG).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("ten trials", || (stored_trials(&home) >= 10).then_some(()));
    send(child.id(), Signal::KILL);
    child.wait().unwrap();
    let files = home.stored();
    home.assert_nothing_left_after_the_next();
    let ended = home.run(&["report", newest(&files).to_str().unwrap(), "--json", "-"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["outcome"], "unfinished");
    assert!(report["trials"].as_array().unwrap().len() >= 10);
    assert!(!report["comparisons"].as_array().unwrap().is_empty());
    // The newest is what `report` shows by itself.
    assert_eq!(home.run(&["report"]).status, 0);
}

#[test]
fn a_samples_file_that_was_cut_off_is_read_up_to_there() {
    let home = Home::new();
    home.measure(&["bench", "raw"]);
    let files = home.stored();
    let text = std::fs::read_to_string(newest(&files)).unwrap();
    let cut = home.path("cut.jsonl");
    for keep in [text.len() - 5, text.len() / 2, text.find('\n').unwrap() + 1] {
        std::fs::write(&cut, &text.as_bytes()[..keep]).unwrap();
        let ended = home.run(&["report", cut.to_str().unwrap()]);
        assert_eq!(ended.status, 0, "{keep}: {}", ended.stderr);
    }
}

#[test]
fn a_server_that_dies_ends_it_with_what_was_measured() {
    let home = Home::new();
    let mut child = home
        .command(&[LONG, &["--json", "-"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || rest(stdout));
    wait_for("five trials", || (stored_trials(&home) >= 5).then_some(()));
    let is_server = |line: &str| {
        line.contains("serve echo") && !line.contains("supervise") && !line.contains("become-server")
    };
    // A server that is just being replaced by the next one dies anyway: so every one that is seen.
    let status = wait_for("the end", || {
        for (pid, _) in home.processes().into_iter().filter(|(_, line)| is_server(line)) {
            send(pid, Signal::KILL);
        }
        child.try_wait().unwrap()
    });
    let stderr = rest(child.stderr.take().unwrap());
    assert_eq!(status.code(), Some(3), "{stderr}");
    assert!(
        stderr.contains("went away")
            || stderr.contains("nothing listens")
            || stderr.contains("refused")
            || stderr.contains("cannot connect")
            || stderr.contains("could not start"),
        "{stderr}"
    );
    let report: Value = serde_json::from_str(&reader.join().unwrap()).unwrap();
    assert_eq!(report["outcome"], "failed");
    assert!(report["trials"].as_array().unwrap().len() >= 5);
    home.assert_nothing_left();
}

#[test]
fn a_full_disk_is_told_with_the_way_to_the_samples() {
    let home = Home::new();
    let ended = home.run(&[&["bench", "raw", "--json", "/dev/full"], QUICK].concat());
    assert_eq!(ended.status, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("/dev/full") && ended.stderr.contains("No space left"), "{}", ended.stderr);
    assert!(ended.stderr.contains("samehost report"), "{}", ended.stderr);
    let files = home.stored();
    assert!(ended.stderr.contains(newest(&files).to_str().unwrap()), "{}", ended.stderr);
    assert_eq!(home.run(&["report", newest(&files).to_str().unwrap()]).status, 0);
    home.assert_nothing_left();
}

#[test]
fn no_place_for_samples_is_a_warning_and_no_end() {
    let home = Home::new();
    std::fs::write(home.path("state/samehost"), "a file in the way").unwrap();
    let report = home.measure(&["bench", "raw", "--transports", "tcp"]);
    assert!(crate::support::warns(&report, "not_stored"), "{}", report["warnings"]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let home = Home::new();
    let command = [&["bench", "raw", "--transports", "tcp"], QUICK].concat();
    let mut child = home.command(&command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let ended = Ended::of(&output);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
}
