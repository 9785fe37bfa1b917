//! Programs that try to get more through `run` than they had: whoever has given up rights, or never had them, stays with TCP.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::support::{Ended, MALLORY, Machine, bounded, copy_program, wait_for};

/// Says by which way somebody came: root's socket, in a directory of root's, or the port.
const SERVER: &str = "import os, socket, sys, threading
t = socket.create_server(('127.0.0.1', 0), backlog=99); u = socket.socket(socket.AF_UNIX); u.bind(sys.argv[1]); u.listen(99)
def serve(listener, word):
    while True:
        c = listener.accept()[0]
        try: c.sendall(word)
        except OSError: pass
        c.close()
threading.Thread(target=serve, args=(u, b'unix'), daemon=True).start()
with open(sys.argv[2] + '.new', 'w') as file: file.write(str(t.getsockname()[1]))
os.rename(sys.argv[2] + '.new', sys.argv[2]); serve(t, b'tcp')";

/// Root's client. What it does before it connects is put in front.
const CLIENT: &str = "
s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(s.recv(9).decode())";
const IMPORTS: &str = "import ctypes, encodings.idna, os, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
";

struct Guarded {
    machine: Machine,
    port: String,
}

impl Guarded {
    fn new() -> Self {
        let mut machine = Machine::new();
        fs::create_dir(machine.path("guarded")).unwrap();
        fs::set_permissions(machine.path("guarded"), fs::Permissions::from_mode(0o700)).unwrap();
        let (socket, file) = (machine.path("guarded/s"), machine.path("port"));
        let mut server = Command::new("/usr/bin/python3");
        server.args(["-c", SERVER]).arg(&socket).arg(&file);
        machine.start(server);
        let port = wait_for("the server", || fs::read_to_string(&file).ok());
        Guarded { machine, port }
    }

    fn command(&self, words: &[&str]) -> Command {
        let map = format!("{}={}", self.port, self.machine.path("guarded/s").display());
        self.machine.command(&[&["run", "--map", &map, "--"], words].concat())
    }

    /// By which way a Python program comes that does this first, started by these words.
    fn way(&self, prefix: &[&str], first: &str) -> Ended {
        let script = format!("{IMPORTS}{first}{CLIENT}");
        bounded(self.command(&[prefix, &["/usr/bin/python3", "-c", &script, &self.port]].concat()))
    }

    #[track_caller]
    fn assert_stays_with_tcp(&self, prefix: &[&str], first: &str, why: &str) {
        let ended = self.way(prefix, first);
        assert_eq!((ended.status, ended.stdout.trim()), (0, "tcp"), "{prefix:?} {first}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{prefix:?} {first}: {}", ended.stderr);
    }
}

/// The same command, started by these words.
fn behind(prefix: &[&str], command: &Command) -> Command {
    let mut whole = Command::new(prefix[0]);
    whole.args(&prefix[1..]).arg(command.get_program()).args(command.get_args());
    whole.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    whole
}

#[test]
fn root_itself_gets_its_socket() {
    let ended = Guarded::new().way(&[], "");
    assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
}

#[test]
fn whoever_has_become_another_user_stays_with_tcp() {
    let guarded = Guarded::new();
    let user = MALLORY.to_string();
    let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
    let why = "another user or group";
    guarded.assert_stays_with_tcp(&["setpriv", &uid, &gid, "--clear-groups"], "", why);
    guarded.assert_stays_with_tcp(&["setpriv", &gid, "--groups=4"], "", why);
    guarded.assert_stays_with_tcp(&[], &format!("os.seteuid({user})"), why);
    guarded.assert_stays_with_tcp(&[], &format!("os.setgroups([{user}])"), why);
    // A thread alone, by the system call itself, while the others remain root.
    let number = if cfg!(target_arch = "x86_64") { 117 } else { 147 };
    let thread = format!(
        "
def become():
    assert libc.syscall({number}, {user}, {user}, {user}) == 0
    s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); assert s.recv(9) == b'tcp'
one = threading.Thread(target=become); one.start(); one.join()
"
    );
    let ended = guarded.way(&[], &thread);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("1 stayed with TCP") && !ended.stderr.contains("Traceback"),
        "{}",
        ended.stderr
    );
}

#[test]
fn whoever_has_given_up_capabilities_stays_with_tcp() {
    let drop = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"];
    Guarded::new().assert_stays_with_tcp(&drop, "", "fewer capabilities");
}

#[test]
fn whoever_is_in_another_namespace_or_root_stays_with_tcp() {
    let guarded = Guarded::new();
    guarded.assert_stays_with_tcp(&["unshare", "--mount"], "", "mount namespace");
    guarded.assert_stays_with_tcp(&["unshare", "--user", "--map-root-user"], "", "");
    guarded.assert_stays_with_tcp(&[], "os.chroot('/srv')", "another root directory");
}

/// The same directory by another mount: what is mounted below it is hidden, and the socket may be there.
#[test]
fn whoever_has_the_root_by_another_mount_stays_with_tcp() {
    let guarded = Guarded::new();
    let jail = guarded.machine.path("jail");
    fs::create_dir(&jail).unwrap();
    let mount = "mount --bind / \"$0\" && exec \"$@\"";
    for (jail, way) in [(jail.to_str().unwrap(), "tcp"), ("/", "unix")] {
        let script = format!("{IMPORTS}os.chroot('{jail}'){CLIENT}");
        let command = guarded.command(&["/usr/bin/python3", "-c", &script, &guarded.port]);
        let mounted = guarded.machine.path("jail");
        let prefix = ["unshare", "--mount", "sh", "-c", mount, mounted.to_str().unwrap()];
        let ended = bounded(behind(&prefix, &command));
        assert_eq!((ended.status, ended.stdout.trim()), (0, way), "{jail}: {}", ended.stderr);
    }
}

/// A socket leads to where it was made, whoever has it.
#[test]
fn a_socket_of_another_network_namespace_is_left_alone() {
    let guarded = Guarded::new();
    let first = "
home = os.open('/proc/self/ns/net', os.O_RDONLY); assert libc.unshare(0x40000000) == 0
far = socket.socket(); assert libc.setns(home, 0) == 0
try: far.connect(('127.0.0.1', int(sys.argv[1]))); print('connected')
except OSError: pass";
    let ended = guarded.way(&[], first);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
    assert!(ended.stderr.contains("a socket of another network namespace"), "{}", ended.stderr);
}

/// Numbers of threads mean others there: their rights would be looked at.
#[test]
fn a_proc_of_another_pid_namespace_is_refused() {
    let guarded = Guarded::new();
    let script = format!("{IMPORTS}{CLIENT}");
    let command = guarded.command(&["/usr/bin/python3", "-c", &script, &guarded.port]);
    let ended = bounded(behind(&["unshare", "--pid", "--fork"], &command));
    assert_eq!((ended.status, &*ended.stdout), (3, ""), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("PID namespace") && ended.stderr.contains("--mount-proc"),
        "{}",
        ended.stderr
    );
    let ended = bounded(behind(&["unshare", "--pid", "--fork", "--mount-proc"], &command));
    assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
}

#[test]
fn whoever_has_restricted_itself_stays_with_tcp() {
    let guarded = Guarded::new();
    // A filter that lets everything through: what it forbids cannot be seen.
    let filter = "
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 1, ctypes.addressof(code)))
assert libc.prctl(22, 2, program) == 0";
    guarded.assert_stays_with_tcp(&[], filter, "a filter of system calls of its own");
    guarded.assert_stays_with_tcp(&[], "libc.syscall(446, -1, 0)", "Landlock");
}

/// The same call by the numbers of x32, which kernels without x32 stop too, and of i386.
#[cfg(target_arch = "x86_64")]
#[test]
fn whoever_has_restricted_itself_by_another_abi_stays_with_tcp() {
    let guarded = Guarded::new();
    guarded.assert_stays_with_tcp(&[], "libc.syscall(446 | 0x40000000, -1, 0)", "Landlock");
    // push rbx; mov eax, 446; mov ebx, -1; xor ecx, ecx; int 0x80; pop rbx; ret
    let first = "
import mmap
page = mmap.mmap(-1, 4096, prot=7); page[:17] = bytes.fromhex('53b8be010000bbffffffff31c9cd805bc3')
code = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
print('none' if code == -38 else '', end='')";
    let ended = guarded.way(&[], first);
    if ended.status == 128 + 11 || ended.stdout.starts_with("none") {
        let what = "without calls of 32 bits in this kernel: landlock_restrict_self by int 0x80";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("NOT TESTED {what}\n").as_bytes());
        return;
    }
    assert_eq!((ended.status, ended.stdout.trim()), (0, "tcp"), "{}", ended.stderr);
    assert!(ended.stderr.contains("Landlock"), "{}", ended.stderr);
}

/// What the kernel would not write to, `run` does not write to either.
#[test]
fn an_answer_is_not_written_to_memory_that_is_constant() {
    let guarded = Guarded::new();
    let first = "
libc.mmap.restype = ctypes.c_void_p; libc.mmap.argtypes = [ctypes.c_void_p] + [ctypes.c_size_t] * 5
page = libc.mmap(None, 4096, 1, 0x22, 2**64 - 1, 0); room = ctypes.c_int(16)
t = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); assert t.recv(9) == b'unix'
at = ctypes.c_void_p(page); assert libc.getpeername(t.fileno(), at, ctypes.byref(room)) == -1
assert ctypes.get_errno() == 14 and ctypes.string_at(page, 16) == bytes(16)
fine = ctypes.create_string_buffer(16); assert libc.getpeername(t.fileno(), fine, ctypes.byref(room)) == 0
assert fine.raw[4:8] == bytes([127, 0, 0, 1])";
    let ended = guarded.way(&[], first);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
}

/// The kernel loads modules, and takes what is not for everybody, by the rights of the caller.
#[test]
fn whoever_has_given_up_rights_chooses_no_congestion_control_by_those_of_run() {
    let guarded = Guarded::new();
    let first = format!(
        "
t = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); assert t.recv(9) == b'unix'
t.setsockopt(6, 13, b'reno'); assert t.getsockopt(6, 13, 16)[:4] == b'reno'
os.seteuid({MALLORY})
try: t.setsockopt(6, 13, b'cubic'); print('set')
except PermissionError: pass
t.setsockopt(6, 1, 1); os.seteuid(0)"
    );
    let ended = guarded.way(&[], &first);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
}

#[test]
fn a_socket_with_a_mark_or_a_device_stays_with_tcp() {
    let guarded = Guarded::new();
    for (option, name) in [("36, 7", "SO_MARK"), ("25, b'lo'", "SO_BINDTODEVICE")] {
        let first = format!(
            "
t = socket.socket(); t.setsockopt(1, {option}); t.connect(('127.0.0.1', int(sys.argv[1]))); assert t.recv(9) == b'tcp'"
        );
        let ended = guarded.way(&[], &first);
        assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
        assert!(ended.stderr.contains(name), "{}", ended.stderr);
    }
}

/// A supervisor that can open nothing leaves the program its TCP, and recovers.
#[test]
fn a_supervisor_without_descriptors_harms_nobody() {
    let guarded = Guarded::new();
    let first = "
import resource
few = lambda most: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (most, 4096))
t = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); assert t.recv(9) == b'unix'
few(3); t = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); assert t.recv(9) == b'tcp'
assert t.getpeername()[0] == '127.0.0.1'; few(1024)";
    let ended = guarded.way(&[], first);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
    assert!(ended.stderr.contains("Too many open files"), "{}", ended.stderr);
}

/// The other side of the next test: he has the socket that he may reach.
#[test]
fn a_user_has_the_socket_that_he_may_reach() {
    let guarded = Guarded::new();
    fs::set_permissions(guarded.machine.path("guarded"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(guarded.machine.path("guarded/s"), fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!("{IMPORTS}print(os.geteuid()){CLIENT}");
    let mut command = guarded.command(&["/usr/bin/python3", "-c", &script, &guarded.port]);
    command.uid(MALLORY).gid(MALLORY);
    let ended = bounded(command);
    assert_eq!((ended.status, ended.stdout), (0, format!("{MALLORY}\nunix\n")), "{}", ended.stderr);
}

#[test]
fn a_user_gets_no_socket_that_he_may_not_reach() {
    let guarded = Guarded::new();
    let script = format!("{IMPORTS}{CLIENT}");
    let mut command = guarded.command(&["/usr/bin/python3", "-c", &script, &guarded.port]);
    command.uid(MALLORY).gid(MALLORY);
    let ended = bounded(command);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "tcp"), "{}", ended.stderr);
    assert!(ended.stderr.contains("Permission denied"), "{}", ended.stderr);
}

#[test]
fn set_user_id_programs_have_no_other_user() {
    let guarded = Guarded::new();
    let program = guarded.machine.path("id");
    copy_program("/usr/bin/id", &program);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let words = [program.to_str().unwrap(), "-u"];
    let mut without = Command::new(words[0]);
    without.arg(words[1]).uid(MALLORY).gid(MALLORY);
    assert_eq!(bounded(without).stdout.trim(), "0", "/srv lets programs set their user");
    let mut command = guarded.command(&words);
    command.uid(MALLORY).gid(MALLORY);
    assert_eq!(bounded(command).stdout.trim(), MALLORY.to_string());
}

#[test]
fn programs_with_capabilities_of_their_file_have_none() {
    let guarded = Guarded::new();
    let (program, secret) = (guarded.machine.path("cat"), guarded.machine.write("secret", "root's"));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    copy_program("/usr/bin/cat", &program);
    let set = Command::new("setcap").arg("cap_dac_override+ep").arg(&program).status();
    assert!(set.expect("libcap2-bin must be installed: cargo xtask servers").success());
    let words = [program.to_str().unwrap(), secret.to_str().unwrap()];
    let mut without = Command::new(words[0]);
    without.arg(words[1]).uid(MALLORY).gid(MALLORY);
    assert_eq!(bounded(without).stdout, "root's", "/srv lets files have capabilities");
    let mut command = guarded.command(&words);
    command.uid(MALLORY).gid(MALLORY);
    let ended = bounded(command);
    assert_eq!((ended.status, &*ended.stdout), (1, ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("Permission denied"), "{}", ended.stderr);
}

/// Another thread changes the address while it is looked at: what is connected is a mapped port or TCP, and nothing hangs.
#[test]
fn an_address_that_changes_meanwhile_leads_to_nothing_else() {
    let guarded = Guarded::new();
    let first = "
good = struct.pack('=H', socket.AF_INET) + struct.pack('!H', int(sys.argv[1])) + bytes([127, 0, 0, 1]) + bytes(8)
bad = struct.pack('=H', socket.AF_INET) + struct.pack('!H', 1) + bytes([127, 0, 0, 1]) + bytes(8)
memory = ctypes.create_string_buffer(good, 16); going = True
def change():
    while going: ctypes.memmove(memory, bad, 16); ctypes.memmove(memory, good, 16)
one = threading.Thread(target=change); one.start()
for _ in range(200):
    s = socket.socket()
    if libc.connect(s.fileno(), memory, 16) == 0: assert s.recv(9) in (b'unix', b'tcp')
    else: assert ctypes.get_errno() == 111
    s.close()
for wrong in (0, 1, 2**63): assert libc.connect(socket.socket().fileno(), ctypes.c_void_p(wrong), 16) == -1
for length in (0, 1, 15): assert libc.connect(socket.socket().fileno(), good, length) == -1
going = False; one.join()";
    let ended = guarded.way(&[], first);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "unix"), "{}", ended.stderr);
}

/// Not even the address of its call can be read: it went on over TCP, and nobody may say that it did not connect.
#[test]
fn what_may_not_be_looked_at_is_counted_and_named() {
    let guarded = Guarded::new();
    let folder = guarded.machine.folder_of("own", MALLORY);
    let program = folder.join("samehost");
    copy_program(env!("CARGO_BIN_EXE_samehost"), &program);
    let map = format!("{}=/nowhere.sock", guarded.port);
    // The process itself, and a child that has it from its parent.
    let forked = "libc.prctl(4, 0, 0, 0, 0)
child = os.fork()
if child: os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))";
    for first in ["libc.prctl(4, 0, 0, 0, 0)", forked] {
        let script = format!("{IMPORTS}{first}{CLIENT}");
        let mut command = Command::new(&program);
        command.args(["run", "--map", &map, "--", "/usr/bin/python3", "-c", &script, &guarded.port]);
        command.uid(MALLORY).gid(MALLORY).current_dir(&folder).env("HOME", &folder);
        let ended = bounded(command);
        assert_eq!((ended.status, ended.stdout.trim()), (0, "tcp"), "{}", ended.stderr);
        assert!(ended.stderr.contains("python3: 1 connection that could not be seen"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("none of the mapped ports"), "{}", ended.stderr);
    }
}

/// Ctrl-C and Ctrl-\ for programs that are in another session or process group than the terminal's.
#[test]
fn signals_of_the_terminal_reach_a_session_of_its_own() {
    let guarded = Guarded::new();
    // As a shell at a terminal starts a program, whatever these tests were started with.
    let terminal = "import os, pty, signal, sys, time
for one in signal.SIGINT, signal.SIGQUIT: signal.signal(one, signal.SIG_DFL)
key, words = sys.argv[1], sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0: os.execvp(words[0], words)
said = b''
while b'begun' not in said: said += os.read(terminal, 999)
os.write(terminal, b'\\x03' if key == 'interrupt' else b'\\x1c')
until = time.time() + 10
while time.time() < until:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended: print(os.waitstatus_to_exitcode(status)); break
    time.sleep(0.02)
else: print('goes on'); os.kill(pid, 9)";
    let group = "import os, time; os.setpgid(0, 0); print('begun', flush=True); time.sleep(60)";
    for (key, status) in [("interrupt", "130"), ("quit", "131")] {
        for words in [
            &["setsid", "sh", "-c", "echo begun; exec sleep 60"][..],
            &["sh", "-c", "echo begun; exec sleep 60"],
            &["/usr/bin/python3", "-c", group],
        ] {
            let command = guarded.command(words);
            let mut typed = Command::new("/usr/bin/python3");
            typed.args(["-c", terminal, key]).arg(command.get_program()).args(command.get_args());
            typed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let ended = bounded(typed);
            assert_eq!(ended.stdout.trim(), status, "{key} {words:?}: {}", ended.both());
        }
    }
}

/// Gives the number of a socket to something else while the socket is exchanged, in several ways, and lastly does not.
const TAKES_THE_NUMBER: &str = "
import time
address = struct.pack('=HH4s8x', socket.AF_INET, socket.htons(int(sys.argv[1])), socket.inet_aton('127.0.0.1'))
def log(): return os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
def by_dup2(fd): os.dup2(log(), fd)
def by_open(fd):
    os.close(fd); opened = log()
    if opened != fd: os.dup2(opened, fd)
def by_a_pipe(fd): os.dup2(os.pipe()[1], fd)
def by_a_socket(fd): os.dup2(socket.socket().detach(), fd)
def by_nothing(fd): pass
for way in by_dup2, by_open, by_a_pipe, by_a_socket, by_nothing:
    fd = socket.socket().detach()
    connecting = threading.Thread(target=libc.connect, args=(fd, address, 16)); connecting.start()
    time.sleep(1.5); way(fd); put = os.fstat(fd).st_ino; connecting.join()
    print(way.__name__, 'kept' if os.fstat(fd).st_ino == put else 'exchanged', flush=True)";

/// The looks at a socket and its exchange are microseconds apart, and hit by chance. So what `run` does in between, a `connect` of
/// its own, is held up for a second, and so is the program's: the number is given away in the middle of the second one.
#[test]
fn what_takes_the_number_of_a_socket_while_it_is_exchanged_stays_what_it_is() {
    let guarded = Guarded::new();
    let (script, log) = (format!("{IMPORTS}{TAKES_THE_NUMBER}"), guarded.machine.path("its.log"));
    let log = log.display().to_string();
    let command = guarded.command(&["/usr/bin/python3", "-c", &script, &guarded.port, &log]);
    let slowly = ["strace", "-f", "-qq", "-o", "/dev/null"];
    let held_up = ["-e", "trace=connect", "-e", "inject=connect:delay_enter=1000000"];
    let ended = bounded(behind(&[&slowly[..], &held_up].concat(), &command));
    let ways = ["by_dup2 kept", "by_open kept", "by_a_pipe kept", "by_a_socket kept", "by_nothing exchanged"];
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), ways, "{}", ended.stderr);
    assert_eq!(fs::read(&log).unwrap(), b"", "nothing of the connection is in the log");
}
