//! PostgreSQL's sessions: a statement over and over, and a reply of which every byte is known; a new connection for
//! each statement (connect, log in, query once, terminate); or a whole table as text.

use postgres_protocol::message::backend::Message;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_login::postgres::unsaid;
use samehost_login::{LoginError, ServerAddress};

use super::dialogue::{Refusal, exchange_once, first, is_aside, measured, parse, query};
use super::statement::{DIGITS, Exchange, Statement, copy_end, copy_head, copy_row, increment};
use crate::engine::session::{Bad, Caller, Progress, Session};
use crate::error::BenchError;
use crate::workloads::requests::connect_failure;

/// Longer than any reply of ours, including asynchronous messages.
const MAX_REPLY_BYTES: usize = 48 * 1024;

/// Repeats one statement on one connection, for random rows, and compares each reply with the bytes that it must have.
#[derive(Debug)]
pub(super) struct RowSession {
    exchange: Exchange,
    random: Xoshiro256PlusPlus,
}

impl RowSession {
    /// With the same seed, every trial asks for the same rows in the same order.
    pub(super) fn new(exchange: Exchange, seed: u64) -> Self {
        RowSession { exchange, random: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// Parses message by message where the input is not simply the reply that must come: asynchronous messages, which a
    /// server may send at any time, a refusal, or another row. A refusal leaves the connection usable only if no
    /// transaction stays open after it (`Z` with `I`).
    #[cold]
    fn walk(&self, input: &[u8]) -> Result<Progress, Bad> {
        let (mut at, mut reply, mut refusal) = (0, Vec::new(), None);
        let mut done = false;
        while let Some((tag, length)) = first(&input[at..]).map_err(Bad::malformed)? {
            if done && !is_aside(tag) {
                break;
            }
            let message = &input[at..at + length];
            at += length;
            if is_aside(tag) {
                continue;
            }
            reply.extend_from_slice(message);
            if tag == b'E'
                && let Some((Message::ErrorResponse(body), _)) = parse(message).map_err(Bad::malformed)?
            {
                let new = Refusal::read(body.fields());
                if new.is_final() {
                    return Err(Bad::new(new.kind(), new.to_string()));
                }
                refusal.get_or_insert(new);
            }
            done = tag == b'Z';
        }
        if !done {
            if input.len() >= MAX_REPLY_BYTES {
                return Err(Bad::malformed("no end"));
            }
            return Ok(Progress::More { consumed: 0 });
        }
        match refusal {
            Some(refusal) if reply.ends_with(b"Z\0\0\0\x05I") => {
                Ok(Progress::Rejected { consumed: at, kind: refusal.kind() })
            }
            Some(refusal) => Err(Bad::new(refusal.kind(), refusal.to_string())),
            None if reply == self.exchange.reply => Ok(Progress::Complete { consumed: at }),
            None => self.differs(&reply, at),
        }
    }

    /// The outcome of a complete reply that is not a refusal, and not the one that must come.
    fn differs(&self, reply: &[u8], consumed: usize) -> Result<Progress, Bad> {
        let (came, awaited) = (tags(reply), tags(&self.exchange.reply));
        if awaited.contains('D') && came == awaited.replace('D', "") {
            return Ok(Progress::Rejected { consumed, kind: "missing row" });
        }
        let kind = if came == awaited { "wrong row" } else { "wrong reply" };
        Err(Bad::new(kind, format!("messages {came}, awaited {awaited}")))
    }
}

fn tags(reply: &[u8]) -> String {
    let (mut tags, mut at) = (String::new(), 0);
    while let Ok(Some((tag, length))) = first(&reply[at..]) {
        tags.push(char::from(tag));
        at += length;
    }
    tags
}

impl Session for RowSession {
    #[inline]
    fn request(&mut self, out: &mut Vec<u8>) {
        if self.exchange.has_id() {
            let row = self.random.random_range(0..self.exchange.rows);
            self.exchange.ask_for(row);
        }
        out.extend_from_slice(&self.exchange.request);
    }

    #[inline]
    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        let reply = &self.exchange.reply;
        // A reply is shorter than a page, so it is compared again as a whole when more has arrived.
        if input == reply.as_slice() {
            Ok(Progress::Complete { consumed: input.len() })
        } else if reply.starts_with(input) {
            Ok(Progress::More { consumed: 0 })
        } else {
            self.walk(input)
        }
    }
}

/// Opens a new connection for each statement: login and handshake are a part of what is measured.
pub(super) struct QueryCaller {
    pub(super) address: ServerAddress,
    pub(super) session: RowSession,
    pub(super) read_only: bool,
}

impl Caller for QueryCaller {
    fn call(&mut self) -> Result<(), Bad> {
        let mut dialogue = measured(&self.address, self.read_only).map_err(bad)?;
        exchange_once(&mut dialogue, &mut self.session).map_err(bad)??;
        dialogue.end().map_err(bad)
    }
}

fn bad(error: impl Into<BenchError>) -> Bad {
    let error = error.into();
    let kind = match &error {
        BenchError::Connect(error) => connect_failure(error),
        BenchError::Refused { answer, .. } if answer.contains("SQLSTATE 53300") => {
            "53300 too many connections"
        }
        BenchError::Refused { .. } => "login refused",
        BenchError::Hung { .. } => "no answer",
        _ => "connection closed",
    };
    Bad::new(kind, error.to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Rows,
    End,
}

/// Reads a whole table as text (`COPY … TO STDOUT`): every row is compared as it arrives, and none is kept.
#[derive(Debug)]
pub(super) struct CopySession {
    request: Vec<u8>,
    rows: u32,
    head: Vec<u8>,
    /// The next row that must come, and the positions of the id's digits in it.
    row: Vec<u8>,
    places: [usize; 2],
    end: Vec<u8>,
    stage: Stage,
    left: u32,
    refused: Option<Refusal>,
}

impl CopySession {
    pub(super) fn new(table: &str, rows: u32) -> Result<Self, LoginError> {
        let (row, places) = copy_row();
        Ok(CopySession {
            request: query(&Statement::Copy.sql(table, "")).map_err(unsaid)?,
            rows,
            head: copy_head(),
            row,
            places,
            end: copy_end(rows),
            stage: Stage::Head,
            left: rows,
            refused: None,
        })
    }

    #[inline]
    fn awaited(&self) -> &[u8] {
        match self.stage {
            Stage::Head => &self.head,
            Stage::Rows => &self.row,
            Stage::End => &self.end,
        }
    }

    #[inline]
    fn rows(&mut self, input: &[u8]) -> usize {
        let mut at = 0;
        while self.left > 0 && input[at..].starts_with(&self.row) {
            at += self.row.len();
            self.left -= 1;
            for place in self.places {
                increment(&mut self.row[place..place + DIGITS]);
            }
        }
        if self.left == 0 {
            self.stage = Stage::End;
        }
        at
    }

    /// Parses a message other than the one that must come: an asynchronous message, a refusal and what follows it, or a
    /// wrong row. Returns its tag and length, or `None` while it is incomplete.
    #[cold]
    fn other(&mut self, input: &[u8]) -> Result<Option<(u8, usize)>, Bad> {
        let Some((tag, length)) = first(input).map_err(Bad::malformed)? else { return Ok(None) };
        if tag == b'E' {
            if let Some((Message::ErrorResponse(body), _)) = parse(input).map_err(Bad::malformed)? {
                let refusal = Refusal::read(body.fields());
                if refusal.is_final() {
                    return Err(Bad::new(refusal.kind(), refusal.to_string()));
                }
                self.refused.get_or_insert(refusal);
            }
        } else if !is_aside(tag) && self.refused.is_none() {
            let kind = if matches!(tag, b'd' | b'c' | b'C') { "wrong row" } else { "wrong reply" };
            let came = self.rows - self.left;
            return Err(Bad::new(
                kind,
                format!("message {} after {came} rows", char::from(tag).escape_default()),
            ));
        }
        Ok(Some((tag, length)))
    }
}

impl Session for CopySession {
    fn request(&mut self, out: &mut Vec<u8>) {
        (self.row, self.places) = copy_row();
        self.stage = Stage::Head;
        self.left = self.rows;
        self.refused = None;
        out.extend_from_slice(&self.request);
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        let mut consumed = 0;
        loop {
            if self.stage == Stage::Rows && self.refused.is_none() {
                consumed += self.rows(&input[consumed..]);
            }
            let rest = &input[consumed..];
            let awaited = self.awaited();
            if self.refused.is_none() && rest.starts_with(awaited) {
                consumed += awaited.len();
                if self.stage == Stage::End {
                    return Ok(Progress::Complete { consumed });
                }
                self.stage = Stage::Rows;
                continue;
            }
            if rest.is_empty() || (self.refused.is_none() && awaited.starts_with(rest)) {
                return Ok(Progress::More { consumed });
            }
            match self.other(rest)? {
                None => return Ok(Progress::More { consumed }),
                Some((tag, length)) => {
                    consumed += length;
                    if let (b'Z', Some(refusal)) = (tag, &self.refused) {
                        return Ok(Progress::Rejected { consumed, kind: refusal.kind() });
                    }
                }
            }
        }
    }

    fn operations_per_exchange(&self) -> u64 {
        u64::from(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::bent;

    use super::*;
    use crate::engine::session::in_any_pieces;
    use crate::workloads::postgres::dialogue::message;
    use crate::workloads::postgres::statement::{Protocol, Statement};

    fn session(statement: Statement, protocol: Protocol) -> RowSession {
        let mut session =
            RowSession::new(Exchange::new(statement, protocol, false, ("t", 1000), b"").unwrap(), 7);
        session.request(&mut Vec::new());
        session
    }

    fn error(severity: &str, code: &str) -> Vec<u8> {
        message(b'E', format!("V{severity}\0C{code}\0Mno\0\0").as_bytes())
    }

    #[test]
    fn refusals_leave_the_connection_usable_unless_they_end_it() {
        let mut session = session(Statement::Update, Protocol::Extended);
        let ready = message(b'Z', b"I");
        let refused = [message(b'2', b""), error("ERROR", "53100"), ready.clone()].concat();
        let whole = Ok(Progress::Rejected { consumed: refused.len(), kind: "53100 disk full" });
        assert_eq!(session.response(&refused), whole);
        assert_eq!(session.response(&refused[..20]), Ok(Progress::More { consumed: 0 }));
        assert_eq!(session.response(&error("FATAL", "57P01")).unwrap_err().kind, "57P01 server shut down");
        let failed = [error("ERROR", "40001"), message(b'Z', b"E")].concat();
        assert!(session.response(&failed).is_err(), "a transaction that stays open is of no use");
    }

    #[test]
    fn a_row_that_is_missing_or_another_is_no_success() {
        let mut session = session(Statement::PointSelect, Protocol::Extended);
        let end = [message(b'C', b"SELECT 0\0"), message(b'Z', b"I")].concat();
        let missing = [message(b'2', b""), end].concat();
        let rejected = Ok(Progress::Rejected { consumed: missing.len(), kind: "missing row" });
        assert_eq!(session.response(&missing), rejected);
        let mut other = session.exchange.reply.clone();
        other[25] ^= 1;
        assert_eq!(session.response(&other).unwrap_err().kind, "wrong row");
        assert_eq!(session.response(&message(b'Z', b"I")).unwrap_err().kind, "wrong reply");
        assert_eq!(session.response(b"HTTP/1.1 400\r\n").unwrap_err().kind, "malformed reply");
    }

    #[test]
    fn asides_are_passed_over() {
        let mut session = session(Statement::PointSelect, Protocol::Simple);
        let notice = message(b'N', b"Mhello\0\0");
        let reply = session.exchange.reply.clone();
        for all in [
            [notice.clone(), reply.clone()].concat(),
            [reply.clone(), notice.clone()].concat(),
            [message(b'S', b"a\0b\0"), reply, notice].concat(),
        ] {
            assert_eq!(session.response(&all), Ok(Progress::Complete { consumed: all.len() }));
        }
    }

    proptest! {
        #[test]
        fn replies_in_any_pieces_are_complete_once(
            which in 0_usize..3,
            simple in any::<bool>(),
            aside in any::<bool>(),
            pieces in proptest::collection::vec(1_usize..90, 1..40),
        ) {
            let statement = [Statement::PointSelect, Statement::Select1, Statement::Update][which];
            let mut session = session(statement, if simple { Protocol::Simple } else { Protocol::Extended });
            let mut all = if aside { message(b'N', b"Mhello\0\0") } else { Vec::new() };
            all.extend(session.exchange.reply.clone());
            in_any_pieces(&mut session, &all, &pieces);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![session(Statement::PointSelect, Protocol::Extended).exchange.reply.to_vec()]), at in 0_usize..60) {
            let mut session = session(Statement::PointSelect, Protocol::Extended);
            let _ = session.response(&bytes);
            let mut reply = session.exchange.reply.clone();
            reply.truncate(at);
            reply.extend(bytes);
            let _ = session.response(&reply);
        }
    }

    fn table(rows: u32) -> Vec<u8> {
        let mut all = copy_head();
        let (mut row, places) = copy_row();
        for _ in 0..rows {
            all.extend_from_slice(&row);
            for place in places {
                increment(&mut row[place..place + DIGITS]);
            }
        }
        [all, copy_end(rows)].concat()
    }

    fn copy_session(rows: u32) -> CopySession {
        let mut copy_session = CopySession::new("t", rows).unwrap();
        let mut out = Vec::new();
        copy_session.request(&mut out);
        assert_eq!(out, query("COPY t TO STDOUT").unwrap());
        copy_session
    }

    #[test]
    fn a_row_too_few_a_wrong_one_and_a_refusal_are_no_success() {
        assert_eq!(copy_session(2).response(&table(1)).unwrap_err().kind, "wrong row");
        let mut wrong = table(2);
        wrong[200] ^= 1;
        assert_eq!(copy_session(2).response(&wrong).unwrap_err().kind, "wrong row");
        let head = copy_head();
        let error = message(b'E', b"VERROR\0C57014\0Mno\0\0");
        let refused = [head.as_slice(), &error, &message(b'Z', b"I")].concat();
        let rejected = Progress::Rejected { consumed: refused.len(), kind: "57014 query canceled" };
        assert_eq!(copy_session(2).response(&refused), Ok(rejected));
        let lost = [head, message(b'E', b"VFATAL\0C57P01\0Mbye\0\0")].concat();
        assert_eq!(copy_session(2).response(&lost).unwrap_err().kind, "57P01 server shut down");
    }

    proptest! {
        #[test]
        fn a_table_in_any_pieces_is_complete_once(
            rows in 0_u32..120,
            pieces in proptest::collection::vec(1_usize..900, 1..40),
        ) {
            let mut copy_session = copy_session(rows);
            let all = table(rows);
            for _ in 0..2 {
                in_any_pieces(&mut copy_session, &all, &pieces);
                copy_session.request(&mut Vec::new());
            }
        }

        #[test]
        fn no_bytes_make_a_copy_panic(bytes in bent(vec![table(3)]), at in 0_usize..400) {
            let mut all = table(2);
            all.truncate(at);
            all.extend(bytes);
            let _ = copy_session(2).response(&all);
        }
    }
}
