//! The redis workload end to end: the built binary, real servers, tiny measurements.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::support::{Here, Server, TINY, assert_sound, newest, parsed, said};

const SECRET: &str = "hunter2-and-more";

#[test]
fn get_over_both_transports_of_one_process() {
    let report = Here::new().report(&["redis", "--connections", "1,4"]);
    assert_sound(&report);
    let server = &report["workload"]["server"];
    assert!(["redis", "valkey"].contains(&server["kind"].as_str().unwrap()), "{server}");
    assert_eq!(server["managed"], true);
    assert_eq!(server["pids"].as_array().unwrap().len(), 1, "one process for both");
    assert!(!server["version"].as_str().unwrap().is_empty());
}

#[test]
fn current_versions_of_redis_and_valkey_are_measured_as_what_they_are() {
    for (program, kind, least) in [("redis-server", "redis", 8), ("valkey-server", "valkey", 9)] {
        // Nothing else is on this PATH: a Redis that is installed would be taken before a Valkey.
        let folder = tempfile::tempdir().unwrap();
        let cached = newest(&format!("usr/bin/{program}"));
        std::os::unix::fs::symlink(cached, folder.path().join(program)).unwrap();
        let here = Here::new();
        let arguments = [&["redis", "--connections", "1,4"], TINY].concat();
        let report = parsed(&here.bench(&arguments).env("PATH", folder.path()).output().unwrap());
        here.assert_nothing_left();
        assert_sound(&report);
        let server = &report["workload"]["server"];
        let major = server["version"].as_str().unwrap().split('.').next().unwrap().parse::<u32>().unwrap();
        assert!(server["kind"] == kind && major >= least, "{server}");
    }
}

/// The arms' connections are open at once and take turns, on one process; so a few rounds tell.
#[test]
fn a_few_rounds_of_slices_decide_on_one_process() {
    let here = Here::new();
    let arguments =
        ["redis", "--until-decided", "--max-blocks", "40", "--budget", "40s", "--quiet", "--json", "-"];
    let report = parsed(&here.bench(&arguments).output().unwrap());
    here.assert_nothing_left();
    let trials = report["trials"].as_array().unwrap();
    for trial in trials.iter().filter(|trial| trial["arm"] != "noop") {
        assert!(trial["slices"]["number"].as_u64().unwrap() >= 6, "{trial}");
        let (server, client) = (&trial["server_cpu_us_per_op"], &trial["client_cpu_us_per_op"]);
        assert!(server.as_f64().unwrap() > 1.0 && client.as_f64().unwrap() > 1.0, "{trial}");
    }
    let found = report["comparisons"].as_array().unwrap();
    let found = found.iter().find(|found| found["metric"] == "total_cpu_per_op").unwrap();
    // Which transport wins, and how soon it is known, is the machine's affair.
    assert!(found["blocks"].as_u64().unwrap() >= 5 && found["method"] == "sequential-t", "{found}");
    assert_eq!(found["server_starts"], found["blocks"], "{found}");
}

#[test]
fn a_pipeline_counts_every_command() {
    for command in ["get", "set", "incr"] {
        let report =
            Here::new().report(&["redis", "--command", command, "--pipeline", "8", "--connections", "2"]);
        assert_sound(&report);
        for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
            assert_eq!(trial["operations"].as_u64().unwrap() % 8, 0, "{command}: {trial}");
        }
    }
}

#[test]
fn several_pipelines_are_points_of_their_own() {
    let report = Here::new().report(&["redis", "--pipeline", "1,8..16", "--connections", "2"]);
    assert_sound(&report);
    for (arm, pipeline) in [("tcp/pipeline=1", 1), ("unix/pipeline=8", 8), ("unix/pipeline=16", 16)] {
        let made: Vec<_> = report["trials"].as_array().unwrap().iter().filter(|t| t["arm"] == arm).collect();
        assert!(!made.is_empty(), "{arm}: {}", report["arms"]);
        assert!(made.iter().all(|trial| trial["operations"].as_u64().unwrap() % pipeline == 0), "{arm}");
    }
    assert_eq!(report["workload"]["title"], "GET in pipelines");
    assert!(report["workload"]["parameters"].get("pipeline").is_none(), "it is not the same at every point");
    let latency = report["comparisons"].as_array().unwrap().iter().filter(|c| c["metric"] == "latency_mean");
    let mut points: Vec<&str> =
        latency.map(|c| c["point"]["parameters"]["pipeline"].as_str().unwrap()).collect();
    points.sort_unstable();
    assert_eq!(points, ["1", "16", "8"]);
    let output = Here::new().bench(&[&["redis", "--pipeline", "8,65"], TINY].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("from 1 to 64"), "{}", said(&output));
}

#[test]
fn large_values_and_a_rate_in_operations() {
    assert_sound(&Here::new().report(&["redis", "--size", "1m", "--connections", "2"]));
    let report = Here::new().report(&["redis", "--rate", "2000", "--pipeline", "4", "--connections", "4"]);
    for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
        let rate = trial["throughput_per_s"].as_f64().unwrap();
        assert!(rate < 4000.0, "2,000 operations a second are due, not 2,000 pipelines: {rate}");
    }
}

fn with_password() -> (Server, u16, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("r.sock");
    let (server, port) = Server::on_port(|port| {
        let mut command = samehost_testing::redis_server(port, directory.path());
        command.args(["--requirepass", SECRET]);
        // A user who may touch our own keys and nothing else, and not look at the server's settings.
        command.args(["--user", "bob", "on", &format!(">{SECRET}"), "~samehost:*"]);
        command.args(["+get", "+set", "+del", "+select"]);
        command.arg("--unixsocket").arg(&socket);
        command
    });
    (server, port, directory)
}

/// Keys in a database of a server with our password.
fn keys(port: u16, database: u32) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "AUTH {SECRET}\r\nSELECT {database}\r\nDBSIZE\r\n").unwrap();
    BufReader::new(stream).lines().nth(2).unwrap().unwrap()
}

#[test]
fn a_server_that_runs_gets_our_keys_and_loses_them_again_and_its_password_shows_nowhere() {
    let (_server, port, directory) = with_password();
    for command in ["get", "incr"] {
        let here = Here::new();
        // The other half, the Unix socket, is the server's to tell.
        let url = format!("redis://:{SECRET}@127.0.0.1:{port}/2");
        let output = here
            .bench(&[&["redis", "--tcp", &url, "--command", command, "--yes"], TINY].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(
            said(&output).contains(if command == "incr" {
                "sets 4 counters samehost:"
            } else {
                "sets keys samehost:"
            }),
            "it says first what it writes: {}",
            said(&output)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains(SECRET) && !said(&output).contains(SECRET));
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_sound(&report);
        assert_eq!(report["workload"]["server"]["managed"], false);
        let socket = format!("unix:{}", directory.path().join("r.sock").display());
        assert!(report["arms"].as_array().unwrap().iter().any(|arm| arm["endpoint"] == socket.as_str()));
        assert_eq!(keys(port, 2), ":0", "{command}: nothing of ours is left");
    }
}

#[test]
fn a_user_with_rights_to_our_keys_alone_is_enough() {
    let (_server, port, directory) = with_password();
    let here = Here::new();
    let tcp = format!("redis://bob:{SECRET}@127.0.0.1:{port}/1");
    let unix = format!("redis+unix://bob:{SECRET}@{}?db=1", directory.path().join("r.sock").display());
    let output =
        here.bench(&[&["redis", "--tcp", &tcp, "--unix", &unix, "--yes"], TINY].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!String::from_utf8_lossy(&output.stdout).contains(SECRET));
    assert_eq!(keys(port, 1), ":0");
    let lone = here.bench(&[&["redis", "--tcp", &tcp], TINY].concat()).output().unwrap();
    assert_eq!(lone.status.code(), Some(2), "it may not ask for the other half");
    assert!(said(&lone).contains("--transports tcp") && !said(&lone).contains(SECRET), "{}", said(&lone));
}

#[test]
fn a_password_comes_from_the_environment_and_a_wrong_one_is_said_so() {
    let (_server, port, _directory) = with_password();
    let here = Here::new();
    let url = format!("redis://127.0.0.1:{port}");
    let bench = |password: Option<&str>| {
        let arguments = ["redis", "--command", "ping", "--tcp", &url, "--transports", "tcp"];
        let mut command = here.bench(&[&arguments, TINY].concat());
        password.map(|password| command.env("REDISCLI_AUTH", password));
        command.output().unwrap()
    };
    assert_eq!(bench(Some(SECRET)).status.code(), Some(0));
    for (password, word) in [(Some("wrong-password"), "WRONGPASS"), (None, "NOAUTH")] {
        let output = bench(password);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let said = said(&output);
        assert!(
            said.contains(word) && said.contains("REDISCLI_AUTH") && !said.contains("wrong-password"),
            "{said}"
        );
    }
}
