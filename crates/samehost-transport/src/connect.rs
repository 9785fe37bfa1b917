//! `connect`: options and entry points. Each transport implements it in its own file.

use std::time::Duration;

use samehost_model::Endpoint;

use crate::connect_error::{ConnectError, PARENT_NEEDED, StartError};
use crate::registry::carrier;
use crate::socket::Connecting;
use crate::stream::Stream;
use crate::tls_trust::TlsTrust;
use crate::tuning::Tuning;

/// Options for connecting.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Time limit for connecting and a TLS handshake together. `None` waits as long as the kernel does:
    /// forever for a Unix socket with a full backlog.
    pub timeout: Option<Duration>,
    /// Which certificates `tcp+tls` accepts; the default is [`TlsTrust::any_on_loopback`].
    pub tls: TlsTrust,
    /// Socket options, set before connecting.
    pub tuning: Tuning,
}

/// Connects to an endpoint, including the handshake for `tcp+tls`. The stream is blocking.
///
/// # Errors
/// [`ConnectError`], which names the endpoint, the cause and a remedy.
pub fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    match carrier(endpoint.transport()) {
        Some(carrier) => (carrier.connect)(endpoint, options),
        None => Err(ConnectError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED }),
    }
}

/// Starts a connection without waiting: a single connect(2) on a nonblocking socket, without retries.
///
/// For bursts of connections. The effect of a full backlog depends on the family. A Unix socket fails
/// immediately with EAGAIN, [`StartError::errno`]. TCP is [`Connecting::InProgress`], and the kernel repeats its
/// SYN after a second. When a stream in progress becomes writable, [`Stream::take_error`] returns the result.
///
/// Over `tcp+tls` the handshake takes place in the first reads and writes. A host name is resolved first,
/// which blocks; use an address in a burst.
///
/// # Errors
/// [`StartError`] with the kernel's errno.
pub fn connect_nonblocking(
    endpoint: &Endpoint,
    options: &ConnectOptions,
) -> Result<(Stream, Connecting), StartError> {
    match carrier(endpoint.transport()) {
        Some(carrier) => (carrier.start)(endpoint, options),
        None => Err(StartError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED }),
    }
}
