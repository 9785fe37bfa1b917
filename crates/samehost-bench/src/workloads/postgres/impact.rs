//! Impact of a measurement on a PostgreSQL that is already running, from its own settings and views. Writes nothing.

use samehost_login::postgres::Defaults;

use super::Settings;
use super::address::Address;
use super::dialogue::{Dialogue, Identity};
use super::statement::Statement;
use crate::error::BenchError;
use crate::impact::{Connections, Impact, in_words};
use crate::workload::Look;

/// Bytes of a row with half of each page free, including its part of the index.
const ROW: u64 = 400;
/// Bytes that the write-ahead log may take besides: segments until a checkpoint.
const LOG: u64 = 64 << 20;

/// Queries each server once, over either transport.
pub(super) fn look(settings: &Settings, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let defaults = Defaults::here();
    let (mut seen, mut impacts): (Vec<Identity>, _) = (Vec::new(), Vec::new());
    for (transport, text) in look.servers {
        let address = Address::given(*transport, text, &defaults)?;
        let mut dialogue = Dialogue::begin(&address, true)?;
        let identity = dialogue.identity()?;
        if !seen.iter().any(|known| known.same_server(&identity)) {
            impacts.push(look_at(settings, look, &address, &mut dialogue)?);
            seen.push(identity);
        }
        dialogue.end()?;
    }
    Ok(impacts)
}

fn look_at(
    settings: &Settings,
    look: &Look<'_>,
    address: &Address,
    dialogue: &mut Dialogue,
) -> Result<Impact, BenchError> {
    let statement = settings.statement;
    let mut impact = Impact::of(format!("the PostgreSQL at {address}"));
    // `None` for what this version does not have, or this user may not see.
    let mut number =
        |sql: &str| dialogue.value("a number", sql).ok().and_then(|text| text.parse::<u64>().ok());
    // Our own connection is not counted.
    let open =
        number("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()");
    let kept = number("SHOW superuser_reserved_connections").unwrap_or(0)
        + number("SHOW reserved_connections").unwrap_or(0);
    if let (Some(open), Some(most)) = (open, number("SHOW max_connections")) {
        let ours = u64::from(look.connections);
        impact.connections(Connections { ours, open, most: most.saturating_sub(kept) }, "max_connections");
    }
    if settings.read_only || !statement.has_table() {
        return Ok(impact);
    }
    let rows = u64::from(settings.rows);
    impact.does.push(format!(
        "makes a table samehost_… with {rows} rows (about {}) in the database {}, and drops it at the end (--statement select-1 --read-only yes writes nothing)",
        in_words(rows * ROW),
        address.database.escape_debug()
    ));
    if statement == Statement::Update {
        impact.does.push("changes one of these rows with every statement, as fast as it is answered".into());
    }
    let standbys = number("SELECT count(*) FROM pg_stat_replication").unwrap_or(0);
    let mut text =
        |setting: &str| dialogue.value("a setting", &format!("SHOW {setting}")).unwrap_or_default();
    let (level, archive) = (text("wal_level"), text("archive_mode"));
    impact.found.push(match standbys {
        0 => format!("what is written goes to its log (wal_level {level}), which no standby reads now"),
        1 => format!("what is written goes to its log (wal_level {level}), which 1 standby reads"),
        many => format!("what is written goes to its log (wal_level {level}), which {many} standbys read"),
    });
    if !matches!(archive.as_str(), "" | "off") {
        impact.found.push("its log is archived (archive_mode), with all that is written".into());
    }
    let directory = text("data_directory");
    if !directory.is_empty() {
        impact.disk(rows * ROW + LOG, &directory);
    }
    Ok(impact)
}
