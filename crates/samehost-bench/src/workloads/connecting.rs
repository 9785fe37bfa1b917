//! Connections outside the hot path, for set-up and evidence.

use std::time::Duration;

use samehost_login::Link;
use samehost_model::{Endpoint, Transport};
use samehost_transport::Stream;

use crate::error::BenchError;

/// How long to wait for a reply outside of trials.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn link_to(endpoint: &Endpoint) -> Result<Link, BenchError> {
    Ok(Link::connect(endpoint, REPLY_TIMEOUT)?)
}

/// Checks with the kernel that a stream uses the transport asked for.
pub(crate) fn prove(stream: &Stream, asked: Transport) -> Result<(), BenchError> {
    Ok(samehost_login::prove(stream, asked)?)
}

/// Refuses a transport whose connections another process makes, where connecting is measured.
pub(crate) fn require_own_connects(transport: Transport) -> Result<(), BenchError> {
    if transport != Transport::TcpRun {
        return Ok(());
    }
    Err(BenchError::Usage(
        "tcp+run is for connections that stay: a client under `samehost run` makes them and hands them over, which would be measured too; docs/run.md says what a connect costs".into(),
    ))
}
