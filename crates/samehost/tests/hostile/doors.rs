//! A port and a Unix socket that are doors of two servers: what a program writes must not be divided among them. Real servers, whose
//! data are counted; and servers of one and of several processes, which are one server and are tried.

use samehost_testing::php_fpm;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use samehost_testing::mariadb::MariaDb;
use samehost_testing::postgres::Cluster;

use crate::support::{ALICE, Ended, MALLORY, Machine, bounded, copy_program, free_port, wait_for};

/// Counts in the server at a port, ten times for each connection, until a file is there or so many connections are made.
const COUNTS: &str = "import os, socket, sys, time
port, most, stop = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
made = 0
while made < most and not os.path.exists(stop):
    s = socket.create_connection(('127.0.0.1', port), 5)
    for _ in range(10):
        s.sendall(b'INCR n\\r\\n'); assert s.recv(64)[:1] == b':'
    s.close(); made += 1
    open(stop + '.made', 'w').write(str(made))
    time.sleep(0.002)
print(made)";

/// The same, of a program that begins again where its server is away.
const TRIES_AGAIN: &str = "import os, socket, sys, time
port, stop = int(sys.argv[1]), sys.argv[2]
made = 0
while not os.path.exists(stop):
    try:
        s = socket.create_connection(('127.0.0.1', port), 5)
        s.sendall(b'PING\\r\\n'); made += s.recv(64) == b'+PONG\\r\\n'; s.close()
    except OSError: time.sleep(0.01)
    open(stop + '.made', 'w').write(str(made))
    time.sleep(0.002)";

/// A server of two listeners, which are served by this process, its children by fork, or a process for each.
const SERVER: &str = "import os, socket, sys, threading
way, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def tcp(): return socket.create_server(('127.0.0.1', port), backlog=99, reuse_port=way in ('shared', 'sharing'))
def unix():
    u = socket.socket(socket.AF_UNIX); u.bind(path); os.chmod(path, 0o777); u.listen(99); return u
def serve(listener):
    while True:
        c = listener.accept()[0]
        threading.Thread(target=answer, args=(c,), daemon=True).start()
def answer(c):
    n = 0
    while c.recv(99): n += 1; c.sendall(b':%d\\r\\n' % n)
def both(t, u):
    threading.Thread(target=serve, args=(u,), daemon=True).start(); serve(t)
if way == 'workers':
    t, u = tcp(), unix()
    for _ in range(3):
        if os.fork() == 0: both(t, u)
    os.wait()
elif way == 'child':
    t = tcp(); t.set_inheritable(False)
    if os.fork() == 0: t.close(); serve(unix())
    serve(t)
elif way == 'port': serve(tcp())
elif way == 'shared': serve(tcp())
else: both(tcp(), unix())";

struct Place {
    machine: Machine,
    port: u16,
}

impl Place {
    fn new() -> Self {
        Place { machine: Machine::new(), port: free_port() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.machine.path(name)
    }

    /// A Redis at this place's port, at a socket, or at both.
    fn redis(&mut self, socket: &str, has_port: bool) -> u32 {
        let path = self.path(socket);
        let port = if has_port { self.port.to_string() } else { "0".to_owned() };
        let mut redis = Command::new("redis-server");
        redis.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--unixsocketperm", "777"]);
        redis.arg("--unixsocket").arg(&path).arg("--dir").arg(self.path(""));
        let pid = self.machine.start(redis);
        wait_for("Redis", || std::os::unix::net::UnixStream::connect(&path).ok());
        pid
    }

    fn server(&mut self, way: &str, user: u32, socket: &str) -> u32 {
        self.machine.folder_of("", user);
        let path = self.path(socket);
        let port = self.port.to_string();
        let mut server = Command::new("/usr/bin/python3");
        server.args(["-c", SERVER, way, &port]).arg(&path).uid(user).gid(user);
        let pid = self.machine.start(server);
        wait_for("the port", || std::net::TcpStream::connect(("127.0.0.1", self.port)).ok());
        if !["port", "shared"].contains(&way) {
            wait_for("the socket", || std::os::unix::net::UnixStream::connect(&path).ok());
        }
        pid
    }

    fn map(&self, socket: &str) -> String {
        format!("{}={}", self.port, self.path(socket).display())
    }

    /// `run` with these options, of the program that counts.
    fn command(&self, options: &[&str], socket: &str, most: u32) -> Command {
        let (map, port, most) = (self.map(socket), self.port.to_string(), most.to_string());
        let stop = self.path("stop").display().to_string();
        let program = ["--", "/usr/bin/python3", "-c", COUNTS, &port, &most, &stop];
        self.machine.command(&[&["run"], options, &["--map", &map], &program].concat())
    }

    fn run(&self, options: &[&str], socket: &str, most: u32) -> Ended {
        bounded(self.command(options, socket, most))
    }

    fn counted(&self, socket: &str) -> String {
        let mut client = Command::new("redis-cli");
        client.arg("-s").arg(self.path(socket)).args(["--raw", "get", "n"]);
        bounded(client).stdout.trim().to_owned()
    }

    fn begin(&self, socket: &str) -> Child {
        let mut command = self.command(&TRIAL, socket, u32::MAX);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn made(&self) -> u32 {
        let text = fs::read_to_string(self.path("stop.made")).unwrap_or_default();
        text.parse().unwrap_or(0)
    }

    /// Waits for so many connections more than there are now.
    fn wait_for_more(&self, more: u32) {
        let wanted = self.made() + more;
        wait_for("more connections", || (self.made() >= wanted).then_some(()));
    }

    fn end(&self, trial: Child) -> Ended {
        fs::write(self.path("stop"), "").unwrap();
        Ended::of(&trial.wait_with_output().unwrap())
    }
}

const TRIAL: [&str; 2] = ["--trial", "--exact"];

fn end(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    wait_for("its end", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z")).then_some(())
    });
}

#[track_caller]
fn assert_refused(ended: &Ended, status: i32, words: &[&str]) {
    assert_eq!((ended.status, ended.stdout.lines().any(|line| line.parse::<u32>().is_ok())), (status, false));
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.both());
    }
}

#[test]
fn a_trial_between_two_redis_servers_is_refused_and_run_says_it() {
    let mut place = Place::new();
    let (one, other) = (place.redis("a.sock", true), place.redis("b.sock", false));
    let words = ["two servers", &format!("process {one}"), &format!("process {other}"), "b.sock"];
    for options in
        [&TRIAL[..], &["--trial", "--exact", "--dry-run"], &["--trial", "20%", "--exact", "--quiet"]]
    {
        assert_refused(&place.run(options, "b.sock", 50), 2, &words);
    }
    assert_eq!((place.counted("a.sock"), place.counted("b.sock")), (String::new(), String::new()));
    let dry = place.run(&["--dry-run"], "b.sock", 1);
    assert!(dry.status == 0 && dry.stdout.contains("two servers"), "{}", dry.both());
    for options in [&[][..], &["--quiet"], &["--preload"]] {
        let ended = place.run(options, "b.sock", 1);
        assert!(ended.status == 0 && ended.stderr.contains("two servers"), "{options:?}: {}", ended.both());
    }
    // The other side: the socket of the server that has the port.
    let ended = place.run(&TRIAL, "a.sock", 60);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "60"), "{}", ended.stderr);
    assert_eq!(place.counted("a.sock"), "600");
    let plain = place.run(&[], "a.sock", 1);
    assert!(plain.status == 0 && !plain.stderr.contains("server"), "{}", plain.stderr);
}

#[test]
fn one_of_several_maps_between_two_servers_is_enough() {
    let mut place = Place::new();
    place.redis("a.sock", true);
    let first = place.map("a.sock");
    place.port = free_port();
    place.redis("c.sock", true);
    let ended = place.run(&["--trial", "--exact", "--map", &first], "a.sock", 5);
    assert_refused(&ended, 2, &["two servers", &place.port.to_string()]);
    let ended = place.run(&["--trial", "--exact", "--map", &first], "c.sock", 40);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "40"), "{}", ended.stderr);
}

#[test]
fn a_second_server_at_the_same_port_is_another_one() {
    let mut place = Place::new();
    place.server("both", ALICE, "own.sock");
    let ended = place.run(&TRIAL, "own.sock", 40);
    assert_eq!((ended.status, ended.stdout.trim()), (0, "40"), "{}", ended.stderr);
    // At ::1 alone: a client of localhost comes there first.
    let mut other = Command::new("/usr/bin/python3");
    let text = "import socket, sys, time
s = socket.socket(socket.AF_INET6); s.bind(('::1', int(sys.argv[1]))); s.listen(9); time.sleep(600)";
    other.args(["-c", text, &place.port.to_string()]);
    let pid = place.machine.start(other);
    wait_for("::1", || std::net::TcpStream::connect(("::1", place.port)).ok());
    let refused = place.run(&TRIAL, "own.sock", 40);
    assert_refused(&refused, 2, &["[::1]", &format!("process {pid}")]);
    // Whoever names the address has one server.
    let map = format!("127.0.0.1:{}", place.map("own.sock"));
    let port = place.port.to_string();
    let stop = place.path("stop").display().to_string();
    let program = ["--", "/usr/bin/python3", "-c", COUNTS, &port, "40", &stop];
    let named =
        place.machine.samehost(&[&["run", "--trial", "--exact", "--map", &map], &program[..]].concat());
    assert_eq!((named.status, named.stdout.trim()), (0, "40"), "{}", named.stderr);
}

/// A process that shares the port (SO_REUSEPORT) is given a part of the connections.
#[test]
fn a_process_that_shares_the_port_is_another_server() {
    let mut place = Place::new();
    place.server("shared", ALICE, "none");
    place.server("sharing", ALICE, "own.sock");
    assert_refused(&place.run(&TRIAL, "own.sock", 40), 2, &["two servers"]);
}

#[test]
fn workers_and_children_of_one_program_are_one_server() {
    for way in ["both", "workers", "child"] {
        let mut place = Place::new();
        place.server(way, ALICE, "own.sock");
        let ended = place.run(&TRIAL, "own.sock", 60);
        assert_eq!((ended.status, ended.stdout.trim()), (0, "60"), "{way}: {}", ended.stderr);
        assert!(ended.stderr.contains("over Unix sockets"), "{way}: {}", ended.stderr);
        assert!(!ended.stderr.contains("void"), "{way}: {}", ended.stderr);
    }
}

#[test]
fn postgresql_and_mariadb_are_one_server_each() {
    let client = "import socket, sys
for _ in range(40): s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.close()
print('done')";
    let (cluster, mariadb) = (Cluster::start(20), MariaDb::start(&[]));
    let maps = [
        (cluster.port, cluster.socket().trim_start_matches("unix:").to_owned()),
        (mariadb.port, mariadb.socket()),
    ];
    let machine = Machine::new();
    for (at, (port, socket)) in maps.iter().enumerate() {
        let (map, number) = (format!("{port}={socket}"), port.to_string());
        let words =
            ["run", "--trial", "--exact", "--map", &map, "--", "/usr/bin/python3", "-c", client, &number];
        let ended = machine.samehost(&words);
        assert_eq!((ended.status, ended.stdout.trim()), (0, "done"), "{map}: {}", ended.stderr);
        assert!(ended.stderr.contains("over Unix sockets"), "{map}: {}", ended.stderr);
        // The socket of the one for the port of the other.
        let crossed = format!("{port}={}", maps[1 - at].1);
        let words = ["run", "--trial", "--exact", "--map", &crossed, "--", "true"];
        assert_refused(&machine.samehost(&words), 2, &["two servers", "postgres", "maria"]);
    }
}

/// Configures PHP-FPM with two pools, of which each has one address only: the doors are those of two pools.
fn fpm(place: &mut Place, users: [&str; 2]) -> u32 {
    let socket = place.path("fpm.sock");
    let mut text = format!("[global]\nerror_log = {}\n", place.path("fpm.log").display());
    let listens = [format!("127.0.0.1:{}", place.port), socket.display().to_string()];
    for ((name, user), listen) in ["one", "two"].iter().zip(users).zip(listens) {
        text += &format!(
            "[{name}]\nuser = {user}\ngroup = www-data\nlisten = {listen}\nlisten.mode = 0666\npm = static\npm.max_children = 2\n"
        );
    }
    let configuration = place.machine.write("fpm.conf", text);
    let mut command = Command::new(php_fpm());
    command.arg("-F").arg("-y").arg(configuration);
    let pid = place.machine.start(command);
    wait_for("PHP-FPM", || std::os::unix::net::UnixStream::connect(&socket).ok());
    pid
}

#[test]
fn pools_of_php_fpm_are_one_server_where_they_are_one_users() {
    let mut place = Place::new();
    let pid = fpm(&mut place, ["www-data", "www-data"]);
    let map = place.map("fpm.sock");
    let dry = place.machine.samehost(&["run", "--trial", "--exact", "--dry-run", "--map", &map]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    let said = dry.both().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("what it serves at each of them is in its configuration"), "{said}");
    end(pid);
    place = Place::new();
    fpm(&mut place, ["www-data", "nobody"]);
    let map = place.map("fpm.sock");
    let dry = place.machine.samehost(&["run", "--trial", "--exact", "--dry-run", "--map", &map]);
    assert!(dry.status == 2 && dry.stderr.contains("nobody"), "{}", dry.both());
}

#[test]
fn a_socket_that_another_server_takes_in_mid_trial_gets_nothing_and_the_trial_is_void() {
    for is_put_in_its_place in [true, false] {
        let mut place = Place::new();
        place.redis("a.sock", true);
        place.redis("b.sock", false);
        let trial = place.begin("a.sock");
        place.wait_for_more(40);
        if is_put_in_its_place {
            fs::rename(place.path("b.sock"), place.path("a.sock")).unwrap();
        } else {
            // By way of no socket at all.
            fs::remove_file(place.path("a.sock")).unwrap();
            place.wait_for_more(5);
            fs::hard_link(place.path("b.sock"), place.path("a.sock")).unwrap();
        }
        place.wait_for_more(800);
        let ended = place.end(trial);
        assert_eq!(ended.status, 0, "{}", ended.stderr);
        assert!(ended.stderr.contains("the trial is void"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("less time"), "{}", ended.stderr);
        let mut client = Command::new("redis-cli");
        client.args(["-p", &place.port.to_string(), "--raw", "get", "n"]);
        let made: u32 = ended.stdout.trim().parse().unwrap();
        assert_eq!(bounded(client).stdout.trim(), (10 * made).to_string());
        assert_eq!(place.counted("a.sock"), "", "the other server was given nothing");
    }
}

#[test]
fn a_server_that_is_started_again_in_mid_trial_is_the_same() {
    let mut place = Place::new();
    let first = place.redis("a.sock", true);
    let stop = place.path("stop").display().to_string();
    let (map, port) = (place.map("a.sock"), place.port.to_string());
    let program = ["--", "/usr/bin/python3", "-c", TRIES_AGAIN, &port, &stop];
    let mut command =
        place.machine.command(&[&["run", "--trial", "--exact", "--map", &map], &program[..]].concat());
    let trial = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.wait_for_more(40);
    end(first);
    place.redis("a.sock", true);
    place.wait_for_more(200);
    std::thread::sleep(Duration::from_millis(10));
    let ended = place.end(trial);
    assert!(ended.status == 0 && !ended.stderr.contains("void"), "{}", ended.stderr);
    assert!(ended.stderr.contains("less time") || ended.stderr.contains("exchange time"), "{}", ended.stderr);
}

/// Whoever may not look into others' processes is told that it cannot be told.
#[test]
fn who_holds_the_doors_of_another_user_cannot_be_told_without_rights() {
    let mut place = Place::new();
    place.server("both", ALICE, "own.sock");
    let map = place.map("own.sock");
    let home = place.machine.folder_of("home", MALLORY);
    let program = home.join("samehost");
    copy_program(env!("CARGO_BIN_EXE_samehost"), &program);
    let mut dry = Command::new(program);
    dry.args(["run", "--trial", "--dry-run", "--map", &map])
        .uid(MALLORY)
        .gid(MALLORY)
        .env("HOME", &home)
        .env("XDG_STATE_HOME", &home);
    let ended = bounded(dry);
    assert!(ended.status == 3 && ended.stderr.contains("cannot be seen from here"), "{}", ended.both());
}

/// Connects until the time is over, and writes what it saw: connections, those after it had lost its parent, and errors.
const GOES_ON: &str = "import os, socket, sys, time
port, told = int(sys.argv[1]), sys.argv[2]
first, until, made, after, errors = os.getppid(), time.time() + 60, 0, 0, 0
open(told + '.begun', 'w').write(str(os.getpid()))
while time.time() < until and after < 200:
    try:
        s = socket.create_connection(('127.0.0.1', port), 5)
        s.sendall(b'PING\\r\\n'); assert s.recv(64) == b'+PONG\\r\\n'; s.close(); made += 1
    except OSError as e: errors += 1
    after += os.getppid() != first
open(told + '.new', 'w').write('%d %d' % (after, errors)); os.rename(told + '.new', told)";

/// The processes of this machine whose command has this word.
fn processes_with(word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if words.split(|byte| *byte == 0).any(|one| one == word.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// The stand-in of a `run`: its child with that verb.
fn stand_in_of(run: u32) -> u32 {
    let is_its = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.contains(&format!(") S {run} ")))
    };
    wait_for("the stand-in", || processes_with("stand-in").into_iter().find(is_its))
}

#[test]
fn a_program_goes_on_over_tcp_when_its_run_is_killed() {
    let mut place = Place::new();
    place.redis("a.sock", true);
    let (map, port) = (place.map("a.sock"), place.port.to_string());
    for round in 0_u64..10 {
        let told = place.path(&format!("told{round}"));
        let options: &[&str] = if round % 2 == 0 { &["--trial", "--exact"] } else { &[] };
        let words = [
            "--map",
            &map,
            "--quiet",
            "--",
            "/usr/bin/python3",
            "-c",
            GOES_ON,
            &port,
            told.to_str().unwrap(),
        ];
        let mut command = place.machine.command(&[&["run"], options, &words].concat());
        let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = format!("{}.begun", told.display());
        wait_for("the program", || fs::metadata(&begun).is_ok_and(|found| found.len() > 0).then_some(()));
        let stand_in = stand_in_of(run.id());
        // In the middle of whatever it does: a moment that no two rounds share.
        std::thread::sleep(Duration::from_micros(3_700 * round));
        run.kill().unwrap();
        run.wait().unwrap();
        let found = wait_for("the program's end", || fs::read_to_string(&told).ok());
        assert_eq!(found, "200 0", "round {round}");
        wait_for("the end of the stand-in", || {
            (!processes_with("stand-in").contains(&stand_in)).then_some(())
        });
    }
}

#[test]
fn signals_for_the_program_do_not_end_its_stand_in_and_it_ends_with_the_program() {
    let mut place = Place::new();
    place.redis("a.sock", true);
    let map = place.map("a.sock");
    // A child that outlives the program is one of those who may connect.
    let script = "sleep 600 & echo $! > \"$0\"";
    let left = place.path("left");
    let mut command =
        place.machine.command(&["run", "--map", &map, "--", "sh", "-c", script, left.to_str().unwrap()]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let child: u32 = wait_for("the child", || fs::read_to_string(&left).ok()?.trim().parse().ok());
    let stand_in = stand_in_of(run.id());
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
        kill_process(Pid::from_raw(stand_in as i32).unwrap(), signal).unwrap();
    }
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(processes_with("stand-in").contains(&stand_in));
    end(child);
    wait_for("the end of the stand-in", || (!processes_with("stand-in").contains(&stand_in)).then_some(()));
    // One that ends by itself leaves none either.
    let plain = place.run(&[], "a.sock", 3);
    assert_eq!((plain.status, plain.stdout.trim()), (0, "3"), "{}", plain.stderr);
}

#[test]
fn samehost_itself_is_not_tried_and_a_run_in_a_run_is_refused() {
    let mut place = Place::new();
    place.redis("a.sock", true);
    let (map, own) = (place.map("a.sock"), env!("CARGO_BIN_EXE_samehost"));
    let inner = [own, "run", "--trial", "--exact", "--map", &map, "--", "true"];
    for (options, program, words) in [
        (&TRIAL[..], &inner[..], "samehost itself"),
        (&["--trial", "--dry-run"], &inner, "samehost itself"),
        (&TRIAL, &[own, "scan"], "samehost itself"),
        (&[], &[own, "run", "--map", &map, "--", "true"], "`samehost run` in `samehost run`"),
    ] {
        let ended = place.machine.samehost(&[&["run"], options, &["--map", &map, "--"], program].concat());
        assert!(ended.status == 2 && ended.stderr.contains(words), "{program:?}: {}", ended.both());
        assert!(!ended.stderr.contains("connections · over"), "{program:?}: {}", ended.both());
    }
    // Behind a shell the inner one says it, and the outer one has no report of nothing.
    let line = format!("{own} run --trial --exact --map {map} -- true");
    let ended =
        place.machine.samehost(&[&["run"], &TRIAL[..], &["--map", &map, "--", "sh", "-c", &line]].concat());
    assert!(ended.status == 3 && ended.stderr.contains("nothing was tried"), "{}", ended.both());
    assert!(!ended.stderr.contains("connections · over"), "{}", ended.both());
    // What goes on: other verbs, and one of the two by the preloaded library.
    let verb = place.machine.samehost(&["run", "--map", &map, "--", own, "--version"]);
    assert_eq!(verb.status, 0, "{}", verb.both());
    let inner = [own, "run", "--preload", "--map", &map, "--", "true"];
    let preloaded = place.machine.samehost(&[&["run", "--map", &map, "--"], &inner[..]].concat());
    assert_eq!(preloaded.status, 0, "{}", preloaded.both());
}
