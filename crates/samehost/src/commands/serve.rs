//! `samehost serve SERVER`.

use samehost_system::threads;
use std::io::Write;

use anyhow::Context;
use samehost_bench::builtin_servers::ServeOptions as Options;
use samehost_transport::Tuning;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::ServeOptions;
use crate::exit::Ending;
use crate::output;

pub fn serve(options: &ServeOptions) -> anyhow::Result<Ending> {
    let (server, model) = (options.server, options.model);
    if let Some(transport) = options.inherited {
        server.serve_inherited(transport, model).context("the inherited connection")?;
        return Ok(Ending::Done);
    }
    let how = Options {
        model,
        backlog: options.backlog,
        mode: options.mode,
        accept_delay: options.accept_delay,
        work: options.work,
        longer: options.longer,
        tuning: Tuning { congestion: options.congestion.clone(), buffer_bytes: options.socket_buffer },
    };
    let listening = server.listen(&options.listen, &how)?;
    // Must precede the message that it listens, after which it may be stopped.
    let stopper = listening.stopper()?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("watching for signals")?;
    threads::start(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    })?;
    let mut stdout = output::Stdout;
    for endpoint in listening.endpoints() {
        writeln!(stdout, "listening on {endpoint}").context("standard output")?;
    }
    stdout.flush().context("standard output")?;
    server.serve(&listening, &how)?;
    Ok(Ending::Done)
}
