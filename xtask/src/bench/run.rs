//! Yardsticks of `samehost run`: what it adds to a connect, by seccomp and by a preloaded library, with all of it on one CPU and where
//! the kernel likes, and where a process keeps thousands; and what redis-benchmark gets under it, beside TCP and the Unix socket itself.

use std::process::Command;

use anyhow::ensure;

use super::redis::Redis;
use super::{CLIENT_CPU, Tools};

/// Connects often, and prints the median time of one connect.
const CONNECTS: &str = "import socket, sys, time
times = []
for _ in range(1000):
    s = socket.socket(); begun = time.perf_counter_ns(); s.connect(('127.0.0.1', int(sys.argv[1])))
    times.append(time.perf_counter_ns() - begun); s.close()
print('median_us', sorted(times)[len(times) // 2] / 1000)
";

/// Opens many connections in a row, and keeps them.
const HELD: &str = "import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
begun = time.perf_counter_ns()
kept = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(2000)]
print('mean_us', (time.perf_counter_ns() - begun) / 2000 / 1000)
";

pub(super) fn run(tools: &Tools) -> anyhow::Result<()> {
    let redis = Redis::start(tools.directory.path(), &[])?;
    let script = tools.directory.path().join("connects.py");
    std::fs::write(&script, CONNECTS)?;
    let by = |way: &str| {
        format!("{} run{way} --quiet --map {}={} --", tools.samehost.display(), redis.port, redis.socket)
    };
    let (under, preloaded) = (by(""), by(" --preload"));
    let connects = format!("python3 {} {}", script.display(), redis.port);
    for (place, prefix) in
        [("on one CPU", format!("taskset -c {CLIENT_CPU} ")), ("free placement", String::new())]
    {
        println!("connect, program and supervisor {place}: median of 1,000, µs");
        let arms = [
            format!("tcp={prefix}{connects}"),
            format!("run={prefix}{under} {connects}"),
            format!("preload={prefix}{preloaded} {connects}"),
        ];
        compare(tools, "median_us ([\\d.]+)", "lower", &arms)?;
    }
    println!("connect, of 2,000 that one process keeps, free placement: mean, µs");
    let script = tools.directory.path().join("held.py");
    std::fs::write(&script, HELD)?;
    let script = format!("python3 {} {}", script.display(), redis.port);
    let arms =
        [format!("tcp={script}"), format!("run={under} {script}"), format!("preload={preloaded} {script}")];
    compare(tools, "mean_us ([\\d.]+)", "lower", &arms)?;
    println!("redis-benchmark, 50 connections: GETs per second");
    redis.set_key_of_redis_benchmark()?;
    let benchmark =
        |transport: &str| format!("redis-benchmark {} -c 50 -n 100000 -t get --csv", redis.place(transport));
    let arms = [
        format!("unix={}", benchmark("unix")),
        format!("run={under} {}", benchmark("tcp")),
        format!("tcp={}", benchmark("tcp")),
    ];
    compare(tools, "\"GET\",\"([\\d.]+)\"", "higher", &arms)
}

fn compare(tools: &Tools, pattern: &str, better: &str, arms: &[String]) -> anyhow::Result<()> {
    let mut command = Command::new(&tools.samehost);
    command.args(["bench", "command", "--better", better, "--value", pattern, "--budget", "20s"]);
    command.args(["--min-blocks", "10", "--max-blocks", "20", "--precision", "1%"]);
    for arm in arms {
        command.args(["--arm", arm]);
    }
    let status = command.status()?;
    ensure!(status.success(), "the comparison ended with {status}");
    Ok(())
}
