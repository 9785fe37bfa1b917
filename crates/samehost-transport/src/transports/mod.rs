//! The list of transports, and what looks an endpoint's transport up in it: `connect`, `connect_nonblocking`, `listen`
//! and [`Observed::matches`]. Each transport is implemented in its own file here, or in that of its family, and must not
//! use another's file, unless it builds on it (TLS on TCP). No
//! other code may depend on which transport it has.

pub(crate) mod run;
pub(crate) mod tcp;
pub(crate) mod tls;
pub(crate) mod unix;

use samehost_model::{Endpoint, Transport};

use crate::error::{ConnectError, ListenError, PARENT_NEEDED, StartError};
use crate::observed::Observed;
use crate::socket::Connecting;
use crate::stream::{Listener, Stream};
use crate::tuning::{ConnectOptions, ListenOptions};

type Start = fn(&Endpoint, &ConnectOptions) -> Result<(Stream, Connecting), StartError>;

pub(crate) struct Carrier {
    pub(crate) transport: Transport,
    /// Connects, and waits until the connection can be used.
    pub(crate) connect: fn(&Endpoint, &ConnectOptions) -> Result<Stream, ConnectError>,
    /// As [`connect_nonblocking`](crate::connect_nonblocking): a single connect(2), without waiting.
    pub(crate) start: Start,
    pub(crate) listen: fn(&Endpoint, &ListenOptions) -> Result<Listener, ListenError>,
    /// Whether the kernel's view of a descriptor matches this transport.
    pub(crate) carries: fn(&Observed) -> bool,
}

/// What nobody connects to by name. Also what has no connection at all (`none`, `command`, datagrams).
const WITHOUT_NAME: Carrier = Carrier {
    transport: Transport::None,
    connect: |endpoint, _| Err(ConnectError::Unsupported(endpoint.clone(), PARENT_NEEDED)),
    start: |endpoint, _| Err(StartError::Unsupported(endpoint.clone(), PARENT_NEEDED)),
    listen: |endpoint, _| Err(ListenError::Unsupported(endpoint.clone(), PARENT_NEEDED)),
    carries: |_| false,
};

/// All transports, one line for each.
/// What is behind a line is a file below `transports/`; its name, for JSON and the command line, is a
/// variant of the model. The model alone was rejected as the place of both: it would have to depend on
/// sockets to read a stored report. So a new transport changes two crates, and a test checks that every
/// transport of the model is listed here once.
const CARRIERS: [Carrier; 9] = [
    tcp::TCP,
    tcp::TCP6,
    unix::CARRIER,
    unix::ABSTRACT,
    tls::CARRIER,
    unix::SEQPACKET,
    unix::SOCKETPAIR,
    unix::PIPE,
    run::CARRIER,
];

fn carrier(transport: Transport) -> &'static Carrier {
    let found = const { &CARRIERS }.iter().find(|carrier| carrier.transport == transport);
    found.unwrap_or(const { &WITHOUT_NAME })
}

/// Connects to an endpoint, including the handshake for `tcp+tls`. The stream is blocking.
///
/// # Errors
/// [`ConnectError`], which names the endpoint, the cause and a remedy.
pub fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Stream, ConnectError> {
    (carrier(endpoint.transport()).connect)(endpoint, options)
}

/// Starts a connection without waiting: a single connect(2) on a nonblocking socket, without retries.
///
/// For bursts of connections. The effect of a full backlog depends on the family. A Unix socket fails
/// immediately with EAGAIN ([`StartError::Os`]). TCP is [`Connecting::InProgress`], and the kernel repeats its
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
    (carrier(endpoint.transport()).start)(endpoint, options)
}

/// Listens on an endpoint.
///
/// Takes a path safely. A lock file beside it (`PATH.samehost-lock`, held as long as the listener lives) prevents
/// two starting servers from taking the same path. An existing file is left alone, unless it is a socket on which
/// nobody listens, which is removed. To find out, `listen` connects to it once and closes the connection.
///
/// # Errors
/// [`ListenError`], which names the endpoint, the cause and a remedy.
pub fn listen(endpoint: &Endpoint, options: &ListenOptions) -> Result<Listener, ListenError> {
    (carrier(endpoint.transport()).listen)(endpoint, options)
}

impl Observed {
    /// Whether the descriptor can belong to this transport. `unix`, `abstract` and `socketpair` differ only
    /// in their names, so check both ends to distinguish them. For `tcp+tls` the result only means TCP.
    #[must_use]
    pub fn matches(&self, transport: Transport) -> bool {
        (carrier(transport).carries)(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transport_of_the_model_is_listed_once() {
        for transport in Transport::named() {
            let lines = CARRIERS.iter().filter(|carrier| carrier.transport == transport).count();
            assert_eq!(lines, 1, "{transport}");
        }
        assert_eq!(CARRIERS.len(), Transport::named().count());
        assert_eq!(carrier(Transport::None).transport, Transport::None);
    }
}
