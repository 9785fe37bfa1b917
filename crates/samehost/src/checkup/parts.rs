//! Parts of the checkup: kinds of use on built-in servers, and every installed server for which there is
//! a workload. Only selects; does not measure.

use std::time::Duration;

use samehost_bench::Starts;
use samehost_bench::machine::{RunningServer, running_servers};
use samehost_bench::parameters::Parameters;
use samehost_bench::private_servers::ServerKind;
use samehost_bench::workload::{CHECKUP_TRIAL, CheckupEntry, CheckupRows, MANY, Workload, defaults};
use samehost_bench::workloads::WORKLOADS;
use samehost_model::human::format_size;
use samehost_model::{Endpoint, Transport, metric};
use samehost_report::FindingKind;
use samehost_services::Kind;

/// What is measured in one go, and the lines of the table that it provides.
#[derive(Clone, Default)]
pub struct Part {
    pub workload: &'static str,
    pub parameters: Vec<(&'static str, String)>,
    /// Empty for the workload's default.
    pub connections: Vec<u32>,
    /// Of a message, in bytes.
    pub size: Option<u64>,
    /// Empty for the workload's first two.
    pub transports: Vec<Transport>,
    /// Set by the routes of a private network; empty for the machine's own.
    pub congestion: Vec<String>,
    pub lines: Vec<PartLine>,
    /// Whether it starts an installed server, whose failure does not fail the checkup.
    pub installed: bool,
    /// Whether its servers take seconds to start.
    pub starts_slowly: bool,
    /// Whether its arms have undivided trials, and an installed server.
    pub is_undivided: bool,
    /// Whether the baseline also runs against itself. Two parts, one for a time and one for CPU time, suffice
    /// to detect spurious differences on this machine; the others use the time for their own rows.
    pub control: bool,
    /// Of an arm, in a block.
    pub trial: Duration,
}

impl Part {
    /// A workload with its defaults and no line of the table.
    pub fn new(workload: &'static str) -> Self {
        Part { workload, trial: CHECKUP_TRIAL, ..Part::default() }
    }

    /// Own parameters, and defaults for all others.
    pub fn all_parameters(&self, workload: &dyn Workload) -> Parameters {
        let mut all = defaults(workload);
        for (name, value) in &self.parameters {
            all.insert((*name).to_owned(), value.clone());
        }
        all
    }
}

#[derive(Clone)]
pub struct PartLine {
    pub label: String,
    pub kind: FindingKind,
    pub metric: &'static str,
    /// Connections of the point that is shown; `None` if there is only one point.
    pub connections: Option<u32>,
    /// The parameter and its value of that point; `None` where points differ in connections alone.
    pub level: Option<(&'static str, &'static str)>,
}

/// Trial of a stream: six slices.
pub const BULK_TRIAL: Duration = Duration::from_millis(60);

fn part(
    (label, kind): (&str, FindingKind),
    workload: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    (connections, size): (Option<u32>, Option<u64>),
    metric: &'static str,
) -> Part {
    let line = PartLine { label: label.to_owned(), kind, metric, connections: None, level: None };
    let control = matches!(kind, FindingKind::RoundTrip | FindingKind::Busy);
    let usual = Part::new(workload).trial;
    Part {
        connections: connections.into_iter().collect(),
        parameters: parameters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        size,
        control,
        lines: vec![line],
        trial: match kind {
            FindingKind::Bulk => BULK_TRIAL,
            // Each arm has two of them in a block: as long as three of the usual length.
            _ if control => usual * 3 / 4,
            _ => usual,
        },
        ..Part::new(workload)
    }
}

/// Sizes of a stream's writes, in bytes: a socket moves more of small ones, TCP often of large ones. With 4 KiB and 4 MiB as well the
/// shortest checkup had no time for a single installed server.
const STREAMS: &[u64] = &[64 << 10, 512 << 10];

fn built_in() -> Vec<Part> {
    let one = ("one request and its reply", FindingKind::RoundTrip);
    let busy = ("CPU per request, 64 at once", FindingKind::Busy);
    let anew = ("a new connection per request", FindingKind::Connect);
    let mut parts = vec![
        part(one, "raw", &[], (Some(1), Some(128)), metric::LATENCY_MEAN.name),
        part(busy, "raw", &[], (Some(MANY), Some(128)), metric::TOTAL_CPU_PER_OP.name),
        part(anew, "connect", &[], (Some(1), None), metric::LATENCY_MEAN.name),
    ];
    for size in STREAMS {
        let label = format!("a stream, writes of {}", format_size(*size));
        let bulk = (label.as_str(), FindingKind::Bulk);
        parts.push(part(bulk, "raw", &[("pattern", "bulk")], (None, Some(*size)), metric::BANDWIDTH.name));
    }
    parts
}

/// The part for the installed server of a workload: its time with one connection, and its CPU time with many or its time with another
/// value of a parameter.
fn server(workload: &'static dyn Workload) -> Part {
    let (parameters, trial, rows): (&[_], _, _) = match workload.checkup() {
        Some(CheckupEntry::Server { parameters, trial, rows, .. }) => (parameters, trial, rows),
        _ => (&[], CHECKUP_TRIAL, CheckupRows::OneAndMany(MANY)),
    };
    let line = |what: &str, metric, connections, level| PartLine {
        label: format!("{}: {what}", workload.name()),
        kind: FindingKind::Server,
        metric,
        connections: Some(connections),
        level,
    };
    let parameters = parameters.iter().map(|(name, value)| (*name, (*value).to_owned()));
    let mut part =
        Part { parameters: parameters.collect(), trial, installed: true, ..Part::new(workload.name()) };
    (part.connections, part.lines) = match rows {
        CheckupRows::OneAndMany(many) => (
            vec![1, many],
            vec![
                line("one at a time", metric::LATENCY_MEAN.name, 1, None),
                line(&format!("CPU time, {many} at once"), metric::TOTAL_CPU_PER_OP.name, many, None),
            ],
        ),
        CheckupRows::OneOfEach(name, levels) => {
            let level =
                |(value, what): &(_, &str)| line(what, metric::LATENCY_MEAN.name, 1, Some((name, *value)));
            (vec![1], levels.iter().map(level).collect())
        }
    };
    if let Ok(with) = workload.configure(&part.all_parameters(workload)) {
        part.starts_slowly = matches!(with.axes().starts, Starts::InTurn(_));
        part.is_undivided = with.axes().most_sliced == 0;
    }
    part
}

pub(super) fn server_kind(workload: &dyn Workload) -> Option<&'static ServerKind> {
    match workload.checkup()? {
        CheckupEntry::Server { kind, .. } => Some(kind),
        CheckupEntry::Hints(_) => None,
    }
}

fn is_installed(workload: &&'static dyn Workload) -> bool {
    server_kind(*workload).is_some_and(|kind| kind.find().is_ok())
}

/// The built-in parts, and one for each installed server.
pub fn parts() -> Vec<Part> {
    with_servers(WORKLOADS.iter().copied().filter(is_installed))
}

fn with_servers(servers: impl Iterator<Item = &'static dyn Workload>) -> Vec<Part> {
    let mut servers: Vec<Part> = servers.map(server).collect();
    servers.sort_by_key(|part| part.starts_slowly);
    built_in().into_iter().chain(servers).collect()
}

/// Built-in parts and those of these servers, installed or not.
#[cfg(test)]
pub fn built_in_and(servers: &[&str]) -> Vec<Part> {
    with_servers(servers.iter().filter_map(|name| samehost_bench::workloads::workload(name)))
}

pub struct Neighbour {
    pub workload: &'static str,
    pub server: RunningServer,
    /// Sentences about what it is, where it listens, and what prevents a measurement.
    pub about: String,
    /// Command line that would measure it, or says how it gets a socket.
    pub line: String,
}

pub fn neighbours() -> Vec<Neighbour> {
    let mut found = Vec::new();
    for workload in WORKLOADS {
        let Some(CheckupEntry::Server { kind, running, .. }) = workload.checkup() else { continue };
        for server in running_servers(|name| kind.is_process(name)) {
            let (about, line) = introduce(running, kind, &server);
            found.push(Neighbour { workload: workload.name(), server, about, line });
        }
    }
    found
}

/// Where a server listens, and the command that goes on from there: a comparison takes both transports.
fn introduce(workload: &str, kind: &ServerKind, server: &RunningServer) -> (String, String) {
    let service = Kind::of_program(&server.name).unwrap_or(kind.kind).name();
    let (mut tcp, mut unix) = (None, None);
    for endpoint in &server.endpoints {
        match endpoint.transport() {
            Transport::Tcp | Transport::Tcp6 => tcp = tcp.or(Some(endpoint)),
            Transport::Unix => unix = unix.or(Some(endpoint)),
            _ => {}
        }
    }
    let named = |endpoint: &Endpoint| quoted(&endpoint.to_string());
    let lead = format!("{} (process {})", server.name, server.pid);
    let bench = format!("samehost bench {workload}");
    let (about, line) = match (tcp, unix) {
        (Some(tcp), Some(unix)) => (
            format!("{lead} listens on {tcp} and {unix}."),
            format!("{bench} --tcp {} --unix {}", named(tcp), named(unix)),
        ),
        (Some(tcp), None) => (
            format!("{lead} listens on {tcp} and on no Unix socket: there is nothing to compare it with."),
            format!("samehost how {service}"),
        ),
        (None, Some(unix)) => (
            format!("{lead} listens on {unix} and on no port: its programs use the socket already."),
            format!("{bench} --transports unix --unix {}", named(unix)),
        ),
        (None, None) => (
            format!("{lead} runs as another user; where it listens shows only to root (`sudo samehost`)."),
            format!("{bench} --tcp ADDRESS --unix ADDRESS"),
        ),
    };
    let is_measured = line.starts_with(&bench);
    let about = if kind.login.is_empty() || !is_measured { about } else { format!("{about} {}", kind.login) };
    (about, line)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    if word.chars().all(|c| c.is_ascii_alphanumeric() || "/:._-@%+=,".contains(c)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use samehost_bench::workloads::workload;

    use super::*;

    #[test]
    fn all_kinds_of_use_are_measured_and_each_server_at_two_points() {
        assert_eq!(built_in().iter().map(|part| part.lines.len()).collect::<Vec<_>>(), [1; 5]);
        let redis = server(workload("redis").unwrap());
        let rows: Vec<_> = redis.lines.iter().map(|line| (line.metric, line.connections)).collect();
        assert_eq!(rows, [("latency_mean", Some(1)), ("total_cpu_per_op", Some(64))]);
        let proxy = server(workload("proxy").unwrap());
        let rows: Vec<_> = proxy.lines.iter().map(|line| (line.label.as_str(), line.level)).collect();
        let levels =
            [("proxy: a connection each", Some(("http", "1.0"))), ("proxy: kept", Some(("http", "1.1")))];
        assert_eq!((rows, proxy.connections), (levels.to_vec(), vec![1]));
    }

    #[test]
    fn a_running_server_gets_the_line_that_measures_it() {
        let line = |endpoints: &[&str]| {
            let endpoints = endpoints.iter().map(|text| text.parse().unwrap()).collect();
            let Some(CheckupEntry::Server { kind, .. }) = workload("redis").unwrap().checkup() else {
                panic!()
            };
            introduce("redis", kind, &RunningServer { name: "redis-server".into(), pid: 7, endpoints })
        };
        let (tcp, unix) = ("tcp:127.0.0.1:6379", "unix:/run/redis/redis.sock");
        assert_eq!(
            line(&[tcp, unix]).1,
            "samehost bench redis --tcp tcp:127.0.0.1:6379 --unix unix:/run/redis/redis.sock"
        );
        assert_eq!(line(&[tcp]).1, "samehost how redis");
        assert_eq!(line(&["unix:/a b"]).1, "samehost bench redis --transports unix --unix 'unix:/a b'");
        assert!(line(&[]).0.contains("another user"));
    }
}
