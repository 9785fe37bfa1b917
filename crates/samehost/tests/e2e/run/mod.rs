//! `samehost run`: real programs that are told 127.0.0.1 and a port, and servers that say which transport they have.

mod auto;
mod clients;
mod examples;
mod integrity;
mod listen;
mod lives;
mod preload;
mod sockets;
mod trial;

use std::process::{Command, Stdio};

use samehost_testing::{Ended, free_port, redis_server, wait_for};

use crate::support::Home;
use crate::workloads::Server;

/// Options that choose how calls are answered.
type Way = &'static [&'static str];
const SECCOMP: Way = &[];
const PRELOAD: Way = &["--preload"];

/// A private Redis at a port and a socket.
struct Redis {
    home: Home,
    port: u16,
    _server: Server,
}

impl Redis {
    fn start() -> Self {
        let (home, port) = (Home::new(), free_port());
        let mut command = redis_server(port, &home.path("run"));
        command.arg("--unixsocket").arg(home.path("run/redis.sock"));
        let server =
            command.stdout(Stdio::null()).spawn().expect("Redis must be installed: cargo xtask servers");
        let redis = Redis { home, port, _server: Server(server) };
        wait_for("the socket", || std::os::unix::net::UnixStream::connect(redis.socket()).ok());
        redis
    }

    fn socket(&self) -> String {
        self.home.path("run/redis.sock").display().to_string()
    }

    fn map(&self) -> String {
        format!("{}={}", self.port, self.socket())
    }

    /// A command under `run`, with the Redis' port mapped to its socket.
    fn command(&self, way: Way, words: &[&str]) -> Command {
        let map = self.map();
        self.home.command(&[&["run", "--map", &map], way, &["--"], words].concat())
    }

    fn run(&self, words: &[&str]) -> Ended {
        self.run_by(SECCOMP, words)
    }

    fn run_by(&self, way: Way, words: &[&str]) -> Ended {
        Ended::of(&self.command(way, words).output().unwrap())
    }

    /// What Redis says of a connection over the Unix socket.
    fn over_unix(&self) -> String {
        format!("addr={}:0 ", self.socket())
    }
}

/// The head of every Python program here: a socket that is told host and port, and what Redis says of it.
const TOOLS: &str = "import os, select, socket, subprocess, sys, threading, time
port = int(sys.argv[1])
def said(s):
    s.setblocking(True); s.sendall(b'client info\\r\\n')
    return 'unix' if b'.sock:0 ' in s.recv(4096) else 'tcp'
def plain():
    return socket.create_connection(('127.0.0.1', port))
";

/// Options of sockets that are set before `connect` hold after it, and the names are those of TCP. Needs `struct`, and a socket `s`.
const CARRIED_OVER: &str = "s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 3, 0))
kept = ((socket.SO_LINGER, struct.pack('ii', 1, 7)), (socket.SO_OOBINLINE, struct.pack('i', 1)), (socket.SO_RCVLOWAT, struct.pack('i', 5)))
for name, value in kept: s.setsockopt(socket.SOL_SOCKET, name, value)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30000); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000)
s.connect(('127.0.0.1', port)); assert said(s) == 'unix'
for name, value in kept: assert s.getsockopt(socket.SOL_SOCKET, name, 8)[:len(value)] == value, name
assert [s.getsockopt(socket.SOL_SOCKET, name) for name in (socket.SO_SNDBUF, socket.SO_RCVBUF)] == [60000, 40000]
assert s.getpeername() == ('127.0.0.1', port), s.getpeername()
host, own = s.getsockname(); assert host == '127.0.0.1' and own not in (0, port)
";
/// What a connected socket `s` says that it is, and what it refuses. Needs `T`, the protocol.
const LIKE_TCP: &str = "assert s.getsockopt(socket.SOL_SOCKET, 39) == socket.AF_INET and s.getsockopt(socket.SOL_SOCKET, 38) == T
twin = socket.socket(fileno=os.dup(s.fileno())); assert (twin.family, twin.proto) == (socket.AF_INET, T)
for wrong, why in ((lambda: s.setsockopt(T, socket.TCP_NODELAY, b''), 22), (lambda: s.setsockopt(T, 9999, 1), 92), (lambda: s.connect(('127.0.0.1', port)), 106)):
    try: wrong(); raise SystemExit('no error')
    except OSError as error: assert error.errno == why, error
six = socket.create_connection(('::1', port)); assert said(six) == 'unix'
assert six.getpeername()[:2] == ('::1', port) and six.getsockname()[0] == '::1' and six.getsockopt(socket.SOL_SOCKET, 39) == socket.AF_INET6
pair = socket.socketpair()[0]; assert pair.getpeername() == '' and pair.getsockopt(socket.SOL_SOCKET, 39) == socket.AF_UNIX
";

/// A Python program under `run`, told the port.
fn python(redis: &Redis, script: &str) -> Ended {
    python_by(SECCOMP, redis, script)
}

fn python_by(way: Way, redis: &Redis, script: &str) -> Ended {
    redis.run_by(way, &["python3", "-c", &format!("{TOOLS}{script}"), &redis.port.to_string()])
}
