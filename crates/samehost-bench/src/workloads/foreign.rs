//! Servers that already run, given with `--tcp` and `--unix`: what their addresses are, and which processes they have.

use samehost_model::{Endpoint, Transport};

use super::Start;
use crate::BenchError;
use crate::machine::listener_pids;

/// Servers that already run, given as plain endpoints.
///
/// # Errors
/// When an address is no endpoint, or one of another transport.
pub(crate) fn foreign_endpoints(start: &Start) -> Result<Vec<(Transport, Endpoint)>, BenchError> {
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
pub(crate) fn needs_private(start: &Start) -> Result<bool, BenchError> {
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
