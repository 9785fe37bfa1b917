//! MySQL during a measurement: the private server or the given ones, our tables in them, the connections of a trial,
//! and what a measurement would do to a server that is already running, from its own variables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use samehost_login::ServerAddress;
use samehost_model::{Arm, Transport};
use samehost_services::Kind;
use samehost_system::interrupt;

use super::Settings;
use super::dialogue::{Address, BinaryLog, Dialogue, begin, binary_log, prepare};
use super::session::{DumpSession, MySqlCaller, MySqlSession};
use super::statement::{Command, Ids, Known, Protocol, Statement, Table};
use crate::engine::Job;
use crate::engine::session::{Seen, Session};
use crate::error::BenchError;
use crate::impact::{Impact, in_words};
use crate::private_servers::mariadb::MariaDbOptions;
use crate::private_servers::{PrivateServer, mariadb, random_hex};
use crate::served::{Instance, Served, StartOptions, listening};
use crate::workload::Look;
use crate::workloads::requests::{apart, opener, says};

pub(super) struct RunningMySql {
    // Dropped first, so that our tables are dropped while the server is still running. One set for all transports where
    // they lead to one server, and otherwise one for each, in the order of `addresses`.
    tables: Vec<Tables>,
    served: Served,
    addresses: BTreeMap<Transport, Address>,
    settings: Settings,
}

impl RunningMySql {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let mut served = Served::one(start, || private_server(settings, start))?;
        let is_private = served.is_private();
        let mut addresses = BTreeMap::new();
        for (transport, server) in &served.addresses {
            addresses.insert(*transport, Address { server: server.clone(), unlogged: false });
        }
        let statement = settings.statement;
        if !is_private && !settings.read_only && statement != Statement::SelectOne {
            for address in addresses.values_mut() {
                let mut dialogue = address.begin()?;
                address.unlogged = binary_log(&mut dialogue)? == BinaryLog::KeptOut;
                dialogue.quit()?;
            }
        }
        let identities = addresses.values().map(identity).collect::<Result<Vec<_>, _>>()?;
        let differ = identities.iter().any(|identity| identity.instance != identities[0].instance);
        let sets = if differ { addresses.len() } else { 1 };
        let mut tables = Vec::new();
        for address in addresses.values().take(sets) {
            tables.push(if settings.read_only && !is_private {
                Tables::found(address, settings)?
            } else {
                Tables::make(address, statement, settings.rows, !is_private)?
            });
        }
        let first = identities.into_iter().next().unwrap_or_default();
        served.info.kind = kind(&first, differ);
        served.info.version = first.version;
        Ok(RunningMySql { tables, served, addresses, settings: settings.clone() })
    }

    fn tables(&self, transport: Transport) -> Result<&Tables, BenchError> {
        let index = self.addresses.keys().position(|known| *known == transport).unwrap_or(0);
        listening(transport, "MySQL", self.tables.get(index).or(self.tables.first()))
    }
}

fn private_server(settings: &Settings, start: &StartOptions) -> Result<PrivateServer, BenchError> {
    let options = MariaDbOptions { brand: settings.brand, connections: start.most_connections };
    mariadb::start(&start.program, &options, answers)?.reached_by_run(&start.program, &start.transports)
}

fn answers(server: &PrivateServer) -> Result<(), BenchError> {
    for address in server.plain_addresses() {
        begin(&address)?.quit()?;
    }
    Ok(())
}

#[derive(Default)]
struct Identity {
    version: String,
    thread_handling: String,
    /// Data directory and pid file: the two differ between any two servers of a machine.
    instance: String,
}

fn identity(address: &Address) -> Result<Identity, BenchError> {
    let mut dialogue = address.begin()?;
    let mut variable = |name| dialogue.variable(name).map(Option::unwrap_or_default);
    let instance = format!("{} {}", variable("datadir")?, variable("pid_file")?);
    let thread_handling = variable("thread_handling")?;
    let version = dialogue.greeting().version.trim_start_matches("5.5.5-").to_owned();
    dialogue.quit()?;
    Ok(Identity { version, thread_handling, instance })
}

fn kind(identity: &Identity, differ: bool) -> String {
    let kind =
        Kind::that_says(samehost_model::Protocol::Mysql, identity.version.as_bytes()).unwrap_or(Kind::Mysql);
    let name = kind.name();
    let threads = if identity.thread_handling == "pool-of-threads" { ", pool-of-threads" } else { "" };
    let apart = if differ { format!(", {}", apart("process")) } else { String::new() };
    format!("{name}{threads}{apart}")
}

impl Instance for RunningMySql {
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let (ServerAddress { endpoint, .. }, view) = self.served.begin(arm, "MySQL")?;
        let address = self.addresses[&arm.transport].clone();
        let Settings { statement, protocol, .. } = self.settings;
        let tables = self.tables(arm.transport)?;
        tables.prepare_trial(&address, statement)?;
        let (table, ids, rows) = (tables.table.clone(), tables.ids.clone(), tables.rows);
        let asked = Asked { endpoint: endpoint.to_string(), statement, protocol, table, ids, rows };
        if self.settings.per_query {
            let mut first = address.begin()?;
            view.of_first(|| Ok(Some(says(first.seen()?))))?;
            let session = asked.session(&mut first)?;
            let stream = first.into_stream()?;
            let cipher = stream.cipher().map(|cipher| format!(", {cipher}")).unwrap_or_default();
            let seen = Seen::of_socket(&stream).saying(&cipher);
            return Job::callers(&endpoint, Some(seen), arm.point.connections, |number| {
                Ok(MySqlCaller { address: address.clone(), session: session.seeded(u64::from(number)) })
            });
        }
        // Connections opened so far: the seed of each one's ids, the same in every trial.
        let opened = AtomicU64::new(0);
        let connector = opener(&endpoint, move || {
            let mut dialogue = address.begin_again()?;
            view.of_first(|| Ok(Some(says(dialogue.seen()?))))?;
            let session: Box<dyn Session> = if asked.statement == Statement::Dump {
                Box::new(DumpSession::new(&asked.table, asked.rows, asked.table.is_own()))
            } else {
                let number = opened.fetch_add(1, Ordering::Relaxed);
                Box::new(asked.session(&mut dialogue)?.seeded(number))
            };
            Ok((dialogue.into_stream()?, session))
        });
        Ok(match statement {
            Statement::Dump => Job::Whole { connector },
            _ => Job::Sessions { connector, small: true },
        })
    }
}

/// What the connections of a trial ask.
struct Asked {
    endpoint: String,
    statement: Statement,
    protocol: Protocol,
    table: Table,
    ids: Ids,
    rows: u64,
}

impl Asked {
    /// Sends a first statement, from whose reply a session learns.
    fn session(&self, dialogue: &mut Dialogue) -> Result<MySqlSession, BenchError> {
        let (mut first, command) = match self.protocol {
            Protocol::Text => {
                let command = Command::query(self.statement, &self.table);
                (command.clone(), command)
            }
            Protocol::Prepared => {
                let id = prepare(dialogue, &self.statement.sql(&self.table, "?"))?;
                let has_id = self.statement.has_id();
                (Command::execute(id, has_id, true), Command::execute(id, has_id, false))
            }
        };
        if let Ids::Known(known) = &self.ids {
            let id = if let Some((id, _)) = known.first() { *id } else { 1 };
            first.set(id);
        }
        let answer = dialogue.raw(first.payload())?;
        let session = MySqlSession::new(self.statement, self.protocol, command, &answer, self.ids.clone());
        session.map_err(|why| BenchError::refused(&self.endpoint, "the first statement", why.to_string(), ""))
    }
}

/// Bytes of a row of ours including its share of the page, to estimate the disk that is needed.
const ROW_BYTES: u64 = 320;
/// Rows that inserts may add before the next trial empties the table.
const INSERTED_ROWS: u64 = 200_000;

/// Asks each server once, over either transport, what a measurement would do to it and whether it has the room:
/// connections, disk, binary log, replicas. Nothing is written.
pub(super) fn look(settings: &Settings, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let (mut seen, mut impacts) = (BTreeSet::new(), Vec::new());
    for address in look.servers.values() {
        let mut dialogue = begin(address)?;
        let directory = dialogue.variable("datadir")?.unwrap_or_default();
        if seen.insert((directory.clone(), dialogue.variable("pid_file")?)) {
            impacts.push(look_at(settings, look, address, &directory, &mut dialogue)?);
        }
        dialogue.quit()?;
    }
    Ok(impacts)
}

fn look_at(
    settings: &Settings,
    look: &Look<'_>,
    address: &ServerAddress,
    directory: &str,
    dialogue: &mut Dialogue,
) -> Result<Impact, BenchError> {
    let statement = settings.statement;
    let user = address.credentials.user.as_deref().unwrap_or_default().escape_debug();
    let mut impact = Impact::on(format!("the server at {} as {user}", address.endpoint));
    let open = number(dialogue, "SHOW GLOBAL STATUS LIKE 'Threads_connected'", 1)?;
    let most = number(dialogue, "SHOW GLOBAL VARIABLES LIKE 'max_connections'", 1)?;
    // Our own connection is not counted.
    let open = open.map(|open| open.saturating_sub(1));
    impact.connections(look.connections, open, most, "max_connections");
    if settings.read_only || statement == Statement::SelectOne {
        return Ok(impact);
    }
    let rows = u64::from(settings.rows);
    let bytes = rows * ROW_BYTES;
    let place = match &address.credentials.database {
        Some(database) => format!("tables samehost_… in the database {}", database.escape_debug()),
        None => "a database samehost_… of its own".into(),
    };
    impact.does.push(format!(
        "makes {place} with {rows} rows (about {}), and drops it at the end (--read-only yes writes nothing)",
        in_words(bytes)
    ));
    let mut needed = bytes;
    match statement {
        Statement::Update => impact
            .does
            .push("changes one of these rows with every statement, as fast as it is answered".into()),
        Statement::Insert => {
            needed += INSERTED_ROWS * ROW_BYTES;
            impact.does.push("adds a row with every statement, as fast as it is answered; they are removed before each trial".into());
        }
        _ => {}
    }
    impact.disk(needed, directory);
    let per_query = settings.per_query && statement.writes();
    log(dialogue, per_query, &mut impact)?;
    Ok(impact)
}

/// A number from a query's first row; `column` counts from 0. `None` where there is no such row, or no number.
fn number(dialogue: &mut Dialogue, sql: &str, column: usize) -> Result<Option<u64>, BenchError> {
    let row = dialogue.row(sql)?.unwrap_or_default();
    match row.get(column) {
        Some(Some(value)) => Ok(value.parse().ok()),
        _ => Ok(None),
    }
}

fn log(dialogue: &mut Dialogue, per_query: bool, impact: &mut Impact) -> Result<(), BenchError> {
    let replicas = number(
        dialogue,
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'",
        0,
    )?;
    let replicas = match replicas {
        Some(0) => "no replica reads it now, as far as this user sees".to_owned(),
        Some(count) => format!("{count} replica{} it", if count == 1 { " reads" } else { "s read" }),
        None => "whether replicas read it is not for this user to see".to_owned(),
    };
    match binary_log(dialogue)? {
        BinaryLog::None => impact.found.push("it has no binary log".into()),
        BinaryLog::KeptOut if per_query => impact.found.push(format!(
            "its binary log is on, and has what connections made anew write; {replicas}"
        )),
        BinaryLog::KeptOut => impact.found.push(
            format!("its binary log is on, and ours is kept out of it (sql_log_bin=0); {replicas}"),
        ),
        BinaryLog::Ours => impact.found.push(format!(
            "its binary log is on and has all that is written, for this user may not keep out of it (BINLOG ADMIN); {replicas}"
        )),
    }
    if dialogue.variable("wsrep_on")?.as_deref() == Some("ON") {
        impact.found.push("it is a node of a Galera cluster: tables are made on every node".into());
    }
    Ok(())
}

/// Most rows that one statement adds: it must finish within a connection's time limit.
const MAX_ROWS_AT_ONCE: u32 = 50_000;
/// Most rows that are asked for in a table that is not ours.
const MAX_KNOWN_ROWS: u32 = 100;

/// The tables of one server that statements work on: our own, made first and dropped last, or an existing one that is
/// only read.
struct Tables {
    table: Table,
    ids: Ids,
    rows: u64,
    /// Server and statement that drop what we made; `None` in a private server, which is removed as a whole, and where
    /// nothing was made.
    undo: Option<(Address, String)>,
}

impl Tables {
    /// Makes our own tables in the URL's database, or in a new one. In a `foreign` server, one that is not private, the
    /// names are random, and what was made is dropped with the returned value.
    fn make(address: &Address, statement: Statement, rows: u32, foreign: bool) -> Result<Self, BenchError> {
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
        let undo = if foreign { Some((address.clone(), undo)) } else { None };
        let tables = Tables { table, ids: Ids::Own(rows), rows: u64::from(rows), undo };
        if address.server.credentials.database.is_none() {
            dialogue.must("a database of our own", &format!("CREATE DATABASE {name}"))?;
        }
        for definition in tables.table.definitions() {
            dialogue.must("a table of our own", &definition)?;
        }
        for filling in tables.table.filling(MAX_ROWS_AT_ONCE) {
            dialogue.must("filling our table", &filling)?;
        }
        dialogue.must("looking at our table", &format!("ANALYZE TABLE {}", tables.table.points))?;
        dialogue.quit()?;
        Ok(tables)
    }

    fn found(address: &Address, settings: &Settings) -> Result<Self, BenchError> {
        let mut table = Table::own("", 1);
        if settings.statement == Statement::SelectOne {
            return Ok(Tables { table, ids: Ids::Own(1), rows: 1, undo: None });
        }
        let mut dialogue = address.begin()?;
        let Some(database) = &address.server.credentials.database else {
            return BenchError::refuse(
                "--read-only yes reads a table that is there: name its database in the URL (mysql://USER@HOST/DATABASE), or use --statement select-1",
            );
        };
        let (name, key) = keyed_table(&mut dialogue, database)?;
        table.points = format!("{}.{}", quoted(database), quoted(&name));
        table.key = quoted(&key);
        table.columns = "*".into();
        let counted = dialogue.rows("counting rows", &format!("SELECT COUNT(*) FROM {}", table.points))?;
        let rows = match counted.first().map(Vec::as_slice) {
            Some([Some(count), ..]) => count.parse().unwrap_or(0),
            _ => 0,
        };
        let ids = Ids::Known(if settings.statement == Statement::Dump {
            Known::from([])
        } else {
            known(&mut dialogue, &table, settings.protocol)?
        });
        dialogue.quit()?;
        Ok(Tables { table, ids, rows, undo: None })
    }

    /// Empties the table of inserts, so that every trial starts from the same state.
    fn prepare_trial(&self, address: &Address, statement: Statement) -> Result<(), BenchError> {
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

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Quotes any text for SQL as a hexadecimal literal, which means the same in every SQL mode.
fn literal(text: &str) -> String {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    if hex.is_empty() { "''".into() } else { format!("x'{hex}'") }
}

/// Finds the largest table whose primary key is a single integer column, and that column.
fn keyed_table(dialogue: &mut Dialogue, database: &str) -> Result<(String, String), BenchError> {
    let sql = format!(
        "SELECT t.TABLE_NAME, MIN(c.COLUMN_NAME) FROM information_schema.TABLES t \
         JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_KEY = 'PRI' \
         WHERE t.TABLE_SCHEMA = {} GROUP BY t.TABLE_NAME, t.TABLE_ROWS \
         HAVING COUNT(*) = 1 AND SUM(c.DATA_TYPE IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint')) = 1 \
         ORDER BY t.TABLE_ROWS DESC LIMIT 1",
        literal(database)
    );
    let row = dialogue.rows("looking for a table", &sql)?.into_iter().next().unwrap_or_default();
    match row.as_slice() {
        [Some(name), Some(key)] => Ok((name.clone(), key.clone())),
        _ => BenchError::refuse(format!(
            "the database `{}` has no table whose primary key is one integer; use --statement select-1",
            database.escape_debug()
        )),
    }
}

/// Asks for some ids of an existing table and for the reply to each, to compare later replies with.
fn known(dialogue: &mut Dialogue, table: &Table, protocol: Protocol) -> Result<Known, BenchError> {
    let (key, points) = (&table.key, &table.points);
    let sql =
        format!("SELECT {key} FROM {points} WHERE {key} BETWEEN 0 AND {} LIMIT {MAX_KNOWN_ROWS}", u32::MAX);
    let mut ids: Vec<u32> = Vec::new();
    for row in dialogue.rows("reading ids", &sql)? {
        let Some(Some(id)) = row.first() else { continue };
        let Ok(id) = id.parse() else { continue };
        ids.push(id);
    }
    if ids.is_empty() {
        return BenchError::refuse(format!("{points} has no row to ask for; use --statement select-1"));
    }
    let mut command = if protocol == Protocol::Text {
        Command::query(Statement::PointSelect, table)
    } else {
        let id = prepare(dialogue, &Statement::PointSelect.sql(table, "?"))?;
        Command::execute(id, true, true)
    };
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        command.set(id);
        answers.push((id, dialogue.raw(command.payload())?.into_boxed_slice()));
    }
    Ok(answers.into())
}
