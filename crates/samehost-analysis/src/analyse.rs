//! Computes comparisons, controls, evidence and warnings from trials. Deterministic: analysing a stored
//! report again gives the same result.

use samehost_model::human::{format_percent, shape};
use samehost_model::{
    Analysis, Arm, Code, Comparison, ConnectionSettings, Control, Evidence, MetricInfo, Point, Report,
    Stopping, Verdict, Warning, metric_title,
};
use samehost_stats::{Asked, Estimate, estimate, estimate_pairs, estimate_sequential, holm, median, starts};

use crate::effects::effects;
use crate::family::{Ps, gate, multiplicity};
use crate::index::{Index, Pairs};
use crate::issue::{Invalidates, Issue};
use crate::issues::find_issues;
use crate::judge::{Terms, judge, warn_of_few_blocks, warn_of_precision};
use crate::limits::limits;
use crate::prediction::predict;
use crate::profiles::profile_differences;

/// Result of analysing a report's trials.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysed {
    pub analysis: Analysis,
    /// Warnings about the whole report; errors first.
    pub warnings: Vec<Warning>,
}

impl Analysed {
    /// Replaces the report's analysis. Warnings from the measurement are kept, after the new ones.
    pub fn apply(self, report: &mut Report) {
        let Analysed { analysis, mut warnings } = self;
        for earlier in std::mem::take(&mut report.warnings) {
            let again = warnings.iter().any(|w| w.code == earlier.code && w.subject == earlier.subject);
            if !again && !earlier.code.is_of_analysis() {
                warnings.push(earlier);
            }
        }
        report.analysis = analysis;
        report.warnings = warnings;
    }
}

/// Analyses a report's trials; ignores an earlier analysis in the report.
#[must_use]
pub fn analyse(report: &Report) -> Analysed {
    let index = Index::of_report(report);
    let issues = find_issues(report, &index);
    let controls = compare_controls(report, &index);
    let mut tried: Vec<Tried<'_>> = Vec::new();
    let multiplicity = |metric: &MetricInfo| multiplicity(report, &index, metric);
    for group in &index.groups {
        for metric in &report.head.workload.metrics {
            tried.extend(group.candidates.iter().filter_map(|candidate| {
                Tried::of(report, &index, metric, group.baseline, candidate, multiplicity(metric))
            }));
        }
    }
    adjust(report, &mut tried, &issues);
    let comparisons: Vec<Comparison> =
        tried.into_iter().map(|tried| tried.conclude(report, &index, &issues)).collect();
    let mut warnings: Vec<Warning> = issues.into_iter().map(|issue| issue.warning).collect();
    warnings.extend(missed_precision(report, &comparisons));
    let analysis = Analysis {
        comparisons,
        controls,
        predictions: predict(report, &index),
        effects: effects(report, &index),
        limits: limits(report, &index),
        profile_differences: profile_differences(report, &index),
        evidence: gather_evidence(&index),
    };
    Analysed { analysis, warnings }
}

/// Compares two arms of any points like arms of one point: paired by block, and without a verdict if an issue
/// invalidates either. P-values are not adjusted, so use it only for questions chosen before the measurement.
#[must_use]
pub fn compare_arms(
    report: &Report,
    metric: &MetricInfo,
    baseline: &Arm,
    candidate: &Arm,
) -> Option<Comparison> {
    let index = Index::of_report(report);
    let tried = Tried::of(report, &index, metric, baseline, candidate, 1.0)?;
    Some(tried.conclude(report, &index, &find_issues(report, &index)))
}

/// A comparison before its verdict.
struct Tried<'a> {
    metric: &'a MetricInfo,
    baseline: &'a Arm,
    candidate: &'a Arm,
    pairs: Pairs,
    estimate: Estimate,
    /// P-values, later replaced by adjusted ones.
    adjusted: Ps,
}

impl<'a> Tried<'a> {
    /// `None` if no block has both arms.
    fn of(
        report: &Report,
        index: &Index<'_>,
        metric: &'a MetricInfo,
        baseline: &'a Arm,
        candidate: &'a Arm,
        multiplicity: f64,
    ) -> Option<Self> {
        let pairs = index.pairs(metric, &baseline.id, &candidate.id);
        let plan = &report.head.plan;
        let asked = Asked { confidence: plan.confidence, limit: plan.margin.ln_1p(), multiplicity };
        let estimate = match plan.stopping {
            Stopping::Precision => estimate_pairs,
            Stopping::Decision => estimate_sequential,
        };
        let estimate = estimate(&pairs.log_ratios(), &pairs.starts, &asked)?;
        let adjusted = Ps { same: estimate.p, inside: estimate.p_inside };
        Some(Tried { metric, baseline, candidate, pairs, estimate, adjusted })
    }

    /// Issues that invalidate a verdict.
    fn invalidates(&self, issues: &[Issue]) -> Vec<Warning> {
        let either = |issue: &&Issue| {
            issue.invalidates(&self.baseline.id, self.metric)
                || issue.invalidates(&self.candidate.id, self.metric)
        };
        issues.iter().filter(either).map(|issue| issue.warning.clone()).collect()
    }

    fn is_of_the_answer(&self, report: &Report) -> bool {
        report.head.workload.metrics.first().is_some_and(|first| first.name == self.metric.name)
    }

    fn conclude(self, report: &Report, index: &Index<'_>, issues: &[Issue]) -> Comparison {
        let (baseline, candidate, metric) = (self.baseline, self.candidate, self.metric);
        let (interval, narrow) = (self.estimate.interval, self.estimate.narrow);
        let mut warnings: Vec<Warning> = warn_of_few_blocks(metric, self.estimate.n).into_iter().collect();
        warnings.extend(self.notes(issues));
        let mut comparison = Comparison {
            point: baseline.point.clone(),
            metric: metric.name.clone(),
            baseline: baseline.id.clone(),
            candidate: candidate.id.clone(),
            baseline_value: median(&self.pairs.baseline).unwrap_or(f64::NAN),
            candidate_value: median(&self.pairs.candidate).unwrap_or(f64::NAN),
            ratio: self.estimate.ratio,
            ci_low: interval.map(|interval| interval.low),
            ci_high: interval.map(|interval| interval.high),
            confidence: report.head.plan.confidence,
            narrow_low: narrow.map(|interval| interval.low),
            narrow_high: narrow.map(|interval| interval.high),
            method: self.estimate.method.name().to_owned(),
            blocks: self.estimate.n,
            server_starts: starts::count(&self.pairs.starts),
            p: self.estimate.p,
            p_margin: self.estimate.p_inside,
            p_adjusted: self.adjusted.same,
            p_margin_adjusted: self.adjusted.inside,
            verdict: Verdict::Inconclusive,
            grade: None,
            warnings,
        };
        let terms = Terms::of(&report.head.plan, index.block_seconds(&report.head.plan, &baseline.point));
        judge(&mut comparison, metric, &terms, &self.invalidates(issues));
        if self.is_of_the_answer(report) && !comparison.warnings.iter().any(|w| w.code == Code::Imprecise) {
            comparison.warnings.extend(warn_of_precision(&comparison, report.head.plan.precision));
        }
        comparison
    }

    /// Remarks about a comparison, whatever its verdict.
    fn notes(&self, issues: &[Issue]) -> Vec<Warning> {
        let mut notes = Vec::new();
        let subject = &self.metric.name;
        if self.baseline.tls != self.candidate.tls {
            let encrypted = if self.baseline.tls { self.baseline } else { self.candidate };
            let message =
                format!("only {} is encrypted: the ratio includes the cost of encryption", encrypted.id);
            notes.push(Warning::new(Code::TlsDiffers, subject, message));
        }
        let is_bound = |issue: &&Issue| {
            let id = issue.arm.as_deref();
            issue.invalidates == Invalidates::WorkRate
                && (id == Some(&self.baseline.id) || id == Some(&self.candidate.id))
        };
        if self.metric.is_latency() && self.baseline.point.connections > 1 {
            notes.extend(issues.iter().find(is_bound).map(|issue| {
                let message = format!(
                    "the client of {} was the limit, and in a closed loop latency is connections ÷ throughput (Little's law): this is largely the client's own queue",
                    issue.arm.as_deref().unwrap_or_default()
                );
                Warning::new(Code::ClientBound, subject, message)
            }));
        }
        notes
    }
}

/// Adjusts p-values over all questions of the report, with the first metric as the primary one.
fn adjust(report: &Report, tried: &mut [Tried<'_>], issues: &[Issue]) {
    let questions: Vec<(bool, Ps)> =
        tried.iter().map(|one| (one.is_of_the_answer(report), one.adjusted)).collect();
    let open: Vec<bool> = tried.iter().map(|one| one.invalidates(issues).is_empty()).collect();
    let adjusted = gate(&questions, 1.0 - report.head.plan.confidence, &open);
    for (one, ps) in tried.iter_mut().zip(adjusted) {
        one.adjusted = ps;
    }
}

/// Holm's adjustment within each group of equal names.
pub(crate) fn adjust_by_metric(names: &[String], p_values: &mut [Option<f64>]) {
    let mut done: Vec<&str> = Vec::new();
    for name in names {
        if done.contains(&name.as_str()) {
            continue;
        }
        done.push(name);
        let family: Vec<usize> =
            (0..names.len()).filter(|&i| names[i] == *name && p_values[i].is_some()).collect();
        let raw: Vec<f64> = family.iter().filter_map(|&i| p_values[i]).collect();
        for (&i, adjusted) in family.iter().zip(holm::adjust(&raw)) {
            p_values[i] = Some(adjusted);
        }
    }
}

/// Compares the baseline with its control, for each point and metric that has control trials.
#[must_use]
pub(crate) fn compare_controls(report: &Report, index: &Index<'_>) -> Vec<Control> {
    let mut controls = Vec::new();
    for group in &index.groups {
        for metric in &report.head.workload.metrics {
            let id = &group.baseline.id;
            let pairs = index.control_pairs(metric, id);
            let Some(estimate) = estimate(&pairs.log_ratios(), report.head.plan.confidence) else { continue };
            controls.push(Control {
                point: group.baseline.point.clone(),
                metric: metric.name.clone(),
                ratio: estimate.ratio,
                ci_low: estimate.interval.map(|interval| interval.low),
                ci_high: estimate.interval.map(|interval| interval.high),
                noise_floor: estimate.interval.map(|interval| interval.high.max(1.0 / interval.low) - 1.0),
            });
        }
    }
    controls
}

pub(crate) fn noise_floor(controls: &[Control], point: &Point, metric: &MetricInfo) -> Option<f64> {
    controls.iter().find(|c| c.point == *point && c.metric == metric.name)?.noise_floor
}

/// Warning that the requested precision of the first metric was missed.
fn missed_precision(report: &Report, comparisons: &[Comparison]) -> Option<Warning> {
    let metric = &report.head.workload.metrics.first()?.name;
    let widths: Vec<f64> = comparisons
        .iter()
        .filter(|c| c.metric == *metric)
        .filter_map(|c| Some(0.5 * (c.ci_high? / c.ci_low?).ln()))
        .collect();
    let missed = widths.iter().filter(|width| **width > report.head.plan.precision.ln_1p()).count();
    let widest = widths.iter().copied().fold(0.0, f64::max);
    (missed > 0).then(|| {
        let (wanted, reached) = (format_percent(report.head.plan.precision), format_percent(widest.exp_m1()));
        let title = metric_title(metric);
        let message = match widths.len() {
            1 => format!("the interval of {title} reached ±{reached}; ±{wanted} was wanted"),
            all => format!(
                "{missed} of {all} comparisons of {title} missed the wanted precision of ±{wanted}; the widest interval is ±{reached}"
            ),
        };
        Warning::new(Code::Imprecise, metric, message)
    })
}

/// Evidence of each arm's transport from the kernel and the server. Messages that differ only in numbers,
/// such as a peer's pid, are merged.
fn gather_evidence(index: &Index<'_>) -> Vec<Evidence> {
    let mut evidence: Vec<Evidence> = Vec::new();
    for trials in &index.arms {
        let from = evidence.len();
        for trial in &trials.counted {
            let Some(observed) = &trial.transport_observed else { continue };
            let known = evidence[from..].iter_mut().find(|e| {
                shape(&e.observed) == shape(observed)
                    && e.cipher == trial.cipher
                    && is_alike(e.connection.as_ref(), trial.connection.as_ref())
            });
            match known {
                Some(known) => known.trials += 1,
                None => evidence.push(Evidence {
                    arm: trials.arm.id.clone(),
                    observed: observed.clone(),
                    cipher: trial.cipher.clone(),
                    connection: trial.connection.clone(),
                    trials: 1,
                }),
            }
        }
    }
    evidence
}

/// Whether two connections use the same congestion control. Buffer sizes are not compared, because TCP's
/// differ slightly between connections; the first connection's are reported.
fn is_alike(one: Option<&ConnectionSettings>, other: Option<&ConnectionSettings>) -> bool {
    one.map(ConnectionSettings::congestion) == other.map(ConnectionSettings::congestion)
}
