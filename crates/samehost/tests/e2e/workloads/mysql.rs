//! The mysql workload end to end: the built binary, real servers, tiny measurements.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use rustix::process::Signal;
use samehost_testing::mariadb::{MariaDb, SECRET, SECRET_IN_URL, is_root, own_name};
use serde_json::Value;

use super::support::{
    Here, Small, TINY, UNTIMED, assert_closed_to_others, assert_views, assert_whole_operations, newest,
    parsed, path_to_newest, said,
};
use crate::support::send;

const ALL: &[&str] = &["mysql", "--transports", "tcp,unix,tcp+tls", "--rows", "1000"];

/// The server's own view of each transport.
fn assert_sound(report: &Value, transports: &[&str]) {
    assert_views(report, transports, |transport| match transport {
        "unix" | "tcp" => &["the server says", "no TLS"],
        _ => &["the server says", "TLS TLS_"],
    });
}

fn measured(here: &Here, arguments: &[&str]) -> Output {
    let mut command = here.bench(&[&["mysql", "--rows", "500"], arguments, TINY].concat());
    command.env_remove("MYSQL_PWD").env("HOME", "/nonexistent").output().unwrap()
}

#[test]
fn every_statement_and_protocol_over_every_transport_of_one_process() {
    for statement in ["point-select", "select-1", "update", "insert"] {
        for protocol in ["prepared", "text"] {
            let more = ["--statement", statement, "--protocol", protocol, "--connections", "3"];
            let report = Here::new().report(&[ALL, &more].concat());
            assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
            let server = &report["workload"]["server"];
            assert_eq!(server["managed"], true);
            assert!(server["version"].as_str().unwrap().contains("MariaDB"), "{server}");
            assert_eq!(server["pids"].as_array().unwrap().len(), 1, "one server for all");
        }
    }
}

#[test]
fn a_dump_is_a_whole_operation_of_as_many_rows() {
    let report = assert_whole_operations(&[ALL, &["--statement", "dump"], UNTIMED].concat());
    assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
}

#[test]
fn a_connection_for_each_query() {
    let report = Here::new().report(&[ALL, &["--connect", "per-query", "--connections", "2"]].concat());
    assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
}

#[test]
fn every_way_of_proving_who_one_is() {
    let server = MariaDb::start(&[]);
    let with = |user: &str| format!("{user}:{SECRET_IN_URL}");
    for user in ["by_native", "by_ed25519"] {
        let (tcp, unix) = (server.tcp(&with(user)), server.unix(&with(user)));
        let arguments = ["--tcp", &tcp, "--unix", &unix, "--transports", "tcp,unix,tcp+tls", "--yes"];
        let output = measured(&Here::new(), &arguments);
        let report = parsed(&output);
        assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
        let evidence = report["evidence"].to_string();
        for account in ["127.0.0.1", "localhost"] {
            assert!(evidence.contains(&format!("account {user}@{account}")), "{evidence}");
        }
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(!stdout.contains(SECRET_IN_URL) && !stdout.contains("hunter2"));
    }
    // The kernel tells the server who we are.
    let own = own_name();
    let socket = measured(&Here::new(), &["--unix", &server.unix(&own), "--transports", "unix", "--yes"]);
    assert!(parsed(&socket)["evidence"].to_string().contains(&format!("account {own}@localhost")));
    let wrong = measured(&Here::new(), &["--tcp", &server.tcp("by_native:wrong-one"), "--transports", "tcp"]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = said(&wrong);
    assert!(said.contains("1045") && said.contains("MYSQL_PWD") && !said.contains("wrong-one"), "{said}");
    assert_eq!(server.left(), "0");
}

#[test]
fn a_server_that_runs_gets_our_database_and_loses_it_again() {
    let server = MariaDb::start(&[]);
    let url = server.tcp(&format!("by_native:{SECRET_IN_URL}"));
    let here = Here::new();
    // The other half is the server's to tell, either way round.
    let output = measured(&here, &["--tcp", &url, "--statement", "insert", "--yes"]);
    let report = parsed(&output);
    assert_sound(&report, &["tcp", "unix"]);
    assert!(said(&output).contains("makes a database samehost_… of its own"), "{}", said(&output));
    assert_eq!(report["workload"]["server"]["managed"], false);
    assert!(!report["workload"]["server"]["pids"].as_array().unwrap().is_empty());
    assert_eq!(server.left(), "0");
    let from_unix =
        measured(&here, &["--unix", &server.unix(&format!("by_native:{SECRET_IN_URL}")), "--yes"]);
    assert_sound(&parsed(&from_unix), &["tcp", "unix"]);
    // In the URL's database, tables of our own name.
    let shop = format!("{url}/shop");
    let update = ["--statement", "update", "--transports", "tcp,tcp+tls", "--yes"];
    let output = measured(&here, &[&["--tcp", &shop], &update[..]].concat());
    assert_sound(&parsed(&output), &["tcp", "tcp+tls"]);
    assert!(said(&output).contains("makes tables samehost_… in the database shop"), "{}", said(&output));
    assert_eq!((server.left().as_str(), server.sql("SHOW TABLES FROM shop").as_str()), ("0", "orders"));
    // Ended in the middle by Ctrl-C, it still cleans up.
    let mut child =
        here.bench(&["mysql", "--tcp", &url, "--trial-time", "2s", "--quiet", "--yes"]).spawn().unwrap();
    while server.left() == "0" {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it made any");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    send(child.id(), Signal::INT);
    child.wait_with_output().unwrap();
    assert_eq!(server.left(), "0");
}

#[test]
fn of_a_server_that_runs_the_threads_of_our_connections_are_metered() {
    let server = MariaDb::start(&[]);
    let url = server.tcp(&format!("by_native:{SECRET_IN_URL}"));
    let metered = |more: &[&str]| -> Vec<u64> {
        let report = parsed(&measured(&Here::new(), &[&["--tcp", &url, "--yes"], more].concat()));
        let trials = report["trials"].as_array().unwrap().iter();
        let sliced = trials.filter(|trial| !trial["slices"].is_null());
        sliced.map(|trial| trial["server_threads"].as_u64().unwrap_or(0)).collect()
    };
    for connections in ["1", "4"] {
        let threads = metered(&["--connections", connections]);
        // Beside other programs a round may not tell whose they are, and has the whole process: then none, and never some.
        let of_ours: Vec<u64> = threads.iter().copied().filter(|number| *number > 0).collect();
        assert!(!of_ours.is_empty(), "{threads:?}");
        assert!(of_ours.iter().all(|number| number.to_string() == connections), "{threads:?}");
    }
    // A pool's threads serve whoever asks: there the process counts.
    let pool = MariaDb::start(&["--thread-handling=pool-of-threads", "--thread-pool-size=1"]);
    let url = pool.tcp(&format!("by_native:{SECRET_IN_URL}"));
    let report = parsed(&measured(&Here::new(), &["--tcp", &url, "--yes", "--connections", "1"]));
    assert!(report["workload"]["server"]["kind"].as_str().unwrap().contains("pool-of-threads"));
    let trials = report["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| trial["server_threads"].is_null()), "{trials:?}");
    assert!(trials.iter().any(|trial| trial["server_cpu_us_per_op"].as_f64().is_some_and(|cpu| cpu > 0.0)));
}

#[test]
fn where_nothing_may_be_written_nothing_is() {
    let server = MariaDb::start(&[]);
    let writes =
        || server.sql("SHOW GLOBAL STATUS LIKE 'Handler_write'; SHOW GLOBAL STATUS LIKE 'Com_create_table'");
    let url = format!("{}/shop", server.tcp("by_nothing"));
    for more in [
        &["--protocol", "prepared"][..],
        &["--protocol", "text"],
        &["--connect", "per-query"],
        &["--statement", "select-1"],
    ] {
        let output = measured(&Here::new(), &[&["--tcp", &url, "--read-only", "yes"], more].concat());
        assert_sound(&parsed(&output), &["tcp", "unix"]);
        assert!(!said(&output).contains("makes"), "{}", said(&output));
    }
    let here = Here::new();
    let dump = ["mysql", "--tcp", &url, "--read-only", "yes", "--statement", "dump"];
    let report = parsed(&here.bench(&[&dump[..], UNTIMED].concat()).output().unwrap());
    assert_eq!(report["trials"][0]["operations"], 501);
    assert!(writes().contains("Com_create_table"));
    assert!(server.sql("SHOW GLOBAL STATUS LIKE 'Com_create_table'").ends_with('1'), "the test's own alone");
}

#[test]
fn passwords_come_from_the_environment_and_the_option_file() {
    let server = MariaDb::start(&[]);
    let url = server.tcp("by_native");
    let home = tempfile::tempdir().unwrap();
    let bench = |password: Option<&str>| {
        let arguments = ["mysql", "--statement", "select-1", "--tcp", &url, "--transports", "tcp"];
        let here = Here::new();
        let mut command = here.bench(&[&arguments, TINY].concat());
        command.env_remove("MYSQL_PWD").env("HOME", home.path());
        if let Some(password) = password {
            command.env("MYSQL_PWD", password);
        }
        command.output().unwrap()
    };
    assert_sound(&parsed(&bench(Some(SECRET))), &["tcp"]);
    let file = home.path().join(".my.cnf");
    fs::write(&file, format!("[client]\npassword=\"{SECRET}\"\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_sound(&parsed(&bench(None)), &["tcp"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let open = bench(None);
    assert_eq!(open.status.code(), Some(2));
    assert!(said(&open).contains("chmod 600") && !said(&open).contains(SECRET), "{}", said(&open));
}

/// More connections than a server in use should have to bear.
const OVER: &[&str] = &["--yes=over-limits"];

#[test]
fn what_stands_in_the_way_is_named() {
    let server = MariaDb::start(&["--max-connections=12"]);
    let only_tls = server.tcp(&format!("by_tls:{SECRET_IN_URL}"));
    let plain = measured(&Here::new(), &["--tcp", &only_tls, "--transports", "tcp"]);
    assert_eq!(plain.status.code(), Some(2), "{}", said(&plain));
    assert!(said(&plain).contains("--transports tcp+tls"), "{}", said(&plain));
    let over_tls = measured(&Here::new(), &["--tcp", &only_tls, "--transports", "tcp+tls", "--yes"]);
    assert_sound(&parsed(&over_tls), &["tcp+tls"]);
    let url = server.tcp(&format!("by_native:{SECRET_IN_URL}"));
    let many = measured(
        &Here::new(),
        &[&["--tcp", &url, "--transports", "tcp", "--connections", "20"], OVER].concat(),
    );
    assert_eq!(many.status.code(), Some(2));
    assert!(said(&many).contains("1040") && said(&many).contains("max_connections"), "{}", said(&many));
    let per_query = ["--tcp", &url, "--transports", "tcp", "--connections", "20", "--connect", "per-query"];
    let counted = measured(&Here::new(), &[&per_query[..], OVER].concat());
    assert!(parsed(&counted)["trials"].to_string().contains("too many connections (1040)"));
    assert_eq!(server.left(), "0");
    server.sql("SET GLOBAL require_secure_transport=ON");
    let secure = measured(&Here::new(), &["--tcp", &url, "--transports", "tcp"]);
    assert!(said(&secure).contains("--transports tcp+tls"), "{}", said(&secure));
    fs::set_permissions(server.socket(), fs::Permissions::from_mode(0o600)).unwrap();
    assert_closed_to_others("mysql", &format!("unix:{}", server.socket()));
}

#[test]
fn a_full_disk_is_said_so_and_nothing_is_left() {
    if !is_root() {
        return;
    }
    // No room for a data directory, and room for it but not for its table.
    // MariaDB words it by where it noticed: "The table is full", "Can't change size of file".
    for (size, rows, words) in
        [("40m", "1000", &["no room for a database"][..]), ("200m", "3m", &["full", "change size of file"])]
    {
        let small = Small::mount(size);
        let here = Here::new();
        let arguments = ["mysql", "--rows", rows, "--transports", "unix"];
        let output = here.bench(&[&arguments, TINY].concat()).env("TMPDIR", small.path()).output().unwrap();
        assert!([Some(2), Some(3)].contains(&output.status.code()), "{}", said(&output));
        assert!(words.iter().any(|words| said(&output).contains(words)), "{}", said(&output));
        assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0, "something is left");
    }
}

/// The real MySQL.
const MYSQLD: &str = "usr/sbin/mysqld";

#[test]
fn a_private_mysql_answers_every_statement_over_every_transport() {
    let path = path_to_newest(MYSQLD);
    for more in [
        &["--statement", "point-select", "--connections", "3"][..],
        &["--statement", "update", "--protocol", "text"],
        &["--statement", "insert", "--connect", "per-query"],
        &["--statement", "dump"],
    ] {
        let here = Here::new();
        let arguments = [ALL, &["--server", "mysql", "--trial-time", "50ms"], more, UNTIMED].concat();
        let arguments: Vec<&str> = if more.contains(&"dump") {
            [ALL, &["--server", "mysql"], more, UNTIMED].concat()
        } else {
            arguments
        };
        let report = parsed(&here.bench(&arguments).env("PATH", &path).output().unwrap());
        here.assert_nothing_left();
        assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
        let server = &report["workload"]["server"];
        assert_eq!((&server["kind"], &server["managed"]), (&"mysql".into(), &true.into()), "{server}");
        assert!(!server["version"].as_str().unwrap().contains("MariaDB"), "{server}");
    }
}

#[test]
fn a_mysql_that_runs_takes_its_own_way_of_proving_a_password() {
    let server = MariaDb::start_mysql(&newest(MYSQLD));
    let with = |user: &str| format!("{user}:{SECRET_IN_URL}");
    // The server knows nobody yet: over TCP without TLS the password goes encrypted with its key.
    let (tcp, unix) = (server.tcp(&with("by_sha2")), server.unix(&with("by_sha2")));
    let arguments = ["--tcp", &tcp, "--unix", &unix, "--transports", "tcp,unix,tcp+tls", "--yes"];
    let report = parsed(&measured(&Here::new(), &arguments));
    assert_sound(&report, &["tcp", "unix", "tcp+tls"]);
    let evidence = report["evidence"].to_string();
    for account in ["by_sha2@127.0.0.1", "by_sha2@localhost"] {
        assert!(evidence.contains(&format!("account {account}")), "{evidence}");
    }
    // The other half is the server's to tell.
    let output = measured(&Here::new(), &["--unix", &unix, "--statement", "update", "--yes"]);
    assert_sound(&parsed(&output), &["tcp", "unix"]);
    let read_only = format!("{}/shop", server.tcp("by_nothing"));
    let output = measured(&Here::new(), &["--tcp", &read_only, "--read-only", "yes"]);
    assert_sound(&parsed(&output), &["tcp", "unix"]);
    let over_tls = server.tcp(&with("by_tls"));
    let plain = measured(&Here::new(), &["--tcp", &over_tls, "--transports", "tcp"]);
    assert!(said(&plain).contains("--transports tcp+tls"), "{}", said(&plain));
    let wrong = measured(&Here::new(), &["--tcp", &server.tcp("by_sha2:wrong-one"), "--transports", "tcp"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said(&wrong).contains("1045") && !said(&wrong).contains("wrong-one"), "{}", said(&wrong));
    assert_eq!(server.left(), "0");
}

#[test]
fn a_mysql_is_found_and_verified_as_one() {
    let server = MariaDb::start_mysql(&newest(MYSQLD));
    let here = Here::new();
    for (url, expected) in [
        (server.tcp(&format!("by_sha2:{SECRET_IN_URL}")), "tcp"),
        (server.unix(&format!("by_sha2:{SECRET_IN_URL}")), "unix"),
    ] {
        let output = here.samehost(&["verify", &url, "--expect", expected]).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(0), "{shown}{}", said(&output));
        assert!(shown.contains("account by_sha2@") && shown.contains("mysqld"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let found: Value =
        serde_json::from_slice(&here.samehost(&["scan", "--json"]).output().unwrap().stdout).unwrap();
    let services = found["services"].as_array().unwrap();
    let service = services.iter().find(|service| service["pid"] == server.pid()).unwrap();
    assert_eq!(service["kind"], "mysql", "{service}");
}
