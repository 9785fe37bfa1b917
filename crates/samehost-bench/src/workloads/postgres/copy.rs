//! A whole table as text, COPY … TO STDOUT: every row is compared as it arrives, and none is kept.

use postgres_protocol::message::backend::Message;

use super::dialogue::{Refusal, first, is_aside, parse, query};
use super::statement::{ID_DIGITS, Statement, copy_end, copy_head, copy_row, increment};
use crate::engine::session::{Bad, Progress, Session};

/// Position in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Rows,
    End,
}

/// One connection that reads the table.
#[derive(Debug)]
pub(super) struct CopySession {
    request: Vec<u8>,
    rows: u32,
    head: Vec<u8>,
    /// The next expected row.
    row: Vec<u8>,
    /// Positions of the id in it.
    places: [usize; 2],
    end: Vec<u8>,
    stage: Stage,
    left: u32,
    refused: Option<Refusal>,
}

impl CopySession {
    pub(super) fn new(table: &str, rows: u32) -> Result<Self, String> {
        let (row, places) = copy_row();
        Ok(CopySession {
            request: query(&Statement::Copy.sql(table, ""))?,
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

    /// The next expected message.
    #[inline]
    fn awaited(&self) -> &[u8] {
        match self.stage {
            Stage::Head => &self.head,
            Stage::Rows => &self.row,
            Stage::End => &self.end,
        }
    }

    /// Consumes the complete rows at the beginning of the input.
    #[inline]
    fn rows(&mut self, input: &[u8]) -> usize {
        let mut at = 0;
        while self.left > 0 && input[at..].starts_with(&self.row) {
            at += self.row.len();
            self.left -= 1;
            for place in self.places {
                increment(&mut self.row[place..place + ID_DIGITS]);
            }
        }
        if self.left == 0 {
            self.stage = Stage::End;
        }
        at
    }

    /// Parses a message other than the expected one: an asynchronous message, a refusal and what follows it,
    /// or a wrong row.
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
                    if let (b'Z', Some(said)) = (tag, &self.refused) {
                        return Ok(Progress::Rejected { consumed, kind: said.kind() });
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

    fn table(rows: u32) -> Vec<u8> {
        let mut all = copy_head();
        let (mut row, places) = copy_row();
        for _ in 0..rows {
            all.extend_from_slice(&row);
            for place in places {
                increment(&mut row[place..place + ID_DIGITS]);
            }
        }
        [all, copy_end(rows)].concat()
    }

    fn session(rows: u32) -> CopySession {
        let mut session = CopySession::new("t", rows).unwrap();
        let mut out = Vec::new();
        session.request(&mut out);
        assert_eq!(out, query("COPY t TO STDOUT").unwrap());
        session
    }

    #[test]
    fn a_row_too_few_a_wrong_one_and_a_refusal_are_no_success() {
        assert_eq!(session(2).response(&table(1)).unwrap_err().kind, "wrong row");
        let mut wrong = table(2);
        wrong[200] ^= 1;
        assert_eq!(session(2).response(&wrong).unwrap_err().kind, "wrong row");
        let head = copy_head();
        let error = message(b'E', b"VERROR\0C57014\0Mno\0\0");
        let refused = [head.as_slice(), &error, &message(b'Z', b"I")].concat();
        let rejected = Progress::Rejected { consumed: refused.len(), kind: "57014 query canceled" };
        assert_eq!(session(2).response(&refused), Ok(rejected));
        let lost = [head, message(b'E', b"VFATAL\0C57P01\0Mbye\0\0")].concat();
        assert_eq!(session(2).response(&lost).unwrap_err().kind, "57P01 server shut down");
    }

    proptest! {
        #[test]
        fn a_table_in_any_pieces_is_complete_once(
            rows in 0_u32..120,
            pieces in proptest::collection::vec(1_usize..900, 1..40),
        ) {
            let mut session = session(rows);
            let all = table(rows);
            for _ in 0..2 {
                in_any_pieces(&mut session, &all, &pieces);
                session.request(&mut Vec::new());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![table(3)]), at in 0_usize..400) {
            let mut all = table(2);
            all.truncate(at);
            all.extend(bytes);
            let _ = session(2).response(&all);
        }
    }
}
