//! Our table, the statements on it, and the bytes of each request and reply.
//!
//! Ids start at 1,000,000,001, so that all have ten digits: requests and replies have a fixed length, and
//! another id changes only ten bytes.

use samehost_login::LoginError;
use samehost_login::postgres::unsaid;

use super::dialogue::{PREPARED, bind_execute_sync, message, parse_statement, query};
use crate::parameters::words;
use crate::workloads::requests::write_digits;

/// The id before the first: all have ten digits.
const BASE: u32 = 1_000_000_000;
pub(super) const DIGITS: usize = 10;
/// What follows the id's digits in a row's content, which is 120 bytes as in sysbench.
const FILLER: &str = "-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEF";

words! {
    pub(super) enum Statement {
        PointSelect = "point-select",
        Select1 = "select-1",
        Update = "update",
        Copy = "copy",
    }

    /// The two sub-protocols for queries (PostgreSQL's manual, "Message Flow").
    pub(super) enum Protocol { Extended = "extended", Simple = "simple" }
}

impl Statement {
    pub(super) fn has_table(self) -> bool {
        self != Statement::Select1
    }

    /// Number of parameters of the prepared statement, which are all integers.
    pub(super) fn parameters(self) -> usize {
        usize::from(matches!(self, Statement::PointSelect | Statement::Update))
    }

    /// The SQL text, in which `id` is a number, or a place such as `$1`.
    pub(super) fn sql(self, table: &str, id: &str) -> String {
        match self {
            Statement::PointSelect => format!("SELECT content FROM {table} WHERE id = {id}"),
            Statement::Select1 => "SELECT 1".into(),
            Statement::Update => format!("UPDATE {table} SET counter = counter + 1 WHERE id = {id}"),
            Statement::Copy => format!("COPY {table} TO STDOUT"),
        }
    }
}

/// Statements that make our table and fill it, each short enough to end within a connection's time limit.
pub(super) fn make_table(table: &str, rows: u32) -> Vec<String> {
    const AT_ONCE: u32 = 50_000;
    // Half of each page stays free, so that an update need not touch the index.
    let mut all = vec![format!(
        "CREATE TABLE {table} (id integer PRIMARY KEY, content text NOT NULL, counter integer NOT NULL) WITH (fillfactor = 50)"
    )];
    for from in (0..rows).step_by(AT_ONCE as usize) {
        let (first, last) = (BASE + 1 + from, BASE + rows.min(from.saturating_add(AT_ONCE)));
        all.push(format!(
            "INSERT INTO {table} SELECT id, id || '{FILLER}', 0 FROM generate_series({first}, {last}) AS id"
        ));
    }
    // Marks rows as visible to all, so that the first trials need not.
    all.push(format!("VACUUM (ANALYZE) {table}"));
    all
}

/// A request and its reply. Another id changes only its digits in both, so that a request costs the client a copy and
/// a reply one comparison of memory.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) request: Vec<u8>,
    pub(super) reply: Vec<u8>,
    id: IdPlace,
    digits: Option<usize>,
    pub(super) rows: u32,
}

#[derive(Clone, Copy, Debug)]
enum IdPlace {
    Nowhere,
    Binary(usize),
    Digits(usize),
}

impl Exchange {
    /// A statement on `table`, which has `rows` rows, and its reply. `description` is the RowDescription that the server
    /// sends before a row in the simple protocol, empty for other statements. With `prepares` the request parses the
    /// statement too, as it must where a pooler may hand each transaction to another connection.
    pub(super) fn new(
        statement: Statement,
        protocol: Protocol,
        prepares: bool,
        (table, rows): (&str, u32),
        description: &[u8],
    ) -> Result<Self, LoginError> {
        let first = BASE + 1;
        let mut reply = Vec::new();
        let (request, id) = match protocol {
            Protocol::Simple => {
                let request = query(&statement.sql(table, &first.to_string())).map_err(unsaid)?;
                reply.extend_from_slice(description);
                let place = request.len() - 1 - DIGITS;
                (request, IdPlace::Digits(place))
            }
            Protocol::Extended => {
                let (name, mut request) = if prepares { ("", Vec::new()) } else { (PREPARED, Vec::new()) };
                if prepares {
                    request = parse_statement(name, &statement.sql(table, "$1"), statement.parameters())?;
                    reply.extend(message(b'1', b""));
                }
                let values = vec![first.cast_signed(); statement.parameters()];
                request.extend(bind_execute_sync(name, &values)?);
                reply.extend(message(b'2', b""));
                // The value is followed by the result formats (2), Execute (10) and Sync (5).
                let place = request.len() - 4 - 2 - 10 - 5;
                (request, IdPlace::Binary(place))
            }
        };
        let mut digits = None;
        match statement {
            Statement::PointSelect => {
                digits = Some(reply.len() + 5 + 2 + 4);
                reply.extend(row(format!("{first}{FILLER}").as_bytes()));
            }
            Statement::Select1 => reply.extend(row(b"1")),
            Statement::Update | Statement::Copy => {}
        }
        let tag: &[u8] = if statement == Statement::Update { b"UPDATE 1\0" } else { b"SELECT 1\0" };
        reply.extend(message(b'C', tag));
        reply.extend(message(b'Z', b"I"));
        let id = if statement.parameters() == 0 { IdPlace::Nowhere } else { id };
        Ok(Exchange { request, reply, id, digits, rows })
    }

    #[inline]
    pub(super) fn has_id(&self) -> bool {
        !matches!(self.id, IdPlace::Nowhere)
    }

    /// Puts the id of a row into the request and the reply; the first row is 0.
    #[inline]
    pub(super) fn ask_for(&mut self, row: u32) {
        let id = BASE + 1 + row;
        let mut digits = [0; DIGITS];
        write_digits(id, &mut digits);
        match self.id {
            IdPlace::Nowhere => {}
            IdPlace::Binary(at) => self.request[at..at + 4].copy_from_slice(&id.to_be_bytes()),
            IdPlace::Digits(at) => self.request[at..at + DIGITS].copy_from_slice(&digits),
        }
        if let Some(at) = self.digits {
            self.reply[at..at + DIGITS].copy_from_slice(&digits);
        }
    }
}

fn row(value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    message(b'D', &[&[0, 1], length.to_be_bytes().as_slice(), value].concat())
}

/// The message before the rows of a COPY: text format, three columns.
pub(super) fn copy_head() -> Vec<u8> {
    message(b'H', &[0, 0, 3, 0, 0, 0, 0, 0, 0])
}

/// The first row of a COPY as a message, and the positions of the id's digits in it.
pub(super) fn copy_row() -> (Vec<u8>, [usize; 2]) {
    let first = BASE + 1;
    let row = message(b'd', format!("{first}\t{first}{FILLER}\t0\n").as_bytes());
    (row, [5, 5 + DIGITS + 1])
}

pub(super) fn copy_end(rows: u32) -> Vec<u8> {
    let count = format!("COPY {rows}\0");
    [message(b'c', b""), message(b'C', count.as_bytes()), message(b'Z', b"I")].concat()
}

#[inline]
pub(super) fn increment(digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_put_where_it_belongs() {
        let table = ("t", 10);
        let mut extended =
            Exchange::new(Statement::PointSelect, Protocol::Extended, false, table, b"").unwrap();
        extended.ask_for(41);
        assert_eq!(extended.request, bind_execute_sync(PREPARED, &[1_000_000_042]).unwrap());
        let reply = String::from_utf8_lossy(&extended.reply).into_owned();
        assert!(reply.contains("1000000042-0123456789-abc"), "{reply}");
        let mut simple = Exchange::new(Statement::Update, Protocol::Simple, false, table, b"").unwrap();
        simple.ask_for(998);
        assert_eq!(
            simple.request,
            query("UPDATE t SET counter = counter + 1 WHERE id = 1000000999").unwrap()
        );
        assert_eq!(simple.reply, b"C\0\0\0\x0dUPDATE 1\0Z\0\0\0\x05I");
    }

    #[test]
    fn a_content_is_as_long_as_it_should_be_and_a_copy_counts_on() {
        assert_eq!(FILLER.len() + DIGITS, 120);
        let (mut row, places) = copy_row();
        for _ in 0..99 {
            for at in places {
                increment(&mut row[at..at + DIGITS]);
            }
        }
        let text = String::from_utf8(row[5..].to_vec()).unwrap();
        assert!(text.starts_with("1000000100\t1000000100-") && text.ends_with("F\t0\n"), "{text}");
    }

    #[test]
    fn a_table_is_filled_in_parts() {
        let all = make_table("t", 50_001);
        assert_eq!(all.len(), 4);
        assert!(all[1].contains("(1000000001, 1000050000)") && all[2].contains("(1000050001, 1000050001)"));
    }
}
