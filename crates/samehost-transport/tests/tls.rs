//! TLS: whom it trusts, who waits for whom, and that no byte is lost where nothing blocks.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use common::{connected, listen_options, tls, wait};
use rustix::event::PollFlags;
use samehost_transport::{
    ConnectError, ConnectOptions, Endpoint, ListenOptions, Stream, TlsServer, TlsTrust, connect,
    connect_nonblocking, listen,
};

fn endpoint() -> Endpoint {
    "tcp+tls:127.0.0.1:0".parse().unwrap()
}

fn trusting(tls: TlsTrust) -> ConnectOptions {
    ConnectOptions { tls, ..ConnectOptions::default() }
}

#[test]
fn a_pinned_certificate_is_accepted_and_any_other_refused() {
    let listener = listen(&endpoint(), &listen_options()).unwrap();
    let at = listener.endpoint().clone();
    let serving = std::thread::spawn(move || {
        let results: Vec<_> = (0..2).map(|_| listener.accept().unwrap().write(b"x")).collect();
        results
    });
    let stream = connect(&at, &trusting(TlsTrust::pinned(tls().certificate_der()))).unwrap();
    let cipher = stream.cipher().unwrap();
    assert!(cipher.starts_with("TLSv1.3 TLS13_"), "{cipher}");
    let other = TlsServer::self_signed().unwrap();
    let error = connect(&at, &trusting(TlsTrust::pinned(other.certificate_der()))).unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
    let results = serving.join().unwrap();
    assert!(results[0].is_ok() && results[1].is_err());
}

#[test]
fn any_certificate_is_accepted_on_loopback_only() {
    let (_listener, client, _server) = connected(&endpoint());
    assert!(client.cipher().is_some());
    // Any address of this machine that is not loopback; none on a machine without a network.
    let Some(outside) = outside_address() else { return };
    let at = Endpoint::TcpTls { host: outside, port: 0 };
    let listener = listen(&at, &listen_options()).unwrap();
    let error = connect(listener.endpoint(), &ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("loopback"), "{error}");
}

/// The address that this machine would use towards another; no packet is sent.
fn outside_address() -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then(|| address.to_string())
}

#[test]
fn a_server_without_tls_and_a_silent_one_are_told_apart() {
    let plain = listen(&"tcp:127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let Endpoint::Tcp { host, port } = plain.endpoint().clone() else { panic!("a TCP endpoint") };
    let at = Endpoint::TcpTls { host, port };

    let limit = ConnectOptions { timeout: Some(Duration::from_millis(100)), ..ConnectOptions::default() };
    let error = connect(&at, &limit).unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");

    drop(plain.accept().unwrap()); // The silent connection.
    let serving = std::thread::spawn(move || {
        let mut server = plain.accept().unwrap();
        server.write_all(b"220 mail.example ready\r\n").unwrap();
        server
    });
    let error = connect(&at, &ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
    serving.join().unwrap();
}

#[test]
fn a_client_that_never_starts_its_handshake_holds_up_nobody() {
    let listener = listen(&endpoint(), &listen_options()).unwrap();
    let Endpoint::TcpTls { host, port } = listener.endpoint().clone() else { panic!("a TLS endpoint") };
    let silent = connect(&Endpoint::Tcp { host, port }, &ConnectOptions::default()).unwrap();
    let held = listener.accept().unwrap();
    let at = listener.endpoint().clone();
    let client = std::thread::spawn(move || {
        let mut client = connect(&at, &ConnectOptions::default()).unwrap();
        client.read(&mut [0; 8]).unwrap()
    });
    listener.accept().unwrap().write_all(b"hi").unwrap();
    assert_eq!(client.join().unwrap(), 2);
    drop((silent, held));
}

#[test]
fn a_peer_that_is_cut_off_is_no_clean_end() {
    let (_listener, mut client, server) = connected(&endpoint());
    rustix::net::shutdown(&server, rustix::net::Shutdown::Both).unwrap();
    let error = client.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn what_is_written_before_the_handshake_leaves_with_its_end() {
    let listener = listen(&endpoint(), &listen_options()).unwrap();
    let (mut client, _) = connect_nonblocking(listener.endpoint(), &ConnectOptions::default()).unwrap();
    wait(client.as_fd(), PollFlags::OUT);
    assert_eq!(client.write(b"early").unwrap(), 5);
    assert_eq!(client.shutdown_write().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(client.cipher(), None, "the handshake has not been answered");
    let serving = std::thread::spawn(move || {
        let mut server = listener.accept().unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        server.write_all(b"bye").unwrap();
        text
    });
    let mut text = Vec::new();
    loop {
        let mut buffer = [0; 16];
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(client.as_fd(), PollFlags::IN),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((serving.join().unwrap().as_str(), text.as_slice()), ("early", &b"bye"[..]));
}

const TRANSFER: usize = 8 << 20;

fn byte_at(position: usize) -> u8 {
    (position.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Sends and receives at the same time on a nonblocking stream, as an epoll loop does: one read and one write a turn.
fn exchange(mut stream: Stream, chunk: usize) {
    stream.set_nonblocking(true).unwrap();
    let outgoing: Vec<u8> = (0..TRANSFER).map(byte_at).collect();
    let mut buffer = vec![0; chunk];
    let (mut sent, mut received, mut shut, mut ended) = (0, 0, false, false);
    while !(shut && ended) {
        let wants_out = !shut || stream.wants_write();
        if !stream.has_buffered() {
            let flags = if wants_out { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            wait(stream.as_fd(), flags);
        }
        match stream.read(&mut buffer) {
            Ok(0) => ended = true,
            Ok(count) => {
                for byte in &buffer[..count] {
                    assert_eq!(*byte, byte_at(received), "at {received}");
                    received += 1;
                }
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        if sent < TRANSFER {
            match stream.write(&outgoing[sent..]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        } else if !shut {
            match stream.shutdown_write() {
                Ok(()) => shut = true,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }
    assert_eq!(received, TRANSFER);
    assert!(!stream.wants_write());
}

#[test]
fn megabytes_both_ways_without_blocking_lose_nothing() {
    let (_listener, client, server) = connected(&endpoint());
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(client, 64 * 1024));
        scope.spawn(|| exchange(server, 1000)); // Smaller than a record: has_buffered must be right.
    });
}

#[test]
fn plain_streams_pass_the_same_loop() {
    let (one, other) = samehost_transport::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(one, 64 * 1024));
        scope.spawn(|| exchange(other, 1000));
    });
}

/// Reads a little each time the stream is ready, and never otherwise; returns when `expected` bytes have come.
fn read_when_ready(client: &mut Stream, expected: usize) {
    let (mut buffer, mut received) = ([0; 1000], 0);
    while received < expected {
        if !client.has_buffered() {
            wait(client.as_fd(), PollFlags::IN);
        }
        match client.read(&mut buffer) {
            Ok(count) => received += count,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!(!client.has_buffered());
}

#[test]
fn what_was_read_ahead_is_announced_when_the_socket_is_silent() {
    let (_listener, mut client, mut server) = connected(&endpoint());
    client.set_nonblocking(true).unwrap();
    // One record, of which the first read takes a part.
    server.write_all(&[1; 10_000]).unwrap();
    read_when_ready(&mut client, 10_000);
    // Many records, which one read of the socket takes at once: more than rustls decrypts ahead.
    for _ in 0..20 {
        server.write_all(&[2; 1500]).unwrap();
    }
    read_when_ready(&mut client, 30_000);
}

#[test]
fn buffered_bytes_and_the_end_are_announced() {
    let (_listener, mut client, mut server) = connected(&endpoint());
    server.write_all(b"abc").unwrap();
    server.shutdown_write().unwrap();
    client.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    loop {
        if !client.has_buffered() {
            wait(client.as_fd(), PollFlags::IN);
        }
        let mut byte = [0];
        match client.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => got.push(byte[0]),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert_eq!(got, b"abc");
    assert!(!client.has_buffered());
    assert!(client.into_fds().is_err());
}
