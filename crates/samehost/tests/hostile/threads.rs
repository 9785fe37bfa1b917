//! No thread may be started: a limit of a user (RLIMIT_NPROC), as pids.max of a container and TasksMax= of a unit refuse them, and in the
//! middle of a switch, where the kernel's answer is put in its place by strace.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::serving::Site;
use crate::support::{Ended, MALLORY, Machine, bounded, copy_program, free_port};

/// A program of a user who may have one process, which is itself.
struct Alone {
    machine: Machine,
    program: PathBuf,
}

impl Alone {
    fn new() -> Self {
        let machine = Machine::new();
        let program = machine.folder_of("own", MALLORY).join("samehost");
        copy_program(env!("CARGO_BIN_EXE_samehost"), &program);
        Alone { machine, program }
    }

    fn run(&self, most: &str, words: &[&str]) -> Ended {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nproc={most}:{most}")).arg("--").arg(&self.program).args(words);
        let home = self.machine.path("own");
        command.env("HOME", &home).env("XDG_STATE_HOME", home.join("state")).current_dir(&home);
        bounded_as_mallory(command)
    }
}

/// prlimit(1) is started by the user himself.
fn bounded_as_mallory(mut command: Command) -> Ended {
    command.uid(MALLORY).gid(MALLORY);
    bounded(command)
}

#[track_caller]
fn assert_no_panic(ended: &Ended, what: &str) {
    assert!(
        ![101, 134].contains(&ended.status) && !ended.stderr.contains("panicked"),
        "{what}: {}",
        ended.both()
    );
}

#[test]
fn no_verb_panics_where_no_thread_may_be_started() {
    let alone = Alone::new();
    let port = free_port();
    let folder = alone.machine.folder_of("own/results", MALLORY).display().to_string();
    let listen = format!("tcp:127.0.0.1:{port}");
    for words in [
        &["scan"][..],
        &["scan", "--json"],
        &["how", "redis"],
        &["verify", "tcp:127.0.0.1:1"],
        &["history"],
        &["compare", &folder],
        &["serve", "echo", "--listen", &listen],
        &["checkup", "--budget", "20s"],
        &["bench", "raw", "--budget", "5s"],
        &["bench", "command", "--budget", "5s", "--", "true"],
        &["run", "--map", "1=/nowhere", "--", "true"],
        &["run", "--preload", "--map", "1=/nowhere", "--", "true"],
    ] {
        assert_no_panic(&alone.run("1", words), &words.join(" "));
    }
}

/// The other side: what needs no second thread does all of its work, and says the same as with threads.
#[test]
fn a_scan_without_threads_sees_what_a_scan_sees() {
    let alone = Alone::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    for most in ["1", "4096"] {
        let ended = alone.run(most, &["scan", "--json"]);
        assert_eq!(ended.status, 0, "{most}: {}", ended.stderr);
        assert!(ended.stdout.contains(&at), "{most}: {at}");
    }
}

#[test]
fn what_takes_a_thread_says_so_and_ends_with_3() {
    let alone = Alone::new();
    let listen = format!("tcp:127.0.0.1:{}", free_port());
    let ended = alone.run("1", &["serve", "echo", "--listen", &listen]);
    assert!(ended.status == 3 && ended.stderr.contains("no thread may be started"), "{}", ended.both());
    assert!(ended.stderr.contains("pids.max"), "{}", ended.both());
}

/// A switch whose every new thread and process from the nth on is refused: it ends complete, or as it was, and says which.
#[test]
fn a_switch_without_threads_ends_complete_or_as_it_was() {
    for from in [1, 2, 4, 7, 11, 16, 22, 40] {
        let mut site = Site::new();
        let web = free_port();
        let files = site.nginx(&[("shop", web)]);
        let before = crate::serving::files(&site);
        let socket = site.machine.path("sockets/fpm.sock").display().to_string();
        let main = files[0].display().to_string();
        let words = [
            "switch", &main, "--socket", &socket, "--observe", "200ms", "--confirm-within=0", "--accept",
            "other-files", "--yes",
        ];
        let command = site.machine.command(&words);
        let mut refused = Command::new("strace");
        refused.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=clone3,clone,vfork"]);
        refused.args(["-e", &format!("inject=clone3,clone,vfork:error=EAGAIN:when={from}+")]);
        refused.arg(command.get_program()).args(command.get_args());
        refused.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = bounded(refused);
        let what = format!("from {from}");
        assert_no_panic(&ended, &what);
        let after = crate::serving::files(&site);
        if ended.status == 0 {
            assert_ne!(after, before, "{what}: {}", ended.both());
            continue;
        }
        if after != before {
            assert!(ended.both().contains("recover"), "{what}: {}", ended.both());
            let recovered = site.switch(&["recover", "--yes"]);
            assert_eq!(recovered.status, 0, "{what}: {}", recovered.both());
        }
        assert_eq!(crate::serving::files(&site), before, "{what}");
        assert!(fs::read_dir(site.machine.path("state")).is_ok());
    }
}
