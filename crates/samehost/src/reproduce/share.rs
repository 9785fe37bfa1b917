//! Claims about a share of a whole, such as the queries of a page.

use std::collections::BTreeMap;

use samehost_analysis::{Index, Judged, judge_value};
use samehost_model::{ClaimOutcome, Expected, Here, Report, Stopping, Transport};
use samehost_stats::{Asked, estimate, estimate_sequential};

use super::claims::{metric_of, not_measured};
use super::published::Claim;

/// One time as a share of another: the median over blocks, with the signed-rank interval.
pub fn judge(
    claim: &Claim,
    report: &Report,
    part: &str,
    whole: &str,
    transport: Transport,
) -> Option<ClaimOutcome> {
    let Expected::Value { low, high } = claim.expected else { return None };
    let arm = report.head.arms.iter().find(|arm| arm.transport == transport)?;
    let index = Index::of_report(report);
    let times = |name: &str| {
        let metric = metric_of(report, name)?;
        let unit = microseconds(&metric.unit)?;
        let values = index.values(metric, &arm.id);
        Some(values.into_iter().map(|(block, value)| (block, unit * value)).collect::<BTreeMap<u32, f64>>())
    };
    let (parts, wholes) = (times(part)?, times(whole)?);
    let percents = parts.iter().filter_map(|(block, part)| Some((100.0 * part / wholes.get(block)?).ln()));
    let percents: Vec<f64> = percents.collect();
    let found = match report.head.plan.stopping {
        Stopping::Precision => estimate(&percents, report.head.plan.confidence)?,
        Stopping::Decision => {
            let asked = Asked { confidence: report.head.plan.confidence, limit: 0.0, multiplicity: 1.0 };
            estimate_sequential(&percents, &vec![None; percents.len()], &asked)?
        }
    };
    let Judged { judgement, size, why } = judge_value(low, high, &found);
    let here = Here {
        of: arm.name.clone(),
        metric: format!("{part} of {whole}"),
        value: found.ratio,
        low: found.interval.map(|interval| interval.low),
        high: found.interval.map(|interval| interval.high),
        unit: "percent".into(),
        blocks: found.n,
    };
    Some(ClaimOutcome { here: Some(here), judgement, size, why, ..not_measured(claim) })
}

/// Microseconds of a unit of time.
fn microseconds(unit: &str) -> Option<f64> {
    match unit {
        "us" => Some(1.0),
        "ms" => Some(1e3),
        "s" => Some(1e6),
        _ => None,
    }
}
