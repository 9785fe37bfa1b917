//! The unit of the timer: its directives, and whether a scan with its capabilities sees what root sees.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use samehost_testing::{free_port, wait_for};
use serde_json::Value;

use super::{assert_root, ended};
use crate::package::template;
use crate::tested_program;

/// Values of a directive in `[Service]`, in order; each line is one.
pub(super) fn values(unit: &str, directive: &str) -> Vec<String> {
    let value = |line: &str| line.strip_prefix(directive)?.strip_prefix('=').map(str::to_owned);
    unit.lines().filter_map(value).collect()
}

pub(super) fn service() -> String {
    template("systemd/samehost-scan.service", &[]).unwrap()
}

/// `setpriv` with what the unit says of privileges, up to the program.
pub(super) fn constrained(unit: &str) -> Vec<String> {
    assert!(values(unit, "User").is_empty() && values(unit, "AmbientCapabilities").is_empty(), "{unit}");
    let capabilities = values(unit, "CapabilityBoundingSet");
    assert_eq!(capabilities.len(), 1, "{unit}");
    let kept: Vec<String> = capabilities[0]
        .split_whitespace()
        .map(|name| format!(",+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()))
        .collect();
    let mut words = vec!["setpriv".to_owned(), "--inh-caps=-all".into()];
    words.push(format!("--bounding-set=-all{}", kept.concat()));
    if values(unit, "NoNewPrivileges") == ["yes"] {
        words.push("--no-new-privs".into());
    }
    words
}

/// A server of another user, with a connection to it.
struct Pair {
    port: u16,
    server: Child,
    _client: TcpStream,
}

impl Pair {
    fn new() -> Self {
        let port = free_port();
        let mut server = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "nc", "-l", "127.0.0.1"])
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut client = wait_for("nc to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
        // A byte of the server: it has accepted the connection.
        server.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        Pair { port, server, _client: client }
    }

    fn seen(&self, before: &[String], status: i32) -> [Vec<u64>; 2] {
        let mut command = match before {
            [] => Command::new(tested_program()),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(tested_program());
                command
            }
        };
        let ended = ended(command.args(["scan", "--json", "--quiet"]));
        assert_eq!(ended.status, status, "{}", ended.both());
        found(&ended.stdout, self.port)
    }
}

pub(super) fn found(scan: &str, port: u16) -> [Vec<u64>; 2] {
    let scan: Value = serde_json::from_str(scan).unwrap();
    let at = format!("127.0.0.1:{port}");
    let connections = scan["connections"].as_array().unwrap();
    let is_ours = |connection: &&Value| connection["server"]["address"].to_string().contains(&at);
    let ours = connections.iter().find(is_ours).unwrap_or_else(|| panic!("{at}: {connections:#?}"));
    ["client", "server"].map(|end| {
        let pids = ours[end]["pids"].as_array().into_iter().flatten();
        pids.filter_map(Value::as_u64).collect()
    })
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_scan_with_the_units_capabilities_sees_what_root_sees_as_root() {
    assert_root("this test takes capabilities of root's away");
    let pair = Pair::new();
    let (own, server) = (u64::from(std::process::id()), u64::from(pair.server.id()));
    assert_eq!(pair.seen(&[], 0), [vec![own], vec![server]], "root");
    assert_eq!(pair.seen(&constrained(&service()), 0), [vec![own], vec![server]], "the unit");
    let without = service().replace("CAP_SYS_PTRACE CAP_DAC_READ_SEARCH", "");
    // Who sees nobody's processes does not end with 0.
    assert_eq!(
        pair.seen(&constrained(&without), 3),
        [const { Vec::<u64>::new() }; 2],
        "without capabilities"
    );
}

#[test]
fn the_unit_keeps_what_a_scan_needs_and_nothing_else() {
    let unit = service();
    for (directive, value) in [
        ("ProtectSystem", "strict"),
        ("NoNewPrivileges", "yes"),
        ("ReadWritePaths", "/var/lib/prometheus/node-exporter"),
        ("CapabilityBoundingSet", "CAP_SYS_PTRACE CAP_DAC_READ_SEARCH"),
    ] {
        assert_eq!(values(&unit, directive), [value], "{directive}");
    }
    // Each would hide what a scan looks at; the last one takes openat2(2) away.
    for directive in
        ["PrivateTmp", "PrivateNetwork", "ProtectProc", "PrivateUsers", "ProcSubset", "RestrictSUIDSGID"]
    {
        assert!(values(&unit, directive).is_empty(), "{directive}");
    }
    let timer = template("systemd/samehost-scan.timer", &[]).unwrap();
    assert_eq!(values(&timer, "WantedBy"), ["timers.target"]);
}
