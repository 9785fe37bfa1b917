//! Connections outside the hot path: for set-up and for evidence.

use std::time::Duration;

use samehost_login::Link;
use samehost_model::{Endpoint, Transport};
use samehost_transport::Stream;

use crate::error::BenchError;

/// How long to wait for an answer outside of trials.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection outside the hot path, for set-up and evidence.
pub(crate) fn link_to(endpoint: &Endpoint) -> Result<Link, BenchError> {
    Ok(Link::connect(endpoint, REPLY_TIMEOUT)?)
}

/// The kernel's word that a stream is what was asked for.
///
/// # Errors
/// When it is not.
pub(crate) fn prove(stream: &Stream, asked: Transport) -> Result<(), BenchError> {
    Ok(samehost_login::prove(stream, asked)?)
}
