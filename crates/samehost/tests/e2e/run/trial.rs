//! `samehost run --trial`: real programs whose connections are drawn, and what the report says of them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::Signal;
use samehost_testing::mariadb::MariaDb;
use samehost_testing::postgres::Cluster;
use samehost_testing::{Ended, Noise, free_port};
use serde_json::Value;

use super::Redis;
use crate::clients::node;
use crate::scan::is_root;
use crate::support::{Home, SAMEHOST, not_tested, send, wait_for};

/// So many connections one after the other, each with so many requests; prints how many were refused, and ends with 3.
const CLIENT: &str = "import socket, sys
port, connections, requests = map(int, sys.argv[1:4])
refused = 0
for _ in range(connections):
    try:
        s = socket.create_connection(('127.0.0.1', port))
    except ConnectionRefusedError:
        refused += 1
        continue
    for _ in range(requests):
        s.sendall(b'PING\\r\\n')
        assert s.recv(100)
    s.close()
print(refused)
sys.exit(3)
";

/// A server of this process that answers each piece after a time, which its two doors need not share. One thread has both doors and
/// serves a connection at a time: with a thread for each door, whoever had the thread that other programs kept from its CPU was slower
/// by half, in all of a run.
struct Own {
    home: Home,
    port: u16,
}

/// Where clients come in.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Tcp(listener) => listener.as_fd(),
            Door::Unix(listener) => listener.as_fd(),
        }
    }

    fn answer_next(&self, mean: Duration, noise: &mut Noise) {
        match self {
            Door::Tcp(listener) => answer(listener.accept().unwrap().0, mean, noise),
            Door::Unix(listener) => answer(listener.accept().unwrap().0, mean, noise),
        }
    }
}

impl Own {
    /// Mean times of the answers, by TCP and by the Unix socket; `None` is a door that is closed.
    fn start(over_tcp: Option<Duration>, over_unix: Option<Duration>) -> Self {
        let (home, port) = (Home::new(), free_port());
        let mut doors = Vec::new();
        if let Some(mean) = over_tcp {
            doors.push((Door::Tcp(TcpListener::bind(("127.0.0.1", port)).unwrap()), mean));
        }
        if let Some(mean) = over_unix {
            doors.push((Door::Unix(UnixListener::bind(home.path("own.sock")).unwrap()), mean));
        }
        thread::spawn(move || {
            let mut noise = Noise(u64::from(port));
            while !doors.is_empty() {
                let mut waits: Vec<_> = doors
                    .iter()
                    .map(|(door, _)| PollFd::from_borrowed_fd(door.as_fd(), PollFlags::IN))
                    .collect();
                poll(&mut waits, None).unwrap();
                for (wait, (door, mean)) in waits.iter().zip(&doors) {
                    if !wait.revents().is_empty() {
                        door.answer_next(*mean, &mut noise);
                    }
                }
            }
        });
        Own { home, port }
    }

    fn map(&self) -> String {
        format!("{}={}", self.port, self.home.path("own.sock").display())
    }
}

/// Answers until the other side closes, after times that differ as those of requests do: by half of their mean.
fn answer(mut end: impl Read + Write, mean: Duration, noise: &mut Noise) {
    let mut piece = [0; 100];
    while end.read(&mut piece).is_ok_and(|bytes| bytes > 0) {
        thread::sleep(mean.mul_f64((0.5 * noise.draw()).exp()));
        if end.write_all(b"+PONG\r\n").is_err() {
            return;
        }
    }
}

fn tried(home: &Home, map: &str, words: &[&str]) -> Command {
    let json = home.path("trial.json").display().to_string();
    let options = ["run", "--trial", "--exact", "--seed", "7", "--json", &json, "--map", map, "--"];
    home.command(&[&options, words].concat())
}

/// A trial of the client, and its report.
fn client(home: &Home, map: &str, port: u16, connections: u32, requests: u32) -> (Ended, Value) {
    let numbers = [port.to_string(), connections.to_string(), requests.to_string()];
    let words = ["python3", "-c", CLIENT, &numbers[0], &numbers[1], &numbers[2]];
    let ended = Ended::of(&tried(home, map, &words).output().unwrap());
    let report = read(home, &ended);
    (ended, report)
}

fn read(home: &Home, ended: &Ended) -> Value {
    let text = std::fs::read_to_string(home.path("trial.json"));
    serde_json::from_str(&text.unwrap_or_else(|error| panic!("{error}: {}", ended.stderr))).unwrap()
}

/// A number of an arm's connections, summed over its blocks.
fn drawn(report: &Value, arm: &str, what: &str) -> u64 {
    let trials = report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] == arm);
    trials.map(|trial| trial["drawn"][what].as_u64().unwrap()).sum()
}

fn comparison<'a>(report: &'a Value, metric: &str) -> &'a Value {
    let comparisons = report["comparisons"].as_array().unwrap();
    comparisons
        .iter()
        .find(|one| one["metric"] == metric)
        .unwrap_or_else(|| panic!("{metric}: {comparisons:#?}"))
}

fn has_rights() -> bool {
    if !is_root() {
        not_tested("run --trial: it takes root");
    }
    is_root()
}

#[test]
fn redis_with_short_connections_is_tried_as_root() {
    if !has_rights() {
        return;
    }
    let redis = Redis::start();
    let page = redis.home.path("trial.html").display().to_string();
    let json = redis.home.path("trial.json").display().to_string();
    let (map, port) = (redis.map(), redis.port.to_string());
    let options = ["run", "--trial", "--exact", "--json", &json, "--html", &page, "--map", &map, "--"];
    let words = ["python3", "-c", CLIENT, &port, "200", "5"];
    let ended = Ended::of(&redis.home.command(&[&options[..], &words].concat()).output().unwrap());
    assert_eq!((ended.status, ended.stdout.as_str()), (3, "0\n"), "{}", ended.stderr);
    let report = read(&redis.home, &ended);
    let (tcp, unix) = (drawn(&report, "tcp", "connections"), drawn(&report, "unix", "connections"));
    assert!(tcp + unix == 200 && tcp.abs_diff(unix) <= 6, "{tcp} and {unix}");
    assert_eq!(drawn(&report, "unix", "fell_back"), 0);
    assert!(drawn(&report, "tcp", "timed") + drawn(&report, "unix", "timed") >= 190, "{}", ended.stderr);
    let operations: u64 =
        report["trials"].as_array().unwrap().iter().map(|trial| trial["operations"].as_u64().unwrap()).sum();
    assert!((980..=1000).contains(&operations), "{operations}");
    for metric in ["exchange_time_us", "exchange_mean_us", "hop_us"] {
        let found = comparison(&report, metric);
        assert!(found["ci_low"].as_f64().is_some() && found["grade"] != "barred", "{found:#}");
    }
    assert_eq!(comparison(&report, "exchange_time_us")["method"], "signed-rank");
    for words in
        ["exchange time", "connections with", "over the Unix socket", "would have been found", "one server"]
    {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("exchange time"));
    let again = redis.home.run(&["report", &json]);
    assert!(again.status == 0 && again.stdout.contains("exchange time"), "{}", again.stderr);
}

#[test]
fn mariadb_with_connections_of_one_query_is_tried_as_root() {
    const PHP: &str = "mysqli_report(MYSQLI_REPORT_OFF); $failed = 0;
for ($i = 0; $i < 120; $i++) {
    $db = @new mysqli('127.0.0.1', 'by_nothing', '', '', (int) $argv[1]);
    if ($db->connect_errno || !$db->query('SELECT 1')) { $failed++; continue; }
    $db->close();
}
echo $failed;";
    if !has_rights() {
        return;
    }
    let (mariadb, home) = (MariaDb::start(&[]), Home::new());
    let map = format!("{}={}", mariadb.port, mariadb.socket());
    let words = ["php", "-r", PHP, "--", &mariadb.port.to_string()];
    let ended = Ended::of(&tried(&home, &map, &words).output().unwrap());
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "0"), "{}", ended.stderr);
    let report = read(&home, &ended);
    assert_eq!(drawn(&report, "tcp", "connections") + drawn(&report, "unix", "connections"), 120);
    let trials = report["trials"].as_array().unwrap();
    assert!(trials.is_sorted_by_key(|trial| trial["block"].as_u64()), "both ways of a block stand together");
    assert!(drawn(&report, "tcp", "timed") + drawn(&report, "unix", "timed") >= 110, "{}", ended.stderr);
    assert!(comparison(&report, "exchange_time_us")["ci_low"].as_f64().is_some(), "{}", ended.stderr);
}

/// A pool of four whose connections are used ten times each: it opens new ones all the time, and several are open at once.
#[test]
fn a_pool_of_node_that_opens_new_connections_is_tried_as_root() {
    const POOL: &str = "const { Pool } = require('pg');
const pool = new Pool({ host: '127.0.0.1', port: +process.argv[2], user: 'by_trust', database: 'shop', max: 4, maxUses: 10 });
const work = async () => { for (let i = 0; i < 200; i++) await pool.query('SELECT 1'); };
Promise.all([work(), work(), work(), work()]).then(() => pool.end()).then(() => console.log('done'));
";
    if !has_rights() {
        return;
    }
    let (cluster, home) = (Cluster::start(20), Home::new());
    let program = home.path("client.js");
    std::fs::write(&program, POOL).unwrap();
    let socket = cluster.socket();
    let map = format!("{}={}", cluster.port, socket.trim_start_matches("unix:"));
    let (program, port) = (program.display().to_string(), cluster.port.to_string());
    let mut command = tried(&home, &map, &["node", &program, &port]);
    command.env("NODE_PATH", node().unwrap_or_else(|missing| panic!("{missing}")).join("node_modules"));
    let ended = Ended::of(&command.output().unwrap());
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "done\n"), "{}", ended.stderr);
    let report = read(&home, &ended);
    let [tcp, unix] = ["tcp", "unix"].map(|arm| drawn(&report, arm, "timed"));
    assert!(tcp >= 30 && unix >= 30 && tcp + unix >= 75, "{tcp} and {unix}: {}", ended.stderr);
    let found = comparison(&report, "exchange_time_us");
    assert!(found["ci_low"].as_f64().is_some() && found["grade"] != "barred", "{found:#}: {}", ended.stderr);
}

#[test]
fn the_slower_way_is_found_as_root() {
    if !has_rights() {
        return;
    }
    let own = Own::start(Some(Duration::from_millis(1)), Some(Duration::from_millis(4)));
    let (ended, report) = client(&own.home, &own.map(), own.port, 80, 2);
    assert_eq!(ended.status, 3);
    let found = comparison(&report, "exchange_time_us");
    assert!(found["verdict"] == "slower" && found["ratio"].as_f64().unwrap() > 1.5, "{found:#}");
    assert!(ended.stderr.contains("an exchange takes"), "{}", ended.stderr);
}

#[test]
fn a_trial_ends_when_it_is_decided_and_its_program_goes_on_as_root() {
    if !has_rights() {
        return;
    }
    let own = Own::start(Some(Duration::from_millis(1)), Some(Duration::from_millis(4)));
    let json = own.home.path("trial.json").display().to_string();
    let (map, port) = (own.map(), own.port.to_string());
    let options =
        ["run", "--trial", "--exact", "--until-decided", "--seed", "7", "--json", &json, "--map", &map, "--"];
    // Ends when the report is there.
    let words = ["python3", "-c", UNTIL_THE_REPORT, &port, &json];
    let ended = Ended::of(&own.home.command(&[&options[..], &words].concat()).output().unwrap());
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "done\n"), "{}", ended.stderr);
    let report = read(&own.home, &ended);
    let found = comparison(&report, "exchange_time_us");
    assert!(found["verdict"] == "slower" && found["method"] == "sequential-t", "{found:#}");
    assert!(found["blocks"].as_u64().unwrap() >= 5 && report["plan"]["stopping"] == "decision", "{found:#}");
    let in_it = drawn(&report, "tcp", "connections") + drawn(&report, "unix", "connections");
    assert!((100..1000).contains(&in_it), "{in_it}");
    let again = own.home.run(&["report", &json]);
    assert!(again.status == 0 && again.stdout.contains("exchange time"), "{}", again.both());
}

#[test]
fn a_trial_that_is_not_decided_ends_with_its_program_and_says_so_as_root() {
    if !has_rights() {
        return;
    }
    let own = Own::start(Some(Duration::from_millis(1)), Some(Duration::from_millis(1)));
    let json = own.home.path("trial.json").display().to_string();
    let (map, port) = (own.map(), own.port.to_string());
    let options = ["run", "--trial", "--exact", "--until-decided", "--json", &json, "--map", &map, "--"];
    // A block is 20 connections in a row, and one that is not whole is left out: seven and more are a look.
    let words = ["python3", "-c", CLIENT, &port, "190", "1"];
    let ended = Ended::of(&own.home.command(&[&options[..], &words].concat()).output().unwrap());
    assert_eq!(ended.status, 3, "{}", ended.stderr);
    let report = read(&own.home, &ended);
    let found = comparison(&report, "exchange_time_us");
    // By chance a decision comes sooner in one of twenty at most.
    if found["verdict"] == "inconclusive" {
        assert!(ended.stderr.contains("was not decided when the trial ended"), "{}", ended.stderr);
        let connections = ["tcp", "unix"].map(|arm| drawn(&report, arm, "connections"));
        assert!(connections.iter().sum::<u64>() >= 140, "{connections:?}: {}", ended.stderr);
    }
    assert_eq!(found["method"], "sequential-t", "{found:#}");
}

/// Connections of two requests, until a file is there.
const UNTIL_THE_REPORT: &str = "import os, socket, sys
port, report = int(sys.argv[1]), sys.argv[2]
while not (os.path.exists(report) and os.path.getsize(report)):
    s = socket.create_connection(('127.0.0.1', port))
    for _ in range(2):
        s.sendall(b'PING\\r\\n')
        assert s.recv(100)
    s.close()
print('done')
";

#[test]
fn a_unit_is_tried_by_a_drop_in_that_takes_itself_away() {
    let home = Home::new();
    let root = home.path("root");
    let units = root.join("etc/systemd/system");
    std::fs::create_dir_all(&units).unwrap();
    let text = "[Unit]\nDescription=Shop\n\n[Service]\nType=notify\nExecStart=/bin/sleep 600\n";
    std::fs::write(units.join("shop.service"), text).unwrap();
    let at = root.display().to_string();
    let words = ["run", "--trial", "20%", "--exact", "--for", "10m", "--map", "6379=/run/redis/r.sock"];
    let unit = ["--unit", "shop.service", "--systemd-root", &at];
    let printed = home.run(&[&words[..], &unit].concat());
    assert_eq!(printed.status, 0, "{}", printed.both());
    for needed in [
        "# /run/systemd/system/shop.service.d/zz-samehost-trial.conf",
        " run --trial=20%% --exact --for=600s --json=/run/shop-trial/trial.json --map=6379=/run/redis/r.sock -- /bin/sleep 600",
        "NotifyAccess=all",
        "restarted twice",
        "systemctl restart shop.service",
    ] {
        assert!(printed.stdout.contains(needed), "{needed}: {}", printed.stdout);
    }
    assert!(!root.join("run").exists(), "nothing is installed unasked");

    let installed = home.run(&[&words[..], &unit, &["--install"]].concat());
    assert_eq!(installed.status, 0, "{}", installed.both());
    let (restarts, report) = ("is restarted twice", "/run/shop-trial/trial.json");
    assert!(installed.stderr.contains(restarts) && installed.stderr.contains(report), "{}", installed.stderr);
    let runtime = root.join("run/systemd/system");
    let names =
        ["shop.service.d/zz-samehost-trial.conf", "samehost-trial-shop.service", "samehost-trial-shop.timer"];
    let paths = names.map(|name| runtime.join(name));
    assert!(paths.iter().all(|path| path.is_file()));
    // What systemd says of them, where it is.
    let files = [&paths[1], &paths[2]];
    let verified = Command::new("systemd-analyze").arg("verify").args(files).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(!said.contains("samehost-trial-shop") || verified.status.success(), "{said}");
    let again = home.run(&[&words[..], &unit, &["--install"]].concat());
    assert!(again.status == 2 && again.stderr.contains("is under way"), "{}", again.both());
    // What the unit at the end does, in this root.
    let end = std::fs::read_to_string(&paths[1]).unwrap();
    for line in end.lines().filter_map(|line| line.strip_prefix("ExecStart=")) {
        let line = line.trim_start_matches('-').replace("/run/systemd", &format!("{at}/run/systemd"));
        if line.starts_with("rm") {
            let done = Command::new("sh").args(["-c", &line]).status().unwrap();
            assert!(done.success(), "{line}");
        }
    }
    assert!(paths.iter().all(|path| !path.exists()) && !runtime.join("shop.service.d").exists());
}

#[test]
fn a_unit_is_not_tried_without_systemd_or_where_it_does_not_fit() {
    let home = Home::new();
    let words = ["run", "--trial", "--for", "10m", "--map", "6379=/run/redis/r.sock"];
    for (more, says) in [
        (&["--unit", "no-such-shop.service"][..], "no unit no-such-shop.service"),
        (&["--unit", "../x.service"], "is not the name of a service"),
        (&["--unit", "x.service", "true"], "cannot be used with"),
    ] {
        let ended = home.run(&[&words[..], more].concat());
        assert!(ended.status == 2 && ended.stderr.contains(says), "{says}: {}", ended.both());
    }
    let ended = home.run(&["run", "--trial", "--map", "1=/nowhere", "--unit", "x.service"]);
    assert!(ended.status == 2 && ended.stderr.contains("--for"), "{}", ended.both());
}

#[test]
fn ways_that_are_alike_are_not_called_different_at_length_as_root() {
    const RUNS: usize = 20;
    if !has_rights() {
        return;
    }
    let mut called = Vec::new();
    for _ in 0..RUNS {
        // What the transports themselves differ by is a hundredth of it, and requests differ by half of it.
        let own = Own::start(Some(Duration::from_millis(2)), Some(Duration::from_millis(2)));
        let (_, report) = client(&own.home, &own.map(), own.port, 60, 2);
        let found = comparison(&report, "exchange_time_us");
        let is_called = ["faster", "slower"].iter().any(|verdict| found["verdict"] == *verdict);
        if is_called || found["grade"] == "size_open" {
            called.push(found.to_string());
        }
    }
    // One of twenty is what is promised; more than four of twenty have one chance in 400.
    assert!(called.len() <= 4, "{called:#?}");
}

#[test]
fn a_pool_that_keeps_its_connections_is_refused_as_root() {
    if !has_rights() {
        return;
    }
    let redis = Redis::start();
    let (ended, report) = client(&redis.home, &redis.map(), redis.port, 4, 200);
    assert_eq!((ended.status, ended.stdout.as_str()), (3, "0\n"));
    assert!(ended.stderr.contains("only 4 connections with requests came"), "{}", ended.stderr);
    assert!(ended.stderr.contains("pool_recycle of SQLAlchemy"), "{}", ended.stderr);
    for found in report["comparisons"].as_array().unwrap() {
        assert_eq!(
            (&found["verdict"], &found["grade"]),
            (&"inconclusive".into(), &"barred".into()),
            "{found:#}"
        );
    }
}

#[test]
fn without_stamps_at_the_beginning_there_is_no_trial_as_root() {
    if !has_rights() {
        return;
    }
    let redis = Redis::start();
    let options = ["run", "--trial", "--map", &redis.map(), "--", "sh", "-c", "echo started"];
    let ended = redis.home.run(&options);
    if ended.status == 0 {
        not_tested("a trial without stamps: this kernel allows a program where functions begin to send");
        return;
    }
    assert!(ended.stdout.is_empty(), "nothing was started: {}", ended.stdout);
    assert!(ended.stderr.contains("are not to be compared; --exact stamps system calls"), "{}", ended.stderr);
}

#[test]
fn without_rights_there_is_no_trial_as_root() {
    if !has_rights() {
        return;
    }
    let words =
        [SAMEHOST, "run", "--trial", "--exact", "--map", "1=/nowhere", "--", "sh", "-c", "echo started"];
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let ended = Ended::of(&Command::new("setpriv").args(nobody).args(words).output().unwrap());
    assert!(ended.status != 0 && ended.stdout.is_empty(), "{}", ended.stdout);
    assert!(ended.stderr.contains("bpf(2) takes root, or CAP_BPF and CAP_PERFMON"), "{}", ended.stderr);
}

#[test]
fn a_way_that_fails_is_counted_for_its_arm_and_nothing_is_lost_as_root() {
    if !has_rights() {
        return;
    }
    // A door is closed: there is no server that has both, and the program goes on as without samehost.
    let time = Duration::from_micros(100);
    for (over_tcp, over_unix, refused) in [(None, Some(time), 40), (Some(time), None, 0), (None, None, 40)] {
        let own = Own::start(over_tcp, over_unix);
        let (ended, report) = client(&own.home, &own.map(), own.port, 40, 1);
        assert_eq!((ended.status, ended.stdout), (3, format!("{refused}\n")), "{}", ended.stderr);
        assert_eq!(drawn(&report, "tcp", "connections") + drawn(&report, "unix", "connections"), 0);
        for words in ["are not tried, until one server has both", "40 connections went over TCP", "No answer"]
        {
            assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        }
    }
    // The Unix socket's queue is full: those that were drawn for it go over TCP, and there is no verdict.
    let own = Own::start(Some(time), None);
    let full = UnixListener::bind(own.home.path("own.sock")).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let _waiting = fill(&own.home.path("own.sock"));
    let (ended, report) = client(&own.home, &own.map(), own.port, 60, 1);
    assert_eq!((ended.status, ended.stdout.as_str()), (3, "0\n"), "{}", ended.stderr);
    let unix = drawn(&report, "unix", "connections");
    assert_eq!(drawn(&report, "unix", "fell_back"), unix);
    assert!(drawn(&report, "unix", "timed") >= unix - 3, "{}", ended.stderr);
    assert_eq!(comparison(&report, "exchange_time_us")["grade"], "barred", "{}", ended.stderr);
    assert!(ended.stderr.contains("went over TCP (100 %)"), "{}", ended.stderr);
}

/// As many connections as a socket's queue has room for.
fn fill(socket: &std::path::Path) -> Vec<OwnedFd> {
    let mut waiting = Vec::new();
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let one = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        if connect(&one, &SocketAddrUnix::new(socket).unwrap()).is_err() {
            return waiting;
        }
        waiting.push(one);
    }
}

#[test]
fn an_interrupted_program_has_its_report_as_root() {
    if !has_rights() {
        return;
    }
    let redis = Redis::start();
    let words = ["python3", "-c", CLIENT, &redis.port.to_string(), "1000000", "1"];
    let mut command = tried(&redis.home, &redis.map(), &words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("connections", || {
        let mut seen = String::new();
        let mut stream = std::os::unix::net::UnixStream::connect(redis.socket()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(b"INFO stats\r\nQUIT\r\n").ok()?;
        stream.read_to_string(&mut seen).ok()?;
        let received = seen.split("total_connections_received:").nth(1)?;
        let received: u64 = received.split_whitespace().next()?.parse().ok()?;
        (received > 300).then_some(())
    });
    send(child.id(), Signal::TERM);
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.status, 143, "{}", ended.stderr);
    let report = read(&redis.home, &ended);
    assert!(drawn(&report, "tcp", "timed") + drawn(&report, "unix", "timed") > 100, "{}", ended.stderr);
}

#[test]
fn a_trial_ends_before_its_program_and_what_comes_then_goes_over_tcp_as_root() {
    const ENDLESS: &str = "import os, socket, sys, time
port, report = int(sys.argv[1]), sys.argv[2]
def ask():
    s = socket.create_connection(('127.0.0.1', port))
    s.sendall(b'CLIENT INFO\\r\\n')
    return b'.sock:0 ' in s.recv(4096)
while not os.path.exists(report):
    ask()
print(sum(ask() for _ in range(20)))
";
    if !has_rights() {
        return;
    }
    let redis = Redis::start();
    let (map, json) = (redis.map(), redis.home.path("trial.json").display().to_string());
    let options = ["run", "--trial", "--exact", "--for", "3s", "--json", &json, "--map", &map, "--"];
    let words = ["python3", "-c", ENDLESS, &redis.port.to_string(), &json];
    let ended = Ended::of(&redis.home.command(&[&options[..], &words].concat()).output().unwrap());
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "0\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("the trial is over"), "{}", ended.stderr);
    let report = read(&redis.home, &ended);
    assert!(drawn(&report, "unix", "connections") > 0 && drawn(&report, "tcp", "connections") > 0);
}

#[test]
fn what_does_not_go_with_a_trial_is_refused() {
    let home = Home::new();
    for (options, words) in [
        (&["--trial", "33%"][..], "in steps of 5"),
        (&["--trial", "--preload"], "--trial is not to be had with a preloaded library"),
        (&["--trial", "--json", "-"], "standard output is the program's"),
        (&["--seed", "1"], "--trial"),
    ] {
        let map = ["--map", "1=/nowhere", "--", "true"];
        let ended = home.run(&[&["run"], options, &map].concat());
        assert!(ended.status == 2 && ended.stderr.contains(words), "{options:?}: {}", ended.stderr);
    }
}
