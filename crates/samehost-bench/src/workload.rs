//! What a workload is: what is exchanged, and how often its private server is restarted during a measurement. It knows no
//! clocks, printing or statistics.

use std::sync::Arc;
use std::time::Duration;

use samehost_login::ServerAddress;
use samehost_model::{Endpoint, Metric, MetricInfo, Part, Point, Secret, Transport, metric};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::Network;
use crate::parameters::{Parameter, Parameters, Swept};
use crate::private_servers::ServerKind;
use crate::served::{Instance, Servers, StartOptions};

#[must_use]
pub fn defaults(workload: &dyn Workload) -> Parameters {
    workload.parameters().iter().map(|p| (p.name.to_owned(), p.default.to_owned())).collect()
}

/// Common options that a workload takes, and their defaults: `None` or false for those that it does not. Also how its
/// trials and its servers take turns.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Transports it runs over; the first two are the default arms.
    pub transports: &'static [Transport],
    /// Default connections; `None` if it takes no `--connections`.
    pub connections: Option<&'static str>,
    /// Default message sizes; `None` if it has no sizes.
    pub sizes: Option<&'static str>,
    pub rates: bool,
    /// Whether trials have a length; otherwise each is one whole operation.
    pub timed: bool,
    pub foreign_servers: bool,
    /// Whether `--size` has a meaning for servers that are already running.
    pub foreign_sizes: bool,
    pub commands: bool,
    /// The most connections of an arm with which its requests can be cut into slices, so that the arms of a
    /// point take turns. 0 if that is impossible: a connection for each request, or a program as the client.
    /// Otherwise jobs are [`Job::Sessions`] or [`Job::Bulk`], and several arms have one at the same time.
    pub most_sliced: u32,
    /// Minimum length of a slice, for any number of connections.
    pub least_slice: Duration,
    /// How often its server is restarted: the memory layout of a single process would look like a difference
    /// between transports.
    pub starts: Starts,
}

impl Capabilities {
    /// Requests over TCP or a Unix socket, to a private server or to one that is already running.
    pub(crate) const REQUESTS: Self = Capabilities {
        transports: &[Transport::Tcp, Transport::Unix],
        connections: Some("1"),
        sizes: None,
        rates: true,
        timed: true,
        foreign_servers: true,
        foreign_sizes: true,
        commands: false,
        most_sliced: 0,
        least_slice: Duration::ZERO,
        starts: Starts::EachBlock,
    };
}

/// What a user wrote for a server that already runs.
#[derive(Clone, Copy)]
pub struct Written<'a> {
    /// The option: `--tcp` or `--unix`.
    pub transport: Transport,
    pub text: &'a str,
    /// Password that was prompted for; a URL with a password keeps its own.
    pub password: Option<&'a Secret>,
}

impl Written<'_> {
    /// Whether the option may name this endpoint: `--tcp` accepts both IP versions.
    pub(crate) fn fits(&self, endpoint: &Endpoint) -> bool {
        let found = endpoint.transport();
        found == self.transport || (self.transport, found) == (Transport::Tcp, Transport::Tcp6)
    }

    /// The text as a plain endpoint.
    ///
    /// # Errors
    /// When it is none, or a password was prompted for, which has no place in one.
    pub(crate) fn plain(&self) -> Result<Endpoint, BenchError> {
        let endpoint = self.text.parse()?;
        match self.password {
            None => Ok(endpoint),
            Some(_) => BenchError::refuse(format!(
                "{} has no place for a password: write a URL, such as mysql://USER@127.0.0.1:3306",
                self.text
            )),
        }
    }
}

/// What is to be measured, as far as it decides what is started.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Transports asked for; empty for the workload's first two.
    pub transports: &'a [Transport],
    pub servers: &'a Servers,
}

impl Wanted<'_> {
    /// Whether a private server is started that listens on this transport.
    #[must_use]
    pub fn starts_one_on(&self, transport: Transport) -> bool {
        self.servers.is_empty() && (self.transports.is_empty() || self.transports.contains(&transport))
    }
}

/// Time of an arm in a block of the checkup.
/// Blocks limit a decision there, and not their length: the first of sixteen rows is decided by ten
/// blocks, however long they are. PHP-FPM and PostgreSQL have 35 ms of their own, because their trials
/// scatter more beside other work, and where others use more than 25 % of a CPU trials that cannot be
/// divided are twice as long (docs/method.md §3a).
pub const CHECKUP_TRIAL: Duration = Duration::from_millis(25);

/// Connections of a server under load, in the checkup.
/// The checkup compares CPU time per request there and not throughput. With one client and one server on
/// two CPUs the client is nearly always a limit too, so throughput would hardly ever get a verdict, and
/// "is it worth it?" has to have an answer in a minute on any machine. Databases have fewer, since each
/// connection is a thread or a process of theirs.
pub const MANY: u32 = 64;

/// The part of a workload in the checkup.
/// A workload names the kind of server that it measures. Where that is installed the checkup starts a
/// private one; where one runs, the checkup prints the command that measures it. A server that is not
/// ours is never loaded without being asked for. So a new workload on a known server is in the checkup
/// without a change there.
#[derive(Clone, Copy, Debug)]
pub enum CheckupEntry {
    /// It measures a kind of server, which the checkup finds where it is installed or running.
    Server {
        kind: &'static ServerKind,
        /// Parameters that differ from the defaults, because the checkup has a few seconds for a server.
        parameters: &'static [(&'static str, &'static str)],
        running: &'static str,
        trial: Duration,
        rows: CheckupRows,
    },
    /// It takes longer than the checkup has: returns what the checkup reports instead.
    Hints(fn() -> Vec<String>),
}

/// Rows of a server.
#[derive(Clone, Copy, Debug)]
pub enum CheckupRows {
    /// The time of one request at a time, and its CPU time with so many connections.
    OneAndMany(u32),
    /// The time of one request at a time with each value of a parameter, and what the value is to a user: `("1.1", "kept")`.
    OneOfEach(&'static str, &'static [(&'static str, &'static str)]),
}

impl CheckupEntry {
    /// The entry of a workload that measures `kind` with default parameters.
    pub(crate) const fn server(
        kind: &'static ServerKind,
        running: &'static str,
        trial: Duration,
        many: u32,
    ) -> Self {
        CheckupEntry::Server { kind, parameters: &[], running, trial, rows: CheckupRows::OneAndMany(many) }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Description {
    pub name: &'static str,
    pub about: &'static str,
    /// Example command line, after `samehost bench`.
    pub example: &'static str,
    pub parameters: &'static [Parameter],
}

pub trait Workload: Sync {
    fn description(&self) -> Description;

    fn name(&self) -> &'static str {
        self.description().name
    }

    fn parameters(&self) -> &'static [Parameter] {
        self.description().parameters
    }

    /// Its part in the checkup; `None` if it has none.
    fn checkup(&self) -> Option<CheckupEntry> {
        None
    }

    /// Whether both ends of its connections are ours, so that each socket can be set.
    fn owns_both_ends(&self) -> bool {
        false
    }

    /// Reads the address of a server that already runs; here a plain endpoint.
    ///
    /// # Errors
    /// When it is not such an address, or has another transport.
    fn address(&self, written: &Written<'_>) -> Result<ServerAddress, BenchError> {
        let endpoint = written.plain()?;
        if !written.fits(&endpoint) {
            let Written { text, transport, .. } = written;
            return BenchError::refuse(format!("{text} is not an endpoint of {transport}"));
        }
        Ok(ServerAddress::open(endpoint))
    }

    /// Completes the servers that are already running: if only TCP or only the Unix socket was given, asks
    /// the server for the other. `wanted` are the transports asked for, empty for the default.
    ///
    /// # Errors
    /// When an endpoint that is needed cannot be found.
    fn complete(&self, servers: &Servers, _wanted: &[Transport]) -> Result<Servers, BenchError> {
        Ok(servers.clone())
    }

    /// The parameters as they are measured, if one value requires another, or the workload measures its
    /// own advice. `fastcgi` finds that a backlog is too short for a burst and advises a longer one; its
    /// burst is also measured at that backlog, in the same blocks. Advice by calculation alone would not
    /// be proved, so a report may have a point more than was asked for. `connections` are those given,
    /// empty for the default.
    ///
    /// # Errors
    /// When a value cannot be parsed.
    fn propose(&self, parameters: &Parameters, _connections: &[u32]) -> Result<Parameters, BenchError> {
        Ok(parameters.clone())
    }

    /// Parses the parameters, once, into a type of the workload's own; nothing else reads them by name.
    /// Workloads read text by name in about a hundred places before, and what was not known there was
    /// taken for the default: an unknown statement of `mysql` was a point select. An associated type was
    /// rejected because the table of workloads needs trait objects, and one enum of all settings because
    /// a new workload would change every other one's file. Text remains in the report and in the axes.
    ///
    /// # Errors
    /// When a value cannot be parsed, or values contradict each other.
    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError>;
}

/// What is exchanged between client and server: a workload with its parameters.
pub trait Configured: Send + Sync {
    fn axes(&self) -> Capabilities;

    fn swept(&self) -> Vec<Swept> {
        Vec::new()
    }

    fn title(&self) -> String;

    /// Metrics that are compared, the most important first.
    fn metrics(&self, open_loop: OpenOrClosed) -> Vec<MetricInfo> {
        request_metrics(open_loop)
    }

    /// Metrics that are wholly a part of another metric: what the part gains predicts what the whole gains.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    /// Refuses a point that makes no sense; called before anything is started. The error contains what to change.
    fn check(&self, _: &Point, _: Transport) -> Result<(), BenchError> {
        Ok(())
    }

    /// What the measurement does to servers that are already running. Queries them and writes nothing.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses the login.
    fn impact(&self, _look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        Ok(Vec::new())
    }

    /// The network that its private servers need, so that no other user reaches one that accepts every client.
    fn network(&self, _wanted: Wanted<'_>) -> Network {
        Network::Shared
    }

    /// # Errors
    /// When a server does not start or is not installed.
    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError>;
}

/// Metrics of requests and replies, for an open or closed loop; the first is the mean latency, and
/// decides. The median was rejected: on a virtual machine it jumps between two modes, as the other CPU
/// was asleep or not, and then tells little. Percentiles are shown beside the mean and compared over
/// blocks as it is.
pub(crate) fn request_metrics(open_loop: OpenOrClosed) -> Vec<MetricInfo> {
    let metrics: &[Metric] = match open_loop {
        OpenOrClosed::Closed => &[
            metric::LATENCY_MEAN,
            metric::LATENCY_P50,
            metric::LATENCY_P99,
            metric::LATENCY_P99_9,
            metric::THROUGHPUT,
            metric::CLIENT_CPU_PER_OP,
            metric::SERVER_CPU_PER_OP,
            metric::TOTAL_CPU_PER_OP,
        ],
        OpenOrClosed::Open => &[
            metric::LATENCY_MEAN,
            metric::LATENCY_P50,
            metric::LATENCY_P99,
            metric::LATENCY_P99_9,
            metric::SERVICE_MEAN,
            metric::CLIENT_CPU_PER_OP,
            metric::SERVER_CPU_PER_OP,
        ],
    };
    infos(metrics)
}

/// Adds the CPU time of a program between client and server, before the server's.
pub(crate) fn with_proxy(mut metrics: Vec<MetricInfo>) -> Vec<MetricInfo> {
    let server = metrics.iter().position(|metric| metric.is(&metric::SERVER_CPU_PER_OP));
    metrics.insert(server.unwrap_or(metrics.len()), metric::PROXY_CPU_PER_OP.info());
    metrics
}

pub(crate) fn infos(metrics: &[Metric]) -> Vec<MetricInfo> {
    metrics.iter().map(Metric::info).collect()
}

/// Whether requests wait for replies or for their due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOrClosed {
    Closed,
    Open,
}

#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    pub servers: &'a Servers,
    /// Most connections of any point.
    pub connections: u32,
    /// Sum of the sizes of all points, in bytes.
    pub sizes: u64,
    /// Time of the measurement, in seconds.
    pub seconds: f64,
}

/// Rule for restarts of a private server; one that was already running is never restarted.
/// A process may be lucky with its memory layout over one transport only, and with one process for all
/// blocks that luck would look like a difference of the transports. Where a start takes some tens of
/// milliseconds there is one before each block, which costs a few percent of the time. Databases are used
/// in turn (docs/method.md §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// Before every block: if a start takes some tens of milliseconds. Differences between processes (memory
    /// layout) are then part of the differences between blocks.
    EachBlock,
    /// So many servers, each started before its first block and then used in turn: if a start takes seconds.
    /// Idle servers take memory; the interval accounts for which block ran on which server.
    InTurn(u32),
    /// Never: the interval is about one process, which the report states.
    Once,
}

/// Number of database servers that are used in turn, each started before its first block.
/// Starting five of them takes 1.3 s (MariaDB) or 0.8 s (PostgreSQL) on two CPUs, too long for every
/// block. Few servers that differ by more than blocks do are few values: with four instead of six a
/// ratio's interval is half as wide again, and with luck of 6 % and noise of 3 % a difference was called
/// in 2.5 % of the simulations for 0.9 %. The checkup has five for its time (docs/method.md §1).
pub(crate) const DATABASES: u32 = 6;

impl Starts {
    #[must_use]
    pub fn at_most(self, most: Option<u32>) -> Self {
        match (self, most) {
            (Starts::InTurn(servers), Some(most)) => Starts::InTurn(servers.min(most)),
            _ => self,
        }
    }

    /// Number of the start that a block is measured on.
    #[must_use]
    pub fn of_block(self, block: u32) -> u32 {
        match self {
            Starts::EachBlock => block,
            Starts::InTurn(servers) => block % servers.max(1),
            Starts::Once => 0,
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn blocks_and_their_starts() {
        let starts_of_blocks =
            |starts: Starts| (0..6).map(|block| starts.of_block(block)).collect::<Vec<_>>();
        assert_eq!(starts_of_blocks(Starts::EachBlock), [0, 1, 2, 3, 4, 5]);
        assert_eq!(starts_of_blocks(Starts::InTurn(4)), [0, 1, 2, 3, 0, 1]);
        assert_eq!(starts_of_blocks(Starts::Once), [0; 6]);
        assert_eq!(Starts::InTurn(4).at_most(Some(3)), Starts::InTurn(3));
        assert_eq!(Starts::EachBlock.at_most(Some(3)), Starts::EachBlock);
    }
}
