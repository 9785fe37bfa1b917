//! The http workload end to end: the built binary, its own server, and servers of the test's that say odd things.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use samehost_testing::metered;
use serde_json::Value;

use super::support::{Here, TINY, assert_proved, said};

/// What a sound report of both transports has.
fn assert_sound(report: &Value) {
    assert_proved(report, "compared byte for byte");
}

#[test]
fn every_way_to_ask_the_built_in_server() {
    for arguments in [
        &["http", "--connections", "1,8", "--size", "1,4k"][..],
        &["http", "--method", "post", "--connections", "2"],
        &["http", "--http", "1.0", "--connections", "2"],
        &["http", "--connect", "per-request", "--connections", "1,4"],
        &["http", "--connect", "per-request", "--http", "1.0", "--method", "post"],
        &["http", "--pipeline", "1,8", "--connections", "2"],
        &["http", "--rate", "500", "--connections", "2", "--size", "64k"],
    ] {
        assert_sound(&Here::new().report(arguments));
    }
}

#[test]
fn every_transport() {
    let report = Here::new().report(&["http", "--transports", "tcp,unix,abstract,tcp+tls"]);
    assert_sound(&report);
    assert!(report["arms"].as_array().unwrap().iter().any(|arm| arm["tls"] == true));
}

/// `samehost serve http`, ended when dropped.
struct Serving(Child, String, String);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serving(directory: &tempfile::TempDir) -> Serving {
    let socket = directory.path().join("http.sock").display().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_samehost"))
        .args(["serve", "http", "--listen", "tcp:127.0.0.1:0", "--listen", &format!("unix:{socket}")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let tcp = lines.next().unwrap().unwrap().replace("listening on tcp:", "");
    lines.next().unwrap().unwrap();
    Serving(child, tcp, socket)
}

#[test]
fn servers_that_run_are_named_by_url_or_endpoint() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(&directory);
    let (tcp, unix) = (
        format!("http://{}/bytes/100", server.1),
        format!("http+unix://{}/bytes/100", server.2.replace('/', "%2F")),
    );
    let report = Here::new().report(&["http", "--tcp", &tcp, "--unix", &unix]);
    assert_sound(&report);
    assert_eq!(report["workload"]["server"]["managed"], false);
    assert!(report["evidence"][0]["observed"].as_str().unwrap().contains("bodies of 100 bytes"));
    let cpu = metered(trial(&report), "server_cpu_us_per_op");
    assert!(cpu.is_none_or(|cpu| cpu > 0.0), "its process is found");
    let (tcp, unix) = (format!("tcp:{}", server.1), format!("unix:{}", server.2));
    assert_sound(&Here::new().report(&["http", "--tcp", &tcp, "--unix", &unix, "--path", "/bytes/7"]));
    assert_sound(&Here::new().report(&["http", &tcp, &unix]));
    let run = |arguments: &[&str]| {
        let here = Here::new();
        let output = here.bench(&[arguments, TINY].concat()).output().unwrap();
        here.assert_nothing_left();
        (output.status.code(), said(&output))
    };
    let (code, words) = run(&["http", "--tcp", &tcp, "--unix", &unix, "--path", "/none"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("404") && words.contains("--path"), "{words}");
    let (code, words) = run(&["http", "--tcp", &tcp, "--unix", &unix, "--size", "5"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("up to a server that already runs"), "{words}");
}

/// A server that answers each request of a connection by its number, until there is no answer left.
fn scripted(answers: &'static [&'static str]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || converse(stream, answers));
        }
    });
    port
}

fn converse(mut stream: TcpStream, answers: &[&str]) {
    let (mut input, mut seen) = ([0; 4096], Vec::new());
    for answer in answers {
        while !seen.ends_with(b"\r\n\r\n") {
            match stream.read(&mut input) {
                Ok(read) if read > 0 => seen.extend_from_slice(&input[..read]),
                _ => return,
            }
        }
        seen.clear();
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A trial of the server's, not of the harness alone.
fn trial(report: &Value) -> &Value {
    report["trials"].as_array().unwrap().iter().find(|trial| trial["arm"] != "noop").unwrap()
}

fn one_arm(port: u16, more: &[&str]) -> (Option<i32>, String, Value) {
    let here = Here::new();
    let url = format!("http://127.0.0.1:{port}/");
    let arguments = [&["http", "--tcp", &url, "--transports", "tcp"], more, TINY].concat();
    let output = here.bench(&arguments).output().unwrap();
    here.assert_nothing_left();
    (output.status.code(), said(&output), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n";

#[test]
fn a_server_that_closes_as_it_said_is_no_failure() {
    for connections in ["1", "4"] {
        let (code, words, report) = one_arm(scripted(&[OK, OK, LAST]), &["--connections", connections]);
        assert_eq!(code, Some(0), "{words}");
        let trials = report["trials"].as_array().unwrap();
        assert!(trials.iter().all(|trial| trial["errors"].as_object().unwrap().is_empty()), "{report}");
        let asked = trials.iter().filter(|trial| trial["arm"] != "noop");
        assert!(asked.map(|trial| trial["operations"].as_u64().unwrap()).sum::<u64>() > 3, "{report}");
    }
}

#[test]
fn bodies_without_a_length_and_in_chunks() {
    const MANY: &[&str] = &[CHUNKED; 10_000];
    let (code, words, report) = one_arm(scripted(MANY), &[]);
    assert_eq!(code, Some(0), "{words}");
    assert!(report["evidence"][0]["observed"].as_str().unwrap().contains("bodies of 2 bytes"));
    let until_close = scripted(&["HTTP/1.1 200 OK\r\n\r\nuntil the end"]);
    let (code, words, report) = one_arm(until_close, &["--connect", "per-request"]);
    assert_eq!(code, Some(0), "{words}");
    assert_eq!(trial(&report)["errors"].as_object().unwrap().len(), 0);
}

#[test]
fn wrong_bodies_are_counted_and_bar_the_verdict() {
    // The two that are asked for before the trial are alike, and so is what a connection begins with.
    const BAD: &[&str] = &[OK, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", OK];
    let (code, words, report) = one_arm(scripted(BAD), &["--connections", "2"]);
    assert_eq!(code, Some(0), "{words}");
    let errors = &trial(&report)["errors"];
    assert!(errors["wrong body"].as_u64().unwrap() > 0, "{errors}");
    assert_eq!(report["warnings"][0]["code"], "errors");
}

#[test]
fn what_is_no_http_and_who_is_not_there() {
    let (code, words, _) = one_arm(scripted(&["+PONG\r\n"]), &[]);
    assert_eq!(code, Some(3), "{words}");
    assert!(words.contains("malformed reply"), "{words}");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (code, words, _) = one_arm(closed, &[]);
    assert_eq!(code, Some(3), "{words}");
    assert!(words.contains(&closed.to_string()), "{words}");
}
