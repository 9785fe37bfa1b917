//! What can be compared: a name with its unit, which way is better, and how a sample answers it.

use serde::{Deserialize, Serialize};

use crate::Sample;

/// Which way a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better, as for throughput.
    Higher,
    /// Less is better, as for latency.
    Lower,
}

/// A metric that a report compares. Built-in names are read from the sample's fields, others from its
/// `measurements`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricInfo {
    /// Name in JSON, such as `latency_p50`.
    pub name: String,
    /// Unit of the sample's value, such as `us` or `per_s`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
}

type Reader = fn(&Sample) -> Option<f64>;

/// Name, unit, direction and reader of each built-in metric; the one place where they are listed.
const BUILT_IN: &[(&str, &str, Better, Reader)] = &[
    ("throughput", "per_s", Better::Higher, |s| s.throughput_per_s),
    ("bandwidth", "bytes_per_s", Better::Higher, |s| s.bytes_per_s),
    ("latency_mean", "us", Better::Lower, |s| s.latency_us.as_ref()?.mean),
    ("latency_p50", "us", Better::Lower, |s| s.latency_us.as_ref()?.p50),
    ("latency_p90", "us", Better::Lower, |s| s.latency_us.as_ref()?.p90),
    ("latency_p95", "us", Better::Lower, |s| s.latency_us.as_ref()?.p95),
    ("latency_p99", "us", Better::Lower, |s| s.latency_us.as_ref()?.p99),
    ("latency_p99_9", "us", Better::Lower, |s| s.latency_us.as_ref()?.p99_9),
    ("service_mean", "us", Better::Lower, |s| s.service_us.as_ref()?.mean),
    ("client_cpu_per_op", "us", Better::Lower, |s| s.client_cpu_us_per_op),
    ("server_cpu_per_op", "us", Better::Lower, |s| s.server_cpu_us_per_op),
    ("total_cpu_per_op", "us", Better::Lower, |s| Some(s.client_cpu_us_per_op? + s.server_cpu_us_per_op?)),
    ("wall_time", "s", Better::Lower, |s| Some(s.seconds)),
    ("cpu_time", "s", Better::Lower, |s| s.cpu_s),
];

impl MetricInfo {
    /// The built-in metric of this name.
    ///
    /// # Panics
    /// When there is none: names of built-in metrics are written in source, never taken from input.
    #[must_use]
    pub fn built_in(name: &str) -> Self {
        let (name, unit, better, _) = BUILT_IN
            .iter()
            .find(|(known, ..)| *known == name)
            .unwrap_or_else(|| panic!("no built-in metric is called {name}"));
        MetricInfo { name: (*name).into(), unit: (*unit).into(), better: *better }
    }

    /// A workload's own metric, which samples hold in `measurements` under the same name.
    #[must_use]
    pub fn own(name: &str, unit: &str, better: Better) -> Self {
        MetricInfo { name: name.into(), unit: unit.into(), better }
    }

    /// This metric's value in a sample; absent where the sample did not measure it.
    #[must_use]
    pub fn value(&self, sample: &Sample) -> Option<f64> {
        BUILT_IN
            .iter()
            .find(|(name, ..)| *name == self.name)
            .map_or_else(|| sample.measurements.get(&self.name).copied(), |(.., read)| read(sample))
    }

    /// Whether it counts completed requests per time, which a busy client caps. Bandwidth is not meant: in bulk
    /// the sender's work is the transport's own.
    #[must_use]
    pub fn is_rate_of_work(&self) -> bool {
        self.name == "throughput"
    }
}
