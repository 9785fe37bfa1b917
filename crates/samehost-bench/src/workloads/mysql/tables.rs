//! Tables that statements work on: our own, made first and dropped last, or an existing one that is only read.

use samehost_system::interrupt;

use super::Settings;
use super::dialogue::{Address, Dialogue, prepare};
use super::session::{Ids, Known};
use super::statement::{Command, Protocol, Statement, Table};
use crate::error::BenchError;
use crate::private_servers::random_hex;

/// Most rows that one statement adds: it must finish within a connection's time limit.
const MOST_AT_ONCE: u32 = 50_000;
/// Rows queried in a table that is not ours.
const KNOWN_ROWS: u32 = 100;

/// Tables in one server.
pub(super) struct Tables {
    pub(super) table: Table,
    pub(super) ids: Ids,
    /// Rows of the table that is dumped.
    pub(super) rows: u64,
    /// Server and statement that drop what we made.
    undo: Option<(Address, String)>,
}

impl Tables {
    /// Makes our own tables: in the URL's database, or in a new one.
    pub(super) fn make(
        address: &Address,
        statement: Statement,
        rows: u32,
        foreign: bool,
    ) -> Result<Self, BenchError> {
        let mut dialogue = address.begin()?;
        let name = if foreign { format!("samehost_{}", random_hex(6)?) } else { "samehost".into() };
        let (prefix, undo) = match &address.server.credentials.database {
            Some(database) => {
                let prefix = format!("{}.{name}_", quoted(database));
                let undo = format!("DROP TABLE IF EXISTS {prefix}points, {prefix}inserts");
                (prefix, undo)
            }
            None => (format!("{name}."), format!("DROP DATABASE IF EXISTS {name}")),
        };
        let table = Table::own(&prefix, rows);
        if statement == Statement::SelectOne {
            return Ok(Tables { table, ids: Ids::Own(rows), rows: 1, undo: None });
        }
        let undo = foreign.then(|| (address.clone(), undo));
        let tables = Tables { table, ids: Ids::Own(rows), rows: u64::from(rows), undo };
        if address.server.credentials.database.is_none() {
            dialogue.must("a database of our own", &format!("CREATE DATABASE {name}"))?;
        }
        for definition in tables.table.definitions() {
            dialogue.must("a table of our own", &definition)?;
        }
        for filling in tables.table.filling(MOST_AT_ONCE) {
            dialogue.must("filling our table", &filling)?;
        }
        dialogue.must("looking at our table", &format!("ANALYZE TABLE {}", tables.table.points))?;
        dialogue.quit()?;
        Ok(tables)
    }

    /// Finds an existing table and reads some of its rows.
    pub(super) fn found(address: &Address, settings: &Settings) -> Result<Self, BenchError> {
        let mut table = Table::own("", 1);
        if settings.statement == Statement::SelectOne {
            return Ok(Tables { table, ids: Ids::Own(1), rows: 1, undo: None });
        }
        let mut dialogue = address.begin()?;
        let Some(database) = &address.server.credentials.database else {
            return Err(BenchError::Usage(
                "--read-only yes reads a table that is there: name its database in the URL (mysql://USER@HOST/DATABASE), or use --statement select-1".into(),
            ));
        };
        let (name, key) = keyed_table(&mut dialogue, database, settings.table.as_deref())?;
        table.points = format!("{}.{}", quoted(database), quoted(&name));
        table.key = quoted(&key);
        table.columns = "*".into();
        let rows = dialogue.rows("counting rows", &format!("SELECT COUNT(*) FROM {}", table.points))?;
        let rows =
            rows.into_iter().flatten().flatten().next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let ids = Ids::Known(if settings.statement == Statement::Dump {
            Known::from([])
        } else {
            known(&mut dialogue, &table, settings.protocol)?
        });
        dialogue.quit()?;
        Ok(Tables { table, ids, rows, undo: None })
    }

    /// Resets the tables, so that every trial starts from the same state.
    pub(super) fn prepare_trial(&self, address: &Address, statement: Statement) -> Result<(), BenchError> {
        if statement == Statement::Insert {
            let mut dialogue = address.begin()?;
            dialogue.must("emptying our table", &format!("TRUNCATE TABLE {}", self.table.inserts))?;
            dialogue.quit()?;
        }
        Ok(())
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        let Some((address, sql)) = &self.undo else { return };
        let undone = interrupt::putting_right(|| -> Result<_, BenchError> {
            Ok(address.begin()?.must("dropping what is ours", sql)?)
        });
        if let Err(error) = undone {
            tracing::warn!("what was made for measuring could not be dropped: {error}; `{sql}` does it");
        }
    }
}

/// Quotes any name for SQL.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Quotes any text for SQL, in either quoting mode.
fn literal(text: &str) -> String {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    if hex.is_empty() { "''".into() } else { format!("x'{hex}'") }
}

/// Finds a table whose primary key is a single integer column, and that column; the largest table if none is named.
fn keyed_table(
    dialogue: &mut Dialogue,
    database: &str,
    wanted: Option<&str>,
) -> Result<(String, String), BenchError> {
    let only = wanted.map(|name| format!("AND t.TABLE_NAME = {}", literal(name))).unwrap_or_default();
    let sql = format!(
        "SELECT t.TABLE_NAME, MIN(c.COLUMN_NAME) FROM information_schema.TABLES t \
         JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_KEY = 'PRI' \
         WHERE t.TABLE_SCHEMA = {} {only} GROUP BY t.TABLE_NAME, t.TABLE_ROWS \
         HAVING COUNT(*) = 1 AND SUM(c.DATA_TYPE IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint')) = 1 \
         ORDER BY t.TABLE_ROWS DESC LIMIT 1",
        literal(database)
    );
    let row = dialogue.rows("looking for a table", &sql)?.into_iter().next().unwrap_or_default();
    match row.as_slice() {
        [Some(name), Some(key)] => Ok((name.clone(), key.clone())),
        _ => Err(BenchError::Usage(format!(
            "the database `{}` has no such table whose primary key is one integer; name one with --table, or use --statement select-1",
            database.escape_debug()
        ))),
    }
}

/// Existing ids, and the reply to each.
fn known(dialogue: &mut Dialogue, table: &Table, protocol: Protocol) -> Result<Known, BenchError> {
    let (key, points) = (&table.key, &table.points);
    let sql = format!("SELECT {key} FROM {points} WHERE {key} BETWEEN 0 AND {} LIMIT {KNOWN_ROWS}", u32::MAX);
    let ids: Vec<u32> = dialogue
        .rows("reading ids", &sql)?
        .into_iter()
        .filter_map(|row| row.into_iter().next().flatten()?.parse().ok())
        .collect();
    if ids.is_empty() {
        return Err(BenchError::Usage(format!("{points} has no row to ask for; name another --table")));
    }
    let mut command = if protocol == Protocol::Text {
        Command::query(Statement::PointSelect, table)
    } else {
        let (id, ..) = prepare(dialogue, &Statement::PointSelect.sql(table, "?"))?;
        Command::execute(id, true, true)
    };
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        command.set(id);
        answers.push((id, dialogue.raw(command.payload())?.into_boxed_slice()));
    }
    Ok(answers.into())
}
