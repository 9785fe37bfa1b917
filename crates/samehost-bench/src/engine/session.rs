//! What the engine drives: sessions without I/O of their own, and callers that own their socket.

use samehost_system::threads;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use samehost_model::{ConnectionSettings, Transport, Trial};
use samehost_system::diag::{Diag, both_ends};
use samehost_transport::{Observed, Stream};

use crate::error::BenchError;

/// Most bytes of a reply that a session may leave unread while it waits for more. Sessions take a long reply in parts and keep
/// whole only refusals and short rows; as many connections as an engine has may each leave this much.
pub const MAX_UNREAD_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The reply is complete and correct; `consumed` bytes belong to it.
    Complete { consumed: usize },
    /// The reply is complete and a refusal (an SQL error, a 502); the connection stays usable.
    Rejected { consumed: usize, kind: &'static str },
    /// The reply is complete, and the server announced that it closes the connection after it.
    /// HTTP servers do that after a number of requests (`Connection: close`). The engine connects anew,
    /// and in a closed loop the time to connect is part of the next request: connections that are not
    /// kept are measured with what they cost. Counting a failed request was rejected, because the server
    /// did what it announced.
    Last {
        consumed: usize,
        /// Kind of refusal; `None` if the reply was correct.
        rejected: Option<&'static str>,
    },
    /// More bytes are needed; `consumed` bytes are already used.
    More { consumed: usize },
}

/// A wrong reply; the connection is unusable after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Bad {
    pub kind: &'static str,
    pub detail: String,
}

impl Bad {
    pub fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Bad { kind, detail: detail.into() }
    }

    pub fn malformed(detail: impl Into<String>) -> Self {
        Bad::new("malformed reply", detail)
    }
}

/// Conversation on one connection whose handshake is complete: it maps requests and replies to bytes.
/// It does no I/O and reads no clock, so that one engine can drive one connection or a thousand, blocking
/// or by epoll, in a closed loop, an open loop or a burst. A run loop in each workload was rejected: each
/// would need a clock, and would drive its load in its own way. The engine in turn knows no protocol.
pub trait Session: Send {
    /// Appends the next request to `out`, which the engine has emptied.
    fn request(&mut self, out: &mut Vec<u8>);

    /// Parses the bytes received since the last consumed one, and verifies the reply.
    ///
    /// # Errors
    /// When the reply is wrong; the engine then counts an error and reconnects.
    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad>;

    /// Number of operations in an exchange: more than one if a request is a pipeline. It is the same for all
    /// sessions of a trial. Latency is that of the whole exchange.
    fn operations_per_exchange(&self) -> u64 {
        1
    }
}

/// Conversation whose library owns the socket, or that needs a new connection each time; each caller has
/// a thread. An operation that opens a connection includes a handshake, and a client library may not give
/// its socket away. Handshakes inside the epoll loop were rejected: every one of them would have to be
/// written without I/O as well. The price is a second kind of connection in the engine, and a thread for
/// each, which counts at many connections.
pub trait Caller: Send {
    /// Makes one whole operation, from opening the connection if it needs a new one to the verified reply.
    ///
    /// # Errors
    /// When it failed; the engine counts it and goes on.
    fn call(&mut self) -> Result<(), Bad>;

    /// What the kernel reports about the socket that it keeps; `None` without one.
    fn seen(&self) -> Option<Seen> {
        None
    }
}

/// How a thread with one connection waits for bytes; poll(2) is the default, of our client and of our
/// server. A thread that sleeps in read(2) of a Unix socket is woken twice: when the peer takes the
/// request and when it replies (`unix_write_space`). Waiting there a round trip over a Unix socket took
/// 1.04 to 1.09 times that over TCP here, against 0.68 times where both ends wait in poll. libpq,
/// Connector/C, PHP, Go, Node and nginx poll; [`Wait::Read`] is for programs that do not
/// (docs/workloads.md, raw).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In poll(2), then read(2): as libpq, Connector/C, PHP and everything based on epoll do.
    Poll,
    /// In read(2): as hiredis and a plain loop in C do.
    Read,
}

impl Wait {
    /// Waits in poll(2) until `stream` can be read; does nothing for [`Wait::Read`].
    #[inline]
    pub(crate) fn before_read(self, stream: &Stream) -> std::io::Result<()> {
        match self {
            Wait::Poll => stream.wait_readable(None),
            Wait::Read => Ok(()),
        }
    }
}

/// Opens connections of one arm and starts their sessions. An engine that loses a connection calls it again, from the
/// thread that drives the others.
pub trait Connector: Send + Sync {
    /// Connects, proves who the peer is and completes the handshake: the first request may be sent at once.
    fn connect(&self) -> Result<(Stream, Box<dyn Session>), BenchError>;

    fn endpoint(&self) -> String;

    fn waits(&self) -> Wait {
        Wait::Poll
    }

    /// Processes of the server if connecting may start new ones; `None` if those known before are still right.
    fn server_pids(&self) -> Option<Vec<u32>> {
        None
    }

    /// The error to report when a connection broke (`kind`) and reconnecting failed as well.
    fn lost(&self, kind: &str, again: &BenchError) -> BenchError {
        BenchError::lost(&self.endpoint(), format!("{kind}; connecting again: {again}"))
    }
}

const CONNECTING: u32 = 4;
/// Below this number, one thread opens all connections.
const MIN_CONNECTIONS_APART: u32 = 16;

pub(crate) type Connected = Vec<(Stream, Box<dyn Session>)>;

/// Opens all connections. The first is opened alone, so that the peer that it verified need not be verified in full
/// again. A server with a process per connection takes milliseconds for each, so from [`MIN_CONNECTIONS_APART`] on four threads
/// open the rest.
pub(super) fn connect_all(
    connector: &dyn Connector,
    connections: u32,
    interrupted: &AtomicBool,
) -> Result<Connected, BenchError> {
    let mut all = connect_some(connector, connections.min(1), interrupted)?;
    let others = connections.saturating_sub(1);
    if others < MIN_CONNECTIONS_APART {
        all.extend(connect_some(connector, others, interrupted)?);
        return Ok(all);
    }
    let parts = (0..CONNECTING).map(|part| (others + part) / CONNECTING);
    for some in threads::all(parts.map(|number| move || connect_some(connector, number, interrupted))) {
        all.extend(some?);
    }
    Ok(all)
}

fn connect_some(
    connector: &dyn Connector,
    number: u32,
    interrupted: &AtomicBool,
) -> Result<Connected, BenchError> {
    let mut all = Connected::new();
    for _ in 0..number {
        if interrupted.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        all.push(connector.connect()?);
    }
    Ok(all)
}

/// Checks that a reply is complete at its last byte and not before, in whatever pieces it comes.
#[cfg(test)]
pub(crate) fn in_any_pieces(session: &mut dyn Session, reply: &[u8], pieces: &[usize]) {
    let (mut kept, mut from) = (Vec::new(), 0);
    for piece in pieces.iter().cycle() {
        let to = (from + piece).min(reply.len());
        kept.extend_from_slice(&reply[from..to]);
        from = to;
        match session.response(&kept).unwrap() {
            Progress::More { consumed } => drop(kept.drain(..consumed)),
            progress => {
                assert_eq!(progress, Progress::Complete { consumed: kept.len() });
                assert_eq!(from, reply.len());
                return;
            }
        }
        assert!(from < reply.len(), "not complete at the end");
    }
}

/// What the kernel cannot know. That the client sees an address of TCP was checked as it connected.
const BY_RUN: &str = ", for a client that asked for TCP and sees that";

/// What the kernel reports about a connection, read once before a trial's window. It is the evidence that the transport
/// that was asked for is the one that is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Transport, such as `AF_UNIX stream /run/app.sock, peer pid 4711`.
    pub observed: Option<String>,
    pub cipher: Option<String>,
    /// Settings of both ends; `None` where the kernel does not report them.
    pub connection: Option<ConnectionSettings>,
}

impl Seen {
    pub fn by_kernel(stream: &Stream) -> Self {
        let seen = Seen { cipher: stream.cipher(), ..Seen::of_socket(stream) };
        if stream.transport() == Transport::TcpRun { seen.saying(BY_RUN) } else { seen }
    }

    /// Reads a socket that another library owns.
    pub fn of_socket(socket: impl AsFd) -> Self {
        Seen {
            observed: Observed::of(socket.as_fd()).ok().map(|observed| observed.to_string()),
            cipher: None,
            connection: both_ends(socket),
        }
    }

    /// Takes another program's description of its connection; reads the settings if it names both addresses.
    pub fn of_words(observed: &str) -> Self {
        Seen { observed: Some(observed.to_owned()), cipher: None, connection: between(observed) }
    }

    #[must_use]
    pub fn saying(mut self, more: &str) -> Self {
        if let Some(observed) = &mut self.observed {
            observed.push_str(more);
        }
        self
    }

    /// Writes the evidence into a trial, where it stays in the report.
    pub fn tell(self, trial: &mut Trial) {
        trial.transport_observed = self.observed;
        trial.cipher = self.cipher;
        trial.connection = self.connection;
    }
}

/// Settings of both ends of a connection described as `AF_INET stream tcp, 127.0.0.1:39218 → 127.0.0.1:7000`.
fn between(observed: &str) -> Option<ConnectionSettings> {
    let (own, peer) = observed.split_once(", ")?.1.split_once(" → ")?;
    let (own, peer) = (own.parse().ok()?, peer.parse().ok()?);
    let mut diag = Diag::open().ok()?;
    let client = diag.tcp_end(own, peer).ok()?;
    let server = diag.tcp_end(peer, own).ok()?;
    (client.is_some() || server.is_some()).then_some(ConnectionSettings { client, server })
}
