//! `samehost top` in a pipe, and on a real terminal by `script` of util-linux: tables that follow each other, or take each other's
//! place; and it ends, by a signal and where nobody reads on, with the terminal as it was.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::Signal;

use crate::exchanges::over_unix;
use crate::scan::is_root;
use crate::support::{Home, SAMEHOST, not_tested, rest, send, wait_for};

const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// A program that a test which fails ends as well: it would go on for ever.
struct Running(Child);

impl Running {
    fn of(command: &mut Command) -> Self {
        Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("install bsdutils"))
    }

    fn output(&mut self) -> ChildStdout {
        self.0.stdout.take().unwrap()
    }

    fn status(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = first_child(self.0.id()) {
            send(child, Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn first_child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// `top` on a terminal of 80 × 12; what it wrote with so many tables.
fn on_a_terminal(home: &Home, (name, value): (&str, &str), tables: usize) -> (Running, ChildStdout, String) {
    let inner =
        format!("stty cols 80 rows 12; stty -a > before; {SAMEHOST} top --every 200ms; stty -a > after");
    let mut command = Command::new("script");
    command
        .args(["-q", "-e", "-f", "-c", &inner, "/dev/null"])
        .current_dir(home.path(""))
        .env("TERM", "xterm");
    command.env("XDG_STATE_HOME", home.path("state")).env(name, value);
    let mut running = Running::of(&mut command);
    let mut output = running.output();
    let said = read_tables(&mut output, tables);
    (running, output, said)
}

fn read_tables(output: &mut impl Read, tables: usize) -> String {
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    while String::from_utf8_lossy(&said).matches("over Unix sockets, every 200ms").count() < tables {
        let length = output.read(&mut piece).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&said));
        said.extend(&piece[..length]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn on_a_terminal_each_table_takes_the_place_of_the_one_before_and_control_c_ends_it() {
    let home = Home::new();
    let (running, mut output, said) = on_a_terminal(&home, ("NO_COLOR", "1"), 3);
    assert!(said.matches(CLEAR).count() >= 3 && !said.contains("\u{1b}[1m"), "{said:?}");
    // script → sh → top. A terminal sends the signal to all of them, and the shell goes on with its next word.
    let shell = first_child(running.0.id()).unwrap();
    let top = wait_for("top", || first_child(shell));
    send(top, Signal::INT);
    let text = rest(&mut output);
    assert!(!text.contains("panicked"), "{text}");
    let settings = |name: &str| std::fs::read_to_string(home.path(name)).unwrap();
    wait_for("the end", || std::fs::exists(home.path("after")).unwrap().then_some(()));
    assert_eq!(settings("before"), settings("after"));
}

#[test]
fn on_a_dumb_terminal_tables_follow_each_other_without_escape_sequences() {
    let home = Home::new();
    let (_running, _output, said) = on_a_terminal(&home, ("TERM", "dumb"), 3);
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn in_a_pipe_tables_follow_each_other_in_constant_memory_and_a_signal_ends_it() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let _client = std::net::TcpStream::connect(server.tcp.trim_start_matches("tcp:")).unwrap();
    for (signal, tables) in [(Signal::INT, 20), (Signal::TERM, 1)] {
        let mut running = Running::of(&mut home.command(&["top", "--every", "200ms"]));
        let mut output = running.output();
        let said = read_tables(&mut output, 5);
        let early_kib = resident_kib(running.0.id());
        assert!(said.contains("SERVICE") && said.contains("tcp") && !said.contains('\u{1b}'), "{said:?}");
        assert_eq!(said.matches("samehost checkup").count(), 1, "what stands is told once: {said}");
        read_tables(&mut output, tables);
        let late_kib = resident_kib(running.0.id());
        assert!(late_kib < early_kib + 1024, "{early_kib} KiB, then {late_kib}");
        send(running.0.id(), signal);
        assert_eq!(running.status(), Some(130));
    }
}

#[test]
fn it_ends_where_nobody_reads_on() {
    let home = Home::new();
    let mut running = Running::of(&mut home.command(&["top", "--every", "200ms"]));
    let mut output = BufReader::new(running.output());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    drop(output);
    assert_eq!(running.status(), Some(0));
}

#[test]
fn requests_are_timed_live_over_a_unix_socket_as_root() {
    if !is_root() {
        not_tested("without root: how long requests take, live");
        return;
    }
    let home = Home::new();
    let (_listener, _talk) = over_unix(&home.path("a.sock"));
    let mut running = Running::of(&mut home.command(&["top", "--every", "200ms", "--exact"]));
    let mut output = BufReader::new(running.output());
    // The server sleeps for half a millisecond, so that the median of the only busy pair is some hundred microseconds.
    let mut line = String::new();
    while !(line.contains(" unix ") && line.contains("µs")) {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0);
    }
}

#[test]
fn a_time_that_is_too_short_is_refused_and_the_old_name_is_told() {
    let home = Home::new();
    for (words, told) in [(["top", "--every", "1ms"], "200ms"), (["top", "--interval", "1s"], "--every TIME")]
    {
        let ended = home.run(&words);
        assert!(ended.status == 2 && ended.stderr.contains(told), "{}", ended.both());
    }
}
