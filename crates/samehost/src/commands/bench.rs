//! `samehost bench WORKLOAD`.

use anyhow::Context;
use samehost_bench::BenchOutcome;
use samehost_model::{Code, Warning};

use crate::cli::Bench;
use crate::exit::{self, Ending};
use crate::progress::{Consent, Watcher};
use crate::request::request;
use crate::storage::SamplesFile;
use crate::{output, signals};

pub fn bench(bench: &Bench) -> anyhow::Result<Ending> {
    let options = &bench.options;
    let interrupted = signals::watch()?;
    let request = request(bench, interrupted)?;
    if !options.assert.is_empty() {
        let (arms, metrics) = samehost_bench::check(bench.workload, &request)?;
        exit::check_claims(&options.assert, &arms, &metrics)?;
    }
    if samehost_bench::needs_own_network(bench.workload, &request) {
        // Must precede the first thread.
        samehost_bench::network::prepare(&request.program)?;
    }
    let outputs = options.output.open()?;
    let (store, not_stored) = match SamplesFile::create(bench.workload.name()) {
        Ok(store) => (Some(store), None),
        Err(reason) => (None, Some(reason)),
    };
    let consent = Consent::of_option(options.yes.as_deref());
    let mut watcher = Watcher::new(options.output.quiet, store, None, consent);
    watcher.announce(&format!("bench {}", bench.workload.name()));
    let result = samehost_bench::bench(bench.workload, &request, &mut watcher);
    let store = watcher.finish();
    let BenchOutcome { mut report, failure } = result.inspect_err(|_| {
        if let Some(store) = &store {
            // Nothing was measured, so the empty file is removed.
            let _ = std::fs::remove_file(&store.path);
        }
    })?;
    if let Some(reason) = not_stored {
        let message = format!("samples were not stored as they came: {reason}");
        report.warnings.push(Warning::new(Code::NotStored, "", message));
    }
    let samples = store.map(|store| store.end(&mut report));
    // Servers may quote any text, including the password that they received.
    report.hide(&output::own_secrets());
    outputs.write(&report).with_context(|| match &samples {
        Some(path) => format!("the samples are safe: `samehost report {}` shows them", path.display()),
        None => "the result could not be written".into(),
    })?;
    if let Some(failure) = failure {
        return Err(failure).context("measuring ended early; what was measured is shown above");
    }
    Ok(exit::of_report(&report, &options.assert))
}
