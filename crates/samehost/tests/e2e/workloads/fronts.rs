//! Envoy and Traefik as `scan`, `verify` and `how` see them, and what Traefik cannot do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
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

#[test]
fn envoy_is_found_and_verified_on_a_pipe_and_a_port() {
    let home = Home::new();
    let behind = home.serve("http", &[]);
    let (port, pipe) = (free_port(), home.path("front.sock"));
    let listener = |name: &str, address: Value| {
        let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
        let routes = json!([{ "match": { "prefix": "/" }, "route": { "cluster": "behind" } }]);
        let hosts = json!([{ "name": "all", "domains": ["*"], "routes": routes }]);
        let filters = json!([{ "name": "router", "typed_config": { "@type": router } }]);
        let typed = json!({ "@type": manager, "stat_prefix": "x", "route_config": { "virtual_hosts": hosts }, "http_filters": filters });
        json!({ "name": name, "address": address, "filter_chains": [{ "filters": [{ "name": "http", "typed_config": typed }] }] })
    };
    let path = behind.unix.strip_prefix("unix:").unwrap();
    let endpoint = json!({ "endpoint": { "address": { "pipe": { "path": path } } } });
    let file = home.path("envoy.json");
    let text = json!({ "static_resources": {
        "listeners": [
            listener("port", json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })),
            listener("pipe", json!({ "pipe": { "path": &pipe } })),
        ],
        "clusters": [{ "name": "behind", "load_assignment": {
            "cluster_name": "behind", "endpoints": [{ "lb_endpoints": [endpoint] }],
        }}],
    }});
    fs::write(&file, text.to_string()).unwrap();
    let envoy = start(&[&program("envoy"), "-c", file.to_str().unwrap(), "--disable-hot-restart"]);
    for reached in [wait_for("Envoy", || at_port(port)), status(UnixStream::connect(&pipe).unwrap()).unwrap()]
    {
        assert_eq!(reached, "200");
    }
    assert_verified(&format!("tcp:127.0.0.1:{port}"), "tcp", "envoy");
    assert_verified(&format!("unix:{}", pipe.display()), "unix", "envoy");
    let found = scan(&home);
    assert_eq!(service(&found, envoy.0.id())["kind"], "envoy", "{found:#}");
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
    assert!(how.status == 2 && how.stderr.contains("Traefik listens on ports only"), "{}", how.both());
}
