//! The examples as a user runs them: against nc, against each other, and several at once.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, example};
use samehost_transport::{ConnectError, ConnectOptions, Endpoint, connect};

/// A child that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the echo server; its first line says where, and no line that it could not.
fn echo_server(endpoint: &Endpoint) -> (Running, Option<Endpoint>) {
    let (mut server, out) = start_echo_server(endpoint);
    let at = first_line(out);
    if at.is_none() {
        assert!(!server.0.wait().unwrap().success());
    }
    (server, at)
}

fn start_echo_server(endpoint: &Endpoint) -> (Running, impl BufRead + use<>) {
    let mut child = Command::new(example("echo_server"))
        .arg(endpoint.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (Running(child), out)
}

fn first_line(mut out: impl BufRead) -> Option<Endpoint> {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line.trim().strip_prefix("listening on ").map(|endpoint| endpoint.parse().unwrap())
}

fn start(command: &mut Command) -> Running {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    Running(child.unwrap_or_else(|error| panic!("{command:?}: {error}; apt-get install netcat-openbsd")))
}

/// Gives a child its whole input and returns its whole output.
fn talk(mut child: Running, input: &str) -> String {
    child.0.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let mut text = String::new();
    child.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.0.wait().unwrap().success());
    text
}

#[test]
fn nc_talks_to_the_echo_server_with_programs() {
    let place = Place::new();
    let path = place.path("echo.sock");
    let (_server, at) = echo_server(&place.unix("echo.sock"));
    assert!(at.is_some());
    assert_eq!(talk(start(Command::new("nc").args(["-N", "-U"]).arg(path)), "hello\n"), "hello\n");

    let (_server, at) = echo_server(&"tcp:127.0.0.1:0".parse().unwrap());
    let Some(Endpoint::Tcp { host, port }) = at else { panic!("a TCP endpoint") };
    let nc = start(Command::new("nc").args(["-N", &host, &port.to_string()]));
    assert_eq!(talk(nc, "hello\n"), "hello\n");
}

#[test]
fn the_client_talks_to_nc_with_programs() {
    let place = Place::new();
    let path = place.path("nc.sock");
    let mut nc = start(Command::new("nc").args(["-l", "-U"]).arg(&path));
    nc.0.stdin.take().unwrap().write_all(b"pong\n").unwrap();
    // nc says nothing when it listens. It serves one connection only, so its presence is read from /proc.
    let limit = Instant::now() + Duration::from_secs(30);
    while !std::fs::read_to_string("/proc/net/unix").unwrap().contains(path.to_str().unwrap()) {
        assert!(Instant::now() < limit, "nc does not listen");
        std::thread::yield_now();
    }
    let client = start(Command::new(example("client")).arg(format!("unix:{}", path.display())));
    assert_eq!(talk(client, "ping\n"), "pong\n");
    let mut heard = String::new();
    nc.0.stdout.take().unwrap().read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "ping\n");
}

#[test]
fn the_examples_talk_to_each_other_over_every_transport() {
    let place = Place::new();
    for endpoint in place.endpoints() {
        let (_server, at) = echo_server(&endpoint);
        let client = start(Command::new(example("client")).arg(at.unwrap().to_string()));
        assert_eq!(talk(client, "one\ntwo\n"), "one\ntwo\n", "{endpoint}");
    }
}

#[test]
fn of_many_processes_exactly_one_gets_the_socket_also_after_a_crash() {
    let place = Place::new();
    let endpoint = place.unix("x.sock");
    for _ in 0..5 {
        let started: Vec<_> = (0..6).map(|_| start_echo_server(&endpoint)).collect();
        let running: Vec<_> = started.into_iter().map(|(child, out)| (child, first_line(out))).collect();
        assert_eq!(running.iter().filter(|(_, at)| at.is_some()).count(), 1);
        connect(&endpoint, &ConnectOptions::default()).unwrap();
        drop(running); // Killed: socket file and lock file stay behind, and are in nobody's way.
        assert!(place.path("x.sock").exists() && place.path("x.sock.samehost-lock").exists());
        let error = connect(&endpoint, &ConnectOptions::default()).unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
    }
}
