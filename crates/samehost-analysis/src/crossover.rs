//! Crossovers: the message size, or value of a workload's parameter, at which the verdict changes.

use samehost_model::{Comparison, Point, Report, Verdict};

/// The swept quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Along {
    /// Message size in bytes.
    Size,
    /// A workload's integer parameter of this name.
    Parameter(String),
}

impl Along {
    /// Value at a point; `None` if it is missing or not an integer.
    fn value(&self, point: &Point) -> Option<u64> {
        match self {
            Along::Size => point.size_bytes,
            Along::Parameter(name) => point.parameters.get(name)?.parse().ok(),
        }
    }

    /// The point without this quantity.
    fn removed(&self, point: &Point) -> Point {
        let mut point = point.clone();
        match self {
            Along::Size => point.size_bytes = None,
            Along::Parameter(name) => {
                point.parameters.remove(name);
            }
        }
        point
    }
}

/// Two adjacent decided values with different verdicts. Inconclusive values between them widen the bracket.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    pub metric: String,
    /// Display name of the baseline.
    pub baseline: String,
    /// Display name of the candidate.
    pub candidate: String,
    /// The swept quantity.
    pub along: Along,
    /// The point without the swept quantity.
    pub point: Point,
    /// Last value with the verdict `before`.
    pub from: u64,
    /// First value with the verdict `after`.
    pub to: u64,
    /// Verdict up to `from`.
    pub before: Verdict,
    /// Verdict from `to` on.
    pub after: Verdict,
}

/// One sweep: the same two arms at points that differ only in the swept quantity.
struct Sweep<'a> {
    baseline: &'a str,
    candidate: &'a str,
    point: Point,
    values: Vec<(u64, Verdict)>,
}

/// Finds the crossovers of `metric` in an analysed report, along each sweep of sizes and of the workload's
/// own parameters.
#[must_use]
pub fn find_crossovers(report: &Report, metric: &str) -> Vec<Crossover> {
    let mut names: Vec<&String> =
        report.analysis.comparisons.iter().flat_map(|c| c.point.parameters.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let own = names.into_iter().cloned().map(Along::Parameter);
    std::iter::once(Along::Size).chain(own).flat_map(|along| find_along(&along, report, metric)).collect()
}

fn find_along(along: &Along, report: &Report, metric: &str) -> Vec<Crossover> {
    let mut sweeps: Vec<Sweep<'_>> = Vec::new();
    for comparison in
        report.analysis.comparisons.iter().filter(|c| c.metric == metric && c.verdict.is_decided())
    {
        add(&mut sweeps, along, report, comparison);
    }
    let mut found = Vec::new();
    for sweep in &mut sweeps {
        sweep.values.sort_by_key(|(value, _)| *value);
        for two in sweep.values.windows(2) {
            let ((from, before), (to, after)) = (two[0], two[1]);
            if before != after {
                found.push(Crossover {
                    metric: metric.to_owned(),
                    baseline: sweep.baseline.to_owned(),
                    candidate: sweep.candidate.to_owned(),
                    along: along.clone(),
                    point: sweep.point.clone(),
                    from,
                    to,
                    before,
                    after,
                });
            }
        }
    }
    found
}

fn add<'a>(sweeps: &mut Vec<Sweep<'a>>, along: &Along, report: &'a Report, comparison: &'a Comparison) {
    let Some(value) = along.value(&comparison.point) else { return };
    let name = |id: &'a str| report.arm(id).map_or(id, |arm| arm.name.as_str());
    let (baseline, candidate) = (name(&comparison.baseline), name(&comparison.candidate));
    let point = along.removed(&comparison.point);
    match sweeps
        .iter_mut()
        .find(|sweep| sweep.baseline == baseline && sweep.candidate == candidate && sweep.point == point)
    {
        Some(sweep) => sweep.values.push((value, comparison.verdict)),
        None => sweeps.push(Sweep { baseline, candidate, point, values: vec![(value, comparison.verdict)] }),
    }
}
