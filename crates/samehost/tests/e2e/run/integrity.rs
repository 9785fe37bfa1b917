//! Bytes, ends and errors on connections under `run`. `cargo xtask evidence run-integrity` plays the same cases with
//! gigabytes, and over TCP beside it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use samehost_testing::Ended;

use super::{PRELOAD, SECCOMP, Way};
use crate::support::Home;

/// Plays both sides of every case.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/run/integrity.py");

struct Server {
    home: Home,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start() -> Self {
        let home = Home::new();
        let mut command = Command::new("python3");
        command.args([SCRIPT, "serve"]).arg(home.path("run")).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = Server { home, child };
        assert_eq!(line, "ready\n");
        server
    }

    /// What both sides of a case saw under `run`, and over what its connections were.
    fn case(&self, way: Way, name: &str, size: u64) -> (String, String) {
        let seen = self.seen(Some(way), &[name, &size.to_string()]);
        let of = |field: &str| seen[field].as_str().unwrap().to_owned();
        (of("says"), of("over"))
    }

    /// What the client prints that plays a case; it is not under `run` where there is no way.
    fn seen(&self, way: Option<Way>, case: &[&str]) -> serde_json::Value {
        let map = |port: &str, socket: &str| {
            let port = std::fs::read_to_string(self.home.path("run").join(port)).unwrap();
            format!("{port}={}", self.home.path("run").join(socket).display())
        };
        let (data, echo) = (map("port", "data.sock"), map("echo.port", "echo.sock"));
        let folder = self.home.path("run").display().to_string();
        let client = [&["python3", SCRIPT, "client", &folder], case].concat();
        let options = ["run", "--quiet", "--map", &data, "--map", &echo];
        let ended: Ended = match way {
            Some(way) => self.home.run(&[&options, way, &["--"], &client[..]].concat()),
            None => Ended::of(&Command::new(client[0]).args(&client[1..]).output().unwrap()),
        };
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{case:?}: {}", ended.stderr))
    }
}

/// Where both differ, TCP would say ECONNRESET after SO_LINGER.
#[test]
fn bytes_are_whole_and_ends_are_those_that_the_documentation_names() {
    let server = Server::start();
    let cases = [
        ("transfer", 20_000_000, "every byte each way as it was sent", "1 unix"),
        ("halfclose", 3_000_000, "whole answers after the half-close, from either side", "2 unix"),
        (
            "reset",
            0,
            "linger: 10000 B, then the end; it sends: EPIPE. unread: 0 B, then ECONNRESET; it sends: EPIPE",
            "4 unix",
        ),
        (
            "urgent",
            0,
            "done: POLLPRI yes, apart !, in the stream ab|cd; in line: POLLPRI yes, apart EINVAL, in the stream ab|!cd",
            "1 unix",
        ),
        ("stopped", 100_000_000, "the sender waits; all comes when it is read", "1 unix"),
        ("splice", 3_000_000, "files as they were, by sendfile and by splice, both ways", "1 unix"),
        ("tls", 3_000_000, "TLSv1.3, every byte, and its end", "1 unix"),
        (
            "restart",
            0,
            "unix; killed: 0 B, then the end; meanwhile ECONNREFUSED; again: unix; port only: tcp",
            "",
        ),
        ("many", 300, "each has its own bytes back", "300 unix"),
        ("killed", 40_000_000, "all that send took comes; 0 B, then the end", "2 unix"),
    ];
    for way in [SECCOMP, PRELOAD] {
        for (name, size, says, over) in cases {
            assert_eq!(server.case(way, name, size), (says.to_owned(), over.to_owned()), "{name}");
        }
    }
}

/// `samehost run` itself is killed: connections stay, and new ones are made over TCP.
#[test]
fn connections_outlive_a_killed_run() {
    let server = Server::start();
    let says = "every byte; afterwards connect: done, getpeername: done";
    assert_eq!(server.case(SECCOMP, "unsupervised", 200_000_000), (says.to_owned(), "1 unix".to_owned()));
}

#[test]
#[ignore = "three minutes of gigabytes, which nothing here asserts: `cargo xtask evidence run-integrity` prints them"]
#[expect(clippy::print_stdout, reason = "what is seen is kept as evidence")]
fn what_both_sides_see_of_gigabytes_over_each_way() {
    let server = Server::start();
    let cases = [
        ("transfer", 10_000_000_000_u64),
        ("halfclose", 1_000_000_000),
        ("reset", 0),
        ("urgent", 0),
        ("stopped", 1_000_000_000),
        ("splice", 500_000_000),
        ("tls", 1_000_000_000),
        ("restart", 0),
        ("many", 2000),
        ("killed", 1_000_000_000),
        ("unsupervised", 1_000_000_000),
    ];
    for (name, size) in cases {
        for (arm, way, last) in [
            ("TCP", None, None),
            ("Unix socket", None, Some("native")),
            ("run --preload", Some(PRELOAD), None),
            ("run", Some(SECCOMP), None),
        ] {
            // Its server is told a port alone; who is not under `run` has no supervisor to lose.
            let has_arm = match name {
                "restart" => last.is_none(),
                "unsupervised" => arm == "run",
                _ => true,
            };
            if !has_arm {
                continue;
            }
            let size = size.to_string();
            let seen = server.seen(way, &[&[name, &size[..]], last.as_slice()].concat());
            let text = |field: &str| seen[field].as_str().filter(|text| !text.is_empty());
            let over = text("over").map_or_else(String::new, |over| format!(", {over}"));
            let detail = text("detail").map_or_else(String::new, |detail| format!(" ({detail})"));
            println!("saw: {name} | {arm}{over} | {}{detail}", text("says").unwrap_or_default());
        }
    }
}
