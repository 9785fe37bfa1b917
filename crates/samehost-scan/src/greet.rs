//! Identifies unrecognised services by probing: connects to those that listen on a Unix socket or loopback in
//! this namespace, waits for a greeting, then sends a request that servers of the protocol answer without side
//! effects. Only on request: servers count the connection, and a one-shot program would take it for its client.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use samehost_model::Endpoint;
use samehost_model::scan::{RecognisedBy, Scan, Service, Socket, SocketKind, SocketState};
use samehost_services::{Kind, Protocol};
use samehost_system::interrupt;
use samehost_transport::{ConnectOptions, Stream, connect};

use crate::target;

/// Time limit for a local server to accept, to greet, and to answer.
const PATIENCE: Duration = Duration::from_millis(250);
const AT_ONCE: usize = 8;
/// Size limit of an answer, in bytes.
const MOST: usize = 4096;

/// A request and the parser of its answer. Each has its own connection, as servers close it after an
/// invalid request.
struct Probe {
    request: &'static [u8],
    parse: fn(&[u8]) -> Option<Kind>,
}

/// The first probe sends nothing and waits for protocols in which the server speaks first.
const PROBES: &[Probe] = &[
    Probe { request: b"", parse: greeting },
    // SSLRequest: the reply is one byte, before any login.
    Probe { request: &[0, 0, 0, 8, 4, 210, 22, 47], parse: postgres },
    Probe { request: b"INFO server\r\n", parse: redis },
    Probe { request: b"version\r\n", parse: memcached },
];

/// Fills in kind and name of the services that answer a probe; they are marked as recognised by their greeting. Eight are asked
/// at a time, over up to four connections, each of which may take 250 ms to be accepted and as long to be answered. Ends early
/// when an interrupt is requested.
pub fn greet(scan: &mut Scan) {
    let mut strangers: Vec<(usize, Endpoint)> = Vec::new();
    for (at, service) in scan.services.iter().enumerate() {
        if may_be_asked(scan, service)
            && let Some(endpoint) = scan.listeners(service).find_map(endpoint_of)
        {
            strangers.push((at, endpoint));
        }
    }
    for some in strangers.chunks(AT_ONCE) {
        if interrupt::is_requested() {
            return;
        }
        for (at, kind) in ask_at_once(some) {
            let service = &mut scan.services[at];
            kind.label().clone_into(&mut service.name);
            service.kind = Some(kind);
            service.recognised_by = Some(RecognisedBy::Greeting);
        }
    }
}

/// Asks some services, each in a thread of its own: a server that does not answer takes all the time that it is given.
fn ask_at_once(strangers: &[(usize, Endpoint)]) -> Vec<(usize, Kind)> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            strangers.iter().map(|(at, endpoint)| (*at, scope.spawn(|| ask(endpoint)))).collect();
        let mut found = Vec::new();
        for (at, thread) in threads {
            if let Ok(Some(kind)) = thread.join() {
                found.push((at, kind));
            }
        }
        found
    })
}

/// Whether a service may be probed: unrecognised, in our namespace, and running. Connecting to a socket that
/// init holds would start its service.
fn may_be_asked(scan: &Scan, service: &Service) -> bool {
    let is_here = scan.own_namespace() == Some(service.network_namespace);
    let is_held_by_init = service.pid == Some(1);
    let is_ours = service.pid == Some(std::process::id());
    service.kind.is_none() && is_here && !is_held_by_init && !is_ours
}

/// Endpoint for a probe; `None` when connecting would leave the machine.
fn endpoint_of(socket: &Socket) -> Option<Endpoint> {
    let is_stream = socket.kind.is_tcp() || socket.kind == SocketKind::UnixStream;
    if !is_stream || socket.state != SocketState::Listen {
        return None;
    }
    let endpoint = target::endpoint(socket)?;
    match &endpoint {
        Endpoint::Unix(path) if !path.is_absolute() => None,
        Endpoint::Tcp { host, .. } if !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) => None,
        _ => Some(endpoint),
    }
}

fn ask(endpoint: &Endpoint) -> Option<Kind> {
    for probe in PROBES {
        let options = ConnectOptions { timeout: Some(PATIENCE), ..ConnectOptions::default() };
        let mut stream = connect(endpoint, &options).ok()?;
        let Some(answer) = exchange(&mut stream, probe.request) else { continue };
        if let Some(kind) = (probe.parse)(&answer) {
            return Some(kind);
        }
        // The server spoke first in an unknown protocol; a probe would be taken for a reply.
        if probe.request.is_empty() {
            return None;
        }
    }
    None
}

fn exchange(stream: &mut Stream, request: &[u8]) -> Option<Vec<u8>> {
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&stream, timeout, Some(PATIENCE)).ok()?;
    }
    stream.write_all(request).ok()?;
    let mut answer = vec![0; MOST];
    let length = stream.read(&mut answer).ok()?;
    answer.truncate(length);
    if answer.is_empty() { None } else { Some(answer) }
}

/// MySQL's initial handshake: three bytes of length, sequence number 0, protocol 10, and the version up to a
/// NUL byte.
fn greeting(bytes: &[u8]) -> Option<Kind> {
    if bytes.starts_with(b"SSH-") {
        return Some(Kind::Sshd);
    }
    if bytes.get(3..5)? != [0, 10] {
        return None;
    }
    let version = bytes.get(5..)?.split(|byte| *byte == 0).next()?;
    if !version.first()?.is_ascii_digit() || !version.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    Some(Kind::that_says(Protocol::Mysql, version).unwrap_or(Kind::Mysql))
}

fn postgres(bytes: &[u8]) -> Option<Kind> {
    if matches!(bytes, b"S" | b"N") { Some(Kind::Postgres) } else { None }
}

/// A server that requires a password answers with an error of its own.
fn redis(bytes: &[u8]) -> Option<Kind> {
    if bytes.starts_with(b"-NOAUTH") || bytes.starts_with(b"-DENIED") {
        return Some(Kind::Redis);
    }
    if bytes.starts_with(b"$") { Kind::that_says(Protocol::Redis, bytes) } else { None }
}

fn memcached(bytes: &[u8]) -> Option<Kind> {
    let is_version = bytes.starts_with(b"VERSION ") && bytes.ends_with(b"\r\n");
    if is_version { Some(Kind::Memcached) } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn greetings_of_real_servers() {
        assert_eq!(greeting(b"\x5e\0\0\0\x0a10.11.14-MariaDB-0+deb12u2\0\x05\0\0\0"), Some(Kind::Mariadb));
        assert_eq!(greeting(b"\x4a\0\0\0\x0a8.0.36\0\x08\0\0\0"), Some(Kind::Mysql));
        assert_eq!(greeting(b"SSH-2.0-OpenSSH_9.2p1\r\n"), Some(Kind::Sshd));
        assert_eq!(greeting(b"220 mail ESMTP\r\n"), None);
        assert_eq!(postgres(b"N"), Some(Kind::Postgres));
        assert_eq!(postgres(b"NO"), None);
        assert_eq!(redis(b"$20\r\n# Server\r\nredis_version:7.0.15\r\n"), Some(Kind::Redis));
        assert_eq!(
            redis(b"$20\r\n# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.0.1\r\n"),
            Kind::named("valkey")
        );
        assert_eq!(redis(b"-NOAUTH Authentication required.\r\n"), Some(Kind::Redis));
        assert_eq!(redis(b"ERROR\r\n"), None);
        assert_eq!(memcached(b"VERSION 1.6.18\r\n"), Some(Kind::Memcached));
        for probe in PROBES {
            assert_eq!((probe.parse)(b""), None);
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            for probe in PROBES {
                let _ = (probe.parse)(&bytes);
            }
        }
    }
}
