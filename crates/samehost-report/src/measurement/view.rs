//! Queries that the renderers for people share: points, varying parameters, values of arms. Computes no
//! statistics besides medians and means.

use std::collections::BTreeSet;

use samehost_analysis::{Group, distinct, group};
use samehost_model::{Arm, Comparison, MetricInfo, Point, Report, Transport, Trial};
use serde::Serialize;

use samehost_model::printable::clean;

/// Trials of an arm that enter comparisons, without controls.
pub(crate) fn trials<'a>(report: &'a Report, arm: &'a str) -> impl Iterator<Item = &'a Trial> {
    report.trials.iter().filter(move |s| s.arm == arm && !s.control && s.counts())
}

pub(crate) fn values(report: &Report, arm: &str, read: impl Fn(&Trial) -> Option<f64>) -> Vec<f64> {
    trials(report, arm).filter_map(read).filter(|value| value.is_finite()).collect()
}

pub(crate) fn median(report: &Report, arm: &str, read: impl Fn(&Trial) -> Option<f64>) -> Option<f64> {
    samehost_stats::median(&values(report, arm, read))
}

/// A metric's value over an arm's trials: the median. Of a share that not all trials have it is the mean: where only few
/// lose anything, the median would hide it.
pub(crate) fn typical(report: &Report, arm: &str, metric: &MetricInfo) -> Option<f64> {
    let values = values(report, arm, |trial| metric.value(trial));
    if metric.is_share() && values.contains(&0.0) {
        return Some(values.iter().sum::<f64>() / values.len() as f64);
    }
    samehost_stats::median(&values)
}

/// The name of an arm without its point.
pub(crate) fn arm_name(report: &Report, id: &str) -> String {
    match report.arm(id) {
        Some(arm) => clean(&arm.name),
        None => clean(id),
    }
}

/// Noise floor of a metric at a point, as a fraction.
pub(crate) fn noise_floor(report: &Report, point: &Point, metric: &str) -> Option<f64> {
    let mut controls = report.analysis.controls.iter();
    let floor = controls.find(|control| control.point == *point && control.metric == metric)?.noise_floor?;
    if floor.is_finite() { Some(floor) } else { None }
}

pub(crate) fn ends(values: &[f64]) -> Option<(f64, f64)> {
    let smallest = values.iter().copied().reduce(f64::min)?;
    let largest = values.iter().copied().reduce(f64::max)?;
    Some((smallest, largest))
}

/// The name that a value has in JSON, such as `client_bound` for a code; empty for what is not written as a text.
pub(crate) fn json_name(name: impl Serialize) -> String {
    match serde_json::to_value(name) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

pub(crate) fn own_parameters(point: &Point) -> String {
    let each = point.parameters.iter().map(|(name, value)| format!("{}={}", clean(name), clean(value)));
    each.collect::<Vec<_>>().join(";")
}

pub(crate) struct View<'a> {
    pub(crate) report: &'a Report,
    /// One for each point, in the report's order.
    pub(crate) groups: Vec<Group<'a>>,
    /// Those whose value is not the same at all points; a point is named by them.
    pub(crate) varying: Vec<Parameter>,
}

/// Whether points with as many connections have the same placement.
fn placement_follows(points: &[&Point]) -> bool {
    points.iter().all(|one| {
        points.iter().all(|other| one.connections != other.connections || one.placement == other.placement)
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    Connections,
    Rate,
    Size,
    Placement,
    Own(String),
}

impl Parameter {
    pub(crate) fn title(&self) -> String {
        match self {
            Parameter::Connections => "connections".to_owned(),
            Parameter::Rate => "rate".to_owned(),
            Parameter::Size => "size".to_owned(),
            Parameter::Placement => "placement".to_owned(),
            Parameter::Own(name) => clean(name).replace('_', " "),
        }
    }

    pub(crate) fn value(&self, point: &Point) -> String {
        match self {
            Parameter::Connections => samehost_model::human::count(u64::from(point.connections)),
            Parameter::Rate => match point.rate_per_s {
                Some(rate) => samehost_model::human::format_rate(rate),
                None => "closed".to_owned(),
            },
            Parameter::Size => match point.size_bytes {
                Some(bytes) => samehost_model::human::format_size(bytes),
                None => String::new(),
            },
            Parameter::Placement => point.placement.to_string(),
            Parameter::Own(name) => match point.parameters.get(name) {
                Some(value) => clean(value),
                None => String::new(),
            },
        }
    }

    /// Value at a point, as words in a sentence: `64 connections`.
    pub(crate) fn phrase(&self, point: &Point) -> String {
        let value = self.value(point);
        match self {
            Parameter::Connections if point.connections == 1 => "1 connection".to_owned(),
            Parameter::Connections => format!("{value} connections"),
            Parameter::Rate if point.rate_per_s.is_none() => "closed loop".to_owned(),
            Parameter::Rate | Parameter::Size | Parameter::Placement => value,
            Parameter::Own(_) => format!("{} {value}", self.title()),
        }
    }
}

impl<'a> View<'a> {
    pub(crate) fn of(report: &'a Report) -> Self {
        let groups = group(&report.head.arms);
        let points: Vec<&Point> = groups.iter().map(|group| &group.baseline.point).collect();
        let mut varying = vec![Parameter::Connections, Parameter::Rate, Parameter::Size];
        // A placement that follows from the number of connections is described once, in the head.
        if !placement_follows(&points) {
            varying.push(Parameter::Placement);
        }
        let own: BTreeSet<&String> = points.iter().flat_map(|point| point.parameters.keys()).collect();
        varying.extend(own.into_iter().cloned().map(Parameter::Own));
        varying.retain(|parameter| {
            points.windows(2).any(|two| parameter.value(two[0]) != parameter.value(two[1]))
        });
        View { report, groups, varying }
    }

    pub(crate) fn is_sweep(&self) -> bool {
        self.groups.len() > 1
    }

    pub(crate) fn single(&self) -> Option<&Group<'a>> {
        match self.groups.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The point in words: `64 connections, 128 B`.
    pub(crate) fn point(&self, point: &Point) -> String {
        self.varying.iter().map(|parameter| parameter.phrase(point)).collect::<Vec<_>>().join(", ")
    }

    /// What a set of arms has in common that differ in a factor: the point in words, without the factors.
    pub(crate) fn point_of_factors(&self, point: &Point) -> String {
        let common = self.varying.iter().filter(|parameter| match parameter {
            Parameter::Own(name) => point.parameters.contains_key(name),
            _ => true,
        });
        common.map(|parameter| parameter.phrase(point)).collect::<Vec<_>>().join(", ")
    }

    /// The point in words, without a parameter that the sentence already names.
    pub(crate) fn point_but(&self, named: &Parameter, point: &Point) -> String {
        let others = self.varying.iter().filter(|parameter| *parameter != named);
        others.map(|parameter| parameter.phrase(point)).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn candidates(&self) -> Vec<String> {
        let candidates = self.groups.iter().flat_map(|group| &group.candidates);
        distinct(candidates.map(|arm| self.name(&arm.id)))
    }

    /// The name of the first point's baseline; empty without one.
    pub(crate) fn base_name(&self) -> String {
        match self.groups.first() {
            Some(group) => self.name(&group.baseline.id),
            None => String::new(),
        }
    }

    pub(crate) fn comparisons(&self, metric: &str, name: &str) -> impl Iterator<Item = &'a Comparison> {
        let all = self.report.analysis.comparisons.iter();
        all.filter(move |c| c.metric == metric && self.name(&c.candidate) == name)
    }

    pub(crate) fn name(&self, id: &str) -> String {
        arm_name(self.report, id)
    }

    pub(crate) fn arm_names(&self) -> Vec<String> {
        let bases = self.groups.iter().map(|group| self.name(&group.baseline.id));
        distinct(bases.chain(self.candidates()))
    }

    pub(crate) fn arms(&self, name: &str) -> impl Iterator<Item = &'a Arm> {
        let arms = self.groups.iter().flat_map(Group::arms);
        arms.filter(move |arm| clean(&arm.name) == name)
    }

    pub(crate) fn medians(&self, name: &str, read: impl Fn(&Trial) -> Option<f64>) -> Vec<f64> {
        self.arms(name).filter_map(|arm| median(self.report, &arm.id, &read)).collect()
    }

    pub(crate) fn typicals(&self, name: &str, metric: &MetricInfo) -> Vec<f64> {
        self.arms(name).filter_map(|arm| typical(self.report, &arm.id, metric)).collect()
    }

    pub(crate) fn noop(&self) -> impl Iterator<Item = &'a Arm> {
        self.report.head.arms.iter().filter(|arm| arm.transport == Transport::None)
    }

    pub(crate) fn comparison(&self, metric: &str, candidate: &str) -> Option<&'a Comparison> {
        self.report.analysis.comparisons.iter().find(|c| c.metric == metric && c.candidate == candidate)
    }

    /// Metrics, the most important first.
    pub(crate) fn metrics(&self) -> &'a [MetricInfo] {
        &self.report.head.workload.metrics
    }

    pub(crate) fn metric(&self, name: &str) -> Option<&'a MetricInfo> {
        self.metrics().iter().find(|metric| metric.name == name)
    }
}
