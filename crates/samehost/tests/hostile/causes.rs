//! What the kernel refuses is named as what it is, whoever asks: no `/proc`, one that hides, one of another namespace, a user
//! namespace's root, a root without rights, filters of system calls, no loopback, no size of files. Who saw nothing because it
//! may not look never ends with 0. Each is made for real, beside a server and its client in the same namespaces.

use std::process::Command;

use crate::support::{Ended, Machine, bounded};
use crate::vouching::Shop;

/// A server with a client, which write a file when they are connected.
const PAIR: &str = "import socket, sys, time
server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())
held = server.accept(); open(sys.argv[1], 'w').close(); time.sleep(600)";

/// In network, PID and mount namespaces of its own, with a pair as another user there; `$R` is the file that says so.
const OWN: &str = "ip link set lo up && setpriv --reuid 54321 --regid 54321 --clear-groups /usr/bin/python3 -c \"$PAIR\" \"$R\" & \
    until [ -e \"$R\" ]; do sleep 0.02; done;";

/// A root that lacks a right, and one that has all.
const WITHOUT_PTRACE: &str = "setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace";

struct Surroundings<'a> {
    machine: &'a Machine,
    namespaces: &'a [&'a str],
    script: String,
}

impl<'a> Surroundings<'a> {
    /// Namespaces of its own where a pair runs, and what is done to them before samehost starts.
    fn own(machine: &'a Machine, then: &str) -> Self {
        let namespaces =
            &["-n", "-p", "-f", "-m", "--mount-proc", "--propagation", "private", "--kill-child"];
        Surroundings { machine, namespaces, script: format!("{OWN} {then} \"$@\"") }
    }

    fn run(&self, words: &[&str]) -> Ended {
        let ready = self.machine.folder_of("ready", 54_321).join(format!("{}", fresh()));
        let samehost = self.machine.command(words);
        let mut command = Command::new("unshare");
        command.args(self.namespaces).args(["bash", "-c", &self.script, "bash"]);
        command.arg(samehost.get_program()).args(samehost.get_args());
        for (name, value) in samehost.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        bounded(command_with(command, &ready))
    }

    /// Each of these verbs names the reason and ends with this status.
    fn assert_says(&self, verbs: &[&[&str]], status: i32, reason: &str) {
        for words in verbs {
            let ended = self.run(words);
            let told = told(&ended);
            assert_eq!(ended.status, status, "{words:?}: {told}");
            assert!(told.contains(reason), "{words:?} has not {reason:?}: {told}");
            assert_told_once(&told);
        }
    }
}

fn command_with(mut command: Command, ready: &std::path::Path) -> Command {
    command.env("PAIR", PAIR).env("R", ready);
    command
}

fn fresh() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// All that was said, on one line.
fn told(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An error number stands once in a message.
fn assert_told_once(told: &str) {
    for (at, _) in told.match_indices("(os error ") {
        let end = told[at..].find(')').map_or(told.len(), |length| at + length + 1);
        let number = &told[at..end];
        let rest = &told[end..];
        let sentence = rest.split(" samehost: ").next().unwrap_or_default();
        assert!(!sentence.contains(number), "{number} twice: {told}");
    }
}

/// A filter of system calls around samehost, on the machine as it is.
fn filtered(machine: &Machine, rules: &str, words: &[&str]) -> Ended {
    let samehost = machine.command(words);
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/refuse.py")).arg(rules);
    command.arg(samehost.get_program()).args(samehost.get_args());
    for (name, value) in samehost.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    bounded(command)
}

/// Every verb that concludes something from what it saw.
const LOOKERS: &[&[&str]] = &[
    &["scan"],
    &["scan", "--json"],
    &["scan", "--observe", "1s"],
    &["scan", "--prometheus", "-"],
    &["switch", "--dry-run", "redis"],
    &["verify", "redis"],
    &["explain", "no-client"],
];

/// Those of them that say nothing without processes, and those that never do.
fn lookers(is_scan: bool) -> Vec<&'static [&'static str]> {
    LOOKERS.iter().copied().filter(|words| (words[0] == "scan") == is_scan).collect()
}

#[test]
fn without_proc_nobody_says_what_is_here() {
    let machine = Machine::new();
    let without = Surroundings::own(&machine, "while umount -l /proc 2>/dev/null; do :; done; exec");
    let reason = "/proc is not mounted here";
    without.assert_says(&lookers(true), 3, reason);
    without.assert_says(
        &[&["switch", "--dry-run", "redis"], &["verify", "redis"], &["how", "redis"]],
        3,
        reason,
    );
    let metrics = without.run(&["scan", "--prometheus", "-"]);
    assert!(metrics.stdout.contains("samehost_scan_success 0"), "{}", metrics.both());
}

#[test]
fn an_empty_proc_and_one_of_another_namespace_are_no_quiet_machine() {
    let machine = Machine::new();
    let empty = Surroundings::own(&machine, "mount -t tmpfs none /proc; exec");
    empty.assert_says(&lookers(true), 3, "/proc is not mounted here");
    // The procfs of a PID namespace that samehost is not in, which is mounted from inside of it.
    let script = "mkdir -p $R.d && mount -t tmpfs none $R.d && mkdir $R.d/p && \
        unshare -p -f --kill-child sh -c \"mount -t proc proc $R.d/p && touch $R.d/up && exec sleep 600\" & \
        until [ -e \"$R.d/up\" ]; do sleep 0.02; done; mount --bind $R.d/p /proc; exec";
    let foreign = Surroundings::own(&machine, script);
    foreign.assert_says(
        &[&["scan"], &["how", "redis"]],
        3,
        "/proc is of a PID namespace that this program is not in",
    );
}

#[test]
fn a_proc_that_hides_is_named_and_is_no_pid_namespace() {
    let machine = Machine::new();
    let hiding = "mount -o remount,hidepid=2 /proc;";
    let bare = Surroundings::own(&machine, &format!("{hiding} exec {WITHOUT_PTRACE}"));
    bare.assert_says(
        &[&["scan"], &["scan", "--prometheus", "-"]],
        3,
        "/proc is mounted with hidepid=invisible",
    );
    let json = bare.run(&["scan", "--json"]);
    assert!(json.status == 3 && json.stdout.contains("\"saw_no_process\":true"), "{}", json.both());
    assert!(json.stdout.contains("\"seen_as\":\"root_without_rights\""), "{}", json.both());
    let user = "setpriv --reuid 54322 --regid 54322 --clear-groups";
    let user = Surroundings::own(&machine, &format!("{hiding} exec {user}"));
    user.assert_says(&[&["scan"]], 3, "root sees them: sudo samehost scan");
    // Sound: root has CAP_SYS_PTRACE, and sees all of them.
    let root = Surroundings::own(&machine, &format!("{hiding} exec"));
    root.assert_says(&[&["scan"], &["scan", "--json"]], 0, "python3");
    let whole = root.run(&["scan"]);
    assert!(!told(&whole).contains("Not seen"), "{}", whole.both());
}

#[test]
fn a_root_without_rights_and_that_of_a_user_namespace_are_not_called_root() {
    let machine = Machine::new();
    let bare = Surroundings::own(&machine, &format!("exec {WITHOUT_PTRACE}"));
    bare.assert_says(&[&["scan"]], 3, "takes CAP_SYS_PTRACE, which this root has not");
    bare.assert_says(&[&["scan"]], 3, "seen as root without CAP_SYS_PTRACE");
    let mapped = Surroundings::own(&machine, "exec unshare --user --map-root-user");
    mapped.assert_says(&[&["scan"]], 3, "seen as root of a user namespace");
    let timed = mapped.run(&["scan", "--observe", "1s"]);
    assert!(told(&timed).contains("bpf(2) is refused: this is root of a user namespace"), "{}", timed.both());
    let own = Surroundings::own(&machine, "exec");
    own.assert_says(&[&["scan"]], 0, "seen as root");
}

/// A Redis of root's with its client; the kernel shows an ordinary user its port, and not whose the sockets are.
fn beside_a_redis<'a>(machine: &'a Machine, options: &str, user: &str) -> Surroundings<'a> {
    let script = format!(
        "redis-server --port 6379 --bind 127.0.0.1 --save '' --dir /tmp {options} >/dev/null & \
        until redis-cli ping >/dev/null 2>&1; do sleep 0.05; done; \
        redis-cli -r -1 -i 0.05 get x >/dev/null & \
        until redis-cli client list | grep -q cmd=get; do sleep 0.05; done; exec {user}"
    );
    Surroundings::own(machine, &script)
}

#[test]
fn that_a_service_has_no_socket_is_said_only_where_its_sockets_are_seen() {
    let machine = Machine::new();
    let user = "setpriv --reuid 54322 --regid 54322 --clear-groups";
    let (with, unknown) =
        ("--unixsocket $R.sock --unixsocketperm 777", "whether Redis listens on a Unix socket");
    let hidden = told(&beside_a_redis(&machine, with, user).run(&["scan"]));
    assert!(hidden.contains(&format!("{unknown} is not known: its process is not visible")), "{hidden}");
    assert!(hidden.contains("Where it has none, set: unixsocket"), "{hidden}");
    assert!(!hidden.contains("Redis listens on no Unix socket"), "{hidden}");
    // Sound: no socket is there whose holder is hidden, and root sees whose they are.
    let without = told(&beside_a_redis(&machine, "", user).run(&["scan"]));
    assert!(without.contains("Redis listens on no Unix socket. Set: "), "{without}");
    let seen = told(&beside_a_redis(&machine, with, "").run(&["scan"]));
    assert!(seen.contains("redis-cli → Redis") && !seen.contains(unknown), "{seen}");
}

#[test]
fn servers_of_a_root_that_can_become_nobody_else_are_its_own() {
    let machine = Machine::new();
    let mapped = Surroundings::own(&machine, "exec unshare --user --map-root-user");
    let ended = mapped.run(&["bench", "redis", "--budget", "5s"]);
    assert!(ended.status == 0 && ended.stdout.contains("redis"), "{}", ended.both());
}

#[test]
fn processes_of_another_pid_namespace_are_told_by_the_status_as_well() {
    let machine = Machine::new();
    let apart = "exec unshare -p -f -m --mount-proc";
    Surroundings::own(&machine, apart).assert_says(
        &[&["scan"], &["scan", "--prometheus", "-"]],
        3,
        "no process of this PID namespace has them: theirs are outside of it",
    );
}

#[test]
fn a_filter_of_system_calls_is_named_as_such() {
    let machine = Machine::new();
    let filter = "is refused by a filter of system calls (seccomp), which is on this process";
    for errno in ["EPERM", "ENOSYS", "EACCES"] {
        let timed = filtered(&machine, &format!("bpf={errno}"), &["scan", "--observe", "1s"]);
        assert!(told(&timed).contains(&format!("bpf(2) {filter}")), "{errno}: {}", timed.both());
        assert!(timed.status == 0 && !told(&timed).contains("takes root"), "{errno}: {}", timed.both());
    }
    for errno in ["EPERM", "EACCES", "EAFNOSUPPORT"] {
        let scan = filtered(&machine, &format!("netlink={errno}"), &["scan"]);
        let told = told(&scan);
        assert!(
            told.contains(&format!("the kernel's listing of sockets (netlink) {filter}")),
            "{errno}: {told}"
        );
        assert!(!told.contains("may not be entered"), "{errno}: {told}");
    }
    let rules = machine.write("expected", "redis unix\n").display().to_string();
    let scan = filtered(&machine, "openat2=ENOSYS", &["scan", "--expect", &rules]);
    assert_eq!(scan.status, 3, "{}", scan.both());
    assert!(told(&scan).contains(&format!("opened safely, {filter}")), "{}", scan.both());
    assert_told_once(&told(&scan));
    // Sound: a file that is not there is wrong use.
    assert_eq!(machine.samehost(&["scan", "--expect", "/nowhere"]).status, 2);
    let seccomp = filtered(&machine, "seccomp=ENOSYS", &["run", "--map", "1=/nowhere", "--", "true"]);
    assert!(seccomp.status != 0 && told(&seccomp).contains("seccomp(2)"), "{}", seccomp.both());
    assert_told_once(&told(&seccomp));
}

#[test]
fn two_refusals_at_once_are_both_named() {
    let machine = Machine::new();
    let scan = filtered(&machine, "netlink=EPERM,bpf=ENOSYS", &["scan", "--observe", "1s"]);
    let told = told(&scan);
    assert!(
        told.contains("listing of sockets (netlink) is refused") && told.contains("bpf(2) is refused"),
        "{told}"
    );
    assert_told_once(&told);
}

#[test]
fn a_loopback_that_is_down_is_named() {
    let machine = Machine::new();
    let down = Surroundings::own(&machine, "ip link set lo down; exec");
    let reason = "the loopback interface is down in this network namespace";
    down.assert_says(&[&["verify", "tcp:127.0.0.1:1"], &["verify", "tcp:localhost:6379"]], 3, reason);
    // It never was up.
    let never = Surroundings { machine: &machine, namespaces: &["-n"], script: "exec \"$@\"".to_owned() };
    never.assert_says(&[&["verify", "tcp:127.0.0.1:1"], &["bench", "raw", "--budget", "5s"]], 3, reason);
    let up = Surroundings::own(&machine, "exec");
    up.assert_says(&[&["verify", "tcp:127.0.0.1:1"]], 3, "connection refused");
}

#[test]
fn a_file_that_may_have_no_size_is_an_error_with_its_reason() {
    let machine = Machine::new();
    let conf = machine.write("app/.env", "REDIS_URL=redis://127.0.0.1:1\n").display().to_string();
    let metrics = machine.path("metrics.prom").display().to_string();
    for words in
        [&["scan", "--prometheus", &metrics][..], &["scan", "--json"], &["switch", "--dry-run", &conf]]
    {
        let samehost = machine.command(words);
        let mut command = Command::new("prlimit");
        command.arg("--fsize=0:0").arg(samehost.get_program()).args(samehost.get_args());
        for (name, value) in samehost.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let ended = bounded(command);
        assert!((0..=5).contains(&ended.status), "{words:?}: {}", ended.both());
        assert!(!ended.both().trim().is_empty(), "{words:?}");
        if words.contains(&"--prometheus") {
            assert!(ended.status == 3 && told(&ended).contains("ulimit -f"), "{}", ended.both());
        }
    }
}

/// It is another process that connects as the application; that it cannot be started was told as a service that is down.
#[test]
fn a_login_that_cannot_be_tried_here_is_no_fault_of_the_service() {
    let shop = Shop::new();
    let app = shop.machine.path("app").display().to_string();
    let within = |program: &str, limits: &[&str]| {
        let samehost = shop.machine.command(&["switch", &app, "--user", "news", "--dry-run"]);
        let mut command = Command::new(program);
        command.args(limits).arg(samehost.get_program()).args(samehost.get_args());
        for (name, value) in samehost.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        bounded(command)
    };
    for most in 5..=24 {
        let ended = within("prlimit", &[&format!("--nofile={most}:{most}")]);
        let told = told(&ended);
        assert!(ended.status == 0 || ended.status == 3 && told.contains("ulimit -n"), "{most}: {told}");
    }
    assert_eq!(within("prlimit", &["--nofile=64:64"]).status, 0);
    let script = "mount -t tmpfs none /dev && exec \"$@\"";
    let without_dev = within("unshare", &["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    assert_eq!(without_dev.status, 0, "{}", without_dev.both());
}
