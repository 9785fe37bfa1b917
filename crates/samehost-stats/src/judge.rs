//! From an interval to a verdict: the words faster, slower and equivalent are earned, all else is inconclusive
//! with its reason.

use samehost_model::{Better, Code, MetricInfo, Plan, Verdict, Warning};

use crate::wording::{change, count, percent, time};
use crate::{Estimate, Interval, SIGNED_RANK_FROM};

/// More blocks than this are not a piece of advice.
const REASONABLE_BLOCKS: f64 = 10_000.0;

/// What the interval is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Differences inside ±margin do not matter in practice.
    pub margin: f64,
    /// Wanted half-width of the interval, as a part of the ratio.
    pub precision: f64,
    /// Confidence of the interval.
    pub confidence: f64,
    /// Seconds that one more block takes, for advice; absent where unknown.
    pub block_s: Option<f64>,
}

impl Terms {
    /// The terms of a plan.
    #[must_use]
    pub fn of(plan: &Plan, block_s: Option<f64>) -> Self {
        Terms { margin: plan.margin, precision: plan.precision, confidence: plan.confidence, block_s }
    }
}

/// All that a verdict rests on.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// What was compared, and which way is better.
    pub metric: &'a MetricInfo,
    /// Candidate ÷ baseline.
    pub estimate: Estimate,
    /// p-value of "no difference" after Holm's adjustment.
    pub p_adjusted: Option<f64>,
    /// The relative difference that the control reached.
    pub noise_floor: Option<f64>,
    /// Doubts that forbid a verdict.
    pub bars: Vec<Warning>,
    /// What the interval is held against.
    pub terms: Terms,
}

/// The interval and its limits on the log scale, where gain and loss are symmetric.
struct Logs {
    wide: Interval,
    narrow: Option<Interval>,
    margin: f64,
    floor: f64,
}

impl Logs {
    fn of(case: &Case<'_>) -> Option<Logs> {
        let ln = |interval: Interval| Interval { low: interval.low.ln(), high: interval.high.ln() };
        Some(Logs {
            wide: ln(case.estimate.interval?),
            narrow: case.estimate.narrow.map(ln),
            margin: case.terms.margin.ln_1p(),
            floor: case.noise_floor.unwrap_or(0.0).ln_1p(),
        })
    }

    /// Whether the whole interval lies on one side, further than `limit` from no difference.
    fn is_beyond(&self, limit: f64) -> bool {
        self.wide.low > limit || self.wide.high < -limit
    }

    /// Two one-sided tests (Schuirmann 1987): the narrow interval inside ±margin.
    fn is_inside(&self) -> bool {
        self.narrow.is_some_and(|narrow| narrow.low > -self.margin && narrow.high < self.margin)
    }
}

/// Judges one comparison.
///
/// `faster` and `slower` need the whole interval beyond the margin and beyond the noise floor, and a p-value
/// that survives Holm's adjustment. `equivalent` needs two one-sided tests inside the margin, and a noise floor
/// inside it too. Anything that bars a verdict comes first. An inconclusive verdict opens its warnings with the
/// reason.
#[must_use]
pub fn judge(case: &Case<'_>) -> (Verdict, Vec<Warning>) {
    let mut warnings = Vec::new();
    let n = case.estimate.n;
    if (2..SIGNED_RANK_FROM as u32).contains(&n) {
        let message =
            format!("only {n} blocks: the interval is Student's t, which trusts the noise to be normal");
        warnings.push(Warning::new(Code::FewBlocks, &case.metric.name, message));
    }
    let Some(logs) = Logs::of(case) else {
        let message =
            "one block gives no interval: at least two are needed, and ten for a verdict worth having";
        warnings.insert(0, Warning::new(Code::FewBlocks, &case.metric.name, message));
        warnings.splice(0..0, case.bars.iter().cloned());
        return (Verdict::Inconclusive, warnings);
    };
    if !case.bars.is_empty() {
        warnings.splice(0..0, case.bars.iter().cloned());
        return (Verdict::Inconclusive, warnings);
    }
    let significant = case.p_adjusted.is_some_and(|p| p < 1.0 - case.terms.confidence);
    if significant && logs.is_beyond(logs.margin.max(logs.floor)) {
        let more = logs.wide.low > 0.0;
        let better = more == (case.metric.better == Better::Higher);
        return (if better { Verdict::Faster } else { Verdict::Slower }, warnings);
    }
    if logs.is_inside() && logs.floor <= logs.margin {
        return (Verdict::Equivalent, warnings);
    }
    warnings.insert(0, explain(case, &logs));
    (Verdict::Inconclusive, warnings)
}

/// Why the data do not decide, and what would.
fn explain(case: &Case<'_>, logs: &Logs) -> Warning {
    let wide = logs.wide.exp();
    let interval = format!("{} to {}", change(wide.low), change(wide.high));
    let margin = percent(case.terms.margin);
    let floor = percent(case.noise_floor.unwrap_or(0.0));
    let (code, reason) = if logs.is_beyond(logs.margin.max(logs.floor)) {
        let p = case.p_adjusted.unwrap_or(1.0);
        let reason = format!(
            "the difference ({interval}) may be chance: p is {p:.2} among all comparisons of this metric"
        );
        (Code::Imprecise, reason)
    } else if logs.is_beyond(logs.margin) {
        let reason = format!(
            "the difference ({interval}) is not clear of the noise floor: the baseline against itself may differ by {floor} here"
        );
        (Code::NoiseFloor, reason)
    } else if logs.is_inside() {
        let reason = format!(
            "the difference ({interval}) is within ±{margin}, but the baseline against itself may differ by {floor} here, so equality this close cannot be shown"
        );
        (Code::NoiseFloor, reason)
    } else if logs.is_beyond(0.0) {
        let reason =
            format!("there is a difference ({interval}), but it may be smaller than the margin of {margin}");
        (Code::Imprecise, reason)
    } else {
        (Code::Imprecise, format!("the interval spans no difference at all: {interval}"))
    };
    Warning::new(code, &case.metric.name, format!("{reason}; {}", advise(case, logs)))
}

/// How many more blocks would reach the wanted precision or, where it is reached, would decide, if the width
/// shrinks with 1/√n and the estimate stays.
fn advise(case: &Case<'_>, logs: &Logs) -> String {
    let reached = logs.wide.half_width();
    let wanted = case.terms.precision.ln_1p();
    let distance = case.estimate.ratio.ln().abs();
    let (target, goal) = if reached > wanted {
        let goal = format!(
            "reach the wanted ±{} (now ±{})",
            percent(case.terms.precision),
            percent(reached.exp_m1())
        );
        (wanted, goal)
    } else if distance > logs.margin.max(logs.floor) {
        (distance - logs.margin.max(logs.floor), "decide it if the estimate stays".to_owned())
    } else {
        // A 90 % interval is about 0.84 as wide as a 95 % one.
        ((logs.margin - distance) / 0.84, "show equivalence if the estimate stays".to_owned())
    };
    // It came this close without success, so it takes at least one block more.
    let n = f64::from(case.estimate.n);
    let more =
        if target > 0.0 { (n * ((reached / target).powi(2) - 1.0)).ceil().max(1.0) } else { f64::INFINITY };
    if more > REASONABLE_BLOCKS {
        return "no reasonable number of blocks would decide it".to_owned();
    }
    if reached <= target {
        return "more blocks would narrow the noise floor too".to_owned();
    }
    let blocks = format!("about {} more block{}", count(more as u64), if more > 1.0 { "s" } else { "" });
    match case.terms.block_s {
        Some(seconds) => format!("{blocks} ({} or more) would {goal}", time(more * seconds)),
        None => format!("{blocks} would {goal}"),
    }
}

/// Says loudly that the wanted precision was missed; absent where it was reached or there is no interval.
pub(crate) fn doubt_precision(metric: &MetricInfo, estimate: &Estimate, precision: f64) -> Option<Warning> {
    let reached = estimate.log_half_width()?;
    if reached <= precision.ln_1p() {
        return None;
    }
    let message =
        format!("the interval reached ±{}, ±{} was wanted", percent(reached.exp_m1()), percent(precision));
    Some(Warning::new(Code::Imprecise, &metric.name, message))
}
