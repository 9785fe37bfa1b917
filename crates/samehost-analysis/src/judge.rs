//! Derives verdicts from estimates, and grades for comparisons without a verdict.

use samehost_model::human::format_percent;
use samehost_model::{
    Arm, Better, Code, Comparison, Grade, MetricInfo, Needed, Plan, Point, Reason, Report, Verdict, Warning,
    Why, metric_title,
};
use samehost_stats::{Estimate, Method, SIGNED_RANK_FROM, distributions, look_that_decides, median};

/// More blocks than this are never recommended.
const REASONABLE_BLOCKS: f64 = 10_000.0;
/// One-sided error probability of "probably": 20 to 1.
/// An inconclusive comparison still says something, and its grade says how much. This p-value is the
/// comparison's own and is not adjusted: the word is wrong in at most 5 % of such comparisons, not of
/// reports. In the simulation a true −0.1 % was called "probably more" or better in 2.4 %. The interval
/// has to lie on one side of none besides, so that no word stands beside an interval that contradicts it
/// (docs/method.md §6).
const PROBABLY: f64 = 0.05;
/// One-sided error probability of a leaning: 4 to 1.
const LEANING: f64 = 0.20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    /// Differences inside ±margin do not matter in practice.
    pub(crate) margin: f64,
    /// Limit that a difference must exceed, at least the margin; the comparison's `p_margin` tests against it.
    pub(crate) limit: f64,
    /// Confidence of the intervals; p-values are compared with 1 − confidence.
    pub(crate) confidence: f64,
    /// Seconds that one more block takes, for recommendations; `None` if unknown.
    pub(crate) block_s: Option<f64>,
}

impl Terms {
    pub(crate) fn of(plan: &Plan, block_s: Option<f64>) -> Self {
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
/// An issue that invalidates the comparison, the `bar`, takes precedence.
pub(crate) fn judge(comparison: &mut Comparison, metric: &MetricInfo, terms: &Terms, bar: Option<&Warning>) {
    if let Some(issue) = bar {
        comparison.verdict = Verdict::Inconclusive;
        comparison.grade = Some(Grade::Barred);
        comparison.reason = Some(Reason::barred(issue));
        return;
    }
    let (verdict, grade) = decide(comparison, metric, terms);
    comparison.verdict = verdict;
    comparison.grade = Some(grade);
    comparison.reason = if verdict.is_decided() { None } else { Some(explain(comparison, terms)) };
}

/// Judges a comparison again after its adjusted p-values changed. One that an issue bars stays barred, because
/// the issue does not depend on the family that the p-values are adjusted over.
pub(crate) fn judge_again(comparison: &mut Comparison, metric: &MetricInfo, terms: &Terms) {
    if comparison.grade != Some(Grade::Barred) {
        judge(comparison, metric, terms, None);
    }
}

fn decide(comparison: &Comparison, metric: &MetricInfo, terms: &Terms) -> (Verdict, Grade) {
    let alpha = terms.alpha();
    if comparison.p_margin_adjusted.is_some_and(|p| p < alpha) && !comparison.spans_none() {
        let better = (comparison.ratio > 1.0) == (metric.better == Better::Higher);
        return (if better { Verdict::Faster } else { Verdict::Slower }, Grade::Decided);
    }
    if terms.limit <= terms.margin && is_inside(comparison, terms.margin) {
        return (Verdict::Equivalent, Grade::Decided);
    }
    // The grade is a word beside the interval: "less, size open" and "probably less" would be contradicted by one that reaches
    // from less to more. A test that may be looked at several times keeps the strongest evidence that it ever had; what blocks
    // after that say is in the interval, and a verdict or a grade needs both.
    let is_one_sided = !comparison.spans_none();
    if is_one_sided && comparison.p_adjusted.is_some_and(|p| p < alpha) {
        return (Verdict::Inconclusive, Grade::SizeOpen);
    }
    let grade = match comparison.p.map_or(0.5, |p| 0.5 * p) {
        p if p < PROBABLY && is_one_sided => Grade::Probable,
        p if p < LEANING => Grade::Leaning,
        _ => Grade::Open,
    };
    (Verdict::Inconclusive, grade)
}

/// Half the width of the interval as a logarithm; `None` without an interval.
fn half_width(comparison: &Comparison) -> Option<f64> {
    Some(0.5 * (comparison.ci_high? / comparison.ci_low?).ln())
}

/// Two one-sided tests at 5 % (Schuirmann 1987): the narrow interval, of 90 % where the other has 95 %, lies inside
/// ±margin on the log scale. `margin` is a part of 1. `false` without an interval.
pub(crate) fn is_inside(comparison: &Comparison, margin: f64) -> bool {
    match (comparison.narrow_low, comparison.narrow_high) {
        (Some(low), Some(high)) => low > 1.0 / (1.0 + margin) && high < 1.0 + margin,
        _ => false,
    }
}

/// Warning about few blocks, whatever the verdict; `None` for enough blocks.
pub(crate) fn warn_of_few_blocks(metric: &MetricInfo, blocks: u32) -> Option<Warning> {
    if !(2..SIGNED_RANK_FROM as u32).contains(&blocks) {
        return None;
    }
    let message = format!("only {blocks} blocks: the interval is Student's t, which assumes normal noise");
    Some(Warning::new(Code::FewBlocks, &metric.name, message))
}

/// Why the data do not decide, and how many more blocks would. The reason is data with a message, because the
/// checkup and `reproduce` ask for its parts (docs/decisions/0090).
fn explain(comparison: &Comparison, terms: &Terms) -> Reason {
    let Some((low, high)) = comparison.ci_low.zip(comparison.ci_high) else {
        let why = if comparison.blocks < 2 { Why::OneBlock } else { Why::NoInterval };
        return Reason::new(why, None, None);
    };
    let limit = terms.limit;
    let is_beside_one = low > 1.0 || high < 1.0;
    let is_beyond_limit = low > 1.0 + limit || high < 1.0 / (1.0 + limit);
    let why = if limit > terms.margin && is_beside_one {
        Why::WithinNoise { limit }
    } else if is_beyond_limit {
        Why::MaybeChance { p: comparison.p_margin_adjusted.unwrap_or(1.0) }
    } else if is_beside_one {
        Why::MaybeSmaller { limit }
    } else {
        Why::SpansNone
    };
    let more = blocks_to_decide(comparison, terms).map(|blocks| Needed {
        blocks: blocks as u64,
        seconds: terms.block_s.map(|seconds| blocks * seconds),
    });
    Reason::new(why, Some((low, high)), more)
}

/// Number of further blocks that would decide, at least one, if the estimate stays the same and the standard error shrinks
/// with 1/√n: for a difference beyond the limit or, if the estimate is inside it, for equivalence. `None` without an interval
/// or if no reasonable number would suffice.
fn blocks_to_decide(comparison: &Comparison, terms: &Terms) -> Option<f64> {
    let half_width = half_width(comparison)?;
    let error = half_width / distributions::normal_quantile(0.5 * (1.0 + terms.confidence));
    let (distance, limit) = (comparison.ratio.ln().abs(), terms.limit.ln_1p());
    let (room, needed) = if distance > limit {
        // The adjustment for the family requires a smaller p-value by this factor.
        let family = match (comparison.p_margin, comparison.p_margin_adjusted) {
            (Some(p), Some(adjusted)) if p > 0.0 => (adjusted / p).max(1.0),
            _ => 1.0,
        };
        if comparison.method == Method::SequentialT.name() {
            let (room, alpha) = (distance - limit, terms.alpha() / family);
            let look = look_that_decides(comparison.blocks, half_width, terms.confidence, room, alpha)?;
            return Some(f64::from(look - comparison.blocks));
        }
        (distance - limit, distributions::normal_quantile(1.0 - 0.5 * terms.alpha() / family))
    } else {
        (terms.margin.ln_1p() - distance, distributions::normal_quantile(terms.confidence))
    };
    let n = f64::from(comparison.blocks);
    let more = (n * ((needed * error / room).powi(2) - 1.0)).ceil().max(1.0);
    if room > 0.0 && more <= REASONABLE_BLOCKS { Some(more) } else { None }
}

/// The smallest difference, as a part of 1, that a measurement with an interval this wide finds in four
/// of five cases. It is z(97.5 %) + z(80 %) standard errors away from none; `None` without an interval. A
/// trial without a verdict says by this what it could have found, which tells "no difference" from "too
/// few connections" (docs/method.md §17).
#[must_use]
pub fn smallest_found(comparison: &Comparison) -> Option<f64> {
    const IN_FOUR_OF_FIVE: f64 = 0.8;
    let half_width = half_width(comparison)?;
    let of_the_interval = distributions::normal_quantile(0.5 * (1.0 + comparison.confidence));
    let error = half_width / of_the_interval;
    Some((error * (of_the_interval + distributions::normal_quantile(IN_FOUR_OF_FIVE))).exp_m1())
}

/// Warning that the requested precision was missed; `None` if it was reached or there is no interval.
pub(crate) fn warn_of_precision(comparison: &Comparison, precision: f64) -> Option<Warning> {
    let reached = half_width(comparison)?;
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

/// Warning, once for the report, that some of the first metric's comparisons missed the requested precision.
pub(crate) fn missed_precision(report: &Report, comparisons: &[Comparison]) -> Option<Warning> {
    let metric = &report.head.workload.metrics.first()?.name;
    let precision = report.head.plan.precision;
    let (mut all, mut missed, mut widest) = (0, 0, 0.0_f64);
    for comparison in comparisons.iter().filter(|comparison| comparison.metric == *metric) {
        let Some(half_width) = half_width(comparison) else { continue };
        all += 1;
        if half_width > precision.ln_1p() {
            missed += 1;
        }
        widest = widest.max(half_width);
    }
    if missed == 0 {
        return None;
    }
    let (wanted, reached) = (format_percent(precision), format_percent(widest.exp_m1()));
    let title = metric_title(metric);
    let message = if all == 1 {
        format!("the interval of {title} reached ±{reached}; ±{wanted} was wanted")
    } else {
        format!(
            "{missed} of {all} comparisons of {title} missed the wanted precision of ±{wanted}; the widest interval is ±{reached}"
        )
    };
    Some(Warning::new(Code::Imprecise, metric, message))
}

/// Seconds that one more block of this point takes: all its arms, each as often as the plan runs it. Where the plan
/// gives no length of a trial it is the median of those that count; `None` where none does.
pub(crate) fn block_seconds(report: &Report, point: &Point) -> Option<f64> {
    let arms: Vec<&Arm> = report.head.arms.iter().filter(|arm| arm.point == *point).collect();
    let trial_s = match report.head.plan.trial_s {
        Some(seconds) => seconds,
        None => median_length(report, &arms)?,
    };
    Some((arms.len() * report.head.plan.runs_in_a_block(arms.len())) as f64 * trial_s)
}

fn median_length(report: &Report, arms: &[&Arm]) -> Option<f64> {
    let mut lengths = Vec::new();
    for trial in report.trials.iter().filter(|trial| trial.counts()) {
        if arms.iter().any(|arm| arm.id == trial.arm) {
            lengths.push(trial.seconds);
        }
    }
    median(&lengths)
}
