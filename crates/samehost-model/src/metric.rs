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

/// A metric that a report compares. Those of [`Metric::ALL`] are read from the trial's fields, others from its
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

/// A metric that samehost itself measures. A row here is all that is known of it: to add one, add its constant, its place in
/// [`Metric::ALL`], and its name where a workload lists what it measures.
#[derive(Debug)]
pub struct Metric {
    /// Name in JSON.
    pub name: &'static str,
    /// Name on the screen.
    pub title: &'static str,
    /// Subject and verb of a sentence about it: `a round trip takes`; empty where the sentence begins with the change.
    pub subject: &'static str,
    /// Unit of the value in a trial.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Reads it from a trial.
    pub read: fn(&Trial) -> Option<f64>,
}

/// A metric of which more is better.
const fn higher(
    name: &'static str,
    title: &'static str,
    subject: &'static str,
    unit: &'static str,
    read: fn(&Trial) -> Option<f64>,
) -> Metric {
    Metric { name, title, subject, unit, better: Better::Higher, read }
}

/// A metric of which less is better.
const fn lower(
    name: &'static str,
    title: &'static str,
    subject: &'static str,
    unit: &'static str,
    read: fn(&Trial) -> Option<f64>,
) -> Metric {
    Metric { name, title, subject, unit, better: Better::Lower, read }
}

/// Completed operations per second.
pub const THROUGHPUT: Metric =
    higher("throughput", "throughput", "", "per_s", |trial| trial.throughput_per_s);
/// Payload per second.
pub const BANDWIDTH: Metric = higher("bandwidth", "bandwidth", "", "bytes_per_s", |trial| trial.bytes_per_s);
/// Mean time to the reply: from the sending in a closed loop, from when a request was due in an open one.
pub const LATENCY_MEAN: Metric = lower("latency_mean", "mean latency", "a round trip takes", "us", |trial| {
    trial.latency_us.as_ref()?.mean
});
/// Its median.
pub const LATENCY_P50: Metric =
    lower("latency_p50", "latency p50", "the median round trip takes", "us", |trial| {
        trial.latency_us.as_ref()?.p50
    });
/// Its 90th percentile.
pub const LATENCY_P90: Metric =
    lower("latency_p90", "latency p90", "a round trip at the 90th percentile takes", "us", |trial| {
        trial.latency_us.as_ref()?.p90
    });
/// Its 95th percentile.
pub const LATENCY_P95: Metric =
    lower("latency_p95", "latency p95", "a round trip at the 95th percentile takes", "us", |trial| {
        trial.latency_us.as_ref()?.p95
    });
/// Its 99th percentile.
pub const LATENCY_P99: Metric =
    lower("latency_p99", "latency p99", "a round trip at the 99th percentile takes", "us", |trial| {
        trial.latency_us.as_ref()?.p99
    });
/// Its 99.9th percentile.
pub const LATENCY_P99_9: Metric =
    lower("latency_p99_9", "latency p99.9", "a round trip at the 99.9th percentile takes", "us", |trial| {
        trial.latency_us.as_ref()?.p99_9
    });
/// Mean time from the sending to the reply in an open loop.
pub const SERVICE_MEAN: Metric =
    lower("service_mean", "mean service", "once sent, a request takes", "us", |trial| {
        trial.service_us.as_ref()?.mean
    });
/// CPU time of the client for an operation.
pub const CLIENT_CPU_PER_OP: Metric =
    lower("client_cpu_per_op", "client CPU/op", "the client needs", "us", |trial| trial.client_cpu_us_per_op);
/// CPU time of the server for an operation.
pub const SERVER_CPU_PER_OP: Metric =
    lower("server_cpu_per_op", "server CPU/op", "the server needs", "us", |trial| trial.server_cpu_us_per_op);
/// CPU time of the program between both for an operation.
pub const PROXY_CPU_PER_OP: Metric =
    lower("proxy_cpu_per_op", "proxy CPU/op", "proxy CPU/op needs", "us", |trial| trial.proxy_cpu_us_per_op);
/// CPU time of all of them for an operation.
pub const TOTAL_CPU_PER_OP: Metric =
    lower("total_cpu_per_op", "total CPU/op", "client and server together need", "us", |trial| {
        let proxy = trial.proxy_cpu_us_per_op.unwrap_or(0.0);
        Some(trial.client_cpu_us_per_op? + trial.server_cpu_us_per_op? + proxy)
    });
/// Time of a whole command.
pub const WALL_TIME: Metric = lower("wall_time", "wall time", "it takes", "s", |trial| Some(trial.seconds));
/// CPU time of a whole command.
pub const CPU_TIME: Metric = lower("cpu_time", "CPU time", "it needs", "s", |trial| trial.cpu_s);

impl Metric {
    /// All metrics that samehost measures.
    pub const ALL: &'static [Metric] = &[
        THROUGHPUT, BANDWIDTH, LATENCY_MEAN, LATENCY_P50, LATENCY_P90, LATENCY_P95, LATENCY_P99,
        LATENCY_P99_9, SERVICE_MEAN, CLIENT_CPU_PER_OP, SERVER_CPU_PER_OP, PROXY_CPU_PER_OP,
        TOTAL_CPU_PER_OP, WALL_TIME, CPU_TIME,
    ];

    /// The metric with this name in JSON.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Metric> {
        Metric::ALL.iter().find(|metric| metric.name == name)
    }

    /// As a report lists it.
    #[must_use]
    pub fn info(&self) -> MetricInfo {
        MetricInfo { name: self.name.into(), unit: self.unit.into(), better: self.better }
    }
}

/// Display name of a metric: `mean latency` for `latency_mean`. The unit suffix of a workload's own metric is
/// removed.
#[must_use]
pub fn metric_title(name: &str) -> String {
    match Metric::named(name) {
        Some(metric) => metric.title.to_owned(),
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

    /// Whether it is this metric.
    #[must_use]
    pub fn is(&self, metric: &Metric) -> bool {
        self.name == metric.name
    }

    /// A workload's own metric, which trials have in `measurements` under the same name.
    #[must_use]
    pub fn own(name: &str, unit: &str, better: Better) -> Self {
        MetricInfo { name: name.into(), unit: unit.into(), better }
    }

    /// Value in a trial; `None` if the trial did not measure it.
    #[must_use]
    pub fn value(&self, trial: &Trial) -> Option<f64> {
        match Metric::named(&self.name) {
            Some(metric) => (metric.read)(trial),
            None => trial.measurements.get(&self.name).copied(),
        }
    }

    /// Kind of quantity, which follows from the unit; for CPU time from the name.
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
        self.is(&THROUGHPUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_known_by_their_names() {
        for metric in Metric::ALL {
            assert_eq!(Metric::named(metric.name).map(|found| found.title), Some(metric.title));
            assert_eq!(metric.info().better, metric.better);
        }
        assert!(Metric::named("refused_percent").is_none());
    }

    #[test]
    fn units_and_names_tell_the_family() {
        let families = |wanted: Family| -> Vec<&str> {
            Metric::ALL.iter().filter(|metric| metric.info().family() == wanted).map(|m| m.name).collect()
        };
        assert_eq!(families(Family::Rate), ["throughput"]);
        assert_eq!(families(Family::Bandwidth), ["bandwidth"]);
        let cpu =
            ["client_cpu_per_op", "server_cpu_per_op", "proxy_cpu_per_op", "total_cpu_per_op", "cpu_time"];
        assert_eq!(families(Family::Cpu), cpu);
        assert_eq!(families(Family::Time).len(), Metric::ALL.len() - 2 - cpu.len());
    }

    #[test]
    fn metrics_have_titles() {
        assert_eq!(LATENCY_MEAN.info().title(), "mean latency");
        assert_eq!(metric_title("refused_percent"), "refused");
        assert_eq!(metric_title("wait_p99_9_us"), "wait p99.9");
    }
}
