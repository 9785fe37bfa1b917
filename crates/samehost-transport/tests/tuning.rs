//! Sockets that are set as asked for, at both ends, and refusals that say what stands in the way.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use rustix::net::sockopt;
use samehost_transport::{
    ConnectError, ConnectOptions, ListenError, ListenOptions, Stream, Tuning, TuningError, connect, listen,
};

fn tuning(congestion: Option<&str>, buffer_bytes: Option<u64>) -> Tuning {
    Tuning { congestion: congestion.map(str::to_owned), buffer_bytes }
}

/// Both ends of a connection whose listener and client are set so.
fn connection(endpoint: &str, tuning: &Tuning) -> (Stream, Stream) {
    let listening = ListenOptions { tuning: tuning.clone(), ..common::listen_options() };
    let listener = listen(&endpoint.parse().unwrap(), &listening).unwrap();
    let connecting = ConnectOptions { tuning: tuning.clone(), ..ConnectOptions::default() };
    let client = connect(listener.endpoint(), &connecting).unwrap();
    (client, listener.accept().unwrap())
}

fn available() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn both_ends_have_each_available_congestion_control_as_root() {
    assert!(rustix::process::geteuid().is_root(), "needs root: run the tests as root");
    for name in available() {
        for endpoint in ["tcp:127.0.0.1:0", "tcp:[::1]:0"] {
            let (client, server) = connection(endpoint, &tuning(Some(&name), None));
            assert_eq!(sockopt::tcp_congestion(&client).unwrap(), name);
            assert_eq!(sockopt::tcp_congestion(&server).unwrap(), name);
        }
    }
}

#[test]
fn both_ends_have_the_buffers_over_tcp_and_unix_sockets() {
    both_ends_have(20_000);
}

#[test]
fn buffers_beyond_the_limit_of_this_machine_as_root() {
    // Beyond what net.core.wmem_max is on most machines.
    if rustix::process::geteuid().is_root() {
        both_ends_have(6 << 20);
    }
}

fn both_ends_have(bytes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let unix = format!("unix:{}", directory.path().join("a.sock").display());
    for endpoint in ["tcp:127.0.0.1:0", &unix, "abstract:samehost-tuning-test"] {
        let (client, server) = connection(endpoint, &tuning(None, Some(bytes)));
        for end in [&client, &server] {
            assert_eq!(sockopt::socket_send_buffer_size(end).unwrap() as u64, 2 * bytes, "{endpoint}");
            assert_eq!(sockopt::socket_recv_buffer_size(end).unwrap() as u64, 2 * bytes, "{endpoint}");
        }
    }
}

#[test]
fn a_congestion_control_that_is_not_there_is_named_with_its_module() {
    let endpoint = "tcp:127.0.0.1:0".parse().unwrap();
    let asked = tuning(Some("nonesuch"), None);
    let listening = ListenOptions { tuning: asked.clone(), ..ListenOptions::default() };
    let error = listen(&endpoint, &listening).unwrap_err();
    assert!(matches!(&error, ListenError::Tuning(_, TuningError::NoCongestion { .. })), "{error}");
    assert!(error.to_string().contains("modprobe tcp_nonesuch"), "{error}");
    let listener = listen(&endpoint, &ListenOptions::default()).unwrap();
    let connecting = ConnectOptions { tuning: asked, ..ConnectOptions::default() };
    let error = connect(listener.endpoint(), &connecting).unwrap_err();
    assert!(matches!(error, ConnectError::Tuning { .. }), "{error}");
}

#[test]
fn a_unix_socket_ignores_a_congestion_control() {
    let directory = tempfile::tempdir().unwrap();
    let unix = format!("unix:{}", directory.path().join("a.sock").display());
    let _both = connection(&unix, &tuning(Some("reno"), None));
}
