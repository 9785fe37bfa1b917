//! Main effects and interactions of a factorial experiment with two levels per factor.
//!
//! For each block, with y = ln(metric) of each of the 2^k arms and a factor's level s = ±1, the effect of a set of m
//! factors is Σ (Π s) y ÷ 2^(k−m): for one factor the mean of y at its second level minus that at its first; for two
//! factors the difference between one factor's differences at the other's levels (Yates' contrasts; Box, Hunter and
//! Hunter, "Statistics for Experimenters", chapter 5). The blocks' values are then estimated like any log ratio, and so is
//! each cell's difference from the first cell, which has the first level of every factor.

use std::collections::{BTreeMap, BTreeSet};

use samehost_model::{Arm, Combination, Effect, Factor, MetricInfo, Point, Report, Transport};
use samehost_stats::estimate;

use crate::index::{Index, distinct};

/// Most factors: tables with more are unreadable.
/// In each block that has all 2^k arms a factor's effect is a contrast of logarithms over all others,
/// with the estimate and the interval of any other comparison. Effects carry no verdict and no correction
/// for their number: they say how large, with an interval, and explain a matrix (docs/method.md §12).
const MOST_FACTORS: usize = 4;

/// Arms that differ only in the factors. Bit i of an index is the level of factor i, so arms with the first
/// level of factor 0 have even indexes.
struct Cells<'a> {
    point: Point,
    arms: Vec<&'a Arm>,
}

/// All effects and combinations; none unless, besides two transports, a parameter has two levels.
pub(crate) fn effects(report: &Report, index: &Index<'_>) -> (Vec<Effect>, Vec<Combination>) {
    let arms: Vec<&Arm> = report.head.arms.iter().filter(|arm| arm.transport != Transport::None).collect();
    let factors = factors(&arms);
    if !(2..=MOST_FACTORS).contains(&factors.len()) {
        return (Vec::new(), Vec::new());
    }
    let confidence = report.head.plan.confidence;
    let (mut effects, mut combinations) = (Vec::new(), Vec::new());
    for cells in cells(&arms, &factors) {
        for metric in &report.head.workload.metrics {
            let blocks = blocks(index, metric, &cells);
            let mut sets: Vec<usize> = (1..1 << factors.len()).collect();
            sets.sort_by_key(|set: &usize| set.count_ones());
            for set in sets {
                let contrasts: Vec<f64> = blocks.iter().map(|y| contrast(y, set)).collect();
                let Some(estimate) = estimate(&contrasts, confidence) else { continue };
                effects.push(Effect {
                    point: cells.point.clone(),
                    metric: metric.name.clone(),
                    factors: in_set(&factors, set),
                    ratio: estimate.ratio,
                    ci_low: estimate.interval.map(|interval| interval.low),
                    ci_high: estimate.interval.map(|interval| interval.high),
                    confidence,
                    blocks: estimate.n,
                });
            }
            for (cell, arm) in cells.arms.iter().enumerate().skip(1) {
                let differences: Vec<f64> = blocks.iter().map(|y| y[cell] - y[0]).collect();
                let Some(estimate) = estimate(&differences, confidence) else { continue };
                combinations.push(Combination {
                    arm: arm.id.clone(),
                    against: cells.arms[0].id.clone(),
                    metric: metric.name.clone(),
                    ratio: estimate.ratio,
                    ci_low: estimate.interval.map(|interval| interval.low),
                    ci_high: estimate.interval.map(|interval| interval.high),
                    confidence,
                    blocks: estimate.n,
                });
            }
        }
    }
    (effects, combinations)
}

fn in_set(factors: &[Factor], set: usize) -> Vec<Factor> {
    let chosen = factors.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
    chosen.map(|(_, factor)| factor.clone()).collect()
}

/// The transport first, then the parameters that have exactly two levels. Empty without such a parameter: the effect
/// would equal the comparison of the transports.
fn factors(arms: &[&Arm]) -> Vec<Factor> {
    let names: BTreeSet<&String> = arms.iter().flat_map(|arm| arm.point.parameters.keys()).collect();
    let mut own = Vec::new();
    for name in names {
        let levels = arms.iter().filter_map(|arm| arm.point.parameters.get(name).cloned());
        own.extend(factor(name, levels.collect()));
    }
    if own.is_empty() {
        return Vec::new();
    }
    let mut factors = Vec::new();
    factors.extend(factor("transport", arms.iter().map(|arm| arm.name.clone()).collect()));
    factors.extend(own);
    factors
}

/// `None` unless there are two different levels; the first one is `from`.
fn factor(name: &str, levels: Vec<String>) -> Option<Factor> {
    let Ok([from, to]) = <[String; 2]>::try_from(distinct(levels)) else { return None };
    Some(Factor { name: name.into(), from, to })
}

/// Arms in sets that differ only in the factors; incomplete sets are omitted.
fn cells<'a>(arms: &[&'a Arm], factors: &[Factor]) -> Vec<Cells<'a>> {
    let mut all: Vec<(Point, BTreeMap<usize, &Arm>)> = Vec::new();
    for arm in arms {
        let mut point = arm.point.clone();
        let mut index = 0;
        for (i, factor) in factors.iter().enumerate() {
            let level = match point.parameters.remove(&factor.name) {
                Some(level) => level,
                None => arm.name.clone(),
            };
            index |= usize::from(level == factor.to) << i;
        }
        match all.iter_mut().find(|(known, _)| *known == point) {
            Some((_, cells)) => drop(cells.insert(index, arm)),
            None => all.push((point, [(index, *arm)].into())),
        }
    }
    let whole = all.into_iter().filter(|(_, cells)| cells.len() == 1 << factors.len());
    whole.map(|(point, cells)| Cells { point, arms: cells.into_values().collect() }).collect()
}

/// ln(metric) of all cells, for each block that is complete.
fn blocks(index: &Index<'_>, metric: &MetricInfo, cells: &Cells<'_>) -> Vec<Vec<f64>> {
    let by_cell: Vec<BTreeMap<u32, f64>> =
        cells.arms.iter().map(|arm| index.values(metric, &arm.id)).collect();
    let Some(first) = by_cell.first() else { return Vec::new() };
    let mut complete = Vec::new();
    for block in first.keys() {
        let values: Option<Vec<f64>> = by_cell.iter().map(|values| Some(values.get(block)?.ln())).collect();
        complete.extend(values);
    }
    complete
}

/// Yates' contrast of a set of factors in one block, as a logarithm: Σ (Π s) y ÷ 2^(k−m), where `y` has the logarithms
/// of the 2^k cells and a factor of the set has the sign −1 at its first level.
fn contrast(y: &[f64], set: usize) -> f64 {
    let mut sum = 0.0;
    for (cell, y) in y.iter().enumerate() {
        let at_first_level = (!cell & set).count_ones();
        sum += if at_first_level.is_multiple_of(2) { *y } else { -*y };
    }
    sum * f64::from(1 << set.count_ones()) / y.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_that_multiplies_has_that_effect_and_no_interaction() {
        // Bit 0 multiplies by 1.2, bit 1 by 0.5, and bit 2 by 3, but by 6 where bit 0 is set.
        let y: Vec<f64> = (0..8_usize)
            .map(|cell| {
                let part = |bit: usize, factor: f64| if cell >> bit & 1 == 1 { factor } else { 1.0 };
                let third = if cell & 0b101 == 0b101 { 6.0 } else { part(2, 3.0) };
                (100.0 * part(0, 1.2) * part(1, 0.5) * third).ln()
            })
            .collect();
        for (set, expected) in [
            (0b001, 1.2 * 2.0_f64.sqrt()),
            (0b010, 0.5),
            (0b100, 3.0 * 2.0_f64.sqrt()),
            (0b011, 1.0),
            (0b101, 2.0),
            (0b110, 1.0),
            (0b111, 1.0),
        ] {
            let effect = contrast(&y, set).exp();
            assert!((effect / expected - 1.0).abs() < 1e-9, "{set:03b}: {effect}");
        }
    }
}
