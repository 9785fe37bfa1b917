//! Each blocker set up for real, and the advice that names it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_testing::{copy_program, free_port};
use serde_json::Value;

use crate::scan::{Held, connection_of, host_port, is_root, scan};
use crate::support::{Home, SAMEHOST, Server, not_tested, wait_for};

/// A client of the server's port that stays connected.
fn client(server: &Server) -> Held {
    let [host, port] = host_port(&server.tcp);
    Held::start("nc", &[host, port])
}

/// The advice for a client, once it is connected.
pub(crate) fn advice(home: &Home, client: &Held) -> Value {
    let (_, found) = connection_of(home, client.pid());
    of_client(&found, client.pid())
}

fn of_client(found: &Value, pid: u32) -> Value {
    let all = found["advice"].as_array().unwrap();
    let mine = all.iter().find(|one| {
        one["client_pids"].as_array().unwrap().iter().any(|one| one.as_u64() == Some(pid.into()))
    });
    mine.unwrap_or_else(|| panic!("no advice for {pid}: {all:#?}")).clone()
}

pub(crate) fn obstacle<'a>(advice: &'a Value, code: &str) -> Option<&'a Value> {
    advice["obstacles"].as_array().unwrap().iter().find(|one| one["code"] == code)
}

/// The obstacle of a code, with words that it must have.
fn assert_told(advice: &Value, code: &str, words: &[&str]) {
    let told = obstacle(advice, code).unwrap_or_else(|| panic!("no {code}: {advice:#}"));
    let text = format!("{} {}", told["found"].as_str().unwrap(), told["remedy"].as_str().unwrap());
    for word in words {
        assert!(text.contains(word), "{code}: `{word}` is not in: {text}");
    }
}

/// A program under another name: what it is called is what it is taken for.
fn named(home: &Home, name: &str) -> PathBuf {
    let path = home.path("run").join(name);
    if fs::hard_link(SAMEHOST, &path).is_err() {
        copy_program(SAMEHOST, &path);
    }
    path
}

#[test]
fn nothing_in_the_way_means_now() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let client = client(&server);
    let advice = advice(&home, &client);
    assert_eq!(
        (advice["possible"].as_str(), advice["socket"].as_str()),
        (Some("now"), Some(server.unix.as_str())),
        "{advice:#}"
    );
    assert_eq!((advice["client"].as_str(), advice["now"].as_str()), (Some("nc"), Some(server.tcp.as_str())));
}

#[test]
fn blocker_1_a_short_backlog() {
    let home = Home::new();
    let server = home.serve("echo", &["--backlog", "5"]);
    let clients: Vec<Held> = (0..8).map(|_| client(&server)).collect();
    let all = wait_for("eight connections", || {
        let advice = of_client(&connection_of(&home, clients[7].pid()).1, clients[7].pid());
        (advice["connections"] == 8).then_some(advice)
    });
    assert_told(&all, "backlog", &["the backlog is 5", "8 connections", "EAGAIN", "512"]);
    assert_eq!(all["possible"], "after_setting");
}

/// A server whose socket anybody may use, in a folder that nobody else may pass.
fn closed_folder() -> (Home, Server, PathBuf) {
    let home = Home::new();
    let server = home.serve("echo", &["--mode", "666"]);
    let folder = home.path("").canonicalize().unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    (home, server, folder)
}

/// A client of another user, without any group.
fn stranger(server: &Server) -> Held {
    let [host, port] = host_port(&server.tcp);
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "nc", host, port];
    Held::start("setpriv", &nobody)
}

#[test]
fn blocker_2_a_folder_that_the_client_may_not_pass() {
    if !is_root() {
        not_tested("without root: a client of another user");
        return;
    }
    let (home, server, folder) = closed_folder();
    let stranger = stranger(&server);
    let told = advice(&home, &stranger);
    assert_told(&told, "permissions", &["nobody", "may not pass through", "0700", folder.to_str().unwrap()]);
    // With the folder open, the socket itself decides.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)).unwrap();
    assert!(obstacle(&advice(&home, &stranger), "permissions").is_none());
    fs::set_permissions(home.path("echo.sock"), fs::Permissions::from_mode(0o660)).unwrap();
    assert_told(&advice(&home, &stranger), "permissions", &["may not write", "0660"]);
}

#[test]
fn blocker_2_an_access_control_list_counts() {
    if !is_root() {
        not_tested("without root: a client of another user");
        return;
    }
    let (home, server, folder) = closed_folder();
    let set = |list: &str| {
        let done = Command::new("setfacl").args(["-m", list]).arg(&folder).status().expect("install acl");
        assert!(done.success(), "this file system keeps no access control lists");
    };
    let stranger = stranger(&server);
    // The mode says 0710 then, whose group is not the stranger's: only the list lets him pass.
    set("u:nobody:x");
    assert!(obstacle(&advice(&home, &stranger), "permissions").is_none());
    set("m::-");
    let told = advice(&home, &stranger);
    assert_told(
        &told,
        "permissions",
        &["may not pass through", "access control list", "setfacl -m u:nobody:x"],
    );
    set("u:nobody:-,m::x,o::x");
    assert_told(&advice(&home, &stranger), "permissions", &["may not pass through", "access control list"]);
}

#[test]
fn blocker_4_a_mount_namespace_with_its_own_tmp() {
    if !is_root() {
        not_tested("without root: a mount namespace");
        return;
    }
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let [host, port] = host_port(&server.tcp);
    let folder = home.path("");
    let script = format!("mount -t tmpfs none {}; exec nc {host} {port}", folder.display());
    let hidden = Held::start("unshare", &["-m", "sh", "-c", &script]);
    let told = advice(&home, &hidden);
    let expected = if folder.starts_with("/tmp") { "PrivateTmp" } else { "BindPaths" };
    assert_told(&told, "mount-namespace", &["does not see", "echo.sock", expected]);
}

#[test]
fn blockers_5_and_6_an_unusual_path_and_the_account() {
    let home = Home::new();
    let program = named(&home, "mysqld");
    let socket = home.path("mysqld.sock");
    let listen = format!("unix:{}", socket.display());
    let port = free_port();
    let tcp = format!("tcp:127.0.0.1:{port}");
    let _server = Held::start(&program, &["serve", "echo", "--listen", &listen, "--listen", &tcp]);
    // It listens at one after the other.
    wait_for("the server's socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
    wait_for("the server's port", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let client = Held::start("nc", &["127.0.0.1", &port.to_string()]);
    let told = advice(&home, &client);
    assert_told(&told, "localhost", &["not where client libraries look", socket.to_str().unwrap(), "Go"]);
    assert_told(&told, "accounts", &["'user'@'127.0.0.1'", "'user'@'localhost'"]);
    fs::remove_file(program).unwrap();
}

#[test]
fn blocker_7_a_container_that_mounts_nothing() {
    let Some(group) = Cgroup::new() else {
        not_tested("no control group can be made here");
        return;
    };
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let [host, port] = host_port(&server.tcp);
    let folder = home.path("");
    let script = format!(
        "echo $$ > {}/cgroup.procs; mount -t tmpfs none {}; exec nc {host} {port}",
        group.0.display(),
        folder.display()
    );
    let inside = Held::start("unshare", &["-m", "sh", "-c", &script]);
    let told = advice(&home, &inside);
    assert_told(
        &told,
        "container",
        &["docker container samehost", "does not see", "Mount the folder", "-v "],
    );
    assert!(obstacle(&told, "mount-namespace").is_none(), "said once: {told:#}");
    // The file alone, mounted before the service made a new one.
    let stale = format!(
        "echo $$ > {}/cgroup.procs; mount -t tmpfs none {2}; touch {1}; exec nc {host} {port}",
        group.0.display(),
        home.path("echo.sock").display(),
        folder.display()
    );
    let stale = Held::start("unshare", &["-m", "sh", "-c", &stale]);
    let pid = stale.pid();
    connection_of(&home, pid);
    let told = of_client(&scan(&home), pid);
    assert_told(&told, "another-socket", &["another file", "Mount the folder instead"]);
    drop((inside, stale));
}

/// A control group with the name of a Docker container; gone when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let of_type = |kind: &str| {
            let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(kind))?;
            line.split(' ').nth(1).map(str::to_owned)
        };
        let roots = [of_type("cgroup2"), of_type("cgroup")];
        roots.into_iter().flatten().find_map(|root| {
            let path = Path::new(&root).join("docker").join(format!("samehost-{}", std::process::id()));
            fs::create_dir_all(&path).ok()?;
            path.join("cgroup.procs").exists().then_some(Cgroup(path))
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        wait_for("the control group to be empty", || fs::remove_dir(&self.0).ok());
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

#[test]
fn blocker_9_a_socket_file_that_is_gone_or_taken() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let client = client(&server);
    let path = home.path("echo.sock");
    assert!(obstacle(&advice(&home, &client), "stale").is_none());
    fs::remove_file(&path).unwrap();
    assert_told(&advice(&home, &client), "stale", &["the file was removed", "echo.sock"]);
    let _thief = UnixListener::bind(&path).unwrap();
    assert_told(&advice(&home, &client), "another-socket", &["another file", "second server"]);
}

#[test]
fn blocker_9_a_file_that_a_dead_server_left() {
    if !is_root() {
        not_tested("without root: a folder /run of its own");
        return;
    }
    let home = Home::new();
    let port = free_port();
    // A server killed with no time to tidy leaves its socket file at the usual path; its successor has a port only.
    let script = format!(
        "mount -t tmpfs none /run && mkdir /run/samehost && {{ {SAMEHOST} serve echo --listen unix:/run/samehost/echo.sock & }}; \
         while ! [ -S /run/samehost/echo.sock ]; do sleep 0.01; done; kill -9 $!; wait; \
         exec {SAMEHOST} serve echo --listen tcp:127.0.0.1:{port}"
    );
    let _server = Held::start("unshare", &["-m", "sh", "-c", &script]);
    wait_for("the server", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let client = Held::start("nc", &["127.0.0.1", &port.to_string()]);
    let told = advice(&home, &client);
    assert_told(&told, "stale", &["/run/samehost/echo.sock", "nothing listens", "left over"]);
    assert_eq!(told["possible"], "after_setting");
}

#[test]
fn blocker_11_both_ends_speak_tls() {
    let home = Home::new();
    let port = free_port().to_string();
    let socket = home.path("redis.sock");
    let _redis = Held::redis(&home, port.parse().unwrap(), &socket, &[]);
    let client = Held::start("redis-cli", &["-p", &port, "subscribe", "x"]);
    let told = advice(&home, &client);
    // A client program that a person runs is nobody's hop to switch.
    assert_eq!(told["possible"], "tool");
    let has_tls = |program: &str| {
        let path = Command::new("sh").args(["-c", &format!("ldd $(command -v {program})")]).output().unwrap();
        String::from_utf8_lossy(&path.stdout).contains("libssl")
    };
    if has_tls("redis-server") && has_tls("redis-cli") {
        assert_told(&told, "tls", &["libssl", "may be encrypted"]);
    } else {
        not_tested("this Redis is built without TLS");
        assert!(obstacle(&told, "tls").is_none());
    }
}

#[test]
fn blocker_12_a_path_that_only_its_folder_can_reach() {
    let home = Home::new();
    let folder = home.path(&"d".repeat(100));
    fs::create_dir(&folder).unwrap();
    let port = free_port();
    let script = format!(
        "cd {} && exec {SAMEHOST} serve echo --listen unix:s.sock --listen tcp:127.0.0.1:{port}",
        folder.display()
    );
    let _server = Held::start("sh", &["-c", &script]);
    wait_for("the server", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let client = Held::start("nc", &["127.0.0.1", &port.to_string()]);
    let told = advice(&home, &client);
    assert_told(&told, "path-length", &["bytes long", "107", "s.sock"]);
}

#[test]
fn a_service_without_a_socket_is_told_the_setting() {
    let home = Home::new();
    let port = free_port().to_string();
    let _memcached = Held::start("memcached", &["-p", &port, "-l", "127.0.0.1", "-u", "root"]);
    wait_for("memcached", || std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).ok());
    let client = Held::start("nc", &["127.0.0.1", &port]);
    let told = advice(&home, &client);
    assert_told(
        &told,
        "server",
        &["memcached listens on no Unix socket", "-s /run/memcached/memcached.sock"],
    );
    assert_eq!(told["possible"], "after_setting");
}

#[test]
fn a_node_without_a_socket_is_told_what_its_socket_brings() {
    let home = Home::new();
    let port = free_port().to_string();
    let server =
        format!("require('http').createServer((_, reply) => reply.end()).listen({port}, '127.0.0.1')");
    let _node = Held::start("node", &["-e", &server]);
    wait_for("node", || std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).ok());
    let client = Held::start("nc", &["127.0.0.1", &port]);
    let told = advice(&home, &client);
    assert_told(
        &told,
        "server",
        &["Node.js listens on no Unix socket", "server.listen('/run/node/node.sock')", "EADDRINUSE"],
    );
}

#[test]
fn a_driver_without_sockets_is_told_of_run() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let program = home.path("run/java");
    copy_program("/bin/nc.openbsd", &program);
    let [host, port] = host_port(&server.tcp);
    let client = Held::start(&program, &[host, port]);
    assert_told(&advice(&home, &client), "driver", &["Java", "junixsocket", "`samehost run`"]);
    let other = self::client(&server);
    assert!(obstacle(&advice(&home, &other), "driver").is_none());
}
