//! Metrics for the systems that watch many hosts: one list of them, rendered as Prometheus' text format.
//!
//! Names and labels are OpenTelemetry's: words with dots, and the unit beside the name; what is written has Prometheus' own
//! translation of them: `samehost.scan.duration` with the unit `s` is `samehost_scan_duration_seconds`.

mod of_report;
mod of_scan;

use std::fmt::Write;

pub use of_report::metrics_of_report;
pub(crate) use of_report::render;
pub use of_scan::{Found, metrics_of_scan};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Gauge,
    /// Only grows, until what counts is started again.
    Counter,
    Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    Seconds,
    PerSecond,
    BytesPerSecond,
    Ratio,
    /// Of things; nothing is said of it.
    Number,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Words with dots, without the unit.
    pub name: &'static str,
    pub help: &'static str,
    pub kind: MetricKind,
    pub unit: MetricUnit,
    pub samples: Vec<Sample>,
    /// In place of samples, of a histogram.
    pub distributions: Vec<Distribution>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    pub labels: Vec<(&'static str, String)>,
    /// Upper bounds, ascending, and how many values are at most each of them.
    pub bounds: Vec<f64>,
    pub at_most: Vec<u64>,
    pub count: u64,
    pub sum: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names with dots, and values of which there are few.
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

impl Metric {
    fn of(kind: MetricKind, name: &'static str, unit: MetricUnit, samples: Vec<Sample>) -> Self {
        Metric { name, help: "", kind, unit, samples, distributions: Vec::new() }
    }

    fn gauge(name: &'static str, unit: MetricUnit, samples: Vec<Sample>) -> Self {
        Metric::of(MetricKind::Gauge, name, unit, samples)
    }

    fn help(self, help: &'static str) -> Self {
        Metric { help, ..self }
    }

    fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.distributions.is_empty()
    }
}

impl Sample {
    fn alone(value: impl Into<f64>) -> Vec<Self> {
        vec![Sample { labels: Vec::new(), value: value.into() }]
    }
}

/// Renders metrics in Prometheus' text format, for a file that node_exporter's textfile collector reads: no timestamps, and a HELP and a
/// TYPE line for each metric. Those without a value are left out.
#[must_use]
pub fn metrics_as_prometheus(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for metric in metrics.iter().filter(|metric| !metric.is_empty()) {
        let name = name(metric);
        let kind = match metric.kind {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Histogram => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", help(metric.help));
        for sample in &metric.samples {
            let _ = writeln!(text, "{name}{} {}", labels(&sample.labels), sample.value);
        }
        for one in &metric.distributions {
            text.push_str(&buckets(&name, one));
        }
    }
    text
}

/// A name as Prometheus translates it from OpenTelemetry's.
/// Dots become underscores, `s` becomes `_seconds`, `1` becomes `_ratio`, and a counter ends in `_total`
/// (docs/decisions/0101).
fn name(metric: &Metric) -> String {
    let unit = match metric.unit {
        MetricUnit::Number => "",
        MetricUnit::Seconds => "_seconds",
        MetricUnit::PerSecond => "_per_second",
        MetricUnit::BytesPerSecond => "_bytes_per_second",
        MetricUnit::Ratio => "_ratio",
    };
    let total = if metric.kind == MetricKind::Counter { "_total" } else { "" };
    format!("{}{unit}{total}", metric.name.replace('.', "_"))
}

/// The lines of a histogram: each bucket has all below it, and the last one has all.
fn buckets(name: &str, one: &Distribution) -> String {
    let mut text = String::new();
    let bounds = one.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(one.at_most.iter().chain([&one.count])) {
        let of_bucket = [&one.labels[..], &[("le", bound)]].concat();
        let _ = writeln!(text, "{name}_bucket{} {count}", labels(&of_bucket));
    }
    let labels = labels(&one.labels);
    let _ = writeln!(text, "{name}_sum{labels} {}\n{name}_count{labels} {}", one.sum, one.count);
    text
}

fn help(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn labels(all: &[(&'static str, String)]) -> String {
    let mut each = Vec::new();
    for (name, value) in all {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        each.push(format!("{}=\"{value}\"", name.replace('.', "_")));
    }
    if each.is_empty() { String::new() } else { format!("{{{}}}", each.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::{Sample, *};

    #[test]
    fn a_histogram_has_all_below_each_bound() {
        let one = Distribution {
            labels: vec![("network.transport", "unix".to_owned())],
            bounds: vec![1e-5, 0.5],
            at_most: vec![3, 7],
            count: 8,
            sum: 2.5,
        };
        let metric =
            Metric::of(MetricKind::Histogram, "a.time", MetricUnit::Seconds, Vec::new()).help("Some.");
        let metric = Metric { distributions: vec![one], ..metric };
        let expected = "# HELP a_time_seconds Some.\n# TYPE a_time_seconds histogram\n\
            a_time_seconds_bucket{network_transport=\"unix\",le=\"0.00001\"} 3\n\
            a_time_seconds_bucket{network_transport=\"unix\",le=\"0.5\"} 7\n\
            a_time_seconds_bucket{network_transport=\"unix\",le=\"+Inf\"} 8\n\
            a_time_seconds_sum{network_transport=\"unix\"} 2.5\na_time_seconds_count{network_transport=\"unix\"} 8\n";
        assert_eq!(metrics_as_prometheus(&[metric]), expected);
    }

    #[test]
    fn names_have_units_and_labels_are_escaped() {
        let labels = vec![("network.transport", "a\"b\\c\nd".to_owned())];
        let metrics = [
            Metric::gauge("a.b", MetricUnit::Seconds, Sample::alone(0.5)).help("One\nline."),
            Metric::of(MetricKind::Counter, "lost", MetricUnit::Number, vec![Sample { labels, value: 3.0 }])
                .help("Lost."),
            Metric::gauge("empty", MetricUnit::Number, Vec::new()).help("Nothing."),
        ];
        let expected = "# HELP a_b_seconds One\\nline.\n# TYPE a_b_seconds gauge\na_b_seconds 0.5\n\
            # HELP lost_total Lost.\n# TYPE lost_total counter\nlost_total{network_transport=\"a\\\"b\\\\c\\nd\"} 3\n";
        assert_eq!(metrics_as_prometheus(&metrics), expected);
    }
}
