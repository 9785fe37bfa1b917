//! `connect`: one endpoint string decides how. Options and entry points; how each transport does it is in its
//! own file.

use std::time::Duration;

use samehost_model::Endpoint;

use crate::connect_error::{ConnectError, PARENT_NEEDED, StartError};
use crate::registry::carrier;
use crate::socket::Connecting;
use crate::stream::Stream;
use crate::tls_trust::TlsTrust;
use crate::tuning::Tuning;

/// How to connect.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// How long connecting and a TLS handshake may take together; `None` waits as long as the kernel does, which
    /// for a Unix socket with a full backlog is for ever.
    pub timeout: Option<Duration>,
    /// Which certificates `tcp+tls` accepts; the default is [`TlsTrust::any_on_loopback`].
    pub tls: TlsTrust,
    /// How the socket is set before it connects.
    pub tuning: Tuning,
}

/// Connects to an endpoint and, for `tcp+tls`, does the handshake. The stream blocks.
///
/// # Errors
/// [`ConnectError`], which names the endpoint, the cause and what to try next.
pub fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    match carrier(endpoint.transport()) {
        Some(carrier) => (carrier.connect)(endpoint, options),
        None => Err(ConnectError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED }),
    }
}

/// Starts a connection and waits for nothing: one connect(2) on a nonblocking socket, never tried again.
///
/// For bursts of connections. A full backlog answers differently by family: a Unix socket fails at once with
/// EAGAIN, [`StartError::errno`]; TCP is [`Connecting::InProgress`] and the kernel sends its SYN again after a
/// second. When a stream that was in progress becomes writable, [`Stream::take_error`] says how it ended.
///
/// Over `tcp+tls` the handshake is still to come: the first reads and writes do it. A host name is looked up
/// first, and that does wait; use an address in a burst.
///
/// # Errors
/// [`StartError`] with the errno as the kernel gave it.
pub fn connect_nonblocking(
    endpoint: &Endpoint,
    options: &ConnectOptions,
) -> Result<(Stream, Connecting), StartError> {
    match carrier(endpoint.transport()) {
        Some(carrier) => (carrier.start)(endpoint, options),
        None => Err(StartError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED }),
    }
}
