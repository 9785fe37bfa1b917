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
    if left_s < *TURN.start() {
        return None;
    }
    let mut least: Option<(usize, f64)> = None;
    for (place, (published, experiment, turns)) in all.iter().enumerate() {
        if *turns >= MOST_TURNS {
            continue;
        }
        let Some(seconds) = needs_s(published, experiment) else { continue };
        let seconds = seconds.clamp(*TURN.start(), *TURN.end());
        if least.is_none_or(|(_, fewest)| seconds < fewest) {
            least = Some((place, seconds));
        }
    }
    let (place, seconds) = least?;
    Some((place, seconds.min(left_s)))
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
    let mut rows = Vec::new();
    for (place, found) in report.analysis.comparisons.iter().enumerate() {
        if is_tcp_to_unix(found, report) && claims.iter().any(|claim| asks(claim, found)) {
            rows.push(place);
        }
    }
    rows
}

/// Whether a comparison is of a Unix socket with TCP.
pub fn is_tcp_to_unix(found: &Comparison, report: &Report) -> bool {
    let (Some(from), Some(to)) = (report.arm(&found.baseline), report.arm(&found.candidate)) else {
        return false;
    };
    from.transport == Transport::Tcp && to.transport == Transport::Unix
}

/// Whether a claim about both transports is about the metric and the point of a comparison.
fn asks(claim: &Claim, found: &Comparison) -> bool {
    match claim.find {
        Find::Transports { metric, at } => found.metric == metric && at.is(&found.point),
        Find::Peak { metric } | Find::EveryPoint { metric } => found.metric == metric,
        Find::Between { .. } | Find::Points { .. } | Find::Share { .. } | Find::Works | Find::Busy => false,
    }
}

/// Seconds that would decide the open claim that needs the least. `None` where no claim is open.
fn needs_s(published: &Published, experiment: &Experiment) -> Option<f64> {
    if experiment.state != ExperimentState::Measured || !experiment.claims.iter().any(is_open) {
        return None;
    }
    let mut least: Option<f64> = None;
    let mut measured_s = 0.0;
    for measurement in &experiment.measurements {
        let report = &measurement.report;
        measured_s += report.trials.iter().map(|trial| trial.seconds).sum::<f64>();
        let rows = rows(published.claims, report);
        let needed = least_s(rows.into_iter().map(|row| &report.analysis.comparisons[row]));
        least = shorter(least, needed);
    }
    // A claim about a size may be open although its comparisons are decided; it gets half as much time again.
    if experiment.claims.iter().any(|claim| is_open(claim) && is_about_size(claim)) {
        least = shorter(least, Some(0.5 * AROUND * measured_s));
    }
    least
}

fn is_open(claim: &ClaimOutcome) -> bool {
    claim.judgement == Judgement::CannotTell
}

fn is_about_size(claim: &ClaimOutcome) -> bool {
    matches!(claim.expected, Expected::Same | Expected::AtLeast { .. } | Expected::Value { .. })
}

/// The shorter of two times, either of which may be unknown.
fn shorter(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (known, None) | (None, known) => known,
    }
}
