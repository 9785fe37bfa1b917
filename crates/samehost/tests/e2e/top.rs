//! `samehost top` on a real terminal, by `script` of util-linux: it draws, and gives the terminal back however it ends.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::support::{Home, SAMEHOST, rest, send, wait_for};

/// Enters and leaves the terminal's other screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// The view on a terminal of 80 × 12, after its first drawing.
fn begin(home: &Home) -> (Child, String) {
    let inner = format!("stty cols 80 rows 12; exec {SAMEHOST} top --interval 200ms");
    let mut child = Command::new("script")
        .args(["-q", "-e", "-f", "-c", &inner, "/dev/null"])
        .env("XDG_RUNTIME_DIR", home.path("run"))
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("install bsdutils");
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&said).contains("q quit") {
        let length = child.stdout.as_mut().unwrap().read(&mut piece).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&said));
        said.extend(&piece[..length]);
    }
    (child, String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_key_ends_it_and_the_terminal_is_given_back() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let _client = std::net::TcpStream::connect(server.tcp.trim_start_matches("tcp:")).unwrap();
    let (mut child, first) = begin(&home);
    assert!(first.contains(ENTER) && first.contains("samehost top"), "{first:?}");
    child.stdin.as_mut().unwrap().write_all(b"usj\rq").unwrap();
    let text = rest(child.stdout.take().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    assert!(text.contains(LEAVE), "{text:?}");
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_given_back() {
    let home = Home::new();
    let (mut child, _) = begin(&home);
    // `script` runs the view as its only child.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let pid = wait_for("the view", || std::fs::read_to_string(&children).ok()?.trim().parse().ok());
    send(pid, Signal::TERM);
    let text = rest(child.stdout.take().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.contains(LEAVE), "{text:?}");
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let home = Home::new();
    let ended = home.run(&["top"]);
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("samehost scan --observe"), "{}", ended.stderr);
    let ended = home.run(&["top", "--interval", "1ms"]);
    assert!(ended.status == 2 && ended.stderr.contains("200ms"), "{}", ended.stderr);
}
