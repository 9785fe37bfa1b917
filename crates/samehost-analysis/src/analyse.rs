//! Computes comparisons, controls, evidence and warnings from trials, which transport each arm was shown to use, and the
//! bottleneck of an arm with a proxy between client and server. Deterministic: analysing a stored report again gives the
//! same result.

use samehost_model::{Analysis, ConnectionSettings, Evidence, Limit, LimitedBy, Report, Transport, Warning};

use crate::comparison::{compare_controls, comparisons};
use crate::effects::effects;
use crate::index::{ArmTrials, Index};
use crate::issues::find_issues;
use crate::issues::processor::{MACHINE_FULL, SATURATED, SERVER_SATURATED, client_threads};
use crate::judge::missed_precision;
use crate::prediction::predict;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysed {
    pub analysis: Analysis,
    /// Warnings about the whole report; errors first.
    pub warnings: Vec<Warning>,
}

impl Analysed {
    /// Replaces the report's analysis. Warnings from the measurement are kept, after the new ones.
    pub fn apply(self, report: &mut Report) {
        let Analysed { analysis, mut warnings } = self;
        for earlier in std::mem::take(&mut report.warnings) {
            let again = warnings.iter().any(|w| w.code == earlier.code && w.subject == earlier.subject);
            if !again && !earlier.code.is_of_analysis() {
                warnings.push(earlier);
            }
        }
        report.analysis = analysis;
        report.warnings = warnings;
    }
}

/// Analyses a report's trials; ignores an earlier analysis in the report. Nothing but the report is read, so that a
/// stored one can be judged again by later rules: the analysis is a part that can be computed anew from head and
/// trials (docs/decisions/0084). [`Analysed::apply`] puts the result into a report.
#[must_use]
pub fn analyse(report: &Report) -> Analysed {
    let index = Index::of_report(report);
    let issues = find_issues(report, &index);
    let controls = compare_controls(report, &index);
    let comparisons = comparisons(report, &index, &issues);
    let mut warnings: Vec<Warning> = issues.into_iter().map(|issue| issue.warning).collect();
    warnings.extend(missed_precision(report, &comparisons));
    let (predictions, without) = predict(report, &index);
    warnings.extend(without);
    let (effects, combinations) = effects(report, &index);
    let analysis = Analysis {
        comparisons,
        controls,
        predictions,
        effects,
        combinations,
        limits: index.arms.iter().filter_map(|trials| limit(report, trials)).collect(),
        evidence: gather_evidence(&index),
    };
    Analysed { analysis, warnings }
}

/// Evidence of each arm's transport from the kernel and the server. Messages that differ only in numbers,
/// such as a peer's pid, are merged.
fn gather_evidence(index: &Index<'_>) -> Vec<Evidence> {
    let mut evidence: Vec<Evidence> = Vec::new();
    for trials in &index.arms {
        let from = evidence.len();
        for trial in &trials.counted {
            let Some(observed) = &trial.transport_observed else { continue };
            let known = evidence[from..].iter_mut().find(|e| {
                e.says_the_same(observed, trial.cipher.as_deref())
                    && is_alike(e.connection.as_ref(), trial.connection.as_ref())
            });
            match known {
                Some(known) => known.trials += 1,
                None => evidence.push(Evidence {
                    arm: trials.arm.id.clone(),
                    observed: observed.clone(),
                    cipher: trial.cipher.clone(),
                    connection: trial.connection.clone(),
                    trials: 1,
                }),
            }
        }
    }
    evidence
}

/// Whether two connections use the same congestion control. Buffer sizes are not compared, because TCP's
/// differ slightly between connections; the first connection's are reported.
fn is_alike(one: Option<&ConnectionSettings>, other: Option<&ConnectionSettings>) -> bool {
    one.map(ConnectionSettings::congestion) == other.map(ConnectionSettings::congestion)
}

/// Bottleneck of an arm that has a proxy and a closed loop. `None` for an open loop, and where the CPU time of client, proxy or
/// server is unknown: so for each arm without a proxy.
fn limit(report: &Report, trials: &ArmTrials<'_>) -> Option<Limit> {
    if trials.arm.transport == Transport::None || trials.arm.point.rate_per_s.is_some() {
        return None;
    }
    let threads = client_threads(report);
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
