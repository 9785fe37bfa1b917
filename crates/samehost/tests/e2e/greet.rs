//! `samehost scan --greet`: real servers under names that say nothing are known by what they say, and only then.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::scan::{Held, is_root};
use crate::support::{Home, not_tested, wait_for};
use samehost_testing::{copy_program, free_port};

/// A copy of a program under a name that nobody knows.
fn disguised(home: &Home, program: &str) -> PathBuf {
    let found =
        Command::new("sh").args(["-c", &format!("readlink -f $(command -v {program})")]).output().unwrap();
    let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    assert!(!path.is_empty(), "install {program}");
    let copy = home.path("run").join(format!("x-{program}"));
    copy_program(path, &copy);
    copy
}

/// The service of a process.
fn service(found: &Value, pid: u32) -> Option<Value> {
    let services = found["services"].as_array().unwrap();
    services.iter().find(|one| one["pid"].as_u64() == Some(pid.into())).cloned()
}

fn scan(home: &Home, options: &[&str]) -> Value {
    let ended = home.run(&[&["scan", "--json"], options].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn servers_under_other_names_are_known_by_what_they_say() {
    let home = Home::new();
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let folder = home.path("data");
    fs::create_dir(&folder).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let port = || free_port().to_string();
    let (redis_port, locked_port, memcached_port, mysql_port) = (port(), port(), port(), port());
    let redis = disguised(&home, "redis-server");
    let common = ["--save", "", "--bind", "127.0.0.1", "--dir", &text(&folder)];
    let start_redis =
        |port: &str, more: &[&str]| Held::start(&redis, &[&["--port", port], &common[..], more].concat());
    // Redis writes its program's own name over its title; the name of the process stays that of the file.
    let title = ["--set-proc-title", "no"];
    let mut servers = vec![
        ("redis", start_redis(&redis_port, &title), redis_port),
        (
            "redis",
            start_redis(&locked_port, &[&title[..], &["--requirepass", "secret"]].concat()),
            locked_port,
        ),
        (
            "memcached",
            Held::start(
                disguised(&home, "memcached"),
                &["-u", "root", "-l", "127.0.0.1", "-p", &memcached_port],
            ),
            memcached_port,
        ),
    ];
    if is_root() {
        let data = text(&folder.join("mysql"));
        let install = format!(
            "mariadb-install-db --no-defaults --user=root --auth-root-authentication-method=normal --skip-test-db --datadir={data}"
        );
        assert!(
            Command::new("sh").args(["-c", &format!("{install} >/dev/null")]).status().unwrap().success()
        );
        let socket = folder.join("x.sock");
        let options = [
            "--no-defaults".to_owned(),
            "--user=root".to_owned(),
            format!("--datadir={data}"),
            format!("--socket={}", text(&socket)),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--port={mysql_port}"),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        servers.push(("mariadb", Held::start(disguised(&home, "mariadbd"), &options), mysql_port));
    } else {
        not_tested("without root: MariaDB's greeting");
    }
    for (kind, _, port) in &servers {
        wait_for(kind, || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).ok());
    }
    // A server that is none of those that are known: it gets the question back, and stays unknown.
    let echo_port = port();
    let listen = format!("tcp:127.0.0.1:{echo_port}");
    let echo = home.path("run").join("x-echo");
    copy_program(crate::support::SAMEHOST, &echo);
    let stranger = Held::start(&echo, &["serve", "echo", "--listen", &listen]);
    wait_for("the echo server", || std::net::TcpStream::connect(format!("127.0.0.1:{echo_port}")).ok());

    let plain = scan(&home, &[]);
    for (kind, server, _) in &servers {
        let found = service(&plain, server.pid()).unwrap();
        assert!(found["kind"].is_null(), "{kind} is known without a greeting: {found}");
    }
    let greeted = scan(&home, &["--greet"]);
    crate::schemas::assert_valid(&greeted);
    for (kind, server, _) in &servers {
        let found = service(&greeted, server.pid()).unwrap();
        assert_eq!(
            (found["kind"].as_str(), found["recognised_by"].as_str()),
            (Some(*kind), Some("greeting")),
            "{found}"
        );
    }
    assert!(service(&greeted, stranger.pid()).unwrap()["kind"].is_null());
}
