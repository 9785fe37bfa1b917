//! Servers that already run, given with `--tcp` and `--unix`: what their addresses are, and which processes they have.

use samehost_model::{Endpoint, Redactor, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::machine::{listener_pids, queue};
use crate::workload::{Look, StartOptions};
use crate::workloads::connecting::link_to;

/// Servers that already run, given as plain endpoints.
///
/// # Errors
/// When an address is no endpoint, or one of another transport.
pub(crate) fn foreign_endpoints(start: &StartOptions) -> Result<Vec<(Transport, Endpoint)>, BenchError> {
    let mut endpoints = Vec::with_capacity(start.servers.len());
    for (transport, address) in &start.servers {
        let endpoint: Endpoint = address.parse()?;
        let found = endpoint.transport();
        // `--tcp` takes both versions of IP.
        if found != *transport && (*transport, found) != (Transport::Tcp, Transport::Tcp6) {
            return Err(BenchError::Usage(format!("{address} is not an endpoint of {transport}")));
        }
        endpoints.push((*transport, endpoint));
    }
    Ok(endpoints)
}

/// Whether a private server is to be started: where no server is given at all.
///
/// # Errors
/// When some are given and others are not.
pub(crate) fn needs_private(start: &StartOptions) -> Result<bool, BenchError> {
    let missing = start.transports.iter().any(|transport| !start.servers.contains_key(transport));
    if missing && !start.servers.is_empty() {
        return Err(BenchError::Usage(
            "a server that runs and a private one would not be the same server; give both --tcp and --unix, or one with --transports naming it".into(),
        ));
    }
    Ok(missing)
}

/// The processes of servers that already run, each once.
pub(crate) fn foreign_pids<'a>(endpoints: impl Iterator<Item = &'a Endpoint>) -> Vec<u32> {
    let mut pids: Vec<u32> = endpoints.flat_map(listener_pids).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// What bursts and connections made anew do to whoever else uses servers that run; the queue is a listener's.
///
/// # Errors
/// When an address is none, or nobody answers there: that is the first thing to know.
pub(crate) fn crowding(look: &Look<'_>, is_burst: bool) -> Result<Vec<Impact>, BenchError> {
    let each = look.servers.iter().map(|(transport, address)| {
        let mut impact = Impact::of(format!("the server at {}", Redactor::default().word(address)));
        impact.does.push(if is_burst {
            format!(
                "makes {} connections at once, over and over: while they wait to be accepted its queue may be full, and whoever else connects is {}",
                look.connections,
                if *transport == Transport::Unix { "refused (EAGAIN)" } else { "held up for a second or more" }
            )
        } else {
            format!("makes new connections as fast as it takes them, {} at a time", look.connections)
        });
        let endpoint: Endpoint = address.parse()?;
        link_to(&endpoint)?;
        if let Some(queue) = queue(&endpoint) {
            impact.found.push(format!("{} connections may wait to be accepted there (its backlog), {} do now", queue.most, queue.waiting));
        }
        Ok(impact)
    });
    each.collect()
}

/// The URL with a password that was asked for; one that has a password keeps it.
///
/// # Errors
/// When the text is no URL, and so has no place for a password.
pub fn with_password(text: &str, password: &str) -> Result<String, BenchError> {
    samehost_login::url::with_password(text, password).ok_or_else(|| {
        BenchError::Usage(format!(
            "{text} has no place for a password: write a URL, such as mysql://USER@127.0.0.1:3306"
        ))
    })
}
