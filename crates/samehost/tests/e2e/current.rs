//! Versions that are newer than the distribution's, from the cache of `cargo xtask servers`: found by `scan`, and proved by
//! `verify` and by the server's own words.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use samehost_testing::postgres::{Cluster, SECRET, own_name};
use samehost_testing::{free_port, redis_server};
use serde_json::Value;

use crate::scan::{Held, is_root, scan};
use crate::support::{Home, assert_verified, not_tested, wait_for};
use crate::workloads::support::newest;

/// What `verify` says of a URL, which must be reached over this transport.
fn verified(home: &Home, url: &str, transport: &str) -> Value {
    let ended = home.run(&["verify", url, "--expect", transport, "--json"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert!(!ended.both().contains(SECRET), "{}", ended.both());
    serde_json::from_str(&ended.stdout).unwrap()
}

/// The proof of this kind.
fn says<'a>(found: &'a Value, by: &str) -> &'a str {
    let proofs = found["proofs"].as_array().unwrap();
    let proof = proofs.iter().find(|proof| proof["by"] == by).unwrap_or_else(|| panic!("{found:#}"));
    proof["says"].as_str().unwrap()
}

/// The kind that a scan gives a process that listens.
fn kind(home: &Home, pid: u32) -> Value {
    let found = scan(home);
    let services = found["services"].as_array().unwrap();
    let service = services.iter().find(|service| service["pid"] == pid);
    service.unwrap_or_else(|| panic!("{services:#?}"))["kind"].clone()
}

#[test]
fn redis_8_and_valkey_9_are_found_and_say_what_they_see() {
    for (program, name, version) in
        [("redis-server", "redis", "redis 8."), ("valkey-server", "valkey", "redis 9.")]
    {
        let home = Home::new();
        let (port, socket) = (free_port(), home.path("cache.sock"));
        let mut command = Command::new(newest(&format!("usr/bin/{program}")));
        command.args(redis_server(port, &home.path("run")).get_args()).arg("--unixsocket").arg(&socket);
        let server = Held::run(command);
        wait_for(program, || std::os::unix::net::UnixStream::connect(&socket).ok());
        assert_eq!(kind(&home, server.pid()), name);
        for (url, transport) in [
            (format!("redis+unix://{}", socket.display()), "unix"),
            (format!("redis://127.0.0.1:{port}"), "tcp"),
        ] {
            assert_verified(&url, transport, program);
            let found = verified(&home, &url, transport);
            let server = says(&found, "server");
            assert!(server.contains(version) && server.contains("addr="), "{server}");
        }
    }
}

#[test]
fn a_postgres_18_is_found_and_says_what_it_sees() {
    let home = Home::new();
    let bin = newest("usr/lib/postgresql/18/bin/postgres");
    let server = Cluster::start_with(bin.parent().unwrap(), &std::env::temp_dir(), 20);
    assert_eq!(kind(&home, server.pid()), "postgres");
    let login = format!("by_scram:{SECRET}");
    for (url, transport, words) in [
        (server.unix(&login), "unix", "user by_scram, Unix socket, no TLS"),
        (server.tcp(&login), "tcp", "from 127.0.0.1:"),
    ] {
        let found = verified(&home, &url, transport);
        let server = says(&found, "server");
        assert!(server.starts_with("postgres 18") && server.contains(words), "{server}");
        assert!(says(&found, "peer").contains("postgres"), "{found:#}");
    }
    let own = verified(&home, &server.unix(&own_name()), "unix");
    assert!(says(&own, "server").contains("Unix socket"), "the kernel tells it who we are: {own:#}");
}

/// Odyssey in front of a cluster, with a database for each transport behind it.
fn odyssey(home: &Home, cluster: &Cluster) -> (Held, u16) {
    let port = free_port();
    let folder = home.path("pool");
    std::fs::create_dir(&folder).unwrap();
    let route = |name: &str, place: &str| {
        format!(
            "storage \"{name}\" {{\n  type \"remote\"\n  host \"{place}\"\n  port {}\n}}\ndatabase \"{name}\" {{\n  user \"by_scram\" {{\n    \
             authentication \"scram-sha-256\"\n    password \"{SECRET}\"\n    storage \"{name}\"\n    storage_db \"shop\"\n    \
             storage_password \"{SECRET}\"\n    pool \"session\"\n    pool_size 4\n  }}\n}}\n",
            cluster.port
        )
    };
    let socket = cluster.socket();
    let behind = socket.strip_prefix("unix:").unwrap();
    let text = format!(
        "daemonize no\nunix_socket_dir \"{}\"\nunix_socket_mode \"0666\"\nlog_format \"%l %m\\n\"\nlog_to_stdout yes\nworkers 1\n\
         resolvers 1\ncoroutine_stack_size 16\nlisten {{\n  host \"127.0.0.1\"\n  port {port}\n}}\nlisten {{\n  port {port}\n}}\n{}{}",
        folder.display(),
        route("tcp", "127.0.0.1"),
        route("unix", &format!("unix://{behind}"))
    );
    let file = folder.join("odyssey.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(newest("usr/bin/odyssey"));
    command.arg(&file);
    let pooler = Held::run(command);
    wait_for("Odyssey", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    (pooler, port)
}

#[test]
fn both_hops_of_odyssey_are_seen() {
    if !is_root() {
        not_tested("without root: PostgreSQL and what it is reached by belong to two users");
        return;
    }
    let home = Home::new();
    std::fs::set_permissions(home.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Cluster::start(20);
    let (pooler, port) = odyssey(&home, &cluster);
    assert_eq!(kind(&home, pooler.pid()), "odyssey");
    let folder = home.path("pool");
    for (front, at) in
        [("tcp", format!("127.0.0.1:{port}/")), ("unix", format!("/?host={}&port={port}", folder.display()))]
    {
        for behind in ["tcp", "unix"] {
            let at = at.replacen('/', &format!("/{behind}"), 1);
            let url = format!("postgres://by_scram:{SECRET}@{at}");
            let found = verified(&home, &url, front);
            assert!(says(&found, "peer").contains("Odyssey"), "{found:#}");
            let place = match behind {
                "tcp" => format!("PostgreSQL at tcp:127.0.0.1:{}", cluster.port),
                _ => format!("PostgreSQL at {}", cluster.socket()),
            };
            let proofs = found["proofs"].as_array().unwrap();
            let is_told =
                |one: &&Value| one["by"] == "behind it" && one["says"].as_str().unwrap().contains(&place);
            assert!(proofs.iter().any(|one| is_told(&one)), "{place}: {found:#}");
            let over = if behind == "tcp" { "over TCP" } else { "over a Unix socket" };
            assert!(found["notes"].to_string().contains(over), "{found:#}");
        }
    }
    let found = scan(&home);
    let connections = found["connections"].as_array().unwrap();
    let of_pooler = |one: &&Value| one["client"]["pids"][0] == pooler.pid();
    let kinds: std::collections::BTreeSet<&str> =
        connections.iter().filter(of_pooler).filter_map(|one| one["kind"].as_str()).collect();
    assert_eq!(kinds, ["tcp", "unix_stream"].into(), "both ways behind it: {connections:#?}");
}
