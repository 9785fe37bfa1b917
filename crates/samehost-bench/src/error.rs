//! What can go wrong between asking for a measurement and having it.

use std::io;
use std::path::PathBuf;

use samehost_login::{CredentialsError, LoginError, OPEN};
use samehost_model::{Endpoint, EndpointError, QuantityError, Transport, UnknownTransport};
use samehost_transport::{CertificateMakingError, ConnectError, ListenError, StartError, TuningError};

use crate::advice::try_next;

/// Whose fault it is, for the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Wrong use or bad input.
    Input,
    /// Something needed is missing here, or went away.
    Missing,
    /// A person stopped it.
    Interrupted,
}

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A number on the command line is none.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// An endpoint on the command line is none.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A transport on the command line is none.
    #[error(transparent)]
    Transport(#[from] UnknownTransport),
    /// Options that do not go together, or a value that a workload cannot take.
    #[error("{0}")]
    Usage(String),
    /// A workload cannot run over a transport.
    #[error("`{workload}` does not run over {transport}; it runs over {}", known.iter().map(|t| t.name()).collect::<Vec<_>>().join(", "))]
    UnsupportedTransport {
        /// The workload.
        workload: &'static str,
        /// The transport asked for.
        transport: Transport,
        /// Those it runs over.
        known: Vec<Transport>,
    },
    /// The client could not connect.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A connection of a burst could not be started.
    #[error(transparent)]
    StartConnect(#[from] StartError),
    /// A socket cannot be set as asked for.
    #[error(transparent)]
    Tuning(#[from] TuningError),
    /// A certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] CertificateMakingError),
    /// A server of ours could not listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The kernel says that another transport is in use than the one asked for.
    #[error("asked for {asked}, but the kernel says: {observed}")]
    WrongTransport {
        /// The transport asked for.
        asked: Transport,
        /// The kernel's answer.
        observed: String,
    },
    /// The server went away in the middle.
    #[error("the server at {endpoint} went away during the trial: {reason}{}", last_words(server_said))]
    ServerLost {
        /// Where it was.
        endpoint: String,
        /// How it showed.
        reason: String,
        /// What it wrote on standard error.
        server_said: String,
    },
    /// No reply came.
    #[error("no reply from {endpoint} for {seconds:.0} s; is the server stopped or overloaded?")]
    Hung {
        /// Where the server is.
        endpoint: String,
        /// How long we waited.
        seconds: f64,
    },
    /// A fixture did not start.
    #[error("could not start {server}: {reason}{}", last_words(server_said))]
    Start {
        /// What was to be started.
        server: String,
        /// What went wrong.
        reason: String,
        /// What it wrote on standard error.
        server_said: String,
    },
    /// A server's program is not here.
    #[error(
        "{program} is not installed, or not in PATH; install the package {package} (`apt install {package}`), or name servers that already run with --tcp and --unix"
    )]
    NotInstalled {
        /// The program, or those that would do.
        program: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program that a server of ours is built with is not here.
    #[error(
        "{program} is not installed, or not in PATH; install the package {package} (`apt install {package}`), or {instead}"
    )]
    ToolMissing {
        /// The program.
        program: String,
        /// The Debian package that has it.
        package: &'static str,
        /// What else can be done.
        instead: &'static str,
    },
    /// The kernel does not let us do something.
    #[error("{what} is not permitted here: {reason}; {try_next}")]
    NotPermitted {
        /// What was tried.
        what: &'static str,
        /// What stands against it.
        reason: String,
        /// What to try next.
        try_next: &'static str,
    },
    /// A private PHP-FPM would have to listen where everybody reaches it.
    #[error(
        "the TCP port of a private PHP-FPM would be open to every user of this machine, who could have it run any code; it needs a network of its own, and {reason}; or {instead}"
    )]
    NoOwnNetwork {
        /// What stands against it.
        reason: String,
        /// What can be measured instead.
        instead: &'static str,
    },
    /// A server said no to something without which nothing can be measured.
    #[error("the server at {endpoint} refused {what}: {answer}{}", after(try_next))]
    Refused {
        /// Where.
        endpoint: String,
        /// What was asked for, without secrets.
        what: String,
        /// Its words.
        answer: String,
        /// What to try next; may be empty.
        try_next: String,
    },
    /// Input or output failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A command that is an arm failed.
    #[error("arm `{arm}`: {reason}")]
    Command {
        /// The arm.
        arm: String,
        /// What went wrong, and what the command said.
        reason: String,
    },
    /// A path is in the way.
    #[error("{path}: {reason}", path = path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Two sides are to be on different CPUs and there is one.
    #[error("--placement cross-core needs two CPUs, and this process may use only one (see `taskset -p $$`)")]
    OneCpu,
    /// The kernel does not tell which CPUs may be used.
    #[error("the kernel does not tell which CPUs this process may use (sched_getaffinity)")]
    NoCpu,
    /// Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
}

fn last_words(said: &str) -> String {
    let said = said.trim();
    if said.is_empty() { String::new() } else { format!("\nit said:\n{said}") }
}

fn after(try_next: &str) -> String {
    if try_next.is_empty() { String::new() } else { format!("; {try_next}") }
}

impl From<LoginError> for BenchError {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Connect(error) => BenchError::Connect(error),
            LoginError::WrongTransport { asked, observed } => BenchError::WrongTransport { asked, observed },
            LoginError::Refused(refused) => BenchError::Refused {
                try_next: try_next(&refused),
                endpoint: refused.endpoint,
                what: refused.what,
                answer: refused.answer,
            },
            LoginError::Lost { endpoint, reason, .. } | LoginError::Protocol { endpoint, reason } => {
                BenchError::ServerLost { endpoint, reason, server_said: String::new() }
            }
            LoginError::TimedOut { endpoint, after } => {
                BenchError::Hung { endpoint, seconds: after.as_secs_f64() }
            }
            LoginError::Unsayable(reason) => BenchError::Usage(reason),
            LoginError::Io { what, source } => BenchError::Io { what, source },
            other => BenchError::Usage(other.to_string()),
        }
    }
}

impl From<CredentialsError> for BenchError {
    fn from(error: CredentialsError) -> Self {
        match error {
            CredentialsError::Open { path } => BenchError::Path { reason: OPEN.into(), path },
            other => BenchError::Usage(other.to_string()),
        }
    }
}

impl BenchError {
    /// Input or output on something failed.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        BenchError::Io { what: what.into(), source: source.into() }
    }

    /// The server at this endpoint went away.
    pub fn lost(endpoint: &Endpoint, reason: impl Into<String>) -> Self {
        BenchError::ServerLost {
            endpoint: endpoint.to_string(),
            reason: reason.into(),
            server_said: String::new(),
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            BenchError::Quantity(_)
            | BenchError::Endpoint(_)
            | BenchError::Transport(_)
            | BenchError::Usage(_)
            | BenchError::UnsupportedTransport { .. }
            | BenchError::WrongTransport { .. }
            | BenchError::Listen(_)
            | BenchError::Path { .. }
            | BenchError::Refused { .. }
            | BenchError::Command { .. } => Fault::Input,
            BenchError::Connect(_)
            | BenchError::StartConnect(_)
            | BenchError::Tuning(_)
            | BenchError::Certificate(_)
            | BenchError::ServerLost { .. }
            | BenchError::Hung { .. }
            | BenchError::Start { .. }
            | BenchError::NotInstalled { .. }
            | BenchError::ToolMissing { .. }
            | BenchError::NotPermitted { .. }
            | BenchError::NoOwnNetwork { .. }
            | BenchError::Io { .. }
            | BenchError::OneCpu
            | BenchError::NoCpu => Fault::Missing,
            BenchError::Interrupted => Fault::Interrupted,
        }
    }
}
