//! What a workload is: what is exchanged. It knows nothing of clocks, printing or statistics.

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

/// What kind of value a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number from 1.
    Count,
    /// Whole numbers from 1: a list (`1,8,64`) or a doubling range (`1..64`). Several are an axis of the matrix:
    /// each point has its own in `parameters`, which goes before the workload's.
    Counts,
    /// One or several of these words, `a,b`. Several are an axis of the matrix, as for `Counts`.
    Choices(&'static [&'static str]),
    /// A length of time.
    Duration,
    /// Anything.
    Text,
}

/// A parameter that a workload adds to the common options.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name: `--name` on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Its value when none is given.
    pub default: &'static str,
    /// What it takes.
    pub kind: ParameterKind,
}

/// A parameter's values by name; every one that the workload declares is present.
pub type Parameters = BTreeMap<String, String>;

/// What a workload's parameters are where nothing is said.
#[must_use]
pub fn defaults(workload: &dyn Workload) -> Parameters {
    workload.parameters().iter().map(|p| (p.name.to_owned(), p.default.to_owned())).collect()
}

/// Which of the common options a workload takes, and what they are by default.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Transports it runs over; the first two are the default arms.
    pub transports: &'static [Transport],
    /// Connections by default; none where it makes no sense.
    pub connections: Option<&'static str>,
    /// Message sizes by default; none where it has none.
    pub sizes: Option<&'static str>,
    /// Whether an open loop is possible.
    pub rates: bool,
    /// Whether trials have a length; otherwise each is one whole operation.
    pub timed: bool,
    /// Whether it can be pointed at a server that already runs.
    pub foreign_servers: bool,
    /// Whether the arms are commands given with `--arm`.
    pub commands: bool,
}

/// What a workload is started with.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// This program, which serves the built-in servers.
    pub program: PathBuf,
    /// Transports that will be measured.
    pub transports: Vec<Transport>,
    /// Values of its parameters.
    pub parameters: Parameters,
    /// The most connections that an arm has.
    pub connections_of_an_arm: u32,
    /// The most connections at once: those of all arms of a point, where they take turns.
    pub most_connections: u32,
    /// Addresses of servers that already run, by transport.
    pub servers: BTreeMap<Transport, String>,
    /// Commands by arm name.
    pub commands: Vec<(String, String)>,
    /// A network for what stands behind a Unix socket, where the workload asked for one.
    pub behind: Option<Arc<OwnNetwork>>,
    /// Whether routes set the congestion control, so that no socket needs to.
    pub routed: bool,
}

/// What is to be measured, as far as it decides what is started.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The transports asked for; empty for the workload's first two.
    pub transports: &'a [Transport],
    /// Servers that already run.
    pub servers: &'a BTreeMap<Transport, String>,
}

impl Wanted<'_> {
    /// Whether a private server is started that listens on a transport of the workload.
    #[must_use]
    pub fn starts_one_on(&self, transport: Transport) -> bool {
        self.servers.is_empty() && (self.transports.is_empty() || self.transports.contains(&transport))
    }
}

/// What is exchanged.
pub trait Workload: Sync {
    /// Its name on the command line and in JSON.
    fn name(&self) -> &'static str;

    /// One line of help.
    fn about(&self) -> &'static str;

    /// An example command line, after `samehost bench`.
    fn example(&self) -> &'static str;

    /// The parameters it adds.
    fn parameters(&self) -> &'static [Parameter];

    /// Which common options it takes with these parameters.
    fn axes(&self, parameters: &Parameters) -> Capabilities;

    /// What it does with these parameters, for a table's head.
    fn title(&self, parameters: &Parameters) -> String;

    /// What is compared, the most important first.
    fn metrics(&self, parameters: &Parameters, open_loop: OpenOrClosed) -> Vec<MetricInfo>;

    /// Metrics that are a part of another one of its metrics, in whole: what the part gains predicts what the whole
    /// gains.
    fn parts(&self, _parameters: &Parameters) -> Vec<Part> {
        Vec::new()
    }

    /// Whether a point makes sense; called before anything is started.
    ///
    /// # Errors
    /// With what to change.
    fn check(&self, _: &Point, _: Transport, _: &Parameters) -> Result<(), BenchError> {
        Ok(())
    }

    /// The kind of server it measures, by which the checkup finds those that are installed or run here; none for
    /// a server of our own. Naming it here is all that makes a workload part of the checkup.
    fn server_kind(&self) -> Option<&'static ServerKind> {
        None
    }

    /// Whether `--size` means anything for servers that already run.
    fn foreign_sizes(&self) -> bool {
        true
    }

    /// Parameters that differ from the defaults in the checkup, which has a few seconds for a server.
    fn checkup_parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// What the checkup says instead, where it finds what this workload measures and a few seconds are too short.
    fn checkup_hints(&self) -> Vec<String> {
        Vec::new()
    }

    /// The workload that measures a server of this kind that already runs.
    fn running_workload(&self) -> &'static str {
        self.name()
    }

    /// Up to how many connections of an arm what it does can be cut into slices, so that the arms of a point take turns;
    /// `servers` are those that run already. 0 where it cannot: a connection for each request, a program as the client.
    /// Where it can, jobs are [`Job::Sessions`] or [`Job::Bulk`], and several arms have one at the same time.
    fn most_sliced(&self, _parameters: &Parameters, _servers: &BTreeMap<Transport, String>) -> u32 {
        0
    }

    /// A slice is so long at least, whatever the number of connections.
    fn least_slice(&self, _parameters: &Parameters) -> Duration {
        Duration::ZERO
    }

    /// How its server is started afresh: a process's luck would look like a difference of transports.
    fn starts(&self, _parameters: &Parameters) -> Starts {
        Starts::EachBlock
    }

    /// Whether it uses what already runs, though no server was named.
    fn uses_what_runs(&self, _parameters: &Parameters) -> bool {
        false
    }

    /// What measuring does to servers that already run, as they say themselves; nothing is written for that.
    ///
    /// # Errors
    /// When one cannot be reached, or does not let us in.
    fn impact(&self, _look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        Ok(Vec::new())
    }

    /// The network that its private servers need, so that nobody else reaches one that lets everybody in.
    fn network(&self, _parameters: &Parameters, _wanted: Wanted<'_>) -> Network {
        Network::Shared
    }

    /// Whether both ends of its connections are ours, so that each socket can be set.
    fn owns_both_ends(&self) -> bool {
        false
    }

    /// Servers that already run, with the half that was not given where the server tells it; `wanted` are the
    /// transports asked for, none for the default.
    ///
    /// # Errors
    /// When the half that is needed cannot be found.
    fn complete(
        &self,
        servers: &BTreeMap<Transport, String>,
        _wanted: &[Transport],
    ) -> Result<BTreeMap<Transport, String>, BenchError> {
        Ok(servers.clone())
    }

    /// The parameters as they are measured, where one value calls for another beside it; `connections` are those
    /// given, none for the default.
    ///
    /// # Errors
    /// When a value is none.
    fn propose(&self, parameters: &Parameters, _connections: &[u32]) -> Result<Parameters, BenchError> {
        Ok(parameters.clone())
    }

    /// Starts what it needs.
    ///
    /// # Errors
    /// When a server does not start or is missing.
    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError>;
}

/// Whether requests wait for replies or for their due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOrClosed {
    /// The next request when the reply came.
    Closed,
    /// Requests due at given times.
    Open,
}

/// A workload's servers, running; gone when dropped.
pub trait Instance {
    /// The server.
    fn server(&self) -> ServerInfo;

    /// The processes of what stands between client and server, such as nginx.
    fn proxy_pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The job of one trial.
    ///
    /// # Errors
    /// When the server cannot be reached.
    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError>;

    /// Where the server of a transport is, for the report.
    fn endpoint(&self, _transport: Transport) -> Option<Endpoint> {
        None
    }

    /// The end of what the server wrote on standard error, for the message when it is lost.
    fn said(&self) -> String {
        String::new()
    }

    /// Adds what the server knows of the connections of the last job, which are open, or were.
    fn witness(&mut self, _sample: &mut Trial) {}

    /// Called when the connections of a trial, or of all arms of a round, are closed.
    fn after(&mut self, _sample: &mut Trial) {}
}

/// What is to be measured on servers that already run.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Values of the workload's parameters.
    pub parameters: &'a Parameters,
    /// Their addresses, by transport.
    pub servers: &'a BTreeMap<Transport, String>,
    /// The most connections that any point has.
    pub connections: u32,
    /// The sizes of all points together, in bytes.
    pub sizes: u64,
    /// The time for measuring, in seconds.
    pub seconds: f64,
}
