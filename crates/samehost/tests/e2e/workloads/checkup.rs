//! The checkup end to end: what is installed is measured, what runs is named and left alone.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::support::{Here, Server, said};

/// A checkup with this budget: its JSON and its words.
fn checkup(budget: &str) -> (Value, String) {
    let here = Here::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("checkup.json");
    let mut command = here.samehost(&["--budget", budget, "--quiet", "--json"]);
    let page = directory.path().join("checkup.html");
    let output = command.arg(&file).arg("--html").arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h1>Unix socket or TCP on this machine: time of a request "), "{page}");
    assert!(page.len() < 300_000 && !page.contains("<script"), "{} bytes", page.len());
    here.assert_nothing_left();
    let json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    (json, String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Connections that a Redis ever had, this one included.
fn connections(port: u16) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "INFO stats\r\n").unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut counts = lines.filter_map(|line| line.strip_prefix("total_connections_received:")?.parse().ok());
    counts.next().unwrap()
}

#[test]
fn what_runs_is_named_and_not_touched_and_what_is_installed_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("r.sock");
    let (server, port) = Server::on_port(|port| {
        let mut command = samehost_testing::redis_server(port, directory.path());
        command.arg("--unixsocket").arg(&socket);
        command
    });
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let before = connections(port);
    let (json, text) = checkup("45s");
    assert_eq!(connections(port), before + 1, "only this test's own connection came to it");
    drop(client);
    let line = format!("samehost bench redis --tcp tcp:127.0.0.1:{port} --unix unix:{}", socket.display());
    // The terminal has what it means, and the page each server's line.
    assert!(!text.contains(&line) && text.contains("samehost --html FILE"), "{text}");
    let running = json["running_servers"].as_array().unwrap();
    let found = running.iter().find(|found| found["pid"] == server.0.id()).unwrap();
    assert_eq!((&found["workload"], &found["command"]), (&"redis".into(), &line.as_str().into()));
    let worth = json["worth_doing"].as_array().unwrap();
    assert!(worth.len() <= 3 && text.contains("Most worth doing here"), "{text}");
    // A client that stays connected and asks nothing is something to watch, at most.
    let about = format!("tcp:127.0.0.1:{port} ");
    let quiet = worth.iter().find(|one| one["about"].as_str().unwrap().contains(&about));
    // On a machine with busier pairs there may be no line left for ours.
    assert!(quiet.is_some() || worth.len() == 3, "the pair of this test is not named: {worth:?}");
    // A long command goes over two lines, so that a shell still takes it whole.
    let unfolded = text.replace(" \\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(worth.iter().all(|one| unfolded.contains(one["command"].as_str().unwrap())), "{text}");
    // How many servers the time holds is the machine's affair; the others are named.
    assert!(installed(&json).count() > 0, "{text}");
    for name in ["fastcgi", "mysql", "postgres", "redis", "memcached", "proxy"] {
        let part = installed(&json).find(|part| part["report"]["workload"]["name"] == name);
        let Some(part) = part else {
            let notes = json["notes"].as_array().unwrap();
            let is_named = |note: &Value| note.as_str().unwrap().contains(name);
            assert!(notes.iter().any(is_named), "{name} is not measured and not named: {text}");
            continue;
        };
        assert_eq!(part["report"]["workload"]["server"]["managed"], true);
        // PostgreSQL has a process for each connection, MariaDB a thread.
        let many = if ["mysql", "postgres"].contains(&name) { 16 } else { 64 };
        // Of a proxy the hop behind it is measured, in both its forms.
        let rows = match name {
            "proxy" => [": a connection each".to_owned(), ": kept".to_owned()],
            _ => [": one at a time".to_owned(), format!(": CPU time, {many} at once")],
        };
        for what in rows {
            let line = text.lines().find(|line| line.contains(&format!("{name}{what}")));
            // Beside other work a request takes more than a millisecond.
            let is_shown = |line: &str| [" µs", " ms", "not measured"].iter().any(|unit| line.contains(unit));
            assert!(line.is_some_and(is_shown), "{text}");
        }
    }
    // The rows that people know, in words.
    for row in [
        "one request and its reply", "CPU per request, 64 at once", "a new connection",
        "a stream, writes of 512 KiB",
    ] {
        assert!(text.lines().any(|line| line.trim().starts_with(row)), "{text}");
    }
    // Where programs run is the scheduler's: nobody pins theirs.
    for part in json["parts"].as_array().unwrap() {
        for driven in part["report"]["plan"]["driven"].as_array().into_iter().flatten() {
            assert_eq!(driven["placement"], "free", "{driven}");
        }
    }
    // Figures stand below their heads.
    let is_head = |line: &&str| line.ends_with("unix against tcp");
    let table = text.lines().skip_while(|line| !is_head(line)).take_while(|line| !line.is_empty());
    let end = text.lines().find(is_head).and_then(|head| head.find("TCP")).expect(&text) + "TCP".len();
    for row in table.filter(|row| !row.contains("not measured")) {
        let around: Vec<bool> = row.chars().skip(end - 1).take(2).map(|c| c == ' ').collect();
        assert_eq!(around, [false, true], "{row}\n{text}");
    }
}

/// The parts of servers that are installed; the others are built in.
fn installed(json: &Value) -> impl Iterator<Item = &Value> {
    let is_built_in =
        |part: &&Value| ["raw", "connect"].contains(&part["report"]["workload"]["name"].as_str().unwrap());
    json["parts"].as_array().unwrap().iter().filter(move |part| !is_built_in(part))
}
