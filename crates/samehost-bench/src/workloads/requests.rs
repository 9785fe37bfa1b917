//! What request/reply workloads share.

use samehost_model::{MetricInfo, Point};
use samehost_transport::ConnectError;

use crate::error::BenchError;
use crate::workload::{OpenOrClosed, Parameters};

/// Metrics of requests and replies, for an open or closed loop.
pub(crate) fn request_metrics(open_loop: OpenOrClosed) -> Vec<MetricInfo> {
    let names: &[&str] = match open_loop {
        OpenOrClosed::Closed => &[
            "latency_mean",
            "latency_p50",
            "latency_p99",
            "throughput",
            "client_cpu_per_op",
            "server_cpu_per_op",
            "total_cpu_per_op",
        ],
        OpenOrClosed::Open => &[
            "latency_mean",
            "latency_p50",
            "latency_p99",
            "latency_p99_9",
            "service_mean",
            "client_cpu_per_op",
            "server_cpu_per_op",
        ],
    };
    names.iter().map(|name| MetricInfo::built_in(name)).collect()
}

/// Number of requests sent together (`--pipeline`); the point's value overrides the workload's.
///
/// # Errors
/// When it is not a number from 1 to `most`.
pub(crate) fn pipeline(point: &Point, parameters: &Parameters, most: u32) -> Result<u32, BenchError> {
    let text = point.parameters.get("pipeline").unwrap_or(&parameters["pipeline"]);
    match text.parse() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(BenchError::Usage(format!("--pipeline {text}: from 1 to {most}"))),
    }
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
