//! `samehost top` on a real terminal, by `script` of util-linux: it draws, and gives the terminal back however it ends.

use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::exchanges::over_unix;
use crate::scan::is_root;
use crate::support::{Home, SAMEHOST, not_tested, rest, send, wait_for};

/// Enters and leaves the terminal's other screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// `script` with the view in it. A test that fails ends both: the view had gone on for ever.
struct View(Child);

impl View {
    /// `script` runs the view as its only child.
    fn pid(&self) -> Option<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.id());
        std::fs::read_to_string(children).ok()?.trim().parse().ok()
    }
}

impl Deref for View {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for View {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            send(pid, Signal::KILL);
        }
        let _ = self.kill();
        let _ = self.wait();
    }
}

/// The view on a terminal of 80 × 12, after its first drawing.
fn begin(home: &Home) -> (View, String) {
    begin_with(home, "")
}

fn begin_with(home: &Home, options: &str) -> (View, String) {
    let inner = format!("stty cols 80 rows 12; exec {SAMEHOST} top --interval 200ms {options}");
    let child = Command::new("script")
        .args(["-q", "-e", "-f", "-c", &inner, "/dev/null"])
        .env("XDG_RUNTIME_DIR", home.path("run"))
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("install bsdutils");
    let mut child = View(child);
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
    let pid = wait_for("the view", || child.pid());
    send(pid, Signal::TERM);
    let text = rest(child.stdout.take().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.contains(LEAVE), "{text:?}");
}

#[test]
fn requests_are_timed_live_over_a_unix_socket_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take, live");
        return;
    }
    let home = Home::new();
    let (_listener, _talk) = over_unix(&home.path("a.sock"));
    let (mut child, first) = begin_with(&home, "--exact");
    child.stdin.as_mut().unwrap().write_all(b"u").unwrap();
    // The server sleeps for half a millisecond, so that the median of the only busy pair is some hundred microseconds.
    let mut said = first;
    let mut piece = [0; 4096];
    while !(said.contains("REQS/S") && said.contains("µs")) {
        let length = child.stdout.as_mut().unwrap().read(&mut piece).unwrap();
        assert!(length > 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    child.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    let text = rest(child.stdout.take().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
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
