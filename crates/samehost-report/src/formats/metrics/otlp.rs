//! OTLP as JSON: an `ExportMetricsServiceRequest` in the JSON mapping of protobuf.

use serde_json::{Value, json};

use super::{Distribution, Metric, MetricKind, MetricUnit, Sample};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`; the JSON mapping of OTLP has enumerations as numbers.
const CUMULATIVE: u32 = 2;

/// Renders metrics as the body of a request to an OTLP receiver. `resource` is what they are of: names and values;
/// `unix_nanos` is the time of their values.
#[must_use]
pub fn metrics_as_otlp(
    metrics: &[Metric],
    resource: &[(String, String)],
    version: &str,
    unix_nanos: i128,
) -> Value {
    let metrics: Vec<Value> = metrics
        .iter()
        .filter(|metric| !metric.is_empty())
        .map(|metric| as_json(metric, unix_nanos))
        .collect();
    let attributes: Vec<Value> = resource.iter().map(|(name, value)| attribute(name, value)).collect();
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes },
        "scopeMetrics": [{ "scope": { "name": "samehost", "version": version }, "metrics": metrics }],
    }] })
}

fn as_json(metric: &Metric, unix_nanos: i128) -> Value {
    let points: Vec<Value> = metric.samples.iter().map(|sample| point(sample, unix_nanos)).collect();
    let (name, data) = match metric.kind {
        MetricKind::Gauge => ("gauge", json!({ "dataPoints": points })),
        MetricKind::Counter => (
            "sum",
            json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }),
        ),
        // Each scan's is cumulative since its own start time. Delta would say the same, and Prometheus refuses it.
        MetricKind::Histogram => {
            let spread = metric.distributions.iter().map(|one| distribution(one, unix_nanos));
            let points: Vec<Value> = spread.collect();
            ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }))
        }
    };
    let unit = match metric.unit {
        MetricUnit::Of(thing) => format!("{{{thing}}}"),
        MetricUnit::Seconds => "s".to_owned(),
        MetricUnit::PerSecond => "{operation}/s".to_owned(),
        MetricUnit::BytesPerSecond => "By/s".to_owned(),
        MetricUnit::Ratio => "1".to_owned(),
        MetricUnit::None => String::new(),
    };
    json!({ "name": metric.name, "description": metric.help, "unit": unit, name: data })
}

/// A histogram: how many values each bucket has for itself, one more than there are bounds.
fn distribution(one: &Distribution, unix_nanos: i128) -> Value {
    let attributes: Vec<Value> = one.labels.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut counts = Vec::new();
    let mut below = 0;
    for at_most in one.at_most.iter().chain([&one.count]) {
        counts.push(at_most.saturating_sub(below).to_string());
        below = *at_most;
    }
    let begun = unix_nanos - (1e9 * one.seconds) as i128;
    json!({
        "attributes": attributes,
        "startTimeUnixNano": begun.to_string(),
        "timeUnixNano": unix_nanos.to_string(),
        "count": one.count.to_string(),
        "sum": one.sum,
        "bucketCounts": counts,
        "explicitBounds": one.bounds,
    })
}

fn point(sample: &Sample, unix_nanos: i128) -> Value {
    let attributes: Vec<Value> = sample.labels.iter().map(|(name, value)| attribute(name, value)).collect();
    // The mapping has 64-bit integers as strings.
    json!({ "attributes": attributes, "timeUnixNano": unix_nanos.to_string(), "asDouble": sample.value })
}

fn attribute(name: &str, value: &str) -> Value {
    json!({ "key": name, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_what_is_in_each_bucket_for_itself() {
        let one = Distribution {
            bounds: vec![0.1, 0.5],
            at_most: vec![3, 7],
            count: 8,
            sum: 2.5,
            seconds: 2.0,
            ..Distribution::default()
        };
        let point = distribution(&one, 5_000_000_000);
        assert_eq!(point["bucketCounts"], json!(["3", "4", "1"]));
        assert_eq!((&point["startTimeUnixNano"], &point["count"]), (&json!("3000000000"), &json!("8")));
    }

    #[test]
    fn a_request_has_the_resource_the_scope_and_each_point() {
        let metrics = [Metric::gauge("a.b", MetricUnit::Seconds, "Some.", Sample::alone(0.5))];
        let value = metrics_as_otlp(&metrics, &[("service.name".into(), "samehost".into())], "1", 7);
        let expected = json!({ "resourceMetrics": [{
            "resource": { "attributes": [{ "key": "service.name", "value": { "stringValue": "samehost" } }] },
            "scopeMetrics": [{
                "scope": { "name": "samehost", "version": "1" },
                "metrics": [{
                    "name": "a.b", "description": "Some.", "unit": "s",
                    "gauge": { "dataPoints": [{ "attributes": [], "timeUnixNano": "7", "asDouble": 0.5 }] },
                }],
            }],
        }] });
        assert_eq!(value, expected);
    }
}
