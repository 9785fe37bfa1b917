//! What a workload is. It defines what is exchanged, and knows no clocks, printing or statistics.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use samehost_model::{Arm, Endpoint, MetricInfo, Part, Point, ServerInfo, Transport, Trial};

use crate::engine::Job;
use crate::error::BenchError;
use crate::impact::Impact;
use crate::network::{Network, OwnNetwork};
use crate::private_servers::ServerKind;
use crate::starts::Starts;

/// Type of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number from 1.
    Count,
    /// Whole numbers from 1: a list (`1,8,64`) or a doubling range (`1..64`). Several are an axis of the
    /// matrix: each point has its value in `parameters`, which overrides the workload's.
    Counts,
    /// One or several of these words, `a,b`. Several are an axis of the matrix, as for `Counts`.
    Choices(&'static [&'static str]),
    Duration,
    /// Any text.
    Text,
}

/// A parameter that a workload adds to the common options.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Option name, without `--`.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Value if none is given.
    pub default: &'static str,
    pub kind: ParameterKind,
}

/// Parameter values by name; contains every parameter that the workload declares.
pub type Parameters = BTreeMap<String, String>;

/// Default values of a workload's parameters.
#[must_use]
pub fn defaults(workload: &dyn Workload) -> Parameters {
    workload.parameters().iter().map(|p| (p.name.to_owned(), p.default.to_owned())).collect()
}

/// The value of a parameter with fixed words.
///
/// # Errors
/// When it is none of the words.
pub(crate) fn word<T: Copy>(
    parameters: &Parameters,
    name: &str,
    words: &[(&str, T)],
) -> Result<T, BenchError> {
    let text = parameters.get(name).map_or("", String::as_str);
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        BenchError::Usage(format!("--{name}: `{text}` is none of {}", words.join(", ")))
    })
}

/// Checks every parameter with fixed words, so that no unknown word is taken for another one.
///
/// # Errors
/// When a value is none of the words.
pub(crate) fn check_words(workload: &dyn Workload, parameters: &Parameters) -> Result<(), BenchError> {
    for parameter in workload.parameters() {
        let is_given = parameters.get(parameter.name).is_some_and(|value| !value.is_empty());
        if let (ParameterKind::Choice(words), true) = (parameter.kind, is_given) {
            let words: Vec<(&str, ())> = words.iter().map(|word| (*word, ())).collect();
            word(parameters, parameter.name, &words)?;
        }
    }
    Ok(())
}

/// Common options that a workload takes, and their defaults.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Transports it runs over; the first two are the default arms.
    pub transports: &'static [Transport],
    /// Default connections; `None` if it takes no `--connections`.
    pub connections: Option<&'static str>,
    /// Default message sizes; `None` if it has no sizes.
    pub sizes: Option<&'static str>,
    /// Whether an open loop is possible.
    pub rates: bool,
    /// Whether trials have a length; otherwise each is one whole operation.
    pub timed: bool,
    /// Whether it can measure a server that is already running.
    pub foreign_servers: bool,
    /// Whether the arms are commands given with `--arm`.
    pub commands: bool,
}

/// What a workload needs to start.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// Path of this program, which runs the built-in servers.
    pub program: PathBuf,
    /// Transports that will be measured.
    pub transports: Vec<Transport>,
    pub parameters: Parameters,
    /// Most connections of an arm.
    pub connections_of_an_arm: u32,
    /// Most connections open at once: those of all arms of a point if they take turns.
    pub most_connections: u32,
    /// Addresses of servers that are already running, by transport.
    pub servers: BTreeMap<Transport, String>,
    /// Commands by arm name.
    pub commands: Vec<(String, String)>,
    /// Network namespace for servers behind a Unix socket, if the workload asked for one.
    pub behind: Option<Arc<OwnNetwork>>,
    /// Whether routes set the congestion control, so that no socket needs to.
    pub routed: bool,
}

/// What is to be measured, as far as it decides what is started.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Transports asked for; empty for the workload's first two.
    pub transports: &'a [Transport],
    /// Servers that are already running.
    pub servers: &'a BTreeMap<Transport, String>,
}

impl Wanted<'_> {
    /// Whether a private server is started that listens on this transport.
    #[must_use]
    pub fn starts_one_on(&self, transport: Transport) -> bool {
        self.servers.is_empty() && (self.transports.is_empty() || self.transports.contains(&transport))
    }
}

/// The part of a workload in the checkup.
#[derive(Clone, Copy, Debug)]
pub enum CheckupEntry {
    /// It measures a kind of server, which the checkup finds where it is installed or running.
    Server {
        kind: &'static ServerKind,
        /// Parameters that differ from the defaults, because the checkup has a few seconds for a server.
        parameters: &'static [(&'static str, &'static str)],
        /// Workload that measures such a server that is already running.
        running: &'static str,
    },
    /// It takes longer than the checkup has: returns what the checkup reports instead.
    Hints(fn() -> Vec<String>),
}

impl CheckupEntry {
    /// The entry of a workload that measures `kind` with default parameters.
    pub(crate) const fn server(kind: &'static ServerKind, workload: &'static str) -> Self {
        CheckupEntry::Server { kind, parameters: &[], running: workload }
    }
}

/// What is exchanged between client and server.
pub trait Workload: Sync {
    /// Name on the command line and in JSON.
    fn name(&self) -> &'static str;

    /// One line of help.
    fn about(&self) -> &'static str;

    /// Example command line, after `samehost bench`.
    fn example(&self) -> &'static str;

    /// Parameters that it adds.
    fn parameters(&self) -> &'static [Parameter];

    /// Common options that it takes with these parameters.
    fn axes(&self, parameters: &Parameters) -> Capabilities;

    /// What it does with these parameters, for the title of a table.
    fn title(&self, parameters: &Parameters) -> String;

    /// Metrics that are compared, the most important first.
    fn metrics(&self, parameters: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo>;

    /// Metrics that are wholly a part of another metric: what the part gains predicts what the whole gains.
    fn parts(&self, _parameters: &Parameters) -> Vec<Part> {
        Vec::new()
    }

    /// Refuses a point that makes no sense; called before anything is started. The error contains what to change.
    fn check(&self, _: &Point, _: Transport, _: &Parameters) -> Result<(), BenchError> {
        Ok(())
    }

    /// Its part in the checkup; `None` if it has none.
    fn checkup(&self) -> Option<CheckupEntry> {
        None
    }

    /// Whether `--size` has a meaning for servers that are already running.
    fn foreign_sizes(&self) -> bool {
        true
    }

    /// The most connections of an arm with which its requests can be cut into slices, so that the arms of a
    /// point take turns; `servers` are those already running. 0 if that is impossible: a connection for each
    /// request, or a program as the client. Otherwise jobs are [`Job::Sessions`] or [`Job::Bulk`], and
    /// several arms have one at the same time.
    fn most_sliced(&self, _parameters: &Parameters, _servers: &BTreeMap<Transport, String>) -> u32 {
        0
    }

    /// Minimum length of a slice, for any number of connections.
    fn least_slice(&self, _parameters: &Parameters) -> Duration {
        Duration::ZERO
    }

    /// How often its server is restarted: the memory layout of a single process would look like a difference
    /// between transports.
    fn starts(&self, _parameters: &Parameters) -> Starts {
        Starts::EachBlock
    }

    /// Whether it uses running servers although none was named.
    fn uses_what_runs(&self, _parameters: &Parameters) -> bool {
        false
    }

    /// What the measurement does to servers that are already running. Queries them and writes nothing.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses the login.
    fn impact(&self, _look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        Ok(Vec::new())
    }

    /// The network that its private servers need, so that no other user reaches one that accepts every client.
    fn network(&self, _parameters: &Parameters, _wanted: Wanted<'_>) -> Network {
        Network::Shared
    }

    /// Whether both ends of its connections are ours, so that each socket can be set.
    fn owns_both_ends(&self) -> bool {
        false
    }

    /// Completes the servers that are already running: if only TCP or only the Unix socket was given, asks
    /// the server for the other. `wanted` are the transports asked for, empty for the default.
    ///
    /// # Errors
    /// When an endpoint that is needed cannot be found.
    fn complete(
        &self,
        servers: &BTreeMap<Transport, String>,
        _wanted: &[Transport],
    ) -> Result<BTreeMap<Transport, String>, BenchError> {
        Ok(servers.clone())
    }

    /// The parameters as they are measured, if one value requires another; `connections` are those given,
    /// empty for the default.
    ///
    /// # Errors
    /// When a value cannot be parsed.
    fn propose(&self, parameters: &Parameters, _connections: &[u32]) -> Result<Parameters, BenchError> {
        Ok(parameters.clone())
    }

    /// Starts its servers.
    ///
    /// # Errors
    /// When a server does not start or is not installed.
    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError>;
}

/// Whether requests wait for replies or for their due times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOrClosed {
    /// The next request is sent when the reply has arrived.
    Closed,
    /// Requests are due at given times.
    Open,
}

/// A workload's running servers; they end when this is dropped.
pub trait Instance {
    fn server(&self) -> ServerInfo;

    /// Processes of a proxy between client and server, such as nginx.
    fn proxy_pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The job of one trial.
    ///
    /// # Errors
    /// When the server cannot be reached.
    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError>;

    /// Endpoint of a transport, for the report.
    fn endpoint(&self, _transport: Transport) -> Option<Endpoint> {
        None
    }

    /// The end of the server's stderr, for the message when the server is lost.
    fn stderr_tail(&self) -> String {
        String::new()
    }

    /// What the server reports about the connections of the last job, which are open, or were.
    fn server_view(&mut self) -> Option<String> {
        None
    }

    /// Adds what is known about the connections of the last job, which are open, or were.
    fn add_observations(&mut self, trial: &mut Trial) {
        let view = self.server_view();
        if let (Some(observed), Some(view)) = (&mut trial.transport_observed, view) {
            observed.push_str("; ");
            observed.push_str(&view);
        }
    }

    /// Called when the connections of a trial, or of all arms of a round, are closed.
    fn finish_trial(&mut self, _trial: &mut Trial) {}
}

/// What is to be measured on servers that are already running.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    pub parameters: &'a Parameters,
    /// Addresses by transport.
    pub servers: &'a BTreeMap<Transport, String>,
    /// Most connections of any point.
    pub connections: u32,
    /// Sum of the sizes of all points, in bytes.
    pub sizes: u64,
    /// Time of the measurement, in seconds.
    pub seconds: f64,
}
