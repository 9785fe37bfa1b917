//! Bottleneck of an arm with a proxy between client and server.

use samehost_model::{Limit, LimitedBy, Report, Transport};

use crate::index::{ArmTrials, Index};
use crate::issues::processor::{MACHINE_FULL, SATURATED, SERVER_SATURATED};

/// Bottleneck of each arm that has a proxy and a closed loop.
pub(crate) fn limits(report: &Report, index: &Index<'_>) -> Vec<Limit> {
    let arms = index.arms.iter().filter(|trials| trials.arm.transport != Transport::None);
    arms.filter_map(|trials| limit(report, trials)).collect()
}

fn limit(report: &Report, trials: &ArmTrials<'_>) -> Option<Limit> {
    if trials.arm.point.rate_per_s.is_some() {
        return None;
    }
    let threads =
        report.head.workload.parameters.get("threads").and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let client = trials.median(|s| s.client_utilization)?;
    let proxy = trials.median(|s| s.proxy_utilization)?;
    let server = trials.median(|s| s.server_utilization)?;
    let cpus = f64::from(report.head.host.cpus_allowed);
    let is_full = |used: f64, most: Option<f64>| used >= SERVER_SATURATED * most.unwrap_or(cpus).min(cpus);
    let by = if client >= SATURATED {
        LimitedBy::Client
    } else if is_full(proxy, trials.median(|s| s.proxy_most_cpus)) {
        LimitedBy::Proxy
    } else if is_full(server, trials.median(|s| s.server_most_cpus)) {
        LimitedBy::Server
    } else if client * threads + proxy + server >= MACHINE_FULL * cpus {
        LimitedBy::Machine
    } else {
        LimitedBy::Waiting
    };
    let client_cpus = client * threads;
    Some(Limit { arm: trials.arm.id.clone(), by, client_cpus, proxy_cpus: proxy, server_cpus: server })
}
