//! How much of the matrix to measure, and the arms that are not transports: commands and the floor. Pure.

use std::time::Duration;

use samehost_model::{Arm, Driven, Placement, Plan, Point, Question, Redactor, Stopping, Transport};
use samehost_stats::{looks, min_blocks_for};

use crate::driving::Slicing;
use crate::error::BenchError;
use crate::workload::Capabilities;

/// Shortest trial that still shows a rate, and the longest that is worthwhile, in seconds.
const TRIAL: std::ops::RangeInclusive<f64> = 0.1..=1.0;
/// Longest time of an arm in a round, in seconds. Its slices see the same moments as the others', so more
/// rounds, which sample more connections and servers, are worth more than longer ones.
const IN_A_ROUND: f64 = 0.2;
/// The same where the scheduler places client and server of one connection: a server that runs already. Each connection of a
/// server with a thread for each has its thread on the client's CPU or on another one for as long as a round, and that is a
/// factor of two of its time: rounds of 0.2 s of a site's MariaDB differed by 66 % (standard deviation of the ln ratio), whatever
/// happened in them. So they are as short as six slices of many connections allow, and four times as many; where the client
/// begins is drawn anew for each slice besides (`engine::slices`).
const IN_A_FREE_ROUND: f64 = 0.05;
/// Most blocks by default, and most of such rounds.
const MOST_BLOCKS: u32 = 40;
const MOST_FREE_ROUNDS: u32 = 160;
/// Time around a trial for connecting, meters, restarts, in seconds.
const AROUND_TRIAL: f64 = 0.03;
/// Fraction of the budget that the minimum of blocks may use, so that there is time for more blocks.
const BUDGET_FOR_LEAST: f64 = 0.6;
/// Id of the floor's arm.
pub const FLOOR: &str = "noop";

/// The arms of commands given by name, at each of these points with the suffix of their ids.
///
/// # Errors
/// When two arms have the same name, or one has the floor's.
pub fn command_arms(
    commands: &[(String, String)],
    points: &[(Point, String)],
) -> Result<Vec<Arm>, BenchError> {
    for (place, (name, script)) in commands.iter().enumerate() {
        if commands[..place].iter().any(|(other, _)| other == name) {
            return Err(BenchError::Usage(format!("two arms are called `{name}`")));
        }
        if name == FLOOR {
            return Err(BenchError::Usage(format!(
                "`{FLOOR}` is the name of the harness's own arm; choose another"
            )));
        }
        tracing::debug!(name, script = Redactor::default().command(script), "arm");
    }
    let mut arms = Vec::new();
    for (point, suffix) in points {
        for (name, _) in commands {
            arms.push(Arm {
                id: format!("{name}{suffix}"),
                name: name.clone(),
                transport: Transport::Command,
                endpoint: None,
                tls: false,
                capacity_per_s: None,
                point: point.clone(),
            });
        }
    }
    Ok(arms)
}

/// The arm of the no-op workload, which measures the cost of the harness. No other arm has its point, so
/// nothing is compared with it.
#[must_use]
pub fn floor_arm() -> Arm {
    Arm {
        id: FLOOR.into(),
        name: FLOOR.into(),
        transport: Transport::None,
        endpoint: None,
        tls: false,
        capacity_per_s: None,
        point: Point::default(),
    }
}

/// The user's options on how much to measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StopOptions {
    /// Total time.
    pub budget: Option<Duration>,
    /// Half-width of the interval to reach.
    pub precision: Option<f64>,
    /// Differences inside ±margin do not matter.
    pub margin: Option<f64>,
    pub min_blocks: Option<u32>,
    pub max_blocks: Option<u32>,
    pub trial_time: Option<Duration>,
    /// Leaves the control out.
    pub no_control: bool,
    /// Leaves out the harness's own arm.
    pub no_floor: bool,
    /// Rule that ends a point early.
    pub stopping: Stopping,
    /// Questions to decide; empty for the first metric at every point.
    pub asked: Vec<Question>,
    /// Open questions of other measurements that belong to the same family of errors.
    pub others: u32,
    /// Slices or separate trials.
    pub slicing: Slicing,
}

/// Decides how much to measure.
///
/// # Errors
/// When the options contradict each other.
pub fn plan(
    stop: &StopOptions,
    axes: &Capabilities,
    arms: &[Arm],
    driven: Vec<Driven>,
) -> Result<Plan, BenchError> {
    let groups = crate::schedule::groups(arms);
    let candidates: usize = groups.iter().map(|group| group.len() - 1).sum();
    let control = !stop.no_control && candidates > 0;
    let controls = if control { groups.iter().filter(|group| group.len() > 1).count() } else { 0 };
    let per_block = (arms.len() + controls) as f64;
    let needed = min_blocks_for(candidates as u32);
    let (most, in_a_round) = rounds(&driven);
    let max_blocks = stop.max_blocks.unwrap_or_else(|| stop.min_blocks.unwrap_or(0).max(most));
    let min_blocks = stop.min_blocks.unwrap_or(if candidates == 0 { 5 } else { needed }).min(max_blocks);
    if stop.min_blocks.is_some_and(|min| min > max_blocks) {
        return Err(BenchError::Usage(format!(
            "--min-blocks {} is more than --max-blocks {max_blocks}",
            stop.min_blocks.unwrap_or(0)
        )));
    }
    if max_blocks == 0 {
        return Err(BenchError::Usage("--max-blocks 0 measures nothing".into()));
    }
    let least = per_block * f64::from(min_blocks);
    let default_budget = (least * 0.3 / BUDGET_FOR_LEAST).max(60.0);
    let budget = stop.budget.map_or(default_budget, |budget| budget.as_secs_f64());
    let trial_s = if axes.timed {
        Some(match stop.trial_time {
            Some(time) => time.as_secs_f64(),
            None => {
                let fits = trial_length(budget, least, stop.budget.is_some())?;
                in_a_round.map_or(fits, |longest| fits.min(longest))
            }
        })
    } else {
        None
    };
    let max_blocks = if candidates == 0 { min_blocks } else { max_blocks };
    Ok(Plan {
        min_blocks,
        max_blocks,
        looks: looks(min_blocks, max_blocks),
        precision: stop.precision.unwrap_or(0.02),
        margin: stop.margin.unwrap_or(0.02),
        confidence: 0.95,
        trial_s,
        budget_s: Some(budget),
        control,
        stopping: stop.stopping,
        asked: stop.asked.clone(),
        others: stop.others,
        driven,
        awake: None,
        wake_up_us: None,
        repeats: 0,
    })
}

/// Most blocks by default, and the longest time of an arm in a round; `None` where something is measured in trials.
fn rounds(driven: &[Driven]) -> (u32, Option<f64>) {
    if driven.is_empty() || driven.iter().any(|one| one.slice_s.is_none()) {
        return (MOST_BLOCKS, None);
    }
    if driven.iter().any(|one| one.connections == 1 && one.placement == Placement::Free) {
        return (MOST_FREE_ROUNDS, Some(IN_A_FREE_ROUND));
    }
    (MOST_BLOCKS, Some(IN_A_ROUND))
}

/// Trial length with which the minimum of blocks fits well into the budget.
fn trial_length(budget: f64, least_trials: f64, is_asked: bool) -> Result<f64, BenchError> {
    let fits = budget * BUDGET_FOR_LEAST / least_trials - AROUND_TRIAL;
    let shortest = *TRIAL.start();
    if is_asked && budget / least_trials - AROUND_TRIAL < shortest {
        let needed = least_trials * (shortest + AROUND_TRIAL);
        return Err(BenchError::Usage(format!(
            "--budget {budget:.0}s is too short: {least_trials:.0} trials of at least {shortest} s need {:.0} s; give that, fewer points, or --min-blocks and --trial-time of your own",
            needed.ceil()
        )));
    }
    Ok(fits.clamp(shortest, *TRIAL.end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;
    use crate::matrix::tests::matrix;
    use crate::workload::defaults;
    use crate::workloads::workload;

    #[test]
    fn a_large_matrix_gets_more_blocks_and_a_small_budget_shorter_trials() {
        let raw = workload("raw").unwrap();
        let raw = raw.configure(&defaults(raw)).unwrap();
        let axes = raw.axes();
        let arms = matrix().arms(&*raw).unwrap();
        let plan_of = |stop: StopOptions, arms: &[Arm]| plan(&stop, &axes, arms, Vec::new());
        let default = plan_of(StopOptions::default(), &arms).unwrap();
        assert_eq!(default.min_blocks, 10);
        assert_eq!(default.looks.last(), Some(&default.max_blocks));
        let short =
            plan_of(StopOptions { budget: Some(Duration::from_secs(10)), ..StopOptions::default() }, &arms)
                .unwrap();
        assert!(short.trial_s.unwrap() < default.trial_s.unwrap());
        let error =
            plan_of(StopOptions { budget: Some(Duration::from_secs(2)), ..StopOptions::default() }, &arms);
        assert!(error.unwrap_err().to_string().contains("too short"));
        let many = Matrix { connections: (1..=33).collect(), ..matrix() }.arms(&*raw).unwrap();
        let wide = plan_of(StopOptions::default(), &many).unwrap();
        assert!(wide.min_blocks > 10, "Holm over 33 points needs smaller p-values");
        let wrong = StopOptions { min_blocks: Some(9), max_blocks: Some(3), ..StopOptions::default() };
        assert!(plan_of(wrong, &arms).is_err());
        let driven = Driven {
            connections: 1,
            placement: Placement::CrossCore,
            slice_s: Some(0.003),
            undivided: None,
            client_cpus: Vec::new(),
            server_cpus: Vec::new(),
            swapped_at_random: false,
        };
        let in_rounds = plan(&StopOptions::default(), &axes, &arms, vec![driven.clone()]).unwrap();
        assert_eq!(in_rounds.trial_s, Some(IN_A_ROUND), "short rounds, for a minute has room for many");
        let free = Driven { placement: Placement::Free, ..driven };
        let in_rounds = plan(&StopOptions::default(), &axes, &arms, vec![free]).unwrap();
        assert_eq!(in_rounds.trial_s, Some(IN_A_FREE_ROUND), "the scheduler's placement lasts for a round");
        assert_eq!(in_rounds.max_blocks, MOST_FREE_ROUNDS);
    }
}
