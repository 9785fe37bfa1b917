//! From a request to a report: checks, fixture, capacity, blocks, analysis.

use std::collections::BTreeMap;

use samehost_model::{Arm, Outcome, Placement, RateSpec, Report, SCHEMA, WorkloadInfo};

use crate::BenchError;
use crate::machine::{CpuPlan, allowed_cpus, host};
use crate::points::{self, FLOOR, Matrix};
use crate::request::{Benched, Recorder, Request};
use crate::stage::Stage;
use crate::workloads::{Axes, OpenOrClosed, Parameters, Workload};

/// Measures a workload.
///
/// # Errors
/// When nothing could be measured at all: wrong options, a server that does not start, a rate out of reach.
pub fn bench(
    workload: &'static dyn Workload,
    request: &Request,
    observer: &mut dyn Recorder,
) -> Result<Benched, BenchError> {
    let host = host();
    let axes = workload.axes(&request.parameters);
    let servers = if request.servers.is_empty() {
        BTreeMap::new()
    } else {
        workload.complete(&request.servers, &request.transports)?
    };
    let request = &Request { servers, ..request.clone() };
    let mut matrix = matrix(workload, request, &axes)?;
    let mut stage = Stage::new(workload, request, &matrix, host.cpus)?;
    let capacity = if request.rates.is_empty() {
        None
    } else {
        observer.step("measuring the capacity");
        Some(stage.set_rates(&mut matrix)?)
    };
    let mut arms = if axes.commands {
        points::command_arms(&request.commands)?
    } else {
        matrix.arms(workload, &request.parameters)?
    };
    let plan = points::plan(&request.wishes, &axes, &arms)?;
    stage.set_trial_time(&plan);
    let open_loop = if request.rates.is_empty() { OpenOrClosed::Closed } else { OpenOrClosed::Open };
    let metrics = workload.metrics(&request.parameters, open_loop);
    let floor = floor_arm(&axes, workload);
    stage.find_endpoints(&mut arms);
    arms.extend(floor);
    let report = Report {
        schema: SCHEMA.into(),
        samehost_version: env!("CARGO_PKG_VERSION").into(),
        started_at: String::new(),
        command: request.command.clone(),
        seed: request.seed,
        outcome: Outcome::Unfinished,
        host,
        workload: WorkloadInfo {
            name: workload.name().into(),
            title: workload.title(&request.parameters),
            parameters: shown_parameters(request, capacity),
            server: stage.server(),
            metrics,
        },
        plan,
        arms,
        trials: Vec::new(),
        comparisons: Vec::new(),
        controls: Vec::new(),
        evidence: Vec::new(),
        warnings: Vec::new(),
    };
    Ok(stage.measure(report, request, observer))
}

fn floor_arm(axes: &Axes, workload: &dyn Workload) -> Option<Arm> {
    (axes.timed && workload.name() != FLOOR).then(points::floor_arm)
}

fn shown_parameters(request: &Request, capacity: Option<f64>) -> Parameters {
    let mut parameters: Parameters = request
        .parameters
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for (name, script) in &request.commands {
        parameters.insert(format!("arm {name}"), script.clone());
    }
    if let Some(capacity) = capacity {
        parameters.insert("capacity_per_s".into(), format!("{capacity:.0}"));
    }
    if request.threads > 1 {
        parameters.insert("threads".into(), request.threads.to_string());
    }
    parameters
}

/// Fills in defaults, and refuses options that the workload does not take.
fn matrix(workload: &dyn Workload, request: &Request, axes: &Axes) -> Result<Matrix, BenchError> {
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
    let sizes = match (request.sizes.as_slice(), axes.sizes) {
        ([], None) => vec![None],
        ([], Some(default)) => samehost_model::parse_size_list(default)?.into_iter().map(Some).collect(),
        (_, None) => return Err(no("--size")),
        (given, Some(_)) => given.iter().copied().map(Some).collect(),
    };
    if !request.rates.is_empty() && !axes.rates {
        return Err(no("--rate"));
    }
    let has_percentage = request.rates.iter().any(|rate| matches!(rate, RateSpec::OfCapacity(_)));
    if has_percentage && connections.len() * sizes.len() > 1 {
        return Err(BenchError::Usage(
            "a --rate in percent needs one number of --connections and one --size: each has a capacity of its own".into(),
        ));
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
    let placements =
        if request.placements.is_empty() { vec![Placement::Free] } else { request.placements.clone() };
    for placement in &placements {
        CpuPlan::new(*placement, &allowed_cpus())?;
    }
    Ok(Matrix { transports, connections, rates: vec![None], sizes, placements })
}
