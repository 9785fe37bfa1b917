//! Errors of a login: no connection, a refusal by the server, no reply, or another protocol.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use samehost_model::scan::LoginOutcome;
use samehost_model::{Endpoint, Protocol, Transport};
use samehost_system::Refusal;
use samehost_transport::ConnectError;

use crate::own_files::{OPEN, UnknownService};
use crate::url::UrlError;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    #[error("{}: {OPEN}", path.display())]
    Open { path: PathBuf },
    #[error(transparent)]
    Service(#[from] UnknownService),
    #[error("the URL cannot be read: {0}")]
    Url(#[from] UrlError),
}

/// Why bytes of a server are not a message of its protocol; the user sees it within [`LoginError::Protocol`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl From<String> for Malformed {
    fn from(reason: String) -> Self {
        Malformed(reason)
    }
}

impl From<&str> for Malformed {
    fn from(reason: &str) -> Self {
        Malformed(reason.to_owned())
    }
}

impl From<Malformed> for String {
    fn from(malformed: Malformed) -> Self {
        malformed.0
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("asked for {asked}, but the kernel says: {observed}")]
    WrongTransport { asked: Transport, observed: String },
    /// The server refused, or asked for what we do not support.
    #[error(transparent)]
    Refused(#[from] Box<Refused>),
    #[error(
        "the login of `{user}` at {endpoint} was not tried, for this password was refused a moment ago, and servers count refusals; put the password right first"
    )]
    Spent {
        endpoint: String,
        /// May be empty.
        user: String,
    },
    /// The connection ended before a reply was complete, or the server is starting or shutting down.
    #[error("the server at {endpoint} went away: {reason}; see whether it runs, and what its log says")]
    Lost { endpoint: String, reason: String, code: Option<String> },
    #[error("no reply from {endpoint} for {} s; is the server stopped or overloaded?", after.as_secs_f64())]
    TimedOut { endpoint: String, after: Duration },
    #[error(
        "what listens at {endpoint} does not speak the protocol asked for: {reason}; `samehost scan` shows which program it is"
    )]
    Protocol { endpoint: String, reason: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// The peer could not be verified to be the server; no secret was sent.
    #[error(transparent)]
    Untied(Box<Untied>),
    /// User, database or password contain something that no request can carry.
    #[error("{0}")]
    Unsayable(String),
    /// The process could not change to another user, its namespaces or its permissions.
    #[error("cannot log in as {who}: {reason}")]
    Become {
        who: String,
        /// Includes what to try.
        reason: String,
    },
    /// The process that connects as another user could not be started: nothing was asked of the server, and nothing is wrong there.
    #[error("no login can be tried by {program}: {why}", program = .program.display())]
    NotStarted { program: PathBuf, why: Refusal },
    /// An error reported by the process that connected as another user.
    #[error("{message}")]
    Elsewhere { kind: LoginErrorKind, code: Option<String>, message: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server at {endpoint} refused {what}: {answer}{}", advice(try_next))]
pub struct Refused {
    pub protocol: Protocol,
    pub endpoint: String,
    /// What was asked for, redacted.
    pub what: String,
    /// Error code: `1045` (MySQL), `28P01` (PostgreSQL), `NOAUTH` (Redis); `None` if it was we who gave up.
    pub code: Option<String>,
    /// Includes the code.
    pub answer: String,
    /// May be empty.
    pub try_next: String,
    /// Whether the reason may be that we came without TLS to a server that supports it.
    pub may_need_tls: bool,
    /// Whether the refusal is about user and password, and counts as a failed attempt if the server counts those.
    pub by_password: bool,
}

impl Refused {
    /// A refusal without a code and advice, that is not about the password.
    pub(crate) fn new(
        protocol: Protocol,
        endpoint: &Endpoint,
        what: impl Into<String>,
        answer: impl Into<String>,
    ) -> Self {
        let (endpoint, what, answer) = (endpoint.to_string(), what.into(), answer.into());
        let (code, try_next, may_need_tls, by_password) = (None, String::new(), false, false);
        Refused { protocol, endpoint, what, code, answer, try_next, may_need_tls, by_password }
    }

    /// Whether a server that refused this as PostgreSQL would refuse any statement: for want of resources, by its operator or by an
    /// error of its own. The console of a pooler refuses what it does not know, by a code of syntax or of the protocol.
    pub(crate) fn answers_nothing(&self) -> bool {
        let class = self.code.as_deref().and_then(|code| code.get(..2)).unwrap_or_default();
        ["28", "53", "54", "57", "58", "XX"].contains(&class)
    }
}

impl From<Refused> for LoginError {
    fn from(refused: Refused) -> Self {
        LoginError::Refused(Box::new(refused))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no password was sent to {endpoint}: {class}{}; {}", found(there), class.try_next())]
pub struct Untied {
    pub endpoint: String,
    pub class: UntiedClass,
    /// The actual peer, or what hides it: pid, user and executable. May be empty.
    pub there: String,
}

fn found(there: &str) -> String {
    if there.is_empty() { String::new() } else { format!(" ({there})") }
}

impl Untied {
    /// An error without endpoint and peer: [`Untied::with`] adds the peer, and the login the endpoint.
    #[must_use]
    pub fn new(class: UntiedClass) -> Self {
        Untied { endpoint: String::new(), class, there: String::new() }
    }

    #[must_use]
    pub fn with(mut self, there: impl Into<String>) -> Self {
        self.there = there.into();
        self
    }

    #[must_use]
    pub fn at(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = endpoint.into();
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UntiedClass {
    #[error("another process than the server's answers there")]
    OtherProcess,
    #[error(
        "a process answers there whose user is neither root, nor the server's account, nor who runs this"
    )]
    OtherAccount,
    #[error("what answers there runs a file that others than root and its own user may write or own")]
    ForeignFile,
    #[error("a process of a container answers there that nobody named")]
    Container,
    #[error("who answers there cannot be seen")]
    Unseen,
    #[error("the other end is not a process of this machine")]
    Elsewhere,
    #[error("no service is known there")]
    NobodyListens,
    #[error("several services listen there")]
    SeveralServices,
}

impl UntiedClass {
    #[must_use]
    pub fn try_next(self) -> &'static str {
        match self {
            UntiedClass::OtherProcess | UntiedClass::NobodyListens => {
                "see with `samehost scan` which program it is, and whether the server runs"
            }
            UntiedClass::OtherAccount => {
                "if it is your server, run samehost as its user (sudo -u USER samehost …), or let it run in a unit of the system that bears its name"
            }
            UntiedClass::ForeignFile => {
                "if it is your server, let its executable belong to root and be writable by nobody else"
            }
            UntiedClass::Container => {
                "run samehost inside of that container, or name a server of this machine"
            }
            UntiedClass::Unseen => "run samehost as root, who may see it: sudo samehost …",
            UntiedClass::Elsewhere => {
                "name an address of a server on this machine; a server elsewhere is not what samehost is for"
            }
            UntiedClass::SeveralServices => {
                "name the Unix socket, or the exact address, of the one that is meant"
            }
        }
    }
}

fn advice(try_next: &str) -> String {
    if try_next.is_empty() { String::new() } else { format!("; {try_next}") }
}

/// Kinds of [`LoginError`], for callers whose next step depends on the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginErrorKind {
    /// No connection, or a broken one.
    Connect,
    /// Connected, and the server refused; it is still verified to be this server.
    Refused,
    Timeout,
    Protocol,
    /// Nothing was tried at the server.
    Become,
    /// No secret was sent.
    Untied,
}

impl LoginError {
    #[must_use]
    pub fn kind(&self) -> LoginErrorKind {
        match self {
            LoginError::Connect(ConnectError::TimedOut { .. }) | LoginError::TimedOut { .. } => {
                LoginErrorKind::Timeout
            }
            LoginError::Connect(_)
            | LoginError::WrongTransport { .. }
            | LoginError::Lost { .. }
            | LoginError::Io { .. } => LoginErrorKind::Connect,
            LoginError::Refused(_) | LoginError::Spent { .. } | LoginError::Unsayable(_) => {
                LoginErrorKind::Refused
            }
            LoginError::Protocol { .. } => LoginErrorKind::Protocol,
            LoginError::Become { .. } | LoginError::NotStarted { .. } => LoginErrorKind::Become,
            LoginError::Untied(_) => LoginErrorKind::Untied,
            LoginError::Elsewhere { kind, .. } => *kind,
        }
    }

    /// Whether what this process lacks is its only reason, so that it says nothing of server or account. With few descriptors a switch
    /// was refused as if the service were down.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        matches!(self, LoginError::NotStarted { .. } | LoginError::Connect(ConnectError::TooManyFiles(..)))
    }

    /// The server's error code, if it sent one: `1045`, `28P01`, `NOAUTH`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            LoginError::Refused(refused) => refused.code.as_deref(),
            LoginError::Lost { code, .. } | LoginError::Elsewhere { code, .. } => code.as_deref(),
            _ => None,
        }
    }

    /// What that leaves of a login.
    pub(crate) fn outcome(&self) -> LoginOutcome {
        match self {
            LoginError::Lost { .. } => LoginOutcome::Closed,
            _ if self.is_of_this_process() => LoginOutcome::NotTried,
            LoginError::Io { .. } => LoginOutcome::NotTried,
            _ => match self.kind() {
                LoginErrorKind::Connect => LoginOutcome::Unreachable,
                LoginErrorKind::Refused => LoginOutcome::Refused,
                LoginErrorKind::Timeout => LoginOutcome::Silent,
                LoginErrorKind::Protocol => LoginOutcome::OtherProtocol,
                LoginErrorKind::Become => LoginOutcome::NotTried,
                LoginErrorKind::Untied => LoginOutcome::Unproven,
            },
        }
    }

    pub fn lost(endpoint: impl std::fmt::Display, reason: impl Into<String>) -> Self {
        LoginError::Lost { endpoint: endpoint.to_string(), reason: reason.into(), code: None }
    }

    pub fn strange(endpoint: &Endpoint, reason: impl Into<String>) -> Self {
        LoginError::Protocol { endpoint: endpoint.to_string(), reason: reason.into() }
    }

    pub(crate) fn interrupted(endpoint: impl std::fmt::Display) -> Self {
        let source = io::Error::from(io::ErrorKind::Interrupted);
        LoginError::Io { what: format!("the login at {endpoint} was stopped"), source }
    }

    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        LoginError::Io { what: what.into(), source: source.into() }
    }
}
