//! Compares arms, and the baseline with its control (A/A): estimates, adjusted p-values, verdicts.

use samehost_model::{Arm, Code, Comparison, Control, MetricInfo, Point, Report, Stopping, Warning};
use samehost_stats::{Asked, Estimate, count_starts, estimate, estimate_pairs, estimate_sequential, median};

use crate::family::{Ps, Question, gate, multiplicity};
use crate::index::{Index, Pairs};
use crate::issues::{Invalidates, Issue, bars, find_issues};
use crate::judge::{Terms, block_seconds, judge, of_estimate, warn_of_few_blocks, warn_of_precision};

/// Compares every candidate with its baseline in every metric: estimates first, then the p-values of all questions as
/// one family, then each verdict.
pub(crate) fn comparisons(report: &Report, index: &Index<'_>, issues: &[Issue]) -> Vec<Comparison> {
    let mut tried: Vec<Tried<'_>> = Vec::new();
    for group in &index.groups {
        for metric in &report.head.workload.metrics {
            let multiplicity = multiplicity(report, index, metric);
            for candidate in &group.candidates {
                tried.extend(Tried::of(report, index, metric, group.baseline, candidate, multiplicity));
            }
        }
    }
    adjust(report, &mut tried, issues);
    tried.into_iter().map(|tried| tried.conclude(report, issues)).collect()
}

/// Compares two arms of any points like arms of one point: candidate ÷ baseline, paired by block, with the method, the
/// margin and the confidence of the report's plan, and without a verdict if an issue bars either arm. P-values are not
/// adjusted, so use it only for questions chosen before the measurement. `None` if no block has both arms.
#[must_use]
pub fn compare_arms(
    report: &Report,
    metric: &MetricInfo,
    baseline: &Arm,
    candidate: &Arm,
) -> Option<Comparison> {
    let index = Index::of_report(report);
    let tried = Tried::of(report, &index, metric, baseline, candidate, 1.0)?;
    Some(tried.conclude(report, &find_issues(report, &index)))
}

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
        Some(Tried { metric, baseline, candidate, pairs, estimate, adjusted: Ps::of(&estimate) })
    }

    fn bars(&self, issues: &[Issue]) -> Vec<Warning> {
        bars(issues, &[&self.baseline.id, &self.candidate.id], self.metric)
    }

    fn is_of_the_answer(&self, report: &Report) -> bool {
        report.head.workload.metrics.first().is_some_and(|first| first.name == self.metric.name)
    }

    fn conclude(self, report: &Report, issues: &[Issue]) -> Comparison {
        let (baseline, candidate, metric) = (self.baseline, self.candidate, self.metric);
        let bars = self.bars(issues);
        let bar = bars.first().cloned();
        let mut warnings = bars;
        warnings.extend(warn_of_few_blocks(metric, self.estimate.n));
        warnings.extend(self.notes(issues));
        let mut comparison = Comparison {
            point: baseline.point.clone(),
            metric: metric.name.clone(),
            baseline: baseline.id.clone(),
            candidate: candidate.id.clone(),
            baseline_value: median(&self.pairs.baseline).unwrap_or(f64::NAN),
            candidate_value: median(&self.pairs.candidate).unwrap_or(f64::NAN),
            server_starts: count_starts(&self.pairs.starts),
            p_adjusted: self.adjusted.same,
            p_margin_adjusted: self.adjusted.inside,
            warnings,
            ..of_estimate(&self.estimate, report.head.plan.confidence)
        };
        let terms = Terms::of(&report.head.plan, block_seconds(report, &baseline.point));
        judge(&mut comparison, metric, &terms, bar.as_ref());
        let is_imprecise = comparison.reason.as_ref().is_some_and(|reason| reason.code() == Code::Imprecise);
        if self.is_of_the_answer(report) && !is_imprecise {
            comparison.warnings.extend(warn_of_precision(&comparison, report.head.plan.precision));
        }
        comparison
    }

    fn notes(&self, issues: &[Issue]) -> Vec<Warning> {
        let mut notes = Vec::new();
        let subject = &self.metric.name;
        if self.baseline.tls != self.candidate.tls {
            let encrypted = if self.baseline.tls { self.baseline } else { self.candidate };
            let message =
                format!("only {} is encrypted: the ratio includes the cost of encryption", encrypted.id);
            notes.push(Warning::new(Code::TlsDiffers, subject, message));
        }
        if !self.metric.is_latency() || self.baseline.point.connections <= 1 {
            return notes;
        }
        for issue in issues.iter().filter(|issue| issue.invalidates == Invalidates::WorkRate) {
            let Some(id) = &issue.arm else { continue };
            if *id != self.baseline.id && *id != self.candidate.id {
                continue;
            }
            let message = format!(
                "the client of {id} was the limit, and in a closed loop latency is connections ÷ throughput (Little's law): this is largely the client's own queue"
            );
            notes.push(Warning::new(Code::ClientBound, subject, message));
            break;
        }
        notes
    }
}

fn adjust(report: &Report, tried: &mut [Tried<'_>], issues: &[Issue]) {
    let mut questions = Vec::new();
    for one in tried.iter() {
        questions.push(Question {
            is_of_the_answer: one.is_of_the_answer(report),
            can_be_answered: one.bars(issues).is_empty(),
            ps: one.adjusted,
        });
    }
    let adjusted = gate(&questions, 1.0 - report.head.plan.confidence);
    for (one, ps) in tried.iter_mut().zip(adjusted) {
        one.adjusted = ps;
    }
}

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
