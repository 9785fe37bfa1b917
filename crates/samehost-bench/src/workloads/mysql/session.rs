//! MySQL's sessions: a statement over and over, and a reply of which every byte is known beforehand; or a new
//! connection for each statement (connect, log in, query as text, quit). The latter is what a program without a
//! connection pool does, and shows how much of a difference is the handshake. A dump is one query for all rows.

use std::ops::Range;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_login::mysql::packet::{
    self, Answer, HEAD, SqlError, first_frame, frame, is_end, take_integer, take_text,
};

use super::dialogue::{Address, QUERY};
use super::statement::{C_REPEATS, Command, DIGITS, Ids, PAD_REPEATS, Protocol, Statement, Table, digits};
use crate::engine::session::{Bad, Caller, Progress, Session};
use crate::error::BenchError;
use crate::workloads::requests::write_digits;

#[derive(Clone, Debug)]
enum Judge {
    /// One row, whose payload is at this range of the awaited bytes.
    Row(Range<usize>),
    /// At most one row, which is not that of another known id: the table's owner may change or delete rows meanwhile.
    Live,
    Changed,
}

/// Repeats one statement on one connection. The first reply, which came before anything is measured, is the pattern of
/// all others: for each id its digits are filled in, and a reply is then one comparison of memory. Parsing every
/// reply would cost the client CPU time that is not the transport's; without a check errors would count as fast
/// replies. Only a reply that differs is parsed and judged by its meaning.
#[derive(Clone, Debug)]
pub(super) struct MySqlSession {
    command: Command,
    /// Reply to the current command, if all is right.
    awaited: Vec<u8>,
    judge: Judge,
    /// Position of the digits of our own row in `awaited`.
    digits: Option<usize>,
    ids: Ids,
    random: Xoshiro256PlusPlus,
}

impl MySqlSession {
    /// A session whose first reply, to id 1 (or the first known id), has been received.
    ///
    /// # Errors
    /// Why that reply is not one to compare others with.
    pub(super) fn new(
        statement: Statement,
        protocol: Protocol,
        command: Command,
        first_answer: &[u8],
        ids: Ids,
    ) -> Result<Self, FirstReply> {
        let (judge, digits) = learn(statement, protocol, first_answer, &ids)?;
        Ok(MySqlSession {
            command,
            awaited: first_answer.to_vec(),
            judge,
            digits,
            ids,
            random: Xoshiro256PlusPlus::seed_from_u64(0),
        })
    }

    /// The seed decides which ids are queried: with the same one, every trial asks for the same rows in the same order.
    pub(super) fn seeded(&self, seed: u64) -> Self {
        MySqlSession { random: Xoshiro256PlusPlus::seed_from_u64(seed), ..self.clone() }
    }

    /// Judges a reply that differs from the awaited bytes, or waits for the rest of one that is incomplete. Status flags
    /// and warnings may differ without a fault.
    #[cold]
    fn look_closer(&self, input: &[u8]) -> Result<Progress, Bad> {
        let Some((answer, consumed)) = packet::answer(input).map_err(Bad::malformed)? else {
            return Ok(Progress::More { consumed: 0 });
        };
        let kind = match (&self.judge, answer) {
            (_, Answer::Refused(error)) => error.kind(),
            (Judge::Changed, Answer::Done(okay)) if okay.affected_rows == 1 => {
                return Ok(Progress::Complete { consumed });
            }
            (Judge::Changed, Answer::Done(_)) => "no row changed",
            (Judge::Live, Answer::Rows(rows)) if rows.len() <= 1 => {
                if self.is_of_another_id(&rows) {
                    "wrong row"
                } else {
                    return Ok(Progress::Complete { consumed });
                }
            }
            (Judge::Row(place), Answer::Rows(rows)) => match rows.as_slice() {
                [row] if *row == &self.awaited[place.clone()] => return Ok(Progress::Complete { consumed }),
                [_] => "wrong row",
                [] => "no row",
                _ => "too many rows",
            },
            _ => "wrong reply",
        };
        Ok(Progress::Rejected { consumed, kind })
    }

    /// Whether these rows, which are not the awaited ones, answer the question for another known id.
    fn is_of_another_id(&self, rows: &[&[u8]]) -> bool {
        let Ids::Known(known) = &self.ids else { return false };
        for (_, answer) in known.iter() {
            if answer[..] == self.awaited {
                continue;
            }
            let Ok(Some((Answer::Rows(theirs), _))) = packet::answer(answer) else { continue };
            if !theirs.is_empty() && theirs == rows {
                return true;
            }
        }
        false
    }
}

/// Why the first reply of a connection cannot be the pattern of the others.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct FirstReply(String);

impl From<&str> for FirstReply {
    fn from(why: &str) -> Self {
        FirstReply(why.to_owned())
    }
}

/// Derives from the first reply how replies are judged, and the position of the digits that change with the id, if any.
fn learn(
    statement: Statement,
    protocol: Protocol,
    answer: &[u8],
    ids: &Ids,
) -> Result<(Judge, Option<usize>), FirstReply> {
    match (packet::answer(answer)?, statement.writes()) {
        (Some((Answer::Rows(rows), _)), false) if matches!(ids, Ids::Known(_)) && rows.len() <= 1 => {
            Ok((Judge::Live, None))
        }
        (Some((Answer::Done(okay), _)), true) if okay.affected_rows == 1 => Ok((Judge::Changed, None)),
        (Some((Answer::Rows(rows), _)), false) if rows.len() == 1 => {
            let (row, start) = (rows[0], answer.as_ptr() as usize);
            let from = row.as_ptr() as usize - start;
            let judge = Judge::Row(from..from + row.len());
            if statement == Statement::SelectOne {
                let right = if protocol == Protocol::Text { row == b"\x011" } else { row.get(2) == Some(&1) };
                return if right { Ok((judge, None)) } else { Err("SELECT 1 is not 1".into()) };
            }
            // A binary row starts with 0 and the NULL bitmap, (columns + 7 + 2) / 8 bytes.
            let head = if protocol == Protocol::Prepared { 2 } else { 0 };
            let mut column = row.get(head..).unwrap_or_default();
            let text = take_text(&mut column).flatten().unwrap_or_default();
            if text != digits(1).repeat(C_REPEATS).as_bytes() || !column.is_empty() {
                return Err("the row with id 1 is not the one that was written".into());
            }
            Ok((judge, Some(from + row.len() - text.len())))
        }
        (Some((Answer::Refused(error), _)), _) => Err(FirstReply(error.to_string())),
        _ => Err("the first statement was not answered with one row".into()),
    }
}

impl Session for MySqlSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        match &self.ids {
            Ids::Own(rows) if self.command.number.is_some() => {
                let id = self.random.random_range(1..=*rows);
                self.command.set(id);
                if let Some(at) = self.digits {
                    let (first, rest) = self.awaited[at..at + C_REPEATS * DIGITS].split_at_mut(DIGITS);
                    write_digits(id, first);
                    for place in rest.chunks_exact_mut(DIGITS) {
                        place.copy_from_slice(first);
                    }
                }
            }
            Ids::Known(known) if self.command.number.is_some() => {
                let known = Arc::clone(known);
                let (id, answer) = &known[self.random.random_range(0..known.len())];
                self.command.set(*id);
                self.awaited.clear();
                self.awaited.extend_from_slice(answer);
            }
            Ids::Own(_) | Ids::Known(_) => {}
        }
        out.extend_from_slice(&self.command.bytes);
    }

    #[inline]
    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        if input == self.awaited {
            Ok(Progress::Complete { consumed: input.len() })
        } else {
            self.look_closer(input)
        }
    }
}

/// Opens a new connection for each statement. As the handshake is a part of what is measured, it has a thread of its
/// own instead of a place in the engine's epoll loop.
pub(super) struct MySqlCaller {
    pub(super) address: Address,
    pub(super) session: MySqlSession,
}

impl Caller for MySqlCaller {
    fn call(&mut self) -> Result<(), Bad> {
        let mut dialogue = self.address.measured().map_err(bad)?;
        self.session.request(&mut Vec::new());
        let reply = dialogue.raw(self.session.command.payload()).map_err(bad)?;
        match self.session.response(&reply)? {
            Progress::Complete { .. } => dialogue.quit().map_err(bad),
            Progress::Rejected { kind, .. } => Err(Bad::new(kind, "the server's answer")),
            Progress::More { .. } | Progress::Last { .. } => Err(Bad::malformed("a reply in parts")),
        }
    }
}

fn bad(error: impl Into<BenchError>) -> Bad {
    let error = error.into();
    let kind = match &error {
        BenchError::Connect(_) => "connect failed",
        BenchError::Refused { answer, .. } if answer.starts_with("1040 ") => "too many connections (1040)",
        BenchError::Refused { .. } => "login refused",
        BenchError::Hung { .. } => "no answer",
        _ => "connection lost",
    };
    Bad::new(kind, error.to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Count,
    Columns(u64),
    Rows,
}

/// One query for all rows, as `mysqldump --quick` reads them: each is verified as it streams by, and none is kept. Of a
/// table that is not ours, whose owner may add and delete rows meanwhile, any rows are right.
#[derive(Debug)]
pub(super) struct DumpSession {
    request: Vec<u8>,
    place: Place,
    seen: u64,
    rows: u64,
    own: bool,
    /// The end of the next row's payload in our own table: `c`, then `pad`, each after its length.
    tail: Vec<u8>,
}

impl DumpSession {
    pub(super) fn new(table: &Table, rows: u64, own: bool) -> Self {
        let mut request = Vec::new();
        let sql = Statement::Dump.sql(table, "");
        frame(0, &[&[QUERY], sql.as_bytes()].concat(), &mut request);
        let mut tail = Vec::new();
        for repeats in [C_REPEATS, PAD_REPEATS] {
            let text = digits(0).repeat(repeats);
            tail.push(text.len() as u8);
            tail.extend_from_slice(text.as_bytes());
        }
        DumpSession { request, place: Place::Count, seen: 0, rows, own, tail }
    }

    /// Whether a row is the next one of our own table: id, k, c, pad.
    fn is_next(&mut self, row: &[u8]) -> bool {
        let id = u32::try_from(self.seen + 1).unwrap_or(0);
        let split = 1 + C_REPEATS * DIGITS;
        let (c, pad) = self.tail.split_at_mut(split);
        let (first, rest) = c[1..].split_at_mut(DIGITS);
        write_digits(id, first);
        for place in rest.chunks_exact_mut(DIGITS).chain(pad[1..].chunks_exact_mut(DIGITS)) {
            place.copy_from_slice(first);
        }
        let Some((head, tail)) = row.len().checked_sub(self.tail.len()).map(|at| row.split_at(at)) else {
            return false;
        };
        let mut head = head;
        let number = take_text(&mut head).flatten().unwrap_or_default();
        let ours = std::str::from_utf8(number).ok().and_then(|text| text.parse::<u32>().ok()) == Some(id);
        ours && take_text(&mut head).flatten().is_some() && head.is_empty() && tail == self.tail
    }

    fn row(&mut self, payload: &[u8]) -> Result<(), Bad> {
        if self.own && !self.is_next(payload) {
            return Err(Bad::new(
                "wrong row",
                format!("row {} is not the one that was written", self.seen + 1),
            ));
        }
        self.seen += 1;
        Ok(())
    }
}

impl Session for DumpSession {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.place = Place::Count;
        self.seen = 0;
        out.extend_from_slice(&self.request);
    }

    fn response(&mut self, input: &[u8]) -> Result<Progress, Bad> {
        let mut consumed = 0;
        while let Some(frame) = first_frame(&input[consumed..]).map_err(Bad::malformed)? {
            consumed += frame.length;
            if let Some(error) = SqlError::read(frame.payload) {
                return Ok(Progress::Rejected { consumed, kind: error.kind() });
            }
            match self.place {
                Place::Count => {
                    let mut payload = frame.payload;
                    let columns = take_integer(&mut payload).filter(|count| (1..=4096).contains(count));
                    let columns = columns.ok_or_else(|| Bad::malformed("no column count"))?;
                    self.place = Place::Columns(columns);
                }
                Place::Columns(0) if is_end(frame.payload) => self.place = Place::Rows,
                Place::Columns(left) if left > 0 && frame.length > HEAD => {
                    self.place = Place::Columns(left - 1);
                }
                Place::Columns(_) => return Err(Bad::malformed("columns without their end")),
                Place::Rows if is_end(frame.payload) => {
                    return Ok(if !self.own || self.seen == self.rows {
                        Progress::Complete { consumed }
                    } else {
                        Progress::Rejected { consumed, kind: "another number of rows" }
                    });
                }
                Place::Rows => self.row(frame.payload)?,
            }
        }
        Ok(Progress::More { consumed })
    }

    fn operations_per_exchange(&self) -> u64 {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_login::mysql::packet::frame;
    use samehost_testing::bent;

    use super::*;
    use crate::engine::session::in_any_pieces;
    use crate::workloads::mysql::statement::Known;

    const END: &[u8] = &[0xfe, 0, 0, 2, 0];

    fn frames(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, payload) in payloads.iter().enumerate() {
            frame(number as u8 + 1, payload, &mut out);
        }
        out
    }

    /// The reply to a point select, as a server sends it.
    fn answer(id: u32, protocol: Protocol) -> Vec<u8> {
        let head: &[u8] = if protocol == Protocol::Prepared { &[0, 0, 120] } else { &[120] };
        let row = [head, digits(id).repeat(C_REPEATS).as_bytes()].concat();
        frames(&[&[1], b"\x03def column", END, &row, END])
    }

    fn session(statement: Statement, protocol: Protocol, first: &[u8]) -> Result<MySqlSession, FirstReply> {
        let table = Table::own("s.", 1000);
        let command = match protocol {
            Protocol::Text => Command::query(statement, &table),
            Protocol::Prepared => Command::execute(3, statement.has_id(), false),
        };
        MySqlSession::new(statement, protocol, command, first, Ids::Own(table.rows))
    }

    fn asked(session: &mut MySqlSession) -> u32 {
        let mut out = Vec::new();
        session.request(&mut out);
        u32::from_le_bytes(out[out.len() - 4..].try_into().unwrap())
    }

    #[test]
    fn the_right_row_is_complete_and_another_is_not() {
        fn rejected(kind: &'static str, bytes: &[u8]) -> Result<Progress, Bad> {
            Ok(Progress::Rejected { consumed: bytes.len(), kind })
        }
        let prepared = Protocol::Prepared;
        let mut session = session(Statement::PointSelect, prepared, &answer(1, prepared)).unwrap();
        for _ in 0..50 {
            let id = asked(&mut session);
            assert!((1..=1000).contains(&id));
            let right = answer(id, prepared);
            assert_eq!(session.response(&right), Ok(Progress::Complete { consumed: right.len() }));
            assert_eq!(session.response(&right[..40]), Ok(Progress::More { consumed: 0 }));
            let wrong = answer(id + 1, prepared);
            assert_eq!(session.response(&wrong), rejected("wrong row", &wrong));
            let none = frames(&[&[1], b"\x03def column", END, END]);
            assert_eq!(session.response(&none), rejected("no row", &none));
            let error = frames(&[b"\xff\xbd\x04#40001Deadlock found"]);
            assert_eq!(session.response(&error), rejected("deadlock (1213)", &error));
            let okay = frames(&[&[0, 1, 0, 2, 0, 0, 0]]);
            assert_eq!(session.response(&okay), rejected("wrong reply", &okay));
        }
    }

    #[test]
    fn a_status_that_changed_does_not_matter_and_the_row_does() {
        let mut session =
            session(Statement::PointSelect, Protocol::Text, &answer(1, Protocol::Text)).unwrap();
        let mut out = Vec::new();
        session.request(&mut out);
        let id: u32 = std::str::from_utf8(&out[out.len() - 10..]).unwrap().parse().unwrap();
        let mut right = answer(id, Protocol::Text);
        let status = right.len() - 2;
        right[status] = 0x22;
        assert_eq!(session.response(&right), Ok(Progress::Complete { consumed: right.len() }));
    }

    #[test]
    fn changes_must_change_one_row() {
        fn okay(rows: u8, id: u8) -> Vec<u8> {
            frames(&[&[0, rows, id, 2, 0, 0, 0]])
        }
        let mut session = session(Statement::Insert, Protocol::Prepared, &okay(1, 1)).unwrap();
        asked(&mut session);
        let next = okay(1, 9);
        assert_eq!(session.response(&next), Ok(Progress::Complete { consumed: next.len() }));
        let none = okay(0, 0);
        let rejected = Ok(Progress::Rejected { consumed: none.len(), kind: "no row changed" });
        assert_eq!(session.response(&none), rejected);
        assert!(self::session(Statement::Update, Protocol::Text, &okay(0, 0)).is_err());
        assert!(self::session(Statement::PointSelect, Protocol::Text, &okay(1, 1)).is_err());
        assert!(self::session(Statement::PointSelect, Protocol::Text, &answer(2, Protocol::Text)).is_err());
    }

    #[test]
    fn rows_of_a_table_that_is_not_ours_are_those_seen_before_or_changed_or_gone() {
        let known: Known = [(5, "five"), (9, "and nine")]
            .map(|(id, text)| {
                let row = [&[text.len() as u8], text.as_bytes()].concat();
                (id, frames(&[&[1], b"\x03def", END, &row, END]).into_boxed_slice())
            })
            .into();
        let first = known[0].1.clone();
        let command = Command::execute(3, true, false);
        let (statement, protocol) = (Statement::PointSelect, Protocol::Prepared);
        let mut session =
            MySqlSession::new(statement, protocol, command, &first, Ids::Known(Arc::clone(&known))).unwrap();
        for _ in 0..20 {
            let id = asked(&mut session);
            let (own, other) = if id == 5 { (&known[0].1, &known[1].1) } else { (&known[1].1, &known[0].1) };
            assert_eq!(session.response(own), Ok(Progress::Complete { consumed: own.len() }));
            assert_eq!(
                session.response(other),
                Ok(Progress::Rejected { consumed: other.len(), kind: "wrong row" })
            );
            let changed = frames(&[&[1], b"\x03def", END, b"\x03new", END]);
            let gone = frames(&[&[1], b"\x03def", END, END]);
            for reply in [changed, gone] {
                assert_eq!(session.response(&reply), Ok(Progress::Complete { consumed: reply.len() }));
            }
            let two = frames(&[&[1], b"\x03def", END, b"\x03new", b"\x03old", END]);
            assert_eq!(
                session.response(&two),
                Ok(Progress::Rejected { consumed: two.len(), kind: "wrong reply" })
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![answer(1, Protocol::Prepared), answer(1, Protocol::Text)])) {
            let mut session =
                session(Statement::PointSelect, Protocol::Prepared, &answer(1, Protocol::Prepared)).unwrap();
            asked(&mut session);
            let _ = session.response(&bytes);
            let _ = self::session(Statement::PointSelect, Protocol::Text, &bytes);
        }
    }

    fn stream(rows: &[u32]) -> Vec<u8> {
        fn column(text: &str) -> Vec<u8> {
            [&[text.len() as u8], text.as_bytes()].concat()
        }
        let mut payloads: Vec<Vec<u8>> = vec![vec![4]];
        payloads.extend(["id", "k", "c", "pad"].map(|name| [b"\x03def", name.as_bytes()].concat()));
        payloads.push(END.to_vec());
        for id in rows {
            let columns = [
                column(&id.to_string()),
                column("7"),
                column(&digits(*id).repeat(C_REPEATS)),
                column(&digits(*id).repeat(PAD_REPEATS)),
            ];
            payloads.push(columns.concat());
        }
        payloads.push(END.to_vec());
        let mut out = Vec::new();
        for (number, payload) in payloads.iter().enumerate() {
            frame(number as u8 + 1, payload, &mut out);
        }
        out
    }

    fn dump_session(rows: u64) -> DumpSession {
        let mut dump_session = DumpSession::new(&Table::own("s.", 3), rows, true);
        dump_session.request(&mut Vec::new());
        dump_session
    }

    #[test]
    fn every_row_is_looked_at_and_counted() {
        let all = stream(&[1, 2, 3]);
        assert_eq!(dump_session(3).response(&all), Ok(Progress::Complete { consumed: all.len() }));
        let kind = "another number of rows";
        assert_eq!(dump_session(4).response(&all), Ok(Progress::Rejected { consumed: all.len(), kind }));
        assert_eq!(dump_session(3).response(&stream(&[1, 3, 2])).unwrap_err().kind, "wrong row");
        let mut wrong = all.clone();
        let at = wrong.len() - 20;
        wrong[at] ^= 1;
        assert_eq!(dump_session(3).response(&wrong).unwrap_err().kind, "wrong row");
    }

    proptest! {
        #[test]
        fn a_dump_in_any_pieces_is_complete_once(
            pieces in proptest::collection::vec(1_usize..300, 1..20),
        ) {
            in_any_pieces(&mut dump_session(3), &stream(&[1, 2, 3]), &pieces);
        }

        #[test]
        fn no_bytes_make_a_dump_panic(bytes in bent(vec![stream(&[1, 2, 3])])) {
            let _ = dump_session(3).response(&bytes);
        }
    }
}
