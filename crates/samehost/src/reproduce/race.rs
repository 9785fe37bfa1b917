//! After every experiment has run once, gives the remaining time to open claims, those that need the least
//! first. Only schedules; does not measure.

use samehost_model::{
    ClaimOutcome, Comparison, Expected, Experiment, ExperimentState, Judgement, Question, Report, Transport,
};

use super::published::{Claim, Find, Published};
use crate::needed::{AROUND, least_s};

/// Maximum turns of an experiment.
pub const MOST_TURNS: u32 = 5;
/// Shortest and longest turn in seconds, without server starts.
const TURN: std::ops::RangeInclusive<f64> = 4.0..=60.0;

/// Index of the next experiment and its time in seconds: the one whose open claims need the least. `None` if
/// no claim can be decided in reasonable time, or no time is left.
pub fn next(all: &[(&Published, &Experiment, u32)], left_s: f64) -> Option<(usize, f64)> {
    let open = all.iter().enumerate().filter(|(_, (_, _, turns))| *turns < MOST_TURNS);
    let needs = open.filter_map(|(place, (published, experiment, _))| {
        Some((place, needs_s(published, experiment)?.clamp(*TURN.start(), *TURN.end())))
    });
    let (place, seconds) = needs.min_by(|a, b| a.1.total_cmp(&b.1))?;
    (left_s >= *TURN.start()).then_some((place, seconds.min(left_s)))
}

/// Questions that the claims ask of a measurement.
pub fn questions(claims: &[Claim]) -> Vec<Question> {
    let mut questions = Vec::new();
    for claim in claims {
        let (metric, connections) = match claim.find {
            Find::Transports { metric, at } | Find::Between { metric, at, .. } => (metric, at.connections),
            Find::Peak { metric } | Find::EveryPoint { metric } | Find::Points { metric, .. } => {
                (metric, None)
            }
            Find::Share { .. } | Find::Works | Find::Busy => continue,
        };
        questions.push(Question { metric: metric.to_owned(), connections });
    }
    questions
}

/// Indexes of the comparisons behind the claims, which form one family.
pub fn rows(claims: &[Claim], report: &Report) -> Vec<usize> {
    let is_asked = |found: &Comparison| {
        claims.iter().any(|claim| match claim.find {
            Find::Transports { metric, at } => found.metric == metric && at.is(&found.point),
            Find::Peak { metric } | Find::EveryPoint { metric } => found.metric == metric,
            Find::Between { .. } | Find::Points { .. } | Find::Share { .. } | Find::Works | Find::Busy => {
                false
            }
        })
    };
    let over = |id: &str, transport| report.arm(id).is_some_and(|arm| arm.transport == transport);
    let all = report.analysis.comparisons.iter().enumerate().filter(|(_, found)| {
        over(&found.baseline, Transport::Tcp) && over(&found.candidate, Transport::Unix) && is_asked(found)
    });
    all.map(|(place, _)| place).collect()
}

/// Seconds that would decide the open claim that needs the least.
fn needs_s(published: &Published, experiment: &Experiment) -> Option<f64> {
    let is_open = experiment.claims.iter().any(|claim| claim.judgement == Judgement::CannotTell);
    if experiment.state != ExperimentState::Measured || !is_open {
        return None;
    }
    let reports = || experiment.measurements.iter().map(|measurement| &measurement.report);
    let of_rows = |report: &Report| {
        least_s(rows(published.claims, report).into_iter().map(|row| &report.analysis.comparisons[row]))
    };
    // A claim about a size may be open although its comparisons are decided; it gets half as much time again.
    let of_size = |claim: &ClaimOutcome| {
        let sized =
            matches!(claim.expected, Expected::Same | Expected::AtLeast { .. } | Expected::Value { .. });
        claim.judgement == Judgement::CannotTell && sized
    };
    let trials = reports().flat_map(|report| &report.trials);
    let half = || 0.5 * AROUND * trials.map(|trial| trial.seconds).sum::<f64>();
    let of_size = experiment.claims.iter().any(of_size).then(half);
    reports().filter_map(of_rows).chain(of_size).min_by(f64::total_cmp)
}
