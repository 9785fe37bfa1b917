//! `run --preload`: what only it has to prove, and what it cannot.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use samehost_testing::Ended;

use super::{CARRIED_OVER, LIKE_TCP, PRELOAD, Redis, TOOLS, python_by};
use crate::support::{Home, SAMEHOST, rest, send};

/// Programs that load their network functions in other ways, told 127.0.0.1 and a port; each prints what Redis says of it.
const PHP: &str = "$s = fsockopen('127.0.0.1', (int)$argv[1]); fwrite($s, \"client info\\r\\n\"); fgets($s); echo fgets($s);";
const NODE: &str = "const s = require('net').connect(+process.argv[1], '127.0.0.1');
s.on('connect', () => { s.setNoDelay(true); s.setKeepAlive(true, 1000); s.write('client info\\r\\n') });
s.on('data', d => { console.log(String(d), s.remoteAddress, s.remotePort, s.localAddress); s.end() })";
const JAVA: &str = "import java.net.*; import java.nio.*; import java.nio.channels.*;
public class Main { public static void main(String[] words) throws Exception {
    var to = new InetSocketAddress(\"127.0.0.1\", Integer.parseInt(words[0]));
    var plain = new Socket(); plain.setTcpNoDelay(true); plain.connect(to, 5000);
    plain.getOutputStream().write(\"client info\\r\\n\".getBytes());
    var bytes = new byte[4096]; System.out.println(new String(bytes, 0, plain.getInputStream().read(bytes)));
    System.out.println(plain.getRemoteSocketAddress() + \" \" + plain.getTcpNoDelay());
    var channel = SocketChannel.open(to);
    channel.write(ByteBuffer.wrap(\"client info\\r\\n\".getBytes()));
    var buffer = ByteBuffer.allocate(4096); channel.read(buffer);
    System.out.println(new String(buffer.array()) + channel.getRemoteAddress());
} }";

#[test]
fn clients_in_php_node_and_java_have_the_unix_socket() {
    let redis = Redis::start();
    let port = redis.port.to_string();
    let source = redis.home.path("run/Main.java");
    fs::write(&source, JAVA).unwrap();
    let clients: [&[&str]; 3] = [
        &["php", "-r", PHP, "--", &port],
        &["node", "-e", NODE, &port],
        &["java", source.to_str().unwrap(), &port],
    ];
    for words in clients {
        let ended = redis.run_by(PRELOAD, words);
        assert_eq!(ended.status, 0, "{words:?}: {}", ended.stderr);
        assert!(ended.stdout.contains(&redis.over_unix()), "{words:?}: {}", ended.stdout);
        assert!(!ended.stdout.contains("addr=127.0.0.1"), "{words:?}: {}", ended.stdout);
        assert!(words[0] == "php" || ended.stdout.contains("127.0.0.1"), "{words:?}: {}", ended.stdout);
    }
}

#[test]
fn curl_has_the_unix_socket() {
    let home = Home::new();
    let server = home.serve("http", &[]);
    let (port, path) = (server.tcp.rsplit(':').next().unwrap(), server.unix.trim_start_matches("unix:"));
    let (map, url) = (format!("{port}={path}"), format!("http://127.0.0.1:{port}/"));
    let words = ["run", "--preload", "--map", &map, "--", "curl", "-s", "-o", "/dev/null"];
    let ended = home.run(&[&words[..], &["-w", "%{http_code} %{remote_ip}", &url]].concat());
    assert_eq!((ended.status, &*ended.stdout), (0, "200 127.0.0.1"), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 connection over Unix sockets"), "{}", ended.stderr);
}

#[test]
fn names_and_options_are_those_of_tcp() {
    let redis = Redis::start();
    let ended = python_by(
        PRELOAD,
        &redis,
        &format!(
            "import struct
T = socket.IPPROTO_TCP
s = socket.socket(); s.setsockopt(T, socket.TCP_NODELAY, 1)
{CARRIED_OVER}assert s.getsockopt(T, socket.TCP_NODELAY) == 1
assert struct.unpack('ll', s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)) == (3, 0)
s.setsockopt(T, socket.TCP_KEEPIDLE, 77); s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
assert s.getsockopt(T, socket.TCP_KEEPIDLE) == 7200, 'it is taken, and not kept'
assert s.getsockopt(T, socket.TCP_INFO, 104)[0] == 1, 'established'
s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3); assert s.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 0
{LIKE_TCP}print('as TCP', flush=True)
# What was executed since has the same socket.
os.set_inheritable(s.fileno(), True)
os.execvp('python3', ['python3', '-c', f'import socket; print(socket.socket(fileno={{s.fileno()}}).getpeername()[0])'])"
        ),
    );
    assert_eq!((ended.status, &*ended.stdout), (0, "as TCP\n127.0.0.1\n"), "{}", ended.stderr);
}

#[test]
fn epoll_sets_are_noticed() {
    let redis = Redis::start();
    let ended = python_by(
        PRELOAD,
        &redis,
        "e = select.epoll()
s = socket.socket(); e.register(s); s.connect(('127.0.0.1', port)); e.unregister(s); number = s.fileno(); print(said(s)); s.close()
s = socket.socket(); assert s.fileno() == number; s.connect(('127.0.0.1', port)); print(said(s)); s.close()
s = socket.socket(); e.register(s); s.close()
s = socket.socket(); assert s.fileno() == number; s.connect(('127.0.0.1', port)); print(said(s)); s.close()
s = socket.socket(); e.register(s); e.unregister(s); s.connect(('127.0.0.1', port)); print(said(s))",
    );
    assert_eq!((ended.status, &*ended.stdout), (0, "tcp\nunix\nunix\nunix\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 over TCP\n    it was in an epoll set before"), "{}", ended.stderr);
}

#[test]
fn a_queue_that_is_full_and_a_socket_that_is_away_lead_to_tcp() {
    let redis = Redis::start();
    fs::rename(redis.socket(), redis.home.path("run/away.sock")).unwrap();
    let port = redis.port.to_string();
    let ended = redis.run_by(PRELOAD, &["redis-cli", "-p", &port, "client", "list"]);
    assert!(ended.status == 0 && ended.stdout.contains("addr=127.0.0.1:"), "{ended:?}");
    let why = "1 over TCP\n    the socket does not answer: No such file";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    let ended = python_by(
        PRELOAD,
        &redis,
        &format!(
            "u = socket.socket(socket.AF_UNIX); u.bind('{}'); u.listen(0)
full = [socket.socket(socket.AF_UNIX) for _ in range(3)]
for one in full: one.setblocking(False); one.connect_ex(u.getsockname())
print(said(plain()))",
            redis.socket()
        ),
    );
    assert_eq!((ended.status, &*ended.stdout), (0, "tcp\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("temporarily unavailable"), "{}", ended.stderr);
}

#[test]
fn it_works_inside_of_another_run() {
    let redis = Redis::start();
    let (map, port) = (redis.map(), redis.port.to_string());
    let inner =
        [SAMEHOST, "run", "--preload", "--map", &map, "--", "redis-cli", "-p", &port, "client", "info"];
    let ended = redis.home.run(&[&["run", "--quiet", "--map", "1=/nowhere", "--"], &inner[..]].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains(&redis.over_unix()), "{}", ended.stdout);
    assert!(ended.stderr.contains("1 connection over Unix sockets"), "{}", ended.stderr);
}

/// The program is not told, and goes on; nobody removes the directory.
#[test]
fn a_program_whose_run_was_killed_goes_on() {
    let redis = Redis::start();
    let script = format!(
        "{TOOLS}print(said(plain()), flush=True); sys.stdin.readline()
print(said(plain()), subprocess.run(['redis-cli', '-p', str(port), 'ping'], capture_output=True, text=True).stdout, flush=True)"
    );
    let mut command = redis.command(PRELOAD, &["python3", "-c", &script, &redis.port.to_string()]);
    command.env("TMPDIR", redis.home.path("run")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "unix\n");
    send(child.id(), Signal::KILL);
    child.wait().unwrap();
    drop(child.stdin.take());
    assert_eq!(rest(lines), "unix PONG\n\n");
}

#[test]
fn what_was_preloaded_before_stays_and_nothing_is_left_behind() {
    let redis = Redis::start();
    let before = "/nowhere/before.so";
    let mut command = redis.command(PRELOAD, &["sh", "-c", "echo $LD_PRELOAD; ls -d $TMPDIR/samehost-run-*"]);
    let ended =
        Ended::of(&command.env("LD_PRELOAD", before).env("TMPDIR", redis.home.path("run")).output().unwrap());
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{ended:?}");
    assert_eq!(lines[0], format!("{before}:{}/library.so", lines[1]));
    assert!(!std::path::Path::new(lines[1]).exists());
}

#[test]
fn what_does_not_go_together_is_said() {
    let home = Home::new();
    let ended = home.run(&["run", "--preload", "--map", "1=/a", "--log", "/dev/null", "--", "true"]);
    assert!(ended.status == 2 && ended.stderr.contains("--log is not to be had"), "{ended:?}");
    let mut command = home.command(&["run", "--preload", "--map", "1=/a", "--", "true"]);
    let ended = Ended::of(&command.env("TMPDIR", "/tmp/a b").output().unwrap());
    assert_eq!(ended.status, 0, "another place is taken: {}", ended.stderr);
}
