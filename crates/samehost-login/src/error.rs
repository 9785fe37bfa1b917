//! Why a login did not come about: no connection, a refusal in the server's own words, no answer, or another protocol.

use std::io;
use std::time::Duration;

use samehost_model::{Endpoint, Protocol, Transport};
use samehost_transport::ConnectError;

/// Why nobody was let in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// No connection came about.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The kernel says that another transport is in use than the one asked for.
    #[error("asked for {asked}, but the kernel says: {observed}")]
    WrongTransport {
        /// The transport asked for.
        asked: Transport,
        /// The kernel's answer.
        observed: String,
    },
    /// The server said no, or we cannot do what it wants.
    #[error(transparent)]
    Refused(#[from] Box<Refused>),
    /// Not tried: this password was refused a moment ago.
    #[error(
        "the login of `{user}` at {endpoint} was not tried, for this password was refused a moment ago, and servers count refusals; put the password right first"
    )]
    Spent {
        /// Where it was to be.
        endpoint: String,
        /// As whom; may be empty.
        user: String,
    },
    /// The connection ended before an answer was whole, or the server is about to end or to begin.
    #[error("the server at {endpoint} went away: {reason}; see whether it runs, and what its log says")]
    Lost {
        /// Where it was.
        endpoint: String,
        /// How it showed.
        reason: String,
        /// The server's code for it, where it gave one.
        code: Option<String>,
    },
    /// No answer came.
    #[error("no reply from {endpoint} for {} s; is the server stopped or overloaded?", after.as_secs_f64())]
    TimedOut {
        /// Where the server is.
        endpoint: String,
        /// How long we waited.
        after: Duration,
    },
    /// What answers there speaks something else.
    #[error(
        "what listens at {endpoint} does not speak the protocol asked for: {reason}; `samehost scan` shows which program it is"
    )]
    Protocol {
        /// Where.
        endpoint: String,
        /// What was wrong with its words.
        reason: String,
    },
    /// Input or output failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Who is there could not be proved to be the server: no secret was sent.
    #[error(transparent)]
    Untied(Box<Untied>),
    /// User, database or password hold what no request can.
    #[error("{0}")]
    Unsayable(String),
    /// The process, the namespaces or the rights of another could not be taken on.
    #[error("cannot log in as {who}: {reason}")]
    Become {
        /// Who it was to be.
        who: String,
        /// What stood against it, and what to try.
        reason: String,
    },
    /// The same, told by the process that logged in as somebody else.
    #[error("{message}")]
    Elsewhere {
        /// Which kind.
        kind: LoginErrorKind,
        /// The server's code, where it gave one.
        code: Option<String>,
        /// The whole of what was said.
        message: String,
    },
}

/// A server's refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server at {endpoint} refused {what}: {answer}{}", advice(try_next))]
pub struct Refused {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where.
    pub endpoint: String,
    /// What was asked for, without secrets.
    pub what: String,
    /// Its code: `1045` (MySQL), `28P01` (PostgreSQL), `NOAUTH` (Redis); none where it was we who could not go on.
    pub code: Option<String>,
    /// Its words, code included.
    pub answer: String,
    /// What to try next; may be empty.
    pub try_next: String,
    /// Whether we came without TLS to a server that has it, and that may be why.
    pub may_need_tls: bool,
    /// Whether it is about user and password, and counts as a failed attempt where the server counts those.
    pub by_password: bool,
}

/// Who is at the other end of a connection could not be proved to be the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no password was sent to {endpoint}: {class}{}; {}", found(there), class.try_next())]
pub struct Untied {
    /// Where.
    pub endpoint: String,
    /// Which case it is.
    pub class: UntiedClass,
    /// Who is there instead, or what hides it: number, user and executable. May be empty.
    pub there: String,
}

fn found(there: &str) -> String {
    if there.is_empty() { String::new() } else { format!(" ({there})") }
}

impl Untied {
    /// Of a class; where, is said by the login.
    #[must_use]
    pub fn new(class: UntiedClass) -> Self {
        Untied { endpoint: String::new(), class, there: String::new() }
    }

    /// With who is there.
    #[must_use]
    pub fn with(mut self, there: impl Into<String>) -> Self {
        self.there = there.into();
        self
    }

    /// At an endpoint.
    #[must_use]
    pub fn at(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = endpoint.into();
        self
    }
}

/// Why a connection could not be tied to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UntiedClass {
    /// Another process than the service's.
    #[error("another process than the server's answers there")]
    OtherProcess,
    /// A process of a user that such a server does not run as.
    #[error(
        "a process answers there whose user is neither root, nor the server's account, nor who runs this"
    )]
    OtherAccount,
    /// Its executable could have been put there by somebody else.
    #[error("what answers there runs a file that others than root and its own user may write or own")]
    ForeignFile,
    /// A process of another container or user namespace.
    #[error("a process of a container answers there that nobody named")]
    Container,
    /// Who it is may not be seen.
    #[error("who answers there cannot be seen")]
    Unseen,
    /// The other end is no process of this machine.
    #[error("the other end is not a process of this machine")]
    Elsewhere,
    /// Nobody listens there, as far as can be seen.
    #[error("no service is known there")]
    NobodyListens,
    /// Several services could be meant.
    #[error("several services listen there")]
    SeveralServices,
}

impl UntiedClass {
    /// What to try next.
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

/// The kinds of [`LoginError`], for whom the cause decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginErrorKind {
    /// No connection, or one that broke.
    Connect,
    /// Connected, and the server said no. That it is this server is proved all the same.
    Refused,
    /// No answer in time.
    Timeout,
    /// Something else answers there.
    Protocol,
    /// The one to log in as could not be become; nothing was tried at the server.
    Become,
    /// Somebody answers, and who it is could not be proved; no secret was sent.
    Untied,
}

impl LoginError {
    /// Which kind.
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
            LoginError::Become { .. } => LoginErrorKind::Become,
            LoginError::Untied(_) => LoginErrorKind::Untied,
            LoginError::Elsewhere { kind, .. } => *kind,
        }
    }

    /// The server's code, where it gave one: `1045`, `28P01`, `NOAUTH`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            LoginError::Refused(refused) => refused.code.as_deref(),
            LoginError::Lost { code, .. } | LoginError::Elsewhere { code, .. } => code.as_deref(),
            _ => None,
        }
    }

    /// The server there went away.
    pub fn lost(endpoint: &Endpoint, reason: impl Into<String>) -> Self {
        LoginError::Lost { endpoint: endpoint.to_string(), reason: reason.into(), code: None }
    }

    /// What answers there speaks something else.
    pub fn strange(endpoint: &Endpoint, reason: impl Into<String>) -> Self {
        LoginError::Protocol { endpoint: endpoint.to_string(), reason: reason.into() }
    }

    /// A person wants it stopped.
    pub(crate) fn interrupted(endpoint: impl std::fmt::Display) -> Self {
        let source = io::Error::from(io::ErrorKind::Interrupted);
        LoginError::Io { what: format!("the login at {endpoint} was stopped"), source }
    }

    /// Input or output on something failed.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        LoginError::Io { what: what.into(), source: source.into() }
    }
}
