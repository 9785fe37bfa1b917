//! Talking to memcached outside the hot path: what it is, setting up, clearing away, and its own view of a
//! connection.

use samehost_model::Endpoint;

use super::session::{Exchange, line};
use crate::BenchError;
use crate::workloads::link::Link;

/// What the server says it is.
pub(super) fn version(link: &mut Link) -> Result<String, BenchError> {
    let answer = link.ask(b"version\r\n", line)?;
    answer.strip_prefix("VERSION ").map(str::to_owned).ok_or_else(|| refused(link, "its version", answer))
}

/// Sets a key.
pub(super) fn set(link: &mut Link, exchange: &Exchange) -> Result<(), BenchError> {
    let answer = link.ask(exchange.request(), line)?;
    if matches!(answer.as_str(), "STORED" | "HD") {
        Ok(())
    } else {
        Err(refused(link, "setting a key", answer))
    }
}

/// Deletes a key; one that is gone already is no failure.
pub(super) fn delete(link: &mut Link, key: &str) -> Result<(), BenchError> {
    let answer = link.ask(format!("delete {key}\r\n").as_bytes(), line)?;
    if matches!(answer.as_str(), "DELETED" | "NOT_FOUND") {
        Ok(())
    } else {
        Err(refused(link, "deleting our key", answer))
    }
}

/// The server's own view of this connection (`stats conns`, memcached 1.4.31 or later).
pub(super) fn view(link: &mut Link) -> Result<Option<String>, BenchError> {
    Ok(view_in(&link.ask(b"stats conns\r\n", listing)?))
}

/// Whether the private server that answers here is the process that we started.
pub(super) fn is_ours(endpoint: &Endpoint, pid: u32) -> Result<(), BenchError> {
    let stats = Link::connect(endpoint)?.ask(b"stats\r\n", listing)?;
    if stats.lines().any(|line| line == format!("STAT pid {pid}")) {
        Ok(())
    } else {
        Err(BenchError::lost(endpoint, "another server answers there"))
    }
}

fn refused(link: &Link, what: &str, answer: String) -> BenchError {
    let try_next = if answer.contains("too large") {
        "raise the largest item of the server (memcached -I), or use a smaller --size".into()
    } else {
        String::new()
    };
    BenchError::Refused { endpoint: link.endpoint().to_string(), what: what.into(), answer, try_next }
}

/// A list of lines up to `END`, or one line that says no.
fn listing(input: &[u8]) -> Result<Option<(String, usize)>, String> {
    let mut end = 0;
    while let Some((text, length)) = line(&input[end..])? {
        end += length;
        if !text.starts_with("STAT ") {
            return Ok(Some((String::from_utf8_lossy(&input[..end]).into_owned(), end)));
        }
    }
    Ok(None)
}

/// Of the connections in `stats conns` the one whose command is being worked on: the one that asked.
fn view_in(stats: &str) -> Option<String> {
    let number =
        stats.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_suffix(":state conn_parse_cmd"))?;
    let of = |name: &str| {
        let prefix = format!("STAT {number}:{name} ");
        stats.lines().find_map(|line| line.strip_prefix(&prefix))
    };
    let (client, listener) = (of("addr")?, of("listen_addr")?);
    // memcached has no word for a client without a name, which one of a Unix socket is.
    let client = if client.starts_with('?') { "unnamed" } else { client };
    Some(format!("the server says addr={client} listen_addr={listener}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_connection_is_found_in_the_list() {
        let stats = "STAT 23:addr unix:/run/m.sock\r\nSTAT 23:state conn_listening\r\nSTAT 24:addr ?:<AF 0>\r\n\
                     STAT 24:listen_addr unix:/run/m.sock\r\nSTAT 24:state conn_parse_cmd\r\nEND\r\n";
        assert_eq!(listing(stats.as_bytes()), Ok(Some((stats.into(), stats.len()))));
        assert_eq!(listing(&stats.as_bytes()[..60]), Ok(None));
        assert_eq!(view_in(stats).unwrap(), "the server says addr=unnamed listen_addr=unix:/run/m.sock");
        assert_eq!(view_in("ERROR\r\n"), None);
    }
}
