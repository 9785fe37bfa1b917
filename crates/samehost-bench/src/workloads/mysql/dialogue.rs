//! Talks to MySQL outside the hot path: set-up, prepared statements and clean-up, over the login in `samehost-login`.

use samehost_login::mysql::Reply;
use samehost_login::mysql::packet::{SqlError, first_frame, frame};
use samehost_login::{Expected, Malformed, ServerAddress};
use samehost_model::Protocol;

use crate::error::BenchError;
use crate::workloads::requests::{REPLY_TIMEOUT, expected, expected_again};

pub(super) use samehost_login::mysql::{Dialogue, QUERY};

const COM_STMT_PREPARE: u8 = 0x16;

const UNLOGGED: &str = "SET SESSION sql_log_bin = 0";

/// Whether a server's binary log, from which replicas and recoveries read, has our writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryLog {
    None,
    KeptOut,
    /// This user may not keep out of it.
    Ours,
}

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

    /// Another connection to a server that a first one identified, without the walk through /proc
    /// (docs/decisions/0065).
    pub(super) fn begin_again(&self) -> Result<Dialogue, BenchError> {
        self.begin_as(expected_again(Protocol::Mysql))
    }

    fn begin_as(&self, expected: &Expected) -> Result<Dialogue, BenchError> {
        let mut dialogue = Dialogue::begin(&self.server, expected, REPLY_TIMEOUT)?;
        if self.unlogged {
            dialogue.must("keeping our statements out of the binary log", UNLOGGED)?;
        }
        Ok(dialogue)
    }

    /// Connects for one statement, as a part of what is measured: with nothing that an application would not send,
    /// and so without the statement that keeps out of the binary log. Whoever is asked for consent reads that what
    /// such connections write is in the log.
    pub(super) fn measured(&self) -> Result<Dialogue, BenchError> {
        Ok(Dialogue::begin(&self.server, expected_again(Protocol::Mysql), REPLY_TIMEOUT)?)
    }
}

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

/// Prepares a statement; returns its id, which holds for this connection.
pub(super) fn prepare(dialogue: &mut Dialogue, sql: &str) -> Result<u32, BenchError> {
    let mut question = Vec::new();
    frame(0, &[&[COM_STMT_PREPARE], sql.as_bytes()].concat(), &mut question);
    let answered = dialogue.link().ask(&question, prepared)?;
    Ok(answered.map_err(|error| dialogue.refused("a prepared statement", &error))?)
}

type Prepared = Result<u32, SqlError>;

/// Parses the reply to `COM_STMT_PREPARE`: OK, id (4 bytes), columns (2), parameters (2), then the definitions of
/// parameters and of columns; each list that is not empty has an end packet. Returns the reply and its length, or
/// `None` while it is incomplete.
fn prepared(input: &[u8]) -> Result<Option<(Prepared, usize)>, Malformed> {
    let Some(first) = first_frame(input)? else { return Ok(None) };
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
        let packets = if list > 0 { u32::from(list) + 1 } else { 0 };
        for _ in 0..packets {
            let Some(frame) = first_frame(&input[at..])? else { return Ok(None) };
            at += frame.length;
        }
    }
    Ok(Some((Ok(u32::from_le_bytes([a, b, c, d])), at)))
}
