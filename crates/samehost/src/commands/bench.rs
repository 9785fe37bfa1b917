//! `samehost bench WORKLOAD`.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use samehost_analysis::Claim;
use samehost_bench::{BenchError, Benched, Request, Wishes};
use samehost_model::{
    Code, Outcome, Redactor, Report, Stopping, Transport, Warning, parse_count_list, parse_size_list,
};

use crate::cli::{Bench, BenchOptions};
use crate::consent::Consent;
use crate::exit::{Ending, WrongUse};
use crate::progress::Watcher;
use crate::storage::SamplesFile;
use crate::{output, signals};

pub fn bench(bench: &Bench) -> anyhow::Result<Ending> {
    let options = &bench.options;
    let interrupted = signals::watch()?;
    let request = request(bench, interrupted)?;
    if samehost_bench::needs_own_network(bench.workload, &request) {
        // Before the first thread.
        samehost_bench::network::prepare(&request.program)?;
    }
    let outputs = options.output.open()?;
    let (store, not_stored) = match SamplesFile::create(bench.workload.name()) {
        Ok(store) => (Some(store), None),
        Err(reason) => (None, Some(reason)),
    };
    let consent = Consent::of_option(options.yes.as_deref());
    let mut watcher = Watcher::new(options.output.quiet, store).with_consent(consent);
    watcher.announce(&format!("bench {}", bench.workload.name()));
    let result = samehost_bench::bench(bench.workload, &request, &mut watcher);
    let store = watcher.finish();
    let Benched { mut report, failure } = result.inspect_err(|_| {
        if let Some(store) = &store {
            // Nothing was measured; an empty file would only be in the way.
            let _ = std::fs::remove_file(store.path());
        }
    })?;
    if let Some(reason) = not_stored {
        let message = format!("samples were not stored as they came: {reason}");
        report.warnings.push(Warning::new(Code::NotStored, "", message));
    }
    let samples = store.map(|store| store.end(&mut report));
    // A server may say anything, the password that it was told as well.
    report.hide(&output::own_secrets());
    outputs.write(&report).with_context(|| match &samples {
        Some(path) => format!("the samples are safe: `samehost report {}` shows them", path.display()),
        None => "the result could not be written".into(),
    })?;
    if let Some(failure) = failure {
        return Err(failure).context("measuring ended early; what was measured is shown above");
    }
    Ok(ending(&report, &options.assert))
}

/// The ending that a report and the claims about it ask for.
pub fn ending(report: &Report, claims: &[Claim]) -> Ending {
    let mut ending =
        if report.head.outcome == Outcome::Interrupted { Ending::Interrupted } else { Ending::Done };
    for claim in claims {
        if let Err(refuted) = samehost_analysis::check(claim, report) {
            output::complain(&refuted.to_string());
            ending = Ending::Finding;
        }
    }
    ending
}

/// What a command line of `bench` asks for.
pub fn request(bench: &Bench, interrupted: Arc<AtomicBool>) -> anyhow::Result<Request> {
    let options = &bench.options;
    let list = |text: &Option<String>| text.as_deref().map_or(Ok(Vec::new()), parse_count_list);
    let sizes = options.size.as_deref().map_or(Ok(Vec::new()), parse_size_list);
    Ok(Request {
        program: std::env::current_exe().context("finding this program")?,
        command: Redactor::default().words(std::env::args()),
        transports: options.transports.clone(),
        connections: list(&options.connections).map_err(BenchError::from)?,
        rates: options.rates().map_err(BenchError::from)?,
        spacing: options.spacing(),
        sizes: sizes.map_err(BenchError::from)?,
        placements: options.placement.clone(),
        awake: options.awake,
        congestion: options.congestion.clone(),
        congestion_by_routes: false,
        socket_buffers: options
            .socket_buffer
            .as_deref()
            .map_or(Ok(Vec::new()), parse_size_list)
            .map_err(BenchError::from)?,
        own_servers: options.own_servers,
        most_servers: None,
        threads: options.threads,
        wishes: wishes(options),
        seed: options.seed.unwrap_or_else(fresh_seed),
        servers: servers(options)?,
        parameters: bench.parameters.clone(),
        commands: options.arm.clone(),
        profile: options.profile,
        earlier: None,
        interrupted,
    })
}

/// A seed short enough to be typed again.
pub fn fresh_seed() -> u64 {
    // The standard library seeds its hashers from the kernel's random numbers.
    RandomState::new().build_hasher().finish() >> 40
}

fn servers(options: &BenchOptions) -> anyhow::Result<BTreeMap<Transport, String>> {
    let given = [(Transport::Tcp, &options.tcp), (Transport::Unix, &options.unix)];
    let mut servers: BTreeMap<Transport, String> =
        given.into_iter().filter_map(|(transport, address)| Some((transport, address.clone()?))).collect();
    if options.ask_password {
        if servers.is_empty() {
            return Err(WrongUse("--ask-password is for a server given with --tcp or --unix".into()).into());
        }
        let password = rpassword::prompt_password("Password: ").context(
            "asking for a password needs a terminal; the environment or an option file gives one too",
        )?;
        for address in servers.values_mut() {
            *address = samehost_bench::workloads::with_password(address, &password)?;
        }
    }
    Ok(servers)
}

fn wishes(options: &BenchOptions) -> Wishes {
    Wishes {
        budget: options.budget,
        precision: options.precision,
        margin: options.margin,
        min_blocks: options.min_blocks,
        max_blocks: options.max_blocks,
        trial_time: options.trial_time,
        no_control: options.no_control,
        stopping: if options.until_decided { Stopping::Decision } else { Stopping::Precision },
        asked: Vec::new(),
        others: 0,
        slicing: options.slice.unwrap_or_default(),
        repeats: options.repeats,
    }
}
