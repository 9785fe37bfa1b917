//! `samehost run`: real programs that are told 127.0.0.1 and a port, and servers that say which transport they have.

mod auto;
mod clients;
mod integrity;
mod listen;
mod lives;
mod preload;
mod sockets;

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

/// A Python program under `run`, told the port.
fn python(redis: &Redis, script: &str) -> Ended {
    python_by(SECCOMP, redis, script)
}

fn python_by(way: Way, redis: &Redis, script: &str) -> Ended {
    redis.run_by(way, &["python3", "-c", &format!("{TOOLS}{script}"), &redis.port.to_string()])
}
