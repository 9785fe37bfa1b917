//! Issues of the CPU: a saturated client, waiting for a CPU, or only one CPU.

use samehost_model::human::format_percent;
use samehost_model::{Code, Report, Transport};

use crate::index::ArmTrials;
use crate::issues::{Invalidates, Issue, shares_core};

/// Utilisation from which on a client is the bottleneck, in a closed loop.
/// Such a trial measures the client's speed, so throughput gets no verdict unless the server was
/// saturated too. Its mean latency is largely the client's own queue (Little's law); that verdict stays
/// and carries the sentence. Bandwidth of bulk transfers is excepted: there the sender's CPU time is the
/// transport itself, a copy into the kernel. Barring wrongly is better than
/// claiming wrongly, and a lower load resolves it (docs/method.md §7).
pub(crate) const SATURATED: f64 = 0.95;
/// Utilisation above which a server thread is saturated. Lower, because its counter includes the edges of the
/// window.
pub(crate) const SERVER_SATURATED: f64 = 0.9;
/// Fraction of the window spent waiting for a CPU that is worth a sentence.
const STARVED: f64 = 0.25;
/// Fraction of all CPUs from which on client and server together fill the machine.
/// In a closed loop each end waits for the other's CPUs by nature. From here on what both do together is
/// the machine's capacity and not a starved client: the report says that, and bars nothing
/// (docs/method.md §7).
pub(crate) const MACHINE_FULL: f64 = 0.75;
/// Lower limit for waiting, if running and waiting together fill the window.
const STARVED_WHEN_FULL: f64 = 0.1;

pub(crate) fn issue(report: &Report, arms: &[ArmTrials<'_>]) -> Vec<Issue> {
    let mut issues: Vec<Issue> = find_single_cpu(report, arms).into_iter().collect();
    // Bulk compares bandwidth instead. There the sender's CPU time is the transport itself, a copy into the kernel.
    let compares_rates = report.head.workload.metrics.iter().any(samehost_model::MetricInfo::is_rate_of_work);
    let mut filled = Vec::new();
    for trials in arms.iter().filter(|trials| trials.arm.transport != Transport::None) {
        if compares_rates {
            issues.extend(find_client(report.head.host.cpus_allowed, trials));
        }
        match machine_filled(report, trials) {
            Some(used) if find_waiting(trials).is_some() => filled.push((trials.arm.id.as_str(), used)),
            _ => issues.extend(find_waiting(trials)),
        }
    }
    issues.extend(say_filled(report, &filled));
    issues
}

/// A single CPU for client and server, although no shared core was requested.
fn find_single_cpu(report: &Report, arms: &[ArmTrials<'_>]) -> Option<Issue> {
    if report.head.host.cpus_allowed != 1 || arms.iter().all(|trials| shares_core(trials.arm)) {
        return None;
    }
    let message = "client and server had one CPU between them: rates and latencies show the scheduler as much as the transport; give it two CPUs, or ask for --placement same-core if one is what you have";
    Some(Issue::of_report(Code::SharedCpu, Invalidates::Time, message))
}

/// Whether a server with this utilisation can have been saturated: one thread at about 1, or the machine when
/// the server uses all that the client leaves. In between, the server has spare threads, and the fraction
/// above a whole number says nothing about them.
fn is_server_saturated(utilization: f64, cpus: u32) -> bool {
    let one_thread = (SERVER_SATURATED..=2.0 - SERVER_SATURATED).contains(&utilization);
    let machine = cpus > 1 && utilization >= SERVER_SATURATED * f64::from(cpus - 1);
    one_thread || machine
}

/// A closed loop whose client was saturated. The server's side is server and proxy together.
fn find_client(cpus: u32, trials: &ArmTrials<'_>) -> Option<Issue> {
    if trials.arm.point.rate_per_s.is_some() {
        return None;
    }
    let client = trials.median(|s| s.client_utilization)?;
    if client < SATURATED {
        return None;
    }
    let id = &trials.arm.id;
    let server = trials.median(|s| Some(s.server_utilization? + s.proxy_utilization.unwrap_or(0.0)));
    let (invalidates, message) = match server {
        Some(server) if is_server_saturated(server, cpus) => (
            Invalidates::Nothing,
            format!(
                "client and server of {id} were both saturated ({} and {server:.2} CPUs): its throughput is what both can do together",
                format_percent(client)
            ),
        ),
        _ => {
            let busy = format_percent(client);
            let used = match server {
                Some(server) => format!("and its server used {server:.2} CPUs"),
                None => "(the server's use is unknown)".to_owned(),
            };
            let message = format!(
                "the client of {id} was busy {busy} of the time {used}: throughput shows the client's limit; use fewer connections or a fixed --rate"
            );
            (Invalidates::WorkRate, message)
        }
    };
    Some(Issue::about(trials.arm, Code::ClientBound, invalidates, message))
}

/// CPUs used by client and server together, if a closed loop filled the machine. Waiting for each other's
/// CPUs is inherent then: their joint throughput is the capacity to be measured.
fn machine_filled(report: &Report, trials: &ArmTrials<'_>) -> Option<f64> {
    if trials.arm.point.rate_per_s.is_some() {
        return None;
    }
    let threads = client_threads(report);
    let used = trials.median(|s| {
        // Callers have a thread for each connection; their CPU time is only in the CPU time per operation.
        let of_operations = s.client_cpu_us_per_op.unwrap_or(0.0) * s.operations as f64 / (s.seconds * 1e6);
        let client = (s.client_utilization? * threads).max(of_operations);
        Some(client + s.server_utilization? + s.proxy_utilization.unwrap_or(0.0))
    })?;
    if used >= MACHINE_FULL * f64::from(report.head.host.cpus_allowed) { Some(used) } else { None }
}

/// The client's threads by the workload's parameters; 1 where there is no such parameter.
pub(crate) fn client_threads(report: &Report) -> f64 {
    match report.head.workload.parameters.get("threads") {
        Some(text) => text.parse().unwrap_or(1.0),
        None => 1.0,
    }
}

/// One warning for all points where the machine was full.
fn say_filled(report: &Report, filled: &[(&str, f64)]) -> Option<Issue> {
    if filled.is_empty() {
        return None;
    }
    let ids: Vec<&str> = filled.iter().map(|(id, _)| *id).collect();
    let least = filled.iter().map(|(_, used)| *used).fold(f64::INFINITY, f64::min);
    let most = filled.iter().map(|(_, used)| *used).fold(0.0, f64::max);
    let named = match ids.as_slice() {
        few if few.len() <= 4 => few.join(", "),
        [first, .., last] => format!("{} arms from {first} to {last}", ids.len()),
        _ => String::new(),
    };
    let (least, most) = (format!("{least:.2}"), format!("{most:.2}"));
    let used = if least == most { least } else { format!("{least} to {most}") };
    let message = format!(
        "client and server together used {used} of {} CPUs in {named}: those rates and latencies are what both can do on this machine at once; a server with CPUs of its own does more",
        report.head.host.cpus_allowed
    );
    Some(Issue::of_report(Code::MachineFull, Invalidates::Nothing, message))
}

/// A client that was runnable and waited for a CPU, on a machine that it did not fill together with its server:
/// others had the CPUs. That is a condition and bars nothing; it says why times are longer than on a quiet machine.
fn find_waiting(trials: &ArmTrials<'_>) -> Option<Issue> {
    if shares_core(trials.arm) {
        return None;
    }
    let wait = trials.median(|s| s.client_wait)?;
    let full = trials.median(|s| Some(s.client_utilization? + s.client_wait?)).unwrap_or(0.0);
    if wait < STARVED && !(full >= SATURATED && wait >= STARVED_WHEN_FULL) {
        return None;
    }
    let message = format!(
        "the client of {} waited for a CPU {} of the time: rates and times are those of a machine whose CPUs others use as well",
        trials.arm.id,
        format_percent(wait)
    );
    Some(Issue::about(trials.arm, Code::ClientStarved, Invalidates::Nothing, message))
}
