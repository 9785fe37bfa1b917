//! What a build has, and what it says of that which was left out of it: true for every set of cargo features. Needs neither
//! servers nor root.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use samehost_testing::{Ended, TINY, idle_or_failing, samehost};
use tempfile::TempDir;

/// Verbs that can be left out, their cargo features, and whether this build has them.
const VERBS: [(&str, &str, bool); 1] = [("switch", "switch", cfg!(feature = "switch"))];
const HAS_HTML: bool = cfg!(feature = "html");

fn run(home: &TempDir, arguments: &[&str]) -> Ended {
    let mut command = samehost(env!("CARGO_BIN_EXE_samehost"), home.path(), arguments);
    Ended::of(&command.current_dir(home.path()).output().unwrap())
}

/// It ended as wrong use, and said in lines of 80 columns which feature would have it.
fn assert_left_out(ended: &Ended, feature: &str) {
    assert_eq!(ended.status, 2, "{}", ended.both());
    let says = format!("The cargo feature `{feature}` has it");
    assert!(ended.stderr.contains("was left out of this build") && ended.stderr.contains(&says), "{ended:?}");
    let widest = ended.stderr.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 80, "{widest} columns in\n{}", ended.stderr);
}

#[test]
fn help_lists_what_the_build_has() {
    let home = TempDir::new().unwrap();
    let help = run(&home, &["--help"]).stdout;
    for (verb, _, is_built_in) in VERBS {
        // A verb's row is indented; the sentences below the list are not, and may begin with its name.
        let is_listed = help.lines().any(|line| line.starts_with(&format!("  {verb} ")));
        assert_eq!(is_listed, is_built_in, "{verb} in\n{help}");
    }
    for verb in
        [&["bench", "raw", "--help"][..], &["report", "--help"], &["reproduce", "--help"], &["--help"]]
    {
        let help = run(&home, verb).stdout;
        let has = |option: &str| help.lines().any(|line| line.trim_start().starts_with(option));
        assert_eq!((has("--html"), has("--json")), (HAS_HTML, true), "{verb:?}\n{help}");
    }
}

#[test]
fn a_verb_that_was_left_out_is_not_unknown() {
    let home = TempDir::new().unwrap();
    for (verb, feature, is_built_in) in VERBS {
        for words in [&[][..], &["--help"], &["--yes", "--to", "unix", "/var/www"]] {
            if !is_built_in {
                assert_left_out(&run(&home, &[&[verb], words].concat()), feature);
            }
        }
        let help = run(&home, &[verb, "--help"]);
        assert_eq!(help.status == 0, is_built_in, "{verb}: {}", help.both());
    }
    assert_eq!(run(&home, &["rearrange"]).status, 2);
}

#[test]
fn a_configuration_is_verified_by_a_build_with_switch() {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join(".env"), "REDIS_URL=redis://127.0.0.1:1\n").unwrap();
    let ended = run(&home, &["verify", ".env"]);
    if cfg!(feature = "switch") {
        assert!(!ended.stderr.contains("left out"), "{}", ended.both());
    } else {
        assert_left_out(&ended, "switch");
    }
    let endpoint = run(&home, &["verify", "tcp:127.0.0.1:1"]);
    assert!(!endpoint.stderr.contains("left out"), "{}", endpoint.both());
}

#[test]
fn every_build_measures_and_renders() {
    let home = TempDir::new().unwrap();
    let ended = run(&home, &[&["bench", "raw"], TINY].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(idle_or_failing(&report), [""; 0]);
    fs::write(home.path().join("result.json"), &ended.stdout).unwrap();
    let rendered = run(&home, &["report", "result.json", "--markdown", "result.md", "--csv", "result.csv"]);
    assert_eq!(rendered.status, 0, "{}", rendered.stderr);
    assert!(rendered.stdout.contains("unix"), "{}", rendered.stdout);
    let page = run(&home, &["report", "result.json", "--quiet", "--html", "page.html"]);
    if HAS_HTML {
        assert_eq!(page.status, 0, "{}", page.stderr);
        assert!(fs::read_to_string(home.path().join("page.html")).unwrap().starts_with("<!doctype html>"));
    } else {
        assert_left_out(&page, "html");
        assert!(!home.path().join("page.html").exists());
    }
}
