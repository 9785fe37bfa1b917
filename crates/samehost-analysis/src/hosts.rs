//! Compares many hosts by their reports: which host differs from those like it, what its environment does, and whether the
//! newest run of each differs from its earlier ones. Reports are added one by one, and only their values are kept.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use samehost_model::{Better, Comparison, Host, MetricInfo};
use samehost_stats::peers::{LEAST_PEERS, Member, Standing, against_peers};
use samehost_stats::{distributions, holm, median};
use serde::{Deserialize, Serialize};

/// Name and version of the JSON format.
pub const HOSTS_SCHEMA: &str = "samehost.hosts/1";
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
/// The setting of new connections' congestion control.
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

/// What is read of a report; the trials are passed over.
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

/// What is read of a report's workload.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    pub name: String,
    pub metrics: Vec<MetricInfo>,
}

/// What was measured: of one arm, or of one arm by another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cell {
    pub workload: String,
    /// The arm's id, or `unix ÷ tcp`.
    pub arm: String,
    pub metric: String,
}

/// A host by those with the same environment, from which it may differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostDiffers {
    pub host: String,
    #[serde(flatten)]
    pub cell: Cell,
    /// Host ÷ its peers.
    pub ratio: f64,
    pub ci_low: f64,
    pub ci_high: f64,
    /// p-value of "inside the margin", adjusted over all hosts and cells.
    pub p_adjusted: f64,
    /// Whether it is worse than its peers; none of a ratio of two arms.
    pub is_slower: Option<bool>,
    /// Hosts with the same environment.
    pub peers: u32,
    /// Its reports.
    pub reports: u32,
}

/// A part of the environment whose hosts differ from those with the usual one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FactorDiffers {
    /// `kernel`, or several that cannot be told apart because the same hosts have them.
    pub factors: Vec<String>,
    pub level: String,
    /// What most hosts have.
    pub usual: String,
    #[serde(flatten)]
    pub cell: Cell,
    /// Hosts with the level ÷ hosts with the usual one.
    pub ratio: f64,
    pub ci_low: f64,
    pub ci_high: f64,
    /// p-value of "inside the margin", adjusted over all levels and cells.
    pub p_adjusted: f64,
    pub hosts: u32,
}

/// What a comparison of many hosts found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostsCompared {
    pub schema: &'static str,
    pub reports: u32,
    pub hosts: u32,
    /// How many different environments they have.
    pub environments: u32,
    /// Hosts that were not compared, because fewer than [`LEAST_PEERS`] others have their environment, or because they have
    /// fewer than [`LEAST_REPORTS`] reports.
    pub not_compared: Vec<String>,
    pub differ: Vec<HostDiffers>,
    pub factors: Vec<FactorDiffers>,
    /// Every host that was compared, whether it differs or not.
    #[serde(skip)]
    pub compared: Vec<HostDiffers>,
}

impl HostDiffers {
    /// Whether that is more than chance and the margin.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.p_adjusted < ALPHA
    }
}

/// The factors of an environment, by name.
const FACTORS: [&str; 7] =
    ["kernel", "CPU", "CPUs", "congestion control", "mitigations", "virtualization", "governor"];

pub(crate) type Environment = [String; FACTORS.len()];

/// What is not the same in two environments: `kernel 6.1 → 6.12`.
pub(crate) fn changed(before: &Environment, after: &Environment) -> Vec<String> {
    let both = before.iter().zip(after).zip(FACTORS);
    both.filter(|((before, after), _)| before != after)
        .map(|((before, after), name)| format!("{name} {before} → {after}"))
        .collect()
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

/// A level of one or more factors.
struct Level {
    factors: Vec<String>,
    level: String,
    usual: String,
    /// Which hosts have it.
    these: Vec<bool>,
    /// Which hosts have the usual one.
    those: Vec<bool>,
}

/// Reports of many hosts.
#[derive(Debug, Default)]
pub struct Hosts {
    reports: u32,
    /// Logarithms of the values of each cell. A host whose environment changed is there once for each.
    hosts: BTreeMap<(String, Environment), BTreeMap<usize, Vec<f64>>>,
    cells: BTreeMap<Cell, (usize, Option<Better>)>,
}

/// A host by its median, which one report from a bad moment does not move.
fn member(group: usize, values: &[f64]) -> Member {
    let center = median(values).unwrap_or_default();
    // In an order of their own: rounding must not depend on who was read first.
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
    let usable = values.into_iter().filter(|(_, value)| *value > 0.0 && value.is_finite());
    usable
        .map(|((arm, is_ratio), value)| {
            let cell = Cell { workload: report.workload.name.clone(), arm, metric: metric.name.clone() };
            (cell, (!is_ratio).then_some(metric.better), value.ln())
        })
        .collect()
}

impl Hosts {
    /// Adds a report of a host: the values of its first metric.
    pub fn add(&mut self, name: &str, report: &HostReport) {
        self.reports += 1;
        let cells = self.hosts.entry((name.to_owned(), environment(&report.host))).or_default();
        for (cell, better, value) in values(report) {
            let number = self.cells.len();
            let at = self.cells.entry(cell).or_insert((number, better)).0;
            cells.entry(at).or_default().push(value);
        }
    }

    /// Adds what others were read into.
    pub fn merge(&mut self, other: Hosts) {
        self.reports += other.reports;
        let mut places = vec![0; other.cells.len()];
        for (cell, (at, better)) in other.cells {
            let number = self.cells.len();
            places[at] = self.cells.entry(cell).or_insert((number, better)).0;
        }
        for (host, cells) in other.hosts {
            let own = self.hosts.entry(host).or_default();
            for (at, values) in cells {
                own.entry(places[at]).or_default().extend(values);
            }
        }
    }

    /// Which hosts differ, and by what.
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

    fn against_their_like(&self, environments: &BTreeMap<&Environment, usize>) -> Vec<HostDiffers> {
        let mut tried: Vec<(&str, &Cell, Option<Better>, Standing, u32)> = Vec::new();
        for (cell, (at, better)) in &self.cells {
            let hosts = self.hosts.iter().filter_map(|(host, cells)| Some((host, cells.get(at)?)));
            let hosts: Vec<(&(String, Environment), &Vec<f64>)> = hosts.collect();
            let members: Vec<Member> = hosts
                .iter()
                .map(|((_, environment), values)| member(environments[environment], values))
                .collect();
            for (((name, _), values), standing) in
                hosts.into_iter().zip(against_peers(&members, MARGIN.ln_1p()))
            {
                let standing = standing.filter(|_| values.len() >= LEAST_REPORTS);
                tried.extend(
                    standing.map(|standing| (name.as_str(), cell, *better, standing, values.len() as u32)),
                );
            }
        }
        let adjusted = holm::adjust(&tried.iter().map(|one| one.3.p_inside).collect::<Vec<_>>());
        let mut compared: Vec<HostDiffers> = tried
            .iter()
            .zip(adjusted)
            .map(|((host, cell, better, standing, reports), p_adjusted)| {
                let interval = standing.interval(CONFIDENCE).exp();
                HostDiffers {
                    host: (*host).to_owned(),
                    cell: (*cell).clone(),
                    ratio: standing.difference.exp(),
                    ci_low: interval.low,
                    ci_high: interval.high,
                    p_adjusted,
                    is_slower: better.map(|better| (better == Better::Lower) == (standing.difference > 0.0)),
                    peers: standing.peers,
                    reports: *reports,
                }
            })
            .collect();
        compared.sort_by(|one, other| (&one.host, &one.cell).cmp(&(&other.host, &other.cell)));
        compared
    }

    /// Levels of factors whose hosts are not those of the usual level; the same hosts make one entry.
    fn levels(&self) -> Vec<Level> {
        let mut all: Vec<Level> = Vec::new();
        for (factor, name) in FACTORS.iter().enumerate() {
            let mut levels: BTreeMap<&str, u32> = BTreeMap::new();
            for (_, environment) in self.hosts.keys() {
                *levels.entry(&environment[factor]).or_default() += 1;
            }
            let usual = levels.iter().max_by_key(|(level, hosts)| (**hosts, Reverse(**level)));
            let Some(usual) = usual.map(|(level, _)| *level) else { continue };
            let with = |level: &str| -> Vec<bool> {
                self.hosts.keys().map(|(_, environment)| environment[factor] == level).collect()
            };
            for level in levels.keys().filter(|level| **level != usual) {
                let (these, those) = (with(level), with(usual));
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

    fn factors(&self) -> Vec<FactorDiffers> {
        let mut tried: Vec<(FactorDiffers, f64)> = Vec::new();
        for Level { factors, level, usual, these, those } in self.levels() {
            for (cell, (at, _)) in &self.cells {
                let means = |chosen: &[bool]| -> Vec<f64> {
                    let chosen = self.hosts.values().zip(chosen).filter(|(_, is_chosen)| **is_chosen);
                    chosen.filter_map(|(cells, _)| median(cells.get(at)?)).collect()
                };
                let (these, those) = (means(&these), means(&those));
                if these.len().min(those.len()) <= LEAST_PEERS {
                    continue;
                }
                let Some(found) = distributions::locate_shift(&those, &these, CONFIDENCE) else { continue };
                let limit = MARGIN.ln_1p() * found.estimate.signum();
                let moved: Vec<f64> = these.iter().map(|mean| mean - limit).collect();
                let moved = distributions::locate_shift(&those, &moved, CONFIDENCE);
                let is_beyond = found.estimate.abs() > limit.abs();
                let p = moved.filter(|_| is_beyond).map_or(1.0, |moved| moved.p);
                let interval = found.interval.exp();
                let differs = FactorDiffers {
                    factors: factors.clone(),
                    level: level.clone(),
                    usual: usual.clone(),
                    cell: cell.clone(),
                    ratio: found.estimate.exp(),
                    ci_low: interval.low,
                    ci_high: interval.high,
                    p_adjusted: 1.0,
                    hosts: these.len() as u32,
                };
                tried.push((differs, p));
            }
        }
        let adjusted = holm::adjust(&tried.iter().map(|(_, p)| *p).collect::<Vec<_>>());
        let with_p = tried.into_iter().zip(adjusted);
        with_p
            .filter(|(_, p_adjusted)| *p_adjusted < ALPHA)
            .map(|((differs, _), p_adjusted)| FactorDiffers { p_adjusted, ..differs })
            .collect()
    }
}

/// Name and version of the JSON format.
pub const HOSTS_HISTORY_SCHEMA: &str = "samehost.hosts-history/1";

/// What a host measured with a command, run by run.
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

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostRun {
    pub started_at: String,
    pub value: f64,
}

/// How the newest run stands among the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Newest {
    /// Newest ÷ earlier ones.
    pub ratio: f64,
    pub ci_low: f64,
    pub ci_high: f64,
    /// p-value of "inside the margin", adjusted over all hosts and cells.
    pub p_adjusted: f64,
    pub differs: bool,
    /// Whether it is worse, where it differs; none of a ratio of two arms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_slower: Option<bool>,
}

/// What the histories of many hosts say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostsHistory {
    pub schema: &'static str,
    pub reports: u32,
    pub hosts: u32,
    pub histories: Vec<HostHistory>,
}

/// A run's start, its value as a logarithm, and its environment.
type Timed = (String, f64, usize);
/// Runs of what was measured, and which values of it are better.
type Runs = BTreeMap<Cell, (Option<Better>, Vec<Timed>)>;

/// Reports of many hosts, to be put in order.
#[derive(Debug, Default)]
pub struct Histories {
    reports: u32,
    environments: Vec<Environment>,
    /// By host and command.
    hosts: BTreeMap<(String, String), Runs>,
}

impl Histories {
    /// Adds a report of a host: the values of its first metric. Reports with the same `command` are runs of the same.
    pub fn add(&mut self, name: &str, command: &str, report: &HostReport) {
        self.reports += 1;
        let at = self.place_of(environment(&report.host));
        let cells = self.hosts.entry((name.to_owned(), command.to_owned())).or_default();
        for (cell, better, value) in values(report) {
            cells.entry(cell).or_insert((better, Vec::new())).1.push((report.started_at.clone(), value, at));
        }
    }

    /// Adds what others were read into.
    pub fn merge(&mut self, other: Histories) {
        self.reports += other.reports;
        let places: Vec<usize> = other.environments.into_iter().map(|one| self.place_of(one)).collect();
        for (host, cells) in other.hosts {
            let own = self.hosts.entry(host).or_default();
            for (cell, (better, runs)) in cells {
                let runs = runs.into_iter().map(|(start, value, at)| (start, value, places[at]));
                own.entry(cell).or_insert((better, Vec::new())).1.extend(runs);
            }
        }
    }

    fn place_of(&mut self, environment: Environment) -> usize {
        let known = self.environments.iter().position(|one| *one == environment);
        known.unwrap_or_else(|| {
            self.environments.push(environment);
            self.environments.len() - 1
        })
    }

    /// The runs in order of time, and whether the newest of each host differs.
    #[must_use]
    pub fn in_order(mut self) -> HostsHistory {
        let mut histories = Vec::new();
        let mut standings: Vec<Option<Standing>> = Vec::new();
        let mut betters: Vec<Option<Better>> = Vec::new();
        for ((host, command), cells) in &mut self.hosts {
            for (cell, (better, runs)) in cells {
                // The value, too: who was read first must not matter.
                runs.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
                let member =
                    |(_, value, _): &Timed| Member { group: 0, values: 1, mean: *value, squares: 0.0 };
                let members: Vec<Member> = runs.iter().map(member).collect();
                standings.push(against_peers(&members, MARGIN.ln_1p()).pop().flatten());
                betters.push(*better);
                let changed = match runs.as_slice() {
                    [.., (_, _, before), (_, _, after)] => {
                        changed(&self.environments[*before], &self.environments[*after])
                    }
                    _ => Vec::new(),
                };
                let run =
                    |(start, value, _): &Timed| HostRun { started_at: start.clone(), value: value.exp() };
                histories.push(HostHistory {
                    host: host.clone(),
                    command: command.clone(),
                    cell: cell.clone(),
                    runs: runs.iter().map(run).collect(),
                    newest: None,
                    changed,
                });
            }
        }
        let p_values: Vec<f64> = standings.iter().flatten().map(|standing| standing.p_inside).collect();
        let mut adjusted = holm::adjust(&p_values).into_iter();
        for ((history, standing), better) in histories.iter_mut().zip(standings).zip(betters) {
            let Some(standing) = standing else { continue };
            let Some(p_adjusted) = adjusted.next() else { break };
            let interval = standing.interval(CONFIDENCE).exp();
            let differs = p_adjusted < ALPHA;
            let is_slower = better.map(|better| (better == Better::Lower) == (standing.difference > 0.0));
            history.newest = Some(Newest {
                ratio: standing.difference.exp(),
                ci_low: interval.low,
                ci_high: interval.high,
                p_adjusted,
                differs,
                is_slower: is_slower.filter(|_| differs),
            });
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
