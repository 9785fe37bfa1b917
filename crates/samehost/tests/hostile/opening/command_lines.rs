//! Files that a process of an ordinary user names in its command line, and what else it says of itself in /proc.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Ended, MALLORY, Machine, bounded, copy_program, wait_for};

/// A server that is its own client and does nothing else; its command line is the attack.
const SERVER: &str = "use IO::Socket::INET; my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die; \
    my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $s->sockport) or die; my $a = $s->accept; \
    $| = 1; print 'port ', $s->sockport, \"\\n\"; sleep 600";

/// Starts a copy of a program under the name of another, as MALLORY; the port that it listens at.
fn postgres(machine: &mut Machine, words: &[&str]) -> u16 {
    let program = machine.path("bin/postgres");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    if !program.exists() {
        copy_program("/usr/bin/perl", &program);
    }
    let before = machine.log().len();
    let arguments = [&["-e", SERVER], words].concat();
    machine.start_as(MALLORY, program.to_str().unwrap(), &arguments);
    wait_for("the forged server", || {
        machine.log()[before..].lines().find_map(|line| line.strip_prefix("port ")?.parse().ok())
    })
}

/// A look at the machine that ends, with what it found of the server at a port.
fn scan(machine: &Machine, port: u16) -> serde_json::Value {
    let ended: Ended = bounded(machine.command(&["scan", "--json"]));
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let found: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let ends = format!(":{port}");
    let advice = found["advice"].as_array().unwrap().iter();
    let of_it = advice.filter(|one| one["now"].as_str().unwrap().ends_with(&ends));
    assert_eq!(of_it.count(), 1, "the forged server's rules were looked for");
    found
}

/// Whether somebody opens a path while something is done; a look at it without opening is none.
fn is_opened(path: &Path, work: impl FnOnce()) -> bool {
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, path, WatchFlags::OPEN).unwrap();
    work();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    events.next().is_ok_and(|event| event.events().contains(ReadFlags::OPEN))
}

#[test]
fn a_watch_sees_what_is_opened() {
    let machine = Machine::new();
    let file = machine.write("file", "x");
    assert!(is_opened(&file, || drop(fs::File::open(&file).unwrap())));
    assert!(!is_opened(&file, || assert!(fs::metadata(&file).is_ok())));
}

#[test]
fn no_pipe_device_or_terabyte_that_a_command_line_names_is_opened() {
    let mut machine = Machine::new();
    machine.folder_of("m", MALLORY);
    let node = |name: &str, kind: FileType, device: u64| -> PathBuf {
        let path = machine.path("m").join(name);
        mknodat(CWD, &path, kind, Mode::from_raw_mode(0o666), device).unwrap();
        path
    };
    let sparse = machine.path("m/sparse");
    fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let link = machine.path("m/link");
    symlink(machine.path("m/full"), &link).unwrap();
    // A node of the machine's own in place of /dev/zero and of a watchdog: who opens it is seen.
    let files = [
        node("pipe", FileType::Fifo, 0),
        node("zero", FileType::CharacterDevice, makedev(1, 5)),
        node("full", FileType::CharacterDevice, makedev(1, 7)),
        sparse.clone(),
        link,
    ];
    for file in files {
        let port = postgres(&mut machine, &[&format!("hba_file={}", file.display())]);
        // It is a file, and has no pages: that it is too long is seen when it is open.
        if file == sparse {
            scan(&machine, port);
            continue;
        }
        assert!(!is_opened(&file, || drop(scan(&machine, port))), "{} was opened", file.display());
    }
}

#[test]
fn rules_of_somebody_else_are_not_read_for_a_process() {
    let mut machine = Machine::new();
    machine.write("bin/keep", "");
    for (name, is_read) in [("alice", false), ("own", true)] {
        let rules = "# one\n# two\nlocal all all peer\n";
        let user = if is_read { MALLORY } else { crate::support::ALICE };
        let file = machine.write_as(user, &format!("{name}/pg_hba.conf"), rules);
        let port = postgres(&mut machine, &[&format!("hba_file={}", file.display())]);
        let found = scan(&machine, port);
        let ends = format!(":{port}");
        let advice = found["advice"].as_array().unwrap().iter();
        let mut of_it = advice.filter(|one| one["now"].as_str().unwrap().ends_with(&ends));
        let told = of_it.next().unwrap().to_string().contains("line 3");
        assert_eq!(told, is_read, "{name}: {found:#}");
    }
}

#[test]
fn a_command_line_of_megabytes_is_cut() {
    let mut machine = Machine::new();
    let long = "x".repeat(100_000);
    let port = postgres(&mut machine, &[long.as_str(); 12]);
    let found = scan(&machine, port);
    let processes = found["processes"].as_array().unwrap().iter();
    let mut forged = processes.filter(|one| one["command_line"].to_string().contains("xxxx"));
    let length = forged.next().unwrap()["command_line"].to_string().len();
    assert!((60_000..70_000).contains(&length), "{length}");
}

/// The exit status of a command that gets SIGTERM while it is at work.
fn ends_with(machine: &Machine, arguments: &[&str]) -> Option<i32> {
    let child = machine
        .command(arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut child = child.unwrap();
    let pid = child.id();
    // At work when it holds a socket of the kernel's listing, or a connection.
    wait_for("the command to be at work", || {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let mut targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        targets.find(|target| target.to_string_lossy().starts_with("socket:"))
    });
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::TERM).unwrap();
    wait_for("its end", || child.try_wait().unwrap()).code()
}

#[test]
fn termination_ends_a_look_at_once() {
    let machine = Machine::new();
    // Accepts nobody, says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mysql://x@{}/", silent.local_addr().unwrap());
    for arguments in [&["scan", "--observe", "600s"][..], &["verify", &url]] {
        assert_eq!(ends_with(&machine, arguments), Some(130), "{arguments:?}");
    }
}
