//! `samehost switch`: from TCP to a Unix socket or back, as a transaction.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Context;
use samehost_model::scan::Scan;
use samehost_model::switch::{SwitchOutcome, SwitchReport};
use samehost_model::{Endpoint, Redactor};
use samehost_switch::transaction::Store;
use samehost_switch::{Around, Direction, ReloadWords, Wish, carry_out, plan};

use super::switch_all;
use super::switch_stored as stored;
use crate::cli::SwitchOptions;
use crate::exit::{Ending, WrongUse};
use crate::{output, signals, storage};

pub fn switch(options: &SwitchOptions) -> anyhow::Result<Ending> {
    if options.list {
        return stored::list(options.json);
    }
    if options.recover {
        return stored::recover(options.json);
    }
    if let Some(id) = &options.undo {
        return stored::undo(id, options.json);
    }
    if options.all {
        return switch_all::all(options);
    }
    one(options, &options.targets)
}

/// One transaction about these targets.
pub(super) fn one(options: &SwitchOptions, targets: &[String]) -> anyhow::Result<Ending> {
    if let Some(unfinished) = stored::unfinished()? {
        return Err(WrongUse(format!(
            "the switch {unfinished} was cut off: end it first with samehost switch --recover"
        ))
        .into());
    }
    let wish = wish(options, targets)?;
    let scan = look()?;
    let mut plan = plan(&wish, &scan).map_err(|error| WrongUse(error.to_string()))?;
    let program = std::env::current_exe().context("the path of this program")?;
    if !plan.is_barred() && !plan.is_empty() {
        plan.try_logins(&program);
    }
    let mut report = plan.report(&wish);
    if report.outcome != SwitchOutcome::Planned {
        return end(options, &report);
    }
    if options.dry_run {
        let ending = end(options, &report)?;
        if !options.json {
            writeln!(io::stdout(), "\nNothing was touched. Without --dry-run it asks before it does this.")?;
        }
        return Ok(ending);
    }
    if !options.yes {
        if !may_ask(options)? {
            report.outcome = SwitchOutcome::Declined;
            return end(options, &report);
        }
        show(options, &report)?;
        if !ask()? {
            report.outcome = SwitchOutcome::Declined;
            output::complain("nothing was touched");
            return Ok(Ending::Finding);
        }
    }
    let interrupted = signals::watch()?;
    let store = store()?;
    let page = options
        .page
        .as_ref()
        .map(|url| move || samehost_bench::page_status(url).map_err(|error| error.to_string()));
    let page = page.as_ref().map(|page| page as &dyn Fn() -> Result<String, String>);
    let quiet = options.json || !io::stderr().is_terminal();
    let report = carry_out(
        plan,
        &wish,
        &Around {
            program: &program,
            store: &store,
            command: words(options, targets),
            page,
            is_interrupted: &|| interrupted.load(Ordering::Relaxed),
            telling: &|what| {
                if !quiet {
                    output::complain(what);
                }
            },
            scan: &|| look().ok(),
        },
    )?;
    end(options, &report)
}

/// A look at this machine.
pub(super) fn look() -> anyhow::Result<Scan> {
    Ok(samehost_scan::collect(env!("CARGO_PKG_VERSION"))?)
}

fn wish(options: &SwitchOptions, targets: &[String]) -> anyhow::Result<Wish> {
    let endpoint = |text: &String| format!("tcp:{text}").parse::<Endpoint>();
    let address = options.address.as_ref().map(endpoint).transpose();
    Ok(Wish {
        address: address.map_err(|error| WrongUse(error.to_string()))?,
        targets: targets.to_vec(),
        to: if options.to == "tcp" { Direction::Tcp } else { Direction::Unix },
        socket: options.socket.clone(),
        close_tcp: options.close_tcp,
        user: options.user.clone(),
        reloads: options.reload.iter().map(|text| ReloadWords::parse(text)).collect(),
    })
}

/// The user's words for the journal.
fn words(options: &SwitchOptions, targets: &[String]) -> String {
    let targets = Redactor::default().words(targets);
    format!("samehost switch {} --to {}", targets.join(" "), options.to)
}

/// Where transactions are kept.
pub(super) fn store() -> anyhow::Result<Store> {
    let directory: PathBuf = storage::directory().ok_or_else(|| {
        WrongUse("neither XDG_STATE_HOME nor HOME is set: there is no place for the backup".into())
    })?;
    Ok(Store::open(&directory)?)
}

fn may_ask(options: &SwitchOptions) -> anyhow::Result<bool> {
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !options.json {
        return Ok(true);
    }
    Err(WrongUse("nobody can be asked here: look with --dry-run, then say --yes".into()).into())
}

fn ask() -> anyhow::Result<bool> {
    let mut stdout = io::stdout();
    write!(stdout, "\nDo this? [y/N] ")?;
    stdout.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn show(options: &SwitchOptions, report: &SwitchReport) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    if options.json {
        serde_json::to_writer_pretty(&mut bytes, report)?;
        bytes.push(b'\n');
    } else {
        output::terminal().render_switch(report, &mut bytes)?;
    }
    io::stdout().write_all(&bytes).context("standard output")
}

fn end(options: &SwitchOptions, report: &SwitchReport) -> anyhow::Result<Ending> {
    show(options, report)?;
    Ok(match report.outcome {
        SwitchOutcome::Nothing | SwitchOutcome::Planned | SwitchOutcome::Committed => Ending::Done,
        SwitchOutcome::Refused | SwitchOutcome::Declined => Ending::Finding,
        SwitchOutcome::RolledBack => Ending::RolledBack,
    })
}
