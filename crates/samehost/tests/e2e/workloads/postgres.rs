//! The postgres workload end to end: the built binary, real servers, tiny measurements.

use std::fs;
use std::process::Output;

use rustix::process::Signal;
use samehost_testing::metered;
use samehost_testing::postgres::{Cluster, SECRET, is_root, own_name};
use serde_json::Value;

use super::support::{
    Here, Small, TINY, UNTIMED, assert_closed_to_others, assert_views, assert_whole_operations, parsed,
    path_to_newest, said,
};
use crate::support::send;

const ALL: &[&str] = &["postgres", "--transports", "tcp,unix,tcp+tls", "--rows", "1000"];

/// The server's own view of each transport.
fn assert_sound(report: &Value, transports: &[&str]) {
    assert_views(report, transports, |transport| match transport {
        "unix" => &["the server says user", "Unix socket, no TLS"],
        "tcp" => &["the server says user", "no TLS"],
        _ => &["the server says user", "TLSv1.3"],
    });
}

/// A tiny measurement against servers that run.
fn measured(here: &Here, arguments: &[&str]) -> Output {
    here.bench(&[&["postgres", "--rows", "500"], arguments, TINY].concat())
        .env_remove("PGPASSWORD")
        .env_remove("PGPASSFILE")
        .output()
        .unwrap()
}

#[test]
fn every_statement_and_protocol_over_every_transport_of_one_process() {
    for statement in ["point-select", "select-1", "update"] {
        for protocol in ["extended", "simple"] {
            let more = ["--statement", statement, "--protocol", protocol, "--connections", "3"];
            let report = Here::new().report(&[ALL, &more].concat());
            assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
            let server = &report["workload"]["server"];
            assert_eq!((&server["kind"], &server["managed"]), (&"postgresql".into(), &true.into()));
            assert_eq!(server["pids"].as_array().unwrap().len(), 1, "one server for all");
            assert!(!server["version"].as_str().unwrap().is_empty());
        }
    }
}

#[test]
fn a_current_postgres_is_measured_and_proves_its_logins() {
    let path = path_to_newest("usr/lib/postgresql/18/bin/initdb");
    let here = Here::new();
    let arguments = [ALL, &["--connections", "1,3"], TINY].concat();
    let report = parsed(&here.bench(&arguments).env("PATH", path).output().unwrap());
    here.assert_nothing_left();
    assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
    let version = report["workload"]["server"]["version"].as_str().unwrap();
    assert!(version.starts_with("18"), "{version}");
}

#[test]
fn a_copy_is_a_whole_operation_of_as_many_rows() {
    let report = assert_whole_operations(&[ALL, &["--statement", "copy"], UNTIMED].concat());
    assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
}

#[test]
fn a_connection_for_each_query_costs_the_server_what_its_children_used() {
    for protocol in ["extended", "simple"] {
        let more = ["--connect", "per-query", "--protocol", protocol, "--trial-time", "300ms"];
        let tiny = UNTIMED;
        let here = Here::new();
        let report = parsed(&here.bench(&[ALL, &more, tiny].concat()).output().unwrap());
        assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
        for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
            let cost = metered(trial, "server_cpu_us_per_op");
            assert!(
                cost.is_none_or(|cost| cost > 200.0),
                "a process for each connection is dear: {cost:?} µs"
            );
        }
    }
}

#[test]
fn every_way_of_proving_who_one_is() {
    let cluster = Cluster::start(40);
    let with = |user: &str| format!("{user}:{SECRET}");
    for role in ["by_scram", "by_md5", "by_password"] {
        let (tcp, unix) = (cluster.tcp(&with(role)), cluster.unix(&with(role)));
        let here = Here::new();
        let transports = ["--transports", "tcp,unix,tcp+tls", "--yes"];
        let output = measured(&here, &[&["--tcp", &tcp, "--unix", &unix], &transports[..]].concat());
        assert_sound(&parsed(&output), &["tcp", "unix", "tcp+tls"]);
        assert!(!String::from_utf8_lossy(&output.stdout).contains(SECRET) && !said(&output).contains(SECRET));
        let announced = said(&output).contains("clear text");
        assert_eq!(announced, role == "by_password", "{}", said(&output));
    }
    let (tcp, unix) = (cluster.tcp("by_trust"), cluster.unix("by_trust"));
    let trusted = measured(&Here::new(), &["--tcp", &tcp, "--unix", &unix, "--yes"]);
    assert_sound(&parsed(&trusted), &["tcp", "unix"]);
    let own = own_name();
    let peer = measured(&Here::new(), &["--unix", &cluster.unix(&own), "--transports", "unix", "--yes"]);
    let report = parsed(&peer);
    assert_sound(&report, &["unix"]);
    assert!(report["evidence"].to_string().contains(&format!("user {own}")), "{}", report["evidence"]);
    let stranger = measured(&Here::new(), &["--unix", &cluster.unix("by_tls"), "--transports", "unix"]);
    assert_eq!(stranger.status.code(), Some(2));
    assert!(said(&stranger).contains("peer compares the role"), "{}", said(&stranger));
    assert_eq!(cluster.tables_left(), "0");
}

#[test]
fn a_server_that_runs_gets_our_table_and_loses_it_again() {
    let cluster = Cluster::start(40);
    let url = cluster.tcp(&format!("by_scram:{SECRET}"));
    // The other half, the Unix socket, is the server's to tell; and the other way round.
    let here = Here::new();
    let output = measured(&here, &["--tcp", &url, "--statement", "update", "--yes"]);
    let report = parsed(&output);
    assert_sound(&report, &["tcp", "unix"]);
    assert!(said(&output).contains("makes a table samehost_"), "it says so first: {}", said(&output));
    assert_eq!(report["workload"]["server"]["managed"], false);
    assert!(!report["workload"]["server"]["pids"].as_array().unwrap().is_empty());
    assert!(!report["command"].to_string().contains(SECRET));
    assert_eq!(cluster.tables_left(), "0");
    let from_unix = measured(&here, &["--unix", &cluster.unix(&format!("by_scram:{SECRET}")), "--yes"]);
    assert_sound(&parsed(&from_unix), &["tcp", "unix"]);
    // Ended in the middle by Ctrl-C, it still cleans up.
    let mut child = here
        .bench(&["postgres", "--tcp", &url, "--trial-time", "2s", "--quiet", "--connections", "2", "--yes"])
        .spawn()
        .unwrap();
    while cluster.tables_left() == "0" {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it made any");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    send(child.id(), Signal::INT);
    child.wait_with_output().unwrap();
    assert_eq!(cluster.tables_left(), "0");
    // And where nothing may be written, nothing is.
    let read_only = ["--tcp", &url, "--read-only", "yes", "--statement", "select-1"];
    let before = cluster.sql("shop", "SELECT pg_current_xact_id()");
    let output = measured(&here, &read_only);
    assert_sound(&parsed(&output), &["tcp", "unix"]);
    let after = cluster.sql("shop", "SELECT pg_current_xact_id()");
    let number = |text: &str| text.parse::<u64>().unwrap();
    assert_eq!(number(&after), number(&before) + 1, "no transaction but this test's own wrote");
    assert!(!said(&output).contains("makes a table"));
}

#[test]
fn passwords_come_from_the_environment_and_the_password_file() {
    let cluster = Cluster::start(40);
    let url = cluster.tcp("by_scram");
    let here = Here::new();
    let bench = |name: &str, value: &str| {
        let arguments = ["postgres", "--statement", "select-1", "--tcp", &url, "--transports", "tcp"];
        here.bench(&[&arguments, TINY].concat()).env_remove("PGPASSWORD").env(name, value).output().unwrap()
    };
    assert_sound(&parsed(&bench("PGPASSWORD", SECRET)), &["tcp"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pgpass");
    fs::write(&file, format!("127.0.0.1:{}:shop:by_scram:{SECRET}\n", cluster.port)).unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(&file, mode(0o600)).unwrap();
    assert_sound(&parsed(&bench("PGPASSFILE", file.to_str().unwrap())), &["tcp"]);
    fs::set_permissions(&file, mode(0o644)).unwrap();
    let open = bench("PGPASSFILE", file.to_str().unwrap());
    assert_eq!(open.status.code(), Some(2));
    assert!(said(&open).contains("chmod 600"), "{}", said(&open));
    let wrong = bench("PGPASSWORD", "wrong-password");
    assert_eq!(wrong.status.code(), Some(2));
    let said = said(&wrong);
    assert!(
        said.contains("28P01") && said.contains("PGPASSWORD") && !said.contains("wrong-password"),
        "{said}"
    );
}

/// More connections than a server in use should have to bear.
const OVER: &[&str] = &["--yes=over-limits"];

#[test]
fn what_stands_in_the_way_is_named() {
    let cluster = Cluster::start(10);
    // TLS required.
    let only_tls = cluster.tcp(&format!("by_tls:{SECRET}"));
    let plain = measured(&Here::new(), &["--tcp", &only_tls, "--transports", "tcp"]);
    assert_eq!(plain.status.code(), Some(2));
    assert!(said(&plain).contains("--transports tcp+tls"), "{}", said(&plain));
    let over_tls = measured(&Here::new(), &["--tcp", &only_tls, "--transports", "tcp+tls", "--yes"]);
    assert_sound(&parsed(&over_tls), &["tcp+tls"]);
    let required = format!("{only_tls}?sslmode=require");
    let required = measured(&Here::new(), &["--tcp", &required, "--transports", "tcp", "--yes"]);
    assert!(parsed(&required)["evidence"].to_string().contains("TLSv1.3"));
    // More connections than there may be.
    let url = cluster.tcp(&format!("by_scram:{SECRET}"));
    let many = measured(
        &Here::new(),
        &[&["--tcp", &url, "--transports", "tcp", "--connections", "20"], OVER].concat(),
    );
    assert_eq!(many.status.code(), Some(2));
    assert!(said(&many).contains("max_connections"), "{}", said(&many));
    // A connection for each query that may not be had is counted, and bars the verdict.
    let per_query = ["--connections", "20", "--connect", "per-query", "--trial-time", "1s"];
    let once = ["--min-blocks", "1", "--max-blocks", "1", "--quiet", "--json", "-"];
    let tcp = ["postgres", "--tcp", &url, "--transports", "tcp"];
    let counted = Here::new().bench(&[&tcp[..], &per_query, &once, OVER].concat()).output().unwrap();
    assert!(parsed(&counted)["trials"].to_string().contains("53300 too many connections"));
    assert_eq!(cluster.tables_left(), "0");
    // A socket that one may not open.
    cluster.lock_socket();
    assert_closed_to_others("postgres", &cluster.socket());
}

/// Segments of System V shared memory that a process made.
#[test]
fn a_full_disk_is_said_so_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    // No room for a cluster, and room for a cluster but not for its table.
    for (size, rows, status, words) in
        [("20m", "1000", 3, "no room for a database"), ("110m", "1000000", 2, "53100")]
    {
        let small = Small::mount(size);
        let here = Here::new();
        let arguments = ["postgres", "--rows", rows, "--transports", "unix"];
        let output = here.bench(&[&arguments, TINY].concat()).env("TMPDIR", small.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        assert!(said(&output).contains(words) && said(&output).contains("TMPDIR"), "{}", said(&output));
        assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0, "something is left");
    }
}
