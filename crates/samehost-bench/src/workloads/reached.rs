//! Addresses that the command line gives for a transport, and the half of a server that it does not give.

use samehost_model::{Endpoint, Transport};

use crate::error::BenchError;
use crate::workload::Servers;

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
