//! A report's trials, grouped once: by point, by arm and by block. Every rule reads from here.

use std::collections::{BTreeMap, HashMap};

use samehost_model::{Arm, MetricInfo, Report, Transport, Trial};
use samehost_stats::median;

#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The point's first arm in the report's order.
    pub baseline: &'a Arm,
    pub candidates: Vec<&'a Arm>,
}

impl<'a> Group<'a> {
    /// The baseline first.
    pub fn arms(&self) -> impl Iterator<Item = &'a Arm> {
        std::iter::once(self.baseline).chain(self.candidates.iter().copied())
    }
}

/// The arms grouped by point, in the report's order. The harness's own arm (no transport) is not compared.
#[must_use]
pub fn group(arms: &[Arm]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for arm in arms.iter().filter(|arm| arm.transport != Transport::None) {
        match groups.iter_mut().find(|group| group.baseline.point == arm.point) {
            Some(group) => group.candidates.push(arm),
            None => groups.push(Group { baseline: arm, candidates: Vec::new() }),
        }
    }
    groups
}

/// The values in their order, each once.
#[must_use]
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// An arm with its trials, controls included: they are the same arm.
pub struct ArmTrials<'a> {
    pub arm: &'a Arm,
    /// Trials that were not measured again.
    pub kept: Vec<&'a Trial>,
    /// Those of them that enter comparisons.
    pub counted: Vec<&'a Trial>,
    /// The last of these in each block.
    own: BTreeMap<u32, &'a Trial>,
    /// The same for the arm's second trial in each block (A/A).
    control: BTreeMap<u32, &'a Trial>,
}

impl<'a> ArmTrials<'a> {
    fn new(arm: &'a Arm) -> Self {
        ArmTrials {
            arm,
            kept: Vec::new(),
            counted: Vec::new(),
            own: BTreeMap::new(),
            control: BTreeMap::new(),
        }
    }

    fn add(&mut self, trial: &'a Trial) {
        if !trial.set_aside {
            self.kept.push(trial);
        }
        if trial.counts() {
            self.counted.push(trial);
            let blocks = if trial.control { &mut self.control } else { &mut self.own };
            blocks.insert(trial.block, trial);
        }
    }

    /// A value of each counted trial that has it.
    pub(crate) fn read(&self, read: impl Fn(&Trial) -> Option<f64>) -> Vec<f64> {
        self.counted.iter().filter_map(|trial| read(trial)).filter(|value| value.is_finite()).collect()
    }

    pub(crate) fn median(&self, read: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
        median(&self.read(read))
    }

    /// A metric's value in each block, where it is a positive number. A block without one is left out, never filled in.
    #[must_use]
    pub fn values(&self, metric: &MetricInfo) -> BTreeMap<u32, f64> {
        values(&self.own, metric)
    }

    /// As [`ArmTrials::values`]; where the arm ran twice in a block, the geometric mean of both.
    fn levels(&self, metric: &MetricInfo) -> BTreeMap<u32, f64> {
        let again = values(&self.control, metric);
        let mut levels = self.values(metric);
        for (block, value) in &mut levels {
            if let Some(again) = again.get(block) {
                *value = (*value * again).sqrt();
            }
        }
        levels
    }

    /// Whether it is a share that was 0 in some trial. The blocks with another value alone would show a ratio of the
    /// worst ones.
    fn has_no_ratio(&self, metric: &MetricInfo) -> bool {
        metric.is_share() && self.counted.iter().any(|trial| metric.value(trial) == Some(0.0))
    }
}

fn values(blocks: &BTreeMap<u32, &Trial>, metric: &MetricInfo) -> BTreeMap<u32, f64> {
    let mut values = BTreeMap::new();
    for (block, trial) in blocks {
        let Some(value) = metric.value(trial) else { continue };
        if value.is_finite() && value > 0.0 {
            values.insert(*block, value);
        }
    }
    values
}

/// Values of two sides in the blocks that have both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs {
    /// The denominator, a block each.
    pub baseline: Vec<f64>,
    /// The numerator, a block each.
    pub candidate: Vec<f64>,
    /// The start of the server that each block was measured on.
    pub starts: Vec<Option<u32>>,
}

impl Pairs {
    /// ln(candidate ÷ baseline), a block each: d of docs/method.md §2, from which every estimate and test is made. On the
    /// log scale a doubling and a halving are equally far from no difference.
    #[must_use]
    pub fn log_ratios(&self) -> Vec<f64> {
        self.candidate.iter().zip(&self.baseline).map(|(c, b)| (c / b).ln()).collect()
    }
}

pub struct Index<'a> {
    pub groups: Vec<Group<'a>>,
    /// Every arm, in the report's order.
    pub arms: Vec<ArmTrials<'a>>,
}

impl<'a> Index<'a> {
    /// Groups trials by their arms; a trial of another arm is left out.
    #[must_use]
    pub fn of(arms: &'a [Arm], trials: &'a [Trial]) -> Self {
        let places: HashMap<&str, usize> =
            arms.iter().enumerate().map(|(place, arm)| (arm.id.as_str(), place)).collect();
        let mut by_arm: Vec<ArmTrials<'a>> = arms.iter().map(ArmTrials::new).collect();
        for trial in trials {
            if let Some(place) = places.get(trial.arm.as_str()) {
                by_arm[*place].add(trial);
            }
        }
        Index { groups: group(arms), arms: by_arm }
    }

    #[must_use]
    pub fn of_report(report: &'a Report) -> Self {
        Index::of(&report.head.arms, &report.trials)
    }

    #[must_use]
    pub fn arm(&self, id: &str) -> Option<&ArmTrials<'a>> {
        self.arms.iter().find(|trials| trials.arm.id == id)
    }

    /// A metric's value in each block of an arm; empty for an arm that is unknown.
    #[must_use]
    pub fn values(&self, metric: &MetricInfo, arm: &str) -> BTreeMap<u32, f64> {
        self.arm(arm).map(|trials| trials.values(metric)).unwrap_or_default()
    }

    /// Two arms; `None` if one is unknown, or if this metric has no ratio between them.
    fn two(
        &self,
        metric: &MetricInfo,
        baseline: &str,
        candidate: &str,
    ) -> Option<(&ArmTrials<'a>, &ArmTrials<'a>)> {
        let (baseline, candidate) = (self.arm(baseline)?, self.arm(candidate)?);
        if baseline.has_no_ratio(metric) || candidate.has_no_ratio(metric) {
            return None;
        }
        Some((baseline, candidate))
    }

    /// Two arms block by block. An arm that ran twice in a block, such as the baseline with its control, has the geometric
    /// mean of both: the control is measured anyway, and a quarter of the variance goes.
    #[must_use]
    pub fn pairs(&self, metric: &MetricInfo, baseline: &str, candidate: &str) -> Pairs {
        let Some((below, above)) = self.two(metric, baseline, candidate) else { return Pairs::default() };
        pair(&below.levels(metric), &above.levels(metric), &above.own)
    }

    /// Two arms block by block, each with its first trial of a block alone.
    pub(crate) fn plain_pairs(&self, metric: &MetricInfo, baseline: &str, candidate: &str) -> Pairs {
        let Some((below, above)) = self.two(metric, baseline, candidate) else { return Pairs::default() };
        pair(&below.values(metric), &above.values(metric), &above.own)
    }

    /// An arm against its own control (A/A).
    pub(crate) fn control_pairs(&self, metric: &MetricInfo, arm: &str) -> Pairs {
        match self.arm(arm) {
            Some(arm) if !arm.has_no_ratio(metric) => {
                pair(&arm.values(metric), &values(&arm.control, metric), &arm.control)
            }
            _ => Pairs::default(),
        }
    }
}

/// The blocks that both sides have; `trials` tell on which start of the server each was measured.
fn pair(below: &BTreeMap<u32, f64>, above: &BTreeMap<u32, f64>, trials: &BTreeMap<u32, &Trial>) -> Pairs {
    let mut pairs = Pairs::default();
    for (block, value) in above {
        let Some(base) = below.get(block) else { continue };
        pairs.baseline.push(*base);
        pairs.candidate.push(*value);
        pairs.starts.push(match trials.get(block) {
            Some(trial) => trial.server_start,
            None => None,
        });
    }
    pairs
}

#[cfg(test)]
mod tests {
    use samehost_model::{Better, Point};

    use super::*;

    fn arm(id: &str) -> Arm {
        Arm {
            id: id.into(),
            name: id.into(),
            transport: Transport::Udp,
            endpoint: None,
            tls: false,
            capacity_per_s: None,
            point: Point::default(),
        }
    }

    fn lost(arm: &str, shares: [f64; 3]) -> Vec<Trial> {
        let mut trials = Vec::new();
        for (block, share) in (0..).zip(shares) {
            let measurements = [("lost_percent".to_owned(), share)].into();
            trials.push(Trial { arm: arm.into(), block, measurements, ..Trial::default() });
        }
        trials
    }

    #[test]
    fn a_share_that_is_0_in_any_trial_has_no_ratio() {
        fn pairs(a: [f64; 3], b: [f64; 3]) -> usize {
            let arms = [arm("a"), arm("b")];
            let metric = MetricInfo::own("lost_percent", "percent", Better::Lower);
            let trials = [lost("a", a), lost("b", b)].concat();
            Index::of(&arms, &trials).pairs(&metric, "a", "b").log_ratios().len()
        }
        assert_eq!(pairs([5.0, 7.0, 9.0], [1.0, 2.0, 3.0]), 3);
        assert_eq!(pairs([5.0, 7.0, 9.0], [0.0, 2.0, 3.0]), 0);
        assert_eq!(pairs([5.0, 0.0, 9.0], [1.0, 2.0, 3.0]), 0);
    }
}
