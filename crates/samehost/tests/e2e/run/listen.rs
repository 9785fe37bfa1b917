//! `run --listen`: servers that listen at a port, clients that come to the Unix socket, and nobody at the port.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use samehost_testing::{Ended, free_port, must, wait_for};

use super::TOOLS;
use crate::support::{Home, send};

/// A server under `run --listen`, in a home of its own.
struct Listening {
    home: Home,
    port: u16,
    run: Option<Child>,
}

impl Listening {
    fn new() -> Self {
        Listening { home: Home::new(), port: free_port(), run: None }
    }

    fn path(&self) -> PathBuf {
        self.home.path("s.sock")
    }

    fn map(&self) -> String {
        format!("{}={}", self.port, self.path().display())
    }

    /// Started, and waited for until its socket answers.
    fn start(mut self, words: &[&str]) -> Self {
        let map = self.map();
        let mut command = self.home.command(&[&["run", "--listen", &map, "--"], words].concat());
        command.env("TMPDIR", self.home.path("run")).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.run = Some(command.spawn().unwrap());
        wait_for("the socket", || UnixStream::connect(self.path()).ok());
        for host in ["127.0.0.1", "::1"] {
            assert!(TcpStream::connect((host, self.port)).is_err(), "somebody listens at the port");
        }
        self
    }

    /// What it answers to these bytes, until it closes or falls silent.
    fn ask(&self, bytes: &[u8]) -> String {
        ask(&self.path(), bytes)
    }

    /// Ends it, and proves that nothing is left.
    fn end(mut self, signal: Signal) -> Ended {
        let run = self.run.take().unwrap();
        send(run.id(), signal);
        let ended = Ended::of(&run.wait_with_output().unwrap());
        assert!(!self.path().exists(), "the socket is left: {ended:?}");
        self.home.assert_nothing_left();
        ended
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(mut run) = self.run.take() {
            send(run.id(), Signal::TERM);
            let _ = run.wait();
        }
    }
}

fn ask(path: &Path, bytes: &[u8]) -> String {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    client.write_all(bytes).unwrap();
    let mut said = [0; 4096];
    let length = client.read(&mut said).unwrap();
    String::from_utf8_lossy(&said[..length]).into_owned()
}

#[test]
fn redis_that_binds_both_families_listens_at_the_socket() {
    let server = Listening::new();
    let port = server.port.to_string();
    let server = server.start(&["redis-server", "--port", &port, "--bind", "127.0.0.1", "::1", "--save", ""]);
    let mode = fs::metadata(server.path()).unwrap();
    assert!(mode.file_type().is_socket() && mode.permissions().mode() & 0o200 != 0);
    let said = server.ask(b"client info\r\n");
    assert!(said.contains("addr=127.0.0.1:") && !said.contains("addr=127.0.0.1:0 "), "{said}");
    assert!(said.contains(&format!("laddr=127.0.0.1:{port} ")), "{said}");
    let many = server.ask(&b"ping\r\n".repeat(50));
    assert!(many.contains("+PONG"), "{many}");
    let ended = server.end(Signal::INT);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    // With the one that waited for it.
    assert!(ended.stderr.contains("3 connections over Unix sockets"), "{}", ended.stderr);
    assert!(ended.stderr.contains(" <- "), "{}", ended.stderr);
}

#[test]
fn nginx_listens_at_the_socket_with_several_workers_and_after_a_reload() {
    let server = Listening::new();
    let (port, at) = (server.port, server.home.path("").display().to_string());
    let configuration = server.home.path("nginx.conf");
    let text = format!(
        "worker_processes 2; daemon off; pid {at}/nginx.pid; error_log stderr;
events {{ worker_connections 64; }}
http {{ access_log {at}/access.log; client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
server {{ listen {port} reuseport; listen [::]:{port}; location / {{ return 200 \"$remote_addr $server_port\\n\"; }} }} }}"
    );
    fs::write(&configuration, text).unwrap();
    let server = server.start(&["nginx", "-p", &at, "-c", configuration.to_str().unwrap()]);
    let get = || server.ask(b"GET / HTTP/1.0\r\n\r\n");
    let expected = format!("127.0.0.1 {port}\n");
    for _ in 0..20 {
        assert!(get().ends_with(&expected));
    }
    send(server.run.as_ref().unwrap().id(), Signal::HUP);
    for _ in 0..20 {
        assert!(get().ends_with(&expected));
    }
    let log = fs::read_to_string(server.home.path("access.log")).unwrap();
    assert!(log.lines().count() >= 20 && log.lines().all(|line| line.starts_with("127.0.0.1 ")), "{log}");
    assert_eq!(server.end(Signal::TERM).status, 0);
}

#[test]
fn mariadb_listens_at_the_socket_and_a_client_comes_by_the_same_port() {
    let server = Listening::new();
    let at = |name: &str| server.home.path(name).display().to_string();
    let (data, own, pid, log) = (
        format!("--datadir={}", at("data")),
        format!("--socket={}", at("own.sock")),
        format!("--pid-file={}", at("pid")),
        format!("--log-error={}", at("log")),
    );
    let root = samehost_testing::mariadb::is_root();
    let user = if root { "--user=root" } else { "--skip-test-db" };
    let words = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", user, &data];
    must("mariadb-install-db", &words);
    let port = format!("--port={}", server.port);
    let mut words = vec!["/usr/sbin/mariadbd", "--no-defaults", "--bind-address=127.0.0.1,::1"];
    words.extend([&*port, &*data, &*own, &*pid, &*log]);
    words.extend(root.then_some("--user=root"));
    let server = server.start(&words);
    let (map, port) = (server.map(), server.port.to_string());
    let sql =
        "SELECT SUBSTRING_INDEX(HOST, ':', 1) FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()";
    let client = ["mariadb", "--no-defaults", "-uroot", "-h127.0.0.1", "-P", &port, "-BNe", sql];
    let ended = server.home.run(&[&["run", "--preload", "--map", &map, "--"], &client[..]].concat());
    assert_eq!((ended.status, ended.stdout.trim()), (0, "localhost"), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 connection over Unix sockets"), "{}", ended.stderr);
    assert_eq!(server.end(Signal::TERM).status, 0);
}

/// Asks for both families of `localhost`, and tells its clients' addresses.
#[test]
fn postgresql_listens_at_the_socket_by_the_rules_for_tcp() {
    let mut server = Listening::new();
    let bin = fs::read_dir("/usr/lib/postgresql").unwrap().flatten().map(|entry| entry.path().join("bin"));
    let bin = bin.filter(|bin| bin.join("initdb").is_file()).max().expect("PostgreSQL: cargo xtask servers");
    let own = tempfile::Builder::new().prefix("pg").tempdir().unwrap();
    let is_root = samehost_testing::postgres::is_root();
    if is_root {
        must("chown", &["postgres:", own.path().to_str().unwrap()]);
    }
    let as_user: &[&str] = match is_root {
        true => &["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"],
        false => &["env"],
    };
    let (data, socket) = (own.path().join("data"), own.path().join("s.sock"));
    let (data, initdb, postgres) = (data.to_str().unwrap(), bin.join("initdb"), bin.join("postgres"));
    let words =
        [as_user, &[initdb.to_str().unwrap(), "-D", data, "-U", "admin", "-A", "trust", "-N", "--locale=C"]];
    must(words.concat()[0], &words.concat()[1..]);
    let (port, map) = (server.port.to_string(), format!("{}={}", server.port, socket.display()));
    let options = ["-p", &port, "-c", "listen_addresses=localhost", "-c", "unix_socket_directories=", "-F"];
    let words =
        [&["run", "--listen", &map, "--"], as_user, &[postgres.to_str().unwrap(), "-D", data], &options];
    let mut command = server.home.command(&words.concat());
    server.run = Some(command.stderr(Stdio::piped()).spawn().unwrap());
    wait_for("the socket", || UnixStream::connect(&socket).ok());
    assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err());
    let (url, sql) = (
        format!("postgres://admin@127.0.0.1:{port}/postgres"),
        "SELECT client_addr, client_port > 0 FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    );
    let client = ["run", "--quiet", "--preload", "--map", &map, "--", "psql", "-XAtq", &url, "-c", sql];
    let ended = wait_for("an answer", || {
        let ended = server.home.run(&client);
        (ended.status == 0).then_some(ended)
    });
    assert_eq!(ended.stdout.trim(), "127.0.0.1|t", "{}", ended.stderr);
    let run = server.run.take().unwrap();
    send(run.id(), Signal::INT);
    let ended = Ended::of(&run.wait_with_output().unwrap());
    assert!(ended.status == 0 && !socket.exists(), "{ended:?}");
}

const NODE: &str = "const s = require('http').createServer((q, r) => r.end(q.socket.remoteAddress + ' ' + s.address().port + '\\n'));
s.listen(+process.argv[1])";
const JAVA: &str = "import java.net.*; import java.nio.*; import java.nio.channels.*;
public class Main { public static void main(String[] words) throws Exception {
    var plain = new ServerSocket(Integer.parseInt(words[0]));
    for (;;) try (var one = plain.accept()) { one.setTcpNoDelay(true);
        one.getOutputStream().write((one.getRemoteSocketAddress() + \" \" + one.getLocalPort() + \"\\n\").getBytes());
    } catch (java.io.IOException gone) { }
} }";

#[test]
fn servers_in_python_node_and_java_listen_at_the_socket() {
    let get = b"GET / HTTP/1.0\r\n\r\n";
    let server = Listening::new();
    let (port, at) = (server.port.to_string(), server.home.path("state").display().to_string());
    let server = server.start(&["python3", "-m", "http.server", &port, "--directory", &at]);
    assert!(server.ask(get).contains("200 OK"));
    let ended = server.end(Signal::TERM);
    assert!(ended.stderr.contains("127.0.0.1 - - ["), "{}", ended.stderr);
    let server = Listening::new();
    let port = server.port.to_string();
    let server = server.start(&["node", "-e", NODE, &port]);
    let said = server.ask(get);
    assert!(said.ends_with(&format!("::ffff:127.0.0.1 {port}\n")), "{said}");
    server.end(Signal::TERM);
    let server = Listening::new();
    let (port, source) = (server.port.to_string(), server.home.path("Main.java"));
    fs::write(&source, JAVA).unwrap();
    let server = server.start(&["java", source.to_str().unwrap(), &port]);
    let said = server.ask(b"");
    assert!(said.starts_with("/127.0.0.1:") && said.ends_with(&format!(" {port}\n")), "{said}");
    server.end(Signal::TERM);
}

/// Runs a Python program under `run --listen`, told the port, the path and more.
fn python(home: &Home, port: u16, path: &Path, script: &str) -> Ended {
    let (map, port, script) = (
        format!("{port}={}", path.display()),
        port.to_string(),
        format!("{TOOLS}path = sys.argv[2]\n{script}"),
    );
    let words = ["python3", "-c", &script, &port, path.to_str().unwrap()];
    home.run(&[&["run", "--quiet", "--listen", &map, "--"], &words[..]].concat())
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_a_live_one_is_in_use() {
    let (home, port) = (Home::new(), free_port());
    let path = home.path("s.sock");
    let bind = "
s = socket.socket()
try: s.bind(('127.0.0.1', port)); s.listen(); u = socket.socket(socket.AF_UNIX); u.connect(path); print(s.accept()[1][0])
except OSError as error: print(error.errno)";
    let live = UnixListener::bind(&path).unwrap();
    assert_eq!(python(&home, port, &path, bind).stdout, "98\n");
    drop(live);
    let ended = python(&home, port, &path, bind);
    assert_eq!(ended.stdout, "127.0.0.1\n", "{}", ended.stderr);
    assert!(!path.exists());
    // What was there before, and that nobody bound to, stays.
    drop(UnixListener::bind(&path).unwrap());
    python(&home, port, &path, "");
    assert!(path.exists());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "a file").unwrap();
    let ended = python(&home, port, &path, bind);
    assert!(ended.status == 2 && ended.stderr.contains("is not a socket"), "{ended:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
    let ended = python(&home, port, &home.path("nowhere/s.sock"), bind);
    assert!(ended.status == 2 && ended.stderr.contains("is not a directory"), "{ended:?}");
}

#[test]
fn binds_are_answered_as_tcp_answers_them() {
    let (home, port) = (Home::new(), free_port());
    let ended = python(
        &home,
        port,
        &home.path("s.sock"),
        "def bound(family, host, *more):
    s = socket.socket(family)
    for option in more: s.setsockopt(*option, 1)
    try: s.bind((host, port)); s.listen(); return s
    except OSError as error: return error.errno
A, B = socket.AF_INET, socket.AF_INET6
four = bound(A, '127.0.0.1'); print(four.getsockname(), bound(A, '127.0.0.1'), bound(A, '0.0.0.0'), bound(B, '::'))
six = bound(B, '::1'); print(six.getsockname()[:2])
try: six.getpeername()
except OSError as error: print(error.errno)
print(four.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0], four.getsockopt(1, socket.SO_ACCEPTCONN))
print(bound(A, '127.0.0.1', (1, socket.SO_REUSEPORT)).getsockname() == four.getsockname())
four.settimeout(5); u = socket.socket(socket.AF_UNIX); u.connect(path)
s, peer = four.accept(); assert peer[0] == '127.0.0.1' and peer[1] not in (0, port) and s.getpeername() == peer
assert s.getsockname() == ('127.0.0.1', port) and s.getsockopt(1, 39) == A and not os.get_inheritable(s.fileno())
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1); assert not s.getblocking() or s.gettimeout() is None
sys.stdout.flush()
if os.fork() == 0:
    four.close(); six.close(); s.close(); print('another process', bound(A, '127.0.0.1'), flush=True); os._exit(0)
os.wait()
other = socket.socket(); other.bind(('127.0.0.1', 0)); print(other.getsockname()[1] not in (0, port))
four.close(); six.close(); again = bound(A, '0.0.0.0'); print(again.getsockname())
again.close(); dual = socket.create_server(('', port), family=B, dualstack_ipv6=True); print(dual.getsockname()[:2])
u = socket.socket(socket.AF_UNIX); u.connect(path); print(dual.accept()[1][0])",
    );
    let expected = format!(
        "('127.0.0.1', {port}) 98 98 98\n('::1', {port})\n107\n10 1\nTrue\nanother process 98\nTrue\n('0.0.0.0', {port})\n('::', {port})\n::ffff:127.0.0.1\n"
    );
    assert_eq!((ended.status, ended.stdout), (0, expected), "{}", ended.stderr);
}

/// One process listens, another comes, and both know ports only.
#[test]
fn server_and_client_of_one_run_meet_at_the_socket() {
    let (home, port) = (Home::new(), free_port());
    let map = format!("{port}={}", home.path("s.sock").display());
    let script = format!(
        "{TOOLS}s = socket.create_server(('127.0.0.1', port)); c = plain(); a, peer = s.accept()
print(c.getpeername() == s.getsockname(), peer[0], a.getsockopt(1, 39) == socket.AF_INET)
a.sendall(b'x'); print(c.recv(1), open('/proc/net/tcp').read().count(f':{{port:04X}} '))"
    );
    let words = ["python3", "-c", &script, &port.to_string()];
    let ended = home.run(&[&["run", "--listen", &map, "--map", &map, "--"], &words[..]].concat());
    assert_eq!((ended.status, &*ended.stdout), (0, "True 127.0.0.1 True\nb'x' 0\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("2 connections over Unix sockets"), "{}", ended.stderr);
}

#[test]
fn a_server_that_listens_over_tcp_after_all_is_told_while_it_runs() {
    let server = Listening::new();
    let script = "import select, socket, sys, time
s = socket.socket()
e = select.epoll()
e.register(s.fileno(), select.EPOLLIN)
s.bind(('127.0.0.1', int(sys.argv[1])))
s.listen()
time.sleep(60)";
    let (map, port) = (server.map(), server.port.to_string());
    let words = ["run", "--quiet", "--listen", &map, "--", "python3", "-c", script, &port];
    let mut command = server.home.command(&words);
    let mut run = command.env("TMPDIR", server.home.path("run")).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("the program listens over TCP: ") && line.contains("epoll"), "{line}");
    assert!(TcpStream::connect(("127.0.0.1", server.port)).is_ok(), "it serves meanwhile");
    send(run.id(), Signal::TERM);
    run.wait().unwrap();
    server.home.assert_nothing_left();
}

#[test]
fn a_static_server_is_said_to_listen_as_before() {
    let home = Home::new();
    let (source, program) = (home.path("main.c"), home.path("server"));
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let mut build = Command::new("musl-gcc");
    let built = build.arg("-static").arg("-o").arg(&program).arg(&source).status();
    assert!(built.expect("musl-tools must be installed: cargo xtask servers").success());
    let map = format!("80={}", home.path("s.sock").display());
    let words = ["run", "--quiet", "--listen", &map, "--", program.to_str().unwrap()];
    let ended = home.run(&words);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("it is a static program"), "{}", ended.stderr);
    assert!(ended.stderr.contains("it listens at its port as before"), "{}", ended.stderr);
}

#[test]
fn a_dry_run_shows_where_it_would_listen() {
    let home = Home::new();
    let map = format!("80={}", home.path("s.sock").display());
    let ended = home.run(&["run", "--listen", &map, "--dry-run"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let first = format!("port 80 <- {}\n    who may connect", home.path("s.sock").display());
    assert!(ended.stdout.starts_with(&first), "{}", ended.stdout);
    assert!(!home.path("s.sock").exists());
}
