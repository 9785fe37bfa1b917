//! `samehost reproduce [ID…]`: the published experiments on this machine.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context;
use samehost_bench::machine::host;
use samehost_model::human::{counted, rough_time};
use samehost_model::{ExperimentState, REPRODUCTION_SCHEMA, Reproduction};
use samehost_system::clock;

use crate::cli::ReproduceOptions;
use crate::exit::Ending;
use crate::output::{self, Target};
use crate::reproduce::{Published, Reproducer, chosen, planned};
use crate::request::fresh_seed;
use crate::signals;
use crate::wrong_use::WrongUse;

pub fn reproduce(options: &ReproduceOptions) -> anyhow::Result<Ending> {
    let published = chosen(&options.ids)?;
    let outputs = Outputs::open(options)?;
    let interrupted = signals::watch()?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let (host, begun, started_at) = (host(), Instant::now(), clock::utc_now());
    if !options.quiet {
        announce(&published, options);
    }
    let mut reproducer = Reproducer::new(&published, options, seed, Arc::clone(&interrupted));
    if reproducer.needs_own_network(&published)? {
        // Must precede the first thread.
        let program = std::env::current_exe().context("finding this program")?;
        samehost_bench::network::prepare(&program)?;
    }
    let mut experiments = Vec::new();
    for one in published {
        experiments.push(reproducer.run(one)?);
    }
    let reproduction = Reproduction {
        schema: REPRODUCTION_SCHEMA.into(),
        samehost_version: env!("CARGO_PKG_VERSION").into(),
        started_at,
        command: std::env::args().collect(),
        mode: options.mode(),
        seed,
        host,
        seconds: begun.elapsed().as_secs_f64(),
        interrupted: interrupted.load(Ordering::Relaxed),
        experiments,
    };
    outputs.write(&reproduction)?;
    Ok(ending(&reproduction))
}

fn announce(published: &[&Published], options: &ReproduceOptions) {
    let seconds = match options.budget {
        Some(budget) => budget.as_secs_f64(),
        None => planned(published, options.mode()),
    };
    let (number, time) = (counted(published.len(), "experiment"), rough_time(seconds));
    output::complain(&format!("{number}, at most about {time}; Ctrl-C shows what is measured by then"));
}

type Render = fn(&Reproduction, &mut dyn Write) -> std::io::Result<()>;

struct Outputs {
    targets: Vec<(Target, Render)>,
    table: bool,
}

impl Outputs {
    fn open(options: &ReproduceOptions) -> Result<Self, WrongUse> {
        let renderers: &[(&Option<PathBuf>, Render)] = &[
            (&options.json, samehost_report::reproduction_as_json),
            #[cfg(feature = "html")]
            (&options.html, samehost_report::reproduction_as_html),
            (&options.markdown, samehost_report::reproduction_as_markdown),
        ];
        let wanted = || renderers.iter().filter_map(|(path, render)| Some((path.as_deref()?, *render)));
        let is_stdout_taken = output::is_stdout_taken(wanted().map(|(path, _)| path))?;
        let targets = wanted().map(|(path, render)| Ok((output::open(path)?, render)));
        Ok(Outputs { targets: targets.collect::<Result<_, _>>()?, table: !options.quiet && !is_stdout_taken })
    }

    /// Renders all outputs, the table last.
    fn write(self, reproduction: &Reproduction) -> anyhow::Result<()> {
        for (target, render) in self.targets {
            let mut bytes = Vec::new();
            render(reproduction, &mut bytes)?;
            output::write(target, &bytes)?;
        }
        if self.table {
            output::show(|terminal, out| terminal.render_reproduction(reproduction, out))?;
        }
        Ok(())
    }
}

/// Done if anything was measured and nothing failed; what is not installed is explained in its row.
fn ending(reproduction: &Reproduction) -> Ending {
    let has_one =
        |state: ExperimentState| reproduction.experiments.iter().any(|experiment| experiment.state == state);
    if reproduction.interrupted {
        Ending::Interrupted
    } else if has_one(ExperimentState::Failed) || !has_one(ExperimentState::Measured) {
        Ending::CutShort
    } else {
        Ending::Done
    }
}
