//! Every transport carries bytes both ways, ends them, and is what the kernel says it is.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use common::{Place, connected, listen_options, wait};
use rustix::event::PollFlags;
use samehost_transport::{
    ConnectError, ConnectOptions, Endpoint, Family, Kind, ListenError, ListenOptions, Observed, Protocol,
    Stream, Transport, connect, connect_nonblocking, listen, pair, pipe_pair,
};

/// A connection over every transport; the listener lives in the first place.
fn every_connection(place: &Place) -> Vec<(Option<samehost_transport::Listener>, Stream, Stream)> {
    let named = place.endpoints().into_iter().map(|endpoint| {
        let (listener, client, server) = connected(&endpoint);
        (Some(listener), client, server)
    });
    let inherited = [pair().unwrap(), pipe_pair().unwrap()].map(|(one, other)| (None, one, other));
    named.chain(inherited).collect()
}

#[test]
fn every_transport_carries_bytes_both_ways_and_ends_them() {
    let place = Place::new();
    let connections = every_connection(&place);
    let transports: Vec<_> = connections.iter().map(|(_, client, _)| client.transport()).collect();
    assert_eq!(transports, Transport::ALL);
    for (_listener, mut client, mut server) in connections {
        let transport = client.transport();
        let mut buffer = [0; 64];
        client.write_all(b"request").unwrap();
        let count = server.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"request", "{transport}");
        server.write_all(b"reply").unwrap();
        let count = client.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"reply", "{transport}");

        client.shutdown_write().unwrap();
        assert_eq!(server.read(&mut buffer).unwrap(), 0, "{transport}: the end arrives");
        server.write_all(b"after the end").unwrap();
        let count = client.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"after the end", "{transport}: the other way goes on");
        drop(server);
        assert_eq!(client.read(&mut buffer).unwrap(), 0, "{transport}: a dropped peer is an end");
    }
}

#[test]
fn the_kernel_confirms_every_transport_and_no_other() {
    let place = Place::new();
    for (_listener, client, server) in every_connection(&place) {
        for stream in [&client, &server] {
            let transport = stream.transport();
            let observed = stream.observed().unwrap();
            for other in Transport::ALL {
                let tls_over_tcp = other == Transport::TcpTls && observed.protocol == Some(Protocol::Tcp)
                    || transport == Transport::TcpTls && other == Transport::Tcp;
                assert_eq!(
                    observed.matches(other),
                    other == transport || tls_over_tcp,
                    "{observed}: {transport} as {other}"
                );
            }
            assert!(!observed.matches(Transport::Command) && !observed.matches(Transport::None));
            assert_eq!(stream.cipher().is_some(), transport == Transport::TcpTls, "{transport}");
            let unix = observed.family == Family::Unix;
            assert_eq!(observed.peer_pid, unix.then(std::process::id), "{transport}");
            assert_eq!(observed.kind == Kind::Seqpacket, transport == Transport::Seqpacket);
        }
    }
}

#[test]
fn observations_read_well() {
    let place = Place::new();
    let shown = |stream: &Stream| stream.observed().unwrap().to_string();
    let pid = std::process::id();

    let (listener, client, _server) = connected(&"tcp:127.0.0.1:0".parse().unwrap());
    let Endpoint::Tcp { port, .. } = listener.endpoint() else { panic!("a TCP endpoint") };
    let text = shown(&client);
    assert!(text.starts_with("AF_INET stream tcp, 127.0.0.1:"), "{text}");
    assert!(text.ends_with(&format!(" → 127.0.0.1:{port}")), "{text}");

    let (_listener, client, server) = connected(&place.unix("x.sock"));
    let expected = format!("AF_UNIX stream {}, peer pid {pid}", place.path("x.sock").display());
    assert_eq!((shown(&client), shown(&server)), (expected.clone(), expected));

    assert_eq!(shown(&pair().unwrap().0), format!("AF_UNIX stream, peer pid {pid}"));
    assert_eq!(shown(&pipe_pair().unwrap().0), "pipe");
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(Observed::of(file.as_fd()).is_err());
}

#[test]
fn a_peer_with_the_longest_possible_path_does_no_harm() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, socket};
    let place = Place::new();
    let length = place.path("").as_os_str().len();
    let longest = place.path(&"p".repeat(108 - length));
    assert_eq!(longest.as_os_str().len(), 108);
    let listener = listen(&place.unix("x.sock"), &ListenOptions::default()).unwrap();
    let client = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&client, &SocketAddrUnix::new(&longest).unwrap()).unwrap();
    connect(&client, &SocketAddrUnix::new(place.path("x.sock")).unwrap()).unwrap();
    let observed = listener.accept().unwrap().observed().unwrap();
    assert_eq!((observed.peer.as_ref(), observed.peer_pid), (None, Some(std::process::id())), "{observed}");
}

#[test]
fn both_ends_of_tcp_are_without_delay() {
    for endpoint in ["tcp:127.0.0.1:0", "tcp:[::1]:0", "tcp+tls:127.0.0.1:0"] {
        let (_listener, client, server) = connected(&endpoint.parse().unwrap());
        assert!(rustix::net::sockopt::tcp_nodelay(client.as_fd()).unwrap(), "{endpoint}");
        assert!(rustix::net::sockopt::tcp_nodelay(server.as_fd()).unwrap(), "{endpoint}");
    }
}

#[test]
fn host_names_are_looked_up() {
    let listener = listen(&"tcp:localhost:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let Endpoint::Tcp { port, .. } = *listener.endpoint() else { panic!("a TCP endpoint") };
    let endpoint = Endpoint::Tcp { host: "localhost".into(), port };
    let client = connect(&endpoint, &ConnectOptions::default()).unwrap();
    assert!(client.observed().unwrap().matches(client.transport()));
}

#[test]
fn seqpacket_keeps_messages_apart_and_refuses_those_too_large() {
    let place = Place::new();
    let (_listener, mut client, mut server) = connected(&Endpoint::Seqpacket(place.path("x.sock")));
    client.write_all(b"one").unwrap();
    client.write_all(b"second").unwrap();
    let mut buffer = [0; 4];
    assert_eq!(server.read(&mut buffer).unwrap(), 3);
    assert_eq!(server.read(&mut buffer).unwrap(), 4, "the rest of the second message is dropped");
    client.write_all(b"3").unwrap();
    assert_eq!(server.read(&mut buffer).unwrap(), 1);
    let error = client.write(&vec![0; 64 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MSGSIZE.raw_os_error()));
}

#[test]
fn nonblocking_ends_say_so_and_do_not_wait() {
    let place = Place::new();
    for (listener, mut client, mut server) in every_connection(&place) {
        if let Some(listener) = listener {
            listener.set_nonblocking(true).unwrap();
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        client.set_nonblocking(true).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let full = loop {
            match client.write(&[0; 4096]) {
                Ok(count) => assert!(count > 0),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(full, io::ErrorKind::WouldBlock, "{}", client.transport());
        server.set_nonblocking(true).unwrap();
        assert!(server.read(&mut [0; 1]).is_ok());
        client.set_nonblocking(false).unwrap();
    }
}

#[test]
fn a_started_connection_arrives() {
    let place = Place::new();
    for endpoint in place.endpoints() {
        let listener = listen(&endpoint, &listen_options()).unwrap();
        let (mut client, _) = connect_nonblocking(listener.endpoint(), &ConnectOptions::default()).unwrap();
        wait(client.as_fd(), PollFlags::OUT);
        client.take_error().unwrap();
        let server = std::thread::spawn(move || {
            let mut server = listener.accept().unwrap();
            server.write_all(b"hello").unwrap();
            server
        });
        client.set_nonblocking(false).unwrap();
        let mut received = [0; 5];
        client.read_exact(&mut received[..1]).unwrap();
        if endpoint.transport() != Transport::Seqpacket {
            client.read_exact(&mut received[1..]).unwrap();
            assert_eq!(&received, b"hello", "{endpoint}");
        }
        server.join().unwrap();
    }
}

#[test]
fn one_side_can_be_handed_to_a_child() {
    for (here, there) in [pair().unwrap(), pipe_pair().unwrap()] {
        let mut here = here;
        let (read, write) = there.into_fds().unwrap();
        let write = write.unwrap_or_else(|| read.try_clone().unwrap());
        let mut child = std::process::Command::new("cat").stdin(read).stdout(write).spawn().unwrap();
        here.write_all(b"through cat").unwrap();
        here.shutdown_write().unwrap();
        let mut text = String::new();
        here.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through cat");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn inherited_transports_say_who_can_make_them() {
    for endpoint in [Endpoint::Socketpair, Endpoint::Pipe] {
        let error = connect(&endpoint, &ConnectOptions::default()).unwrap_err();
        assert!(matches!(error, ConnectError::Unsupported { .. }));
        assert!(error.to_string().contains("pair()"), "{error}");
        let error = listen(&endpoint, &ListenOptions::default()).unwrap_err();
        assert!(matches!(error, ListenError::Unsupported { .. }), "{error}");
        assert!(connect_nonblocking(&endpoint, &ConnectOptions::default()).is_err());
    }
}
