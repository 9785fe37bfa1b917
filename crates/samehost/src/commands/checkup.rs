//! `samehost`: the checkup. A short measurement of each kind of use, and what it means.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use samehost_bench::workloads::{Parameters, workload};
use samehost_bench::{BenchError, Request, Wishes};
use samehost_model::Report;
use samehost_report::{Finding, FindingKind};
use serde_json::json;

use crate::cli::CheckupOptions;
use crate::commands::bench::fresh_seed;
use crate::exit::{Ending, WrongUse};
use crate::progress::Watcher;
use crate::{output, signals};

/// One measurement of the checkup.
pub(super) struct Part {
    pub(super) label: &'static str,
    pub(super) kind: FindingKind,
    pub(super) workload: &'static str,
    pub(super) parameters: &'static [(&'static str, &'static str)],
    pub(super) connections: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) metric: &'static str,
}

const PARTS: &[Part] = &[
    Part {
        label: "one request and its reply",
        kind: FindingKind::RoundTrip,
        workload: "raw",
        parameters: &[],
        connections: Some(1),
        size: Some(128),
        metric: "latency_mean",
    },
    Part {
        label: "CPU time per request, 64 at once",
        kind: FindingKind::Busy,
        workload: "raw",
        parameters: &[],
        connections: Some(64),
        size: Some(128),
        metric: "total_cpu_per_op",
    },
    Part {
        label: "large transfers, 512 KiB writes",
        kind: FindingKind::Bulk,
        workload: "raw",
        parameters: &[("pattern", "bulk")],
        connections: None,
        size: Some(512 * 1024),
        metric: "bandwidth",
    },
    Part {
        label: "a new connection per request",
        kind: FindingKind::Connect,
        workload: "connect",
        parameters: &[],
        connections: Some(1),
        size: None,
        metric: "latency_mean",
    },
];

const BUDGET: Duration = Duration::from_secs(40);
const BUDGETS: std::ops::RangeInclusive<Duration> = Duration::from_secs(20)..=Duration::from_secs(600);

pub fn checkup(options: &CheckupOptions) -> anyhow::Result<Ending> {
    let budget = options.budget.unwrap_or(BUDGET);
    if !BUDGETS.contains(&budget) {
        return Err(WrongUse("--budget takes 20s to 10m; fewer seconds tell nothing".into()).into());
    }
    let interrupted = signals::watch()?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let mut reports = Vec::new();
    for part in PARTS {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        reports.push((part, measure(part, budget / PARTS.len() as u32, seed, &interrupted, options.quiet)?));
    }
    if let Some(path) = &options.json {
        let parts: Vec<_> =
            reports.iter().map(|(part, report)| json!({ "label": part.label, "report": report })).collect();
        let mut bytes =
            serde_json::to_vec_pretty(&json!({ "schema": "samehost.checkup/1", "parts": parts }))?;
        bytes.push(b'\n');
        output::write_to(path, &bytes)?;
    }
    if options.json.as_deref() != Some(std::path::Path::new("-")) {
        let findings: Vec<Finding<'_>> = reports
            .iter()
            .map(|(part, report)| Finding { label: part.label, report, metric: part.metric, kind: part.kind })
            .collect();
        let mut bytes = Vec::new();
        output::terminal().render_checkup(&findings, &mut bytes)?;
        std::io::stdout().write_all(&bytes).context("standard output")?;
    }
    Ok(if interrupted.load(Ordering::Relaxed) { Ending::Interrupted } else { Ending::Done })
}

pub(super) fn measure(
    part: &Part,
    budget: Duration,
    seed: u64,
    interrupted: &Arc<AtomicBool>,
    quiet: bool,
) -> anyhow::Result<Report> {
    let workload = workload(part.workload)
        .ok_or_else(|| BenchError::Usage(format!("no workload is called {}", part.workload)))?;
    let mut parameters: Parameters =
        workload.parameters().iter().map(|p| (p.name.to_owned(), p.default.to_owned())).collect();
    parameters.extend(part.parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let request = Request {
        connections: part.connections.into_iter().collect(),
        sizes: part.size.into_iter().collect(),
        wishes: Wishes { budget: Some(budget), ..Wishes::default() },
        seed,
        parameters,
        ..Request::new(
            std::env::current_exe().context("finding this program")?,
            std::env::args().collect(),
            Arc::clone(interrupted),
        )
    };
    let mut watcher = Watcher::new(quiet, None);
    watcher.announce(part.label);
    let benched = samehost_bench::bench(workload, &request, &mut watcher)?;
    watcher.finish();
    match benched.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(benched.report),
    }
}
