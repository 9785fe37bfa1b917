//! Where a sweep of sizes turns: from which size on the answer is another one.

use samehost_model::{Comparison, Point, Report, Verdict};

use crate::analyse::is_decided;

/// Two neighbouring decided sizes with different verdicts. Inconclusive sizes between them widen the bracket.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    /// The metric.
    pub metric: String,
    /// The baseline's name, as tables call it.
    pub baseline: String,
    /// The candidate's name.
    pub candidate: String,
    /// The point without its size.
    pub point: Point,
    /// The last size with the verdict `before`, in bytes.
    pub from_size: u64,
    /// The first size with the verdict `after`, in bytes.
    pub to_size: u64,
    /// The verdict up to `from_size`.
    pub before: Verdict,
    /// The verdict from `to_size` on.
    pub after: Verdict,
}

/// One sweep: the same two arms at points that differ in size only.
struct Sweep<'a> {
    baseline: &'a str,
    candidate: &'a str,
    point: Point,
    sizes: Vec<(u64, Verdict)>,
}

/// Finds where the verdict of `metric` changes along each sweep of sizes in an analysed report.
#[must_use]
pub fn find_crossovers(report: &Report, metric: &str) -> Vec<Crossover> {
    let mut sweeps: Vec<Sweep<'_>> = Vec::new();
    for comparison in report.comparisons.iter().filter(|c| c.metric == metric && is_decided(c.verdict)) {
        add(&mut sweeps, report, comparison);
    }
    let mut found = Vec::new();
    for sweep in &mut sweeps {
        sweep.sizes.sort_by_key(|(size, _)| *size);
        for two in sweep.sizes.windows(2) {
            let ((from_size, before), (to_size, after)) = (two[0], two[1]);
            if before != after {
                found.push(Crossover {
                    metric: metric.to_owned(),
                    baseline: sweep.baseline.to_owned(),
                    candidate: sweep.candidate.to_owned(),
                    point: sweep.point.clone(),
                    from_size,
                    to_size,
                    before,
                    after,
                });
            }
        }
    }
    found
}

fn add<'a>(sweeps: &mut Vec<Sweep<'a>>, report: &'a Report, comparison: &'a Comparison) {
    let Some(size) = comparison.point.size_bytes else { return };
    let name = |id: &'a str| report.arm(id).map_or(id, |arm| arm.name.as_str());
    let (baseline, candidate) = (name(&comparison.baseline), name(&comparison.candidate));
    let point = Point { size_bytes: None, ..comparison.point.clone() };
    let same = |sweep: &&mut Sweep<'_>| {
        sweep.baseline == baseline && sweep.candidate == candidate && sweep.point == point
    };
    match sweeps.iter_mut().find(same) {
        Some(sweep) => sweep.sizes.push((size, comparison.verdict)),
        None => sweeps.push(Sweep { baseline, candidate, point, sizes: vec![(size, comparison.verdict)] }),
    }
}
