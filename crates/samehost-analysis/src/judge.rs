//! Derives verdicts from estimates, and grades for comparisons without a verdict.

use samehost_model::human::{change, count, format_percent, rough_time};
use samehost_model::{
    Better, Code, Comparison, Grade, MetricInfo, Plan, Point, Report, Trial, Verdict, Warning, metric_title,
};
use samehost_stats::{Estimate, SIGNED_RANK_FROM, median, normal};

/// Maximum number of blocks that is recommended.
const REASONABLE_BLOCKS: f64 = 10_000.0;
/// One-sided error probability of "probably": 20 to 1.
const PROBABLY: f64 = 0.05;
/// One-sided error probability of "leans to": 4 to 1.
const LEANING: f64 = 0.20;

/// Thresholds for verdicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Differences inside ±margin do not matter in practice.
    pub margin: f64,
    /// Limit that a difference must exceed, at least the margin; the comparison's `p_margin` tests against it.
    pub limit: f64,
    /// Confidence of the intervals; p-values are compared with 1 − confidence.
    pub confidence: f64,
    /// Seconds that one more block takes, for recommendations; `None` if unknown.
    pub block_s: Option<f64>,
}

impl Terms {
    #[must_use]
    pub fn of(plan: &Plan, block_s: Option<f64>) -> Self {
        Terms { margin: plan.margin, limit: plan.margin, confidence: plan.confidence, block_s }
    }

    fn alpha(&self) -> f64 {
        1.0 - self.confidence
    }
}

/// The numbers of an estimate as a comparison that has no names and no verdict yet.
pub(crate) fn of_estimate(estimate: &Estimate, confidence: f64) -> Comparison {
    let (interval, narrow) = (estimate.interval, estimate.narrow);
    Comparison {
        ratio: estimate.ratio,
        ci_low: interval.map(|interval| interval.low),
        ci_high: interval.map(|interval| interval.high),
        confidence,
        narrow_low: narrow.map(|interval| interval.low),
        narrow_high: narrow.map(|interval| interval.high),
        method: estimate.method.name().to_owned(),
        blocks: estimate.n,
        p: estimate.p,
        p_margin: estimate.p_inside,
        ..Comparison::default()
    }
}

/// Judges one comparison by its own numbers; replaces its earlier verdict, grade and reason.
///
/// `faster` and `slower` require the p-value against the limit, adjusted for the family, below 5 %.
/// `equivalent` requires two one-sided tests (Schuirmann 1987): the narrow interval inside the margin.
/// Invalidating issues take precedence. If the verdict is inconclusive, the first warning is the reason.
pub fn judge(comparison: &mut Comparison, metric: &MetricInfo, terms: &Terms, bars: &[Warning]) {
    take_reason_away(comparison);
    let is_barred = !bars.is_empty();
    comparison.warnings.splice(0..0, bars.iter().cloned());
    (comparison.verdict, comparison.grade) = if is_barred {
        (Verdict::Inconclusive, Some(Grade::Barred))
    } else {
        let (verdict, grade) = decide(comparison, metric, terms);
        (verdict, Some(grade))
    };
    if comparison.verdict == Verdict::Inconclusive && !is_barred {
        comparison.warnings.insert(0, explain(comparison, terms));
    }
}

/// Judges a comparison again after its adjusted p-values changed. An invalidated comparison stays so.
pub fn judge_again(comparison: &mut Comparison, metric: &MetricInfo, terms: &Terms) {
    if comparison.grade != Some(Grade::Barred) {
        judge(comparison, metric, terms, &[]);
    }
}

/// Removes the reason, which is the first warning of an inconclusive comparison.
fn take_reason_away(comparison: &mut Comparison) {
    let was_judged = comparison.grade.is_some_and(|grade| grade != Grade::Barred);
    if was_judged && comparison.verdict == Verdict::Inconclusive && !comparison.warnings.is_empty() {
        comparison.warnings.remove(0);
    }
}

fn decide(comparison: &Comparison, metric: &MetricInfo, terms: &Terms) -> (Verdict, Grade) {
    let alpha = terms.alpha();
    if comparison.p_margin_adjusted.is_some_and(|p| p < alpha) && !contains_one(comparison) {
        let better = (comparison.ratio > 1.0) == (metric.better == Better::Higher);
        return (if better { Verdict::Faster } else { Verdict::Slower }, Grade::Decided);
    }
    if terms.limit <= terms.margin && is_inside(comparison, terms.margin) {
        return (Verdict::Equivalent, Grade::Decided);
    }
    if comparison.p_adjusted.is_some_and(|p| p < alpha) {
        return (Verdict::Inconclusive, Grade::SizeOpen);
    }
    let one_sided = comparison.p.map_or(0.5, |p| 0.5 * p);
    let grade = match one_sided {
        p if p < PROBABLY => Grade::Probable,
        p if p < LEANING => Grade::Leaning,
        _ => Grade::Open,
    };
    (Verdict::Inconclusive, grade)
}

/// Whether the interval spans no difference. A test that may be looked at after every block keeps the strongest evidence
/// that it ever had; what blocks after that say is in the interval, and a verdict needs both.
fn contains_one(comparison: &Comparison) -> bool {
    comparison.ci_low.zip(comparison.ci_high).is_some_and(|(low, high)| low <= 1.0 && high >= 1.0)
}

/// Two one-sided tests: the narrow interval inside ±margin on the log scale.
pub(crate) fn is_inside(comparison: &Comparison, margin: f64) -> bool {
    match (comparison.narrow_low, comparison.narrow_high) {
        (Some(low), Some(high)) => low > 1.0 / (1.0 + margin) && high < 1.0 + margin,
        _ => false,
    }
}

/// Warning about few blocks, whatever the verdict; `None` for enough blocks.
pub(crate) fn warn_of_few_blocks(metric: &MetricInfo, blocks: u32) -> Option<Warning> {
    (2..SIGNED_RANK_FROM as u32).contains(&blocks).then(|| {
        let message =
            format!("only {blocks} blocks: the interval is Student's t, which assumes normal noise");
        Warning::new(Code::FewBlocks, &metric.name, message)
    })
}

/// Why the data do not decide, and what would.
fn explain(comparison: &Comparison, terms: &Terms) -> Warning {
    let about = |code, message: String| Warning::new(code, &comparison.metric, message);
    let (Some(low), Some(high)) = (comparison.ci_low, comparison.ci_high) else {
        let message = if comparison.blocks < 2 {
            "one block gives no interval: at least two are needed, and ten for a verdict worth having"
        } else {
            "so few blocks, on servers that differ, exclude nothing: more of either would"
        };
        return about(Code::FewBlocks, message.to_owned());
    };
    let interval = format!("{} to {}", change(low), change(high));
    let limit = format_percent(terms.limit);
    let beyond = 1.0 + terms.limit;
    let (code, reason) = if terms.limit > terms.margin && (low > 1.0 || high < 1.0) {
        let reason =
            format!("the difference ({interval}) is not clear of what the noise alone may be: {limit}");
        (Code::NoiseFloor, reason)
    } else if low > beyond || high < 1.0 / beyond {
        let p = comparison.p_margin_adjusted.unwrap_or(1.0);
        let reason =
            format!("the difference ({interval}) may be chance: p is {p:.2} among all that is asked");
        (Code::Imprecise, reason)
    } else if low > 1.0 || high < 1.0 {
        let reason =
            format!("there is a difference ({interval}), but it may be smaller than the margin of {limit}");
        (Code::Imprecise, reason)
    } else {
        (Code::Imprecise, format!("the interval spans no difference at all: {interval}"))
    };
    about(code, format!("{reason}; {}", advise(comparison, terms)))
}

/// Number of further blocks that would decide, if the estimate stays the same and the standard error shrinks
/// with 1/√n: for a difference beyond the limit or, if the estimate is inside it, for equivalence.
fn advise(comparison: &Comparison, terms: &Terms) -> String {
    let Some(more) = blocks_to_decide(comparison, terms) else {
        return "no reasonable number of blocks would decide it".to_owned();
    };
    let blocks = format!("about {} more block{}", count(more as u64), if more > 1.0 { "s" } else { "" });
    match terms.block_s {
        Some(seconds) => {
            format!("{blocks} ({} or more) would decide it if the estimate stays", rough_time(more * seconds))
        }
        None => format!("{blocks} would decide it if the estimate stays"),
    }
}

/// Number of further blocks needed, at least one; `None` without an interval or if no reasonable number would
/// suffice.
#[must_use]
pub fn blocks_to_decide(comparison: &Comparison, terms: &Terms) -> Option<f64> {
    let half_width = 0.5 * (comparison.ci_high? / comparison.ci_low?).ln();
    let error = half_width / normal::quantile(0.5 * (1.0 + terms.confidence));
    let (distance, limit) = (comparison.ratio.ln().abs(), terms.limit.ln_1p());
    let (room, needed) = if distance > limit {
        // The adjustment for the family requires a smaller p-value by this factor.
        let family = match (comparison.p_margin, comparison.p_margin_adjusted) {
            (Some(p), Some(adjusted)) if p > 0.0 => (adjusted / p).max(1.0),
            _ => 1.0,
        };
        (distance - limit, normal::quantile(1.0 - 0.5 * terms.alpha() / family))
    } else {
        (terms.margin.ln_1p() - distance, normal::quantile(terms.confidence))
    };
    let n = f64::from(comparison.blocks);
    let more = (n * ((needed * error / room).powi(2) - 1.0)).ceil().max(1.0);
    (room > 0.0 && more <= REASONABLE_BLOCKS).then_some(more)
}

/// Warning that the requested precision was missed; `None` if it was reached or there is no interval.
pub(crate) fn warn_of_precision(comparison: &Comparison, precision: f64) -> Option<Warning> {
    let reached = 0.5 * (comparison.ci_high? / comparison.ci_low?).ln();
    if reached <= precision.ln_1p() {
        return None;
    }
    let message = format!(
        "the interval reached ±{}, ±{} was wanted",
        format_percent(reached.exp_m1()),
        format_percent(precision)
    );
    Some(Warning::new(Code::Imprecise, &comparison.metric, message))
}

/// Warning that the requested precision of the first metric was missed.
pub(crate) fn missed_precision(report: &Report, comparisons: &[Comparison]) -> Option<Warning> {
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

/// Seconds that one more block of this point takes: its arms, and the control where there is one. The length of trials that
/// have none of their own is the median of those that count.
pub(crate) fn block_seconds(report: &Report, point: &Point) -> Option<f64> {
    let arms = || report.head.arms.iter().filter(|arm| arm.point == *point);
    let each = report.head.plan.trial_s.or_else(|| {
        let is_here = |trial: &&Trial| trial.counts() && arms().any(|arm| arm.id == trial.arm);
        median(&report.trials.iter().filter(is_here).map(|trial| trial.seconds).collect::<Vec<f64>>())
    })?;
    Some((arms().count() as f64 + f64::from(u8::from(report.head.plan.control))) * each)
}
