//! What a program sees of a socket that was replaced, and which ones are not.

use std::fs;

use super::{CARRIED_OVER, LIKE_TCP, PRELOAD, Redis, SECCOMP, python, python_by};
use crate::support::Home;

#[test]
fn blocking_and_non_blocking_programs_have_the_unix_socket() {
    let redis = Redis::start();
    for way in [SECCOMP, PRELOAD] {
        let ended = python_by(
        way,
        &redis,
        "print(said(plain()))
s = socket.socket(); s.setblocking(False)
try: s.connect(('127.0.0.1', port))
except BlockingIOError: pass
e = select.epoll(); e.register(s, select.EPOLLOUT)
assert e.poll(5)[0][0] == s.fileno() and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert not s.getblocking() and not os.get_blocking(s.fileno()) and not os.get_inheritable(s.fileno())
print(said(s))
s = socket.socket(); os.set_inheritable(s.fileno(), True); s.settimeout(9); s.connect(('127.0.0.1', port))
assert os.get_inheritable(s.fileno())
print(said(s))
import asyncio
async def main():
    r, w = await asyncio.open_connection('127.0.0.1', port)
    w.write(b'client info\\r\\n'); print('unix' if b'.sock:0 ' in await r.read(4096) else 'tcp', w.get_extra_info('peername')[0])
asyncio.run(main())",
    );
        assert_eq!(
            (ended.status, &*ended.stdout),
            (0, "unix\nunix\nunix\nunix 127.0.0.1\n"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn names_and_options_are_those_of_tcp() {
    let redis = Redis::start();
    let ended = python(
        &redis,
        &format!(
            "import struct
T = socket.IPPROTO_TCP
s = socket.socket(); s.setsockopt(T, socket.TCP_NODELAY, 1); s.setsockopt(T, socket.TCP_KEEPIDLE, 77)
{CARRIED_OVER}assert s.getsockname() == (host, own), 'it stays'
assert s.getsockopt(T, socket.TCP_NODELAY) == 1 and s.getsockopt(T, socket.TCP_KEEPIDLE) == 77
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
assert struct.unpack('ll', s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)) == (3, 0)
s.setsockopt(T, socket.TCP_NODELAY, 0); assert s.getsockopt(T, socket.TCP_NODELAY) == 0
s.setsockopt(T, socket.TCP_USER_TIMEOUT, 5000); assert s.getsockopt(T, socket.TCP_USER_TIMEOUT) == 5000
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16); assert s.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 16
assert s.getsockopt(T, socket.TCP_INFO, 104)[0] == 1, 'established'
{LIKE_TCP}print('as TCP')"
        ),
    );
    assert_eq!((ended.status, &*ended.stdout), (0, "as TCP\n"), "{}", ended.stderr);
}

#[test]
fn sockets_that_something_else_holds_stay_with_tcp() {
    let redis = Redis::start();
    for way in [SECCOMP, PRELOAD] {
        let ended = python_by(
        way,
        &redis,
        "s = socket.socket(); e = select.epoll(); e.register(s, select.EPOLLOUT); s.connect(('127.0.0.1', port))
assert e.poll(5); print(said(s))
s = socket.socket(); twin = s.dup(); s.connect(('127.0.0.1', port)); print(said(s), said(twin))
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.connect(('127.0.0.1', port)); print(said(s))
import fcntl
s = socket.socket(); fcntl.fcntl(s, fcntl.F_SETFL, os.O_ASYNC); s.connect(('127.0.0.1', port)); print(said(s))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('127.0.0.1', port)); print(u.getpeername()[1] == port)",
    );
        assert_eq!((ended.status, &*ended.stdout), (0, "tcp\ntcp tcp\ntcp\ntcp\nTrue\n"), "{}", ended.stderr);
        let why = [
            "epoll set",
            "duplicated",
            "bound",
            "O_ASYNC",
            "0 connections over Unix sockets, 4 stayed with TCP",
        ];
        for why in why {
            assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
        }
    }
}

/// Whenever a set was made, by whatever process: what is in one stays with TCP, and nothing else does.
#[test]
fn epoll_sets_are_noticed_whenever_they_are_made() {
    let redis = Redis::start();
    let ended = python(
        &redis,
        "def watched(e):
    s = socket.socket(); e.register(s); s.connect(('127.0.0.1', port)); e.unregister(s); return said(s)
print(said(plain()))
first = select.epoll(); print(watched(first), said(plain()))
first.close(); print(said(plain()))
second = select.epoll(); time.sleep(1.1)
print(said(plain()), watched(second), said(plain()))
third = select.epoll.fromfd(os.dup(second.fileno())); second.close(); print(watched(third), said(plain()), flush=True)
if os.fork() == 0:
    print(watched(third), said(plain()), flush=True); os._exit(0)
os.wait()",
    );
    let expected = "unix\ntcp unix\nunix\nunix tcp unix\ntcp unix\ntcp unix\n";
    assert_eq!((ended.status, &*ended.stdout), (0, expected), "{}", ended.stderr);
    assert!(ended.stderr.contains("7 connections over Unix sockets, 4 stayed"), "{}", ended.stderr);
}

/// Its program is told of bytes that the kernel has sent, which a Unix socket never tells.
#[test]
fn a_socket_that_asked_for_zero_copy_stays_with_tcp() {
    let redis = Redis::start();
    for way in [SECCOMP, PRELOAD] {
        let ended = python_by(
        way,
        &redis,
        "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, 60, 1); s.connect(('127.0.0.1', port)); print(said(s))
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, 60, 0); s.connect(('127.0.0.1', port)); print(said(s))",
    );
        assert_eq!((ended.status, &*ended.stdout), (0, "tcp\nunix\n"), "{}", ended.stderr);
        assert!(ended.stderr.contains("SO_ZEROCOPY"), "{}", ended.stderr);
    }
}

/// A call of io_uring does not stop: `SECCOMP_RET_USER_NOTIF` is for system calls.
#[test]
fn a_connect_through_io_uring_stays_with_tcp() {
    let redis = Redis::start();
    let ended = python(
        &redis,
        "import ctypes, mmap, struct
libc = ctypes.CDLL(None, use_errno=True)
about = ctypes.create_string_buffer(120); ring = libc.syscall(425, 4, about)
if ring < 0: print('none'); sys.exit()
sq, cq = struct.unpack_from('7I', about, 40), struct.unpack_from('7I', about, 80)
submissions = mmap.mmap(ring, sq[6] + 16); entries = mmap.mmap(ring, 256, offset=0x10000000)
completions = mmap.mmap(ring, cq[5] + 128, offset=0x8000000)
s = socket.socket(); to = ctypes.create_string_buffer(struct.pack('=H', 2) + struct.pack('!H', port) + bytes([127, 0, 0, 1]) + bytes(8), 16)
struct.pack_into('<BBHiQQ', entries, 0, 16, 0, 0, s.fileno(), 16, ctypes.addressof(to))
struct.pack_into('I', submissions, sq[6], 0); struct.pack_into('I', submissions, sq[1], 1)
assert libc.syscall(426, ring, 1, 1, 1, None, 0) == 1
print(struct.unpack_from('<Qi', completions, cq[5])[1], said(s), said(plain()))",
    );
    if ended.stdout == "none\n" {
        crate::support::not_tested("without io_uring in this kernel: its connect under run");
        return;
    }
    assert_eq!((ended.status, &*ended.stdout), (0, "0 tcp unix\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 connection over Unix sockets\n"), "{}", ended.stderr);
}

#[test]
fn a_full_queue_leads_to_tcp() {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    };
    let home = Home::new();
    let path = home.path("run/full.sock");
    let unix = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
    let (listener, address) = (unix(), SocketAddrUnix::new(&path).unwrap());
    bind(&listener, &address).unwrap();
    listen(&listener, 1).unwrap();
    let waiting: Vec<_> =
        (0..9).map_while(|_| Some(unix()).filter(|one| connect(one, &address).is_ok())).collect();
    assert!(waiting.len() < 9, "the queue never fills");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    let serving = std::thread::spawn(move || std::io::Write::write_all(&mut tcp.accept().unwrap().0, b"tcp"));
    let map = format!("{port}={}", path.display());
    let script = format!("{}print(plain().recv(9))", super::TOOLS);
    let ended = home.run(&["run", "--map", &map, "--", "python3", "-c", &script, &port]);
    serving.join().unwrap().unwrap();
    assert_eq!((ended.status, &*ended.stdout), (0, "b'tcp'\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("temporarily unavailable"), "{}", ended.stderr);
}

/// A connection that is on its way over TCP is asked about by `connect` again: it is one connection.
#[test]
fn a_connection_on_its_way_is_counted_once() {
    let home = Home::new();
    let port = samehost_testing::free_port().to_string();
    let script = format!(
        "{}t = socket.socket(); t.bind(('0.0.0.0', port)); t.listen(0); full = []
while True:
    s = socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1', port)); full.append(s)
    if not select.select([], [s], [], 0.2)[1]: break
s = socket.socket(); s.setblocking(False)
print(*[s.connect_ex(('127.0.0.2', port)) for _ in range(3)])",
        super::TOOLS
    );
    let map = format!("127.0.0.2:{port}=/nowhere");
    for way in [SECCOMP, PRELOAD] {
        let words = ["--", "python3", "-c", &script, &port];
        let ended = home.run(&[&["run", "--map", &map], way, &words[..]].concat());
        assert_eq!((ended.status, &*ended.stdout), (0, "115 114 114\n"), "{}", ended.stderr);
        assert!(ended.stderr.contains("/nowhere: 1 over TCP"), "{}", ended.stderr);
    }
}

/// A program that waits for its server by trying the same socket again.
#[test]
fn a_socket_that_is_tried_again_has_the_unix_socket_once_it_is_there() {
    let home = Home::new();
    let (port, path) = (samehost_testing::free_port().to_string(), home.path("run/late.sock"));
    let script = format!(
        "{}s = socket.socket(); print(s.connect_ex(('127.0.0.1', port)))
u = socket.socket(socket.AF_UNIX); u.bind(sys.argv[2]); u.listen()
print(s.connect_ex(('127.0.0.1', port))); s.sendall(b'x'); print(u.accept()[0].recv(1))",
        super::TOOLS
    );
    let (map, path) = (format!("{port}={}", path.display()), path.display().to_string());
    for way in [SECCOMP, PRELOAD] {
        let words = ["--", "python3", "-c", &script, &port, &path];
        let ended = home.run(&[&["run", "--map", &map], way, &words[..]].concat());
        assert_eq!((ended.status, &*ended.stdout), (0, "111\n0\nb'x'\n"), "{}", ended.stderr);
        fs::remove_file(&path).unwrap();
    }
}

/// A copy in another process is not seen: it keeps the socket that was never connected. The documentation says so.
#[test]
fn a_copy_in_another_process_is_not_connected() {
    let redis = Redis::start();
    for way in [SECCOMP, PRELOAD] {
        let ended = python_by(
            way,
            &redis,
            "s = socket.socket(); r, w = os.pipe(); sys.stdout.flush()
if os.fork() == 0:
    os.read(r, 1)
    try: s.getpeername()
    except OSError as error: print(error.errno, flush=True)
    os._exit(0)
s.connect(('127.0.0.1', port)); os.write(w, b'1'); os.wait(); print(said(s))",
        );
        assert_eq!((ended.status, &*ended.stdout), (0, "107\nunix\n"), "{}", ended.stderr);
    }
}

#[test]
fn without_the_socket_the_program_has_tcp_and_its_errors() {
    let redis = Redis::start();
    let port = redis.port.to_string();
    fs::rename(redis.socket(), redis.home.path("run/away.sock")).unwrap();
    let ended = redis.run(&["redis-cli", "-p", &port, "client", "list"]);
    assert!(ended.status == 0 && ended.stdout.contains("addr=127.0.0.1:"), "{ended:?}");
    let why = "1 over TCP\n    the socket does not answer: No such file";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    // A file that nobody listens at, and a port that nobody listens at.
    let refused = samehost_testing::free_port().to_string();
    drop(std::os::unix::net::UnixListener::bind(redis.socket()).unwrap());
    let script = format!("{}plain()", super::TOOLS);
    let words = ["python3", "-c", &script, &refused];
    let without = std::process::Command::new(words[0]).args(&words[1..]).output().unwrap();
    let map = format!("{refused}={}", redis.socket());
    let ended = redis.home.run(&[&["run", "--quiet", "--map", &map, "--"], &words[..]].concat());
    assert_eq!((ended.status, ended.stderr), (1, String::from_utf8(without.stderr).unwrap()));
}

#[test]
fn a_log_has_a_line_for_each_connection_to_a_mapped_port() {
    let redis = Redis::start();
    let (log, map, port) = (redis.home.path("log"), redis.map(), redis.port.to_string());
    let words = [
        "run",
        "--log",
        log.to_str().unwrap(),
        "--quiet",
        "--map",
        &map,
        "--",
        "redis-cli",
        "-p",
        &port,
        "ping",
    ];
    for lines in 1..3 {
        let ended = redis.home.run(&words);
        assert_eq!((ended.status, &*ended.stdout, &*ended.stderr), (0, "PONG\n", ""));
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(text.contains(&format!(" redis-cli 127.0.0.1:{port} port {port} -> ")), "{text}");
        assert!(text.ends_with(": connected\n"), "{text}");
    }
}

/// Calls of 32 bits have other numbers, and do not stop.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_connect_of_32_bits_stays_with_tcp() {
    let redis = Redis::start();
    let ended = python(
        &redis,
        "import ctypes, mmap, struct
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)
# push rbx; mov eax, 362; mov ebx, edi; mov ecx, esi; int 0x80; pop rbx; ret
page[:14] = bytes.fromhex('53b86a01000089fb89f1cd805bc3')
page[64:80] = struct.pack('=H', 2) + struct.pack('!H', port) + bytes([127, 0, 0, 1]) + bytes(8)
at = ctypes.addressof(ctypes.c_char.from_buffer(page)); assert at < 2**32
connect = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_int)(at)
s = socket.socket(); result = connect(s.fileno(), at + 64, 16); print(result, said(s) if result == 0 else '')",
    );
    if ended.status == 128 + 11 || ended.stdout.starts_with("-38") {
        crate::support::not_tested("without programs of 32 bits in this kernel: their calls under run");
        return;
    }
    assert_eq!((ended.status, &*ended.stdout), (0, "0 tcp\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("none of the mapped ports"), "{}", ended.stderr);
}
