//! Errors of measuring, each with what to try next: after a server refused, the option of `bench` that helps, or else the general
//! advice of `samehost-login`.

use std::io;
use std::path::PathBuf;

use samehost_login::{CredentialsError, LoginError, OPEN, Refused};
use samehost_model::{EndpointError, Protocol, QuantityError, Transport, UnknownTransport};
use samehost_transport::{CertificateMakingError, ConnectError, ListenError, StartError, TuningError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Input,
    Missing,
    Interrupted,
}

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Transport(#[from] UnknownTransport),
    /// Options that exclude each other, or a value that a workload does not accept.
    #[error("{0}")]
    Usage(String),
    #[error("`{workload}` does not run over {transport}; it runs over {}", known.iter().map(|t| t.name()).collect::<Vec<_>>().join(", "))]
    UnsupportedTransport { workload: &'static str, transport: Transport, known: Vec<Transport> },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A connection of a burst could not be started.
    #[error(transparent)]
    StartConnect(#[from] StartError),
    #[error(transparent)]
    Tuning(#[from] TuningError),
    #[error(transparent)]
    Certificate(#[from] CertificateMakingError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("asked for {asked}, but the kernel says: {observed}")]
    WrongTransport { asked: Transport, observed: String },
    #[error("the server at {endpoint} went away during the trial: {reason}{}", last_words(server_said))]
    ServerLost { endpoint: String, reason: String, server_said: String },
    #[error("no reply from {endpoint} for {seconds:.0} s; is the server stopped or overloaded?")]
    Hung { endpoint: String, seconds: f64 },
    #[error("could not start {server}: {reason}{}", last_words(server_said))]
    Start { server: String, reason: String, server_said: String },
    #[error(
        "{program} is not installed, or not in PATH; install the package {package} (`apt install {package}`), or {instead}"
    )]
    NotInstalled {
        /// The program, or the alternatives.
        program: String,
        package: &'static str,
        instead: &'static str,
    },
    #[error("{what} is not permitted here: {reason}; {try_next}")]
    NotPermitted { what: &'static str, reason: String, try_next: &'static str },
    #[error(
        "the TCP port of a private PHP-FPM would be open to every user of this machine, who could have it run any code; it needs a network of its own, and {reason}; or {instead}"
    )]
    NoOwnNetwork { reason: String, instead: &'static str },
    #[error("the server at {endpoint} refused {what}: {answer}{}", after(try_next))]
    Refused {
        endpoint: String,
        /// What was asked for, redacted.
        what: String,
        answer: String,
        /// What to try next; may be empty.
        try_next: String,
    },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("arm `{arm}`: {reason}")]
    Command { arm: String, reason: String },
    #[error("{path}: {reason}", path = path.display())]
    Path { path: PathBuf, reason: String },
    #[error("--placement cross-core needs two CPUs, and this process may use only one (see `taskset -p $$`)")]
    OneCpu,
    #[error("the kernel does not tell which CPUs this process may use (sched_getaffinity)")]
    NoCpu,
    #[error("interrupted")]
    Interrupted,
}

/// What can be measured without a program.
pub(crate) const RUNNING_SERVERS: &str = "name servers that already run with --tcp and --unix";

fn last_words(stderr: &str) -> String {
    let stderr = stderr.trim();
    if stderr.is_empty() { String::new() } else { format!("\nit said:\n{stderr}") }
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
                BenchError::lost(&endpoint, reason)
            }
            LoginError::TimedOut { endpoint, after } => {
                BenchError::Hung { endpoint, seconds: after.as_secs_f64() }
            }
            LoginError::Unsayable(reason) => BenchError::Usage(reason),
            LoginError::Io { source, .. } if source.kind() == io::ErrorKind::Interrupted => {
                BenchError::Interrupted
            }
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
    /// `what` names the operation and its object.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        BenchError::Io { what: what.into(), source: source.into() }
    }

    /// As [`BenchError::io`], for `map_err`.
    pub(crate) fn during<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> Self {
        move |source| BenchError::io(what, source)
    }

    pub(crate) fn refuse<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(BenchError::Usage(reason.into()))
    }

    pub fn lost(endpoint: &(impl ToString + ?Sized), reason: impl Into<String>) -> Self {
        BenchError::ServerLost {
            endpoint: endpoint.to_string(),
            reason: reason.into(),
            server_said: String::new(),
        }
    }

    pub(crate) fn not_installed(program: impl Into<String>, package: &'static str) -> Self {
        BenchError::NotInstalled { program: program.into(), package, instead: RUNNING_SERVERS }
    }

    /// `what` was asked for; `try_next` may be empty.
    pub(crate) fn refused(
        endpoint: &(impl ToString + ?Sized),
        what: impl Into<String>,
        answer: impl Into<String>,
        try_next: impl Into<String>,
    ) -> Self {
        let (endpoint, what) = (endpoint.to_string(), what.into());
        BenchError::Refused { endpoint, what, answer: answer.into(), try_next: try_next.into() }
    }

    /// A private server that did not start, before it could say anything.
    pub(crate) fn unstarted(server: &str, reason: impl Into<String>) -> Self {
        let (server, reason) = (server.to_owned(), reason.into());
        BenchError::Start { server, reason, server_said: String::new() }
    }

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
            | BenchError::NotPermitted { .. }
            | BenchError::NoOwnNetwork { .. }
            | BenchError::Io { .. }
            | BenchError::OneCpu
            | BenchError::NoCpu => Fault::Missing,
            BenchError::Interrupted => Fault::Interrupted,
        }
    }
}

pub(crate) fn try_next(refused: &Refused) -> String {
    let code = refused.code.as_deref();
    let advice = match refused.protocol {
        Protocol::Mysql if code == Some("1045") && refused.may_need_tls => {
            return format!("{}: --transports tcp+tls", refused.try_next);
        }
        Protocol::Mysql => code.and_then(|code| code.parse().ok()).map(mysql),
        Protocol::Postgres => postgres(refused),
        Protocol::Redis => Some(redis(&refused.answer)),
        _ => None,
    };
    advice.map_or_else(|| refused.try_next.clone(), str::to_owned)
}

fn mysql(code: u16) -> &'static str {
    match code {
        1040 | 1203 | 1226 => "use fewer --connections, or raise max_connections",
        1044 => {
            "grant the user a database of the tool's own (CREATE on samehost.*), name one that it may use in the URL, or try --read-only yes"
        }
        3159 | 1835 => "the server takes TLS or the Unix socket only: --transports tcp+tls,unix",
        1290 | 1792 | 1836 => "the server is read-only: try --read-only yes",
        1142 | 1227 => "the user may not do that: try --read-only yes, or grant it",
        1021 | 1114 => "the disk is full",
        code => samehost_login::mysql::advice(code),
    }
}

fn postgres(refused: &Refused) -> Option<&'static str> {
    Some(match refused.code.as_deref() {
        None if refused.what == "TLS" => {
            "set `ssl = on` with a certificate in postgresql.conf, or leave tcp+tls out of --transports"
        }
        Some("28000") if refused.may_need_tls => {
            "pg_hba.conf requires TLS for this connection (hostssl), or has no entry for this user and database: try --transports tcp+tls,unix"
        }
        Some("42501") => {
            "grant it (GRANT CREATE ON SCHEMA public TO …), or use --statement select-1 --read-only yes, which writes nothing"
        }
        Some("25006") => "this server only reads; use --statement select-1 --read-only yes",
        Some("53100") => {
            "make room on the disk of its data directory (TMPDIR, for a private server), or use fewer --rows"
        }
        Some("53300") => {
            "use fewer --connections, or raise max_connections in postgresql.conf (and the role's CONNECTION LIMIT)"
        }
        _ => return None,
    })
}

fn redis(answer: &str) -> &'static str {
    match answer.split(' ').next().unwrap_or_default() {
        "NOPERM" => "the user lacks permission for this command; --command ping needs no permission for keys",
        "READONLY" => "this is a replica; measure its primary, or use --command ping",
        _ => samehost_login::redis::advice(answer),
    }
}
