//! How a command ends, whatever its output, its signals and its parent are: the status is that of what happened.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Ended, Machine, bounded, wait_for};

/// Starts a command with SIGCHLD ignored, as daemons that do not wait for their children leave it, or in other surroundings.
const SURROUNDINGS: &[(&str, &str)] = &[
    ("as usual", "exec \"$@\""),
    ("SIGCHLD ignored", "trap '' CHLD; exec \"$@\""),
    ("standard input closed", "exec \"$@\" <&-"),
    ("a session of its own", "exec setsid --wait \"$@\""),
    ("another umask", "umask 0777; exec \"$@\""),
    ("few descriptors", "ulimit -n 40; exec \"$@\""),
];

fn within(surroundings: &str, command: &Command) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", surroundings, "bash"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// Verbs that end by themselves, with a claim that does not hold where there is a way to make one.
fn verbs(machine: &Machine) -> Vec<(Vec<String>, i32)> {
    let report = machine.path("report.json").display().to_string();
    let measured = machine.samehost(&["bench", "raw", "--budget", "5s", "--json", &report, "--quiet"]);
    assert_eq!(measured.status, 0, "{}", measured.both());
    let words =
        |line: &str| line.replace("REPORT", &report).split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut claim = words("report REPORT --assert");
    claim.push("unix/tcp throughput >= 1000".to_owned());
    vec![
        (words("scan"), 0),
        (words("scan --json"), 0),
        (words("how redis"), 0),
        (words("report REPORT"), 0),
        (claim, 1),
        (words("report /nowhere.json"), 2),
        (words("verify tcp:127.0.0.1:1"), 3),
        (words("switch list"), 0),
        (words("report list"), 0),
        (words("completions bash"), 0),
        (words("report compare REPORT REPORT"), 2),
        (words("report prune --keep 5 --dry-run"), 0),
        (words("switch check"), 0),
        (words("checkup --budget 1s"), 2),
        (words("reproduce Q9"), 2),
        (words("serve echo --listen nowhere"), 2),
        (words("top --every 1ms"), 2),
        (words("run --quiet --map 1=/nowhere -- sh -c exit\u{a0}7"), 7),
        (words("run --preload --quiet --map 1=/nowhere -- sh -c exit\u{a0}7"), 7),
    ]
    .into_iter()
    .map(|(words, status)| (words.iter().map(|word| word.replace('\u{a0}', " ")).collect(), status))
    .collect()
}

#[test]
fn each_verb_has_its_status_in_all_surroundings() {
    let machine = Machine::new();
    for (words, status) in verbs(&machine) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let command = machine.command(&words);
        let usual = bounded(within(SURROUNDINGS[0].1, &command));
        // What an exit status without a cause here is (a report's version, say) is not this test's matter; but it is the same.
        assert_eq!(usual.status, status, "{words:?}: {}", usual.both());
        for (name, surroundings) in &SURROUNDINGS[1..] {
            let ended = bounded(within(surroundings, &command));
            assert_eq!(ended.status, status, "{words:?}, {name}: {}", ended.both());
        }
        // The reader of standard output has gone before the first byte.
        let ended = bounded(within("\"$@\" 2>/dev/null | true; exit ${PIPESTATUS[0]}", &command));
        assert_eq!(ended.status, status, "{words:?}, nobody reads: {}", ended.both());
        let full = bounded(within("exec \"$@\" >/dev/full", &command));
        let says_so = full.status == status || status == 0 && full.status == 3;
        assert!(says_so, "{words:?}, a full disk: {} {}", full.status, full.stderr);
    }
}

/// A signal while a server is waited for: a login, a page, a measurement that has not begun.
#[test]
fn a_signal_ends_what_waits_with_130() {
    let mut machine = Machine::new();
    let place = machine.path("port");
    let mut silent = Command::new("/usr/bin/python3");
    let script = "import os, socket, sys, time
l = socket.create_server(('127.0.0.1', 0), backlog=99)
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1])); os.rename(sys.argv[1] + '.new', sys.argv[1])
kept = []
while True: kept.append(l.accept()[0]); open(sys.argv[1] + '.asked', 'a').write('x')";
    silent.args(["-c", script]).arg(&place);
    machine.start(silent);
    let port = wait_for("the server", || std::fs::read_to_string(&place).ok());
    let asked = place.with_extension("asked");
    machine.write("site/artisan", "#!/usr/bin/env php\n");
    machine.write("site/composer.json", "{\"require\":{\"laravel/framework\":\"^10\"}}\n");
    machine.write(
        "site/.env",
        format!("REDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PASSWORD=x\nREDIS_PORT={port}\n"),
    );
    let site = machine.path("site").display().to_string();
    for (number, words) in [
        &["verify", "redis://127.0.0.1:PORT", "--expect", "unix"][..],
        &["verify", &site],
        &["bench", "redis", "--transports", "tcp", "--yes", "--tcp", "redis://127.0.0.1:PORT"],
        &["bench", "mysql", "--transports", "tcp", "--yes", "--tcp", "mysql://u:p@127.0.0.1:PORT/d"],
        &["bench", "postgres", "--transports", "tcp", "--yes", "--tcp", "postgres://u@127.0.0.1:PORT/d"],
        &["bench", "http", "--transports", "tcp", "--yes", "--tcp", "http://127.0.0.1:PORT/"],
    ]
    .into_iter()
    .enumerate()
    {
        for signal in [Signal::INT, Signal::TERM] {
            let _ = std::fs::remove_file(&asked);
            let words: Vec<String> = words.iter().map(|word| word.replace("PORT", &port)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut command = machine.command(&words);
            let child =
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
            wait_for("a question", || asked.exists().then_some(()));
            kill_process(Pid::from_child(&child), signal).unwrap();
            let begun = Instant::now();
            let ended = Ended::of(&child.wait_with_output().unwrap());
            assert_eq!(ended.status, 130, "{number} {words:?} {signal:?}: {}", ended.both());
            assert!(begun.elapsed() < Duration::from_secs(30), "{words:?}");
            // What was done so far, if it was anything, and nobody is blamed.
            let said = ended.both();
            assert!(
                words[0] != "verify" || said.is_empty() || said.contains("a login could not be tried"),
                "{said}"
            );
            for blamed in ["is the server stopped", "refuses", "was expected", "no answer to the login"] {
                assert!(!said.contains(blamed), "{blamed}: {said}");
            }
        }
    }
}

/// Every verb that goes on by itself, once it listens for signals. A server is ended by one as by its usual end; what `run`
/// started has the status.
#[test]
fn a_signal_ends_what_goes_on_with_130() {
    let machine = Machine::new();
    for (words, statuses) in [
        (&["checkup", "--quiet"][..], [130, 130]),
        (&["bench", "raw", "--budget", "60s", "--quiet"], [130, 130]),
        (&["reproduce", "W", "--quiet"], [130, 130]),
        (&["scan", "--observe", "60s", "--quiet"], [130, 130]),
        (&["serve", "echo", "--listen", "tcp:127.0.0.1:0"], [0, 0]),
        // A shell that gets SIGINT at its terminal shares it with the program; here only the program would know.
        (&["run", "--quiet", "--map", "1=/nowhere", "--", "sleep", "60"], [143, 143]),
    ] {
        let signals = if words[0] == "run" { [Signal::TERM; 2] } else { [Signal::INT, Signal::TERM] };
        for (signal, status) in signals.into_iter().zip(statuses) {
            let mut command = machine.command(words);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
            let child = command.spawn().unwrap();
            wait_for(&format!("{words:?} to listen for {signal:?}"), || {
                listens(child.id(), signal).then_some(())
            });
            kill_process(Pid::from_child(&child), signal).unwrap();
            let begun = Instant::now();
            let ended = Ended::of(&child.wait_with_output().unwrap());
            assert_eq!(ended.status, status, "{words:?} {signal:?}: {}", ended.both());
            assert!(begun.elapsed() < Duration::from_secs(30), "{words:?} {signal:?}");
        }
    }
}

/// Whether a process has a handler for a signal, or blocks it and reads it from a descriptor.
pub(crate) fn listens(pid: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let has = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(text.trim(), 16).unwrap_or(0) & 1 << (signal.as_raw() - 1) != 0
    };
    has("SigCgt:") || has("SigBlk:")
}

/// Files that are too long are an error, and do not end samehost in the middle of something.
#[test]
fn a_limit_of_files_is_an_error() {
    let machine = Machine::new();
    let out = machine.path("scan.json").display().to_string();
    let command = machine.command(&["scan", "--json"]);
    let ended = bounded(within(&format!("ulimit -f 0; exec \"$@\" >{out}"), &command));
    assert_eq!(ended.status, 3, "{}", ended.both());
    assert!(ended.stderr.contains("standard output: File too large"), "{}", ended.stderr);
}
