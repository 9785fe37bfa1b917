//! Compares our client with yardsticks: minimal C loops on the same server, alternating with it trial by
//! trial, evaluated by samehost's own statistics for whole commands. Prints ratios and asserts none,
//! because machines are shared.

pub(crate) use foreign::Blog;
mod foreign;
mod http;
pub(crate) mod mysql;
mod postgres;
pub(crate) mod redis;
mod run;
pub(crate) mod scan;
mod variogram;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};

struct Yardstick {
    name: &'static str,
    about: &'static str,
    run: fn(&Tools) -> anyhow::Result<()>,
}

const YARDSTICKS: &[Yardstick] = &[
    Yardstick {
        name: "ping-pong",
        about: "median round trip, 128 bytes, 1 connection, against minimal C loops that wait in poll, and in read",
        run: ping_pong,
    },
    Yardstick {
        name: "epoll",
        about: "client CPU per operation, 64 connections, against a minimal C epoll loop",
        run: epoll,
    },
    Yardstick {
        name: "redis",
        about: "client CPU per GET, 64 connections, Unix socket, against a minimal C epoll loop and redis-benchmark",
        run: redis::redis,
    },
    Yardstick {
        name: "mysql",
        about: "a prepared point select on MariaDB, against a minimal C epoll loop and sysbench",
        run: mysql::mysql,
    },
    Yardstick {
        name: "postgres",
        about: "a prepared point select on PostgreSQL, against a minimal C epoll loop and pgbench",
        run: postgres::postgres,
    },
    Yardstick {
        name: "http",
        about: "64 connections that stay: client CPU per request through nginx (at most 0.9 of wrk's), and requests per second over a Unix socket (at least twice wrk's over TCP)",
        run: http::http,
    },
    Yardstick {
        name: "scan",
        about: "a host with 10,000 sockets, against ss -tuxp (at most half of it) and lsof (a quarter); memory",
        run: scan::scan,
    },
    Yardstick {
        name: "predict",
        about: "what scan --observe predicts of a load, against what bench measures of it (a factor of 1.5 at most)",
        run: scan::predict,
    },
    Yardstick {
        name: "foreign",
        about: "what scan --observe predicts of pgbench, sysbench and redis-benchmark, against what they measure (a factor of 1.5 at most)",
        run: foreign::foreign,
    },
    Yardstick {
        name: "pages",
        about: "the same of wrk on a WordPress, 12 minutes (a factor of 1.5 at most)",
        run: foreign::pages,
    },
    Yardstick {
        name: "observe",
        about: "how long `scan --observe 8s` takes while those three and a client of short connections are busy (30 s at most)",
        run: foreign::observe,
    },
    Yardstick {
        name: "open-loop",
        about: "50,000 requests/s on 16 connections: rate achieved, lateness of the generator",
        run: open_loop,
    },
    Yardstick {
        name: "run",
        about: "what `samehost run` adds to a connect (the aim is 50 µs at most on one CPU), and redis-benchmark under it, over TCP and over the Unix socket, two minutes",
        run: run::run,
    },
    Yardstick {
        name: "start",
        about: "`--version` (less than 5 ms) of the program as packages have it, beside that of ripgrep, hyperfine and oha, and sizes",
        run: scan::start,
    },
    Yardstick {
        name: "variogram",
        about: "slices of 0.2 to 100 ms, raw and Redis, 1, 8 and 64 connections: which length gives the smallest error",
        run: variogram::variogram,
    },
];

/// Client and server are pinned to one CPU each. Otherwise the kernel's placement would be the largest
/// difference between two runs, and it is not caused by the client.
const CLIENT_CPU: &str = "0";
const SERVER_CPU: &str = "1";

/// Inputs of a yardstick.
struct Tools {
    samehost: PathBuf,
    directory: tempfile::TempDir,
}

/// Runs the named yardsticks; all if `names` is empty.
pub(crate) fn run(names: &[String]) -> anyhow::Result<()> {
    for name in names {
        let known: Vec<&str> = YARDSTICKS.iter().map(|yardstick| yardstick.name).collect();
        ensure!(known.contains(&name.as_str()), "no yardstick `{name}`; known are {}", known.join(", "));
    }
    let tools = Tools { samehost: crate::release_program()?, directory: tempfile::tempdir()? };
    for yardstick in YARDSTICKS {
        if names.is_empty() || names.iter().any(|name| name == yardstick.name) {
            println!("\n## {}: {}\n", yardstick.name, yardstick.about);
            (yardstick.run)(&tools)?;
        }
    }
    Ok(())
}

/// An echo server for both clients, stopped on drop.
pub(crate) struct Echo {
    child: Child,
    pub(crate) tcp: String,
    unix: String,
}

impl Echo {
    pub(crate) fn start(samehost: &Path, directory: &Path, model: &str, cpu: &str) -> anyhow::Result<Self> {
        let unix = format!("unix:{}", directory.join("echo.sock").display());
        let mut child = Command::new("taskset")
            .args(["-c", cpu])
            .arg(samehost)
            .args(["serve", "echo", "--model", model, "--listen", "tcp:127.0.0.1:0", "--listen", &unix])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("the server's output")?).lines();
        let first = lines.next().context("the server said nothing")??;
        let tcp = first.trim_start_matches("listening on ").to_owned();
        lines.next().context("the server said one line only")??;
        Ok(Echo { child, tcp, unix })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tools {
    fn compile(&self, peer: &str) -> anyhow::Result<PathBuf> {
        let output = self.directory.path().join(peer);
        let source = crate::root().join(format!("xtask/peers/{peer}.c"));
        let status = Command::new("cc").args(["-O2", "-o"]).arg(&output).arg(&source).status();
        let status = status.context("a C compiler is needed: install the package gcc")?;
        ensure!(status.success(), "{} does not compile", source.display());
        Ok(output)
    }

    fn echo(&self, model: &str, cpu: &str) -> anyhow::Result<Echo> {
        Echo::start(&self.samehost, self.directory.path(), model, cpu)
    }

    /// Command for one trial of our client against a running server, with JSON on standard output.
    fn ours(&self, transport: &str, endpoint: &str, connections: u32) -> String {
        format!(
            "taskset -c {CLIENT_CPU} {} bench raw --transports {transport} --{transport} {endpoint} --connections {connections} --size 128 --min-blocks 1 --max-blocks 1 --trial-time 500ms --quiet --json -",
            self.samehost.display()
        )
    }

    /// Alternates two commands and compares the number that the pattern matches in their output.
    fn compare(&self, peer: &str, ours: &str, pattern: &str) -> anyhow::Result<()> {
        self.compare_with("c-loop", peer, ours, pattern, "lower")
    }

    /// Like `compare`, with the peer's name and the better direction.
    fn compare_with(
        &self,
        name: &str,
        peer: &str,
        ours: &str,
        pattern: &str,
        better: &str,
    ) -> anyhow::Result<()> {
        let arms = [format!("{name}={peer}"), format!("samehost={ours}")];
        let status = Command::new(&self.samehost)
            .args(["bench", "command", "--better", better, "--value", pattern, "--budget", "45s"])
            .args(["--min-blocks", "20", "--max-blocks", "60", "--precision", "1%"])
            .args(["--arm", &arms[0], "--arm", &arms[1]])
            .status()?;
        if status.success() { Ok(()) } else { bail!("the comparison ended with {status}") }
    }
}

impl Tools {
    /// What a C loop and a peer cost their own CPUs and the server's, beside us: the commands of `peer` and of `ours` for a
    /// transport and a number of connections.
    fn client_and_server(
        &self,
        c_loop: &str,
        name: &str,
        peer: impl Fn(&str, u32) -> String,
        ours: impl Fn(&str, u32) -> String,
    ) -> anyhow::Result<()> {
        let alone = ours("unix", 64);
        let pinned = format!("taskset -c {CLIENT_CPU} {alone}");
        let cpu = format!("^cpu_us_per_op ([\\d.]+)|{}", field("unix", "client_cpu_us_per_op"));
        let user = format!(" user_us_per_op ([\\d.]+)|{}", field("unix", "client_user_us_per_op"));
        let rate = format!(" per_s ([\\d.]+)|{}", field("unix", "throughput_per_s"));
        println!("unix, 64 connections: client CPU per operation, user and system, µs");
        self.compare_with("c-loop", c_loop, &pinned, &cpu, "lower")?;
        println!("unix, 64 connections: user space's part of it, µs");
        self.compare_with("c-loop", c_loop, &pinned, &user, "lower")?;
        let theirs = peer("unix", 64);
        println!("unix, 64 connections: client CPU per operation, µs");
        self.compare_with(name, &theirs, &alone, &cpu, "lower")?;
        println!("unix, 64 connections: operations per second");
        self.compare_with(name, &theirs, &alone, &rate, "higher")?;
        for connections in [8, 64] {
            let both = |of: &dyn Fn(&str, u32) -> String| (of("tcp", connections), of("unix", connections));
            let ((tcp, unix), (our_tcp, our_unix)) = (both(&peer), both(&ours));
            self.server_cpu(name, connections, (&tcp, &unix), (&our_tcp, &our_unix))?;
        }
        Ok(())
    }

    /// Server CPU that a Unix socket saves, measured by a peer and by us: a pair of commands each, over TCP
    /// and over the Unix socket.
    fn server_cpu(
        &self,
        peer: &str,
        connections: u32,
        theirs: (&str, &str),
        ours: (&str, &str),
    ) -> anyhow::Result<()> {
        println!(
            "{connections} connections: server CPU per operation over TCP and over a Unix socket, µs, as {peer} sees it"
        );
        self.both(theirs, "server_us_per_op ([\\d.]+)")?;
        println!("{connections} connections: the same, as samehost sees it");
        let server_cpu = |transport| field(transport, "server_cpu_us_per_op");
        self.both(ours, &format!("{}|{}", server_cpu("tcp"), server_cpu("unix")))
    }

    /// Alternates a command over TCP and over a Unix socket.
    fn both(&self, (tcp, unix): (&str, &str), pattern: &str) -> anyhow::Result<()> {
        let arms = [format!("tcp={tcp}"), format!("unix={unix}")];
        let status = Command::new(&self.samehost)
            .args(["bench", "command", "--better", "lower", "--value", pattern, "--budget", "60s"])
            .args(["--min-blocks", "8", "--max-blocks", "20", "--precision", "2%"])
            .args(["--arm", &arms[0], "--arm", &arms[1]])
            .status()?;
        if status.success() { Ok(()) } else { bail!("the comparison ended with {status}") }
    }
}

/// Pattern for a field of the arm's own trial in a JSON report, because the floor's trial has the field as well.
pub(crate) fn field(transport: &str, name: &str) -> String {
    format!(r#""arm": "{transport}",[\s\S]*?"{name}": ([\d.]+)"#)
}

fn ping_pong(tools: &Tools) -> anyhow::Result<()> {
    let peer = tools.compile("pingpong")?;
    // On one CPU there are no long sleeps, and a difference of 100 ns is visible. Across two CPUs, waking an
    // idle one costs tens of microseconds on a virtual machine, and varies by more than the clients differ.
    for (where_to, server_cpu) in [("on one CPU", CLIENT_CPU), ("across two CPUs", SERVER_CPU)] {
        // A thread in read is woken at other times than one in poll, so both ends use the same call.
        for (wait, model) in [("poll", "threads"), ("read", "blocking")] {
            let echo = tools.echo(model, server_cpu)?;
            for (transport, endpoint) in [("unix", &echo.unix), ("tcp", &echo.tcp)] {
                println!("{transport}, {where_to}, both ends wait in {wait}: median round trip, µs");
                let pattern = format!("p50_us ([\\d.]+)|{}", field(transport, "p50"));
                let command = c_command(&peer, &[endpoint, "128", "0.5", wait]);
                // The loop lets CPUs sleep, so we do.
                let ours = format!("{} --wait {wait} --awake=no", tools.ours(transport, endpoint, 1));
                tools.compare(&command, &ours, &pattern)?;
            }
        }
    }
    Ok(())
}

fn epoll(tools: &Tools) -> anyhow::Result<()> {
    let peer = tools.compile("epoll")?;
    let echo = tools.echo("epoll", SERVER_CPU)?;
    for (transport, endpoint) in [("unix", &echo.unix), ("tcp", &echo.tcp)] {
        let command = c_command(&peer, &[endpoint, "64", "128", "0.5"]);
        let ours = tools.ours(transport, endpoint, 64);
        println!("{transport}: client CPU per operation, user and system, µs");
        let pattern = format!("^cpu_us_per_op ([\\d.]+)|{}", field(transport, "client_cpu_us_per_op"));
        tools.compare(&command, &ours, &pattern)?;
        println!("{transport}: user space's part of it, µs");
        let pattern = format!(" user_us_per_op ([\\d.]+)|{}", field(transport, "client_user_us_per_op"));
        tools.compare(&command, &ours, &pattern)?;
    }
    Ok(())
}

/// A port of 127.0.0.1 that nobody has.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn c_command(peer: &Path, arguments: &[&str]) -> String {
    format!("taskset -c {CLIENT_CPU} {} {}", peer.display(), arguments.join(" "))
}

fn open_loop(tools: &Tools) -> anyhow::Result<()> {
    let status = Command::new(&tools.samehost)
        .args(["bench", "raw", "--rate", "50k", "--connections", "16", "--trial-time", "1s"])
        .status()?;
    if status.success() { Ok(()) } else { bail!("the measurement ended with {status}") }
}
