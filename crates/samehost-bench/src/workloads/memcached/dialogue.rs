//! Talks to memcached outside the hot path: its version, set-up, clean-up, its view of a connection, and what a measurement would
//! do to one that is already running, from its own statistics.

use std::collections::BTreeMap;

use samehost_login::memcached::{line, listing};
use samehost_login::{Link, memcached};

use super::session::Exchange;
use super::{Command, Settings, endpoint};
use crate::error::BenchError;
use crate::impact::{Connections, Impact, in_words};
use crate::private_servers::PrivateServer;
use crate::workload::Look;
use crate::workloads::requests::link_to;

/// Asks for the server's version.
pub(super) fn version(link: &mut Link) -> Result<String, BenchError> {
    memcached::version(link)?.map_err(|answer| refused(link, "its version", answer))
}

pub(super) fn set(link: &mut Link, exchange: &Exchange) -> Result<(), BenchError> {
    let answer = link.ask(exchange.request(), line)?;
    if matches!(answer.as_str(), "STORED" | "HD") {
        Ok(())
    } else {
        Err(refused(link, "setting a key", answer))
    }
}

/// Deletes a key; a key that does not exist is not an error.
pub(super) fn delete(link: &mut Link, key: &str) -> Result<(), BenchError> {
    let answer = link.ask(format!("delete {key}\r\n").as_bytes(), line)?;
    if matches!(answer.as_str(), "DELETED" | "NOT_FOUND") {
        Ok(())
    } else {
        Err(refused(link, "deleting our key", answer))
    }
}

/// The server's view of this connection (`stats conns`, memcached 1.4.31 or later).
pub(super) fn view(link: &mut Link) -> Result<Option<String>, BenchError> {
    Ok(memcached::seen(link)?.map(|seen| format!("the server says {seen}")))
}

/// Checks that what answers at each endpoint is the process that we started.
pub(super) fn is_ours(server: &PrivateServer) -> Result<(), BenchError> {
    for endpoint in server.endpoints() {
        let stats = link_to(endpoint)?.ask(b"stats\r\n", listing)?;
        if !stats.lines().any(|line| line == format!("STAT pid {}", server.pid())) {
            return Err(BenchError::lost(endpoint, "another server answers there"));
        }
    }
    Ok(())
}

fn refused(link: &Link, what: &str, answer: String) -> BenchError {
    let try_next = if answer.contains("too large") {
        "raise the largest item of the server (memcached -I), or use a smaller --size".into()
    } else {
        String::new()
    };
    BenchError::Refused { endpoint: link.endpoint().to_string(), what: what.into(), answer, try_next }
}

/// Queries each server.
pub(super) fn look(settings: Settings, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let mut impacts = Vec::new();
    for (transport, text) in look.servers {
        let endpoint = endpoint(*transport, text)?;
        let stats = link_to(&endpoint)?.ask(b"stats\r\n", listing)?;
        let mut impact = Impact::of(format!("the memcached at {endpoint}"));
        look_at(look, settings, &numbers(&stats), &mut impact);
        impacts.push(impact);
    }
    Ok(impacts)
}

/// Parses lines `STAT name value` with a number.
fn numbers(stats: &str) -> BTreeMap<&str, u64> {
    stats
        .lines()
        .filter_map(|line| line.trim().strip_prefix("STAT ")?.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect()
}

fn look_at(look: &Look<'_>, settings: Settings, stats: &BTreeMap<&str, u64>, impact: &mut Impact) {
    let stat = |name: &str| stats.get(name).copied();
    // Our own connection is not counted.
    if let (Some(open), Some(most)) = (stat("curr_connections"), stat("max_connections")) {
        let connections =
            Connections { ours: u64::from(look.connections), open: open.saturating_sub(1), most };
        impact.connections(connections, "its option -c");
    }
    impact.does.push(format!(
        "sets one key samehost:… with up to {}, which is deleted at the end",
        in_words(look.sizes)
    ));
    if settings.command == Command::Set {
        impact.does.push("sets it again with every command, as fast as it answers".into());
    }
    if let (Some(used), Some(all)) = (stat("bytes"), stat("limit_maxbytes")) {
        impact.memory(look.sizes, used, all, "of its memory, beyond which it gives up others' items");
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn what_it_says_of_itself_is_read() {
        let stats = numbers("STAT pid 1\r\nSTAT version 1.6.18\r\nSTAT limit_maxbytes 67108864\r\nEND\r\n");
        assert_eq!((stats["pid"], stats["limit_maxbytes"], stats.get("version")), (1, 67_108_864, None));
    }
}
