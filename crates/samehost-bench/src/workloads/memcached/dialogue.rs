//! Talks to memcached outside the hot path: its version, set-up, clean-up, and its view of a connection.

use samehost_login::Link;
use samehost_login::memcached::{self, line, listing};

use super::session::Exchange;
use crate::error::BenchError;
use crate::private_servers::PrivateServer;
use crate::workloads::connecting::link_to;

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
