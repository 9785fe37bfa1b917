//! What ends a measurement that has private servers: a server that is killed, the tool that is killed, a program that is missing,
//! wrong use. One supervisor starts and ends all servers, so each ending is one table over the workloads.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::support::{Here, assert_refused, said};
use crate::support::send;

const KILL: &[Signal] = &[Signal::KILL];
const KILL_AND_INT: &[Signal] = &[Signal::KILL, Signal::INT];

/// A measurement with private servers, the words of which one is said where they are killed (none is asked for where there is none), and the signals
/// that are sent to the tool.
const MEASUREMENTS: &[(&str, &[&str], &[Signal])] = &[
    ("fastcgi --connect per-request --connections 4 --trial-time 2s", &[], &[]),
    ("fastcgi --connect keep --connections 4 --trial-time 2s", &[], &[]),
    ("http --connections 4 --trial-time 2s", &[], &[]),
    ("memcached --connections 4 --trial-time 2s", &[], &[]),
    ("mysql --connections 4 --trial-time 2s --rows 100", &[], KILL_AND_INT),
    ("postgres --connections 4 --trial-time 2s --rows 100", &[], KILL_AND_INT),
    ("proxy --via nginx --backend built-in --backends 1 --connections 4 --trial-time 2s", &[], &[]),
    ("proxy --via apache --backend built-in --backends 1 --connections 4 --trial-time 2s", &[], &[]),
    ("redis --connections 4 --trial-time 2s", &[], KILL),
    ("rpc --protocol go-gob --connections 4 --trial-time 1s", GO_SERVER, KILL),
    ("rpc --protocol go-json --connections 4 --trial-time 1s", GO_SERVER, KILL),
];
/// A server that is being started again is killed too.
const GO_SERVER: &[&str] = &["127.0.0.1:", ".sock", "could not start the Go server"];

fn started(here: &Here, words: &str) -> Command {
    here.bench(&words.split(' ').chain(["--quiet"]).collect::<Vec<_>>())
}

/// That nothing is left of a measurement: its files, its processes, and the System V shared memory that they made.
fn assert_gone(here: &Here, servers: &[u32], words: &str) {
    here.assert_nothing_left();
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    for pid in servers.iter().map(ToString::to_string) {
        assert!(!Path::new("/proc").join(&pid).exists(), "{words}: {pid}");
        // Another's may be of an older process with this number.
        let made_by = |line: &&str| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            fields.get(4) == Some(&pid.as_str())
                && fields.get(13).and_then(|made| made.parse().ok()) >= Some(here.begun_s())
        };
        assert_eq!(table.lines().filter(made_by).count(), 0, "{words}: shared memory of {pid} is left");
    }
}

#[test]
fn a_server_killed_in_the_middle_is_missed_and_nothing_is_left() {
    for (words, named, _) in MEASUREMENTS {
        let here = Here::new();
        let child = started(&here, words).spawn().unwrap();
        let (output, servers) = here.without_servers(child);
        assert_eq!(output.status.code(), Some(3), "{words}: {}", said(&output));
        let said = said(&output);
        assert!(!said.is_empty(), "{words}");
        let is_named = named.is_empty() || named.iter().any(|name| said.contains(name));
        assert!(is_named, "{words}: names no server: {said}");
        assert_gone(&here, &servers, words);
    }
}

#[test]
fn the_tool_killed_or_interrupted_in_the_middle_leaves_nothing() {
    for (words, _, signals) in MEASUREMENTS {
        for signal in *signals {
            let here = Here::new();
            let mut child = started(&here, words).spawn().unwrap();
            let servers = here.servers();
            send(child.id(), *signal);
            child.wait().unwrap();
            assert_gone(&here, &servers, words);
        }
    }
}

/// How a program is made to be missing.
#[derive(Clone, Copy)]
enum Without {
    /// By a variable of the environment that says where programs, or PHP's extensions, are.
    Set(&'static str, &'static str),
    /// By an empty directory in place of this one; only root can do that.
    Directory(&'static str),
}

const PATH: Without = Without::Set("PATH", "/nonexistent");
const SBIN: Without = Without::Directory("/usr/sbin");

#[test]
fn what_is_missing_is_named_with_its_package() {
    let site = "wordpress --site /usr/share/wordpress --yes";
    let go = &["apt install golang-go", "bench raw"];
    let mut rows: Vec<(&str, Without, &[&str])> = vec![
        ("fastcgi", SBIN, &["apt install php-fpm"]),
        ("memcached", PATH, &["apt install memcached"]),
        ("postgres", Without::Directory("/usr/lib/postgresql"), &["apt install postgresql"]),
        ("postgres --via pgbouncer --rows 500", SBIN, &["apt install pgbouncer"]),
        ("postgres --via odyssey", Without::Set("PATH", "/usr/bin:/bin"), &["apt install odyssey"]),
        ("proxy", PATH, &["apt install thin ruby-sinatra"]),
        // nginx is where servers are, whatever PATH says.
        ("proxy --backend built-in", SBIN, &["apt install nginx-light"]),
        ("proxy --backend built-in --via apache", SBIN, &["apt install apache2"]),
        ("proxy --backend built-in --via haproxy", SBIN, &["apt install haproxy"]),
        ("redis", PATH, &["apt install redis-server"]),
        ("rpc --protocol go-gob", PATH, go),
        ("rpc --protocol go-json", PATH, go),
        ("wordpress", PATH, &["apt install mariadb-server"]),
        (site, PATH, &["apt install php-cli"]),
        // Extensions of PHP are named by files in this directory.
        ("wordpress", Without::Set("PHP_INI_SCAN_DIR", "/nonexistent"), &["apt install php-mysql"]),
    ];
    if rustix::process::geteuid().is_root() {
        rows.push(("redis --in podman-bridge", PATH, &["apt install podman"]));
    }
    for (words, without, named) in rows {
        let here = Here::new();
        let arguments: Vec<&str> = words.split(' ').collect();
        let output = match without {
            Without::Set(name, value) => here.bench(&arguments).env(name, value).output().unwrap(),
            Without::Directory(directory) => match here.bench_without(directory, &arguments) {
                Some(output) => output,
                None => continue,
            },
        };
        assert_eq!(output.status.code(), Some(3), "{words}: {}", said(&output));
        assert!(named.iter().all(|name| said(&output).contains(name)), "{words}: {}", said(&output));
        here.assert_nothing_left();
    }
}

/// Options of a workload, and a word of the refusal.
type Refused = (&'static [&'static str], &'static str);

const WRONG_USE: &[(&str, &[Refused])] = &[
    (
        "redis",
        &[
            (&["--in", "docker"], "none of machine, podman-host"),
            (&["--in", "podman-host", "--tcp", "tcp:127.0.0.1:6379"], "takes no --tcp"),
            (&["--in", "podman-host", "--congestion", "bbr"], "leave it out"),
            (&["--pipeline", "65"], "from 1 to 64"),
            (&["--size", "65m"], "too large"),
            (&["--command", "ping", "--size", "10"], "takes no --size"),
            (&["--tcp", "rediss://127.0.0.1"], "TLS"),
            (&["--tcp", "redis+unix:///run/r.sock", "--transports", "tcp"], "--tcp names"),
        ],
    ),
    (
        "fastcgi",
        &[
            (&["--connect", "keep", "--children", "4", "--connections", "5"], "--children 5"),
            (&["--children", "0"], "from 1 to 256"),
            (&["--size", "17m"], "too large"),
            (&["--script", "own.php"], "absolute"),
            (&["--script", "/no/such.php"], "no such file"),
            (&["--script", "/no/such.php", "--size", "5"], "takes no --size"),
            (&["--via", "lighttpd"], "possible values"),
            (&["--via", "apache", "--front", "unix"], "Apache listens on ports only"),
        ],
    ),
    (
        "http",
        &[
            (&["--pipeline", "65"], "from 1 to 64"),
            (&["--pipeline", "2", "--connect", "per-request"], "connections that stay"),
            (&["--path", "/x"], "--path is for a server that already runs"),
            (&["--tcp", "https://127.0.0.1/", "--transports", "tcp"], "TLS"),
            (&["--tcp", "http+unix:///run/x", "--transports", "tcp"], "%2F"),
            (&["--unix", "http://127.0.0.1/", "--transports", "unix"], "reached over tcp"),
        ],
    ),
    (
        "mysql",
        &[
            (&["--rows", "0"], "a number from 1"),
            (&["--rows", "many"], "a number from 1"),
            (&["--read-only", "yes", "--statement", "update"], "do not go together"),
            (&["--statement", "dump", "--connections", "2"], "takes no --connections"),
            (&["--connect", "per-query", "--connections", "1025"], "at most 1024"),
            (&["--tcp", "postgres://127.0.0.1"], "not a URL of MySQL"),
            (&["--tcp", "mysql://u@localhost?socket=/s"], "--tcp names"),
            (&["--ask-password"], "--tcp or --unix"),
        ],
    ),
    (
        "postgres",
        &[
            (&["--front", "tcp"], "--via pgbouncer"),
            (&["--pool", "session"], "--via pgbouncer"),
            (&["--via", "pgbouncer", "--front", "tcp+tls"], "none of tcp, unix"),
            (&["--via", "pgbouncer", "--pool", "statement"], "possible values"),
            (&["--via", "pgbouncer", "--statement", "copy"], "statements of one row"),
            (&["--via", "pgbouncer", "--transports", "tcp,tcp+tls"], "tcp+tls"),
            (&["--via", "pgbouncer", "--tcp", "tcp:127.0.0.1:5432"], "takes no --tcp"),
            (&["--rows", "1000001"], "from 1 to 1000000"),
            (&["--read-only", "yes"], "--statement select-1"),
            (&["--statement", "copy", "--connections", "2"], "takes no --connections"),
            (&["--connect", "per-query", "--connections", "1025"], "at most 1024"),
            (&["--tcp", "mysql://127.0.0.1"], "not a URL of PostgreSQL"),
            (&["--tcp", "postgres:///d?host=/run", "--transports", "tcp"], "--tcp names"),
            (&["--tcp", "postgres://h/d?sslmode=verify-full"], "sslmode"),
        ],
    ),
    (
        "proxy",
        &[
            (&["--backends", "17"], "at most 16"),
            (&["--backends", "0"], "not a number"),
            (&["--http", "2"], "none of 1.0, 1.1"),
            (&["--backend", "apache"], "possible values"),
            (&["--via", "lighttpd"], "none of nginx, apache, haproxy"),
            (&["--via", "nginx,apache", "--front", "unix"], "Apache listens on ports only; use --front tcp"),
            (&["--size", "17m"], "too large"),
            (&["--tcp", "tcp:127.0.0.1:80"], "takes no --tcp"),
        ],
    ),
    (
        "rpc",
        &[
            (&["--size", "65m"], "too large"),
            (&["--protocol", "grpc"], "go-gob"),
            (&["--protocol", "go-gob", "--rate", "100"], "--rate"),
            (&["--protocol", "go-json", "--tcp", "tcp:127.0.0.1:1"], "--tcp"),
            (&["--protocol", "go-json", "--transports", "abstract,unix"], "abstract"),
        ],
    ),
    (
        "wordpress",
        &[
            (&["--connections", "65"], "at most 64"),
            (&["--path", "/a b"], "percent-encoded"),
            (&["--path", "wp-admin"], "begins with `/`"),
            (&["--host", "a b", "--site", "/nonexistent"], "not a host name"),
            (&["--host", "blog.example"], "give --site"),
            (&["--site", "/nonexistent"], "No such file"),
            (&["--site", "/usr"], "no WordPress is here"),
            (&["--site", "/usr/share/wordpress"], "for any visitor"),
            (&["--fpm", "abstract"], "abstract"),
            (&["--via", "caddy"], "is gone"),
            (&["--via", "lighttpd"], "none of nginx, apache"),
            (&["--via", "apache", "--fpm", "tcp", "--site", "/nonexistent"], "needs --fpm unix"),
            (&["--tcp", "127.0.0.1:80"], "--tcp"),
        ],
    ),
];

#[test]
fn wrong_use_is_said_before_anything_starts() {
    for (workload, cases) in WRONG_USE {
        assert_refused(workload, cases);
    }
}
