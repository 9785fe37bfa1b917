//! Whatever way nginx passes a request on, the server behind it is asked the same over TCP and over a Unix socket, and
//! its redirects reach the client as before: a real nginx, edited there and back, before a real server that says what it
//! was asked.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "corpus/disk.rs"]
mod disk;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use disk::Disk;
use samehost_edit::{EDITORS, Editor, Goal, Move, propose};
use samehost_model::Endpoint;

/// The locations, `ADDRESS` standing for the server behind.
const LOCATIONS: &str = r"
        location /plain { proxy_pass http://ADDRESS; }
        location /other/ { proxy_pass http://ADDRESS/elsewhere/; }
        location /slash/ { proxy_pass http://ADDRESS/; }
        location = /exact { proxy_pass http://ADDRESS/x; }
        location /host { proxy_pass http://ADDRESS; proxy_set_header Host $host; }
        location /literal { proxy_set_header Host ADDRESS; proxy_pass http://ADDRESS; }
        location /headers { proxy_set_header X-Own own; proxy_pass http://ADDRESS; }
        location /off { proxy_redirect off; proxy_pass http://ADDRESS; }
        location /by-hand { proxy_redirect http://ADDRESS/ http://example.org/; proxy_pass http://ADDRESS; }
        location ~ ^/regex/(.*)$ { proxy_pass http://ADDRESS; }
        location ^~ /prefer/ { proxy_pass http://ADDRESS/p/; }
        location /try { try_files /none @app; }
        location @app { proxy_pass http://ADDRESS; }
        location /rewrite { rewrite ^/rewrite/(.*)$ /rw/$1 break; proxy_pass http://ADDRESS; }
        location /upstream/ { proxy_pass http://app/up/; }
        location /if { if ($arg_a) { add_header X-If yes; } proxy_pass http://ADDRESS; }
";

/// What is asked for.
const PATHS: &[&str] = &[
    "/plain", "/plain/a?b=c", "/other/", "/other/a%20b?x=%2F", "/slash/", "/slash/a//b", "/exact",
    "/exact?q", "/host/a", "/literal/a", "/headers/a", "/off/a", "/by-hand/a", "/regex/a%2fb?c", "/prefer/a",
    "/try/a", "/rewrite/a/b?c=d", "/upstream/a", "/if/a?a=1",
];

/// Answers with what was asked, and with a redirect to the host that was asked for.
fn answer(mut stream: impl Read + Write) -> Option<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let target = text.split(' ').nth(1)?.to_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("Host: "))?;
    let head = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{host}{target}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all((head + &text).as_bytes()).ok()
}

/// A running nginx. `timeout` ends it when nobody is left to do so.
struct Running(Child);

impl Running {
    fn start(root: &Path) -> Running {
        let own = format!("daemon off; master_process off; pid {}/pid; error_log {0}/log;", root.display());
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60", "nginx", "-c"]).arg(root.join("nginx.conf")).args(["-g", &own]);
        Running(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `timeout` hands the signal on.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// What the clients of nginx get, and with it what the server behind it was asked.
fn replies(root: &Path) -> Vec<String> {
    let front = root.join("front.sock");
    let _ = std::fs::remove_file(&front);
    let _running = Running::start(root);
    let since = Instant::now();
    let one = |path: &str| {
        let mut stream = loop {
            if let Ok(stream) = UnixStream::connect(&front) {
                break stream;
            }
            let log = || std::fs::read_to_string(root.join("log")).unwrap_or_default();
            assert!(since.elapsed() < Duration::from_secs(20), "nginx does not start: {}", log());
            std::thread::sleep(Duration::from_millis(10));
        };
        write!(stream, "GET {path} HTTP/1.0\r\nHost: site.example\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let lines = reply.lines().filter(|line| !line.starts_with("Date: "));
        format!("{path}\n{}", lines.collect::<Vec<_>>().join("\n"))
    };
    PATHS.iter().map(|path| one(path)).collect()
}

/// Moves every connection from one address to another.
fn switch(editor: &dyn Editor, file: &Path, from: &[Endpoint], to: &Endpoint) {
    let reading = editor.read(file, &Disk::default()).unwrap();
    assert_eq!(reading.refused, []);
    let moves: Vec<Move> = reading
        .settings
        .into_iter()
        .filter(|setting| from.contains(&setting.endpoint))
        .map(|setting| Move { setting, goal: Goal::client(to.clone()) })
        .collect();
    assert!(moves.len() > 12, "{}", moves.len());
    for proposal in propose(editor, file, &Disk::default(), &moves).unwrap() {
        std::fs::write(proposal.file, proposal.after).unwrap();
    }
}

fn there_and_back(address: &str) {
    let root = tempfile::Builder::new().prefix("samehost-nginx-").tempdir().unwrap();
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| {
            let _ = answer(stream);
        });
    });
    let socket = root.path().join("app.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| {
            let _ = answer(stream);
        });
    });
    let written = format!("{address}:{port}");
    let file = root.path().join("nginx.conf");
    let text = format!(
        "events {{}}\nhttp {{\n    access_log off;\n    upstream app {{ server {written}; }}\n    server {{\n        listen unix:{}/front.sock;{}    }}\n}}\n",
        root.path().display(),
        LOCATIONS.replace("ADDRESS", &written)
    );
    std::fs::write(&file, text).unwrap();
    let editor = EDITORS.iter().copied().find(|editor| editor.name() == "nginx").unwrap();
    let (tcp, unix) = (format!("tcp:{written}").parse().unwrap(), Endpoint::Unix(socket));

    let before = replies(root.path());
    assert!(before.iter().all(|reply| reply.contains("302 Found")), "{before:#?}");
    switch(editor, &file, std::slice::from_ref(&tcp), &unix);
    let moved = std::fs::read_to_string(&file).unwrap();
    assert!(moved.contains("unix:") && !moved.contains(&format!("proxy_pass http://{written}")), "{moved}");
    assert_eq!(replies(root.path()), before);
    switch(editor, &file, &[unix], &tcp);
    assert_eq!(replies(root.path()), before);
}

#[test]
fn servers_are_asked_the_same_by_address() {
    there_and_back("127.0.0.1");
}

#[test]
fn servers_are_asked_the_same_by_name() {
    there_and_back("localhost");
}
