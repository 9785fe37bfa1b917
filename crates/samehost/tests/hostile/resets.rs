//! Short connections are counted however they end, and where some are not, that is said and nothing is called not worth it: resets by
//! the client, the server or both, refusals, half-closed ends, in this and in another network namespace.
//! Each by a real program with a pace of its own, beside a pair that stays.

use std::process::Command;

use samehost_testing::{kernel, store_prices};
use serde_json::Value;

use crate::support::{Ended, Machine, bounded};

/// Connections a second that the client makes.
const PACE: f64 = 300.0;
/// How far the count may be off on a busy machine, as a part; what is beyond the program's own 5 % has to be said.
const TOLERANCE: f64 = 0.15;

/// A server, a client that stays connected to it, and one that comes and goes as the first word says. Port and readiness are
/// written to the file of the second word.
const PROGRAM: &str = r#"
import os, socket, struct, sys, threading, time
how, ready = sys.argv[1:3]
def hard(end): end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
server = socket.create_server(("127.0.0.1", 0), backlog=4096); port = server.getsockname()[1]
kept = []
def serve(end):
    try:
        while end.recv(100): end.sendall(b"+PONG\r\n")
        if how == "half": kept.append(end); return
        if how in ("server", "both"): hard(end)
    except OSError: pass
    end.close()
def accept():
    while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
stays = socket.create_connection(("127.0.0.1", port)); stays.sendall(b"PING\r\n"); stays.recv(100)
closed = socket.socket(); closed.bind(("127.0.0.1", 0))
def once():
    if how == "quiet": return
    if how == "refused":
        try: socket.create_connection(closed.getsockname())
        except OSError: pass
        return
    end = socket.create_connection(("127.0.0.1", port))
    end.sendall(b"PING\r\n"); end.recv(100)
    if how in ("client", "both"): hard(end)
    end.close()
open(ready + ".new", "w").write(str(port)); os.rename(ready + ".new", ready)
begun, made = time.monotonic(), 0
while True:
    once(); made += 1
    time.sleep(max(0, begun + made / 300 - time.monotonic()))
"#;

/// What a scan says of the connections to the server, in network, PID and mount namespaces of its own.
struct Counted {
    short_per_s: f64,
    uncounted_per_s: f64,
    /// Whether some pair of it is called not worth it.
    is_called_not_worth_it: bool,
    all: String,
}

fn scanned(machine: &Machine, how: &str, inside: &str) -> Counted {
    let ready = machine.path(&format!("ready-{how}-{}", inside.len())).display().to_string();
    let samehost = machine.command(&["scan", "--observe", "3s", "--json", "--quiet"]);
    let script = format!(
        "ip link set lo up; {inside} python3 -c \"$PROGRAM\" {how} {ready} & until [ -e {ready} ]; do sleep 0.02; done; exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["-n", "-p", "-f", "-m", "--mount-proc", "--kill-child", "bash", "-c", &script, "bash"]);
    command.arg(samehost.get_program()).args(samehost.get_args()).env("PROGRAM", PROGRAM);
    for (name, value) in samehost.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    of(&bounded(command))
}

fn of(ended: &Ended) -> Counted {
    assert_eq!(ended.status, 0, "{}", ended.both());
    let json: Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut counted =
        Counted { short_per_s: 0.0, uncounted_per_s: 0.0, is_called_not_worth_it: false, all: String::new() };
    for advice in json["advice"].as_array().unwrap() {
        counted.short_per_s += advice["traffic"]["short_connections_per_s"].as_f64().unwrap_or(0.0);
        let uncounted = advice["traffic"]["uncounted_connections_per_s"].as_f64().unwrap_or(0.0);
        counted.uncounted_per_s = counted.uncounted_per_s.max(uncounted);
        let saving = &advice["saving"];
        counted.is_called_not_worth_it |=
            saving["worth_it"] == false && saving["undecided"] == false && !saving["cpu_s_per_day"].is_null();
    }
    counted.all = format!("{:#}", json["advice"]);
    counted
}

fn assert_counted(found: &Counted, how: &str) {
    let is_counted = (found.short_per_s - PACE).abs() < TOLERANCE * PACE;
    let is_said = found.uncounted_per_s > 0.0 && !found.is_called_not_worth_it;
    assert!(is_counted || is_said, "{how}: {} of {PACE}/s: {}", found.short_per_s, found.all);
}

#[test]
fn connections_are_counted_however_they_end() {
    let machine = Machine::new();
    for how in ["fin", "client", "server", "both", "half"] {
        let found = scanned(&machine, how, "");
        assert_counted(&found, how);
        if how != "both" {
            // On a busy machine some end before they are looked at; they are told.
            let known = found.short_per_s + found.uncounted_per_s;
            let is_most = found.short_per_s > PACE / 2.0 && known > (1.0 - TOLERANCE) * PACE;
            assert!(is_most, "{how}: {}", found.all);
        }
    }
}

#[test]
fn connections_of_another_namespace_are_counted_there() {
    let machine = Machine::new();
    let inside = "unshare -n sh -c 'ip link set lo up; exec \"$@\"' sh";
    for how in ["client", "server"] {
        assert_counted(&scanned(&machine, how, inside), how);
    }
}

#[test]
fn what_was_refused_is_no_connection_and_a_quiet_pair_is_still_not_worth_it() {
    let machine = Machine::new();
    store_prices(&machine.path("state"), &kernel());
    for how in ["quiet", "refused"] {
        let found = scanned(&machine, how, "");
        assert_eq!((found.short_per_s, found.uncounted_per_s), (0.0, 0.0), "{how}: {}", found.all);
        assert!(found.is_called_not_worth_it, "{how}: {}", found.all);
    }
}
