//! The runs of many hosts in order of time: whether the newest of each differs from its earlier ones. As in `hosts`, only
//! values are kept.

use std::collections::BTreeMap;

use samehost_model::Better;
use samehost_stats::holm;
use samehost_stats::peers::{Member, Standing, against_peers};
use serde::Serialize;

use crate::hosts::{ALPHA, CONFIDENCE, Cell, Environment, HostReport, MARGIN, changed, environment, values};

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
