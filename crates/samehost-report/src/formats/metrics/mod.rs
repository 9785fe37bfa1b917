//! Metrics for the systems that watch many hosts: one list of them, rendered as Prometheus' text format and as OTLP.
//!
//! Names and labels are OpenTelemetry's: words with dots, and the unit beside the name. Prometheus' own translation of them is
//! what [`prometheus`] writes, so that both ways lead to the same names there: `samehost.scan.duration` with the unit `s` is
//! `samehost_scan_duration_seconds`.

mod of_report;
mod of_scan;
mod otlp;
mod prometheus;

pub use of_report::metrics_of_report;
pub(crate) use of_report::render;
pub use of_scan::{Found, metrics_of_scan};
pub use otlp::metrics_as_otlp;
pub use prometheus::metrics_as_prometheus;

/// How a metric behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Goes up and down.
    Gauge,
    /// Only grows, until what counts is started again.
    Counter,
}

/// What a value counts or measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Things, in braces: `{hop}`.
    Of(&'static str),
    Seconds,
    /// Operations per second.
    PerSecond,
    BytesPerSecond,
    /// A part of one.
    Ratio,
    /// A flag.
    None,
}

/// A metric with all its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Words with dots.
    pub name: &'static str,
    /// What it says, in a sentence.
    pub help: &'static str,
    pub kind: MetricKind,
    pub unit: MetricUnit,
    pub samples: Vec<Sample>,
}

/// A value, and what it is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names with dots, and values of which there are few.
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

impl Metric {
    fn gauge(name: &'static str, unit: MetricUnit, help: &'static str, samples: Vec<Sample>) -> Self {
        Metric { name, help, kind: MetricKind::Gauge, unit, samples }
    }
}

impl Sample {
    fn alone(value: f64) -> Vec<Self> {
        vec![Sample { labels: Vec::new(), value }]
    }
}
