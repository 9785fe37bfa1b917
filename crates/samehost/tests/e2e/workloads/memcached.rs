//! The memcached workload end to end: the built binary, real servers, tiny measurements.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

use super::support::{Here, Server, TINY, assert_sound, said};

#[test]
fn get_over_both_transports_with_a_process_each() {
    let report = Here::new().report(&["memcached", "--connections", "1,4"]);
    assert_sound(&report);
    let server = &report["workload"]["server"];
    assert!(
        server["kind"].as_str().unwrap().starts_with("memcached, a process for each transport"),
        "{server}"
    );
    assert_eq!(server["pids"].as_array().unwrap().len(), 2, "two processes, said so");
    assert!(server["version"].as_str().unwrap().starts_with("1."));
}

#[test]
fn both_protocols_get_and_set_up_to_a_mebibyte() {
    for (protocol, command, size) in [("meta", "get", "1m"), ("meta", "set", "128"), ("text", "set", "1m")] {
        let here = Here::new();
        let report =
            here.report(&["memcached", "--protocol", protocol, "--command", command, "--size", size]);
        assert_sound(&report);
    }
}

#[test]
fn a_server_that_runs_gets_our_key_and_loses_it_again() {
    let (_server, port) = Server::on_port(|port| {
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        command
    });
    let here = Here::new();
    let url = format!("memcached://127.0.0.1:{port}");
    let output = here.bench(&[&["memcached", "--tcp", &url, "--yes"], TINY].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("sets one key samehost:"), "{}", said(&output));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"stats\r\n").unwrap();
    let mut items =
        BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.contains("curr_items"));
    assert_eq!(items.next().unwrap(), "STAT curr_items 0");
    let too_large = here
        .bench(&[&["memcached", "--tcp", &url, "--size", "1m", "--yes=over-limits"], TINY].concat())
        .output()
        .unwrap();
    assert_eq!(too_large.status.code(), Some(2), "its own limit is 1 MiB with overhead");
    assert!(said(&too_large).contains("memcached -I"), "{}", said(&too_large));
}
