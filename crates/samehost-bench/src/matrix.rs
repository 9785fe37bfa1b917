//! The matrix: axes with all defaults filled in, the levels, points and arms that follow from them, the arms that are not
//! transports (commands and the floor), and how much of it fits into the time. Pure.

use std::time::Duration;

use samehost_model::{
    Arm, Driven, Placement, Plan, Point, Question, RateSpec, Redactor, Stopping, Transport,
};
use samehost_stats::{looks, min_blocks_for};

use crate::error::BenchError;
use crate::parameters::{Parameters, Swept, distinct, values};
use crate::workload::{Capabilities, Configured, Workload};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Transports, the baseline first; a transport named twice is compared with itself.
    pub transports: Vec<Transport>,
    pub connections: Vec<u32>,
    /// Empty for a closed loop.
    pub rates: Vec<RateSpec>,
    /// Sizes in bytes; a single `None` for a workload without sizes.
    pub sizes: Vec<Option<u64>>,
    /// Empty for the usual placement at each number of connections.
    pub placements: Vec<Placement>,
    /// Usual placement of one connection; several connections are placed freely.
    pub alone: Placement,
    pub swept: Vec<Swept>,
    /// Empty before they are measured.
    pub capacities: Vec<Capacity>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    pub level: Point,
    pub transport: Transport,
    pub per_s: f64,
}

impl Matrix {
    pub fn levels(&self) -> Vec<Point> {
        let mut levels = Vec::new();
        let asked: Vec<Option<Placement>> = match self.placements.as_slice() {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        for placement in asked {
            for parameters in self.own_parameters() {
                for size_bytes in &self.sizes {
                    for connections in &self.connections {
                        levels.push(Point {
                            connections: *connections,
                            rate_per_s: None,
                            size_bytes: *size_bytes,
                            placement: placement.unwrap_or_else(|| self.usual(*connections)),
                            parameters: parameters.clone(),
                        });
                    }
                }
            }
        }
        levels
    }

    fn usual(&self, connections: u32) -> Placement {
        if connections == 1 { self.alone } else { Placement::Free }
    }

    /// Every combination of the workload's own parameters; a single empty one if none is swept.
    fn own_parameters(&self) -> Vec<Parameters> {
        let mut sets = vec![Parameters::new()];
        for swept in &self.swept {
            let mut longer = Vec::with_capacity(sets.len() * swept.values.len());
            for set in &sets {
                for value in &swept.values {
                    let mut set = set.clone();
                    set.insert(swept.name.clone(), value.clone());
                    longer.push(set);
                }
            }
            sets = longer;
        }
        sets
    }

    pub fn capacity(&self, level: &Point, transport: Transport) -> Option<f64> {
        let found = self.capacities.iter().find(|c| c.transport == transport && c.level == *level)?;
        Some(found.per_s)
    }

    /// Rate at a level in requests per second. A percentage refers to the baseline's capacity at that level.
    fn rate(&self, level: &Point, rate: RateSpec) -> Option<f64> {
        match rate {
            RateSpec::PerSecond(rate) => Some(rate),
            RateSpec::OfCapacity(part) => {
                let capacity = self.capacity(level, *self.transports.first()?)?;
                Some((part * capacity).round().max(1.0))
            }
        }
    }

    /// Suffix that distinguishes a level from the others in an arm's id: only the axes that vary.
    pub fn level_suffix(&self, level: &Point) -> String {
        let mut suffix = String::new();
        if self.connections.len() > 1 {
            suffix += &format!("/c{}", level.connections);
        }
        if let (Some(size), true) = (level.size_bytes, self.sizes.len() > 1) {
            suffix += &format!("/{size}B");
        }
        for (name, value) in &level.parameters {
            suffix += &format!("/{name}={value}");
        }
        if self.placements.len() > 1 {
            suffix += &format!("/{}", level.placement);
        }
        suffix
    }

    fn rate_suffix(&self, rate: RateSpec) -> String {
        match rate {
            _ if self.rates.len() < 2 => String::new(),
            RateSpec::PerSecond(rate) => format!("/r{rate:.0}"),
            // Rounded, since 7 % is 7.000000000000001 after a division and a multiplication.
            RateSpec::OfCapacity(part) => format!("/{}%", (part * 1e6).round() / 1e4),
        }
    }

    /// # Errors
    /// When the workload refuses a point.
    pub fn arms(&self, configured: &dyn Configured) -> Result<Vec<Arm>, BenchError> {
        let mut arms = Vec::new();
        for level in self.levels() {
            let suffix = self.level_suffix(&level);
            if self.rates.is_empty() {
                arms.extend(self.arms_at(&level, &suffix, configured)?);
            }
            for rate in &self.rates {
                let point = Point { rate_per_s: self.rate(&level, *rate), ..level.clone() };
                let suffix = suffix.clone() + &self.rate_suffix(*rate);
                arms.extend(self.arms_at(&point, &suffix, configured)?);
            }
        }
        Ok(arms)
    }

    fn arms_at(
        &self,
        point: &Point,
        suffix: &str,
        configured: &dyn Configured,
    ) -> Result<Vec<Arm>, BenchError> {
        let level = Point { rate_per_s: None, ..point.clone() };
        let mut arms = Vec::with_capacity(self.transports.len());
        for (name, transport) in self.names().into_iter().zip(&self.transports) {
            configured.check(point, *transport)?;
            arms.push(Arm {
                id: format!("{name}{suffix}"),
                name,
                transport: *transport,
                endpoint: None,
                tls: transport.is_tls(),
                capacity_per_s: self.capacity(&level, *transport),
                point: point.clone(),
            });
        }
        Ok(arms)
    }

    /// Names of the arms of a point: the transport, with a number from the second of the same transport on.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(self.transports.len());
        for (index, transport) in self.transports.iter().enumerate() {
            let twins = self.transports[..index].iter().filter(|earlier| *earlier == transport).count();
            names.push(match twins {
                0 => transport.to_string(),
                _ => format!("{transport}#{}", twins + 1),
            });
        }
        names
    }
}

/// Separates the workload's own parameters: those with several values become axes, the others stay. The entry
/// of a swept parameter keeps the list, so that a title can name it.
///
/// # Errors
/// When a value or a list cannot be parsed.
pub fn sweep(
    workload: &dyn Workload,
    parameters: &Parameters,
) -> Result<(Parameters, Vec<Swept>), BenchError> {
    let mut parameters = parameters.clone();
    let mut swept = Vec::new();
    for parameter in workload.parameters() {
        let Some(text) = parameters.get(parameter.name) else { continue };
        if text.is_empty() {
            continue;
        }
        let Some(values) = values(parameter.kind, text) else { continue };
        let values = values.map_err(|reason| BenchError::Usage(format!("--{}: {reason}", parameter.name)))?;
        let values = distinct(values);
        parameters.insert(parameter.name.to_owned(), values.join(","));
        if values.len() > 1 {
            swept.push(Swept { name: parameter.name.to_owned(), values });
        }
    }
    Ok((parameters, swept))
}

/// Shortest time of an arm in a block that still shows a rate, and the longest trial that is worthwhile, in seconds.
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 1.0;
/// Longest time of an arm in a round, in seconds.
/// Its slices see the same moments as the others', so more rounds, which sample more connections and
/// starts of the server, are worth more than longer ones. The round is the unit of replication: requests
/// inside it share its connections, its memory layout and its minute of the day, and are never resampled
/// (docs/method.md §1a).
const IN_A_ROUND: f64 = 0.2;
/// The same where the scheduler places client and server of one connection: a server that runs already.
/// Each connection of a server with a thread for each has its thread on the client's CPU or on another
/// one for as long as a round, which is a factor of two of its time: rounds of 0.2 s of a site's MariaDB
/// differed by 66 % (standard deviation of the ln ratio). With the client's thread moved to a CPU drawn
/// before each slice they differ by 20 %, and after 30 s the ratio is known to ±5 % where it was ±17 %.
/// So rounds are as short as six slices of many connections allow, and there are four times as many
/// (docs/method.md §1a).
const IN_A_FREE_ROUND: f64 = 0.05;
/// Most blocks by default, the last of the looks 12, 16, 24, 32 and 40; [`MOST_FREE_ROUNDS`] is the most
/// of the short rounds. With noise of 2.7 % a target of ±2 % takes 36 blocks in the mean, and with 3.5 %
/// all 40. A target that is missed is a warning. Coverage of the final interval is 93 to 97 % at every
/// noise that was simulated, so more blocks would buy width alone (docs/method.md §3).
const MOST_BLOCKS: u32 = 40;
const MOST_FREE_ROUNDS: u32 = 160;
/// Time around a trial for connecting, meters, restarts, in seconds.
const AROUND_TRIAL: f64 = 0.03;
/// Fraction of the budget that the minimum of blocks may use, so that there is time for more blocks.
const BUDGET_FOR_LEAST: f64 = 0.6;
pub const FLOOR: &str = "noop";

/// The arms of commands given by name, at each level of the matrix, of which they have the parameters alone.
///
/// # Errors
/// When two arms have the same name, or one has the floor's.
pub fn command_arms(commands: &[(String, String)], matrix: &Matrix) -> Result<Vec<Arm>, BenchError> {
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
    for level in matrix.levels() {
        let suffix = matrix.level_suffix(&level);
        let point = Point { parameters: level.parameters, ..Point::default() };
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
    axes: &Capabilities,
    arms: &[Arm],
    driven: Vec<Driven>,
) -> Result<Plan, BenchError> {
    let groups = crate::measure::groups(arms);
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
    let trial_s = if axes.timed {
        Some(match stop.trial_time {
            Some(time) => time.as_secs_f64(),
            None => {
                let shortest = SHORTEST / often.runs_in_a_block(2) as f64;
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
        return (MOST_BLOCKS, None);
    }
    if driven.iter().any(|one| one.connections == 1 && one.placement == Placement::Free) {
        return (MOST_FREE_ROUNDS, Some(IN_A_FREE_ROUND));
    }
    (MOST_BLOCKS, Some(IN_A_ROUND))
}

/// Trial length in seconds with which the fewest blocks fit well into the budget, so that there is time for more. With a
/// budget that was asked for, refuses what fits in no way.
fn trial_length(budget: f64, least_trials: f64, shortest: f64, is_asked: bool) -> Result<f64, BenchError> {
    let fits = budget * BUDGET_FOR_LEAST / least_trials - AROUND_TRIAL;
    if is_asked && budget / least_trials - AROUND_TRIAL < shortest {
        let needed = least_trials * (shortest + AROUND_TRIAL);
        return Err(BenchError::Usage(format!(
            "--budget {budget:.0}s is too short: {least_trials:.0} trials of at least {shortest} s need {:.0} s; give that, fewer points, or --min-blocks and --trial-time of your own",
            needed.ceil()
        )));
    }
    Ok(fits.clamp(shortest, LONGEST))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::workload::defaults;
    use crate::workloads::workload;

    pub(crate) fn matrix() -> Matrix {
        Matrix {
            transports: vec![Transport::Tcp, Transport::Unix],
            connections: vec![1, 64],
            sizes: vec![Some(128)],
            placements: vec![Placement::Free],
            ..Matrix::default()
        }
    }

    fn parameters(name: &str) -> Parameters {
        defaults(workload(name).unwrap())
    }

    fn ids(matrix: &Matrix, name: &str) -> Vec<String> {
        let arms = matrix.arms(&*workload(name).unwrap().configure(&parameters(name)).unwrap()).unwrap();
        arms.into_iter().map(|arm| arm.id).collect()
    }

    #[test]
    fn ids_name_what_varies() {
        assert_eq!(ids(&matrix(), "raw"), ["tcp/c1", "unix/c1", "tcp/c64", "unix/c64"]);
        let twins = Matrix { transports: vec![Transport::Unix; 2], connections: vec![1], ..matrix() };
        assert_eq!(ids(&twins, "raw"), ["unix", "unix#2"]);
    }

    #[test]
    fn one_connection_has_a_usual_placement_of_its_own() {
        fn placements(matrix: &Matrix) -> Vec<Placement> {
            matrix.levels().iter().map(|level| level.placement).collect()
        }
        let usual = Matrix { placements: Vec::new(), alone: Placement::CrossCore, ..matrix() };
        assert_eq!(placements(&usual), [Placement::CrossCore, Placement::Free]);
        assert_eq!(ids(&usual, "raw"), ["tcp/c1", "unix/c1", "tcp/c64", "unix/c64"]);
        let asked = Matrix { placements: vec![Placement::SameCore], ..usual };
        assert_eq!(placements(&asked), [Placement::SameCore; 2], "what is asked for holds for all");
    }

    #[test]
    fn a_parameter_with_several_values_is_an_axis() {
        let redis = workload("redis").unwrap();
        let mut asked = parameters("redis");
        asked.insert("pipeline".into(), "1..4,4,64".into());
        let (kept, swept) = sweep(redis, &asked).unwrap();
        assert_eq!(kept["pipeline"], "1,2,4,64");
        assert_eq!(kept["command"], "get");
        let matrix = Matrix { connections: vec![8], transports: vec![Transport::Tcp], swept, ..matrix() };
        let arms = matrix.arms(&*redis.configure(&kept).unwrap()).unwrap();
        let ids: Vec<&str> = arms.iter().map(|arm| arm.id.as_str()).collect();
        assert_eq!(ids, ["tcp/pipeline=1", "tcp/pipeline=2", "tcp/pipeline=4", "tcp/pipeline=64"]);
        assert_eq!(arms[3].point.parameters["pipeline"], "64");
        asked.insert("pipeline".into(), "8".into());
        let (kept, swept) = sweep(redis, &asked).unwrap();
        assert_eq!((kept["pipeline"].as_str(), swept), ("8", Vec::new()), "one value is not an axis");
        asked.insert("pipeline".into(), "1,x".into());
        assert!(sweep(redis, &asked).unwrap_err().to_string().contains("--pipeline: `x`"));
        asked.insert("pipeline".into(), "1,65".into());
        let (kept, _) = sweep(redis, &asked).unwrap();
        assert!(redis.configure(&kept).is_err(), "each value is checked");
    }

    #[test]
    fn a_percentage_is_of_the_baselines_capacity_at_its_level() {
        let mut matrix =
            Matrix { rates: vec![RateSpec::OfCapacity(0.07), RateSpec::PerSecond(50.0)], ..matrix() };
        for (level, factor) in matrix.levels().into_iter().zip([1.0, 4.0]) {
            for (transport, per_s) in [(Transport::Tcp, 1000.0), (Transport::Unix, 1500.0)] {
                matrix.capacities.push(Capacity { level: level.clone(), transport, per_s: factor * per_s });
            }
        }
        let arms = matrix.arms(&*workload("raw").unwrap().configure(&parameters("raw")).unwrap()).unwrap();
        let arm = |id: &str| arms.iter().find(|arm| arm.id == id).unwrap();
        assert_eq!(arm("tcp/c1/7%").point.rate_per_s, Some(70.0));
        assert_eq!(arm("unix/c1/7%").point, arm("tcp/c1/7%").point, "both have the same rate");
        assert_eq!(arm("unix/c64/7%").point.rate_per_s, Some(280.0));
        assert_eq!(arm("unix/c64/7%").capacity_per_s, Some(6000.0), "each arm has its own capacity");
        assert_eq!(arm("tcp/c64/r50").point.rate_per_s, Some(50.0));
    }

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
