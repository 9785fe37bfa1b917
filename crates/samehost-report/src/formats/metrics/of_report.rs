//! The metrics of a measurement: each comparison with its interval and verdict, and what each arm measured, in base units.
//! Labels have few values: what the command asked for, and names of metrics.

use std::io::{self, Write};

use samehost_model::printable::clean;
use samehost_model::{Arm, Comparison, MetricInfo, Placement, Point, Report, Verdict};

use super::{Metric, MetricUnit, Sample, metrics_as_prometheus};
use crate::measurement::view;

const WORKLOAD: &str = "samehost.workload";
const VERDICTS: [Verdict; 4] = [Verdict::Faster, Verdict::Slower, Verdict::Equivalent, Verdict::Inconclusive];

type Labels = Vec<(&'static str, String)>;

/// In Prometheus' text format.
pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(metrics_as_prometheus(&metrics_of_report(report)).as_bytes())
}

/// Metrics of a measurement.
#[must_use]
pub fn metrics_of_report(report: &Report) -> Vec<Metric> {
    let mut metrics = Vec::from(compared(report));
    metrics.extend(measured(report));
    if let Ok(begun) = report.head.started_at.parse::<jiff::Timestamp>() {
        let labels = vec![(WORKLOAD, clean(&report.head.workload.name))];
        metrics.push(Metric::gauge(
            "samehost.bench.timestamp",
            MetricUnit::Seconds,
            "When the measurement began, since 1970.",
            vec![Sample { labels, value: begun.as_duration().as_secs_f64() }],
        ));
    }
    metrics
}

/// What is measured where: the same for all arms of a comparison.
fn at(report: &Report, metric: &str, point: &Point) -> Labels {
    let mut labels = vec![
        (WORKLOAD, clean(&report.head.workload.name)),
        ("samehost.metric", clean(metric)),
        ("samehost.connections", point.connections.to_string()),
    ];
    labels.extend(point.rate_per_s.map(|rate| ("samehost.rate", rate.to_string())));
    labels.extend(point.size_bytes.map(|size| ("samehost.size", size.to_string())));
    if point.placement != Placement::default() {
        labels.push(("samehost.placement", point.placement.to_string()));
    }
    if !point.parameters.is_empty() {
        labels.push(("samehost.parameters", view::own_parameters(point)));
    }
    labels
}

fn compared(report: &Report) -> [Metric; 5] {
    let labels = |comparison: &Comparison| {
        let mut labels = at(report, &comparison.metric, &comparison.point);
        labels.push(("samehost.baseline", name(report, &comparison.baseline)));
        labels.push(("samehost.candidate", name(report, &comparison.candidate)));
        labels
    };
    let samples = |value: fn(&Comparison) -> Option<f64>| {
        let sample =
            |comparison| Some(Sample { labels: labels(comparison), value: finite(value(comparison))? });
        report.analysis.comparisons.iter().filter_map(sample).collect()
    };
    let verdicts = report.analysis.comparisons.iter().flat_map(|comparison| {
        VERDICTS.map(|verdict| {
            let mut labels = labels(comparison);
            labels.push(("samehost.verdict", verdict.to_string()));
            Sample { labels, value: if comparison.verdict == verdict { 1.0 } else { 0.0 } }
        })
    });
    [
        Metric::gauge(
            "samehost.bench.compared",
            MetricUnit::Ratio,
            "Candidate divided by baseline.",
            samples(|comparison| Some(comparison.ratio)),
        ),
        Metric::gauge(
            "samehost.bench.compared_low",
            MetricUnit::Ratio,
            "The lower end of the 95 % interval of that.",
            samples(|comparison| comparison.ci_low),
        ),
        Metric::gauge(
            "samehost.bench.compared_high",
            MetricUnit::Ratio,
            "The upper end of that interval.",
            samples(|comparison| comparison.ci_high),
        ),
        Metric::gauge(
            "samehost.bench.blocks",
            MetricUnit::Of("block"),
            "Blocks in which both were measured.",
            samples(|comparison| Some(f64::from(comparison.blocks))),
        ),
        Metric::gauge(
            "samehost.bench.verdict",
            MetricUnit::None,
            "1 for the verdict, 0 for the others.",
            verdicts.collect(),
        ),
    ]
}

/// The typical value of each arm. What is none of these units is left out.
fn measured(report: &Report) -> [Metric; 4] {
    let samples = |units: &[(&str, f64)]| {
        let mut samples = Vec::new();
        for metric in &report.head.workload.metrics {
            let Some((_, factor)) = units.iter().find(|(unit, _)| *unit == metric.unit) else { continue };
            samples.extend(report.head.arms.iter().filter_map(|arm| of_arm(report, arm, metric, *factor)));
        }
        samples
    };
    [
        Metric::gauge(
            "samehost.bench.time",
            MetricUnit::Seconds,
            "What an arm measured: latencies, CPU time per operation.",
            samples(&[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]),
        ),
        Metric::gauge(
            "samehost.bench.rate",
            MetricUnit::PerSecond,
            "What an arm measured: operations per second.",
            samples(&[("per_s", 1.0)]),
        ),
        Metric::gauge(
            "samehost.bench.bandwidth",
            MetricUnit::BytesPerSecond,
            "What an arm measured: bytes per second.",
            samples(&[("bytes_per_s", 1.0)]),
        ),
        Metric::gauge(
            "samehost.bench.share",
            MetricUnit::Ratio,
            "What an arm measured: a part of all, such as what was lost or refused.",
            samples(&[("percent", 0.01)]),
        ),
    ]
}

fn of_arm(report: &Report, arm: &Arm, metric: &MetricInfo, factor: f64) -> Option<Sample> {
    let value = finite(view::typical(report, &arm.id, metric))? * factor;
    let mut labels = at(report, &metric.name, &arm.point);
    labels.push(("samehost.arm", clean(&arm.name)));
    Some(Sample { labels, value })
}

/// The name of an arm without its point, which has labels of its own.
fn name(report: &Report, id: &str) -> String {
    clean(report.arm(id).map_or(id, |arm| &arm.name))
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}
