//! Clients of databases, told 127.0.0.1 and a port, and proved by the server's own word.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use samehost_testing::{Ended, mariadb, must, postgres, wait_for};

use super::{PRELOAD, Redis, SECCOMP};
use crate::support::{Home, go_cache};
use crate::workloads::support::newest;

#[test]
fn redis_cli_that_knows_a_port_has_the_unix_socket() {
    let redis = Redis::start();
    let port = redis.port.to_string();
    let hosts = ["127.0.0.1", "localhost", "127.0.0.9", "::1", "::ffff:127.0.0.1"];
    for (way, host) in hosts.map(|host| (SECCOMP, host)).into_iter().chain(hosts.map(|host| (PRELOAD, host)))
    {
        let ended = redis.run_by(way, &["redis-cli", "-h", host, "-p", &port, "client", "list"]);
        assert_eq!(ended.status, 0, "{host}: {}", ended.stderr);
        assert!(ended.stdout.contains(&redis.over_unix()), "{host}: {}", ended.stdout);
        assert!(ended.stderr.contains("1 connection over Unix sockets"), "{host}: {}", ended.stderr);
    }
    let without = must("redis-cli", &["-p", &port, "client", "list"]);
    assert!(without.contains("addr=127.0.0.1:"), "{without}");
}

#[test]
fn mysql_and_psql_that_know_a_port_have_the_unix_socket() {
    let home = Home::new();
    let (database, cluster) = (mariadb::MariaDb::start(&[]), postgres::Cluster::start(20));
    let maps = [
        format!("{}={}", database.port, database.socket()),
        format!("{}={}", cluster.port, cluster.socket()),
    ];
    let port = database.port.to_string();
    // Root may come from anywhere; the server says from where it came.
    let sql = "SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()";
    let words =
        ["mariadb", "--no-defaults", "-uroot", "-h127.0.0.1", "-P", &port, "--protocol=tcp", "-BNe", sql];
    let url = cluster.tcp("by_trust");
    let of_psql =
        "SELECT client_addr IS NULL, client_port FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    for way in [SECCOMP, PRELOAD] {
        let options = [&["run", "--quiet", "--map", &maps[0], "--map", &maps[1]], way, &["--"]].concat();
        let ended = home.run(&[&options[..], &words[..]].concat());
        assert_eq!((ended.status, ended.stdout.trim(), &*ended.stderr), (0, "localhost", ""));
        let ended = home.run(&[&options[..], &["psql", "-XAtq", &url, "-c", of_psql]].concat());
        assert_eq!((ended.status, ended.stdout.trim()), (0, "t|-1"), "{}", ended.stderr);
        // PostgreSQL has no TLS on a socket, and the client may insist.
        let demanding = format!("{url}?sslmode=require");
        let ended = home.run(&[&options[..], &["psql", "-XAtq", &demanding, "-c", of_psql]].concat());
        assert!(ended.status != 0 && ended.stderr.contains("SSL"), "{ended:?}");
    }
    let without = must("psql", &["-XAtq", &url, "-c", of_psql]);
    assert!(without.starts_with("f|"), "{without}");
}

/// Static, with system calls of its own, threads, and epoll behind everything.
const GO: &str = r#"package main

import ("fmt"; "net"; "os"; "strings"; "sync")

func main() {
	var all sync.WaitGroup
	var unix, names sync.Map
	for i := 0; i < 50; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			c, err := net.Dial("tcp", os.Args[1])
			if err != nil { panic(err) }
			c.(*net.TCPConn).SetNoDelay(false)
			c.Write([]byte("client info\r\n"))
			bytes := make([]byte, 4096)
			n, _ := c.Read(bytes)
			if strings.Contains(string(bytes[:n]), ".sock:0 ") { unix.Store(i, 1) }
			if c.RemoteAddr().String() == os.Args[1] { names.Store(i, 1) }
		}()
	}
	all.Wait()
	count := func(m *sync.Map) (n int) { m.Range(func(_, _ any) bool { n++; return true }); return }
	fmt.Println(count(&unix), count(&names))
}
"#;

#[test]
fn a_static_go_program_has_the_unix_socket() {
    let redis = Redis::start();
    let (source, program) = (redis.home.path("main.go"), redis.home.path("client"));
    fs::write(&source, GO.replace("\t", " ")).unwrap();
    let mut build = Command::new("go");
    build
        .args(["build", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(&source)
        .current_dir(redis.home.path("run"));
    build.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOFLAGS", "");
    let built = build.env("GOCACHE", go_cache()).output().expect("Go must be installed: cargo xtask servers");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let address = format!("127.0.0.1:{}", redis.port);
    let ended = redis.run(&[program.to_str().unwrap(), &address]);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "50 50"), "{}", ended.stderr);
    assert!(ended.stderr.contains("50 connections over Unix sockets"), "{}", ended.stderr);
    let ended = redis.run_by(PRELOAD, &[program.to_str().unwrap(), &address]);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "0 50"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("it is written in Go, which makes its system calls itself"),
        "{}",
        ended.stderr
    );
}

/// With another C library, and from the child of a `vfork`, whose parent stops until it ends.
const OF_MUSL: &str = r#"#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void client(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&to, sizeof to)) _exit(1);
    char said[4096] = {0};
    if (write(s, "client info\r\n", 13) != 13 || read(s, said, sizeof said - 1) <= 0) _exit(2);
    const char *way = strstr(said, ".sock:0 ") ? "unix\n" : "tcp\n";
    if (write(1, way, strlen(way)) < 0) _exit(3);
}
int main(int count, char **words) {
    client(atoi(words[count - 1]));
    pid_t child = vfork();
    if (child == 0) { client(atoi(words[count - 1])); _exit(0); }
    return waitpid(child, 0, 0) != child;
}
"#;

#[test]
fn programs_of_musl_have_the_unix_socket_also_below_vfork() {
    let redis = Redis::start();
    let (source, program) = (redis.home.path("main.c"), redis.home.path("client"));
    fs::write(&source, OF_MUSL).unwrap();
    let (program, port) = (program.to_str().unwrap(), redis.port.to_string());
    let build = |how: &str| {
        let mut build = Command::new("musl-gcc");
        build.args([how, "-D_GNU_SOURCE", "-o", program]).arg(&source);
        let built = build.output().expect("musl-tools must be installed: cargo xtask servers");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    };
    build("-static");
    let ended = redis.run(&[program, &port]);
    assert_eq!((ended.status, &*ended.stdout), (0, "unix\nunix\n"), "{}", ended.stderr);
    let ended = redis.run_by(PRELOAD, &[program, &port]);
    assert_eq!((ended.status, &*ended.stdout), (0, "tcp\ntcp\n"), "{}", ended.stderr);
    let why = "it is a static program, and a preloaded library does not reach it: it connects over TCP; without --preload";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    build("-rdynamic");
    let ended = redis.run_by(PRELOAD, &[program, &port]);
    assert_eq!((ended.status, &*ended.stdout), (0, "unix\nunix\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("2 connections over Unix sockets"), "{}", ended.stderr);
}

/// Asks the server as whom it knows this client, and which it is.
const JDBC: &str = r#"import java.sql.DriverManager;
public class Main {
    public static void main(String[] words) throws Exception {
        try (var c = DriverManager.getConnection(words[0], "by_sha2", words[1]); var s = c.createStatement()) {
            var r = s.executeQuery("SELECT CURRENT_USER(), SUBSTRING_INDEX(VERSION(), '.', 1)");
            r.next();
            System.out.println(r.getString(1) + " " + r.getString(2));
        }
    }
}
"#;

/// A server that has only caching_sha2_password, and its own driver, which knows no sockets.
#[test]
fn connector_j_and_mysql_9_have_the_unix_socket() {
    let home = Home::new();
    let database = mariadb::MariaDb::start_mysql(&newest("usr/sbin/mysqld"));
    let jars = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients/java");
    let source = home.path("run/Main.java");
    fs::write(&source, JDBC).unwrap();
    let jars = jars.join("*").display().to_string();
    let url = format!("jdbc:mysql://127.0.0.1:{}/", database.port);
    let words = ["java", "-cp", &jars, source.to_str().unwrap(), &url, mariadb::SECRET];
    let map = format!("{}={}", database.port, database.socket());
    for way in [SECCOMP, PRELOAD] {
        let ended = home.run(&[&["run", "--map", &map], way, &["--"], &words[..]].concat());
        assert_eq!((ended.status, ended.stdout.trim()), (0, "by_sha2@localhost 9"), "{}", ended.stderr);
    }
    assert_eq!(must(words[0], &words[1..]).trim(), "by_sha2@127.0.0.1 9");
}

/// The kernel's own word, by `verify`.
#[test]
fn verify_says_that_the_program_has_the_unix_socket() {
    let redis = Redis::start();
    let script = format!("{}s = plain(); print(os.getpid(), flush=True); sys.stdin.read()", super::TOOLS);
    let mut command = redis.command(SECCOMP, &["python3", "-c", &script, &redis.port.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    let ended = wait_for("a verdict", || {
        let ended = redis.home.run(&["verify", line.trim(), "--expect", "unix"]);
        (ended.status == 0).then_some(ended)
    });
    assert!(ended.stdout.contains(&redis.socket()), "{}", ended.stdout);
    drop(child.stdin.take());
    assert!(Ended::of(&child.wait_with_output().unwrap()).status == 0);
}
