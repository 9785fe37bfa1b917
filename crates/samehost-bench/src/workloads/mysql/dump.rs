//! Session of a dump: one query for all rows, each verified as it streams by, as `mysqldump --quick` reads
//! them. Keeps no rows.

use super::statement::{C_REPEATS, DIGITS, PAD_REPEATS, Statement, Table, digits, write_digits};
use crate::engine::session::{Bad, Progress, Session};
use crate::workloads::mysql::dialogue::QUERY;
use samehost_login::mysql::packet::{HEAD, SqlError, first_frame, frame, is_end, take_integer, take_text};

/// Position in the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Count,
    Columns(u64),
    Rows,
}

/// One dump.
#[derive(Debug)]
pub(super) struct DumpSession {
    request: Vec<u8>,
    place: Place,
    seen: u64,
    /// Number of rows in the table.
    rows: u64,
    /// Whether it is our own table, whose rows are all known.
    own: bool,
    /// The end of the next row's payload in our own table: `c`, then `pad`.
    tail: Vec<u8>,
}

impl DumpSession {
    /// A dump of a table with this many rows.
    pub(super) fn new(table: &Table, rows: u64, own: bool) -> Self {
        let mut request = Vec::new();
        let sql = Statement::Dump.sql(table, "");
        frame(0, &[&[QUERY], sql.as_bytes()].concat(), &mut request);
        let column = |repeats: usize| {
            let text = digits(0).repeat(repeats);
            [&[text.len() as u8], text.as_bytes()].concat()
        };
        let tail = [column(C_REPEATS), column(PAD_REPEATS)].concat();
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
                    // The owner of a table that is not ours may add and delete rows meanwhile.
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
    use super::*;
    use crate::engine::session::in_any_pieces;
    use proptest::prelude::*;
    use samehost_testing::bent;

    const END: &[u8] = &[0xfe, 0, 0, 2, 0];

    fn stream(rows: &[u32]) -> Vec<u8> {
        let mut payloads: Vec<Vec<u8>> = vec![vec![4]];
        payloads.extend(["id", "k", "c", "pad"].map(|name| [b"\x03def", name.as_bytes()].concat()));
        payloads.push(END.to_vec());
        for id in rows {
            let text = |text: String| [&[text.len() as u8], text.as_bytes()].concat();
            let columns = [
                text(id.to_string()),
                text("7".into()),
                text(digits(*id).repeat(C_REPEATS)),
                text(digits(*id).repeat(PAD_REPEATS)),
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

    fn session(rows: u64) -> DumpSession {
        let mut session = DumpSession::new(&Table::own("s.", 3), rows, true);
        session.request(&mut Vec::new());
        session
    }

    #[test]
    fn every_row_is_looked_at_and_counted() {
        let all = stream(&[1, 2, 3]);
        assert_eq!(session(3).response(&all), Ok(Progress::Complete { consumed: all.len() }));
        let kind = "another number of rows";
        assert_eq!(session(4).response(&all), Ok(Progress::Rejected { consumed: all.len(), kind }));
        assert_eq!(session(3).response(&stream(&[1, 3, 2])).unwrap_err().kind, "wrong row");
        let mut wrong = all.clone();
        let at = wrong.len() - 20;
        wrong[at] ^= 1;
        assert_eq!(session(3).response(&wrong).unwrap_err().kind, "wrong row");
    }

    proptest! {
        #[test]
        fn a_dump_in_any_pieces_is_complete_once(
            pieces in proptest::collection::vec(1_usize..300, 1..20),
        ) {
            in_any_pieces(&mut session(3), &stream(&[1, 2, 3]), &pieces);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![stream(&[1, 2, 3])])) {
            let _ = session(3).response(&bytes);
        }
    }
}
