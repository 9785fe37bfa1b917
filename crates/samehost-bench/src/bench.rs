//! From a request to a report: checks, private servers, capacity, blocks, analysis. Start reading at [`bench`].

use std::sync::Arc;

use samehost_model::{Arm, Head, Host, MetricInfo, Outcome, Placement, Report, ServerInfo, WorkloadInfo};

use crate::error::BenchError;
use crate::machine::{Awake, allowed_cpus, host, wake_up_us};
use crate::matrix::capacities_of;
use crate::network::{Network, OwnNetwork};
use crate::planned::Planned;
use crate::points::{self, FLOOR};
use crate::profile::Profiler;
use crate::request::{BenchOutcome, KeepAwake, Recorder, Request};
use crate::runner::{Nets, TrialRunner};
use crate::tuned::{self, Means};
use crate::workload::{Configured, Look, OpenOrClosed, Wanted, Workload};

/// Measures a workload, in a network namespace of our own if its private servers need one.
///
/// # Errors
/// When nothing could be measured at all: wrong options, a server that does not start, a rate out of reach.
pub fn bench(
    workload: &'static dyn Workload,
    request: &Request,
    observer: &mut dyn Recorder,
) -> Result<BenchOutcome, BenchError> {
    let planned = Planned::new(workload, request)?;
    let network = network(workload, &*planned.configured, request);
    let means = tuned::means(workload, request);
    let instead = match network {
        Network::Shared => return bench_here(&planned, Nets::default(), observer),
        Network::Own(instead) | Network::OwnBehind(instead) => instead,
        Network::OwnRoutes | Network::OwnContainers => tuned::INSTEAD,
    };
    let own = Arc::new(OwnNetwork::new(instead).map_err(|error| tuned::denied(network, error))?);
    let routed = (means == Means::Routes).then(|| Arc::clone(&own));
    let outcome = match network {
        Network::OwnBehind(_) => {
            let nets = Nets { behind: Some(Arc::clone(&own)), routed };
            bench_here(&planned, nets, observer)
        }
        _ => own.inside(|| bench_here(&planned, Nets { behind: None, routed }, observer))?,
    };
    outcome.map(|outcome| warned(outcome, &own, network))
}

/// Whether a measurement's private servers need a network namespace of their own; see [`crate::network::prepare`].
#[must_use]
pub fn needs_own_network(workload: &dyn Workload, request: &Request) -> bool {
    // Parameters that are wrong are an error of the measurement.
    let configured = workload.configure(&request.parameters);
    configured.is_ok_and(|configured| network(workload, &*configured, request) != Network::Shared)
}

fn network(workload: &dyn Workload, configured: &dyn Configured, request: &Request) -> Network {
    let wanted = Wanted { transports: &request.transports, servers: &request.servers };
    match configured.network(wanted) {
        Network::Shared if tuned::means(workload, request) == Means::Routes => Network::OwnRoutes,
        network => network,
    }
}

fn warned(mut outcome: BenchOutcome, own: &OwnNetwork, network: Network) -> BenchOutcome {
    outcome.report.warnings.push(own.warning(network));
    outcome
}

/// Measures a workload in the network namespace of this thread.
fn bench_here(first: &Planned, nets: Nets, observer: &mut dyn Recorder) -> Result<BenchOutcome, BenchError> {
    let host = host();
    let request = &first.request;
    let profiler = request.profile.map(|graph| Profiler::new(&request.program, graph)).transpose()?;
    let is_agreed = request.earlier.is_some();
    if !is_agreed && (!request.servers.is_empty() || first.configured.uses_what_runs()) {
        consented(first, observer)?;
    }
    let mut runner = TrialRunner::new(first, host.cpus, nets)?;
    let mut planned = match &request.earlier {
        _ if request.rates.is_empty() => first.clone(),
        Some(earlier) => first.with_capacities(capacities_of(&earlier.head.arms))?,
        None => first.with_capacities(runner.measure_capacities(&first.matrix, observer)?)?,
    };
    planned.plan.wake_up_us = wake_up(&planned);
    // Kept until everything is measured.
    let awake = keep_awake(&planned)?;
    planned.plan.awake = awake.as_ref().map(Awake::by);
    runner.follow(&planned.plan);
    runner.find_endpoints(&mut planned.arms);
    let mut head = head(planned, host, runner.server());
    head.workload.server_for_others_percent = runner.for_others_percent();
    let report = Report::new(head);
    Ok(runner.run(report, request, profiler.as_ref(), observer))
}

/// Keeps CPUs awake as asked, or by default where that is possible.
fn keep_awake(planned: &Planned) -> Result<Option<Awake>, BenchError> {
    let cpus = allowed_cpus();
    match planned.request.awake {
        KeepAwake::Yes => Awake::keep(&cpus).map(Some),
        KeepAwake::Usual if !shows_the_scheduler(planned) => Ok(Awake::keep(&cpus).ok()),
        KeepAwake::Usual | KeepAwake::No => Ok(None),
    }
}

/// Whether what the scheduler does by itself is measured: commands, or the placement that was asked for.
fn shows_the_scheduler(planned: &Planned) -> bool {
    planned.capabilities.commands || planned.request.placements == [Placement::Free]
}

/// What waking CPUs adds to an exchange, where one request at a time is measured: there it is most of the time.
fn wake_up(planned: &Planned) -> Option<f64> {
    if let Some(earlier) = &planned.request.earlier {
        return earlier.head.plan.wake_up_us;
    }
    let is_one_at_a_time =
        planned.arms.iter().any(|arm| arm.point.connections == 1 && arm.point.rate_per_s.is_none());
    (is_one_at_a_time && !shows_the_scheduler(planned)).then(|| wake_up_us(&allowed_cpus()))?
}

/// Everything in the report that is known before the first trial.
fn head(planned: Planned, host: Host, server: ServerInfo) -> Head {
    let parameters = planned.shown_parameters();
    let Planned { workload, configured, request, capabilities, plan, mut arms, .. } = planned;
    if capabilities.timed && workload.name() != FLOOR && !request.stop.no_floor {
        arms.push(points::floor_arm());
    }
    Head {
        samehost_version: env!("CARGO_PKG_VERSION").into(),
        command: request.command.clone(),
        seed: request.seed,
        outcome: Outcome::Unfinished,
        host,
        workload: WorkloadInfo {
            name: workload.name().into(),
            title: configured.title(),
            parameters,
            server,
            server_for_others_percent: None,
            metrics: configured.metrics(open_or_closed(&request)),
            parts: configured.parts(),
        },
        plan,
        arms,
        ..Head::default()
    }
}

/// Finds out what the measurement does to servers that are already running, and asks for consent.
fn consented(planned: &Planned, observer: &mut dyn Recorder) -> Result<(), BenchError> {
    let seconds = planned.plan.budget_s.unwrap_or(60.0);
    let matrix = &planned.matrix;
    // A server may be reachable over more transports than are measured.
    let mut servers = planned.request.servers.clone();
    servers.retain(|transport, _| matrix.transports.contains(transport));
    let look = Look {
        servers: &servers,
        connections: planned.most_at_once(),
        sizes: matrix.sizes.iter().flatten().sum(),
        seconds,
    };
    let impacts = planned.configured.impact(&look)?;
    if impacts.is_empty() { Ok(()) } else { observer.consent(&impacts, seconds) }
}

/// The arms and metrics of a request as far as they follow from the request alone. Starts nothing.
///
/// # Errors
/// When the workload has no such option, a point makes no sense, or the budget is too short.
pub fn check(
    workload: &'static dyn Workload,
    request: &Request,
) -> Result<(Vec<Arm>, Vec<MetricInfo>), BenchError> {
    let planned = Planned::new(workload, request)?;
    let metrics = planned.configured.metrics(open_or_closed(&planned.request));
    let planned = if request.rates.is_empty() { planned } else { planned.with_capacities(Vec::new())? };
    Ok((planned.arms, metrics))
}

fn open_or_closed(request: &Request) -> OpenOrClosed {
    if request.rates.is_empty() { OpenOrClosed::Closed } else { OpenOrClosed::Open }
}
