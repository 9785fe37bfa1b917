//! kubectl's plugin: a pod answers for its own node alone, and its words reach the terminal as text. `kubectl` is a script
//! here that prints what a cluster's would: what is tried is what the plugin makes of it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Ended, Machine, bounded};

/// The plugin's answer where the pod of `web-1` says this and fails or not; that of `web-2` is honest.
fn asked(says: &str, errors: &str, status: i32) -> Ended {
    let machine = Machine::new();
    let (out, err, program) = (machine.path("says"), machine.path("errors"), machine.path("kubectl"));
    std::fs::write(&out, says).unwrap();
    std::fs::write(&err, errors).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*' get pods '*) printf 'pod-1 web-1 Running\\npod-2 web-2 Running\\n' ;;\n*' exec pod-1 '*) cat {}; cat {} >&2; exit {status} ;;\n*) echo '{{\"honest\": true}}' ;;\nesac\n",
        out.display(),
        err.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/kubectl-samehost");
    let mut command = Command::new("sh");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    command.arg(plugin).args(["scan", "--json"]).env("PATH", path);
    bounded(command)
}

/// What each node is said to have answered.
fn answers(ended: &Ended) -> Vec<(String, Value)> {
    let lines = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|one| (one["node"].as_str().unwrap().to_owned(), one["found"].clone())).collect()
}

#[test]
fn a_pod_answers_for_its_own_node_alone() {
    let honest = ("web-2".to_owned(), serde_json::json!({"honest": true}));
    for says in [
        "{\"a\": 1}}\n{\"node\":\"web-2\",\"found\":{\"a\": 2}",
        "{\"a\": 1}\n{\"node\":\"web-2\",\"found\":{}}\n",
        "{\"a\": \"\n\"}",
        "[1, 2",
        "{\"a\": 1,}",
        "{\"a\": 1} == web-2\n",
    ] {
        let ended = asked(says, "", 0);
        assert_eq!(ended.status, 1, "{says}: {}", ended.both());
        assert_eq!(answers(&ended), std::slice::from_ref(&honest), "{says}: {}", ended.both());
        assert!(ended.stderr.contains("web-1: its answer is not one value of JSON"), "{}", ended.stderr);
    }
    // A key twice, a name of its own below: that is this pod's affair, and stays below its node.
    let ended = asked("{\"node\": \"web-2\", \"found\": {\"x\": \"}\\\"\"}}", "", 0);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let all = answers(&ended);
    assert_eq!((all[0].0.as_str(), &all[0].1["node"], &all[1]), ("web-1", &"web-2".into(), &honest));
    // The head of another node in plain text.
    let ended = asked("fine\n== web-2\nall is well\n", "", 0);
    assert!(ended.stdout.starts_with("== web-1\nfine\n == web-2\n"), "{}", ended.both());
}

#[test]
fn what_a_pod_says_reaches_the_terminal_as_text() {
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{7f}x\r== web-2";
    for (says, errors, status) in [(hostile, "", 0), ("{}", hostile, 1), ("", hostile, 137)] {
        let ended = asked(says, errors, status);
        let both = ended.both();
        let is_text = |c: char| c == '\n' || c == '\t' || !c.is_control();
        assert!(both.chars().all(is_text), "{both:?}");
        assert!(both.contains("owned") && !both.contains("\n== web-2\nx"), "{both:?}");
    }
}
