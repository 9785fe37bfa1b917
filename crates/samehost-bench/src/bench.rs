//! From a request to a report: checks, private servers, capacity, blocks, analysis. Start reading at [`bench`].
//!
//! Capacity comes before rates: each transport is measured in a closed loop at each level, so that percentages refer to the
//! baseline's, and a rate out of reach is refused before minutes are spent on it.

use std::fmt::Write as _;
use std::sync::Arc;

use samehost_model::{
    Arm, Head, Host, MetricInfo, Outcome, Placement, RateSpec, Report, ServerInfo, Transport, WorkloadInfo,
};

use crate::error::BenchError;
use crate::machine::{Awake, allowed_cpus, host, wake_up_us};
use crate::measure::Observer;
use crate::network::{Network, OwnNetwork};
use crate::parameters::distinct;
use crate::plan::Planned;
use crate::plan::arms::{Capacity, Matrix, floor_arm};
use crate::request::{BenchOutcome, KeepAwake, Recorder, Request};
use crate::runner::{Nets, TrialRunner};
use crate::socket_options::{INSTEAD, denied, needs_routes};
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
    let instead = match network {
        Network::Shared => return bench_here(&planned, Nets::default(), observer),
        Network::Own(instead) | Network::OwnBehind(instead) => instead,
        Network::OwnRoutes | Network::OwnContainers => INSTEAD,
    };
    let own = Arc::new(OwnNetwork::new(instead).map_err(|error| denied(network, error))?);
    let routed = needs_routes(workload, request).then(|| Arc::clone(&own));
    let outcome = match network {
        Network::OwnBehind(_) => {
            let nets = Nets { behind: Some(Arc::clone(&own)), routed };
            bench_here(&planned, nets, observer)
        }
        _ => own.inside(|| bench_here(&planned, Nets { behind: None, routed }, observer))?,
    };
    let mut outcome = outcome?;
    outcome.report.warnings.push(own.warning(network));
    Ok(outcome)
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
        Network::Shared if needs_routes(workload, request) => Network::OwnRoutes,
        network => network,
    }
}

fn bench_here(first: &Planned, nets: Nets, observer: &mut dyn Recorder) -> Result<BenchOutcome, BenchError> {
    let host = host();
    let request = &first.request;
    // Who continues a measurement has agreed to it before.
    if request.earlier.is_none() {
        consented(first, observer)?;
    }
    let mut runner = TrialRunner::new(first, host.cpus, nets)?;
    let mut planned = match request.rates.is_empty() {
        true => first.clone(),
        false => first.with_capacities(runner.measure_capacities(&first.matrix, observer)?)?,
    };
    planned.plan.wake_up_us = wake_up(&planned);
    let awake = keep_awake(&planned)?;
    planned.plan.awake = awake.as_ref().map(Awake::by);
    runner.follow(&planned.plan);
    runner.find_endpoints(&mut planned.arms);
    let mut head = head(planned, host, runner.server());
    head.workload.server_for_others_percent = runner.for_others_percent();
    let report = Report::new(head);
    Ok(runner.run(report, request, observer))
}

/// Keeps CPUs awake as asked, or by default where that is possible and what is measured is not the scheduler's own choice;
/// as long as the value lives. `None` where they may sleep.
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
    if !is_one_at_a_time || shows_the_scheduler(planned) {
        return None;
    }
    wake_up_us(&allowed_cpus())
}

fn head(planned: Planned, host: Host, server: ServerInfo) -> Head {
    let parameters = planned.shown_parameters();
    let Planned { workload, configured, request, capabilities, plan, mut arms, .. } = planned;
    if capabilities.timed && !request.stop.no_floor {
        arms.push(floor_arm());
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

/// Finds out what the measurement does to servers that are already running, and asks for consent. Nothing is written
/// before it is given (docs/decisions/0079).
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

/// Highest rate that one program could offer over any local transport, in requests per second.
const MAX_RATE_PER_S: f64 = 5e6;
/// Highest rate as a multiple of the capacity; a higher one is refused before anything is measured.
/// A rate that no arm can serve builds a queue for as long as the trial lasts, and nothing but that queue
/// would be measured. Up to twice the capacity is allowed, to show overload, and because capacity is not
/// an upper bound: an open loop that has fallen behind sends in larger batches and may do more.
const MAX_PART_OF_CAPACITY: f64 = 2.0;
/// Closed-loop trials of each arm whose median throughput is its capacity.
/// The transports take turns at each level, so that a change of the machine meets them all. Rates in
/// percent are of the baseline's capacity for every transport: the same rates are what makes steps
/// comparable, and each transport's own capacity stands above its table (docs/method.md §9).
const CAPACITY_TRIALS: usize = 3;

impl TrialRunner<'_> {
    /// Measures every transport at every level. At each level the transports alternate, so that a change of
    /// the machine affects them all.
    pub(crate) fn measure_capacities(
        &mut self,
        matrix: &Matrix,
        observer: &mut (impl Observer + ?Sized),
    ) -> Result<Vec<Capacity>, BenchError> {
        let asked: Vec<f64> = matrix.rates.iter().filter_map(absolute).collect();
        if let Some(rate) = asked.iter().find(|rate| **rate > MAX_RATE_PER_S) {
            return Err(BenchError::Usage(format!(
                "--rate {rate:.0}: no program reaches that over a local connection; the most that makes sense is {MAX_RATE_PER_S:.0} requests/s"
            )));
        }
        let closed =
            Matrix { transports: distinct(matrix.transports.clone()), rates: Vec::new(), ..matrix.clone() };
        let arms = closed.arms();
        let mut capacities = Vec::with_capacity(arms.len());
        let levels = arms.len() / closed.transports.len().max(1);
        for (number, level) in arms.chunks(closed.transports.len().max(1)).enumerate() {
            observer.step(&step(number, levels));
            let mut found = vec![Vec::with_capacity(CAPACITY_TRIALS); level.len()];
            for _ in 0..CAPACITY_TRIALS {
                for (arm, found) in level.iter().zip(&mut found) {
                    found.push(self.once(arm)?);
                }
            }
            for (arm, found) in level.iter().zip(found) {
                let per_s = samehost_stats::median(&found).unwrap_or(0.0);
                refuse_out_of_reach(&asked, arm, per_s)?;
                capacities.push(Capacity { level: arm.point.clone(), transport: arm.transport, per_s });
            }
        }
        Ok(capacities)
    }

    /// Throughput of one trial. Without throughput no rate can be derived, so that is an error.
    fn once(&mut self, arm: &Arm) -> Result<f64, BenchError> {
        let trial = self.trial(arm, None)?;
        match trial.throughput_per_s {
            Some(per_s) if per_s > 0.0 => Ok(per_s),
            _ => {
                let mut errors = String::new();
                for (kind, count) in &trial.errors {
                    let _ = write!(errors, "; {kind}: {count}");
                }
                Err(BenchError::Usage(format!(
                    "no request of {} succeeded while its capacity was measured{errors}; try the same without --rate to see why",
                    arm.id
                )))
            }
        }
    }
}

fn absolute(rate: &RateSpec) -> Option<f64> {
    match rate {
        RateSpec::PerSecond(rate) => Some(*rate),
        RateSpec::OfCapacity(_) => None,
    }
}

fn step(number: usize, levels: usize) -> String {
    match levels {
        1 => "measuring the capacity".to_owned(),
        _ => format!("measuring the capacity, {} of {levels}", number + 1),
    }
}

fn refuse_out_of_reach(asked: &[f64], arm: &Arm, capacity: f64) -> Result<(), BenchError> {
    let Some(rate) = asked.iter().find(|rate| **rate > MAX_PART_OF_CAPACITY * capacity) else {
        return Ok(());
    };
    let (connections, transport): (u32, Transport) = (arm.point.connections, arm.transport);
    let plural = if connections == 1 { "" } else { "s" };
    let at = match arm.id.split_once('/') {
        Some((_, level)) => format!(" ({level})"),
        None => String::new(),
    };
    Err(BenchError::Usage(format!(
        "--rate {rate:.0} is out of reach: with {connections} connection{plural} over {transport}{at} this server does {capacity:.0} requests/s here; try --rate 80%"
    )))
}

#[cfg(test)]
mod tests {
    use samehost_model::Point;

    use super::*;

    #[test]
    fn a_rate_beyond_twice_the_capacity_is_refused_with_its_level() {
        let arm = Arm {
            id: "tcp/c8/128B".into(),
            name: "tcp".into(),
            transport: Transport::Tcp,
            endpoint: None,
            tls: false,
            capacity_per_s: None,
            point: Point { connections: 8, ..Point::default() },
        };
        assert!(refuse_out_of_reach(&[100.0, 2000.0], &arm, 1000.0).is_ok());
        let refused = refuse_out_of_reach(&[100.0, 2001.0], &arm, 1000.0).unwrap_err().to_string();
        assert!(refused.contains("8 connections over tcp (c8/128B)"), "{refused}");
        assert_eq!(step(0, 1), "measuring the capacity");
        assert_eq!(step(1, 6), "measuring the capacity, 2 of 6");
    }
}
