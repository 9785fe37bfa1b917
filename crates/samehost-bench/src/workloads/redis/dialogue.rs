//! Talks to Redis outside the hot path, over the login in `samehost-login`: identity, set-up and clean-up, and what a
//! measurement would do to one that is already running, from its own statistics.

use std::collections::{BTreeMap, BTreeSet};

use samehost_login::ServerAddress;
use samehost_model::{Endpoint, Protocol};

use super::Command;
use crate::error::BenchError;
use crate::impact::{Impact, in_words};
use crate::private_servers::PrivateServer;
use crate::private_servers::podman::Place;
use crate::workload::Look;
use crate::workloads::foreign::lacking;
use crate::workloads::requests::{REPLY_TIMEOUT, expected, expected_again, says};

pub(super) use samehost_login::redis::Dialogue;

pub(super) fn begin(address: &ServerAddress) -> Result<Dialogue, BenchError> {
    Ok(Dialogue::begin(address, expected(Protocol::Redis), REPLY_TIMEOUT)?)
}

/// Connects as one of many measured connections, without the walk through /proc that the first one makes to identify
/// the server (docs/decisions/0065).
pub(super) fn measured(address: &ServerAddress) -> Result<Dialogue, BenchError> {
    Ok(Dialogue::begin(address, expected_again(Protocol::Redis), REPLY_TIMEOUT)?)
}

/// The server's view of a connection; `None` where it does not tell.
pub(super) fn view(dialogue: &mut Dialogue) -> Result<Option<String>, BenchError> {
    let Some(seen) = dialogue.seen()? else { return Ok(None) };
    Ok(seen.addresses().map(says))
}

/// Asks a server how it is reached over the other transport, by its setting `unixsocket` or `port`; the address of the
/// port is taken to be 127.0.0.1.
pub(super) fn other_half(known: &ServerAddress) -> Result<Endpoint, BenchError> {
    let mut dialogue = begin(known)?;
    // Reports a missing login, which CONFIG alone cannot distinguish from a missing permission.
    dialogue.identity()?;
    let is_tcp = known.endpoint.path().is_none();
    let (setting, missing) = if is_tcp { ("unixsocket", "--unix") } else { ("port", "--tcp") };
    let value = dialogue.setting(setting)?.filter(|value| !value.is_empty() && value != "0");
    match value {
        Some(path) if is_tcp => Ok(format!("unix:{path}").parse()?),
        Some(port) => Ok(format!("tcp:127.0.0.1:{port}").parse()?),
        None => Err(lacking(
            known,
            &format!(
                "does not tell a `{setting}` to measure against (not set, or CONFIG is not allowed); set it and restart the server, give {missing}"
            ),
        )),
    }
}

/// Checks that what answers at each endpoint is the process that we started, by its process number. In a container the
/// server has another number; there all endpoints must lead to one server, as its socket is in a directory of ours.
pub(super) fn is_ours(server: &PrivateServer, place: Place) -> Result<(), BenchError> {
    let mut first: Option<String> = None;
    for address in server.plain_addresses() {
        let identity = begin(&address)?.identity()?;
        let is_it = if place.is_container() {
            let first = first.get_or_insert(identity.run_id.clone());
            *first == identity.run_id
        } else {
            match identity.pid {
                Some(pid) => pid == server.pid(),
                None => true,
            }
        };
        if !is_it {
            return Err(BenchError::lost(&address.endpoint, "another server answers there"));
        }
    }
    Ok(())
}

/// Commands per second that a server may reach, to estimate by how much its append-only file grows.
const COMMANDS_PER_S: f64 = 50_000.0;
/// Bytes of a command in the append-only file besides its value.
const AROUND: u64 = 64;

/// Asks each server once, over either transport, what a measurement would do to it and whether it has the room:
/// connections, memory, replicas, the append-only file. Nothing is written.
pub(super) fn look(command: Command, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let (mut seen, mut impacts) = (BTreeSet::new(), Vec::new());
    for address in look.servers.values() {
        let mut dialogue = begin(address)?;
        // A server that denies INFO has no known identity and is queried each time.
        let info = match dialogue.ask(&[b"INFO"])?.text() {
            Some(text) => fields(&text),
            None => BTreeMap::new(),
        };
        let is_new = match info.get("run_id") {
            Some(id) => seen.insert(id.clone()),
            None => true,
        };
        if is_new {
            let mut impact = Impact::on(format!("the Redis at {}{}", address.endpoint, database(address)));
            look_at(look, command, &info, &mut dialogue, &mut impact)?;
            impacts.push(impact);
        }
    }
    Ok(impacts)
}

/// The database for a message, empty for the first one.
fn database(address: &ServerAddress) -> String {
    match address.credentials.database.as_deref() {
        None | Some("0") => String::new(),
        Some(number) => format!(" db {number}"),
    }
}

fn number(info: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    info.get(name)?.parse().ok()
}

/// Parses lines `name:value`; others, such as headings, are passed over.
fn fields(info: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for line in info.lines() {
        if let Some((name, value)) = line.trim().split_once(':') {
            fields.insert(name.to_owned(), value.to_owned());
        }
    }
    fields
}

fn look_at(
    look: &Look<'_>,
    command: Command,
    info: &BTreeMap<String, String>,
    dialogue: &mut Dialogue,
    impact: &mut Impact,
) -> Result<(), BenchError> {
    // Where INFO does not have it, CONFIG may.
    let mut most = number(info, "maxclients");
    if most.is_none()
        && let Some(value) = dialogue.setting("maxclients")?
    {
        most = value.parse().ok();
    }
    // Our own connection is not counted.
    let open = number(info, "connected_clients").map(|open| open.saturating_sub(1));
    impact.connections(look.connections, open, most, "maxclients");
    if command == Command::Ping {
        return Ok(());
    }
    match command {
        Command::Incr => impact.does.push(format!(
            "sets {} counters samehost:…, one for each connection, and counts them up as fast as it answers; they are deleted at the end (--command ping writes nothing)",
            look.connections
        )),
        _ => impact.does.push(format!(
            "sets keys samehost:… with {} in all, which are deleted at the end (--command ping writes nothing)",
            in_words(look.sizes)
        )),
    }
    if command == Command::Set {
        impact.does.push("sets them again with every command, as fast as it answers".into());
    }
    memory(look.sizes, info, impact);
    log(look, command, info, dialogue, impact)
}

fn memory(bytes: u64, info: &BTreeMap<String, String>, impact: &mut Impact) {
    match (number(info, "maxmemory"), number(info, "used_memory"), info.get("maxmemory_policy")) {
        (Some(0), _, _) => impact.found.push("its memory has no limit (maxmemory 0)".into()),
        (Some(all), Some(used), Some(policy)) => {
            let place = match policy.as_str() {
                "noeviction" => "of maxmemory, beyond which writes of everybody fail (noeviction)".to_owned(),
                policy => format!("of maxmemory, beyond which it gives up others' keys ({policy})"),
            };
            impact.memory(bytes, used, all, &place);
        }
        _ => {}
    }
}

fn log(
    look: &Look<'_>,
    command: Command,
    info: &BTreeMap<String, String>,
    dialogue: &mut Dialogue,
    impact: &mut Impact,
) -> Result<(), BenchError> {
    match info.get("connected_slaves").map(String::as_str) {
        None | Some("0") => {}
        Some("1") => impact.found.push("1 replica gets all that is written".into()),
        Some(many) => impact.found.push(format!("{many} replicas get all that is written")),
    }
    if ["aof_rewrite_in_progress", "rdb_bgsave_in_progress"].iter().any(|name| number(info, name) == Some(1))
    {
        impact.beyond.push(
            "it writes its data to disk right now (a fork, whose memory grows with every write): measure when that is done".into(),
        );
    }
    if number(info, "aof_enabled") == Some(1) {
        impact.found.push("its append-only file is on, and grows with all that is written".into());
        let writes = if command == Command::Get { 1.0 } else { look.seconds * COMMANDS_PER_S };
        let value = if command == Command::Incr { 0 } else { look.sizes };
        let grown = (writes * (value + AROUND) as f64) as u64;
        if let Some(directory) = dialogue.setting("dir")? {
            impact.disk(grown, &directory);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_of_its_memory_is_read() {
        fn lines(policy: &str, bytes: u64) -> Impact {
            let text = format!(
                "# Memory\r\nused_memory:900000\r\nmaxmemory:1000000\r\nmaxmemory_policy:{policy}\r\n"
            );
            let mut impact = Impact::on("a Redis");
            memory(bytes, &fields(&text), &mut impact);
            impact
        }
        let evicting = lines("allkeys-lru", 30_000);
        assert!(evicting.beyond[0].contains("gives up others' keys (allkeys-lru)"), "{evicting:?}");
        assert!(lines("allkeys-lru", 9_000).beyond.is_empty());
        assert!(
            lines("noeviction", 20_000).beyond.is_empty() && !lines("noeviction", 30_000).beyond.is_empty()
        );
    }
}
