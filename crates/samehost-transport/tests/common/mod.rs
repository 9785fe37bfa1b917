//! What the integration tests share: a place for sockets, every named endpoint, waiting without sleeping.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use samehost_transport::{
    ConnectOptions, Endpoint, ListenOptions, Listener, Stream, TlsServer, connect, listen,
};

/// A directory for sockets, removed at the end.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn unix(&self, name: &str) -> Endpoint {
        Endpoint::Unix(self.path(name))
    }

    /// One endpoint of each transport that can be connected to.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let name = self.0.path().file_name().unwrap().to_str().unwrap().to_owned();
        vec![
            "tcp:127.0.0.1:0".parse().unwrap(),
            "tcp:[::1]:0".parse().unwrap(),
            self.unix("stream.sock"),
            Endpoint::Abstract(format!("samehost-test-{name}-{}", std::process::id())),
            "tcp+tls:127.0.0.1:0".parse().unwrap(),
            Endpoint::Seqpacket(self.path("seqpacket.sock")),
        ]
    }
}

pub fn tls() -> TlsServer {
    static SERVER: OnceLock<TlsServer> = OnceLock::new();
    SERVER.get_or_init(|| TlsServer::self_signed().unwrap()).clone()
}

pub fn listen_options() -> ListenOptions {
    ListenOptions { tls: Some(tls()), ..ListenOptions::default() }
}

/// Both ends of a connection; over TLS the handshake is done.
pub fn connected(endpoint: &Endpoint) -> (Listener, Stream, Stream) {
    let listener = listen(endpoint, &listen_options()).unwrap();
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut server = listener.accept().unwrap();
            server.write_all(b"!").unwrap();
            server
        });
        let mut client = connect(listener.endpoint(), &ConnectOptions::default()).unwrap();
        let mut greeting = [0];
        client.read_exact(&mut greeting).unwrap();
        (client, server.join().unwrap())
    });
    (listener, client, server)
}

/// Waits until the descriptor is ready; fails loudly in place of hanging.
pub fn wait(fd: BorrowedFd<'_>, flags: PollFlags) {
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "nothing happened within 30 s");
}

/// An example's binary, which cargo builds beside the tests.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(built.exists(), "{} is missing; run the tests with cargo test", built.display());
    built
}
