//! Talks to MySQL outside the hot path: set-up, prepared statements and clean-up, over the login in `samehost-login`.

use samehost_login::mysql::packet::{SqlError, first_frame, frame};
use samehost_login::{Expected, mysql};
use samehost_model::Protocol;
use samehost_transport::Stream;

use super::address::Address;
use crate::error;
use crate::error::BenchError;
use crate::workloads::awaited::{expected, expected_again};
use crate::workloads::requests::REPLY_TIMEOUT;

pub(super) use samehost_login::mysql::{QUERY, Reply};

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

/// A connection that is logged in.
pub(super) struct Dialogue(mysql::Dialogue);

impl Dialogue {
    /// Connects, with TLS if the endpoint asks for it, and logs in.
    pub(super) fn begin(address: &Address) -> Result<Self, BenchError> {
        Self::with(address, expected(Protocol::Mysql))
    }

    /// Connects as a part of what is measured.
    pub(super) fn measured(address: &Address) -> Result<Self, BenchError> {
        Self::with(address, expected_again(Protocol::Mysql))
    }

    fn with(address: &Address, expected: &Expected) -> Result<Self, BenchError> {
        let account = mysql::Account {
            user: &address.user,
            password: &address.password,
            database: address.database.as_deref(),
            expected,
        };
        let mut dialogue = Dialogue(mysql::Dialogue::begin(&address.endpoint, &account, REPLY_TIMEOUT)?);
        if address.unlogged {
            dialogue.must("keeping our statements out of the binary log", UNLOGGED)?;
        }
        Ok(dialogue)
    }

    /// Whether the server has a binary log, and whether we may keep out of it. If so, this connection does
    /// from then on.
    pub(super) fn binary_log(&mut self) -> Result<BinaryLog, BenchError> {
        if !matches!(self.variable("log_bin")?.as_deref(), Some("ON" | "1")) {
            return Ok(BinaryLog::None);
        }
        Ok(if matches!(self.ask(UNLOGGED)?, Reply::Refused(_)) {
            BinaryLog::Ours
        } else {
            BinaryLog::KeptOut
        })
    }

    /// A single number from a query's first row; `column` counts from 0.
    pub(super) fn number(&mut self, sql: &str, column: usize) -> Result<Option<u64>, BenchError> {
        Ok(match self.ask(sql)? {
            Reply::Rows(rows) => {
                rows.first().and_then(|row| row.get(column)).and_then(|value| value.as_deref()?.parse().ok())
            }
            _ => None,
        })
    }

    /// Version as the server reports it.
    pub(super) fn version(&self) -> &str {
        &self.0.greeting().version
    }

    /// Sends a command and returns the whole reply as bytes.
    pub(super) fn raw(&mut self, command: &[u8]) -> Result<Vec<u8>, BenchError> {
        Ok(self.0.raw(command)?)
    }

    /// Sends a query and returns the reply, also if it is a refusal.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Reply, BenchError> {
        Ok(self.0.ask(sql)?)
    }

    /// Sends a query that the measurement needs; a refusal is an error.
    pub(super) fn must(&mut self, what: &str, sql: &str) -> Result<Reply, BenchError> {
        match self.ask(sql)? {
            Reply::Refused(error) => Err(self.refused(what, &error)),
            reply => Ok(reply),
        }
    }

    /// Sends a query that the measurement needs; returns the rows.
    pub(super) fn rows_of(&mut self, what: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>, BenchError> {
        Ok(match self.must(what, sql)? {
            Reply::Rows(rows) => rows,
            _ => Vec::new(),
        })
    }

    fn refused(&mut self, what: &str, error: &SqlError) -> BenchError {
        BenchError::Refused {
            endpoint: self.0.link().endpoint().to_string(),
            what: what.to_owned(),
            try_next: error::mysql(error.code).to_owned(),
            answer: error.to_string(),
        }
    }

    /// Prepares a statement; returns its id, number of parameters and number of columns.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<(u32, u16, u16), BenchError> {
        let mut question = Vec::new();
        frame(0, &[&[PREPARE], sql.as_bytes()].concat(), &mut question);
        let answered = self.0.link().ask(&question, prepared)?;
        answered.map_err(|error| self.refused("a prepared statement", &error))
    }

    /// The server's view of this connection: account, peer and cipher.
    pub(super) fn view(&mut self) -> Result<String, BenchError> {
        Ok(format!("the server says {}", self.0.seen()?))
    }

    /// Value of a server variable.
    pub(super) fn variable(&mut self, name: &str) -> Result<Option<String>, BenchError> {
        Ok(self.0.variable(name)?)
    }

    /// Sends COM_QUIT; the server then closes without counting an aborted client.
    pub(super) fn quit(self) -> Result<(), BenchError> {
        Ok(self.0.quit()?)
    }

    /// The connection, for the engine.
    pub(super) fn into_stream(self) -> Result<Stream, BenchError> {
        Ok(self.0.into_stream()?)
    }
}

type Prepared = Result<(u32, u16, u16), SqlError>;

/// Parses the reply to COM_STMT_PREPARE: OK, id (4), columns (2), parameters (2), then the definitions of
/// parameters and of columns; each list that is not empty has an end packet.
fn prepared(input: &[u8]) -> Result<Option<(Prepared, usize)>, String> {
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
