//! Talks to MySQL outside the hot path: set-up, prepared statements and clean-up, over the login in `samehost-login`.

use samehost_login::mysql::packet::{SqlError, first_frame, frame};
use samehost_login::{Expected, Malformed, ServerAddress};
use samehost_model::Protocol;

use crate::error::BenchError;
use crate::workloads::requests::{REPLY_TIMEOUT, expected, expected_again};

pub(super) use samehost_login::mysql::{Dialogue, QUERY, Reply};

/// COM_STMT_PREPARE.
const PREPARE: u8 = 0x16;

/// Keeps a connection's statements out of the binary log.
const UNLOGGED: &str = "SET SESSION sql_log_bin = 0";

/// Whether a server logs our writes, for its replicas and for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryLog {
    /// The server has no binary log.
    None,
    /// It logs other clients' statements, but not ours.
    KeptOut,
    /// It logs ours too: this user may not switch that off.
    Ours,
}

/// A server that is measured.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) server: ServerAddress,
    /// Whether our writes are kept out of the server's binary log, and so from its replicas.
    pub(super) unlogged: bool,
}

impl Address {
    pub(super) fn begin(&self) -> Result<Dialogue, BenchError> {
        self.begin_as(expected(Protocol::Mysql))
    }

    /// Another connection to a server that was looked at before.
    pub(super) fn begin_again(&self) -> Result<Dialogue, BenchError> {
        self.begin_as(expected_again(Protocol::Mysql))
    }

    /// Connects, and keeps out of the binary log where that is allowed.
    fn begin_as(&self, expected: &Expected) -> Result<Dialogue, BenchError> {
        let mut dialogue = Dialogue::begin(&self.server, expected, REPLY_TIMEOUT)?;
        if self.unlogged {
            dialogue.must("keeping our statements out of the binary log", UNLOGGED)?;
        }
        Ok(dialogue)
    }

    /// Connects for one statement, as a part of what is measured: with nothing that an application would not send. So what such
    /// a connection writes is in the binary log, as whoever is asked for consent reads.
    pub(super) fn measured(&self) -> Result<Dialogue, BenchError> {
        Ok(Dialogue::begin(&self.server, expected_again(Protocol::Mysql), REPLY_TIMEOUT)?)
    }
}

/// Connects, with TLS if the endpoint asks for it, and logs in.
pub(super) fn begin(address: &ServerAddress) -> Result<Dialogue, BenchError> {
    Ok(Dialogue::begin(address, expected(Protocol::Mysql), REPLY_TIMEOUT)?)
}

/// Whether the server has a binary log, and whether we may keep out of it. If so, this connection does from then on.
pub(super) fn binary_log(dialogue: &mut Dialogue) -> Result<BinaryLog, BenchError> {
    if !matches!(dialogue.variable("log_bin")?.as_deref(), Some("ON" | "1")) {
        return Ok(BinaryLog::None);
    }
    Ok(match dialogue.ask(UNLOGGED)? {
        Reply::Refused(_) => BinaryLog::Ours,
        _ => BinaryLog::KeptOut,
    })
}

/// Prepares a statement; returns its id, number of parameters and number of columns.
pub(super) fn prepare(dialogue: &mut Dialogue, sql: &str) -> Result<(u32, u16, u16), BenchError> {
    let mut question = Vec::new();
    frame(0, &[&[PREPARE], sql.as_bytes()].concat(), &mut question);
    let answered = dialogue.link().ask(&question, prepared)?;
    Ok(answered.map_err(|error| dialogue.refused("a prepared statement", &error))?)
}

type Prepared = Result<(u32, u16, u16), SqlError>;

/// Parses the reply to COM_STMT_PREPARE: OK, id (4), columns (2), parameters (2), then the definitions of
/// parameters and of columns; each list that is not empty has an end packet.
fn prepared(input: &[u8]) -> Result<Option<(Prepared, usize)>, Malformed> {
    let next = |at: usize| first_frame(&input[at..]).map_err(str::to_owned);
    let Some(first) = next(0)? else { return Ok(None) };
    if let Some(error) = SqlError::read(first.payload) {
        return Ok(Some((Err(error), first.length)));
    }
    let [0, a, b, c, d, columns_low, columns_high, low, high, ..] = *first.payload else {
        return Err("a broken answer to PREPARE".into());
    };
    let columns = u16::from_le_bytes([columns_low, columns_high]);
    let parameters = u16::from_le_bytes([low, high]);
    let mut at = first.length;
    for list in [parameters, columns] {
        for _ in 0..if list > 0 { u32::from(list) + 1 } else { 0 } {
            let Some(frame) = next(at)? else { return Ok(None) };
            at += frame.length;
        }
    }
    Ok(Some((Ok((u32::from_le_bytes([a, b, c, d]), parameters, columns)), at)))
}
