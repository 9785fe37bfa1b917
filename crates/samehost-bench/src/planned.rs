//! A request with all defaults filled in: made once, before anything starts, and read-only afterwards; and how arms that
//! are compared are driven, in slices of a round or in separate trials, and on which CPUs. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use samehost_model::{Arm, Driven, Placement, Plan, Point, Redactor, Transport, Undivided};

use crate::error::BenchError;
use crate::machine::{CpuPlan, allowed_cpus};
use crate::matrix::{Capacity, Matrix, sweep};
use crate::parameters::Parameters;
use crate::parameters::{OWN_PARAMETER, distinct};
use crate::request::Request;
use crate::workload::{Capabilities, Configured, Workload};
use crate::{matrix, measure, tuned};

#[derive(Clone)]
pub(crate) struct Planned {
    pub(crate) workload: &'static dyn Workload,
    pub(crate) configured: Arc<dyn Configured>,
    /// The request with its parameters and servers completed.
    pub(crate) request: Request,
    pub(crate) capabilities: Capabilities,
    pub(crate) matrix: Matrix,
    pub(crate) driving: Driving,
    /// Empty if rates depend on capacities that are not measured yet.
    pub(crate) arms: Vec<Arm>,
    pub(crate) plan: Plan,
}

impl Planned {
    /// Fills in all defaults, and refuses what makes no sense before anything is started.
    ///
    /// # Errors
    /// When the workload has no such option, a point makes no sense, or the budget is too short.
    pub(crate) fn new(workload: &'static dyn Workload, request: &Request) -> Result<Self, BenchError> {
        let proposed = workload.propose(&request.parameters, &request.connections)?;
        let (mut parameters, mut swept) = sweep(workload, &proposed)?;
        tuned::add(request, &mut parameters, &mut swept);
        let configured = workload.configure(&parameters)?;
        swept.extend(configured.swept());
        let capabilities = configured.axes();
        tuned::check(workload, &capabilities, request)?;
        refuse_unfit(workload, request, &capabilities)?;
        let servers = if request.servers.is_empty() {
            BTreeMap::new()
        } else {
            workload.complete(&request.servers, &request.transports)?
        };
        let request = Request { servers, parameters, ..request.clone() };
        let transports = transports(&request, &capabilities);
        let driving = driving(&capabilities, &request, &transports);
        let matrix = Matrix {
            connections: connections(workload, &request, &capabilities)?,
            sizes: sizes(workload, &request, &capabilities)?,
            rates: distinct(request.rates.clone()),
            placements: distinct(request.placements.clone()),
            alone: if request.rates.is_empty() { driving.alone() } else { Placement::Free },
            swept,
            transports,
            capacities: Vec::new(),
        };
        for level in matrix.levels() {
            for transport in &matrix.transports {
                configured.check(&level, *transport)?;
            }
        }
        let arms = if capabilities.commands {
            matrix::command_arms(&request.commands, &matrix)?
        } else if request.rates.is_empty() {
            matrix.arms(&*configured)?
        } else {
            Vec::new()
        };
        let plan = plan(&request, &capabilities, &driving, &arms)?;
        Ok(Planned { workload, configured, request, capabilities, matrix, driving, arms, plan })
    }

    pub(crate) fn with_capacities(&self, capacities: Vec<Capacity>) -> Result<Self, BenchError> {
        let matrix = Matrix { capacities, ..self.matrix.clone() };
        let arms = matrix.arms(&*self.configured)?;
        let plan = plan(&self.request, &self.capabilities, &self.driving, &arms)?;
        Ok(Planned { matrix, arms, plan, ..self.clone() })
    }

    pub(crate) fn most_at_once(&self) -> u32 {
        let is_open_loop = !self.matrix.rates.is_empty();
        let mut most = 1;
        for connections in &self.matrix.connections {
            most = most.max(self.driving.at_once(*connections, is_open_loop));
        }
        most
    }

    /// Parameters that are the same at every point, for the report.
    pub(crate) fn shown_parameters(&self) -> Parameters {
        let (request, matrix) = (&self.request, &self.matrix);
        let mut parameters = request.parameters.clone();
        // The values of `--parameter` stand with the axes.
        parameters.remove(OWN_PARAMETER);
        for swept in &matrix.swept {
            parameters.remove(&swept.name);
        }
        parameters.retain(|_, value| !value.is_empty());
        for (name, script) in &request.commands {
            parameters.insert(format!("arm {name}"), Redactor::default().command(script));
        }
        // Capacity of the baseline at each level: percentages refer to it. The capacity of every arm is in `arms`.
        for capacity in matrix.capacities.iter().filter(|c| Some(&c.transport) == matrix.transports.first()) {
            let name = format!("capacity_per_s{}", matrix.level_suffix(&capacity.level));
            parameters.insert(name, format!("{:.0}", capacity.per_s));
        }
        if request.threads > 1 {
            parameters.insert("threads".into(), request.threads.to_string());
        }
        parameters
    }
}

/// How much to measure. After an earlier part of the same measurement, trials keep their length: the blocks
/// of both count.
fn plan(
    request: &Request,
    capabilities: &Capabilities,
    driving: &Driving,
    arms: &[Arm],
) -> Result<Plan, BenchError> {
    let driven = driving.driven(arms)?;
    let mut plan = matrix::plan(&request.stop, capabilities, arms, driven)?;
    if let Some(earlier) = &request.earlier {
        let known = &earlier.head.arms;
        if !arms.iter().all(|arm| known.iter().any(|one| one.id == arm.id && one.point == arm.point)) {
            return Err(BenchError::Usage("what was measured before had other arms".into()));
        }
        plan.trial_s = earlier.head.plan.trial_s;
    }
    Ok(plan)
}

fn driving(capabilities: &Capabilities, request: &Request, transports: &[Transport]) -> Driving {
    let all = transports.len() as u32;
    let run_twice = all > 1 && !request.stop.no_control;
    Driving {
        most: capabilities.most_sliced,
        least: capabilities.least_slice,
        threads: request.threads,
        lanes: if run_twice { 2 * all } else { all },
        allowed: allowed_cpus(),
        places_server: request.servers.is_empty(),
    }
}

fn no(workload: &dyn Workload, option: &str) -> BenchError {
    BenchError::Usage(format!("`bench {}` takes no {option}", workload.name()))
}

#[must_use]
pub fn no_servers(workload: &dyn Workload) -> BenchError {
    no(workload, "--tcp or --unix: it starts its own server")
}

fn refuse_unfit(
    workload: &dyn Workload,
    request: &Request,
    capabilities: &Capabilities,
) -> Result<(), BenchError> {
    for transport in &request.transports {
        if !capabilities.transports.contains(transport) {
            return Err(BenchError::UnsupportedTransport {
                workload: workload.name(),
                transport: *transport,
                known: capabilities.transports.to_vec(),
            });
        }
    }
    if request.transports.contains(&Transport::TcpRun) && !request.servers.is_empty() {
        return Err(BenchError::Usage(
            "tcp+run is measured against a private server; leave --tcp and --unix out, or start your client under `samehost run`".into(),
        ));
    }
    connections(workload, request, capabilities)?;
    sizes(workload, request, capabilities)?;
    if !request.rates.is_empty() && !capabilities.rates {
        return Err(no(workload, "--rate or --ladder"));
    }
    if !request.servers.is_empty() && !capabilities.foreign_servers {
        return Err(no_servers(workload));
    }
    if capabilities.commands && request.commands.len() < 2 {
        return Err(BenchError::Usage(
            "give at least two commands: 'COMMAND' 'COMMAND', or --arm NAME='COMMAND' --arm NAME='COMMAND'"
                .into(),
        ));
    }
    if !capabilities.commands && !request.commands.is_empty() {
        return Err(no(workload, "--arm; its arms are --transports"));
    }
    if request.stop.trial_time.is_some() && !capabilities.timed {
        return Err(no(workload, "--trial-time: each trial is one whole operation"));
    }
    for placement in &request.placements {
        CpuPlan::new(*placement, &allowed_cpus())?;
    }
    Ok(())
}

fn transports(request: &Request, capabilities: &Capabilities) -> Vec<Transport> {
    if !request.transports.is_empty() {
        request.transports.clone()
    } else if request.servers.is_empty() {
        capabilities.transports.iter().copied().take(2).collect()
    } else {
        request.servers.keys().copied().collect()
    }
}

fn connections(
    workload: &dyn Workload,
    request: &Request,
    capabilities: &Capabilities,
) -> Result<Vec<u32>, BenchError> {
    Ok(distinct(match (request.connections.as_slice(), capabilities.connections) {
        ([], default) => samehost_model::parse_count_list(default.unwrap_or("1"))?,
        (_, None) => return Err(no(workload, "--connections")),
        (given, Some(_)) => given.to_vec(),
    }))
}

fn sizes(
    workload: &dyn Workload,
    request: &Request,
    capabilities: &Capabilities,
) -> Result<Vec<Option<u64>>, BenchError> {
    let own = capabilities.sizes.filter(|_| request.servers.is_empty() || workload.foreign_sizes());
    Ok(distinct(match (request.sizes.as_slice(), own) {
        ([], None) => vec![None],
        ([], Some(default)) => samehost_model::parse_size_list(default)?.into_iter().map(Some).collect(),
        (_, None) if capabilities.sizes.is_some() => {
            return Err(no(workload, "--size: the size of a reply is up to a server that already runs"));
        }
        (_, None) => return Err(no(workload, "--size")),
        (given, Some(_)) => given.iter().copied().map(Some).collect(),
    }))
}

/// The most connections that are open at once for all arms of a point.
const MOST_AT_ONCE: u32 = 1024;

/// What decides, besides the arms, how arms are driven.
#[derive(Clone, Debug)]
pub(crate) struct Driving {
    /// Most connections of an arm with which the workload's requests can be cut into slices.
    pub(crate) most: u32,
    pub(crate) least: Duration,
    pub(crate) threads: u32,
    /// Arms that take turns at a point, twice each where there is a control.
    pub(crate) lanes: u32,
    pub(crate) allowed: Vec<usize>,
    pub(crate) places_server: bool,
}

/// Usual length of a slice: 0.25 ms for one connection, 8 ms for several, whose requests in flight the
/// other arm waits for. One connection had 1 ms. Beside a program at 60 % of each of two CPUs an arm's
/// two runs in a block differed by 4.1 and 4.2 % with it (MariaDB, two measurements, standard deviation
/// of ln), by 2.3 and 1.7 % with 0.4 ms, and by 0.6 and 0.5 % with 0.2 ms, where a block takes twice as
/// long. Redis' ratio scattered by 3.8 % with 1 ms and by 1.7 % with 0.25. On the quiet machine the
/// ratios stay, but for our own server's, which is 2 % smaller. Several connections scatter less with 2
/// ms too, and there the ratio moves: Redis' CPU time with 64 was 0.605 for 0.637. Separate trials of a
/// second were the first way, and do not average away where the scheduler puts two processes
/// (docs/method.md §1a).
fn usual(connections: u32) -> Duration {
    if connections == 1 { Duration::from_micros(250) } else { Duration::from_millis(8) }
}

impl Driving {
    /// Length of the slices of arms at this point, or the reason for separate trials.
    pub(crate) fn slice(&self, point: &Point) -> Result<Duration, Undivided> {
        if self.most == 0 {
            return Err(Undivided::Workload);
        }
        if point.rate_per_s.is_some() {
            return Err(Undivided::OpenLoop);
        }
        if self.threads > 1 {
            return Err(Undivided::Threads);
        }
        if point.connections > self.most || point.connections * self.lanes > MOST_AT_ONCE {
            return Err(Undivided::Connections);
        }
        Ok(usual(point.connections).max(self.least))
    }

    /// The most connections that the server has open when arms with so many connections are measured.
    pub(crate) fn at_once(&self, connections: u32, is_open_loop: bool) -> u32 {
        let point = Point { connections, rate_per_s: is_open_loop.then_some(1.0), ..Point::default() };
        if self.slice(&point).is_ok() { connections * self.lanes } else { connections }
    }

    /// Default placement of one connection in a closed loop: a CPU for each end, where we place the
    /// server and have two. Where the scheduler places two processes that wake each other is the largest
    /// source of noise, and it says nothing about a transport: it makes an exchange 5 or 60 µs long, and
    /// what free placement answers varies by a factor of ten from minute to minute. That is real too and
    /// another question, which `--placement free` asks. A server that runs already is never pinned
    /// (docs/method.md §1a).
    pub(crate) fn alone(&self) -> Placement {
        let can = self.most > 0 && self.places_server && self.allowed.len() > 1;
        if can { Placement::CrossCore } else { Placement::Free }
    }

    /// CPUs of client and server at a point.
    ///
    /// # Errors
    /// When there are too few for the placement.
    pub(crate) fn cpus(&self, point: &Point) -> Result<CpuPlan, BenchError> {
        let cpus = CpuPlan::new(point.placement, &self.allowed)?;
        Ok(if point.connections == 1 { cpus.one_each() } else { cpus })
    }

    /// Whether client and server change places at random from round to round. A program that stays on one CPU for some
    /// rounds and on the other for the next slows the client's end in some and the server's in others; with fixed
    /// places it would do so in the order of its own moves. All arms of a round are placed alike, so the ratio is
    /// about both places. Streams, which have a least slice, stay: their bandwidth differs from CPU to CPU (15 rounds of
    /// 512 KiB writes, three times: 1.10–1.69 in fixed places, 1.00–1.22 and wider in changing ones).
    pub(crate) fn swaps(&self, cpus: &CpuPlan) -> bool {
        self.places_server && self.least.is_zero() && cpus.can_swap()
    }

    /// How the arms of all points with a comparison are driven.
    ///
    /// # Errors
    /// When there are too few CPUs.
    pub(crate) fn driven(&self, arms: &[Arm]) -> Result<Vec<Driven>, BenchError> {
        let mut all: Vec<Driven> = Vec::new();
        for group in measure::groups(arms) {
            let point = &arms[group[0]].point;
            let is_known =
                |known: &Driven| known.connections == point.connections && known.placement == point.placement;
            if group.len() < 2 || all.iter().any(is_known) {
                continue;
            }
            let slice = self.slice(point);
            let is_sliced = slice.is_ok();
            let cpus = self.cpus(point)?;
            let (client, server) = match point.placement {
                Placement::Free => (&[][..], &[][..]),
                _ if self.places_server => (&cpus.client[..], &cpus.server[..]),
                _ => (&cpus.client[..], &[][..]),
            };
            all.push(Driven {
                connections: point.connections,
                placement: point.placement,
                slice_s: slice.ok().map(|slice| slice.as_secs_f64()),
                undivided: slice.err(),
                client_cpus: numbers(client),
                server_cpus: numbers(server),
                swapped_at_random: is_sliced && point.placement == Placement::CrossCore && self.swaps(&cpus),
            });
        }
        Ok(all)
    }
}

fn numbers(cpus: &[usize]) -> Vec<u32> {
    cpus.iter().map(|cpu| *cpu as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driving() -> Driving {
        Driving {
            most: 256,
            least: Duration::ZERO,
            threads: 1,
            lanes: 4,
            allowed: vec![0, 1],
            places_server: true,
        }
    }

    fn point(connections: u32) -> Point {
        Point { connections, ..Point::default() }
    }

    #[test]
    fn slices_where_they_can_be_and_else_the_reason() {
        let driving = driving();
        let ms = Duration::from_millis;
        assert_eq!(driving.slice(&point(1)), Ok(Duration::from_micros(250)));
        assert_eq!(driving.slice(&point(64)), Ok(ms(8)));
        assert_eq!(driving.slice(&point(257)), Err(Undivided::Connections));
        let due = Point { rate_per_s: Some(5.0), ..point(1) };
        assert_eq!(driving.slice(&due), Err(Undivided::OpenLoop));
        let changed = |change: fn(&mut Driving)| {
            let mut changed = driving.clone();
            change(&mut changed);
            changed.slice(&point(1))
        };
        assert_eq!(changed(|d| d.most = 0), Err(Undivided::Workload));
        assert_eq!(changed(|d| d.threads = 2), Err(Undivided::Threads));
        assert_eq!(changed(|d| d.least = Duration::from_millis(7)), Ok(ms(7)));
        assert_eq!((driving.at_once(64, false), driving.at_once(64, true)), (256, 64));
    }

    #[test]
    fn one_connection_is_pinned_where_both_ends_are_ours() {
        assert_eq!(driving().alone(), Placement::CrossCore);
        assert_eq!(Driving { allowed: vec![3], ..driving() }.alone(), Placement::Free);
        assert_eq!(Driving { places_server: false, ..driving() }.alone(), Placement::Free);
        assert_eq!(Driving { most: 0, ..driving() }.alone(), Placement::Free);
        let pinned = Point { placement: Placement::CrossCore, ..point(1) };
        let cpus = driving().cpus(&pinned).unwrap();
        assert_eq!((cpus.client.len(), cpus.server.len()), (1, 1));
    }
}
