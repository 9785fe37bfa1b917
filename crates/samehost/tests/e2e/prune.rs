//! `samehost report prune`: what goes, what stays, and that switches are never among it.

use std::fs;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

use crate::support::{Home, QUICK};

/// Stored results as a month of use would leave them, one a day: scans and measurements.
fn month(home: &Home) -> (PathBuf, PathBuf) {
    let state = home.path("state/samehost");
    let scans = state.join("scans");
    fs::create_dir_all(&scans).unwrap();
    let now = jiff::Timestamp::now();
    for day in 0..30 {
        let time = now - jiff::SignedDuration::from_hours(24 * day + 1);
        let name = time.strftime("%Y%m%dT%H%M%S.000Z").to_string();
        fs::write(scans.join(format!("{name}-1.json")), "x".repeat(100)).unwrap();
        fs::write(state.join(format!("{name}-raw-1.samples.jsonl")), "x".repeat(1000)).unwrap();
    }
    // Those of others, and journals of switches: none of them is a stored result.
    fs::create_dir_all(state.join("switches/20260101-000000-0000")).unwrap();
    fs::write(state.join("switches/20260101-000000-0000/journal"), "{}").unwrap();
    fs::write(state.join("notes.txt"), "mine").unwrap();
    (state, scans)
}

fn count(directory: &std::path::Path, suffix: &str) -> usize {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(suffix)).count()
}

#[test]
fn the_oldest_go_and_switches_stay() {
    let home = Home::new();
    let (state, scans) = month(&home);
    let left = || (count(&scans, ".json"), count(&state, ".samples.jsonl"));
    let plain = home.run(&["report", "prune"]);
    assert_eq!((plain.status, left()), (0, (30, 30)), "nothing is over its limit: {}", plain.both());
    assert!(plain.stdout.contains("0 scans gone, 0 B; 30 stay in "), "{}", plain.stdout);

    let dry = home.run(&["report", "prune", "--keep", "7", "--dry-run"]);
    assert_eq!((dry.status, left()), (0, (30, 30)), "{}", dry.stderr);
    assert!(dry.stdout.contains("23 scans would go, 2.25 KiB; 7 stay"), "{}", dry.stdout);
    assert!(
        dry.stdout.contains("and 3 more") && dry.stdout.contains("That would free 24.7 KiB"),
        "{}",
        dry.stdout
    );

    let old = home.run(&["report", "prune", "--older-than", "20d", "--keep", "25"]);
    assert_eq!((old.status, left()), (0, (25, 25)), "{}", old.both());
    let old = home.run(&["report", "prune", "--older-than", "20d"]);
    assert_eq!((old.status, left()), (0, (20, 20)), "{}", old.both());
    let newest = fs::read_dir(&scans).unwrap().map(|entry| entry.unwrap().file_name()).max();

    // One that a measurement is writing.
    let oldest = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
    let oldest = oldest.filter(|path| path.to_string_lossy().ends_with(".samples.jsonl")).min().unwrap();
    let writing = fs::File::open(&oldest).unwrap();
    flock(&writing, FlockOperation::LockShared).unwrap();
    let ended = home.run(&["report", "prune", "--keep", "1"]);
    assert_eq!((ended.status, left()), (1, (1, 2)), "{}", ended.both());
    assert!(ended.stderr.contains("is being written") && oldest.exists(), "{}", ended.stderr);
    assert_eq!(fs::read_dir(&scans).unwrap().map(|entry| entry.unwrap().file_name()).max(), newest);
    drop(writing);
    assert_eq!(home.run(&["report", "prune", "--keep", "0"]).status, 0);
    assert_eq!(left(), (0, 0));
    assert_eq!(fs::read_to_string(state.join("switches/20260101-000000-0000/journal")).unwrap(), "{}");
    assert_eq!(fs::read_to_string(state.join("notes.txt")).unwrap(), "mine");
    assert_eq!(home.run(&["report", "prune", "--older-than", "tomorrow"]).status, 2);
}

#[test]
fn what_is_over_the_limit_goes_when_another_is_stored() {
    let home = Home::new();
    let (state, scans) = month(&home);
    for number in 0..1100 {
        fs::write(scans.join(format!("20200101T000000.000Z-{number}.json")), "{}").unwrap();
    }
    assert_eq!(home.run(&["report", "prune"]).status, 0);
    assert_eq!(count(&scans, ".json"), 1000);
    assert!(!scans.join("20200101T000000.000Z-0.json").exists());
    // By bytes: the newest stays, however long it is.
    let long = scans.join("29990101T000000.000Z-1.json");
    fs::File::create(&long).unwrap().set_len(65 << 20).unwrap();
    let ended = home.run(&["report", "prune"]);
    assert!(ended.status == 0 && ended.stdout.contains("1000 scans gone"), "{}", ended.both());
    assert!(long.exists() && count(&scans, ".json") == 1);
    let quick = [&["bench", "raw", "--quiet"], QUICK].concat();
    assert_eq!(home.run(&quick).status, 0);
    assert_eq!(count(&state, ".samples.jsonl"), 31);
}
