//! Compares two stored reports, and two looks at an application's requests before and after a switch.
//!
//! Trials of two reports cannot be paired, so this is a two-sample analysis. Differences between the two
//! measurements (a reboot, a neighbour, a warm disk) are not part of either report's noise. The ratio of two
//! arms within each report is more robust, so its change is given as well. Looks at different hours have the
//! same rules and no such ratio: the interval says what differs between the looks, and `samehost run --trial`
//! what the transport does.

use samehost_model::switch::{NoOwnTimes, NotCompared, OwnRatio, OwnTimes, PageTimes};
use samehost_model::{Arm, Code, Comparison, Control, MetricInfo, Point, Report, Warning};
use samehost_stats::{Estimate, estimate_shift, median, serial, side_of};

use crate::comparison::{compare_controls, noise_floor};
use crate::family::{Ps, adjust_by_metric};
use crate::index::{Index, group};
use crate::issues::{Issue, bars, find_issues};
use crate::judge::{Terms, judge, of_estimate, warn_of_few_blocks};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    #[error(
        "the reports have no arm in common: the first has {old}, the second {new}; measure the same arms twice"
    )]
    NoArm { old: String, new: String },
    #[error("the reports have no metric in common: the first has {old}, the second {new}")]
    NoMetric { old: String, new: String },
    #[error("no common arm has a usable value in both reports: were their trials finished?")]
    NoValue,
    #[error(
        "both are the same measurement, begun at {begun} with the seed {seed}: nothing can have changed; name one made at another time"
    )]
    Same { begun: String, seed: u64 },
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Changes {
    /// Second report ÷ first, by arm and metric; `baseline` and `candidate` are the same arm's id.
    pub arms: Vec<Comparison>,
    /// Change of the ratio candidate ÷ baseline. Ids have the form `unix ÷ tcp`, and the values are ratios.
    pub ratios: Vec<Comparison>,
    pub warnings: Vec<Warning>,
}

/// Compares two reports of the same workload: second ÷ first, for each arm and for each ratio of two arms.
///
/// The shift of the logarithms is estimated as of two independent samples (Hodges–Lehmann, exact Mann–Whitney interval
/// where blocks suffice, else Welch's t), and each metric's questions are a family with Holm's adjustment at 5 %. Nothing
/// is paired between reports, so three things are added for an arm: its interval is widened by how much successive trials
/// resemble each other, and a change must exceed the margin or, where that is larger, the larger of both noise floors and
/// what the arm moved inside of each report (docs/method.md §11).
///
/// # Errors
/// Where the reports have no arm, no metric or no usable value in common, or are the same measurement.
pub fn compare(old: &Report, new: &Report) -> Result<Changes, CompareError> {
    // Not by the file: a copy, and a report rendered again, are the same measurement too.
    let (before, after) = (&old.head, &new.head);
    let begun_together =
        !before.started_at.is_empty() && (&before.started_at, before.seed) == (&after.started_at, after.seed);
    if begun_together && old.trials == new.trials {
        return Err(CompareError::Same { begun: before.started_at.clone(), seed: before.seed });
    }
    let arms: Vec<&Arm> = new.head.arms.iter().filter(|arm| old.arm(&arm.id).is_some()).collect();
    if arms.is_empty() {
        return Err(CompareError::NoArm { old: arm_ids(old), new: arm_ids(new) });
    }
    let metrics: Vec<&MetricInfo> = new
        .head
        .workload
        .metrics
        .iter()
        .filter(|metric| old.head.workload.metrics.iter().any(|m| m.name == metric.name))
        .collect();
    if metrics.is_empty() {
        return Err(CompareError::NoMetric { old: metric_names(old), new: metric_names(new) });
    }
    let sides = Sides::of(old, new);
    let mut changes = Changes {
        arms: sides.conclude(&sides.arm_cases(&arms, &metrics)),
        ratios: sides.conclude(&sides.ratio_cases(&metrics)),
        warnings: differences(old, new),
    };
    if changes.arms.is_empty() {
        return Err(CompareError::NoValue);
    }
    changes.warnings.push(Warning::new(
        Code::Note,
        "",
        "what differs from one measurement to the next is not in the noise of either report: repeat both in turn before believing a small change; the change of a ratio is safer than that of an arm",
    ));
    Ok(changes)
}

fn arm_ids(report: &Report) -> String {
    report.head.arms.iter().map(|arm| arm.id.as_str()).collect::<Vec<_>>().join(", ")
}

fn metric_names(report: &Report) -> String {
    report.head.workload.metrics.iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Both reports with what every comparison of them needs; arrays have the old one first.
struct Sides<'a> {
    old: &'a Report,
    new: &'a Report,
    indices: [Index<'a>; 2],
    controls: [Vec<Control>; 2],
    issues: Vec<Issue>,
}

struct Tried<'a> {
    metric: &'a MetricInfo,
    point: &'a Point,
    label: String,
    /// Arms whose issues affect it.
    ids: Vec<&'a str>,
    estimate: Estimate,
    old_value: f64,
    new_value: f64,
    /// What a change must exceed: the margin, or the machine's own variation if that is larger.
    limit: f64,
    /// Factor by which the interval was widened for autocorrelation of trials.
    widening: f64,
}

impl<'a> Sides<'a> {
    fn of(old: &'a Report, new: &'a Report) -> Self {
        let indices = [old, new].map(Index::of_report);
        let mut issues = Vec::new();
        for (name, report, index) in [("first", old, &indices[0]), ("second", new, &indices[1])] {
            for mut issue in find_issues(report, index) {
                issue.warning.message = format!("{name} report: {}", issue.warning.message);
                issues.push(issue);
            }
        }
        let controls = [compare_controls(old, &indices[0]), compare_controls(new, &indices[1])];
        Sides { old, new, indices, controls, issues }
    }

    /// The larger of the two reports' noise floors for an arm's point; `None` where neither has a control.
    fn noise_floor(&self, id: &str, metric: &MetricInfo) -> Option<f64> {
        let mut floors = Vec::new();
        for (report, controls) in [(self.old, &self.controls[0]), (self.new, &self.controls[1])] {
            let Some(arm) = report.arm(id) else { continue };
            floors.extend(noise_floor(controls, &arm.point, metric));
        }
        floors.into_iter().max_by(f64::total_cmp)
    }

    fn arm_cases(&self, arms: &[&'a Arm], metrics: &[&'a MetricInfo]) -> Vec<Tried<'a>> {
        let mut cases = Vec::new();
        for arm in arms {
            for metric in metrics {
                let noise_floor = self.noise_floor(&arm.id, metric);
                cases.extend(self.tried(&arm.id, metric, &arm.point, vec![&arm.id], noise_floor, |index| {
                    index.values(metric, &arm.id).into_values().map(f64::ln).collect()
                }));
            }
        }
        cases
    }

    fn ratio_cases(&self, metrics: &[&'a MetricInfo]) -> Vec<Tried<'a>> {
        let mut cases = Vec::new();
        for group in group(&self.new.head.arms) {
            let baseline = group.baseline;
            for candidate in &group.candidates {
                for metric in metrics {
                    let label = format!("{} ÷ {}", candidate.id, baseline.id);
                    let ids = vec![baseline.id.as_str(), candidate.id.as_str()];
                    let noise_floor = self.noise_floor(&baseline.id, metric);
                    cases.extend(self.tried(&label, metric, &baseline.point, ids, noise_floor, |index| {
                        index.plain_pairs(metric, &baseline.id, &candidate.id).log_ratios()
                    }));
                }
            }
        }
        cases
    }

    fn tried(
        &self,
        label: &str,
        metric: &'a MetricInfo,
        point: &'a Point,
        ids: Vec<&'a str>,
        noise_floor: Option<f64>,
        take: impl Fn(&Index<'_>) -> Vec<f64>,
    ) -> Option<Tried<'a>> {
        let (before, after) = (take(&self.indices[0]), take(&self.indices[1]));
        let plan = &self.new.head.plan;
        // Drift affects all trials of an arm and does not cancel without pairing. The interval is widened for
        // it, and the arm's movement within a report is added to the noise floor.
        let is_paired = ids.len() > 1;
        let (mut widening, mut floor) = (1.0, 1.0 + noise_floor.unwrap_or(0.0));
        if !is_paired {
            widening = serial::widening(&before, &after);
            for values in [&before, &after] {
                floor *= 1.0 + serial::movement(values).unwrap_or(0.0);
            }
        }
        let limit = plan.margin.max(floor - 1.0);
        let estimate = estimate_shift(&before, &after, plan.confidence)?.widened(widening, plan.confidence);
        // The p-value of "inside the limit" is that of the values moved by the limit towards 0.
        let side = side_of(&estimate);
        let moved: Vec<f64> = after.iter().map(|value| value - side * limit.ln_1p()).collect();
        let shifted = estimate_shift(&before, &moved, plan.confidence);
        let shifted = shifted.map(|estimate| estimate.widened(widening, plan.confidence));
        Some(Tried {
            metric,
            point,
            label: label.to_owned(),
            ids,
            estimate: estimate.with_shifted(side, shifted),
            old_value: median(&before)?.exp(),
            new_value: median(&after)?.exp(),
            limit,
            widening,
        })
    }

    fn conclude(&self, cases: &[Tried<'a>]) -> Vec<Comparison> {
        let names: Vec<&str> = cases.iter().map(|tried| tried.metric.name.as_str()).collect();
        let questions: Vec<Ps> = cases.iter().map(|tried| Ps::of(&tried.estimate)).collect();
        let adjusted = adjust_by_metric(&names, &questions);
        cases.iter().zip(adjusted).map(|(tried, ps)| self.judge(tried, ps)).collect()
    }

    fn judge(&self, tried: &Tried<'a>, adjusted: Ps) -> Comparison {
        let bars = bars(&self.issues, &tried.ids, tried.metric);
        let bar = bars.first().cloned();
        let mut warnings = bars;
        let plan = &self.new.head.plan;
        let terms = Terms { limit: tried.limit, ..Terms::of(plan, None) };
        warnings.extend(warn_of_few_blocks(tried.metric, tried.estimate.n));
        if tried.ids.len() == 1 && tried.widening > 1.25 {
            let message = format!(
                "successive trials of {} resemble each other: the interval is {:.1} times as wide for it",
                tried.label, tried.widening
            );
            warnings.push(Warning::new(Code::Drift, &tried.label, message));
        }
        let mut comparison = Comparison {
            point: tried.point.clone(),
            metric: tried.metric.name.clone(),
            baseline: tried.label.clone(),
            candidate: tried.label.clone(),
            baseline_value: tried.old_value,
            candidate_value: tried.new_value,
            p_adjusted: adjusted.same,
            p_margin_adjusted: adjusted.inside,
            warnings,
            ..of_estimate(&tried.estimate, plan.confidence)
        };
        judge(&mut comparison, tried.metric, &terms, bar.as_ref());
        comparison
    }
}

/// What should be the same in two reports that are compared: its name as it is shown, and its value in this one.
fn circumstances(report: &Report) -> [(&'static str, String); 11] {
    let host = &report.head.host;
    let parameters = report.head.workload.parameters.iter().map(|(key, value)| format!("{key}={value}"));
    let server = &report.head.workload.server;
    [
        ("kernel", host.kernel.clone()),
        ("CPU", host.cpu_model.clone()),
        ("number of CPUs", host.cpus.to_string()),
        ("number of allowed CPUs", host.cpus_allowed.to_string()),
        ("virtualization", host.virtualization.clone()),
        ("version of samehost", report.head.samehost_version.clone()),
        ("workload", report.head.workload.name.clone()),
        ("workload parameters", parameters.collect::<Vec<_>>().join(" ")),
        ("server", format!("{} {}", server.kind, server.version)),
        ("way of driving", driven(report)),
        ("trial time", report.head.plan.trial_s.map_or_else(|| "none".into(), |s| format!("{s} s"))),
    ]
}

/// Slices or trials, and whether CPUs were kept awake; empty in reports that do not contain it.
fn driven(report: &Report) -> String {
    let mut all: Vec<String> = Vec::new();
    for driven in &report.head.plan.driven {
        all.push(match driven.slice_s {
            Some(slice) => format!("slices of {:.1} ms", 1e3 * slice),
            None => "trials".to_owned(),
        });
    }
    all.dedup();
    if report.head.plan.awake.is_some() {
        all.push("CPUs kept awake".to_owned());
    }
    all.join(", ")
}

fn differences(old: &Report, new: &Report) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for ((what, before), (_, after)) in circumstances(old).into_iter().zip(circumstances(new)) {
        if before != after {
            let message = format!("the {what} differs: `{before}` then, `{after}` now");
            warnings.push(Warning::new(Code::HostDiffers, what, message));
        }
    }
    for arm in &new.head.arms {
        let Some(before) = old.arm(&arm.id) else { continue };
        if before.point != arm.point || before.transport != arm.transport || before.tls != arm.tls {
            let message =
                format!("arm {} has another transport, encryption or point in the two reports", arm.id);
            warnings.push(Warning::new(Code::HostDiffers, &arm.id, message));
        }
    }
    warnings
}

const OF_LOOKS: f64 = 0.95;
/// Fewest blocks of a look at exchanges that are compared with those of another look.
/// A look has ten blocks of 300 ms, compared as two reports are: Hodges–Lehmann shift, exact Mann–Whitney
/// interval, widened by how alike successive blocks are. Fewer than six say nothing of their scatter. The
/// interval knows nothing of how much hours differ, for two looks have one difference between them; so
/// that is said each time, with a trial as what could tell (docs/method.md §14).
const FEWEST_BLOCKS: usize = 6;

/// After ÷ before, from the typical block of each look, with an interval of 95 %.
///
/// # Errors
/// A look without times, looks whose times begin at different stamps, or fewer than six blocks in one.
pub fn compare_own_times(
    before: Result<&OwnTimes, NoOwnTimes>,
    after: Result<&OwnTimes, NoOwnTimes>,
) -> Result<OwnRatio, NotCompared> {
    let before = before.map_err(NotCompared::Before)?;
    let after = after.map_err(NotCompared::After)?;
    if before.mode != after.mode {
        return Err(NotCompared::OtherStamps);
    }
    let [first, second] = [logarithms(&before.blocks_us), logarithms(&after.blocks_us)];
    if first.len().min(second.len()) < FEWEST_BLOCKS {
        return Err(NotCompared::FewBlocks);
    }
    compare_looks(&first, &second).ok_or(NotCompared::FewBlocks)
}

/// The same of a page. One that became slow has few requests in its look, and is compared: its owner has to be told.
#[must_use]
pub fn compare_page_times(before: &PageTimes, after: &PageTimes) -> Option<OwnRatio> {
    compare_looks(&logarithms(&before.blocks_ms), &logarithms(&after.blocks_ms))
}

fn compare_looks(first: &[f64], second: &[f64]) -> Option<OwnRatio> {
    let estimate = estimate_shift(first, second, OF_LOOKS)?;
    let estimate = estimate.widened(serial::widening(first, second), OF_LOOKS);
    let interval = estimate.interval?;
    Some(OwnRatio { ratio: estimate.ratio, low: interval.low, high: interval.high })
}

fn logarithms(blocks: &[f64]) -> Vec<f64> {
    blocks.iter().filter(|time| **time > 0.0).map(|time| time.ln()).collect()
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{ExchangeMode, NoTime};
    use samehost_model::switch::NoTraffic;

    use super::*;

    fn look(blocks_us: &[f64]) -> OwnTimes {
        OwnTimes {
            at: "2026-11-26T10:00:00Z".to_owned(),
            seconds: 3.0,
            mode: ExchangeMode::Entries,
            connections: 1,
            exchanges_per_s: 100.0,
            bytes_out: 30.0,
            bytes_back: 5.0,
            mean_us: 40.0,
            p50_us: 38.0,
            p99_us: None,
            hop_us: None,
            blocks_us: blocks_us.to_vec(),
        }
    }

    /// Ten blocks that scatter by some percent around a time.
    fn around(time_us: f64) -> Vec<f64> {
        [1.0, 0.98, 1.03, 0.99, 1.02, 1.01, 0.97, 1.0, 1.02, 0.98].map(|part| part * time_us).to_vec()
    }

    #[test]
    fn a_difference_beyond_the_scatter_of_blocks_is_in_the_interval() {
        let before = look(&around(40.0));
        for (time_us, is_below_1) in [(30.0, true), (40.4, false)] {
            let after = look(&around(time_us));
            let found = compare_own_times(Ok(&before), Ok(&after)).unwrap();
            assert_eq!(found.high < 1.0, is_below_1, "{found:?}");
            assert!(found.low <= found.ratio && found.ratio <= found.high);
        }
    }

    #[test]
    fn blocks_that_drift_make_a_wide_interval() {
        let steady = compare_own_times(Ok(&look(&around(40.0))), Ok(&look(&around(36.0)))).unwrap();
        let mut drifting = around(36.0);
        drifting.sort_by(f64::total_cmp);
        let drifts = compare_own_times(Ok(&look(&around(40.0))), Ok(&look(&drifting))).unwrap();
        assert!(drifts.high / drifts.low > steady.high / steady.low, "{drifts:?} {steady:?}");
    }

    #[test]
    fn what_is_not_compared_has_a_reason() {
        fn reason(
            before: Result<&OwnTimes, NoOwnTimes>,
            after: Result<&OwnTimes, NoOwnTimes>,
        ) -> NotCompared {
            compare_own_times(before, after).unwrap_err()
        }
        let times = look(&around(40.0));
        let silent = NoOwnTimes::Traffic(NoTraffic::NoExchange);
        let piped = NoOwnTimes::NoTime(NoTime::Overlapping);
        assert_eq!(reason(Err(silent), Err(piped)), NotCompared::Before(silent));
        assert_eq!(reason(Ok(&times), Err(piped)), NotCompared::After(piped));
        let few = look(&[40.0; 5]);
        assert_eq!(reason(Ok(&times), Ok(&few)), NotCompared::FewBlocks);
        let stamped = OwnTimes { mode: ExchangeMode::SystemCalls, ..times.clone() };
        assert_eq!(reason(Ok(&times), Ok(&stamped)), NotCompared::OtherStamps);
    }
}
