//! `--auto` and `--dry-run`: what scan finds is mapped, and what the servers see differently is said.

use samehost_testing::{mariadb, postgres};

use super::Redis;
use crate::support::Home;

#[test]
fn what_scan_finds_is_mapped_and_used() {
    let redis = Redis::start();
    let port = redis.port.to_string();
    let ended = redis.home.run(&["run", "--auto", "--", "redis-cli", "-p", &port, "client", "list"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains(&redis.over_unix()), "{}", ended.stdout);
    let map = format!("127.0.0.1:{port} -> {}: 1 connection", redis.socket());
    assert!(ended.stderr.contains(&map), "{}", ended.stderr);
    // As people type it: what follows the program belongs to it.
    for words in [&["run", "--auto"][..], &["run"], &["run", "--quiet"]] {
        let words = [words, &["redis-cli", "-p", &port, "client", "list"]].concat();
        let ended = redis.home.run(&words);
        assert_eq!(ended.status, 0, "{words:?}: {}", ended.stderr);
        assert!(ended.stdout.contains(&redis.over_unix()), "{words:?}: {}", ended.stdout);
    }
    // What is given counts before what is found.
    let other = format!("{port}=/nowhere");
    let ended = redis.home.run(&["run", "--auto", "--map", &other, "--", "redis-cli", "-p", &port, "ping"]);
    assert!(ended.stderr.contains(&format!("port {port} -> /nowhere: 1 over TCP")), "{}", ended.stderr);
}

#[test]
fn a_dry_run_says_what_the_servers_see_differently() {
    let home = Home::new();
    let (database, cluster) = (mariadb::MariaDb::start(&[]), postgres::Cluster::start(20));
    let ended = home.run(&["run", "--auto", "--dry-run"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let accounts = "MariaDB: an account for 'user'@'127.0.0.1' is not the one for 'user'@'localhost'";
    let socket = database.socket();
    assert!(words.contains(accounts), "{words}");
    assert!(words.contains(&format!("127.0.0.1:{} -> {socket}", database.port)), "{words}");
    let socket = cluster.socket();
    let socket = socket.trim_start_matches("unix:");
    assert!(
        words.contains(&format!("127.0.0.1:{} -> {socket} PostgreSQL: the `local` lines", cluster.port)),
        "{words}"
    );
    assert!(words.contains("sslmode=require"), "{words}");
    assert!(ended.stdout.lines().all(|line| line.len() <= 80 || line.contains(" -> ")), "{}", ended.stdout);
}

#[test]
fn a_map_that_leads_nowhere_is_told_at_the_start_and_by_quiet_too() {
    let home = Home::new();
    let file = home.path("no-socket");
    std::fs::write(&file, "").unwrap();
    let (missing, wrong) = (home.path("missing.sock"), format!("2={}", file.display()));
    let map = format!("localhost:1={}", missing.display());
    let ended = home.run(&["run", "--quiet", "--map", &map, "--map", &wrong, "echo", "started"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "started\n"), "{}", ended.stderr);
    let told =
        format!("port 1 -> {}: there is no such socket now; the program stays with TCP", missing.display());
    assert!(
        ended.stderr.contains(&told) && ended.stderr.contains("that is not a socket"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 2, "{}", ended.stderr);
}

#[test]
fn a_dry_run_starts_nothing() {
    let home = Home::new();
    let file = home.path("run/made");
    let words = ["run", "--map", "3306=/nowhere", "--dry-run", "--", "touch", file.to_str().unwrap()];
    let ended = home.run(&words);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.starts_with("port 3306 -> /nowhere\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("which the socket"), "{}", ended.stdout);
    assert!(!file.exists());
}

/// What applies to this program is said before it starts: the rule of its server that can be read, and the TLS that it demands.
#[test]
fn a_run_says_what_the_server_will_see_differently_of_this_program() {
    let home = Home::new();
    let cluster = postgres::Cluster::start(20);
    let socket = cluster.socket();
    let socket = socket.trim_start_matches("unix:").to_owned();
    let map = format!("{}={socket}", cluster.port);
    let url = format!("{}?sslmode=require", cluster.tcp("by_trust"));
    let run = |more: &[&str], words: &[&str], mode: Option<&str>| {
        let mut command = home.command(&[&["run", "--map", &map], more, &["--"], words].concat());
        command.env_remove("DATABASE_URL").env_remove("PGSSLMODE");
        command.envs(mode.map(|mode| ("PGSSLMODE", mode)));
        samehost_testing::Ended::of(&command.output().unwrap()).stderr
    };
    let about = format!("samehost: port {} -> {socket}: PostgreSQL: ", cluster.port);
    let tls = "says sslmode=require, and there is no TLS on a socket";
    let said = run(&[], &["true"], Some("prefer"));
    if mariadb::is_root() {
        assert!(
            said.contains(&about) && said.contains("pg_hba.conf, line 6: `local all all peer`"),
            "{said}"
        );
    }
    assert!(!said.contains("TLS"), "{said}");
    assert!(run(&[], &["true"], Some("require")).contains(&format!("{about}PGSSLMODE {tls}")));
    let said = run(&[], &["true", &url], None);
    assert!(said.contains(&format!("{about}its argument 1 {tls}")) && !said.contains("by_trust"), "{said}");
    assert_eq!(run(&["--quiet"], &["true", &url], Some("require")), "");
}

/// libpq's word for a socket is its directory; a run takes PostgreSQL's file in it, or says at once which one is missing.
#[test]
fn a_directory_leads_to_postgresqls_file_in_it() {
    let home = Home::new();
    let cluster = postgres::Cluster::start(20);
    let socket = cluster.socket();
    let socket = socket.trim_start_matches("unix:").to_owned();
    let directory = socket.rsplit_once("/.s.").unwrap().0;
    let asked = "select coalesce(host(inet_client_addr()), 'Unix socket')";
    let map = format!("{}={directory}", cluster.port);
    let url = cluster.tcp("by_trust");
    let ended = home.run(&["run", "--map", &map, "--", "psql", "-XAtwc", asked, &url]);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "Unix socket"), "{}", ended.stderr);
    let other = format!("5432={directory}");
    let ended = home.run(&["run", "--map", &other, "--", "true"]);
    assert_eq!(ended.status, 2, "{}", ended.stderr);
    for needed in ["is a directory", "/.s.PGSQL.5432", &format!("there are .s.PGSQL.{}", cluster.port)] {
        assert!(ended.stderr.contains(needed), "{needed}: {}", ended.stderr);
    }
}

/// What is foretold is what happens: the program believes in TCP, and the server has no TLS on its socket.
#[test]
fn a_demand_that_a_socket_does_not_meet_is_foretold() {
    let home = Home::new();
    let cluster = postgres::Cluster::start(20);
    let socket = cluster.socket();
    let map = format!("{}={}", cluster.port, socket.trim_start_matches("unix:"));
    for (variable, value, foretold) in [
        ("PGSSLMODE", "require", Some("says sslmode=require")),
        ("PGCHANNELBINDING", "require", Some("says channel_binding=require")),
        ("PGGSSENCMODE", "require", Some("says gssencmode=require")),
        ("PGSSLMODE", "prefer", None),
    ] {
        let url = cluster.tcp("by_trust");
        let mut command = home.command(&["run", "--map", &map, "--", "psql", "-XAtwc", "select 1", &url]);
        for name in ["DATABASE_URL", "PGSSLMODE", "PGCHANNELBINDING", "PGGSSENCMODE"] {
            command.env_remove(name);
        }
        let ended = samehost_testing::Ended::of(&command.env(variable, value).output().unwrap());
        match foretold {
            Some(words) => {
                assert!(ended.stderr.contains(words), "{variable}: {}", ended.stderr);
                assert_eq!(ended.status, 2, "psql fails: {}", ended.stderr);
            }
            None => assert_eq!((ended.status, ended.stdout.trim()), (0, "1"), "{}", ended.stderr),
        }
    }
}
