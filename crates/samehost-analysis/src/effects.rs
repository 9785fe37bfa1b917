//! Main effects and interactions of a factorial experiment with two levels per factor.
//!
//! For each block, with y = ln(metric) of each of the 2^k arms and a factor's level s = ±1, the effect of a set of m
//! factors is Σ (Π s) y ÷ 2^(k−m): for one factor the mean of y at its second level minus that at its first; for two
//! factors the difference between one factor's differences at the other's levels (Yates' contrasts; Box, Hunter and
//! Hunter, "Statistics for Experimenters", chapter 5). The blocks' values are then estimated like any log ratio, and so is
//! each cell's difference from the first cell, which has the first level of every factor.

use std::collections::BTreeMap;

use samehost_model::{Arm, Combination, Effect, Factor, MetricInfo, Point, Report, Transport};
use samehost_stats::estimate;

use crate::index::Index;

/// Maximum number of factors; tables with more are unreadable.
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
            effects.extend(sets.into_iter().filter_map(|set| {
                let contrasts: Vec<f64> = blocks.iter().map(|y| contrast(y, set)).collect();
                let estimate = estimate(&contrasts, confidence)?;
                Some(Effect {
                    point: cells.point.clone(),
                    metric: metric.name.clone(),
                    factors: (0..factors.len())
                        .filter(|i| set >> i & 1 == 1)
                        .map(|i| factors[i].clone())
                        .collect(),
                    ratio: estimate.ratio,
                    ci_low: estimate.interval.map(|interval| interval.low),
                    ci_high: estimate.interval.map(|interval| interval.high),
                    confidence,
                    blocks: estimate.n,
                })
            }));
            combinations.extend((1..cells.arms.len()).filter_map(|cell| {
                let differences: Vec<f64> = blocks.iter().map(|y| y[cell] - y[0]).collect();
                let estimate = estimate(&differences, confidence)?;
                Some(Combination {
                    arm: cells.arms[cell].id.clone(),
                    against: cells.arms[0].id.clone(),
                    metric: metric.name.clone(),
                    ratio: estimate.ratio,
                    ci_low: estimate.interval.map(|interval| interval.low),
                    ci_high: estimate.interval.map(|interval| interval.high),
                    confidence,
                    blocks: estimate.n,
                })
            }));
        }
    }
    (effects, combinations)
}

/// Factors: the transport and the parameters that have exactly two levels.
fn factors(arms: &[&Arm]) -> Vec<Factor> {
    let mut names: Vec<&String> = arms.iter().flat_map(|arm| arm.point.parameters.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let own = names.into_iter().filter_map(|name| {
        factor(name, arms.iter().filter_map(|arm| arm.point.parameters.get(name).cloned()).collect())
    });
    let transport = factor("transport", arms.iter().map(|arm| arm.name.clone()).collect());
    let own: Vec<Factor> = own.collect();
    // Without a parameter the effect would equal the comparison of the transports.
    if own.is_empty() { Vec::new() } else { transport.into_iter().chain(own).collect() }
}

/// The factor of these levels, where there are two of them.
fn factor(name: &str, levels: Vec<String>) -> Option<Factor> {
    let mut distinct: Vec<String> = Vec::new();
    for level in levels {
        if !distinct.contains(&level) {
            distinct.push(level);
        }
    }
    let Ok([from, to]) = <[String; 2]>::try_from(distinct) else { return None };
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
    let first = by_cell.first().into_iter().flat_map(BTreeMap::keys);
    first
        .filter_map(|block| by_cell.iter().map(|values| values.get(block).map(|value| value.ln())).collect())
        .collect()
}

fn contrast(y: &[f64], set: usize) -> f64 {
    let sum: f64 = y
        .iter()
        .enumerate()
        .map(|(cell, y)| if (!cell & set).count_ones().is_multiple_of(2) { *y } else { -*y })
        .sum();
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
