//! Services whose protocol samehost does not speak.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;

use samehost_services::{Kind, UnixSocket};
use samehost_testing::must;
use serde_json::Value;

use super::Servers;
use crate::scan::{Held, scan};
use crate::support::{Home, assert_verified, wait_for};

#[test]
fn mosquitto_listens_on_its_socket_and_is_found_and_verified() {
    let home = Home::new();
    let socket = home.path("mosquitto.sock").display().to_string();
    let UnixSocket::Setting(setting) = Kind::Mosquitto.descriptor().unix() else {
        panic!("it listens on one")
    };
    let line = setting.split(" in ").next().unwrap().replace("{}", &socket);
    let file = home.path("mosquitto.conf").display().to_string();
    fs::write(&file, format!("user root\nallow_anonymous true\n{line}\n")).unwrap();
    let server = Held::start("mosquitto", &["-c", &file]);
    wait_for("mosquitto", || UnixStream::connect(&socket).ok());
    must("mosquitto_pub", &["--unix", &socket, "-t", "a", "-m", "b"]);
    assert_verified(&format!("unix:{socket}"), "unix", "mosquitto");
    let found = scan(&home);
    let is_ours = |one: &&Value| one["kind"] == "mosquitto" && one["pid"] == server.pid();
    let service = found["services"].as_array().unwrap().iter().find(is_ours).expect("it is found");
    let at = service["listeners"][0].as_u64().unwrap() as usize;
    assert!(found["sockets"][at].to_string().contains(&socket), "{}", found["sockets"][at]);
}

#[test]
fn a_real_rsyslog_and_who_sends_to_it_are_named() {
    let home = Home::new();
    let mut servers = Servers::new();
    let place = servers.start("rsyslog");
    let address = ("127.0.0.1", place.port);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(address).unwrap();
    let found = scan(&home);
    let words = format!(" {} sends datagrams to rsyslog at udp 127.0.0.1:{}", std::process::id(), place.port);
    let findings = found["findings"].as_array().unwrap();
    let is_named =
        |one: &Value| one["code"] == "datagrams-over-udp" && one["found"].to_string().contains(&words);
    assert!(findings.iter().any(is_named), "{words}: {findings:#?}");
    let ended = home.run(&["verify", &format!("unixgram:{}", place.socket.display())]);
    assert!(ended.status == 2 && ended.stderr.contains("takes datagrams"), "{}", ended.both());
}
