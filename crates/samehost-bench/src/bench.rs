//! From a request to a report: checks, private servers, capacity, blocks, analysis. Start reading at
//! [`bench`].

use std::collections::BTreeMap;
use std::sync::Arc;

use samehost_model::{Arm, Head, Outcome, Placement, Redactor, Report, Transport, WorkloadInfo};

use crate::driving::Driving;
use crate::error::BenchError;
use crate::machine::{Awake, CpuPlan, allowed_cpus, host};
use crate::matrix::{Matrix, capacities_of, distinct, sweep};
use crate::network::{Network, OwnNetwork};
use crate::points::{self, FLOOR};
use crate::profile::Profiler;
use crate::request::{Benched, Recorder, Request};
use crate::stage::{Nets, Stage};
use crate::tuned::{self, Means};
use crate::workload::{Capabilities, Look, OpenOrClosed, Parameters, Wanted, Workload};

/// Measures a workload, in a network namespace of our own if its private servers need one.
///
/// # Errors
/// When nothing could be measured at all: wrong options, a server that does not start, a rate out of reach.
pub fn bench(
    workload: &'static dyn Workload,
    request: &Request,
    observer: &mut dyn Recorder,
) -> Result<Benched, BenchError> {
    tuned::check(workload, request)?;
    let network = network(workload, request);
    let means = tuned::means(workload, request);
    let instead = match network {
        Network::Shared => return bench_here(workload, request, Nets::default(), observer),
        Network::Own(instead) | Network::OwnBehind(instead) => instead,
        Network::OwnRoutes => tuned::INSTEAD,
    };
    let own = Arc::new(OwnNetwork::new(instead).map_err(|error| tuned::denied(network, error))?);
    let routed = (means == Means::Routes).then(|| Arc::clone(&own));
    let benched = match network {
        Network::OwnBehind(_) => {
            let nets = Nets { behind: Some(Arc::clone(&own)), routed };
            bench_here(workload, request, nets, observer)
        }
        _ => own.inside(|| bench_here(workload, request, Nets { behind: None, routed }, observer))?,
    };
    benched.map(|benched| warned(benched, &own, network))
}

/// Whether a measurement's private servers need a network namespace of their own; see
/// [`crate::network::prepare`].
#[must_use]
pub fn needs_own_network(workload: &dyn Workload, request: &Request) -> bool {
    network(workload, request) != Network::Shared
}

fn network(workload: &dyn Workload, request: &Request) -> Network {
    let wanted = Wanted { transports: &request.transports, servers: &request.servers };
    match workload.network(&request.parameters, wanted) {
        Network::Shared if tuned::means(workload, request) == Means::Routes => Network::OwnRoutes,
        network => network,
    }
}

fn warned(mut benched: Benched, own: &OwnNetwork, network: Network) -> Benched {
    benched.report.warnings.push(own.warning(network));
    benched
}

/// Measures a workload in the network namespace of this thread.
fn bench_here(
    workload: &'static dyn Workload,
    request: &Request,
    nets: Nets,
    observer: &mut dyn Recorder,
) -> Result<Benched, BenchError> {
    let host = host();
    let proposed = workload.propose(&request.parameters, &request.connections)?;
    let (mut parameters, mut swept) = sweep(workload, &proposed)?;
    tuned::add(request, &mut parameters, &mut swept);
    let axes = workload.axes(&parameters);
    let servers = if request.servers.is_empty() {
        BTreeMap::new()
    } else {
        workload.complete(&request.servers, &request.transports)?
    };
    let request = &Request { servers, parameters, ..request.clone() };
    let mut matrix = Matrix { swept, ..matrix(workload, request, &axes)? };
    let profiler = request.profile.map(|graph| Profiler::new(&request.program, graph)).transpose()?;
    let is_agreed = request.earlier.is_some();
    if !is_agreed && (!request.servers.is_empty() || workload.uses_what_runs(&request.parameters)) {
        consented(workload, request, &matrix, &axes, observer)?;
    }
    let driving = driving(workload, request, &matrix.transports);
    let mut stage = Stage::new(workload, request, &matrix, driving.clone(), host.cpus, nets)?;
    if !request.rates.is_empty() {
        matrix.capacities = match &request.earlier {
            Some(earlier) => capacities_of(&earlier.head.arms),
            None => stage.measure_capacities(&matrix, observer)?,
        };
    }
    let mut arms = if axes.commands {
        points::command_arms(&request.commands)?
    } else {
        matrix.arms(workload, &request.parameters)?
    };
    let mut plan = points::plan(&request.wishes, &axes, &arms, driving.driven(&arms)?)?;
    if let Some(earlier) = &request.earlier {
        let is_there =
            |arm: &Arm| earlier.head.arms.iter().any(|one| one.id == arm.id && one.point == arm.point);
        if !arms.iter().all(is_there) {
            return Err(BenchError::Usage("what was measured before had other arms".into()));
        }
        plan.trial_s = earlier.head.plan.trial_s;
    }
    // Kept until everything is measured.
    let awake = request.awake.then(|| Awake::keep(&allowed_cpus())).transpose()?;
    plan.awake = awake.as_ref().map(Awake::by);
    stage.follow(&plan);
    let open_loop = if request.rates.is_empty() { OpenOrClosed::Closed } else { OpenOrClosed::Open };
    let metrics = workload.metrics(&request.parameters, open_loop);
    let floor = floor_arm(&axes, workload);
    stage.find_endpoints(&mut arms);
    arms.extend(floor);
    let report = Report::new(Head {
        samehost_version: env!("CARGO_PKG_VERSION").into(),
        command: request.command.clone(),
        seed: request.seed,
        outcome: Outcome::Unfinished,
        host,
        workload: WorkloadInfo {
            name: workload.name().into(),
            title: workload.title(&request.parameters),
            parameters: shown_parameters(request, &matrix),
            server: stage.server(),
            metrics,
            parts: workload.parts(&request.parameters),
        },
        plan,
        arms,
        ..Head::default()
    });
    Ok(stage.measure(report, request, profiler.as_ref(), observer))
}

/// Finds out what the measurement does to servers that are already running, and asks for consent.
fn consented(
    workload: &dyn Workload,
    request: &Request,
    matrix: &Matrix,
    axes: &Capabilities,
    observer: &mut dyn Recorder,
) -> Result<(), BenchError> {
    // Rates relative to a capacity that is not measured yet yield no arms; the budget is the one asked for.
    let arms =
        if request.rates.is_empty() { matrix.arms(workload, &request.parameters)? } else { Vec::new() };
    let driving = driving(workload, request, &matrix.transports);
    let plan = points::plan(&request.wishes, axes, &arms, driving.driven(&arms)?)?;
    let seconds = plan.budget_s.unwrap_or(60.0);
    // A server may be reachable over more transports than are measured.
    let mut servers = request.servers.clone();
    servers.retain(|transport, _| matrix.transports.contains(transport));
    let look = Look {
        parameters: &request.parameters,
        servers: &servers,
        connections: most_at_once(&driving, matrix),
        sizes: matrix.sizes.iter().flatten().sum(),
        seconds,
    };
    let impacts = workload.impact(&look)?;
    if impacts.is_empty() { Ok(()) } else { observer.consent(&impacts, seconds) }
}

/// The arms of a request as far as they follow from the request alone. Starts nothing.
///
/// # Errors
/// When the workload has no such option, a point makes no sense, or the budget is too short.
pub fn check(workload: &'static dyn Workload, request: &Request) -> Result<Vec<Arm>, BenchError> {
    tuned::check(workload, request)?;
    let (mut parameters, mut swept) = sweep(workload, &request.parameters)?;
    tuned::add(request, &mut parameters, &mut swept);
    let axes = workload.axes(&parameters);
    let request = &Request { parameters, ..request.clone() };
    let matrix = Matrix { swept, ..matrix(workload, request, &axes)? };
    let arms = matrix.arms(workload, &request.parameters)?;
    let driving = driving(workload, request, &matrix.transports);
    points::plan(&request.wishes, &axes, &arms, driving.driven(&arms)?)?;
    Ok(arms)
}

fn driving(workload: &dyn Workload, request: &Request, transports: &[Transport]) -> Driving {
    let has_control = transports.len() > 1 && !request.wishes.no_control;
    Driving {
        most: workload.most_sliced(&request.parameters, &request.servers),
        least: workload.least_slice(&request.parameters),
        threads: request.threads,
        slicing: request.wishes.slicing,
        lanes: transports.len() as u32 + u32::from(has_control),
        allowed: allowed_cpus(),
        places_server: request.servers.is_empty(),
    }
}

/// The most connections that a server has open at once.
pub(crate) fn most_at_once(driving: &Driving, matrix: &Matrix) -> u32 {
    let open_loop = !matrix.rates.is_empty();
    let each = matrix.connections.iter().map(|connections| driving.at_once(*connections, open_loop));
    each.max().unwrap_or(1)
}

fn floor_arm(axes: &Capabilities, workload: &dyn Workload) -> Option<Arm> {
    (axes.timed && workload.name() != FLOOR).then(points::floor_arm)
}

/// Parameters that are the same at every point, for the report.
fn shown_parameters(request: &Request, matrix: &Matrix) -> Parameters {
    let is_swept = |name: &str| matrix.swept.iter().any(|swept| swept.name == name);
    let mut parameters: Parameters = request
        .parameters
        .iter()
        .filter(|(name, value)| !value.is_empty() && !is_swept(name))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for (name, script) in &request.commands {
        parameters.insert(format!("arm {name}"), Redactor::default().command(script));
    }
    // Capacity of the baseline at each level: percentages refer to it. The capacity of every arm is in
    // `arms`.
    for capacity in matrix.capacities.iter().filter(|c| Some(&c.transport) == matrix.transports.first()) {
        let name = format!("capacity_per_s{}", matrix.level_suffix(&capacity.level));
        parameters.insert(name, format!("{:.0}", capacity.per_s));
    }
    if request.threads > 1 {
        parameters.insert("threads".into(), request.threads.to_string());
    }
    parameters
}

/// Fills in defaults. Refuses options that the workload does not take.
fn matrix(workload: &dyn Workload, request: &Request, axes: &Capabilities) -> Result<Matrix, BenchError> {
    let name = workload.name();
    let no = |option: &str| BenchError::Usage(format!("`bench {name}` takes no {option}"));
    for transport in &request.transports {
        if !axes.transports.contains(transport) {
            return Err(BenchError::UnsupportedTransport {
                workload: name,
                transport: *transport,
                known: axes.transports.to_vec(),
            });
        }
    }
    let connections = match (request.connections.as_slice(), axes.connections) {
        ([], default) => samehost_model::parse_count_list(default.unwrap_or("1"))?,
        (_, None) => return Err(no("--connections")),
        (given, Some(_)) => given.to_vec(),
    };
    let own_sizes = axes.sizes.filter(|_| request.servers.is_empty() || workload.foreign_sizes());
    let sizes = match (request.sizes.as_slice(), own_sizes) {
        ([], None) => vec![None],
        ([], Some(default)) => samehost_model::parse_size_list(default)?.into_iter().map(Some).collect(),
        (_, None) if axes.sizes.is_some() => {
            return Err(no("--size: the size of a reply is up to a server that already runs"));
        }
        (_, None) => return Err(no("--size")),
        (given, Some(_)) => given.iter().copied().map(Some).collect(),
    };
    if !request.rates.is_empty() && !axes.rates {
        return Err(no("--rate or --ladder"));
    }
    if !request.servers.is_empty() && !axes.foreign_servers {
        return Err(no("--tcp or --unix: it starts its own server"));
    }
    if axes.commands && request.commands.len() < 2 {
        return Err(BenchError::Usage(
            "give at least two commands: --arm NAME='COMMAND' --arm NAME='COMMAND'".into(),
        ));
    }
    if !axes.commands && !request.commands.is_empty() {
        return Err(no("--arm; its arms are --transports"));
    }
    if request.own_servers && (!request.servers.is_empty() || axes.commands) {
        return Err(BenchError::Usage(
            "--own-servers gives each arm a private server; servers that run and commands are what they are"
                .into(),
        ));
    }
    if request.wishes.trial_time.is_some() && !axes.timed {
        return Err(no("--trial-time: each trial is one whole operation"));
    }
    let transports = if !request.transports.is_empty() {
        request.transports.clone()
    } else if request.servers.is_empty() {
        axes.transports.iter().copied().take(2).collect()
    } else {
        request.servers.keys().copied().collect()
    };
    let placements = request.placements.clone();
    let driving = driving(workload, request, &transports);
    let alone = if request.rates.is_empty() { driving.alone() } else { Placement::Free };
    for placement in &placements {
        CpuPlan::new(*placement, &allowed_cpus())?;
    }
    Ok(Matrix {
        transports,
        connections: distinct(connections),
        rates: distinct(request.rates.clone()),
        sizes: distinct(sizes),
        placements: distinct(placements),
        alone,
        ..Matrix::default()
    })
}
