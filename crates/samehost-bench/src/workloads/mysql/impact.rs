//! Impact of a measurement on a MySQL or MariaDB that is already running, from its own variables. Writes nothing.

use std::collections::BTreeSet;

use samehost_login::mysql::Surroundings;

use super::Settings;
use super::address::Address;
use super::dialogue::{BinaryLog, Dialogue};
use super::statement::Statement;
use crate::error::BenchError;
use crate::impact::{Connections, Impact, in_words};
use crate::workload::Look;

/// Bytes of a row including its share of the page.
const ROW: u64 = 320;
/// Rows that inserts may add to a table between two trials.
const INSERTED: u64 = 200_000;

/// Queries each server once, over either transport.
pub(super) fn look(settings: &Settings, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let around = Surroundings::of_process()?;
    let (mut seen, mut impacts) = (BTreeSet::new(), Vec::new());
    for (transport, text) in look.servers {
        let address = Address::given(*transport, text, &around)?;
        let mut dialogue = Dialogue::begin(&address)?;
        let directory = dialogue.variable("datadir")?.unwrap_or_default();
        if seen.insert((directory.clone(), dialogue.variable("pid_file")?)) {
            impacts.push(look_at(settings, look, &address, &directory, &mut dialogue)?);
        }
        dialogue.quit()?;
    }
    Ok(impacts)
}

fn look_at(
    settings: &Settings,
    look: &Look<'_>,
    address: &Address,
    directory: &str,
    dialogue: &mut Dialogue,
) -> Result<Impact, BenchError> {
    let statement = settings.statement;
    let mut impact = Impact::of(format!("the server at {address}"));
    // Our own connection is not counted.
    let open =
        dialogue.number("SHOW GLOBAL STATUS LIKE 'Threads_connected'", 1)?.map(|open| open.saturating_sub(1));
    let most = dialogue.number("SHOW GLOBAL VARIABLES LIKE 'max_connections'", 1)?;
    if let (Some(open), Some(most)) = (open, most) {
        let connections = Connections { ours: u64::from(look.connections), open, most };
        impact.connections(connections, "max_connections");
    }
    if settings.read_only || statement == Statement::SelectOne {
        return Ok(impact);
    }
    let rows = u64::from(settings.rows);
    let bytes = rows * ROW;
    let place = match &address.database {
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
            needed += INSERTED * ROW;
            impact.does.push("adds a row with every statement, as fast as it is answered; they are removed before each trial".into());
        }
        _ => {}
    }
    impact.disk(needed, directory);
    let per_query = settings.per_query && statement.writes();
    log(dialogue, per_query, &mut impact)?;
    Ok(impact)
}

/// Where else the writes go: the binary log, replicas, a cluster.
fn log(dialogue: &mut Dialogue, per_query: bool, impact: &mut Impact) -> Result<(), BenchError> {
    let replicas = dialogue
        .number("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'", 0)?;
    let replicas = match replicas {
        Some(0) => "no replica reads it now, as far as this user sees".to_owned(),
        Some(count) => format!("{count} replica{} it", if count == 1 { " reads" } else { "s read" }),
        None => "whether replicas read it is not for this user to see".to_owned(),
    };
    match dialogue.binary_log()? {
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
