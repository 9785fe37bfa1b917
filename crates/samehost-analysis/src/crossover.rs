//! Where a sweep turns: from which size, or value of a workload's parameter, on the answer is another one.

use samehost_model::{Comparison, Point, Report, Verdict};

/// What grows along a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Along {
    /// The size of a message, in bytes.
    Size,
    /// A workload's parameter of this name, a whole number.
    Parameter(String),
}

impl Along {
    /// Its value at a point; absent where it has none, or no number.
    fn value(&self, point: &Point) -> Option<u64> {
        match self {
            Along::Size => point.size_bytes,
            Along::Parameter(name) => point.parameters.get(name)?.parse().ok(),
        }
    }

    /// The point without it.
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

/// Two neighbouring decided values with different verdicts. Inconclusive values between them widen the bracket.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    /// The metric.
    pub metric: String,
    /// The baseline's name, as tables call it.
    pub baseline: String,
    /// The candidate's name.
    pub candidate: String,
    /// What grows.
    pub along: Along,
    /// The point without it.
    pub point: Point,
    /// The last value with the verdict `before`.
    pub from: u64,
    /// The first value with the verdict `after`.
    pub to: u64,
    /// The verdict up to `from`.
    pub before: Verdict,
    /// The verdict from `to` on.
    pub after: Verdict,
}

/// One sweep: the same two arms at points that differ in one thing only.
struct Sweep<'a> {
    baseline: &'a str,
    candidate: &'a str,
    point: Point,
    values: Vec<(u64, Verdict)>,
}

/// Finds where the verdict of `metric` changes along each sweep of sizes, and of each of the workload's own
/// parameters, in an analysed report.
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
    let same = |sweep: &&mut Sweep<'_>| {
        sweep.baseline == baseline && sweep.candidate == candidate && sweep.point == point
    };
    match sweeps.iter_mut().find(same) {
        Some(sweep) => sweep.values.push((value, comparison.verdict)),
        None => sweeps.push(Sweep { baseline, candidate, point, values: vec![(value, comparison.verdict)] }),
    }
}
