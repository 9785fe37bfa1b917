//! From what was asked to what is measured, on one path: [`Planned::new`] fills in every default and refuses what makes no sense,
//! once, before anything starts; afterwards a plan is only read.
//!
//! `arms` has what is compared, `driving` how, and `blocks` how much of it.

pub(crate) mod arms;
pub(crate) mod blocks;
pub(crate) mod driving;

use std::sync::Arc;

use samehost_model::{Arm, Placement, Plan, Point, Redactor, Transport};

use crate::error::BenchError;
use crate::machine::{CpuPlan, allowed_cpus};
use crate::parameters::{OWN_PARAMETER, Parameters, distinct};
use crate::request::Request;
use crate::socket_options;
use crate::workload::{Capabilities, Configured, Workload};
use arms::{Capacity, Matrix, command_arms, sweep};
use driving::Driving;

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
        socket_options::add(request, &mut parameters, &mut swept);
        let configured = workload.configure(&parameters)?;
        swept.extend(configured.swept());
        let capabilities = configured.axes();
        socket_options::check(workload, &capabilities, request)?;
        refuse_unfit(workload, request, &capabilities)?;
        let connections = connections(workload, request, &capabilities)?;
        let sizes = sizes(workload, request, &capabilities)?;
        let servers = workload.complete(&request.servers, &request.transports)?;
        let request = Request { servers, parameters, ..request.clone() };
        let transports = transports(&request, &capabilities);
        let driving = Driving::new(&capabilities, &request, &transports);
        let matrix = Matrix {
            connections,
            sizes,
            rates: distinct(request.rates.clone()),
            placements: distinct(request.placements.clone()),
            alone: if request.rates.is_empty() { driving.alone() } else { Placement::Free },
            swept,
            transports,
            capacities: Vec::new(),
        };
        // Which rate it is does not matter to a workload, so that none has to be known yet.
        let rate_per_s = if request.rates.is_empty() { None } else { Some(1.0) };
        for level in matrix.levels() {
            let point = Point { rate_per_s, ..level };
            for transport in &matrix.transports {
                configured.check(&point, *transport)?;
            }
        }
        let arms = if capabilities.commands {
            command_arms(&request.commands, &matrix)?
        } else if request.rates.is_empty() {
            matrix.arms()
        } else {
            Vec::new()
        };
        let plan = plan(&request, &capabilities, &driving, &arms)?;
        Ok(Planned { workload, configured, request, capabilities, matrix, driving, arms, plan })
    }

    pub(crate) fn with_capacities(&self, capacities: Vec<Capacity>) -> Result<Self, BenchError> {
        let matrix = Matrix { capacities, ..self.matrix.clone() };
        let arms = matrix.arms();
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
    let mut plan = blocks::plan(&request.stop, capabilities.timed, arms, driven)?;
    if let Some(earlier) = &request.earlier {
        let known = &earlier.head.arms;
        if !arms.iter().all(|arm| known.iter().any(|one| one.id == arm.id && one.point == arm.point)) {
            return Err(BenchError::Usage("what was measured before had other arms".into()));
        }
        plan.trial_s = earlier.head.plan.trial_s;
    }
    Ok(plan)
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
    let own = capabilities.sizes.filter(|_| request.servers.is_empty() || capabilities.foreign_sizes);
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
