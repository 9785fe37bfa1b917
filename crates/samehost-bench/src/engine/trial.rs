//! From exchanges to a trial: what a driver reports of each (complete, or failed), and the divisions and percentiles
//! that are made of the counts. A trial counts inside one window, a round inside many slices; the drivers are the
//! same. It measures nothing.

use samehost_analysis::summarise;
use samehost_model::{Code, Latency, MachineUse, Trial, Warning};

use super::OpenLoop;
use super::bulk::{BulkTally, WholeTally};
use super::burst::BurstTally;
use super::interruptions::Sums;
use super::process::ProcessTally;
use super::recorder::Tally;
use crate::machine::{ServerUse, ThreadUse, doubt_clock};

/// An open loop that reached less than this fraction of its rate missed it, beyond what chance does to
/// the border of the window. A trial that missed its rate because the server could not serve it stays in
/// the report with a warning of overload: its latencies grow with the length of the trial. It is void
/// only where the generator was late and had no CPU time left. How late the generator may be is judged
/// over the whole measurement and by the baseline's latency; by its own latency the faster arm alone
/// would lose its trials (docs/method.md §9).
const MIN_ACHIEVED_PART: f64 = 0.99;
/// A client that is busy for more than this fraction of its time is saturated.
const SATURATED_PART: f64 = 0.9;

#[derive(Clone, Debug, Default)]
pub struct Metered {
    /// CPU time of the server; `None` if we may not see its processes.
    pub server: Option<ServerUse>,
    /// CPU time of the proxy; `None` without one.
    pub proxy: Option<ServerUse>,
    pub machine: MachineUse,
    /// By how many milliseconds the meters were read late, where that is why the servers' use is missing.
    pub late_ms: Option<f64>,
}

pub fn of_tally(tally: &Tally, seconds: f64, open_loop: Option<&OpenLoop>, metered: Metered) -> Trial {
    let mut trial = of_counted(tally, seconds);
    if let Some(sums) = &tally.sums {
        leave_out(&mut trial, sums);
    }
    add_usage(&mut trial, tally.usage, tally.threads, metered);
    if let Some(open_loop) = open_loop {
        judge_open_loop(&mut trial, tally, open_loop);
    }
    trial
}

pub(super) fn of_counted(tally: &Tally, seconds: f64) -> Trial {
    Trial {
        seconds,
        operations: tally.operations,
        errors: tally.errors.clone(),
        throughput_per_s: Some(tally.operations as f64 / seconds),
        latency_us: Some(summarise(&tally.latency)),
        service_us: tally.service.as_ref().map(summarise),
        lateness_us: tally.lateness.as_ref().map(summarise),
        tenths: tally.tenths.to_vec(),
        ..Trial::default()
    }
}

/// Leaves interrupted exchanges out of the mean latency and of the throughput of one connection in a closed loop, whose
/// latencies follow each other without a gap.
pub(super) fn leave_out(trial: &mut Trial, sums: &Sums) {
    let Some(mean) = sums.mean() else { return };
    let per_exchange = trial.operations as f64 / (sums.whole + sums.left_out) as f64;
    trial.throughput_per_s = Some(per_exchange * 1e9 / mean);
    if let Some(latency) = &mut trial.latency_us {
        latency.mean = Some(mean / 1e3);
    }
    trial.interrupted_percent = sums.interrupted_percent();
}

/// `None` where there was no operation.
fn per_operation(amount: f64, operations: u64) -> Option<f64> {
    (operations > 0).then(|| amount / operations as f64)
}

/// Adds what client, server and machine used, to a trial that has its length and its operations. Utilisation and
/// waiting of the client are per thread; those of a server of several threads may be above 1.
pub(super) fn add_usage(trial: &mut Trial, client: ThreadUse, threads: u32, metered: Metered) {
    let window_ns = trial.seconds * 1e9;
    let operations = trial.operations;
    trial.client_cpu_us_per_op = per_operation(client.cpu_ns as f64 / 1e3, operations);
    trial.client_utilization = Some(client.cpu_ns as f64 / window_ns / f64::from(threads));
    trial.client_wait = Some(client.wait_ns as f64 / window_ns / f64::from(threads));
    if let Some(server) = metered.server {
        trial.server_cpu_us_per_op = per_operation(server.cpu_ns as f64 / 1e3, operations);
        trial.server_threads = server.threads;
        trial.server_utilization = Some(server.cpu_ns as f64 / window_ns);
        if let Some(switches) = server.switches {
            trial.context_switches_per_op = per_operation((switches + client.switches) as f64, operations);
        }
    }
    if let Some(proxy) = metered.proxy {
        trial.proxy_cpu_us_per_op = per_operation(proxy.cpu_ns as f64 / 1e3, operations);
        trial.proxy_utilization = Some(proxy.cpu_ns as f64 / window_ns);
    }
    trial.warnings.extend(doubt_clock(&metered.machine));
    trial.warnings.extend(metered.late_ms.map(warn_of_late_meters));
    trial.machine = metered.machine;
}

fn warn_of_late_meters(late_ms: f64) -> Warning {
    Warning::new(
        Code::NotMeasured,
        "",
        format!(
            "the server's CPU time is unknown: other programs had the CPUs, and the meters were read {late_ms:.0} ms late"
        ),
    )
}

/// Marks an open-loop trial invalid if the generator, not the server, missed the rate. Lateness itself is judged over
/// the whole measurement: judging each trial by its own latency would invalidate those of the faster arm.
fn judge_open_loop(trial: &mut Trial, tally: &Tally, open_loop: &OpenLoop) {
    let achieved = tally.operations as f64 / (open_loop.rate_per_s * trial.seconds);
    let client_busy = trial.client_utilization.unwrap_or(0.0) + trial.client_wait.unwrap_or(0.0);
    if achieved < MIN_ACHIEVED_PART - chance(tally) {
        let per_s = tally.operations as f64 / trial.seconds;
        if lateness_share(trial) > 0.5 && client_busy > SATURATED_PART {
            trial.invalid = Some(format!(
                "the generator reached {per_s:.0} of {:.0} requests/s: the client was the limit",
                open_loop.rate_per_s
            ));
        } else {
            trial.warnings.push(Warning::new(
                Code::Overload,
                "",
                format!("the server did {per_s:.0} of {:.0} requests/s", open_loop.rate_per_s),
            ));
        }
    }
}

/// By how much the number of requests due in one window may fall below the rate by chance, as a fraction of it. The
/// number is fixed for warm-up and window together; the window, ten elevenths of that, has a binomial share, of which
/// three standard deviations are 0.9 ÷ √n. The analysis of all trials of an arm is more precise.
fn chance(tally: &Tally) -> f64 {
    0.9 / (tally.latency.len().max(1) as f64).sqrt()
}

fn lateness_share(trial: &Trial) -> f64 {
    let latency = mean(trial.latency_us.as_ref());
    if latency > 0.0 { mean(trial.lateness_us.as_ref()) / latency } else { 0.0 }
}

fn mean(latency: Option<&Latency>) -> f64 {
    latency.and_then(|latency| latency.mean).unwrap_or(0.0)
}

pub fn of_bulk(tally: &BulkTally, client: ThreadUse, metered: Metered) -> Trial {
    let seconds = tally.elapsed as f64 / 1e9;
    let mut trial = Trial {
        seconds,
        operations: tally.messages,
        throughput_per_s: Some(tally.messages as f64 / seconds),
        bytes_per_s: Some(tally.bytes as f64 / seconds),
        ..Trial::default()
    };
    add_usage(&mut trial, client, 1, metered);
    trial
}

pub fn of_whole(tally: &WholeTally, metered: Metered) -> Trial {
    let errors = tally.failure.iter().map(|kind| ((*kind).to_owned(), 1)).collect();
    Trial { errors, ..of_bulk(&tally.reply, tally.usage, metered) }
}

pub fn of_burst(tally: &BurstTally, connects: u32, metered: Metered) -> Trial {
    let percent = |count: u64| 100.0 * count as f64 / f64::from(connects);
    let failed: u64 = tally.errors.values().sum();
    let mut trial = Trial {
        seconds: tally.elapsed as f64 / 1e9,
        operations: tally.served,
        errors: tally.errors.clone(),
        latency_us: Some(summarise(&tally.latency)),
        ..Trial::default()
    };
    tally.seen.clone().unwrap_or_default().tell(&mut trial);
    trial.measurements.insert("served_percent".into(), percent(tally.served));
    trial.measurements.insert("refused_percent".into(), percent(failed));
    trial.measurements.insert("stalled_percent".into(), percent(tally.stalled));
    trial.measurements.insert("slowest_ms".into(), tally.latency.max() as f64 / 1e6);
    trial.machine = metered.machine;
    trial
}

pub fn of_process(tally: &ProcessTally, machine: MachineUse) -> Trial {
    let mut trial = Trial {
        seconds: tally.elapsed as f64 / 1e9,
        operations: 1,
        cpu_s: Some(tally.user_s + tally.system_s),
        machine,
        ..Trial::default()
    };
    trial.measurements.extend(tally.values.iter().cloned());
    trial
}
