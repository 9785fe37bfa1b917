//! What the engine drives: sessions without I/O of their own, and callers that own their socket.

use std::sync::atomic::{AtomicBool, Ordering};

use samehost_transport::Stream;

use super::seen::Seen;
use crate::error::BenchError;

/// How far a session got with the bytes it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The reply is whole and right; `consumed` bytes belong to it.
    Complete {
        /// Bytes used up.
        consumed: usize,
    },
    /// The reply is whole and says no (an SQL error, a 502); the connection stays usable.
    Rejected {
        /// Bytes used up.
        consumed: usize,
        /// What kind of refusal, for the count of errors.
        kind: &'static str,
    },
    /// The reply is whole, and the server closes the connection after it, as it said: no failure, but the next
    /// request needs a new one.
    Last {
        /// Bytes used up.
        consumed: usize,
        /// What kind of refusal the reply was; none where it was right.
        rejected: Option<&'static str>,
    },
    /// More bytes are needed; `consumed` of those shown are used up already.
    More {
        /// Bytes used up.
        consumed: usize,
    },
}

/// A reply that is wrong: the connection is of no further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Bad {
    /// What kind, for the count of errors.
    pub kind: &'static str,
    /// What was wrong, for the message.
    pub detail: String,
}

impl Bad {
    /// A wrong reply of this kind.
    pub fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Bad { kind, detail: detail.into() }
    }
}

/// One connection's conversation, already past its handshake. It turns into bytes and back; it does no I/O and
/// reads no clock, so that one engine drives one or a thousand.
pub trait Session: Send {
    /// Appends the next request.
    fn request(&mut self, out: &mut Vec<u8>);

    /// Looks at bytes received since the last that were consumed, and checks the reply.
    ///
    /// # Errors
    /// When the reply is wrong; the engine then counts an error and connects anew.
    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad>;

    /// Operations that one request and its reply count as: more than one where a request is a pipeline of
    /// several. The same for all sessions of a trial. Latency stays that of the whole exchange.
    fn operations_per_exchange(&self) -> u64 {
        1
    }
}

/// A conversation whose library owns the socket, or that needs a new connection each time. The engine gives
/// each caller a thread of its own.
pub trait Caller: Send {
    /// One whole operation.
    ///
    /// # Errors
    /// When it failed; the engine counts it and goes on.
    fn call(&mut self) -> Result<(), Bad>;

    /// What the kernel says of the socket in use, once there was one.
    fn seen(&self) -> Option<Seen> {
        None
    }
}

/// How a thread waits for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In poll(2), and then reads: as libpq, Connector/C, PHP and all that use epoll do.
    Poll,
    /// In read(2): as hiredis and a plain loop in C do.
    Read,
}

impl Wait {
    /// Waits where reading does not.
    #[inline]
    pub(crate) fn before_read(self, stream: &Stream) -> std::io::Result<()> {
        match self {
            Wait::Poll => stream.wait_readable(None),
            Wait::Read => Ok(()),
        }
    }
}

/// Opens connections of one arm and begins their sessions; used anew after an error.
pub trait Connector: Send + Sync {
    /// Connects and gets past the handshake.
    ///
    /// # Errors
    /// When nobody answers, or the handshake fails.
    fn connect(&self) -> Result<(Stream, Box<dyn Session>), BenchError>;

    /// Where it connects to, for messages.
    fn endpoint(&self) -> String;

    /// How a thread with one connection waits for a reply.
    fn waits(&self) -> Wait {
        Wait::Poll
    }

    /// The server's processes where connecting may start new ones; otherwise those known before hold.
    fn server_pids(&self) -> Option<Vec<u32>> {
        None
    }

    /// The error to report when a connection broke (how, is `kind`) and connecting anew failed as well.
    fn lost(&self, kind: &str, again: &BenchError) -> BenchError {
        BenchError::ServerLost {
            endpoint: self.endpoint(),
            reason: format!("{kind}; connecting again: {again}"),
            server_said: String::new(),
        }
    }
}

/// Threads that connect.
const CONNECTING: u32 = 4;
/// Fewer connections are made by one.
const LEAST_APART: u32 = 16;

/// Connections past their handshake, and their sessions.
pub(crate) type Connected = Vec<(Stream, Box<dyn Session>)>;

/// Connects, the first by itself: whoever is known by it need not be found again. A server with a process for each
/// connection takes milliseconds for one, so the others are made by several threads.
pub(super) fn connect_all(
    connector: &dyn Connector,
    connections: u32,
    interrupted: &AtomicBool,
) -> Result<Connected, BenchError> {
    let some = |number: u32| {
        let connect = |_| match interrupted.load(Ordering::Relaxed) {
            true => Err(BenchError::Interrupted),
            false => connector.connect(),
        };
        (0..number).map(connect).collect::<Result<Connected, BenchError>>()
    };
    let mut all = some(connections.min(1))?;
    let others = connections.saturating_sub(1);
    if others < LEAST_APART {
        all.extend(some(others)?);
        return Ok(all);
    }
    let parts = (0..CONNECTING).map(|part| (others + part) / CONNECTING);
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|number| scope.spawn(move || some(number))).collect();
        for thread in threads {
            let ended =
                thread.join().map_err(|_| BenchError::Usage("a connecting thread panicked".into()))?;
            all.extend(ended?);
        }
        Ok(all)
    })
}
