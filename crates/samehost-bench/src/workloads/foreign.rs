//! Servers that are already running, given with `--tcp` and `--unix`: their addresses and processes, and the half of a server that
//! the command line does not give.

use std::collections::BTreeMap;

use samehost_model::{Endpoint, Redactor, ServerInfo, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::machine::{listener_pids, queue};
use crate::workload::{Look, Servers, StartOptions};
use crate::workloads::requests::link_to;

/// The servers given as plain endpoints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) endpoints: BTreeMap<Transport, Endpoint>,
    pub(crate) pids: Vec<u32>,
    /// Transports for which none is given.
    pub(crate) missing: Vec<Transport>,
}

impl Given {
    /// Parses the addresses.
    ///
    /// # Errors
    /// When an address is not an endpoint, or has another transport.
    pub(crate) fn of(start: &StartOptions) -> Result<Self, BenchError> {
        let endpoints = foreign_endpoints(start)?;
        Ok(Given {
            pids: foreign_pids(endpoints.values()),
            missing: start
                .transports
                .iter()
                .copied()
                .filter(|transport| !endpoints.contains_key(transport))
                .collect(),
            endpoints,
        })
    }

    /// What a report says of the servers: their kind if they are given, and otherwise ours with its processes.
    pub(crate) fn server(&self, given: &str, ours: &str, own: Vec<u32>) -> ServerInfo {
        let managed = !self.missing.is_empty();
        ServerInfo {
            kind: if managed { ours } else { given }.into(),
            version: if managed { env!("CARGO_PKG_VERSION") } else { "" }.into(),
            managed,
            pids: [own, self.pids.clone()].concat(),
        }
    }
}

fn foreign_endpoints(start: &StartOptions) -> Result<BTreeMap<Transport, Endpoint>, BenchError> {
    let mut endpoints = BTreeMap::new();
    for (transport, address) in &start.servers {
        let endpoint: Endpoint = address.parse()?;
        let found = endpoint.transport();
        // `--tcp` accepts both IP versions.
        if found != *transport && (*transport, found) != (Transport::Tcp, Transport::Tcp6) {
            return Err(BenchError::Usage(format!("{address} is not an endpoint of {transport}")));
        }
        endpoints.insert(*transport, endpoint);
    }
    Ok(endpoints)
}

/// Whether to start a private server: if no server is given at all.
///
/// # Errors
/// When only some of the transports have a server.
pub(crate) fn needs_private(start: &StartOptions) -> Result<bool, BenchError> {
    let missing = start.transports.iter().any(|transport| !start.servers.contains_key(transport));
    if missing && !start.servers.is_empty() {
        return Err(BenchError::Usage(
            "a server that runs and a private one would not be the same server; give both --tcp and --unix, or one with --transports naming it".into(),
        ));
    }
    Ok(missing)
}

/// Processes of the given servers, each once.
pub(crate) fn foreign_pids<'a>(endpoints: impl Iterator<Item = &'a Endpoint>) -> Vec<u32> {
    let mut pids: Vec<u32> = endpoints.flat_map(listener_pids).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Impact of bursts and of repeated connections on other clients of running servers; the accept queue belongs
/// to a listener.
///
/// # Errors
/// When an address is not an endpoint, or no server answers there: the user should know that first.
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

/// Adds a password that was prompted for to the URL; a URL with a password keeps its own.
///
/// # Errors
/// When the text is not a URL and so has no place for a password.
pub fn with_password(text: &str, password: &str) -> Result<String, BenchError> {
    samehost_login::url::with_password(text, password).ok_or_else(|| {
        BenchError::Usage(format!(
            "{text} has no place for a password: write a URL, such as mysql://USER@127.0.0.1:3306"
        ))
    })
}

/// Fails if an option for `transport` names an endpoint of another transport.
pub(crate) fn require_transport(transport: Transport, endpoint: &Endpoint) -> Result<(), BenchError> {
    let known = endpoint.transport();
    if known == transport || (transport == Transport::Tcp && known == Transport::Tcp6) {
        return Ok(());
    }
    Err(BenchError::Usage(format!("--{transport} names a server reached over {known}: {endpoint}")))
}

/// Running servers with the half that was not given if it is wanted; `ask` finds it out, given the transport and the
/// address that are known. A server is reached over TLS at its TCP port.
pub(crate) fn complete(
    servers: &Servers,
    wanted: &[Transport],
    ask: impl Fn(Transport, &str) -> Result<String, BenchError>,
) -> Result<Servers, BenchError> {
    let mut servers = servers.clone();
    let wants = |transport: Transport| wanted.contains(&transport);
    for (known, other) in [(Transport::Tcp, Transport::Unix), (Transport::Unix, Transport::Tcp)] {
        let wants_other =
            wanted.is_empty() || wants(other) || (other == Transport::Tcp && wants(Transport::TcpTls));
        if let Some(text) = servers.get(&known).filter(|_| servers.len() == 1 && wants_other) {
            let text = ask(known, text)?;
            servers.insert(other, text);
            break;
        }
    }
    if wants(Transport::TcpTls)
        && let Some(text) = servers.get(&Transport::Tcp).cloned()
    {
        servers.insert(Transport::TcpTls, text);
    }
    Ok(servers)
}
