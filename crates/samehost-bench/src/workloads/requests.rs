//! What request/reply workloads share, with their connections outside the hot path, for set-up and evidence.

use std::time::Duration;

use samehost_login::Link;
use samehost_model::{Better, Endpoint, MetricInfo, Transport, metric};
use samehost_transport::{ConnectError, Stream};

use crate::error::BenchError;

/// Metrics of bursts of connects.
pub(crate) fn burst_metrics() -> Vec<MetricInfo> {
    let mut metrics = vec![
        MetricInfo::own("served_percent", "percent", Better::Higher),
        MetricInfo::own("refused_percent", "percent", Better::Lower),
        MetricInfo::own("stalled_percent", "percent", Better::Lower),
        MetricInfo::own("slowest_ms", "ms", Better::Lower),
    ];
    metrics.extend([metric::LATENCY_P50.info(), metric::LATENCY_P90.info()]);
    metrics
}

/// Kind of a connect error, for the error counts.
pub(crate) fn connect_failure(error: &ConnectError) -> &'static str {
    match error {
        ConnectError::Refused { .. } => "connection refused",
        ConnectError::BacklogFull { .. } => "EAGAIN (backlog full)",
        ConnectError::OutOfPorts { .. } => "EADDRNOTAVAIL (no port left)",
        ConnectError::TooManyFiles { .. } => "too many open files",
        ConnectError::TimedOut { .. } => "connect timed out",
        _ => "connect failed",
    }
}

/// The most connections of an arm with which requests over persistent connections are cut into slices: a
/// thread can still wait for the last replies of all of them in a small part of a slice.
pub(crate) const MOST_SLICED: u32 = 256;

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
