//! Which points and rows of a report need no more blocks.

use samehost_model::{MetricInfo, Plan};
use samehost_stats::{Asked, Estimate, FIRST_LOOK, estimate_sequential, holm};

use crate::family::OF_THE_ANSWER;
use crate::index::Index;

/// A comparison for which a verdict is required, by the ids of its arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    pub metric: &'a MetricInfo,
    pub baseline: &'a str,
    pub candidate: &'a str,
}

/// Which rows are decided and need no more blocks: the sequential p-value of "inside the margin" passes Holm's adjustment
/// over all rows, or the repeated interval lies inside the margin. The family consists of the plan's questions and
/// those of other measurements that it names, at 5 %; without questions, of the first metric's rows, with at least
/// its share of the 5 %. Can be evaluated after every block, because it depends only on the trials so far.
#[must_use]
pub fn decided(index: &Index<'_>, rows: &[Row<'_>], plan: &Plan) -> Vec<bool> {
    let asked =
        Asked { confidence: plan.confidence, limit: plan.margin.ln_1p(), multiplicity: rows.len() as f64 };
    let mut estimates: Vec<Option<Estimate>> = Vec::new();
    let mut p_values = Vec::new();
    for row in rows {
        let pairs = index.pairs(row.metric, row.baseline, row.candidate);
        let estimate = if pairs.candidate.len() >= FIRST_LOOK {
            estimate_sequential(&pairs.log_ratios(), &pairs.starts, &asked)
        } else {
            None
        };
        estimates.push(estimate);
        p_values.push(match estimate {
            Some(Estimate { p_inside: Some(p), .. }) => p,
            _ => 1.0,
        });
    }
    p_values.extend(std::iter::repeat_n(1.0, plan.others as usize));
    let part = if plan.asked.is_empty() { OF_THE_ANSWER } else { 1.0 };
    let alpha = part * (1.0 - plan.confidence);
    let adjusted = holm::adjust(&p_values);
    let mut decided = Vec::with_capacity(rows.len());
    for (found, p) in estimates.iter().zip(adjusted) {
        decided.push(found.is_some_and(|found| p < alpha && differs(found) || is_inside(found, plan.margin)));
    }
    decided
}

fn is_inside(found: Estimate, margin: f64) -> bool {
    found.interval.is_some_and(|i| i.low > 1.0 / (1.0 + margin) && i.high < 1.0 + margin)
}

fn differs(found: Estimate) -> bool {
    found.interval.is_none_or(|i| i.low > 1.0 || i.high < 1.0)
}
