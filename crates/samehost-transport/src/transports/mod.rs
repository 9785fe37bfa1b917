//! The transports, one file each; `registry.rs` lists them. A transport's file must not use another's, unless
//! it builds on it (TLS on TCP; abstract names, seqpacket and datagrams on Unix sockets).

pub(crate) mod datagram;
pub(crate) mod run;
pub(crate) mod socketpair;
pub(crate) mod tcp;
pub(crate) mod tls;
pub(crate) mod unix;

use samehost_model::{Endpoint, Transport};

use crate::error::{ConnectError, ListenError, PARENT_NEEDED, StartError};
use crate::listener::Listener;
use crate::observed::Observed;
use crate::socket::Connecting;
use crate::stream::Stream;
use crate::tuning::{ConnectOptions, ListenOptions};

/// See [`connect_nonblocking`](crate::connect_nonblocking).
type Start = fn(&Endpoint, &ConnectOptions) -> Result<(Stream, Connecting), StartError>;

/// Implementation of a transport.
pub(crate) struct Carrier {
    /// The implemented transport.
    pub(crate) transport: Transport,
    /// Connects and waits for completion.
    pub(crate) connect: fn(&Endpoint, &ConnectOptions) -> Result<Stream, ConnectError>,
    /// Calls connect(2) on a nonblocking socket, without waiting.
    pub(crate) start: Start,
    /// Starts listening.
    pub(crate) listen: fn(&Endpoint, &ListenOptions) -> Result<Listener, ListenError>,
    /// Whether the kernel's view of a descriptor matches this transport.
    pub(crate) carries: fn(&Observed) -> bool,
}

/// `connect` of an inherited transport.
fn connect_needs_parent(endpoint: &Endpoint, _: &ConnectOptions) -> Result<Stream, ConnectError> {
    Err(ConnectError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED })
}

/// `connect_nonblocking` of an inherited transport.
fn start_needs_parent(endpoint: &Endpoint, _: &ConnectOptions) -> Result<(Stream, Connecting), StartError> {
    Err(StartError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED })
}

/// `listen` of an inherited transport.
fn listen_needs_parent(endpoint: &Endpoint, _: &ListenOptions) -> Result<Listener, ListenError> {
    Err(ListenError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED })
}
