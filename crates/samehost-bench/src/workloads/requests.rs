//! What request/reply workloads share.

use samehost_model::{Better, MetricInfo, metric};
use samehost_transport::ConnectError;

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
