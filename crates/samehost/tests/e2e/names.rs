//! Programs that run in an interpreter or a virtual machine have their own name in `scan`, and others do not get it.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use samehost_testing::free_port;
use serde_json::Value;

use crate::scan::scan;
use crate::support::{Home, assert_verified, send, wait_for};
use crate::workloads::Server;

/// A Java program that listens at its first argument and takes connections until it is ended: the test's own look
/// whether it listens is one.
const OTHER: &str = "public class Other { public static void main(String[] words) throws Exception {
  java.net.ServerSocket all = new java.net.ServerSocket(Integer.parseInt(words[0]));
  while (true) { all.accept(); } } }";

/// What a scan calls the program that listens on a port, and by what; `verify` says that it answers there over TCP.
fn called(home: &Home, words: impl Fn(u16) -> Vec<String>) -> (Value, Value) {
    let port = free_port();
    let words = words(port);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(home.path("run")).stdin(Stdio::null());
    let mut server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for(&words[0], || TcpStream::connect(("127.0.0.1", port)).ok());
    assert_verified(&format!("tcp:127.0.0.1:{port}"), "tcp", "");
    let found = scan(home);
    // Its workers end with it.
    send(server.0.id(), Signal::TERM);
    server.0.wait().unwrap();
    let sockets = found["sockets"].as_array().unwrap();
    // Java listens on IPv6 for both.
    let is_its = |at: &Value| {
        let local = sockets[at.as_u64().unwrap() as usize]["local"].as_str();
        local.is_some_and(|local| local.ends_with(&format!(":{port}")))
    };
    let services = found["services"].as_array().unwrap();
    let of = |one: &&Value| one["listeners"].as_array().unwrap().iter().any(is_its);
    let service = services.iter().find(of).unwrap_or_else(|| panic!("{services:#?}"));
    (service["kind"].clone(), service["recognised_by"].clone())
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn by_process(kind: &str) -> (Value, Value) {
    (Value::from(kind), Value::from("process"))
}

#[test]
fn gunicorn_puma_thin_uvicorn_and_node_are_called_by_their_names() {
    let home = Home::new();
    fs::write(
        home.path("run/page.py"),
        "def wsgi(environ, start):\n    start('200 OK', [])\n    return []\nasync def asgi(scope, receive, send):\n    pass\n",
    )
    .unwrap();
    fs::write(
        home.path("run/page.js"),
        "require('node:http').createServer().listen(process.argv[2], '127.0.0.1');",
    )
    .unwrap();
    fs::write(home.path("run/config.ru"), "run ->(environ) { [200, {}, []] }").unwrap();
    let gunicorn = called(&home, |port| words(&format!("gunicorn page:wsgi --bind 127.0.0.1:{port}")));
    assert_eq!(gunicorn, by_process("gunicorn"));
    let puma = called(&home, |port| words(&format!("puma --bind tcp://127.0.0.1:{port} config.ru")));
    assert_eq!(puma, by_process("puma"));
    let thin = called(&home, |port| words(&format!("thin -a 127.0.0.1 -p {port} -R config.ru start")));
    assert_eq!(thin, by_process("thin"));
    let uvicorn = called(&home, |port| words(&format!("uvicorn page:asgi --lifespan off --port {port}")));
    assert_eq!(uvicorn, by_process("uvicorn"));
    let node = called(&home, |port| words(&format!("node page.js {port}")));
    assert_eq!(node, by_process("node"));
    // An argument is no name.
    let other =
        called(&home, |port| words(&format!("python3 -u -m http.server {port} -b 127.0.0.1 -d gunicorn")));
    assert_eq!(other.0, Value::Null);
}

/// A Tomcat's own configuration, with one connector.
fn server_xml(connector: &str) -> String {
    format!(
        "<Server port=\"-1\"><Service name=\"Catalina\"><Connector {connector}/>\
         <Engine name=\"Catalina\" defaultHost=\"localhost\"><Host name=\"localhost\" appBase=\"webapps\"/></Engine>\
         </Service></Server>"
    )
}

/// The command line of a Tomcat whose files are in a folder, as its own script starts it.
pub(crate) fn tomcat(folder: &Path, connector: &str) -> Vec<String> {
    for name in ["conf", "webapps", "temp", "logs"] {
        let _ = fs::create_dir(folder.join(name));
    }
    fs::write(folder.join("conf/server.xml"), server_xml(connector)).unwrap();
    let jars = ["core", "el", "jasper"].map(|name| format!("/usr/share/java/tomcat10-embed-{name}.jar"));
    let folder = folder.display();
    words(&format!(
        "java -cp {} -Dcatalina.base={folder} -Dcatalina.home={folder} -Djava.io.tmpdir={folder}/temp org.apache.catalina.startup.Bootstrap start",
        jars.join(":")
    ))
}

#[test]
fn a_tomcat_is_called_so_by_its_main_class_and_another_java_is_not() {
    let home = Home::new();
    let found =
        called(&home, |port| tomcat(&home.path("run"), &format!("address=\"127.0.0.1\" port=\"{port}\"")));
    assert_eq!(found, by_process("tomcat"));
    fs::write(home.path("run/Other.java"), OTHER).unwrap();
    let other =
        called(&home, |port| words(&format!("java Other.java {port} org.apache.catalina.startup.Bootstrap")));
    assert_eq!(other.0, Value::Null);
}
