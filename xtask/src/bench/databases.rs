//! Yardsticks of the workloads of databases, on one server each: a minimal C epoll loop and the server's own benchmark
//! (redis-benchmark, sysbench, pgbench) beside us, and the server CPU that a Unix socket saves as they and we see it. And
//! of `samehost run`: what it adds to a connect, and what redis-benchmark gets under it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use samehost_testing::free_port;
use samehost_testing::mariadb::MariaDb;
use samehost_testing::postgres::{Cluster, programs};

use super::{CLIENT_CPU, Figure, Tools, c_command};
use crate::process::{Process, succeed};

/// Options of a trial of ours on one of these servers.
const TRIAL: &str = "--trial-time 500ms --yes=over-limits --no-control 2>/dev/null";

/// Number of GETs by redis-benchmark in one trial, which takes about as long as a trial of the others.
const OPERATIONS: &str = "60000";

pub(crate) struct Redis {
    server: Process,
    pub(crate) socket: String,
    pub(crate) port: u16,
}

impl Redis {
    /// Starts it with its files in a directory.
    pub(crate) fn start(directory: &Path) -> anyhow::Result<Self> {
        let socket = directory.join("redis.sock");
        let port = free_port();
        let mut command = samehost_testing::redis_server(port, directory);
        command.args(["--appendonly", "no", "--unixsocketperm", "700", "--unixsocket"]).arg(&socket);
        let mut server = Process::start_silent(&mut command).context("install the package redis-server")?;
        server.wait_for_answer("redis-server", || UnixStream::connect(&socket).is_ok())?;
        Ok(Redis { server, port, socket: socket.display().to_string() })
    }

    pub(super) fn set_key_of_redis_benchmark(&self) -> anyhow::Result<()> {
        let value = "x".repeat(128);
        let mut client = Command::new("redis-cli");
        client.args(["-s", &self.socket, "SET", "key:__rand_int__", &value]);
        succeed(&mut client).context("redis-cli is in the package redis-tools")
    }

    /// Where redis-benchmark connects to.
    pub(super) fn place(&self, transport: &str) -> String {
        if transport == "tcp" { format!("-p {}", self.port) } else { format!("-s {}", self.socket) }
    }

    fn endpoint(&self, transport: &str) -> String {
        if transport == "tcp" {
            format!("tcp:127.0.0.1:{}", self.port)
        } else {
            format!("unix:{}", self.socket)
        }
    }

    /// Command for about a second of redis-benchmark's GETs, without the cost of its connections.
    pub(super) fn metered(&self, family: &Path, transport: &str, connections: u32) -> String {
        format!(
            "{} {} 1 {OPERATIONS} redis-benchmark -q {} -c {connections} -P 1 -t get -n @",
            family.display(),
            self.server.id(),
            self.place(transport)
        )
    }
}

pub(super) fn redis(tools: &Tools) -> anyhow::Result<()> {
    let (c_loop, meter) = (tools.compile("redis")?, tools.compile("meter")?);
    let server = Redis::start(tools.directory.path())?;
    server.set_key_of_redis_benchmark()?;
    let endpoint = server.endpoint("unix");
    let c_loop = c_command(&c_loop, &[&endpoint, "64", "128", "0.5"]);
    let peer = format!(
        "{} {OPERATIONS} redis-benchmark -q -s {} -c 64 -P 1 -t get -n {OPERATIONS}",
        meter.display(),
        server.socket
    );
    let options = "--size 128 --trial-time 500ms --yes=over-limits";
    let ours = tools.trial("redis", "unix", &endpoint, 64, options);
    println!("client CPU per operation, user and system, µs");
    tools.compare("c-loop", &c_loop, &ours, &Figure::client_cpu("unix"))?;
    tools.compare("redis-benchmark", &peer, &ours, &Figure::client_cpu("unix"))?;
    println!("user space's part of it, µs");
    tools.compare("c-loop", &c_loop, &ours, &Figure::client_user("unix"))?;
    println!("operations per second");
    tools.compare("redis-benchmark", &peer, &ours, &Figure::throughput("unix"))?;
    let family = tools.compile("family")?;
    let options = format!("--size 128 {TRIAL}");
    tools.server_cpu(
        "redis-benchmark",
        &|transport, connections| server.metered(&family, transport, connections),
        &|transport, connections| {
            tools.trial("redis", transport, &server.endpoint(transport), connections, &options)
        },
    )
}

/// Rows of the tables of the C loops, of sysbench and of ours.
const ROWS: &str = "10000";

/// A MariaDB for measurements; root has no password.
pub(crate) fn mariadb() -> MariaDb {
    MariaDb::bare(&["--max-connections=300", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"])
}

pub(super) struct Sysbench {
    pub(super) server: MariaDb,
}

impl Sysbench {
    pub(super) fn prepare() -> anyhow::Result<Self> {
        let prepared = Sysbench { server: mariadb() };
        prepared.server.sql("CREATE DATABASE peer");
        let prepare = prepared.command("unix", 1, "prepare", "");
        succeed(Command::new("sh").args(["-c", &prepare])).context("sysbench is in the package sysbench")?;
        Ok(prepared)
    }

    pub(super) fn command(&self, transport: &str, threads: u32, command: &str, more: &str) -> String {
        let place = match transport {
            "tcp" => format!("--mysql-host=127.0.0.1 --mysql-port={}", self.server.port),
            _ => format!("--mysql-socket={}", self.server.socket()),
        };
        format!(
            "sysbench oltp_point_select --db-driver=mysql --mysql-user=root --mysql-db=peer {place} --tables=1 --table-size={ROWS} --threads={threads} --time=0 {more} {command}"
        )
    }

    /// Command for about a second of sysbench's point selects, without the cost of its start.
    pub(super) fn metered(&self, family: &Path, transport: &str, threads: u32) -> String {
        let sysbench = self.command(transport, threads, "run", "--events=$0");
        format!("{} {} 1 40000 sh -c 'exec {sysbench}' @", family.display(), self.server.pid())
    }

    fn ours(&self, tools: &Tools, transport: &str, connections: u32) -> String {
        let url = match transport {
            "tcp" => format!("'mysql://root@127.0.0.1:{}/peer'", self.server.port),
            _ => format!("'mysql://root@localhost/peer?socket={}'", self.server.socket()),
        };
        tools.trial("mysql", transport, &url, connections, &format!("--rows {ROWS} {TRIAL}"))
    }
}

/// A prepared point select on rows of the same shape.
pub(super) fn mysql(tools: &Tools) -> anyhow::Result<()> {
    let (c_loop, family) = (tools.compile("mysql")?, tools.compile("family")?);
    let server = Sysbench::prepare()?;
    let socket = format!("unix:{}", server.server.socket());
    let sql = "'SELECT c FROM peer.sbtest1 WHERE id=?'";
    let c_loop = c_command(&c_loop, &[&socket, "64", "root", "0.5", sql, ROWS]);
    tools.client_and_server(
        &c_loop,
        "sysbench",
        &|transport, connections| server.metered(&family, transport, connections),
        &|transport, connections| server.ours(tools, transport, connections),
    )
}

pub(super) struct Postgres {
    server: Cluster,
    pub(super) port: u16,
    pub(super) bin: PathBuf,
}

impl Postgres {
    pub(super) fn start() -> anyhow::Result<Self> {
        let server = Cluster::bare(&["autovacuum=off", "max_connections=300", "jit=off"]);
        let cluster = Postgres { port: server.port, server, bin: programs() };
        cluster.fill()?;
        Ok(cluster)
    }

    fn fill(&self) -> anyhow::Result<()> {
        let filler: String = ('!'..='~').filter(char::is_ascii_alphanumeric).cycle().take(110).collect();
        for sql in [
            "CREATE TABLE samehost_peer (id integer PRIMARY KEY, content text, counter integer)",
            &format!(
                "INSERT INTO samehost_peer SELECT 1000000000 + i, 1000000000 + i || '{filler}', 0 FROM generate_series(1, {ROWS}) i"
            ),
            "VACUUM ANALYZE samehost_peer",
        ] {
            self.server.sql("postgres", sql);
        }
        let mut fill = Command::new(self.bin.join("pgbench"));
        fill.args(["-U", "admin", "-p", &self.port.to_string(), "-i", "-q", "-s", "1", "-h"]);
        succeed(fill.arg(self.server.directory()).arg("postgres"))
    }

    fn host(&self, transport: &str) -> String {
        if transport == "tcp" { "127.0.0.1".into() } else { self.server.directory().display().to_string() }
    }

    /// Command for about a second of pgbench's point selects, without the cost of its connections.
    pub(super) fn metered(&self, family: &Path, transport: &str, clients: u32) -> String {
        format!(
            "{} {} {clients} {} {}/pgbench -S -M prepared -n -c {clients} -t @ -U admin -p {} -h {} postgres",
            family.display(),
            self.server.pid(),
            25_000 / clients,
            self.bin.display(),
            self.port,
            self.host(transport)
        )
    }

    fn ours(&self, tools: &Tools, transport: &str, clients: u32) -> String {
        let url = format!("'postgres://admin@/postgres?port={}&host={}'", self.port, self.host(transport));
        tools.trial("postgres", transport, &url, clients, &format!("--rows {ROWS} {TRIAL}"))
    }
}

pub(super) fn postgres(tools: &Tools) -> anyhow::Result<()> {
    let (c_loop, family) = (tools.compile("postgres")?, tools.compile("family")?);
    let server = Postgres::start()?;
    let c_loop = c_command(&c_loop, &[&server.server.socket(), "admin", "postgres", "64", ROWS, "0.5"]);
    tools.client_and_server(
        &c_loop,
        "pgbench",
        &|transport, connections| server.metered(&family, transport, connections),
        &|transport, connections| server.ours(tools, transport, connections),
    )
}

const CONNECTS: &str = "import socket, sys, time
times = []
for _ in range(1000):
    s = socket.socket(); begun = time.perf_counter_ns(); s.connect(('127.0.0.1', int(sys.argv[1])))
    times.append(time.perf_counter_ns() - begun); s.close()
print('median_us', sorted(times)[len(times) // 2] / 1000)
";

const HELD: &str = "import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
begun = time.perf_counter_ns()
kept = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(2000)]
print('mean_us', (time.perf_counter_ns() - begun) / 2000 / 1000)
";

/// What `samehost run` adds, by seccomp and by a preloaded library: with all of it on one CPU, where the kernel likes, and
/// where a process keeps thousands of connections; beside TCP and the Unix socket itself.
pub(super) fn run(tools: &Tools) -> anyhow::Result<()> {
    const LIMITS: &str = "--budget 20s --min-blocks 10 --max-blocks 20 --precision 1%";
    let redis = Redis::start(tools.directory.path())?;
    let mapped = format!("--quiet --map {}={} --", redis.port, redis.socket);
    let under = format!("{} run {mapped}", tools.samehost.display());
    let preloaded = format!("{} run --preload {mapped}", tools.samehost.display());
    let python = |name: &str, script: &str| {
        let path = tools.directory.path().join(name);
        fs::write(&path, script)?;
        anyhow::Ok(format!("python3 {} {}", path.display(), redis.port))
    };
    let connects = python("connects.py", CONNECTS)?;
    let figure = Figure::lower("median_us ([\\d.]+)".into());
    for (place, prefix) in
        [("on one CPU", format!("taskset -c {CLIENT_CPU} ")), ("free placement", String::new())]
    {
        println!("connect, program and supervisor {place}: median of 1,000, µs");
        let arms = [
            format!("tcp={prefix}{connects}"),
            format!("run={prefix}{under} {connects}"),
            format!("preload={prefix}{preloaded} {connects}"),
        ];
        tools.alternate(LIMITS, Some(&figure), &arms)?;
    }
    println!("connect, of 2,000 that one process keeps, free placement: mean, µs");
    let script = python("held.py", HELD)?;
    let arms =
        [format!("tcp={script}"), format!("run={under} {script}"), format!("preload={preloaded} {script}")];
    tools.alternate(LIMITS, Some(&Figure::lower("mean_us ([\\d.]+)".into())), &arms)?;
    println!("redis-benchmark, 50 connections: GETs per second");
    redis.set_key_of_redis_benchmark()?;
    let [tcp, unix] = ["tcp", "unix"]
        .map(|transport| format!("redis-benchmark {} -c 50 -n 100000 -t get --csv", redis.place(transport)));
    let arms = [format!("unix={unix}"), format!("run={under} {tcp}"), format!("tcp={tcp}")];
    tools.alternate(LIMITS, Some(&Figure::higher("\"GET\",\"([\\d.]+)\"".into())), &arms)
}
