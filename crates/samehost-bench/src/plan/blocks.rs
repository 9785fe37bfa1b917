//! How much to measure: how many blocks, at which of them to look, how long a trial is, and for how long at most. Pure.

use std::time::Duration;

use samehost_model::{Arm, Driven, Placement, Plan, Question, Stopping};
use samehost_stats::{looks, min_blocks_for};

use crate::error::BenchError;
use crate::order::groups;

/// Shortest time of an arm in a block that still shows a rate, and the longest trial that is worthwhile, in seconds.
const MIN_TRIAL_S: f64 = 0.1;
const MAX_TRIAL_S: f64 = 1.0;
/// Longest time of an arm in a round, in seconds.
/// Its slices see the same moments as the others', so more rounds, which sample more connections and
/// starts of the server, are worth more than longer ones. The round is the unit of replication: requests
/// inside it share its connections, its memory layout and its minute of the day, and are never resampled
/// (docs/method.md §1a).
const MAX_ROUND_S: f64 = 0.2;
/// The same where the scheduler places client and server of one connection: a server that runs already.
/// Each connection of a server with a thread for each has its thread on the client's CPU or on another
/// one for as long as a round, which is a factor of two of its time: rounds of 0.2 s of a site's MariaDB
/// differed by 66 % (standard deviation of the ln ratio). With the client's thread moved to a CPU drawn
/// before each slice they differ by 20 %, and after 30 s the ratio is known to ±5 % where it was ±17 %.
/// So rounds are as short as six slices of many connections allow, and there are four times as many
/// (docs/method.md §1a).
const MAX_FREE_ROUND_S: f64 = 0.05;
/// Most blocks by default, the last of the looks 12, 16, 24, 32 and 40; [`MAX_FREE_ROUNDS`] is the most
/// of the short rounds. With noise of 2.7 % a target of ±2 % takes 36 blocks in the mean, and with 3.5 %
/// all 40. A target that is missed is a warning. Coverage of the final interval is 93 to 97 % at every
/// noise that was simulated, so more blocks would buy width alone (docs/method.md §3).
const MAX_BLOCKS: u32 = 40;
const MAX_FREE_ROUNDS: u32 = 160;
/// Time around a trial for connecting, meters, restarts, in seconds.
const AROUND_TRIAL_S: f64 = 0.03;
/// Fraction of the budget that the minimum of blocks may use, so that there is time for more blocks.
const BUDGET_FOR_LEAST: f64 = 0.6;
/// Half-width of the interval that is enough, as a fraction of the ratio: as narrow as the margin.
const PRECISION: f64 = 0.02;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StopOptions {
    pub budget: Option<Duration>,
    /// Differences inside ±margin do not matter.
    pub margin: Option<f64>,
    pub min_blocks: Option<u32>,
    pub max_blocks: Option<u32>,
    pub trial_time: Option<Duration>,
    pub no_control: bool,
    pub no_floor: bool,
    pub stopping: Stopping,
    /// Questions to decide; empty for the first metric at every point.
    pub asked: Vec<Question>,
    /// Open questions of other measurements that belong to the same family of errors.
    pub others: u32,
}

/// Decides how much to measure: how many blocks, at which of them to look, how long a trial is, and for how long at most.
/// Without a budget it is the time in which the fewest blocks fit, and a minute at least; without a length, trials are as
/// long as the budget allows, and in rounds no longer than more rounds are worth (docs/method.md §1a and §3).
///
/// # Errors
/// When the options contradict each other, or the budget is too short for the fewest blocks.
pub fn plan(
    stop: &StopOptions,
    is_timed: bool,
    arms: &[Arm],
    driven: Vec<Driven>,
) -> Result<Plan, BenchError> {
    let groups = groups(arms);
    let candidates = arms.len() - groups.len();
    let control = !stop.no_control && candidates > 0;
    let (most, in_a_round) = rounds(&driven);
    let often = Plan { control, ..Plan::default() };
    let per_block: usize = groups.iter().map(|group| group.len() * often.runs_in_a_block(group.len())).sum();
    let max_blocks = stop.max_blocks.unwrap_or_else(|| stop.min_blocks.unwrap_or(0).max(most));
    let min_blocks = stop
        .min_blocks
        .unwrap_or(if candidates == 0 { 5 } else { min_blocks_for(candidates as u32) })
        .min(max_blocks);
    check_blocks(stop, max_blocks)?;
    let least = per_block as f64 * f64::from(min_blocks);
    let default_budget = (least * 0.3 / BUDGET_FOR_LEAST).max(60.0);
    let budget = stop.budget.map_or(default_budget, |budget| budget.as_secs_f64());
    let trial_s = if is_timed {
        Some(match stop.trial_time {
            Some(time) => time.as_secs_f64(),
            None => {
                let shortest = MIN_TRIAL_S / often.runs_in_a_block(2) as f64;
                let fits = trial_length(budget, least, shortest, stop.budget.is_some())?;
                match in_a_round {
                    Some(longest) => fits.min(longest),
                    None => fits,
                }
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
        precision: PRECISION,
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

fn check_blocks(stop: &StopOptions, max_blocks: u32) -> Result<(), BenchError> {
    if stop.min_blocks.is_some_and(|min| min > max_blocks) {
        return Err(BenchError::Usage(format!(
            "--min-blocks {} is more than --max-blocks {max_blocks}",
            stop.min_blocks.unwrap_or(0)
        )));
    }
    if max_blocks == 0 {
        return Err(BenchError::Usage("--max-blocks 0 measures nothing".into()));
    }
    Ok(())
}

/// Most blocks by default, and the longest time of an arm in a round; `None` where something is measured in trials.
fn rounds(driven: &[Driven]) -> (u32, Option<f64>) {
    if driven.is_empty() || driven.iter().any(|one| one.slice_s.is_none()) {
        return (MAX_BLOCKS, None);
    }
    if driven.iter().any(|one| one.connections == 1 && one.placement == Placement::Free) {
        return (MAX_FREE_ROUNDS, Some(MAX_FREE_ROUND_S));
    }
    (MAX_BLOCKS, Some(MAX_ROUND_S))
}

/// Trial length in seconds with which the fewest blocks fit well into the budget, so that there is time for more. With a
/// budget that was asked for, refuses what fits in no way.
fn trial_length(budget: f64, least_trials: f64, shortest: f64, is_asked: bool) -> Result<f64, BenchError> {
    let fits = budget * BUDGET_FOR_LEAST / least_trials - AROUND_TRIAL_S;
    if is_asked && budget / least_trials - AROUND_TRIAL_S < shortest {
        let needed = least_trials * (shortest + AROUND_TRIAL_S);
        return Err(BenchError::Usage(format!(
            "--budget {budget:.0}s is too short: {least_trials:.0} trials of at least {shortest} s need {:.0} s; give that, fewer points, or --min-blocks and --trial-time of your own",
            needed.ceil()
        )));
    }
    Ok(fits.clamp(shortest, MAX_TRIAL_S))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::arms::Matrix;
    use crate::plan::arms::tests::matrix;

    #[test]
    fn a_large_matrix_gets_more_blocks_and_a_small_budget_shorter_trials() {
        let arms = matrix().arms();
        let plan_of = |stop: StopOptions, arms: &[Arm]| plan(&stop, true, arms, Vec::new());
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
        let many = Matrix { connections: (1..=33).collect(), ..matrix() }.arms();
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
        let in_rounds = plan(&StopOptions::default(), true, &arms, vec![driven.clone()]).unwrap();
        assert_eq!(in_rounds.trial_s, Some(MAX_ROUND_S), "short rounds, for a minute has room for many");
        let free = Driven { placement: Placement::Free, ..driven };
        let in_rounds = plan(&StopOptions::default(), true, &arms, vec![free]).unwrap();
        assert_eq!(in_rounds.trial_s, Some(MAX_FREE_ROUND_S), "the scheduler's placement lasts for a round");
        assert_eq!(in_rounds.max_blocks, MAX_FREE_ROUNDS);
    }
}
