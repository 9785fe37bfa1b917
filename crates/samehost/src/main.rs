//! samehost: measures and switches connections between programs on one machine.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod checkup;
mod cli;
mod commands;
mod exit;
mod manual;
mod output;
mod progress;
mod reproduce;
mod request;
mod signals;
mod storage;
mod wrong_use;

use std::process::ExitCode;

use cli::{AtSignal, Cli, Internal, Verb};

/// The allocator where musl is the C library, as in a release: musl's own has one lock for all threads.
/// An allocator in Rust alone was rejected, because those that are widely used have one lock too, and a C
/// compiler is needed anyway (ring, tree-sitter). glibc linked statically was rejected as well: it loads
/// modules of its own version for names at run time. With glibc as the C library its own allocator stays
/// (docs/decisions/0095).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    exit::end_on_panic();
    tracing_subscriber::fmt().with_writer(|| output::Log).with_max_level(tracing::Level::WARN).init();
    if let Err(error) = signals::take_usual() {
        return exit::status(Err(error.into()));
    }
    let Cli { verb, checkup } =
        cli::parse(std::env::args_os().collect()).unwrap_or_else(|error| error.exit());
    let verb = verb.unwrap_or(Verb::Checkup(checkup));
    if verb.at_signal() == AtSignal::Ends
        && let Err(error) = signals::end_at_once()
    {
        return exit::status(Err(error.into()));
    }
    let result = run(verb);
    // The user knows of the interrupt, so errors that result from it are not shown.
    if signals::is_stopped() {
        signals::say_untouched();
        return exit::status(Ok(exit::Ending::Interrupted));
    }
    exit::status(result)
}

fn run(verb: Verb) -> anyhow::Result<exit::Ending> {
    match verb {
        Verb::Checkup(options) => commands::checkup(&options),
        Verb::Bench(bench) => commands::bench(&bench),
        Verb::Reproduce(options) => commands::reproduce(&options),
        Verb::Scan(options) => commands::scan(&options),
        Verb::Explain { text } => commands::explain(&text.join(" ")),
        Verb::Top(options) => commands::top(&options),
        Verb::Verify(options) => commands::verify(&options),
        Verb::How(options) => commands::how(&options),
        Verb::Switch(options) => commands::switch(&options),
        Verb::Run(options) => commands::run(&options),
        Verb::Serve(options) => commands::serve(&options),
        Verb::Report(options) => commands::report(&options),
        Verb::Completions { shell } => commands::completions(shell),
        Verb::Man { directory } => commands::man(&directory),
        Verb::Internal(internal) => run_internal(internal),
    }
}

fn run_internal(verb: Internal) -> anyhow::Result<exit::Ending> {
    match verb {
        Internal::Supervise(options) => commands::supervise(&options),
        Internal::BecomeServer(options) => commands::become_server(&options),
        Internal::TryOwnNetwork => commands::try_own_network(),
        Internal::LogInAs => commands::log_in_as(),
        Internal::SendsAtOnce { sockets } => commands::sends_at_once(&sockets),
        Internal::StandIn => commands::stand_in(),
        Internal::HandOver { endpoint } => commands::hand_over(&endpoint),
        #[cfg(feature = "switch")]
        Internal::WatchSwitch(options) => commands::watch_switch(&options),
    }
}
