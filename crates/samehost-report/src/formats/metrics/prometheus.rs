//! Prometheus' text format, for a file that node_exporter's textfile collector reads: no timestamps, a HELP and a TYPE line for
//! each metric.

use std::fmt::Write;

use super::{Metric, MetricKind, MetricUnit, Sample};

/// Renders metrics in Prometheus' text format. Those without a value are left out.
#[must_use]
pub fn metrics_as_prometheus(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for metric in metrics.iter().filter(|metric| !metric.samples.is_empty()) {
        let name = name(metric);
        let kind = match metric.kind {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", help(metric.help));
        for sample in &metric.samples {
            let _ = writeln!(text, "{name}{} {}", labels(sample), sample.value);
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

fn help(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn labels(sample: &Sample) -> String {
    let each = sample.labels.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{}=\"{value}\"", name.replace('.', "_"))
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() { String::new() } else { format!("{{{}}}", each.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            },
            Metric::gauge("empty", MetricUnit::None, "Nothing.", Vec::new()),
        ];
        let expected = "# HELP a_b_seconds One\\nline.\n# TYPE a_b_seconds gauge\na_b_seconds 0.5\n\
            # HELP lost_total Lost.\n# TYPE lost_total counter\nlost_total{network_transport=\"a\\\"b\\\\c\\nd\"} 3\n";
        assert_eq!(metrics_as_prometheus(&metrics), expected);
    }
}
