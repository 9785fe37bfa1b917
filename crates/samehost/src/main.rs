//! samehost: measures and switches connections between programs on one machine.

mod calibration;
mod checkup;
mod cli;
mod commands;
mod consent;
mod exit;
mod kept;
mod left_out;
mod manual;
mod needed;
mod otlp;
mod output;
mod panics;
mod progress;
mod reproduce;
mod request;
mod scans;
mod signals;
mod since;
mod state;
mod storage;
#[cfg(feature = "switch")]
mod switches;
mod tips;
#[cfg(feature = "tui")]
mod top;
mod wrong_use;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Verb};

/// musl's own has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    panics::end();
    tracing_subscriber::fmt().with_writer(|| output::Log).with_max_level(tracing::Level::WARN).init();
    if let Err(error) = signals::take_usual() {
        return exit::status(Err(error.into()));
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| tips::only_near(error).exit());
    // Servers and hidden verbs handle signals themselves. Measurements stop cleanly, and must start single-threaded.
    let has_own_end = matches!(
        cli.verb,
        None | Some(
            Verb::Checkup(_)
                | Verb::Bench(_)
                | Verb::Reproduce(_)
                | Verb::TryOwnNetwork
                | Verb::Run(_)
                | Verb::Serve(_)
                | Verb::Supervise(_)
                | Verb::BecomeServer(_)
                | Verb::LogInAs
        )
    );
    if !has_own_end && let Err(error) = signals::end_at_once() {
        return exit::status(Err(error.into()));
    }
    let result = match cli.verb {
        None => commands::checkup(&cli.checkup),
        Some(Verb::Checkup(options)) => commands::checkup(&options),
        Some(Verb::Bench(bench)) => commands::bench(&bench),
        Some(Verb::Reproduce(options)) => commands::reproduce(&options),
        Some(Verb::Scan(options)) => commands::scan(&options),
        Some(Verb::Explain { code }) => commands::explain(code.as_deref()),
        Some(Verb::Top(options)) => commands::top(&options),
        Some(Verb::Verify(options)) => commands::verify(&options),
        Some(Verb::How(options)) => commands::how(&options),
        Some(Verb::Switch(options)) => commands::switch(&options),
        Some(Verb::Run(options)) => commands::run(&options),
        Some(Verb::Serve(options)) => commands::serve(&options),
        Some(Verb::Report(options)) => commands::report(&options),
        Some(Verb::Compare(options)) => commands::compare(&options),
        Some(Verb::History(options)) => commands::history(&options),
        Some(Verb::Prune(options)) => commands::prune(&options),
        Some(Verb::Completions { shell }) => commands::completions(shell),
        Some(Verb::Man { directory }) => commands::man(&directory),
        Some(Verb::Supervise(options)) => commands::supervise(&options),
        Some(Verb::BecomeServer(options)) => commands::become_server(&options),
        Some(Verb::TryOwnNetwork) => commands::try_own_network(),
        Some(Verb::LogInAs) => commands::log_in_as(),
        Some(Verb::SendsAtOnce(options)) => commands::sends_at_once(&options),
        Some(Verb::HandOver { endpoint }) => commands::hand_over(&endpoint),
        #[cfg(feature = "switch")]
        Some(Verb::WatchSwitch(options)) => commands::watch_switch(&options),
    };
    // The user knows of the interrupt, so errors that result from it are not shown.
    exit::status(if signals::is_stopped() { Ok(exit::Ending::Interrupted) } else { result })
}
