//! The transports, one file each; `registry.rs` lists them. A transport's file may not touch another's, but for
//! what is built upon it (TLS upon TCP, names and messages upon Unix sockets).

pub(crate) mod abstract_name;
pub(crate) mod pipe;
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

/// `connect` of a transport that only a parent can hand over.
fn connect_needs_parent(endpoint: &Endpoint, _: &ConnectOptions) -> Result<Stream, ConnectError> {
    Err(ConnectError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED })
}

/// `connect_nonblocking` of a transport that only a parent can hand over.
fn start_needs_parent(endpoint: &Endpoint, _: &ConnectOptions) -> Result<(Stream, Connecting), StartError> {
    Err(StartError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED })
}

/// `listen` of a transport that only a parent can hand over.
fn listen_needs_parent(endpoint: &Endpoint, _: &ListenOptions) -> Result<Listener, ListenError> {
    Err(ListenError::Unsupported { endpoint: endpoint.clone(), reason: PARENT_NEEDED })
}
