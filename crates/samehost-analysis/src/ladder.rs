//! Ladders: the same arms at one level of the matrix and several open-loop rates, and the rate at which the
//! latency of each rises sharply.

use samehost_model::{Arm, Point, Report, Trial};
use samehost_stats::median;

/// Minimum number of rates at one level for a ladder.
pub const LEAST_RATES: usize = 4;
/// Latency takes off where p99 exceeds its smallest value on the ladder by this factor, there and at
/// every higher rate. A server with spare capacity keeps its p99 within a small factor over many rates;
/// near saturation the queue multiplies it. The smallest value is the reference and not the lowest
/// rate's, because an idle machine has to be woken for each request, so that latency often falls at
/// first. One disturbed step in the middle does not count. A knee is a description without an interval:
/// no verdict comes from it, and the table shows the factor at every step (docs/method.md §9).
pub const TAKES_OFF: f64 = 5.0;
/// Fraction of the rate below which it was not reached, beyond random variation.
const REACHED: f64 = 0.99;
/// Random variation in standard errors.
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

/// One rate of a ladder.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Id of the arm.
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

/// The knee: where latency rises sharply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Knee {
    /// From this step on.
    At {
        /// Index of the step.
        step: usize,
        /// Index of the step with the smallest p99.
        lowest: usize,
    },
    /// On no step.
    NotReached {
        /// Index of the step with the smallest p99.
        lowest: usize,
    },
    /// Fewer than two steps held their rate and have a p99.
    Unknown,
}

/// Rates of one transport at one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// Display name of the arm.
    pub name: String,
    /// Display name of the baseline.
    pub baseline: String,
    /// The point without its rate.
    pub level: Point,
    /// Operations per second of this transport in a closed loop; `None` if not measured.
    pub capacity_per_s: Option<f64>,
    /// The same for the baseline; percentages refer to it.
    pub baseline_capacity_per_s: Option<f64>,
    /// Steps, lowest rate first.
    pub steps: Vec<Step>,
    pub knee: Knee,
}

/// All ladders of a report, in the order of its arms.
#[must_use]
pub fn find_ladders(report: &Report) -> Vec<Ladder> {
    let mut ladders: Vec<Ladder> = Vec::new();
    for arm in &report.head.arms {
        let Some(rate_per_s) = arm.point.rate_per_s else { continue };
        let level = Point { rate_per_s: None, ..arm.point.clone() };
        let step = step(report, arm, rate_per_s);
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

fn step(report: &Report, arm: &Arm, rate_per_s: f64) -> Step {
    let kept: Vec<&Trial> = report.trials.iter().filter(|s| s.arm == arm.id && !s.set_aside).collect();
    let counted: Vec<&Trial> = kept.iter().copied().filter(|s| s.counts()).collect();
    let values = |read: fn(&Trial) -> Option<f64>| -> Vec<f64> {
        counted.iter().filter_map(|s| read(s)).filter(|value| value.is_finite()).collect()
    };
    let achieved = values(|s| s.throughput_per_s);
    let state = if 2 * counted.len() < kept.len() || counted.is_empty() {
        StepState::Void
    } else if falls_short(&achieved, rate_per_s) {
        StepState::Saturated
    } else {
        StepState::Held
    };
    let p99 = median(&values(|s| s.latency_us.as_ref()?.p99)).or_else(|| {
        // An unreadable histogram is reported where latencies are drawn.
        let merged = crate::merge(&counted).ok().flatten()?;
        crate::summarise(&merged).p99
    });
    Step {
        arm: arm.id.clone(),
        rate_per_s,
        achieved_per_s: median(&achieved),
        mean_us: median(&values(|s| s.latency_us.as_ref()?.mean)),
        p99_us: p99,
        state,
    }
}

/// Whether trials completed fewer requests than were due. The number of requests due in one trial is random,
/// so the mean must be lower by more than three standard errors.
#[must_use]
pub fn falls_short(achieved_per_s: &[f64], rate_per_s: f64) -> bool {
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
/// [`TAKES_OFF`] or the rate was not reached. Void steps and steps without p99 are ignored. The smallest
/// value need not be at the lowest rate, because an idle machine must wake up for each request.
#[must_use]
pub fn find_knee(steps: &[Step]) -> Knee {
    let p99_if_sustained = |step: &Step| step.p99_us.filter(|_| step.state == StepState::Held);
    let known: Vec<(usize, f64)> =
        steps.iter().enumerate().filter_map(|(index, step)| Some((index, p99_if_sustained(step)?))).collect();
    let Some(&(lowest, least)) = known.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Knee::Unknown;
    };
    let above = steps.iter().enumerate().skip(lowest + 1).rev();
    let shown = above.filter_map(|(index, step)| Some((index, has_taken_off(step, least)?)));
    match shown.take_while(|(_, off)| *off).last() {
        Some((step, _)) => Knee::At { step, lowest },
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
