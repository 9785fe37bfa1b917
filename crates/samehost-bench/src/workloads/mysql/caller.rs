//! A new connection for each statement: connect, log in, query as text, quit. This is what a program without
//! a connection pool does, and shows how much of a difference is the handshake.

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::address::Address;
use super::dialogue::{Dialogue, Reply};
use super::session::Ids;
use super::statement::{Statement, Table, digits};
use crate::engine::seen::Seen;
use crate::engine::session::{Bad, Caller};
use crate::error::BenchError;

/// Opens a new connection for each statement.
pub(super) struct MySqlCaller {
    address: Address,
    statement: Statement,
    table: Table,
    ids: Ids,
    random: Xoshiro256PlusPlus,
    seen: Option<Seen>,
}

impl MySqlCaller {
    /// The seed decides which rows are queried.
    pub(super) fn new(
        address: Address,
        statement: Statement,
        table: Table,
        ids: Ids,
        seed: u64,
        seen: Option<Seen>,
    ) -> Self {
        MySqlCaller { address, statement, table, ids, random: Xoshiro256PlusPlus::seed_from_u64(seed), seen }
    }

    fn is_right(&self, id: u32, reply: &Reply) -> Result<(), &'static str> {
        match (self.statement, reply) {
            (_, Reply::Refused(error)) => Err(error.kind()),
            (Statement::Update | Statement::Insert, Reply::Done(1)) => Ok(()),
            (Statement::Update | Statement::Insert, _) => Err("no row changed"),
            (Statement::SelectOne, Reply::Rows(rows)) if rows.len() == 1 => match rows[0].as_slice() {
                [Some(one)] if one == "1" => Ok(()),
                _ => Err("wrong row"),
            },
            (_, Reply::Rows(rows)) => match rows.as_slice() {
                // In a table that is not ours, rows may change and go meanwhile.
                [] if !self.table.is_own() => Ok(()),
                [] => Err("no row"),
                [row] if !self.table.is_own() && !row.is_empty() => Ok(()),
                [row] if row.len() == 1 && row[0].as_deref().is_some_and(|c| is_row(c, id)) => Ok(()),
                _ => Err("wrong row"),
            },
            _ => Err("wrong reply"),
        }
    }
}

/// Whether a text is column `c` of the row with this id.
fn is_row(c: &str, id: u32) -> bool {
    c == digits(id).repeat(super::statement::C_REPEATS)
}

impl Caller for MySqlCaller {
    fn call(&mut self) -> Result<(), Bad> {
        let id = self.ids.pick(&mut self.random);
        let mut dialogue = Dialogue::measured(&self.address).map_err(|error| bad(&error))?;
        let sql = self.statement.sql(&self.table, &digits(id));
        let reply = dialogue.ask(&sql).map_err(|error| bad(&error))?;
        self.is_right(id, &reply).map_err(|kind| Bad::new(kind, sql))?;
        dialogue.quit().map_err(|error| bad(&error))
    }

    fn seen(&self) -> Option<Seen> {
        self.seen.clone()
    }
}

/// Kind of an error, for the error counts.
fn bad(error: &BenchError) -> Bad {
    let kind = match error {
        BenchError::Connect(_) => "connect failed",
        BenchError::Refused { answer, .. } if answer.starts_with("1040 ") => "too many connections (1040)",
        BenchError::Refused { .. } => "login refused",
        BenchError::Hung { .. } => "no answer",
        _ => "connection lost",
    };
    Bad::new(kind, error.to_string())
}
