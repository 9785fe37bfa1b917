//! Yardstick of the redis workload: GET of 128 bytes on 64 connections over a Unix socket, on one server, by
//! a minimal C epoll loop, by redis-benchmark and by us.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{Tools, c_command, field};

/// Number of GETs by redis-benchmark in one trial, which takes about as long as a trial of the others.
const OPERATIONS: &str = "60000";

/// A Redis on a port and a Unix socket, stopped on drop.
pub(crate) struct Redis {
    child: Child,
    pub(crate) socket: String,
    pub(crate) port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Redis {
    /// Starts it with its files in a directory, and with more options.
    pub(crate) fn start(directory: &Path, more: &[&str]) -> anyhow::Result<Self> {
        let socket = directory.join("redis.sock");
        let port = super::free_port()?;
        let mut redis = Redis {
            port,
            child: Command::new("redis-server")
                .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                .args(["--save", "", "--appendonly", "no", "--unixsocketperm", "700"])
                .arg("--dir")
                .arg(directory)
                .arg("--unixsocket")
                .arg(&socket)
                .args(more)
                .stdout(Stdio::null())
                .spawn()
                .context("install the package redis-server")?,
            socket: socket.display().to_string(),
        };
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(10), "redis-server does not answer");
            ensure!(redis.child.try_wait()?.is_none(), "redis-server ended at once");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(redis)
    }

    pub(super) fn set_key_of_redis_benchmark(&self) -> anyhow::Result<()> {
        let value = "x".repeat(128);
        let status = Command::new("redis-cli")
            .args(["-s", &self.socket, "SET", "key:__rand_int__", &value])
            .stdout(Stdio::null())
            .status()
            .context("install the package redis-tools")?;
        ensure!(status.success(), "redis-cli ended with {status}");
        Ok(())
    }

    /// Where redis-benchmark connects to.
    pub(super) fn place(&self, transport: &str) -> String {
        if transport == "tcp" { format!("-p {}", self.port) } else { format!("-s {}", self.socket) }
    }

    /// Command for about a second of redis-benchmark's GETs, without the cost of its connections.
    pub(super) fn redis_benchmark(&self, family: &Path, transport: &str, connections: u32) -> String {
        format!(
            "{} {} 1 {OPERATIONS} redis-benchmark -q {} -c {connections} -P 1 -t get -n @",
            family.display(),
            self.child.id(),
            self.place(transport)
        )
    }
}

pub(super) fn redis(tools: &Tools) -> anyhow::Result<()> {
    let (c_loop, meter) = (tools.compile("redis")?, tools.compile("meter")?);
    let server = Redis::start(tools.directory.path(), &[])?;
    server.set_key_of_redis_benchmark()?;
    let endpoint = format!("unix:{}", server.socket);
    let c_loop = c_command(&c_loop, &[&endpoint, "64", "128", "0.5"]);
    let peer = format!(
        "{} {OPERATIONS} redis-benchmark -q -s {} -c 64 -P 1 -t get -n {OPERATIONS}",
        meter.display(),
        server.socket
    );
    let ours = format!(
        "{} bench redis --transports unix --unix {endpoint} --connections 64 --size 128 --min-blocks 1 --max-blocks 1 --trial-time 500ms --yes=over-limits --quiet --json -",
        tools.samehost.display()
    );
    let cpu = format!("^cpu_us_per_op ([\\d.]+)|{}", field("unix", "client_cpu_us_per_op"));
    let user = format!(" user_us_per_op ([\\d.]+)|{}", field("unix", "client_user_us_per_op"));
    let rate = format!(" per_s ([\\d.]+)|{}", field("unix", "throughput_per_s"));
    println!("client CPU per operation, user and system, µs");
    tools.compare_with("c-loop", &c_loop, &ours, &cpu, "lower")?;
    tools.compare_with("redis-benchmark", &peer, &ours, &cpu, "lower")?;
    println!("user space's part of it, µs");
    tools.compare_with("c-loop", &c_loop, &ours, &user, "lower")?;
    println!("operations per second");
    tools.compare_with("redis-benchmark", &peer, &ours, &rate, "higher")?;
    let family = tools.compile("family")?;
    for connections in [8, 64] {
        let place = |transport| match transport {
            "tcp" => format!("tcp:127.0.0.1:{}", server.port),
            _ => endpoint.clone(),
        };
        let peer = |transport| server.redis_benchmark(&family, transport, connections);
        let ours = |transport| {
            format!(
                "{} bench redis --transports {transport} --{transport} {} --connections {connections} --size 128 --min-blocks 1 --max-blocks 1 --trial-time 500ms --yes=over-limits --no-control --quiet --json - 2>/dev/null",
                tools.samehost.display(),
                place(transport)
            )
        };
        let (theirs, ours) = ((peer("tcp"), peer("unix")), (ours("tcp"), ours("unix")));
        tools.server_cpu("redis-benchmark", connections, (&theirs.0, &theirs.1), (&ours.0, &ours.1))?;
    }
    Ok(())
}
