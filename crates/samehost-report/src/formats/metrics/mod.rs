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
    /// How values are spread.
    Histogram,
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
    /// In place of samples, of a histogram.
    pub distributions: Vec<Distribution>,
}

/// How many values were at most so much, and what they are of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// As those of a sample.
    pub labels: Vec<(&'static str, String)>,
    /// Upper bounds, ascending.
    pub bounds: Vec<f64>,
    /// How many values are at most each of them.
    pub at_most: Vec<u64>,
    pub count: u64,
    pub sum: f64,
    /// For how long they were gathered until now, in seconds: they begin anew with each scan.
    pub seconds: f64,
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
        Metric { name, help, kind: MetricKind::Gauge, unit, samples, distributions: Vec::new() }
    }
}

impl Metric {
    fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.distributions.is_empty()
    }
}

impl Sample {
    fn alone(value: f64) -> Vec<Self> {
        vec![Sample { labels: Vec::new(), value }]
    }
}
