//! Prometheus' text format, for a file that node_exporter's textfile collector reads: no timestamps, a HELP and a TYPE line for
//! each metric.

use std::fmt::Write;

use super::{Distribution, Metric, MetricKind, MetricUnit};

/// Renders metrics in Prometheus' text format. Those without a value are left out.
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
fn name(metric: &Metric) -> String {
    let unit = match metric.unit {
        MetricUnit::Of(_) | MetricUnit::None => "",
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
    let each = all.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{}=\"{value}\"", name.replace('.', "_"))
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() { String::new() } else { format!("{{{}}}", each.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::*;

    #[test]
    fn a_histogram_has_all_below_each_bound() {
        let one = Distribution {
            labels: vec![("network.transport", "unix".to_owned())],
            bounds: vec![1e-5, 0.5],
            at_most: vec![3, 7],
            count: 8,
            sum: 2.5,
            seconds: 10.0,
        };
        let metric = Metric {
            name: "a.time",
            help: "Some.",
            kind: MetricKind::Histogram,
            unit: MetricUnit::Seconds,
            samples: Vec::new(),
            distributions: vec![one],
        };
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
            Metric::gauge("a.b", MetricUnit::Seconds, "One\nline.", Sample::alone(0.5)),
            Metric {
                name: "lost",
                help: "Lost.",
                kind: MetricKind::Counter,
                unit: MetricUnit::Of("thing"),
                samples: vec![Sample { labels, value: 3.0 }],
                distributions: Vec::new(),
            },
            Metric::gauge("empty", MetricUnit::None, "Nothing.", Vec::new()),
        ];
        let expected = "# HELP a_b_seconds One\\nline.\n# TYPE a_b_seconds gauge\na_b_seconds 0.5\n\
            # HELP lost_total Lost.\n# TYPE lost_total counter\nlost_total{network_transport=\"a\\\"b\\\\c\\nd\"} 3\n";
        assert_eq!(metrics_as_prometheus(&metrics), expected);
    }
}
