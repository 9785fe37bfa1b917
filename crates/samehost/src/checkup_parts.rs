//! What the checkup measures: four kinds of use on built-in servers, and every installed server that a workload
//! knows. It decides; measuring is the verb's.

use std::time::Duration;

use samehost_bench::machine::{RunningServer, running_servers};
use samehost_bench::workloads::{WORKLOADS, Workload};
use samehost_model::{Endpoint, Transport};
use samehost_report::FindingKind;

/// One measurement of the checkup.
#[derive(Clone)]
pub struct Part {
    /// Name of the workload.
    pub workload: &'static str,
    /// Its parameters that differ from their defaults.
    pub parameters: Vec<(&'static str, String)>,
    /// Connections; none for the workload's default.
    pub connections: Vec<u32>,
    /// Size of a message.
    pub size: Option<u64>,
    /// Transports; none for the workload's first two.
    pub transports: Vec<Transport>,
    /// Congestion controls, set by the routes of a private network; none for what the machine has.
    pub congestion: Vec<String>,
    /// The lines of the table that it answers.
    pub lines: Vec<PartLine>,
    /// Whether it starts a server that is installed here, which may fail for reasons of its own.
    pub installed: bool,
}

/// A line of the checkup's table.
#[derive(Clone)]
pub struct PartLine {
    /// What is measured, in plain words.
    pub label: String,
    /// What it tells the reader.
    pub kind: FindingKind,
    /// The metric that answers.
    pub metric: &'static str,
    /// The point that answers; none where there is one only.
    pub connections: Option<u32>,
}

/// Connections of a server under load.
const MANY: u32 = 64;
/// Shares of the budget: a part with one point, and one with two.
const SHARE: f64 = 1.0;
const SERVER_SHARE: f64 = 1.25;
/// A share shorter than this does not hold the fewest blocks of a verdict.
const LEAST_SHARE: Duration = Duration::from_millis(3300);

fn part(
    (label, kind): (&str, FindingKind),
    workload: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    (connections, size): (Option<u32>, Option<u64>),
    metric: &'static str,
) -> Part {
    let line = PartLine { label: label.to_owned(), kind, metric, connections: None };
    let connections = connections.into_iter().collect();
    let parameters = parameters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let (transports, congestion, lines) = (Vec::new(), Vec::new(), vec![line]);
    Part { workload, parameters, connections, size, transports, congestion, lines, installed: false }
}

/// The parts that need no server but ours.
fn built_in() -> Vec<Part> {
    let one = ("one request and its reply", FindingKind::RoundTrip);
    let busy = ("CPU time per request, 64 at once", FindingKind::Busy);
    let bulk = ("large transfers, 512 KiB writes", FindingKind::Bulk);
    let anew = ("a new connection per request", FindingKind::Connect);
    vec![
        part(one, "raw", &[], (Some(1), Some(128)), "latency_mean"),
        part(busy, "raw", &[], (Some(MANY), Some(128)), "total_cpu_per_op"),
        part(bulk, "raw", &[("pattern", "bulk")], (None, Some(512 * 1024)), "bandwidth"),
        part(anew, "connect", &[], (Some(1), None), "latency_mean"),
    ]
}

/// The part of a server that is installed here.
fn server(workload: &'static dyn Workload) -> Part {
    let line = |what: &str, kind, metric, connections| PartLine {
        label: format!("{}{what}", workload.name()),
        kind,
        metric,
        connections: Some(connections),
    };
    Part {
        workload: workload.name(),
        parameters: workload
            .checkup_parameters()
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
        connections: vec![1, MANY],
        size: None,
        transports: Vec::new(),
        congestion: Vec::new(),
        lines: vec![
            line(": one at a time", FindingKind::Server, "latency_mean", 1),
            line(": CPU time, 64 at once", FindingKind::Server, "total_cpu_per_op", MANY),
        ],
        installed: true,
    }
}

/// The parts that the budget holds, each with its share, and the installed servers for which no time is left.
pub fn plan(budget: Duration) -> (Vec<(Part, Duration)>, Vec<&'static str>) {
    let installed =
        |workload: &&&dyn Workload| workload.server_kind().is_some_and(|kind| (kind.find)().is_ok());
    share(budget, WORKLOADS.iter().filter(installed).map(|workload| server(*workload)).collect())
}

fn share(budget: Duration, servers: Vec<Part>) -> (Vec<(Part, Duration)>, Vec<&'static str>) {
    let built_in = built_in();
    let one = |servers: usize| budget.div_f64(SHARE * built_in.len() as f64 + SERVER_SHARE * servers as f64);
    let fit = (0..=servers.len()).rev().find(|count| one(*count) >= LEAST_SHARE).unwrap_or(0);
    let left = servers[fit..].iter().map(|part| part.workload).collect();
    let one = one(fit);
    let mut parts: Vec<(Part, Duration)> =
        built_in.iter().map(|part| (part.clone(), one.mul_f64(SHARE))).collect();
    parts.extend(servers.into_iter().take(fit).map(|part| (part, one.mul_f64(SERVER_SHARE))));
    (parts, left)
}

/// A server that runs here, and how it would be measured.
pub struct Neighbour {
    /// The workload that would measure it.
    pub workload: &'static str,
    /// The server.
    pub server: RunningServer,
    /// What it is, where it listens, and what keeps it from being measured, in a sentence or two.
    pub about: String,
    /// The command line that would measure it.
    pub line: String,
}

/// The servers that run here and that a workload could measure.
pub fn neighbours() -> Vec<Neighbour> {
    let mut found = Vec::new();
    for workload in WORKLOADS {
        let Some(kind) = workload.server_kind() else { continue };
        for server in running_servers(kind.processes) {
            let (about, line) = introduce(workload.running_workload(), kind.login, &server);
            found.push(Neighbour { workload: workload.name(), server, about, line });
        }
    }
    found
}

fn introduce(workload: &str, login: &str, server: &RunningServer) -> (String, String) {
    let of = |transports: &[Transport]| {
        server.endpoints.iter().find(|endpoint| transports.contains(&endpoint.transport()))
    };
    let (tcp, unix) = (of(&[Transport::Tcp, Transport::Tcp6]), of(&[Transport::Unix]));
    let named = |endpoint: &Endpoint| quoted(&endpoint.to_string());
    let lead = format!("{} (process {})", server.name, server.pid);
    let bench = format!("samehost bench {workload}");
    let (about, line) = match (tcp, unix) {
        (Some(tcp), Some(unix)) => (
            format!("{lead} listens on {tcp} and {unix}."),
            format!("{bench} --tcp {} --unix {}", named(tcp), named(unix)),
        ),
        (Some(tcp), None) => (
            format!("{lead} listens on {tcp} and on no Unix socket: there is one transport to measure."),
            format!("{bench} --transports tcp --tcp {}", named(tcp)),
        ),
        (None, Some(unix)) => (
            format!("{lead} listens on {unix} and on no port: there is one transport to measure."),
            format!("{bench} --transports unix --unix {}", named(unix)),
        ),
        (None, None) => (
            format!("{lead} runs as another user; where it listens shows only to root (`sudo samehost`)."),
            format!("{bench} --tcp ADDRESS --unix ADDRESS"),
        ),
    };
    (if login.is_empty() { about } else { format!("{about} {login}") }, line)
}

/// A word of a command line, in quotes where the shell would take it apart.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:._-@%+=,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use samehost_bench::workloads::workload;

    fn servers(count: usize) -> Vec<Part> {
        vec![server(workload("redis").unwrap()); count]
    }

    #[test]
    fn the_budget_is_divided_and_servers_without_room_are_named() {
        for (seconds, count, fit) in [(16, 2, 0), (20, 2, 1), (50, 0, 0), (50, 2, 2), (40, 6, 6), (600, 4, 4)]
        {
            let budget = Duration::from_secs(seconds);
            let (parts, left) = share(budget, servers(count));
            assert_eq!((parts.len(), left.len()), (4 + fit, count - fit), "{seconds} s");
            let all: Duration = parts.iter().map(|(_, share)| *share).sum();
            assert!(all <= budget + Duration::from_millis(1) && all >= budget.mul_f64(0.99), "{all:?}");
            assert!(parts.iter().all(|(_, share)| *share >= LEAST_SHARE));
        }
    }

    #[test]
    fn a_running_server_gets_the_line_that_measures_it() {
        let line = |endpoints: &[&str]| {
            let endpoints = endpoints.iter().map(|text| text.parse().unwrap()).collect();
            introduce("redis", "", &RunningServer { name: "redis-server".into(), pid: 7, endpoints })
        };
        let (tcp, unix) = ("tcp:127.0.0.1:6379", "unix:/run/redis/redis.sock");
        assert_eq!(
            line(&[tcp, unix]).1,
            "samehost bench redis --tcp tcp:127.0.0.1:6379 --unix unix:/run/redis/redis.sock"
        );
        assert_eq!(line(&[tcp]).1, "samehost bench redis --transports tcp --tcp tcp:127.0.0.1:6379");
        assert_eq!(line(&["unix:/a b"]).1, "samehost bench redis --transports unix --unix 'unix:/a b'");
        assert!(line(&[]).0.contains("another user"));
    }
}
