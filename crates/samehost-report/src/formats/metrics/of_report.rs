//! The metrics of a measurement: each comparison with its interval and verdict, and what each arm measured, in base units.
//! Labels have few values: what the command asked for, and names of metrics.

use std::io::{self, Write};

use samehost_model::printable::clean;
use samehost_model::{Arm, Comparison, MetricInfo, Placement, Point, Report, Verdict};

use super::MetricUnit::{BytesPerSecond, Number, PerSecond, Ratio, Seconds};
use super::{Metric, Sample, metrics_as_prometheus};
use crate::measurement::view;

const WORKLOAD: &str = "samehost.workload";
const VERDICTS: [Verdict; 4] = [Verdict::Faster, Verdict::Slower, Verdict::Equivalent, Verdict::Inconclusive];

type Labels = Vec<(&'static str, String)>;

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(metrics_as_prometheus(&metrics_of_report(report)).as_bytes())
}

/// Metrics of a measurement: each comparison with its interval and verdict, what each arm typically measured, and when it began.
/// An arm's median has a name of its own and not `db.client.operation.duration`, for which it would be taken: that is a histogram of
/// the operations of an application, and this is of a load that samehost made (docs/decisions/0101).
#[must_use]
pub fn metrics_of_report(report: &Report) -> Vec<Metric> {
    let mut metrics = Vec::from(compared(report));
    metrics.extend(measured(report));
    if let Ok(begun) = report.head.started_at.parse::<jiff::Timestamp>() {
        let labels = vec![(WORKLOAD, clean(&report.head.workload.name))];
        let samples = vec![Sample { labels, value: begun.as_duration().as_secs_f64() }];
        metrics.push(
            Metric::gauge("samehost.bench.timestamp", Seconds, samples)
                .help("When the measurement began, since 1970."),
        );
    }
    metrics
}

fn at(report: &Report, metric: &str, point: &Point) -> Vec<(&'static str, String)> {
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
    let mut verdicts = Vec::new();
    for comparison in &report.analysis.comparisons {
        for verdict in VERDICTS {
            let mut labels = labels_of(report, comparison);
            labels.push(("samehost.verdict", verdict.to_string()));
            verdicts.push(Sample { labels, value: if comparison.verdict == verdict { 1.0 } else { 0.0 } });
        }
    }
    [
        Metric::gauge("samehost.bench.compared", Ratio, of_comparisons(report, |found| Some(found.ratio)))
            .help("Candidate divided by baseline."),
        Metric::gauge("samehost.bench.compared_low", Ratio, of_comparisons(report, |found| found.ci_low))
            .help("The lower end of the 95 % interval of that."),
        Metric::gauge("samehost.bench.compared_high", Ratio, of_comparisons(report, |found| found.ci_high))
            .help("The upper end of that interval."),
        Metric::gauge("samehost.bench.blocks", Number, of_comparisons(report, blocks))
            .help("Blocks in which both were measured."),
        Metric::gauge("samehost.bench.verdict", Number, verdicts)
            .help("1 for the verdict, 0 for the others."),
    ]
}

fn blocks(comparison: &Comparison) -> Option<f64> {
    Some(f64::from(comparison.blocks))
}

fn labels_of(report: &Report, comparison: &Comparison) -> Labels {
    let mut labels = at(report, &comparison.metric, &comparison.point);
    labels.push(("samehost.baseline", view::arm_name(report, &comparison.baseline)));
    labels.push(("samehost.candidate", view::arm_name(report, &comparison.candidate)));
    labels
}

fn of_comparisons(report: &Report, value: fn(&Comparison) -> Option<f64>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for comparison in &report.analysis.comparisons {
        let Some(value) = finite(value(comparison)) else { continue };
        samples.push(Sample { labels: labels_of(report, comparison), value });
    }
    samples
}

/// The typical value of each arm, a metric for each dimension. Values in other units are left out.
fn measured(report: &Report) -> [Metric; 4] {
    let times = measured_in(report, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]);
    let rates = measured_in(report, &[("per_s", 1.0)]);
    let bandwidths = measured_in(report, &[("bytes_per_s", 1.0)]);
    let shares = measured_in(report, &[("percent", 0.01)]);
    [
        Metric::gauge("samehost.bench.time", Seconds, times)
            .help("What an arm measured: latencies, CPU time per operation."),
        Metric::gauge("samehost.bench.rate", PerSecond, rates)
            .help("What an arm measured: operations per second."),
        Metric::gauge("samehost.bench.bandwidth", BytesPerSecond, bandwidths)
            .help("What an arm measured: bytes per second."),
        Metric::gauge("samehost.bench.share", Ratio, shares)
            .help("What an arm measured: a part of all, such as what was lost or refused."),
    ]
}

/// What arms measured in one of these units, each with the factor that makes it the metric's own.
fn measured_in(report: &Report, units: &[(&str, f64)]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for metric in &report.head.workload.metrics {
        let Some((_, factor)) = units.iter().find(|(unit, _)| *unit == metric.unit) else { continue };
        for arm in &report.head.arms {
            samples.extend(of_arm(report, arm, metric, *factor));
        }
    }
    samples
}

fn of_arm(report: &Report, arm: &Arm, metric: &MetricInfo, factor: f64) -> Option<Sample> {
    let value = finite(view::typical(report, &arm.id, metric))? * factor;
    let mut labels = at(report, &metric.name, &arm.point);
    labels.push(("samehost.arm", clean(&arm.name)));
    Some(Sample { labels, value })
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}
