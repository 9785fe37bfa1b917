//! The statements, as SQL and as bytes of a command, and the rows of our table.

use std::sync::Arc;

use samehost_login::mysql::packet::frame;

use super::dialogue::QUERY;
use crate::parameters::words;
use crate::workloads::requests::write_digits;

const COM_STMT_EXECUTE: u8 = 0x17;
/// `MYSQL_TYPE_LONG` with the flag for unsigned.
const UNSIGNED_LONG: [u8; 2] = [0x03, 0x80];
pub(super) const DIGITS: usize = 10;
/// Repetitions of an id's digits in column `c`: 120 bytes, as in sysbench's rows.
pub(super) const C_REPEATS: usize = 12;
/// Repetitions in column `pad`: 60 bytes.
pub(super) const PAD_REPEATS: usize = 6;

words! {
    pub(super) enum Statement {
        PointSelect = "point-select",
        SelectOne = "select-1",
        Update = "update",
        Insert = "insert",
        Dump = "dump",
    }

    pub(super) enum Protocol {
        /// `COM_STMT_EXECUTE` of a statement that each connection prepares once.
        Prepared = "prepared",
        /// `COM_QUERY`, which the server parses each time.
        Text = "text",
    }
}

impl Statement {
    pub(super) fn writes(self) -> bool {
        matches!(self, Statement::Update | Statement::Insert)
    }

    /// Whether its text has an id, which is another one each time.
    pub(super) fn has_id(self) -> bool {
        matches!(self, Statement::PointSelect | Statement::Update | Statement::Insert)
    }

    pub(super) fn sql(self, table: &Table, id: &str) -> String {
        let points = &table.points;
        match self {
            Statement::PointSelect => {
                format!("SELECT {} FROM {points} WHERE {}={id}", table.columns, table.key)
            }
            Statement::SelectOne => "SELECT 1".into(),
            Statement::Update => format!("UPDATE {points} SET k=k+1 WHERE id={id}"),
            Statement::Insert => format!(
                "INSERT INTO {} (k, c, pad) VALUES ({id}, '{}', '{}')",
                table.inserts,
                digits(0).repeat(C_REPEATS),
                digits(0).repeat(PAD_REPEATS)
            ),
            Statement::Dump => format!("SELECT /*!40001 SQL_NO_CACHE */ * FROM {points}"),
        }
    }
}

/// Quoted and qualified names of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) points: String,
    pub(super) inserts: String,
    /// Integer primary key of `points`.
    pub(super) key: String,
    pub(super) columns: String,
    /// Ids of our own table range from 1 to this.
    pub(super) rows: u32,
}

impl Table {
    pub(super) fn own(prefix: &str, rows: u32) -> Self {
        Table {
            points: format!("{prefix}points"),
            inserts: format!("{prefix}inserts"),
            key: "id".into(),
            columns: "c".into(),
            rows,
        }
    }

    pub(super) fn is_own(&self) -> bool {
        self.columns == "c"
    }

    pub(super) fn definitions(&self) -> [String; 2] {
        let rest = "k INT UNSIGNED NOT NULL DEFAULT 0, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL";
        [
            format!(
                "CREATE TABLE {} (id INT UNSIGNED NOT NULL PRIMARY KEY, {rest}) ENGINE=InnoDB",
                self.points
            ),
            format!(
                "CREATE TABLE {} (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, {rest}) ENGINE=InnoDB",
                self.inserts
            ),
        ]
    }

    /// Statements that fill our table from itself, each doubling its rows or adding `most` of them: no row crosses the
    /// connection.
    pub(super) fn filling(&self, most: u32) -> Vec<String> {
        let points = &self.points;
        let mut statements = vec![format!("INSERT INTO {points} VALUES ({})", row("1"))];
        let mut there = 1;
        while there < self.rows {
            let more = there.min(self.rows - there).min(most);
            let values = row(&format!("id + {there}"));
            statements.push(format!("INSERT INTO {points} SELECT {values} FROM {points} WHERE id <= {more}"));
            there += more;
        }
        statements
    }
}

fn row(id: &str) -> String {
    format!(
        "{id}, 0, REPEAT(LPAD({id}, {DIGITS}, '0'), {C_REPEATS}), REPEAT(LPAD({id}, {DIGITS}, '0'), {PAD_REPEATS})"
    )
}

/// An id with leading zeros, so that all are of one length in SQL and in rows.
pub(super) fn digits(id: u32) -> String {
    format!("{id:0DIGITS$}")
}

/// Some ids of a table that is not ours, and the reply to each.
pub(super) type Known = Arc<[(u32, Box<[u8]>)]>;

#[derive(Clone, Debug)]
pub(super) enum Ids {
    /// All ids of our own table: from 1 to this.
    Own(u32),
    Known(Known),
}

/// A frame that is sent over and over, in which only the id changes, at the place `number`: four bytes, little endian, or
/// ten digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) bytes: Vec<u8>,
    pub(super) number: Option<Number>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Binary(usize),
    Digits(usize),
}

impl Command {
    /// The statement as text (`COM_QUERY`), with id 1.
    pub(super) fn query(statement: Statement, table: &Table) -> Self {
        let id = digits(1);
        let sql = statement.sql(table, &id);
        let mut bytes = Vec::new();
        frame(0, &[&[QUERY], sql.as_bytes()].concat(), &mut bytes);
        let mut number = None;
        if statement.has_id() {
            // The constant of an insert is the id 0, so that only the id itself contains a 1.
            number = bytes.windows(DIGITS).rposition(|window| window == id.as_bytes()).map(Number::Digits);
        }
        Command { number, bytes }
    }

    /// `COM_STMT_EXECUTE` with id 1. Its fields and their bytes: statement (4), flags (1), iterations (4), and with a
    /// parameter the NULL bitmap (1), whether types follow (1), the type (2) the first time, the value (4).
    pub(super) fn execute(statement: u32, has_id: bool, first: bool) -> Self {
        let mut payload = vec![COM_STMT_EXECUTE];
        payload.extend_from_slice(&statement.to_le_bytes());
        payload.extend_from_slice(&[0, 1, 0, 0, 0]);
        if has_id {
            payload.extend_from_slice(&[0, u8::from(first)]);
            if first {
                payload.extend_from_slice(&UNSIGNED_LONG);
            }
            payload.extend_from_slice(&1_u32.to_le_bytes());
        }
        let mut bytes = Vec::new();
        frame(0, &payload, &mut bytes);
        let number = if has_id { Some(Number::Binary(bytes.len() - 4)) } else { None };
        Command { number, bytes }
    }

    #[inline]
    pub(super) fn set(&mut self, id: u32) {
        match self.number {
            Some(Number::Binary(at)) => self.bytes[at..at + 4].copy_from_slice(&id.to_le_bytes()),
            Some(Number::Digits(at)) => write_digits(id, &mut self.bytes[at..at + DIGITS]),
            None => {}
        }
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[samehost_login::mysql::packet::HEAD..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_carry_their_number() {
        let table = Table::own("`s`.", 100);
        let mut query = Command::query(Statement::PointSelect, &table);
        query.set(42);
        assert!(query.bytes.ends_with(b"SELECT c FROM `s`.points WHERE id=0000000042"));
        let mut insert = Command::query(Statement::Insert, &table);
        insert.set(7);
        let text = String::from_utf8_lossy(insert.payload()).into_owned();
        assert!(text.contains("VALUES (0000000007, '0000000000"), "{text}");
        let mut execute = Command::execute(9, true, false);
        execute.set(0x0102_0304);
        assert_eq!(execute.bytes, [16, 0, 0, 0, 0x17, 9, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(Command::execute(9, true, true).bytes.len(), 22);
        assert_eq!(Command::execute(9, false, false).number, None);
        assert_eq!(Command::query(Statement::SelectOne, &table).number, None);
    }

    #[test]
    fn filling_reaches_the_number_of_rows() {
        for (rows, statements) in [(1, 1), (2, 2), (100, 8), (1000, 104)] {
            assert_eq!(
                Table::own("", rows).filling(if rows == 1000 { 10 } else { 1 << 20 }).len(),
                statements
            );
        }
        let mut place = *b"xxxxxxxxxx";
        write_digits(4_294_967_295, &mut place);
        assert_eq!(&place, b"4294967295");
    }
}
