//! `samehost reproduce [ID…]`: the published experiments on this machine.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use samehost_bench::machine::host;
use samehost_model::human::counted;
use samehost_model::{Experiment, ExperimentState, Mode, REPRODUCTION_SCHEMA, Reproduction};
use samehost_system::clock;

use crate::cli::ReproduceOptions;
use crate::exit::{Ending, in_full};
use crate::output::{self, Target};
use crate::reproduce::{Published, Reproducer, Store, chosen, next, planned};
use crate::request::fresh_seed;
use crate::signals;
use crate::wrong_use::WrongUse;

pub fn reproduce(options: &ReproduceOptions) -> anyhow::Result<Ending> {
    let published = chosen(&options.ids)?;
    let outputs = Outputs::open(options)?;
    let interrupted = signals::watch()?;
    let mode = if options.quick { Mode::Quick } else { Mode::Full };
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let budget_s = options.budget.map(|budget| budget.as_secs_f64());
    let (begun, started_at) = (Instant::now(), clock::utc_now());
    let host = host();
    let store = Store::new(&host, mode, budget_s, options.server.clone());
    if options.fresh {
        store.forget(published.iter().map(|one| one.id));
    }
    let mut made: Vec<Option<Experiment>> = published.iter().map(|one| store.kept(one.id)).collect();
    let kept: Vec<Experiment> = made.iter().flatten().cloned().collect();
    let mut ahead: Vec<&Published> = published.clone();
    ahead.retain(|one| kept.iter().all(|experiment| experiment.id != one.id));
    if !options.quiet {
        announce(&ahead, &kept, mode, budget_s);
    }
    let stop = Arc::clone(&interrupted);
    let server = options.server.clone();
    let mut reproducer = Reproducer::new(&ahead, mode, budget_s, seed, options.quiet, server, stop);
    // Must precede the first thread.
    prepare_network(&reproducer, &ahead)?;
    let mut order: Vec<usize> = (0..published.len()).filter(|place| made[*place].is_none()).collect();
    // Experiments on built-in servers first: they take seconds, and no database has used the memory yet.
    order.sort_by_key(|place| published[*place].starts_servers());
    for place in order {
        let experiment = reproducer.make(published[place])?;
        keep(&store, &experiment);
        made[place] = Some(experiment);
    }
    let mut experiments: Vec<Experiment> = made.into_iter().flatten().collect();
    go_on(&published, &mut experiments, &reproducer, &store, &interrupted)?;
    let reproduction = Reproduction {
        schema: REPRODUCTION_SCHEMA.into(),
        samehost_version: env!("CARGO_PKG_VERSION").into(),
        started_at,
        command: std::env::args().collect(),
        mode,
        seed,
        host,
        seconds: begun.elapsed().as_secs_f64(),
        interrupted: interrupted.load(Ordering::Relaxed),
        experiments,
    };
    outputs.write(&reproduction)?;
    // A complete reproduction is discarded, so that the next call starts over. A missing workload counts as
    // complete, because no installation would provide it.
    let is_over =
        |one: &Experiment| matches!(one.state, ExperimentState::Measured | ExperimentState::NoWorkload);
    if reproduction.experiments.iter().all(is_over) {
        store.forget(published.iter().map(|one| one.id));
    }
    Ok(ending(&reproduction))
}

fn prepare_network(reproducer: &Reproducer, ahead: &[&Published]) -> anyhow::Result<()> {
    if reproducer.needs_own_network(ahead)? {
        let program = std::env::current_exe().context("finding this program")?;
        samehost_bench::network::prepare(&program)?;
    }
    Ok(())
}

/// Spends the remaining time on open claims.
fn go_on(
    published: &[&'static Published],
    experiments: &mut [Experiment],
    reproducer: &Reproducer,
    store: &Store,
    interrupted: &AtomicBool,
) -> anyhow::Result<()> {
    let mut turns = vec![0; experiments.len()];
    loop {
        let mut all: Vec<(&Published, &Experiment, u32)> = Vec::new();
        for (place, experiment) in experiments.iter().enumerate() {
            all.push((published[place], experiment, turns[place]));
        }
        let Some((place, seconds)) = next(&all, reproducer.left_s()) else { return Ok(()) };
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        turns[place] += 1;
        reproducer.go_on(published[place], &mut experiments[place], seconds)?;
        keep(store, &experiments[place]);
    }
}

fn keep(store: &Store, experiment: &Experiment) {
    if experiment.state == ExperimentState::Measured
        && let Err(error) = store.keep(experiment)
    {
        let (id, error) = (&experiment.id, in_full(&error));
        output::complain(&format!("{id} is not kept, should this be interrupted: {error}"));
    }
}

fn announce(ahead: &[&Published], kept: &[Experiment], mode: Mode, budget_s: Option<f64>) {
    if !kept.is_empty() {
        let ids: Vec<&str> = kept.iter().map(|one| one.id.as_str()).collect();
        output::complain(&format!(
            "going on with an earlier call that did not come to its end: {} measured already (--fresh measures again)",
            ids.join(", ")
        ));
    }
    if !ahead.is_empty() {
        let seconds = budget_s.unwrap_or_else(|| planned(ahead, mode));
        let time = if seconds < 90.0 {
            format!("{seconds:.0} seconds")
        } else {
            format!("{:.0} minutes", (seconds / 60.0).ceil())
        };
        output::complain(&format!(
            "{}, at most about {time}; Ctrl-C keeps those that are done, and the same command continues",
            counted(ahead.len(), "experiment")
        ));
    }
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
