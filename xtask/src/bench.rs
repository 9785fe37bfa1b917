//! Compares our client with yardsticks: minimal C loops on the same server, alternating with it trial by
//! trial, evaluated by samehost's own statistics for whole commands. Prints ratios and asserts none,
//! because machines are shared.

pub(crate) mod databases;
pub(crate) mod foreign;
mod http;
pub(crate) mod scan;
mod variogram;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::ValueEnum;

use crate::name_and_about;
use crate::process::{Process, serve, show};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Yardstick {
    /// median round trip, 128 bytes, 1 connection, against minimal C loops that wait in poll, and in read
    PingPong,
    /// client CPU per operation, 64 connections, against a minimal C epoll loop
    Epoll,
    /// client CPU per GET, 64 connections, Unix socket, against a minimal C epoll loop and redis-benchmark
    Redis,
    /// a prepared point select on MariaDB, against a minimal C epoll loop and sysbench
    Mysql,
    /// a prepared point select on PostgreSQL, against a minimal C epoll loop and pgbench
    Postgres,
    /// 64 connections that stay: client CPU per request through nginx (at most 0.9 of wrk's), and requests per second over a
    /// Unix socket (at least twice wrk's over TCP)
    Http,
    /// a host with 10,000 sockets, against ss -tuxp (at most half of it) and lsof (a quarter); memory
    Scan,
    /// what scan --observe predicts of a load, against what bench measures of it (a factor of 1.5 at most)
    Predict,
    /// what scan --observe predicts of pgbench, sysbench and redis-benchmark, against what they measure (a factor of 1.5 at
    /// most)
    Foreign,
    /// the same of wrk on a WordPress, 12 minutes (a factor of 1.5 at most)
    Pages,
    /// how long `scan --observe 8s` takes while those three and a client of short connections are busy (30 s at most)
    Observe,
    /// 50,000 requests/s on 16 connections: rate achieved, lateness of the generator
    OpenLoop,
    /// what `samehost run` adds to a connect (the aim is 50 µs at most on one CPU), and redis-benchmark under it, over TCP and
    /// over the Unix socket, two minutes
    Run,
    /// `--version` (less than 5 ms) of the program as packages have it, beside that of ripgrep, hyperfine and oha, and sizes
    Start,
    /// slices of 0.2 to 100 ms, raw and Redis, 1, 8 and 64 connections: which length gives the smallest error
    Variogram,
}

impl Yardstick {
    fn run(self) -> fn(&Tools) -> anyhow::Result<()> {
        match self {
            Yardstick::PingPong => ping_pong,
            Yardstick::Epoll => epoll,
            Yardstick::Redis => databases::redis,
            Yardstick::Mysql => databases::mysql,
            Yardstick::Postgres => databases::postgres,
            Yardstick::Http => http::http,
            Yardstick::Scan => scan::scan,
            Yardstick::Predict => scan::predict,
            Yardstick::Foreign => |tools| foreign::compare(tools, foreign::LOADS),
            Yardstick::Pages => |tools| foreign::compare(tools, &[foreign::wrk]),
            Yardstick::Observe => foreign::observe,
            Yardstick::OpenLoop => open_loop,
            Yardstick::Run => databases::run,
            Yardstick::Start => scan::start,
            Yardstick::Variogram => variogram::variogram,
        }
    }
}

/// Client and server are pinned to one CPU each. Otherwise the kernel's placement would be the largest
/// difference between two runs, and it is not caused by the client.
const CLIENT_CPU: &str = "0";
const SERVER_CPU: &str = "1";

struct Tools {
    samehost: PathBuf,
    directory: tempfile::TempDir,
}

/// Compares with these, and with all where none is named.
pub(crate) fn run(named: &[Yardstick]) -> anyhow::Result<()> {
    let tools = Tools { samehost: crate::release_program()?, directory: tempfile::tempdir()? };
    for yardstick in Yardstick::value_variants() {
        if named.is_empty() || named.contains(yardstick) {
            let (name, about) = name_and_about(yardstick);
            println!("\n## {name}: {about}\n");
            yardstick.run()(&tools)?;
        }
    }
    Ok(())
}

pub(crate) struct Echo {
    _server: Process,
    pub(crate) tcp: String,
    unix: String,
}

impl Echo {
    pub(crate) fn start(samehost: &Path, directory: &Path, model: &str, cpu: &str) -> anyhow::Result<Self> {
        let socket = directory.join("echo.sock");
        let (server, address) = serve(pinned(samehost, cpu), "echo", model, &socket)?;
        Ok(Echo {
            _server: server,
            tcp: format!("tcp:{address}"),
            unix: format!("unix:{}", socket.display()),
        })
    }
}

fn pinned(program: &Path, cpu: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]).arg(program);
    command
}

/// What the output of commands is compared by: the number that a pattern of two alternatives finds, one for each program.
struct Figure {
    pattern: String,
    better: &'static str,
}

impl Figure {
    fn lower(pattern: String) -> Self {
        Figure { pattern, better: "lower" }
    }

    fn higher(pattern: String) -> Self {
        Figure { pattern, better: "higher" }
    }

    /// Client CPU per operation in user space and in the kernel, as the C loops and our trials over `transport` print it.
    fn client_cpu(transport: &str) -> Self {
        Self::lower(format!("^cpu_us_per_op ([\\d.]+)|{}", field(transport, "client_cpu_us_per_op")))
    }

    fn client_user(transport: &str) -> Self {
        Self::lower(format!(" user_us_per_op ([\\d.]+)|{}", field(transport, "client_user_us_per_op")))
    }

    fn throughput(transport: &str) -> Self {
        Self::higher(format!(" per_s ([\\d.]+)|{}", field(transport, "throughput_per_s")))
    }
}

/// The command of a side for a transport and a number of connections.
type Commands<'a> = &'a dyn Fn(&str, u32) -> String;

impl Tools {
    fn compile(&self, peer: &str) -> anyhow::Result<PathBuf> {
        let output = self.directory.path().join(peer);
        let source = crate::root().join(format!("xtask/peers/{peer}.c"));
        let status = Command::new("cc").args(["-O2", "-o"]).arg(&output).arg(&source).status();
        let status = status.context("a C compiler is needed: install the package gcc")?;
        ensure!(status.success(), "{} does not compile", source.display());
        Ok(output)
    }

    /// Command for one trial of ours against a running server, with JSON on standard output. `more` are further options,
    /// and where a shell is to write errors.
    fn trial(&self, workload: &str, transport: &str, endpoint: &str, connections: u32, more: &str) -> String {
        format!(
            "{} bench {workload} --transports {transport} --{transport} {endpoint} --connections {connections} --min-blocks 1 --max-blocks 1 --quiet --json - {more}",
            self.samehost.display()
        )
    }

    /// The same for an echo server, on the client's CPU.
    fn echo_trial(&self, transport: &str, endpoint: &str, connections: u32, more: &str) -> String {
        let more = format!("--size 128 --trial-time 500ms {more}");
        format!("taskset -c {CLIENT_CPU} {}", self.trial("raw", transport, endpoint, connections, &more))
    }

    /// Alternates commands, each as `NAME=COMMAND`, and prints how they differ in a figure, or in their wall time. `limits`
    /// are options of `bench command`.
    fn alternate(&self, limits: &str, figure: Option<&Figure>, arms: &[String]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.samehost);
        command.args(["bench", "command"]).args(limits.split(' '));
        if let Some(Figure { pattern, better }) = figure {
            command.args(["--better", better, "--value", pattern]);
        }
        for arm in arms {
            command.args(["--arm", arm]);
        }
        show(&mut command, "the comparison")
    }

    fn compare(&self, name: &str, peer: &str, ours: &str, figure: &Figure) -> anyhow::Result<()> {
        let limits = "--budget 45s --min-blocks 20 --max-blocks 60 --precision 1%";
        self.alternate(limits, Some(figure), &[format!("{name}={peer}"), format!("samehost={ours}")])
    }

    /// Compares a C loop with ours in client CPU, all of it and the part in user space; `head` begins what is printed.
    fn client_cpu(&self, head: &str, c_loop: &str, ours: &str, transport: &str) -> anyhow::Result<()> {
        println!("{head}client CPU per operation, user and system, µs");
        self.compare("c-loop", c_loop, ours, &Figure::client_cpu(transport))?;
        println!("{head}user space's part of it, µs");
        self.compare("c-loop", c_loop, ours, &Figure::client_user(transport))
    }

    /// What a C loop and a peer cost their own CPUs and the server's, beside us: the commands of `peer` and of `ours` for a
    /// transport and a number of connections.
    fn client_and_server(
        &self,
        c_loop: &str,
        name: &str,
        peer: Commands<'_>,
        ours: Commands<'_>,
    ) -> anyhow::Result<()> {
        let alone = ours("unix", 64);
        let pinned = format!("taskset -c {CLIENT_CPU} {alone}");
        self.client_cpu("unix, 64 connections: ", c_loop, &pinned, "unix")?;
        let theirs = peer("unix", 64);
        println!("unix, 64 connections: client CPU per operation, µs");
        self.compare(name, &theirs, &alone, &Figure::client_cpu("unix"))?;
        println!("unix, 64 connections: operations per second");
        self.compare(name, &theirs, &alone, &Figure::throughput("unix"))?;
        self.server_cpu(name, peer, ours)
    }

    /// Server CPU that a Unix socket saves at 8 and at 64 connections, measured by a peer and by us.
    fn server_cpu(&self, name: &str, peer: Commands<'_>, ours: Commands<'_>) -> anyhow::Result<()> {
        let limits = "--budget 60s --min-blocks 8 --max-blocks 20 --precision 2%";
        let server_cpu = ["tcp", "unix"].map(|transport| field(transport, "server_cpu_us_per_op"));
        let sides = [
            (name, Figure::lower("server_us_per_op ([\\d.]+)".into()), peer),
            ("samehost", Figure::lower(server_cpu.join("|")), ours),
        ];
        for connections in [8, 64] {
            for (name, figure, commands) in &sides {
                println!(
                    "{connections} connections: server CPU per operation over TCP and over a Unix socket, µs, as {name} sees it"
                );
                let arms = ["tcp", "unix"]
                    .map(|transport| format!("{transport}={}", commands(transport, connections)));
                self.alternate(limits, Some(figure), &arms)?;
            }
        }
        Ok(())
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
            let echo = Echo::start(&tools.samehost, tools.directory.path(), model, server_cpu)?;
            for (transport, endpoint) in [("unix", &echo.unix), ("tcp", &echo.tcp)] {
                println!("{transport}, {where_to}, both ends wait in {wait}: median round trip, µs");
                let figure = Figure::lower(format!("p50_us ([\\d.]+)|{}", field(transport, "p50")));
                let command = c_command(&peer, &[endpoint, "128", "0.5", wait]);
                // The loop lets CPUs sleep, so we do.
                let ours = tools.echo_trial(transport, endpoint, 1, &format!("--wait {wait} --awake=no"));
                tools.compare("c-loop", &command, &ours, &figure)?;
            }
        }
    }
    Ok(())
}

fn epoll(tools: &Tools) -> anyhow::Result<()> {
    let peer = tools.compile("epoll")?;
    let echo = Echo::start(&tools.samehost, tools.directory.path(), "epoll", SERVER_CPU)?;
    for (transport, endpoint) in [("unix", &echo.unix), ("tcp", &echo.tcp)] {
        let command = c_command(&peer, &[endpoint, "64", "128", "0.5"]);
        let ours = tools.echo_trial(transport, endpoint, 64, "");
        tools.client_cpu(&format!("{transport}: "), &command, &ours, transport)?;
    }
    Ok(())
}

fn c_command(peer: &Path, arguments: &[&str]) -> String {
    format!("taskset -c {CLIENT_CPU} {} {}", peer.display(), arguments.join(" "))
}

fn open_loop(tools: &Tools) -> anyhow::Result<()> {
    let words = "bench raw --rate 50k --connections 16 --trial-time 1s";
    show(Command::new(&tools.samehost).args(words.split(' ')), "the measurement")
}
