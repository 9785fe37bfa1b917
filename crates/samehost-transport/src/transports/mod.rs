//! The transports, one file each; `registry.rs` lists them. A transport's file must not use another's, unless
//! it builds on it (TLS on TCP; abstract names, seqpacket and datagrams on Unix sockets).

pub(crate) mod abstract_name;
pub(crate) mod datagram;
pub(crate) mod pipe;
pub(crate) mod run;
pub(crate) mod seqpacket;
pub(crate) mod socketpair;
pub(crate) mod tcp;
pub(crate) mod tls;
pub(crate) mod unix;

use samehost_model::Endpoint;

use crate::connect::ConnectOptions;
use crate::connect_error::{ConnectError, PARENT_NEEDED, StartError};
use crate::listen::{ListenOptions, Listener};
use crate::listen_error::ListenError;
use crate::socket::Connecting;
use crate::stream::Stream;

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
