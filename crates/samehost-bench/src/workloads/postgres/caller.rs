//! A new connection for each statement: connect, log in, query once, terminate.

use super::address::Address;
use super::dialogue::Dialogue;
use super::session::RowSession;
use crate::engine::seen::Seen;
use crate::engine::session::{Bad, Caller};
use crate::error::BenchError;
use samehost_transport::ConnectError;

/// Opens a new connection for each statement.
pub(super) struct QueryCaller {
    address: Address,
    session: RowSession,
    read_only: bool,
    seen: Option<Seen>,
}

impl QueryCaller {
    /// `seen` is the evidence about the first connection, which was made to check that the server answers.
    pub(super) fn new(address: Address, session: RowSession, read_only: bool, seen: Option<Seen>) -> Self {
        QueryCaller { address, session, read_only, seen }
    }
}

impl Caller for QueryCaller {
    fn call(&mut self) -> Result<(), Bad> {
        let bad = |error: BenchError| Bad::new(kind(&error), error.to_string());
        let mut dialogue = Dialogue::measured(&self.address, self.read_only).map_err(bad)?;
        dialogue.exchange(&mut self.session).map_err(bad)??;
        dialogue.end().map_err(bad)
    }

    fn seen(&self) -> Option<Seen> {
        self.seen.clone()
    }
}

/// Kind of an error, for the error counts.
fn kind(error: &BenchError) -> &'static str {
    match error {
        BenchError::Connect(ConnectError::Refused { .. }) => "connection refused",
        BenchError::Connect(ConnectError::BacklogFull { .. }) => "EAGAIN (backlog full)",
        BenchError::Connect(ConnectError::OutOfPorts { .. }) => "EADDRNOTAVAIL (no port left)",
        BenchError::Connect(ConnectError::TooManyFiles { .. }) => "too many open files",
        BenchError::Connect(ConnectError::TimedOut { .. }) => "connect timed out",
        BenchError::Connect(_) => "connect failed",
        BenchError::Refused { answer, .. } if answer.contains("SQLSTATE 53300") => {
            "53300 too many connections"
        }
        BenchError::Refused { .. } => "login refused",
        BenchError::Hung { .. } => "no answer",
        _ => "connection closed",
    }
}
