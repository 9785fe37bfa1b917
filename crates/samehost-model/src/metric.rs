//! Metrics: name, unit, which direction is better, and the value in a trial.

use serde::{Deserialize, Serialize};

use crate::trial::Trial;

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

/// Kind of quantity, on which rules and wordings depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Operations per second.
    Rate,
    /// Bytes per second.
    Bandwidth,
    /// A duration.
    Time,
    /// CPU time, which does not include waiting.
    Cpu,
    /// Anything else.
    Other,
}

/// A metric that a report compares. Built-in names are read from the trial's fields, others from its
/// `measurements`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricInfo {
    /// Name in JSON, such as `latency_p50`.
    pub name: String,
    /// Unit of the trial's value, such as `us` or `per_s`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
}

type Reader = fn(&Trial) -> Option<f64>;

/// Name, title, unit, direction and reader of every built-in metric.
const BUILT_IN: &[(&str, &str, &str, Better, Reader)] = &[
    ("throughput", "throughput", "per_s", Better::Higher, |s| s.throughput_per_s),
    ("bandwidth", "bandwidth", "bytes_per_s", Better::Higher, |s| s.bytes_per_s),
    ("latency_mean", "mean latency", "us", Better::Lower, |s| s.latency_us.as_ref()?.mean),
    ("latency_p50", "latency p50", "us", Better::Lower, |s| s.latency_us.as_ref()?.p50),
    ("latency_p90", "latency p90", "us", Better::Lower, |s| s.latency_us.as_ref()?.p90),
    ("latency_p95", "latency p95", "us", Better::Lower, |s| s.latency_us.as_ref()?.p95),
    ("latency_p99", "latency p99", "us", Better::Lower, |s| s.latency_us.as_ref()?.p99),
    ("latency_p99_9", "latency p99.9", "us", Better::Lower, |s| s.latency_us.as_ref()?.p99_9),
    ("service_mean", "mean service", "us", Better::Lower, |s| s.service_us.as_ref()?.mean),
    ("client_cpu_per_op", "client CPU/op", "us", Better::Lower, |s| s.client_cpu_us_per_op),
    ("server_cpu_per_op", "server CPU/op", "us", Better::Lower, |s| s.server_cpu_us_per_op),
    ("proxy_cpu_per_op", "proxy CPU/op", "us", Better::Lower, |s| s.proxy_cpu_us_per_op),
    ("total_cpu_per_op", "total CPU/op", "us", Better::Lower, |s| {
        Some(s.client_cpu_us_per_op? + s.server_cpu_us_per_op? + s.proxy_cpu_us_per_op.unwrap_or(0.0))
    }),
    ("wall_time", "wall time", "s", Better::Lower, |s| Some(s.seconds)),
    ("cpu_time", "CPU time", "s", Better::Lower, |s| s.cpu_s),
];

/// Display name of a metric: `mean latency` for `latency_mean`. The unit suffix of a workload's own metric is
/// removed.
#[must_use]
pub fn metric_title(name: &str) -> String {
    match BUILT_IN.iter().find(|(known, ..)| *known == name) {
        Some((_, title, ..)) => (*title).to_owned(),
        None => split_unit(name).0.replace("_p99_9", "_p99.9").replace('_', " "),
    }
}

/// Splits a measurement's name into the name without its unit suffix, and the unit.
#[must_use]
pub fn split_unit(name: &str) -> (&str, &str) {
    const UNITS: [&str; 7] = ["percent", "bytes_per_s", "per_s", "bytes", "us", "ms", "s"];
    let found = UNITS.iter().find_map(|unit| Some((name.strip_suffix(unit)?.strip_suffix('_')?, *unit)));
    found.filter(|(rest, _)| !rest.is_empty()).unwrap_or((name, ""))
}

impl MetricInfo {
    /// Display name.
    #[must_use]
    pub fn title(&self) -> String {
        metric_title(&self.name)
    }

    /// The built-in metric with this name.
    ///
    /// # Panics
    /// If there is none. Names of built-in metrics are constants in the source, never input.
    #[must_use]
    pub fn built_in(name: &str) -> Self {
        let (name, _, unit, better, _) = BUILT_IN
            .iter()
            .find(|(known, ..)| *known == name)
            .unwrap_or_else(|| panic!("no built-in metric is called {name}"));
        MetricInfo { name: (*name).into(), unit: (*unit).into(), better: *better }
    }

    /// Whether samehost itself measures a metric of this name.
    #[must_use]
    pub fn is_built_in(name: &str) -> bool {
        BUILT_IN.iter().any(|(built_in, ..)| *built_in == name)
    }

    /// A workload's own metric, which trials have in `measurements` under the same name.
    #[must_use]
    pub fn own(name: &str, unit: &str, better: Better) -> Self {
        MetricInfo { name: name.into(), unit: unit.into(), better }
    }

    /// Value in a trial; `None` if the trial did not measure it.
    #[must_use]
    pub fn value(&self, trial: &Trial) -> Option<f64> {
        BUILT_IN
            .iter()
            .find(|(name, ..)| *name == self.name)
            .map_or_else(|| trial.measurements.get(&self.name).copied(), |(.., read)| read(trial))
    }

    /// Kind of quantity. For a workload's own metric it follows from the unit; for CPU time also from the name.
    #[must_use]
    pub fn family(&self) -> Family {
        match self.unit.as_str() {
            _ if self.name.contains("cpu") => Family::Cpu,
            "per_s" => Family::Rate,
            "bytes_per_s" => Family::Bandwidth,
            "us" | "ms" | "s" => Family::Time,
            _ => Family::Other,
        }
    }

    /// Whether it is a latency of single requests.
    #[must_use]
    pub fn is_latency(&self) -> bool {
        self.name.starts_with("latency")
    }

    /// Whether it is a share of all, in percent. It may be 0 in any trial, and then has no ratio.
    #[must_use]
    pub fn is_share(&self) -> bool {
        self.unit == "percent"
    }

    /// Whether it counts completed requests per time, which a saturated client limits. Excludes bandwidth,
    /// because the sender's CPU time is part of the transport in bulk.
    #[must_use]
    pub fn is_rate_of_work(&self) -> bool {
        self.name == "throughput"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_titles() {
        assert_eq!(MetricInfo::built_in("latency_mean").title(), "mean latency");
        assert_eq!(metric_title("refused_percent"), "refused");
        assert_eq!(metric_title("wait_p99_9_us"), "wait p99.9");
    }
}
