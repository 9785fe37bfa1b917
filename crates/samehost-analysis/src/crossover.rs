//! Crossovers: the message size, or value of a workload's parameter, at which the verdict changes.

use samehost_model::{Comparison, Point, Report, Verdict};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Along {
    /// Message size in bytes.
    Size,
    /// A workload's integer parameter of this name.
    Parameter(String),
}

impl Along {
    /// `None` where the point has no such value, or one that is not an integer.
    fn value(&self, point: &Point) -> Option<u64> {
        match self {
            Along::Size => point.size_bytes,
            Along::Parameter(name) => point.parameters.get(name)?.parse().ok(),
        }
    }

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

/// Two adjacent decided values with different verdicts: `before` up to the value `from`, `after` from `to` on.
/// Inconclusive values between them widen the bracket, since the change may lie at any of them. Arms stand by their
/// display names, and `point` is without the swept quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    pub baseline: String,
    pub candidate: String,
    pub along: Along,
    pub point: Point,
    pub from: u64,
    pub to: u64,
    pub before: Verdict,
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
    let mut found = find_along(&Along::Size, report, metric);
    for name in names {
        found.extend(find_along(&Along::Parameter(name.clone()), report, metric));
    }
    found
}

fn find_along(along: &Along, report: &Report, metric: &str) -> Vec<Crossover> {
    let mut sweeps: Vec<Sweep<'_>> = Vec::new();
    for comparison in &report.analysis.comparisons {
        if comparison.metric == metric && comparison.verdict.is_decided() {
            add(&mut sweeps, along, report, comparison);
        }
    }
    let mut found = Vec::new();
    for sweep in &mut sweeps {
        sweep.values.sort_by_key(|(value, _)| *value);
        for two in sweep.values.windows(2) {
            let ((from, before), (to, after)) = (two[0], two[1]);
            if before != after {
                found.push(Crossover {
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
    let baseline = display_name(report, &comparison.baseline);
    let candidate = display_name(report, &comparison.candidate);
    let point = along.removed(&comparison.point);
    for sweep in sweeps.iter_mut() {
        if sweep.baseline == baseline && sweep.candidate == candidate && sweep.point == point {
            sweep.values.push((value, comparison.verdict));
            return;
        }
    }
    sweeps.push(Sweep { baseline, candidate, point, values: vec![(value, comparison.verdict)] });
}

fn display_name<'a>(report: &'a Report, id: &'a str) -> &'a str {
    match report.arm(id) {
        Some(arm) => &arm.name,
        None => id,
    }
}
