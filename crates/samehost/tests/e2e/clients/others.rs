//! Services whose protocol samehost does not speak, on the socket that their descriptor states.

use std::fs;
use std::os::unix::net::UnixStream;

use samehost_services::{Kind, UnixSocket};
use samehost_testing::must;
use serde_json::Value;

use crate::scan::{Held, scan};
use crate::support::{Home, wait_for};

#[test]
fn mosquitto_listens_on_its_socket_and_is_found() {
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
    let found = scan(&home);
    let is_ours = |one: &&Value| one["kind"] == "mosquitto" && one["pid"] == server.pid();
    let service = found["services"].as_array().unwrap().iter().find(is_ours).expect("it is found");
    let at = service["listeners"][0].as_u64().unwrap() as usize;
    assert!(found["sockets"][at].to_string().contains(&socket), "{}", found["sockets"][at]);
}
