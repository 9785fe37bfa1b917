//! Compares many hosts by their reports: which host differs from those like it, what its environment does, and whether the
//! newest run of each differs from its earlier ones. Reports are added one by one, and only their values are kept.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use samehost_model::{Better, Comparison, Host, MetricInfo};
use samehost_stats::peers::{LEAST_PEERS, Member, Standing, against_peers};
use samehost_stats::{Interval, distributions, holm, median};
use serde::{Deserialize, Serialize};

const HOSTS_SCHEMA: &str = "samehost.hosts/1";
/// Differences between hosts inside ±2 % do not matter in practice, as in a report.
/// Hosts differ by themselves: with reports as the unit and 100 of each host any two hosts would differ.
/// So a host is tested against the spread of the others of its group, and for more than this margin. In
/// 400 simulated folders of 60 equal hosts a host was called in 0.2 %, and one that was 10 % slower was
/// found in 98.5 % (docs/decisions/0102).
pub const MARGIN: f64 = 0.02;
/// Threshold of adjusted p-values, for each of the two families.
pub(crate) const ALPHA: f64 = 0.05;
pub(crate) const CONFIDENCE: f64 = 0.95;
/// Fewest reports of a host that is called.
/// A host counts by the median of its reports. With one or two of them a report from a bad moment and a
/// slow host look the same: when hosts with a single report were called as well, 9 % of the simulated
/// folders of equal hosts had one that was called (docs/decisions/0102).
const LEAST_REPORTS: usize = 3;
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

/// What is read of a report of `samehost.report/1`; the trials are passed over, as a folder may have thousands of reports.
#[derive(Clone, Debug, Deserialize)]
pub struct HostReport {
    pub schema: String,
    /// A name that was put into a line of several reports.
    #[serde(default)]
    pub host_name: Option<String>,
    #[serde(default)]
    pub started_at: String,
    #[serde(default)]
    pub command: Vec<String>,
    pub host: Host,
    pub workload: Measured,
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    pub name: String,
    pub metrics: Vec<MetricInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cell {
    pub workload: String,
    /// The arm's id, or `unix ÷ tcp`.
    pub arm: String,
    pub metric: String,
}

/// How far one side is from another, as a ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub ratio: f64,
    pub ci_low: f64,
    pub ci_high: f64,
    /// p-value of "inside the margin", adjusted over all that is asked at once.
    pub p_adjusted: f64,
}

impl Difference {
    /// With a p-value that is not adjusted yet; both others as logarithms.
    fn of(difference: f64, interval: Interval, p: f64) -> Self {
        let Interval { low, high } = interval.exp();
        Difference { ratio: difference.exp(), ci_low: low, ci_high: high, p_adjusted: p }
    }

    fn of_standing(standing: &Standing) -> Self {
        Difference::of(standing.difference, standing.interval(CONFIDENCE), standing.p_inside)
    }

    fn is_called(&self) -> bool {
        self.p_adjusted < ALPHA
    }
}

/// Adjusts the p-values of one family by Holm's method.
fn adjust<'a>(family: impl Iterator<Item = &'a mut Difference>) {
    let family: Vec<&mut Difference> = family.collect();
    let p_values: Vec<f64> = family.iter().map(|difference| difference.p_adjusted).collect();
    for (difference, p_adjusted) in family.into_iter().zip(holm::adjust(&p_values)) {
        difference.p_adjusted = p_adjusted;
    }
}

/// One host against the others with its environment, in one cell; [`HostDiffers::is_called`] says whether it differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostDiffers {
    pub host: String,
    #[serde(flatten)]
    pub cell: Cell,
    /// Host ÷ its peers.
    #[serde(flatten)]
    pub difference: Difference,
    /// Whether it is worse than its peers; none of a ratio of two arms.
    pub is_slower: Option<bool>,
    /// How many others have its environment.
    pub peers: u32,
    pub reports: u32,
}

/// A part of the environment whose hosts differ from those with the usual one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FactorDiffers {
    /// `kernel`, or several that cannot be told apart because the same hosts have them.
    pub factors: Vec<String>,
    pub level: String,
    pub usual: String,
    #[serde(flatten)]
    pub cell: Cell,
    /// Hosts with the level ÷ hosts with the usual one.
    #[serde(flatten)]
    pub difference: Difference,
    pub hosts: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostsCompared {
    pub schema: &'static str,
    pub reports: u32,
    pub hosts: u32,
    pub environments: u32,
    /// Hosts that were not compared, because fewer than [`LEAST_PEERS`] others have their environment, or because they have
    /// fewer than three reports.
    pub not_compared: Vec<String>,
    pub differ: Vec<HostDiffers>,
    pub factors: Vec<FactorDiffers>,
    /// Every host that was compared, whether it differs or not.
    #[serde(skip)]
    pub compared: Vec<HostDiffers>,
}

impl HostDiffers {
    fn of(host: &str, cell: &Cell, better: Option<Better>, standing: &Standing, reports: u32) -> Self {
        HostDiffers {
            host: host.to_owned(),
            cell: cell.clone(),
            difference: Difference::of_standing(standing),
            is_slower: better.map(|better| (better == Better::Lower) == (standing.difference > 0.0)),
            peers: standing.peers,
            reports,
        }
    }

    /// Whether that is more than chance and the margin.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.difference.is_called()
    }
}

const FACTORS: [&str; 7] =
    ["kernel", "CPU", "CPUs", "congestion control", "mitigations", "virtualization", "governor"];

pub(crate) type Environment = [String; FACTORS.len()];

/// What is not the same in two environments: `kernel 6.1 → 6.12`.
pub(crate) fn changed(before: &Environment, after: &Environment) -> Vec<String> {
    let mut changed = Vec::new();
    for ((before, after), name) in before.iter().zip(after).zip(FACTORS) {
        if before != after {
            changed.push(format!("{name} {before} → {after}"));
        }
    }
    changed
}

pub(crate) fn environment(host: &Host) -> Environment {
    let mut mitigations = host.mitigations.clone();
    mitigations.sort_unstable();
    [
        host.kernel.clone(),
        host.cpu_model.clone(),
        host.cpus.to_string(),
        host.sysctls.get(CONGESTION).cloned().unwrap_or_default(),
        mitigations.join(", "),
        host.virtualization.clone(),
        host.governor.clone(),
    ]
}

/// A level of one or more factors that the same hosts have.
struct Level {
    factors: Vec<String>,
    level: String,
    usual: String,
    /// For each host, whether it has the level, and whether it has the usual one.
    these: Vec<bool>,
    those: Vec<bool>,
}

/// The values of many hosts' reports, of which each is added alone and forgotten. Folders may be read by several threads,
/// each into its own; [`Hosts::merge`] joins them, and the result does not depend on the order.
#[derive(Debug, Default)]
pub struct Hosts {
    reports: u32,
    /// Logarithms of each cell's values, by the cell's number. A host whose environment changed is there once for each.
    hosts: BTreeMap<(String, Environment), BTreeMap<usize, Vec<f64>>>,
    cells: BTreeMap<Cell, NumberedCell>,
}

/// A cell's number, and which of its values are better; `None` of a ratio of two arms.
#[derive(Clone, Copy, Debug)]
struct NumberedCell {
    number: usize,
    better: Option<Better>,
}

/// A host by its median, which one report from a bad moment does not move. Its values are summed in ascending order:
/// rounding must not depend on which report was read first.
fn member(group: usize, values: &[f64]) -> Member {
    let center = median(values).unwrap_or_default();
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let squares = sorted.iter().map(|value| (value - center).powi(2)).sum();
    Member { group, values: values.len() as u32, mean: center, squares }
}

/// The values of a report's first metric, as logarithms: of each arm, and of each ratio, which is not better or worse.
pub(crate) fn values(report: &HostReport) -> Vec<(Cell, Option<Better>, f64)> {
    let Some(metric) = report.workload.metrics.first() else { return Vec::new() };
    let mut values: BTreeMap<(String, bool), f64> = BTreeMap::new();
    for comparison in report.comparisons.iter().filter(|comparison| comparison.metric == metric.name) {
        let Comparison { baseline, candidate, .. } = comparison;
        values.insert((baseline.clone(), false), comparison.baseline_value);
        values.insert((candidate.clone(), false), comparison.candidate_value);
        values.insert((format!("{candidate} ÷ {baseline}"), true), comparison.ratio);
    }
    let mut usable = Vec::new();
    for ((arm, is_ratio), value) in values {
        if value > 0.0 && value.is_finite() {
            let cell = Cell { workload: report.workload.name.clone(), arm, metric: metric.name.clone() };
            let better = if is_ratio { None } else { Some(metric.better) };
            usable.push((cell, better, value.ln()));
        }
    }
    usable
}

impl Hosts {
    pub fn add(&mut self, name: &str, report: &HostReport) {
        self.reports += 1;
        let cells = self.hosts.entry((name.to_owned(), environment(&report.host))).or_default();
        for (cell, better, value) in values(report) {
            let number = self.cells.len();
            let cell = self.cells.entry(cell).or_insert(NumberedCell { number, better });
            cells.entry(cell.number).or_default().push(value);
        }
    }

    pub fn merge(&mut self, other: Hosts) {
        self.reports += other.reports;
        let mut numbers = vec![0; other.cells.len()];
        for (cell, its) in other.cells {
            let number = self.cells.len();
            let cell = self.cells.entry(cell).or_insert(NumberedCell { number, ..its });
            numbers[its.number] = cell.number;
        }
        for (host, cells) in other.hosts {
            let own = self.hosts.entry(host).or_default();
            for (its_number, values) in cells {
                own.entry(numbers[its_number]).or_default().extend(values);
            }
        }
    }

    /// Which hosts differ from those like them, and which parts of the environment make a difference.
    ///
    /// The unit is the host by the median of its reports, as hosts differ by themselves. Two families, each with Holm's
    /// adjustment at 5 %: hosts against their group (Student's t on the spread of hosts), and levels of the environment
    /// against the usual one (Welch's t over hosts), each for more than [`MARGIN`]. A regression with all parts of the
    /// environment at once was rejected: with three kernels and two CPUs on few hosts it has no unique answer, and hides
    /// that (docs/decisions/0102).
    #[must_use]
    pub fn compare(&self) -> HostsCompared {
        let mut environments: BTreeMap<&Environment, usize> = BTreeMap::new();
        let mut sizes: Vec<usize> = Vec::new();
        for (_, environment) in self.hosts.keys() {
            let number = environments.len();
            let at = *environments.entry(environment).or_insert(number);
            sizes.resize(sizes.len().max(at + 1), 0);
            sizes[at] += 1;
        }
        let mut not_compared = Vec::new();
        for ((name, environment), cells) in &self.hosts {
            let is_alone = sizes[environments[environment]] <= LEAST_PEERS;
            if is_alone || cells.values().all(|values| values.len() < LEAST_REPORTS) {
                not_compared.push(name.clone());
            }
        }
        let compared = self.against_their_like(&environments);
        HostsCompared {
            schema: HOSTS_SCHEMA,
            reports: self.reports,
            hosts: self.hosts.len() as u32,
            environments: environments.len() as u32,
            not_compared,
            differ: compared.iter().filter(|host| host.is_called()).cloned().collect(),
            factors: self.factors(),
            compared,
        }
    }

    /// Every host with [`LEAST_REPORTS`] reports and enough peers, in each cell; ordered by host.
    fn against_their_like(&self, environments: &BTreeMap<&Environment, usize>) -> Vec<HostDiffers> {
        let mut compared: Vec<HostDiffers> = Vec::new();
        for (cell, &NumberedCell { number, better }) in &self.cells {
            let mut names = Vec::new();
            let mut members = Vec::new();
            for ((name, environment), cells) in &self.hosts {
                let Some(values) = cells.get(&number) else { continue };
                names.push(name);
                members.push(member(environments[environment], values));
            }
            let standings = against_peers(&members, MARGIN.ln_1p());
            for ((name, member), standing) in names.into_iter().zip(&members).zip(standings) {
                let Some(standing) = standing else { continue };
                if member.values as usize >= LEAST_REPORTS {
                    compared.push(HostDiffers::of(name, cell, better, &standing, member.values));
                }
            }
        }
        adjust(compared.iter_mut().map(|host| &mut host.difference));
        compared.sort_by(|one, other| (&one.host, &one.cell).cmp(&(&other.host, &other.cell)));
        compared
    }

    /// Levels of factors whose hosts are not those of the usual level. Levels that the same hosts have are one entry,
    /// because nothing could tell them apart.
    fn levels(&self) -> Vec<Level> {
        let mut all: Vec<Level> = Vec::new();
        for (factor, name) in FACTORS.iter().enumerate() {
            let mut levels: BTreeMap<&str, u32> = BTreeMap::new();
            for (_, environment) in self.hosts.keys() {
                *levels.entry(&environment[factor]).or_default() += 1;
            }
            let usual = levels.iter().max_by_key(|(level, hosts)| (**hosts, Reverse(**level)));
            let Some((&usual, _)) = usual else { continue };
            for level in levels.keys().filter(|level| **level != usual) {
                let (these, those) = (self.which_have(factor, level), self.which_have(factor, usual));
                match all.iter_mut().find(|other| other.these == these && other.those == those) {
                    Some(other) => {
                        other.factors.push((*name).to_owned());
                        other.level = format!("{}, {level}", other.level);
                        other.usual = format!("{}, {usual}", other.usual);
                    }
                    None => all.push(Level {
                        factors: vec![(*name).to_owned()],
                        level: (*level).to_owned(),
                        usual: usual.to_owned(),
                        these,
                        those,
                    }),
                }
            }
        }
        all
    }

    fn which_have(&self, factor: usize, level: &str) -> Vec<bool> {
        self.hosts.keys().map(|(_, environment)| environment[factor] == level).collect()
    }

    /// The medians of the chosen hosts that have the cell, as logarithms.
    fn medians(&self, cell: usize, chosen: &[bool]) -> Vec<f64> {
        let mut medians = Vec::new();
        for (cells, is_chosen) in self.hosts.values().zip(chosen) {
            let Some(values) = cells.get(&cell) else { continue };
            if *is_chosen {
                medians.extend(median(values));
            }
        }
        medians
    }

    fn factors(&self) -> Vec<FactorDiffers> {
        let mut tried: Vec<FactorDiffers> = Vec::new();
        for level in self.levels() {
            for (cell, NumberedCell { number, .. }) in &self.cells {
                let these = self.medians(*number, &level.these);
                let those = self.medians(*number, &level.those);
                tried.extend(FactorDiffers::of(&level, cell, &these, &those));
            }
        }
        adjust(tried.iter_mut().map(|factor| &mut factor.difference));
        tried.retain(|factor| factor.difference.is_called());
        tried
    }
}

impl FactorDiffers {
    /// Hosts with a level against those with the usual one, by their medians as logarithms: difference of means with
    /// Welch's t interval (Welch 1947). The p-value, not adjusted yet, is that of the difference moved by the margin towards
    /// 0; 1 inside the margin. `None` where either side has too few hosts.
    fn of(level: &Level, cell: &Cell, these: &[f64], those: &[f64]) -> Option<Self> {
        if these.len().min(those.len()) <= LEAST_PEERS {
            return None;
        }
        let found = distributions::locate_shift(those, these, CONFIDENCE)?;
        let limit = MARGIN.ln_1p() * found.estimate.signum();
        let moved: Vec<f64> = these.iter().map(|median| median - limit).collect();
        let p = match distributions::locate_shift(those, &moved, CONFIDENCE) {
            Some(moved) if found.estimate.abs() > limit.abs() => moved.p,
            _ => 1.0,
        };
        Some(FactorDiffers {
            factors: level.factors.clone(),
            level: level.level.clone(),
            usual: level.usual.clone(),
            cell: cell.clone(),
            difference: Difference::of(found.estimate, found.interval, p),
            hosts: these.len() as u32,
        })
    }
}

const HOSTS_HISTORY_SCHEMA: &str = "samehost.hosts-history/1";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostHistory {
    pub host: String,
    /// What was run, without what does not matter for it.
    pub command: String,
    #[serde(flatten)]
    pub cell: Cell,
    /// The oldest first.
    pub runs: Vec<HostRun>,
    /// The newest run by the earlier ones; absent where they are fewer than four.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<Newest>,
    /// What is not the same in the environment of the last two runs: `kernel 6.1 → 6.12`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostRun {
    pub started_at: String,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Newest {
    /// Newest ÷ earlier ones.
    #[serde(flatten)]
    pub difference: Difference,
    pub differs: bool,
    /// Whether it is worse, where it differs; none of a ratio of two arms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_slower: Option<bool>,
}

impl Newest {
    /// The last of these runs by the others, with a p-value that is not adjusted yet; `None` where they are too few.
    fn of(runs: &[Run], better: Option<Better>) -> Option<Self> {
        let members: Vec<Member> =
            runs.iter().map(|run| Member { group: 0, values: 1, mean: run.log, squares: 0.0 }).collect();
        let standing = against_peers(&members, MARGIN.ln_1p()).pop()??;
        Some(Newest {
            difference: Difference::of_standing(&standing),
            differs: false,
            is_slower: better.map(|better| (better == Better::Lower) == (standing.difference > 0.0)),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostsHistory {
    pub schema: &'static str,
    pub reports: u32,
    pub hosts: u32,
    pub histories: Vec<HostHistory>,
}

fn newest_of(histories: &mut [HostHistory]) -> impl Iterator<Item = &mut Newest> {
    histories.iter_mut().filter_map(|history| history.newest.as_mut())
}

#[derive(Debug)]
struct Run {
    started_at: String,
    /// Natural logarithm of the value.
    log: f64,
    /// The place of its environment in [`Histories::environments`].
    environment: usize,
}

/// The runs of a cell, and which of its values are better; `None` of a ratio of two arms.
#[derive(Debug)]
struct Runs {
    better: Option<Better>,
    runs: Vec<Run>,
}

/// Runs of many hosts, each under its host and its command; as [`Hosts`], filled report by report and merged.
#[derive(Debug, Default)]
pub struct Histories {
    reports: u32,
    environments: Vec<Environment>,
    /// By host and command.
    hosts: BTreeMap<(String, String), BTreeMap<Cell, Runs>>,
}

impl Histories {
    /// Adds a report of a host: the values of its first metric. Reports with the same `command` are runs of the same.
    pub fn add(&mut self, name: &str, command: &str, report: &HostReport) {
        self.reports += 1;
        let environment = self.place_of(environment(&report.host));
        let cells = self.hosts.entry((name.to_owned(), command.to_owned())).or_default();
        for (cell, better, log) in values(report) {
            let started_at = report.started_at.clone();
            let own = cells.entry(cell).or_insert_with(|| Runs { better, runs: Vec::new() });
            own.runs.push(Run { started_at, log, environment });
        }
    }

    pub fn merge(&mut self, other: Histories) {
        self.reports += other.reports;
        let places: Vec<usize> = other.environments.into_iter().map(|one| self.place_of(one)).collect();
        for (host, cells) in other.hosts {
            let own = self.hosts.entry(host).or_default();
            for (cell, Runs { better, runs }) in cells {
                let own = own.entry(cell).or_insert_with(|| Runs { better, runs: Vec::new() });
                for run in runs {
                    own.runs.push(Run { environment: places[run.environment], ..run });
                }
            }
        }
    }

    fn place_of(&mut self, environment: Environment) -> usize {
        if let Some(known) = self.environments.iter().position(|known| *known == environment) {
            return known;
        }
        self.environments.push(environment);
        self.environments.len() - 1
    }

    /// The runs in order of time, and whether the newest of each host differs from its earlier ones by more than
    /// [`MARGIN`]: Student's t of one value against the earlier ones (prediction interval). All hosts, commands and cells
    /// are one family with Holm's adjustment at 5 %, because a reader of many histories looks for any that stands out.
    #[must_use]
    pub fn in_order(mut self) -> HostsHistory {
        let mut histories = Vec::new();
        for ((host, command), cells) in &mut self.hosts {
            for (cell, Runs { better, runs }) in cells {
                // The value, too: who was read first must not matter.
                runs.sort_by(|one, other| {
                    one.started_at.cmp(&other.started_at).then(one.log.total_cmp(&other.log))
                });
                let changed = match runs.as_slice() {
                    [.., before, after] => {
                        changed(&self.environments[before.environment], &self.environments[after.environment])
                    }
                    _ => Vec::new(),
                };
                let values = runs
                    .iter()
                    .map(|run| HostRun { started_at: run.started_at.clone(), value: run.log.exp() });
                histories.push(HostHistory {
                    host: host.clone(),
                    command: command.clone(),
                    cell: cell.clone(),
                    newest: Newest::of(runs, *better),
                    runs: values.collect(),
                    changed,
                });
            }
        }
        adjust(newest_of(&mut histories).map(|newest| &mut newest.difference));
        for newest in newest_of(&mut histories) {
            newest.differs = newest.difference.is_called();
            newest.is_slower = newest.is_slower.filter(|_| newest.differs);
        }
        let mut hosts: Vec<&String> = self.hosts.keys().map(|(host, _)| host).collect();
        hosts.dedup();
        HostsHistory {
            schema: HOSTS_HISTORY_SCHEMA,
            reports: self.reports,
            hosts: hosts.len() as u32,
            histories,
        }
    }
}
