//! Ladders: the same arms at one level of the matrix and several open-loop rates, and the rate at which the
//! latency of each rises sharply.

use samehost_model::{Point, Report, Trial};
use samehost_stats::median;

use crate::index::{ArmTrials, Index};

/// Minimum number of rates at one level for a ladder.
const LEAST_RATES: usize = 4;
/// Latency takes off where p99 exceeds its smallest value on the ladder by this factor, there and at
/// every higher rate. A server with spare capacity keeps its p99 within a small factor over many rates;
/// near saturation the queue multiplies it. The smallest value is the reference and not the lowest
/// rate's, because an idle machine has to be woken for each request, so that latency often falls at
/// first. One disturbed step in the middle does not count. A knee is a description without an interval:
/// no verdict comes from it, and the table shows the factor at every step (docs/method.md §9).
pub const TAKES_OFF: f64 = 5.0;
/// A rate was not reached where the mean of what was completed lies below this part of it by more than so many standard
/// errors: the number of requests due in one trial is random.
const REACHED: f64 = 0.99;
const CHANCE: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState {
    /// All due requests were completed.
    Held,
    /// Fewer requests were completed than were due: the queue grew continuously, and latency with it.
    Saturated,
    /// Most of its trials are void because the generator fell short, or no trial was good.
    Void,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub arm: String,
    /// Requests due per second.
    pub rate_per_s: f64,
    /// Requests completed per second: median over trials.
    pub achieved_per_s: Option<f64>,
    /// Mean latency from the time when a request was due, in microseconds: median over trials.
    pub mean_us: Option<f64>,
    /// The same for the 99th percentile; of all trials pooled if single trials have too few requests for it.
    pub p99_us: Option<f64>,
    pub state: StepState,
}

/// Where latency rises sharply, by the indices of steps; `lowest` is the one with the smallest p99.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Knee {
    At {
        step: usize,
        lowest: usize,
    },
    NotReached {
        lowest: usize,
    },
    /// Fewer than two steps held their rate and have a p99.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    pub name: String,
    pub baseline: String,
    /// The point without its rate.
    pub level: Point,
    /// Operations per second of this transport in a closed loop; `None` if not measured.
    pub capacity_per_s: Option<f64>,
    /// The same for the baseline; percentages refer to it.
    pub baseline_capacity_per_s: Option<f64>,
    pub steps: Vec<Step>,
    pub knee: Knee,
}

/// All ladders of a report, in the order of its arms.
#[must_use]
pub fn find_ladders(report: &Report) -> Vec<Ladder> {
    let mut ladders: Vec<Ladder> = Vec::new();
    for trials in &Index::of_report(report).arms {
        let arm = trials.arm;
        let Some(rate_per_s) = arm.point.rate_per_s else { continue };
        let level = Point { rate_per_s: None, ..arm.point.clone() };
        let step = step(trials, rate_per_s);
        if let Some(known) = ladders.iter_mut().find(|l| l.name == arm.name && l.level == level) {
            known.steps.push(step);
            continue;
        }
        let first = ladders.iter().find(|l| l.level == level);
        ladders.push(Ladder {
            name: arm.name.clone(),
            baseline: first.map_or(&arm.name, |first| &first.baseline).clone(),
            capacity_per_s: arm.capacity_per_s,
            baseline_capacity_per_s: first.map_or(arm.capacity_per_s, |first| first.baseline_capacity_per_s),
            level,
            steps: vec![step],
            knee: Knee::Unknown,
        });
    }
    ladders.retain(|ladder| ladder.steps.len() >= LEAST_RATES);
    for ladder in &mut ladders {
        ladder.steps.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
        ladder.knee = find_knee(&ladder.steps);
    }
    ladders
}

fn step(trials: &ArmTrials<'_>, rate_per_s: f64) -> Step {
    let ArmTrials { arm, kept, counted, .. } = trials;
    let achieved = trials.read(|s| s.throughput_per_s);
    let state = if 2 * counted.len() < kept.len() || counted.is_empty() {
        StepState::Void
    } else if falls_short(&achieved, rate_per_s) {
        StepState::Saturated
    } else {
        StepState::Held
    };
    Step {
        arm: arm.id.clone(),
        rate_per_s,
        achieved_per_s: median(&achieved),
        mean_us: trials.median(|s| s.latency_us.as_ref()?.mean),
        p99_us: trials.median(|s| s.latency_us.as_ref()?.p99).or_else(|| pooled_p99(counted)),
        state,
    }
}

/// The 99th percentile of all these trials' requests together, in microseconds. Only a description, as the knee is: no
/// verdict rests on pooled requests. `None` also for a histogram that cannot be read, which is reported where latencies
/// are drawn.
fn pooled_p99(trials: &[&Trial]) -> Option<f64> {
    match crate::merge(trials) {
        Ok(Some(merged)) => crate::summarise(&merged).p99,
        _ => None,
    }
}

/// Whether trials, each with its requests completed per second, did fewer than the `rate_per_s` that were due: their
/// mean lies below 99 % of it by more than three standard errors. `false` without trials; a single one has no error.
pub(crate) fn falls_short(achieved_per_s: &[f64], rate_per_s: f64) -> bool {
    let n = achieved_per_s.len() as f64;
    if achieved_per_s.is_empty() {
        return false;
    }
    let mean = achieved_per_s.iter().sum::<f64>() / n;
    let squares: f64 = achieved_per_s.iter().map(|value| (value - mean).powi(2)).sum();
    let error = if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
    mean < REACHED * rate_per_s - CHANCE * error
}

/// The lowest rate from which on, at all higher rates too, p99 exceeds its smallest value by the factor
/// [`TAKES_OFF`] or the rate was not reached. Void steps and steps without p99 are ignored.
fn find_knee(steps: &[Step]) -> Knee {
    let mut known: Vec<(usize, f64)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        if let (StepState::Held, Some(p99)) = (step.state, step.p99_us) {
            known.push((index, p99));
        }
    }
    let Some(&(lowest, least)) = known.iter().min_by(|(_, one), (_, other)| one.total_cmp(other)) else {
        return Knee::Unknown;
    };
    // From the highest rate downwards, as long as latency is above.
    let mut knee = None;
    for (index, step) in steps.iter().enumerate().skip(lowest + 1).rev() {
        match has_taken_off(step, least) {
            Some(true) => knee = Some(index),
            Some(false) => break,
            None => {}
        }
    }
    match knee {
        Some(step) => Knee::At { step, lowest },
        None if known.len() < 2 => Knee::Unknown,
        None => Knee::NotReached { lowest },
    }
}

/// Whether latency has taken off at a step, by the smallest p99 of the ladder; `None` where it is not known.
fn has_taken_off(step: &Step, least_us: f64) -> Option<bool> {
    match (step.state, step.p99_us) {
        (StepState::Void, _) | (StepState::Held, None) => None,
        (StepState::Saturated, _) => Some(true),
        (StepState::Held, Some(p99)) => Some(p99 > TAKES_OFF * least_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(p99: &[f64], states: &[StepState]) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, p99) in p99.iter().enumerate() {
            steps.push(Step {
                arm: format!("tcp/{index}"),
                rate_per_s: 1000.0 * (index + 1) as f64,
                achieved_per_s: None,
                mean_us: None,
                p99_us: Some(*p99).filter(|p99| *p99 > 0.0),
                state: states.get(index).copied().unwrap_or(StepState::Held),
            });
        }
        steps
    }

    #[test]
    fn the_knee_is_where_it_stays_high() {
        fn knee(p99: &[f64], states: &[StepState]) -> Knee {
            find_knee(&steps(p99, states))
        }
        use StepState::{Held, Saturated, Void};
        assert_eq!(knee(&[60.0, 50.0, 80.0, 251.0, 900.0], &[]), Knee::At { step: 3, lowest: 1 });
        assert_eq!(
            knee(&[60.0, 50.0, 80.0, 250.0], &[]),
            Knee::NotReached { lowest: 1 },
            "not more than five"
        );
        // A single disturbed step is not a knee.
        assert_eq!(knee(&[50.0, 600.0, 60.0, 70.0, 400.0], &[]), Knee::At { step: 4, lowest: 0 });
        // A rate that was not reached is beyond the knee, even if its trials were too short for a long queue.
        assert_eq!(knee(&[50.0, 60.0, 100.0], &[Held, Held, Saturated]), Knee::At { step: 2, lowest: 0 });
        // Void steps and steps without a value are ignored.
        let states = [Held, Held, Held, Void, Held];
        assert_eq!(knee(&[50.0, 60.0, 300.0, 1.0, 900.0], &states), Knee::At { step: 2, lowest: 0 });
        assert_eq!(knee(&[50.0, 60.0, 0.0, 0.0], &[]), Knee::NotReached { lowest: 0 });
        assert_eq!(knee(&[50.0, 0.0], &[]), Knee::Unknown);
        assert_eq!(knee(&[], &[]), Knee::Unknown);
        assert_eq!(knee(&[900.0, 900.0], &[Saturated, Saturated]), Knee::Unknown);
        // An idle machine is slow at low rates; this is not a knee.
        assert_eq!(knee(&[300.0, 50.0, 60.0, 70.0], &[]), Knee::NotReached { lowest: 1 });
    }

    #[test]
    fn chance_is_not_saturation() {
        assert!(!falls_short(&[970.0, 1020.0, 960.0, 1000.0], 1000.0), "few requests, random in number");
        assert!(falls_short(&[901.0, 900.0, 899.0, 900.0], 1000.0));
        assert!(!falls_short(&[], 1000.0));
        assert!(falls_short(&[900.0], 1000.0));
    }
}
