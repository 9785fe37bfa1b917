//! Traefik as `scan`, `verify` and `how` see them, and what it cannot do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use samehost_testing::free_port;
use serde_json::{Value, json};

use super::support::{Server, newest};
use crate::scan::scan;
use crate::support::{Home, assert_verified, wait_for};

/// A program of the cache that comes from PyPI.
fn program(name: &str) -> String {
    newest("../wheels").join(name).display().to_string()
}

/// The status of the reply to a request, if one comes.
fn status(mut stream: impl Read + Write) -> Option<String> {
    write!(stream, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).ok()?;
    Some(String::from_utf8_lossy(&reply[9..]).into_owned())
}

fn at_port(port: u16) -> Option<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    status(stream)
}

fn start(words: &[&str]) -> Server {
    let quiet = |command: &mut Command| {
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    Server(quiet(Command::new(words[0]).args(&words[1..])))
}

fn service(found: &Value, pid: u32) -> &Value {
    let services = found["services"].as_array().unwrap();
    services.iter().find(|service| service["pid"] == pid).unwrap_or_else(|| panic!("{services:#?}"))
}

/// Traefik with one server behind it, at this URL.
fn traefik(folder: &Path, url: &str) -> (Server, u16) {
    let (port, file) = (free_port(), folder.join("traefik.yml"));
    let http = json!({
        "routers": { "x": { "rule": "Host(`x`)", "service": "x" } },
        "services": { "x": { "loadBalancer": { "servers": [{ "url": url }] } } },
    });
    let all = json!({
        "entryPoints": { "x": { "address": format!("127.0.0.1:{port}") } },
        "providers": { "file": { "filename": &file, "watch": false } },
        "global": { "checkNewVersion": false },
        "http": http,
    });
    fs::write(&file, all.to_string()).unwrap();
    let server = start(&[&program("traefik"), &format!("--configFile={}", file.display())]);
    (server, port)
}

/// A status that is not that of a Traefik that has not read its file yet.
fn served(port: u16) -> String {
    wait_for("Traefik", || at_port(port).filter(|status| status != "404"))
}

#[test]
fn traefik_is_found_and_verified_and_reaches_no_socket() {
    let home = Home::new();
    let behind = home.serve("http", &[]);
    for scheme in ["unix://", "http+unix://"] {
        let url = behind.unix.replace("unix:", scheme);
        assert_eq!(served(traefik(&home.path(""), &url).1), "500", "{url}");
    }
    let (traefik, port) = traefik(&home.path(""), &behind.tcp.replace("tcp:", "http://"));
    assert_eq!(served(port), "200");
    assert_verified(&format!("tcp:127.0.0.1:{port}"), "tcp", "traefik");
    // It keeps the connection.
    let found = scan(&home);
    assert_eq!(service(&found, traefik.0.id())["kind"], "traefik", "{found:#}");
    let said = found.to_string();
    assert!(said.contains("Traefik reaches servers on ports only"), "{found:#}");
    let how = home.run(&["how", "traefik"]);
    assert!(how.status == 0 && how.stdout.contains("it cannot by itself"), "{}", how.both());
}
