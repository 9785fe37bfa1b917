//! Congestion control and socket buffers end to end: read from real connections, chosen on each socket and by routes of
//! private networks, refused where they cannot be; and a loopback on BBR found, cured and taken back in a namespace.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::support::{Here, TINY, parsed, said};

fn needs_root() {
    assert!(rustix::process::geteuid().is_root(), "needs root: run the tests as root");
}

fn setting(name: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Two congestion controls of this kernel.
fn two() -> [String; 2] {
    let available = setting("tcp_available_congestion_control");
    assert!(available.len() > 1, "needs two congestion controls, and this kernel has {available:?}");
    [available[0].clone(), available[available.len() - 1].clone()]
}

/// The congestion controls at both ends of the connections of each arm, by arm.
fn seen(report: &Value) -> BTreeSet<(String, String, String)> {
    let trials = report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop");
    let name = |trial: &Value, end: &str| {
        let end = &trial["connection"][end];
        assert!(end["send_buffer_bytes"].as_u64().unwrap() > 0, "{trial}");
        end["congestion"].as_str().unwrap_or("none").to_owned()
    };
    trials
        .map(|trial| (trial["arm"].as_str().unwrap().into(), name(trial, "client"), name(trial, "server")))
        .collect()
}

/// What an axis of these must have come to: over TCP what was asked for, over Unix sockets none.
fn expected(names: &[String; 2]) -> BTreeSet<(String, String, String)> {
    let arm = |name: &String| {
        let tcp = (format!("tcp/congestion={name}"), name.clone(), name.clone());
        let unix = (format!("unix/congestion={name}"), "none".into(), "none".into());
        [tcp, unix]
    };
    names.iter().flat_map(arm).collect()
}

#[test]
fn both_ends_of_every_connection_are_read() {
    let default = setting("tcp_congestion_control").concat();
    let report = Here::new().report(&["raw"]);
    let all =
        [("tcp".into(), default.clone(), default.clone()), ("unix".into(), "none".into(), "none".into())];
    assert_eq!(seen(&report), all.into());
    let evidence = report["evidence"].as_array().unwrap();
    let tcp = evidence.iter().find(|one| one["arm"] == "tcp").unwrap();
    assert_eq!(tcp["connection"]["client"]["nodelay"], true, "{tcp}");
    assert_eq!(tcp["connection"]["server"]["congestion"], default.as_str());
    // What is not usual is said, whatever this machine has.
    let warned = report["warnings"].to_string().contains("\"congestion\"");
    assert_eq!(warned, default != "cubic", "{}", report["warnings"]);
}

#[test]
fn each_congestion_control_is_set_on_each_socket() {
    needs_root();
    let names = two();
    let list = names.join(",");
    for pattern in ["ping-pong", "bulk"] {
        let report =
            Here::new().report(&["raw", "--pattern", pattern, "--size", "64k", "--congestion", &list]);
        assert_eq!(seen(&report), expected(&names), "{pattern}");
        assert!(!report["warnings"].to_string().contains("network namespace"), "{}", report["warnings"]);
        assert!(
            !report["effects"].as_array().unwrap().is_empty(),
            "what the congestion control does over both"
        );
    }
}

#[test]
fn routes_of_a_private_network_set_it_for_servers_that_know_nothing_of_it() {
    needs_root();
    let names = two();
    let list = names.join(",");
    for workload in ["redis", "http"] {
        let report = Here::new().report(&[workload, "--congestion", &list]);
        assert_eq!(seen(&report), expected(&names), "{workload}");
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("whose routes set the congestion control"), "{warnings}");
    }
    // nginx passes on over the hop that is measured: its routes are in the same network.
    let report = Here::new().report(&[
        "proxy", "--backend", "puma", "--backends", "1", "--http", "1.0", "--congestion", &names[0],
    ]);
    assert_eq!(report["workload"]["parameters"]["congestion"], names[0].as_str());
    let routes = Command::new("ip").args(["route", "show", "table", "local"]).output().unwrap();
    assert!(
        !String::from_utf8_lossy(&routes.stdout).contains("congctl"),
        "the host's routes are as they were"
    );
}

#[test]
fn a_command_has_one_and_what_its_program_uses_is_not_read() {
    needs_root();
    let name = &two()[0];
    let arms = ["--arm", "one=true", "--arm", "two=true", "--congestion", name];
    let untimed = super::support::UNTIMED;
    let output = Here::new().bench(&[&["command"], &arms[..], untimed].concat()).output().unwrap();
    let report = parsed(&output);
    assert_eq!(report["workload"]["parameters"]["congestion"], name.as_str());
    assert!(report["trials"].as_array().unwrap().iter().all(|trial| trial["connection"].is_null()));
}

#[test]
fn buffers_are_set_at_both_ends_of_both_transports() {
    for pattern in ["ping-pong", "bulk"] {
        let report = Here::new()
            .report(&["raw", "--pattern", pattern, "--size", "64k", "--socket-buffer", "16k,128k"]);
        let mut answered = BTreeSet::new();
        for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
            let asked = if trial["arm"].as_str().unwrap().ends_with("=16k") { 16 << 10 } else { 128 << 10 };
            for end in ["client", "server"] {
                let end = &trial["connection"][end];
                // The kernel takes twice as much.
                assert_eq!(end["send_buffer_bytes"], 2 * asked, "{trial}");
                assert_eq!(end["receive_buffer_bytes"], 2 * asked, "{trial}");
            }
            if trial["operations"].as_u64().unwrap() > 0 {
                answered.insert(trial["arm"].as_str().unwrap());
            }
        }
        // A message that does not fit the buffers goes through all the same.
        assert_eq!(answered.len(), 4, "{pattern}: {answered:?}");
    }
}

fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!([Some(2), Some(3)].contains(&output.status.code()), "{} {}", output.status, said(&output));
    said(&output)
}

#[test]
fn what_cannot_be_set_is_refused_before_anything_is_started() {
    let here = Here::new();
    let unknown = refused(&mut here.bench(&["redis", "--congestion", "nonesuch"]));
    assert!(unknown.contains("modprobe tcp_nonesuch"), "{unknown}");
    let running = refused(&mut here.bench(&["redis", "--tcp", "tcp:127.0.0.1:1", "--congestion", "reno"]));
    assert!(running.contains("already runs"), "{running}");
    let buffers = refused(&mut here.bench(&["redis", "--socket-buffer", "64k"]));
    assert!(buffers.contains("bench raw"), "{buffers}");
    here.assert_nothing_left();
}

/// As `nobody`, in a directory of his own.
fn as_nobody(here: &Here, arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let bench = here.bench(arguments);
    Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(bench.get_program())
        .args(bench.get_args())
        .envs(
            ["XDG_RUNTIME_DIR", "TMPDIR", "XDG_STATE_HOME", "XDG_DATA_HOME", "HOME"]
                .map(|name| (name, home.path())),
        )
        .output()
        .unwrap()
}

#[test]
fn an_ordinary_user_has_a_user_namespace_for_what_he_may_not_set_on_a_socket() {
    needs_root();
    let names = two();
    let report =
        parsed(&as_nobody(&Here::new(), &[&["redis", "--congestion", &names.join(",")], TINY].concat()));
    assert_eq!(seen(&report), expected(&names));
    let allowed = setting("tcp_allowed_congestion_control");
    let available = setting("tcp_available_congestion_control");
    // Where everybody may use them all, there is nothing to find a way around.
    if let Some(restricted) = available.iter().find(|name| !allowed.contains(name)) {
        let report = parsed(&as_nobody(&Here::new(), &[&["raw", "--congestion", restricted], TINY].concat()));
        let of = |arm: &str, name: &str| (arm.to_owned(), name.to_owned(), name.to_owned());
        assert_eq!(seen(&report), [of("tcp", restricted), of("unix", "none")].into());
        assert!(report["warnings"].to_string().contains("whose routes"), "{}", report["warnings"]);
    }
}

#[test]
fn where_no_network_may_be_made_it_is_said_and_what_to_do() {
    needs_root();
    // A user namespace in which no network may be made: its own limit, and nobody else's.
    let here = Here::new();
    let bench = here.bench(&["redis", "--congestion", "reno"]);
    let denied = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", denied, "sh"]).arg(bench.get_program());
    let said = refused(
        command
            .args(bench.get_args())
            .envs(bench.get_envs().filter_map(|(name, value)| Some((name, value?)))),
    );
    assert!(said.contains("congestion control") && said.contains("leave --congestion out"), "{said}");
    here.assert_nothing_left();
}

/// A network of this test, gone with the process that holds it. `ip netns` would leave a mount behind.
struct Net {
    holder: Child,
    servers: Vec<Child>,
}

impl Net {
    fn new() -> Self {
        needs_root();
        // It ends when this test does, however: its standard input is a pipe to us.
        let held = ["--net", "sh", "-ec", "ip link set lo up; echo up; exec cat"];
        let mut holder =
            Command::new("unshare").args(held).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        Net { holder, servers: Vec::new() }
    }

    fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).args(words);
        command
    }

    fn shell(&self, script: &str) -> String {
        let output = self.inside(&["sh", "-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn samehost(&self, arguments: &[&str]) -> Output {
        self.inside(&[&[env!("CARGO_BIN_EXE_samehost")], arguments].concat()).output().unwrap()
    }

    /// A server of ours in it; where it listens.
    fn serve(&mut self, endpoint: &str) -> String {
        let words = [env!("CARGO_BIN_EXE_samehost"), "serve", "echo", "--listen", endpoint];
        let mut child = self.inside(&words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.servers.push(child);
        line.trim().strip_prefix("listening on ").unwrap().to_owned()
    }

    /// The addresses that a scan finds on BBR, each with its cure and what takes it back.
    fn slow(&self) -> Vec<(String, Vec<String>, Vec<String>)> {
        let output = self.samehost(&["scan", "--json"]);
        let scan: Value = serde_json::from_slice(&output.stdout).unwrap();
        let lines = |value: &Value| {
            value.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
        };
        let found = scan["slow_congestion"].as_array().unwrap().iter();
        found
            .map(|one| (one["address"].as_str().unwrap().into(), lines(&one["cure"]), lines(&one["undo"])))
            .collect()
    }

    /// What a connection to a server begins with, at both ends.
    fn congestion(&self, endpoint: &str) -> Vec<String> {
        let output = self.samehost(&["verify", endpoint, "--json"]);
        let verification: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |end: &str| verification["settings"][end]["congestion"].as_str().unwrap().to_owned();
        vec![of("client"), of("server")]
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for child in self.servers.iter_mut().chain([&mut self.holder]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const HAS_BOTH: &str = "needs bbr and cubic in this kernel";

#[test]
fn a_loopback_on_bbr_is_found_and_the_printed_lines_cure_it_and_take_it_back() {
    let available = setting("tcp_available_congestion_control");
    assert!(available.contains(&"bbr".into()) && available.contains(&"cubic".into()), "{HAS_BOTH}");
    let mut net = Net::new();
    let (four, six) = (net.serve("tcp:127.0.0.1:0"), net.serve("tcp:[::1]:0"));
    net.shell("ip route replace local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 table local mtu lock 40000 congctl bbr; ip -6 route add local ::1 dev lo table local congctl bbr; ip -6 route del local ::1 dev lo proto kernel table local");
    assert_eq!((net.congestion(&four), net.congestion(&six)), (vec!["bbr".into(); 2], vec!["bbr".into(); 2]));
    let before = net.shell("ip route show table local; ip -6 route show table local");
    let slow = net.slow();
    let addresses: Vec<&str> = slow.iter().map(|(address, ..)| address.as_str()).collect();
    assert_eq!(addresses, ["127.0.0.1", "::1"], "{slow:?}");
    let text = String::from_utf8(net.samehost(&["scan"]).stdout).unwrap();
    assert!(text.contains("• bbr: loopback runs on BBR") && text.contains("samehost explain"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let text = String::from_utf8(net.samehost(&["explain", "bbr"]).stdout).unwrap();
    for line in slow.iter().flat_map(|(_, cure, undo)| cure.iter().chain(undo)) {
        assert!(text.contains(line.as_str()), "not shortened: {line}\n{text}");
    }
    let (last, back) = text.split_once("To take it back").unwrap();
    assert!(last.contains("systemctl enable") && back.contains("systemctl disable --now"), "{text}");
    assert_eq!(
        net.shell("ip route show table local; ip -6 route show table local"),
        before,
        "it runs none of it"
    );
    for (_, cure, _) in &slow {
        net.shell(&cure.join("\n"));
    }
    assert_eq!(net.slow(), [], "cured");
    assert_eq!(
        (net.congestion(&four), net.congestion(&six)),
        (vec!["cubic".into(); 2], vec!["cubic".into(); 2])
    );
    assert!(net.shell("ip route show table local").contains("mtu lock 40000"), "what the route had is kept");
    for (_, _, undo) in &slow {
        net.shell(&undo.join("\n"));
    }
    assert_eq!(
        net.shell("ip route show table local"),
        before.lines().filter(|line| !line.contains("::")).fold(String::new(), |all, line| all + line + "\n")
    );
    assert_eq!(net.congestion(&four), vec!["bbr".to_owned(); 2]);
    assert_eq!(net.slow().len(), 2);
}

/// The kernel's own IPv6 route, which no request can replace.
#[test]
fn the_kernels_own_routes_are_cured_too() {
    let available = setting("tcp_available_congestion_control");
    assert!(available.contains(&"bbr".into()) && available.contains(&"cubic".into()), "{HAS_BOTH}");
    let mut net = Net::new();
    let (four, six) = (net.serve("tcp:127.0.0.1:0"), net.serve("tcp:[::1]:0"));
    let default = setting("tcp_congestion_control").concat();
    let slow = net.slow();
    assert_eq!(slow.is_empty(), default != "bbr", "{slow:?}");
    for (_, cure, _) in &slow {
        net.shell(&cure.join("\n"));
    }
    let wanted = if default == "bbr" { "cubic" } else { &default };
    assert_eq!(
        (net.congestion(&four), net.congestion(&six)),
        (vec![wanted.into(); 2], vec![wanted.to_owned(); 2])
    );
    for (_, _, undo) in &slow {
        net.shell(&undo.join("\n"));
    }
    assert_eq!((net.congestion(&four), net.congestion(&six)), (vec![default.clone(); 2], vec![default; 2]));
}

#[test]
fn the_checkup_measures_the_cure_in_a_private_network_and_prints_it() {
    let net = Net::new();
    net.shell("ip route replace local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 table local congctl bbr");
    let output = net.samehost(&["--budget", "20s", "--quiet", "--json", "-"]);
    let whole: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let parts = whole["parts"].as_array().unwrap();
    let cure = parts.iter().find(|part| part["label"].as_str().unwrap().contains("congestion")).unwrap();
    // What CUBIC brings depends on the machine: where no gain is shown, a note says so, and no command is printed.
    let (worth, notes) = (whole["worth_doing"].to_string(), whole["notes"].to_string());
    if notes.contains("for large transfers is not measured") {
        assert!(!worth.contains("congctl"), "{worth} {notes}");
    } else if notes.contains("BBR; that costs nothing here")
        || notes.contains("BBR; no cost that matters was shown here")
    {
        assert!(notes.contains(" times") && !worth.contains("congctl"), "{worth} {notes}");
    } else {
        let first = &whole["worth_doing"][0];
        assert!(first["command"].as_str().unwrap().ends_with("table local congctl cubic"), "{first}");
        let about = first["about"].as_str().unwrap();
        assert!(
            about.contains("BBR") && about.contains(" times") && about.contains("new connections only"),
            "{about}"
        );
    }
    let tcp: BTreeSet<_> =
        seen(&cure["report"]).into_iter().filter(|(arm, ..)| arm.starts_with("tcp")).collect();
    let of = |name: &str| (format!("tcp/congestion={name}"), name.to_owned(), name.to_owned());
    assert_eq!(tcp, [of("bbr"), of("cubic")].into());
    assert!(net.shell("ip route show table local").contains("congctl bbr"), "it changed nothing");
}
