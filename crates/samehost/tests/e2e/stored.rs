//! Stored results: rendered again, compared, claimed about.

use std::fs;

use crate::support::{Home, QUICK};

fn store(home: &Home, name: &str, seed: &str) -> String {
    let path = home.path(name).to_str().unwrap().to_owned();
    let quick: Vec<&str> = QUICK.iter().map(|word| if *word == "7" { seed } else { word }).collect();
    let ended = home.run(&[&["bench", "raw", "--json", &path], &quick[..]].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    path
}

#[test]
fn a_stored_report_renders_to_everything() {
    let home = Home::new();
    let json = store(&home, "a.json", "1");
    let csv = home.path("a.csv");
    let markdown = home.path("a.md");
    let again = home.path("again.json");
    let files = [
        "--csv",
        csv.to_str().unwrap(),
        "--markdown",
        markdown.to_str().unwrap(),
        "--json",
        again.to_str().unwrap(),
    ];
    let ended = home.run(&[&["report", &json], &files[..]].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("unix"));
    assert!(fs::read_to_string(&csv).unwrap().lines().count() > 5);
    assert!(fs::read_to_string(&markdown).unwrap().contains('|'));
    let read = |path: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    assert_eq!(
        read(&json)["comparisons"],
        read(again.to_str().unwrap())["comparisons"],
        "the same samples, the same verdicts"
    );
    assert!(!ended.stdout.contains('\u{1b}'), "no colour in a pipe");
    let quiet = home.run(&["report", &json, "--quiet", "--csv", "-"]);
    assert_eq!(quiet.stdout, fs::read_to_string(&csv).unwrap());
}

#[test]
fn what_is_no_report_is_called_what_it_is() {
    let home = Home::new();
    let file = home.path("other.json");
    for (text, words) in [
        (
            r#"{"schema": "samehost.checkup/1", "parts": []}"#,
            "is a checkup's; each of its parts has a report: jq",
        ),
        (
            r#"{"schema": "samehost.scan/1"}"#,
            "is of format `samehost.scan/1`; this version reads samehost.report/1",
        ),
        (r#"{"answer": 42}"#, "is neither a samehost report nor a samples file: missing field"),
    ] {
        fs::write(&file, text).unwrap();
        let ended = home.run(&["report", file.to_str().unwrap()]);
        assert!(ended.status == 2 && ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
}

#[test]
fn two_reports_are_compared() {
    let home = Home::new();
    let (old, new) = (store(&home, "old.json", "1"), store(&home, "new.json", "2"));
    let ended = home.run(&["report", "compare", &old, &new]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("unix"), "{}", ended.stdout);
    let json = home.run(&["report", "compare", &old, &new, "--json", "-"]);
    let changes: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(!changes["arms"].as_array().unwrap().is_empty());
    // A report whose every latency is ten times as large is slower, and asked to, compare fails on it.
    let mut slower: serde_json::Value = serde_json::from_str(&fs::read_to_string(&new).unwrap()).unwrap();
    // One block again and again has no noise. Without the control's trials: whatever they are off by is no noise either.
    let of_first = |trial: &&serde_json::Value| trial["block"] == 0 && trial["control"] != true;
    let mut trials = Vec::new();
    for block in 0..12 {
        for trial in slower["trials"].as_array().unwrap().iter().filter(of_first) {
            let mut trial = trial.clone();
            trial["block"] = block.into();
            trials.push(trial);
        }
    }
    slower["trials"] = trials.into();
    let steady = home.path("steady.json");
    fs::write(&steady, slower.to_string()).unwrap();
    for trial in slower["trials"].as_array_mut().unwrap() {
        trial["throughput_per_s"] = (trial["throughput_per_s"].as_f64().unwrap() / 10.0).into();
    }
    slower["started_at"] = "2098-01-01T00:00:00Z".into();
    let worse = home.path("worse.json");
    fs::write(&worse, slower.to_string()).unwrap();
    let compare = |old: &std::path::Path, new: &std::path::Path| {
        home.run(&["report", "compare", old.to_str().unwrap(), new.to_str().unwrap(), "--fail-on-slower"])
    };
    let same = compare(&steady, &steady);
    assert!(same.status == 2 && same.stderr.contains("the same measurement"), "{}", same.both());
    // Of another time: nothing became slower.
    let mut again: serde_json::Value = serde_json::from_str(&fs::read_to_string(&steady).unwrap()).unwrap();
    again["started_at"] = "2099-01-01T00:00:00Z".into();
    let later = home.path("later.json");
    fs::write(&later, again.to_string()).unwrap();
    assert_eq!(compare(&steady, &later).status, 0);
    let ended = compare(&steady, &worse);
    assert_eq!(ended.status, 1, "{}{}", ended.stdout, ended.stderr);
    let command = home.path("command.json");
    let quick =
        ["bench", "command", "true", "true", "--max-blocks", "6", "--json", command.to_str().unwrap()];
    assert_eq!(home.run(&quick).status, 0);
    assert_eq!(
        home.run(&["report", "compare", &old, command.to_str().unwrap()]).status,
        2,
        "nothing in common"
    );
}

#[test]
fn history_holds_each_run_against_the_one_before() {
    let home = Home::new();
    let (old, new) = (store(&home, "old.json", "1"), store(&home, "new.json", "2"));
    // Later, and every latency ten times as large.
    let mut slow: serde_json::Value = serde_json::from_str(&fs::read_to_string(&new).unwrap()).unwrap();
    slow["started_at"] = "2099-01-01T00:00:00Z".into();
    for trial in slow["trials"].as_array_mut().unwrap() {
        for value in trial["latency_us"].as_object_mut().unwrap().values_mut() {
            if let Some(number) = value.as_f64() {
                *value = (10.0 * number).into();
            }
        }
    }
    let later = home.path("later.json");
    fs::write(&later, slow.to_string()).unwrap();
    let files = [later.to_str().unwrap(), &old, &new];
    let ended = home.run(&[&["report", "list"], &files[..]].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout.matches("the first stored run").count(), 1, "{}", ended.stdout);
    assert_eq!(ended.stdout.matches("since the run before").count(), 2, "{}", ended.stdout);
    let listed = home.run(&[&["report", "list", "--json", "-"], &files[..]].concat());
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(runs[0]["previous"], serde_json::Value::Null);
    assert_eq!(runs[2]["previous"], new.as_str());
    assert!(!runs[2]["changes"]["arms"].as_array().unwrap().is_empty());
    // The store knows both runs by itself.
    let stored = home.run(&["report", "list"]);
    assert_eq!(stored.status, 0, "{}", stored.stderr);
    assert!(stored.stdout.contains("since the run before"), "{}", stored.stdout);
    let nothing = Home::new().run(&["report", "list"]);
    assert_eq!(nothing.status, 2);
    assert!(nothing.stderr.contains("samehost bench"), "{}", nothing.stderr);
}

#[test]
fn the_old_words_say_the_new_ones_and_do_the_same() {
    let home = Home::new();
    let (old, new) = (store(&home, "old.json", "1"), store(&home, "new.json", "2"));
    for (before, now) in [
        (&["compare", &old, &new][..], &["report", "compare", &old, &new][..]),
        (&["history", &old], &["report", "list", &old]),
        (&["prune", "--dry-run"], &["report", "prune", "--dry-run"]),
    ] {
        let (before_ended, now_ended) = (home.run(before), home.run(now));
        assert_eq!((before_ended.status, &before_ended.stdout), (0, &now_ended.stdout), "{before:?}");
        let line = format!("samehost: `samehost {}` is `samehost report {}` now\n", before[0], now[1]);
        assert_eq!((before_ended.stderr, now_ended.stderr.as_str()), (line, ""));
    }
    let hosts = home.run(&["compare", home.path("").to_str().unwrap()]);
    assert!(
        hosts.status == 2 && hosts.stderr.contains("where their metrics are gathered"),
        "{}",
        hosts.both()
    );
}
