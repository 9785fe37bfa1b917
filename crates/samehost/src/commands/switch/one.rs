//! One switch as one transaction: plan, pre-flight, diff, prompt, apply.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use samehost_model::scan::{Advice, Possible, Scan};
use samehost_model::switch::{SwitchOutcome, SwitchReport};
use samehost_model::{Endpoint, ObstacleCode, Redactor};
use samehost_report::saving_in_words;
use samehost_scan::{Stamps, Timed};
use samehost_switch::{
    Confirm, Direction, Environment, Page, Plan, ReloadWords, SwitchRequest, finishing, plan,
};
use samehost_system::interrupt;

use super::confirm::{self, Site, agrees, may_ask};
use super::stored;
use crate::cli::{SwitchOptions, UnixOrTcp};
use crate::commands::scan;
use crate::exit::Ending;
use crate::wrong_use::WrongUse;
use crate::{output, signals, switches};

/// Default time for observing who else uses an address that would be closed.
const OBSERVE: Duration = Duration::from_secs(5);

/// One transaction for these targets.
pub(super) fn one(options: &SwitchOptions, targets: &[String]) -> anyhow::Result<Ending> {
    if let Some(unfinished) = stored::unfinished()? {
        return Err(WrongUse(format!(
            "the switch {unfinished} was interrupted; run this first: samehost switch --recover"
        ))
        .into());
    }
    let request = request_of(options, targets)?;
    let scan = look()?;
    let mut plan = plan(&request, &scan).map_err(|error| WrongUse(error.to_string()))?;
    let interrupted = interrupt::flag();
    if !plan.is_barred() {
        plan = plan.look_who_stays(&request, &scan, &|| look().ok(), &|| interrupted.load(Ordering::Relaxed));
    }
    make(options, plan, &request, words(options, targets), &interrupted)
}

/// Performs the deferred part of a switch.
pub(super) fn finish(options: &SwitchOptions, id: &str) -> anyhow::Result<Ending> {
    let request = request_of(options, &[id.to_owned()])?;
    let scan = look()?;
    let interrupted = interrupt::flag();
    let is_interrupted: &dyn Fn() -> bool = &|| interrupted.load(Ordering::Relaxed);
    let plan = finishing(&switches::store_of(id)?, id, &request, &scan, &|| look().ok(), is_interrupted)
        .map_err(|error| WrongUse(error.to_string()))?;
    make(options, plan, &request, format!("samehost switch --finish {id}"), &interrupted)
}

/// Runs the pre-flight checks, shows the plan, prompts, and applies it.
fn make(
    options: &SwitchOptions,
    mut plan: Plan,
    wish: &SwitchRequest,
    words: String,
    interrupted: &AtomicBool,
) -> anyhow::Result<Ending> {
    let program = std::env::current_exe().context("the path of this program")?;
    plan = plan.passing(&options.accept);
    if plan.may_try() && !plan.is_empty() {
        plan = plan.try_logins(&program).passing(&options.accept);
    }
    // With --dry-run too: what it shows is what --yes then does.
    if options.yes {
        plan = plan.without_a_person(&options.accept);
    }
    let notes = super::notes(options, &plan.report(wish), &plan.unused(&wish.reloads));
    plan.note(notes);
    let report = plan.report(wish);
    if report.outcome != SwitchOutcome::Planned {
        return end(options, &report);
    }
    if options.dry_run {
        let ending = end(options, &report)?;
        if !options.json {
            writeln!(
                output::Stdout,
                "\nNothing was touched. Without --dry-run it asks before it does this."
            )?;
        }
        return Ok(ending);
    }
    if !options.yes {
        may_ask(options)?;
        show(options, &report)?;
        if !agrees()? {
            output::complain("nothing was touched");
            return Ok(Ending::Finding);
        }
    }
    if interrupt::is_requested() {
        return Ok(Ending::Interrupted);
    }
    signals::watch()?;
    apply(options, plan, wish, Applied { program: &program, words, report: &report, interrupted })
}

/// Further inputs for applying a plan.
struct Applied<'a> {
    program: &'a Path,
    words: String,
    report: &'a SwitchReport,
    interrupted: &'a AtomicBool,
}

/// Applies the plan, and starts a watcher until it is confirmed.
fn apply(
    options: &SwitchOptions,
    plan: Plan,
    wish: &SwitchRequest,
    with: Applied<'_>,
) -> anyhow::Result<Ending> {
    let store = switches::store()?;
    let site = options.page.as_deref().map(Site::ask).transpose()?;
    let within = confirm::within(options);
    let note = || confirm::note(site.as_ref(), with.report);
    let quiet = options.json || !io::stderr().is_terminal();
    let done = samehost_switch::apply(
        plan,
        wish,
        &Environment {
            program: with.program,
            store: &store,
            command: with.words,
            page: site.as_ref().map(|site| site as &dyn Page),
            confirm: within.map(|within| Confirm { within, note: &note }),
            is_interrupted: &|| with.interrupted.load(Ordering::Relaxed),
            progress: &|what| {
                if !quiet {
                    output::complain(what);
                }
            },
            scan: &|| look().ok(),
            // What is left to finish moves nobody.
            stamps: options.finish.is_none().then(|| stamps(options)),
        },
    )?;
    if let (Some(id), Some(_), Some(within)) = (&done.id, &done.confirm_until, within) {
        confirm::watch_over(with.program, id, within)?;
    }
    end(options, &done)
}

fn stamps(options: &SwitchOptions) -> Stamps {
    if options.exact { Stamps::SystemCalls } else { Stamps::Functions }
}

/// Scans this machine.
pub(super) fn look() -> anyhow::Result<Scan> {
    Ok(samehost_scan::collect(env!("CARGO_PKG_VERSION"))?)
}

fn request_of(options: &SwitchOptions, targets: &[String]) -> anyhow::Result<SwitchRequest> {
    let address = options.address.as_ref().map(|text| format!("tcp:{text}").parse::<Endpoint>()).transpose();
    Ok(SwitchRequest {
        address: address.map_err(|error| WrongUse(error.to_string()))?,
        targets: targets.to_vec(),
        to: match options.to {
            UnixOrTcp::Unix => Direction::Unix,
            UnixOrTcp::Tcp => Direction::Tcp,
        },
        socket: options.socket.clone(),
        close_tcp: options.close_tcp,
        user: options.user.clone(),
        server_user: options.server_user.clone(),
        reloads: options.reload.iter().map(|text| ReloadWords::parse(text)).collect(),
        keep_tcp: options.keep_tcp,
        observe: options.observe.unwrap_or(OBSERVE),
        has_page: options.page.is_some(),
    })
}

/// Command line for the journal, with secrets redacted.
fn words(options: &SwitchOptions, targets: &[String]) -> String {
    let targets = Redactor::default().words(targets);
    format!("samehost switch {} --to {}", targets.join(" "), options.to.name())
}

fn show(options: &SwitchOptions, report: &SwitchReport) -> anyhow::Result<()> {
    if options.json {
        return output::print_json(report);
    }
    output::show(|terminal, out| terminal.render_switch(report, out))
}

fn end(options: &SwitchOptions, report: &SwitchReport) -> anyhow::Result<Ending> {
    show(options, report)?;
    if let (Some(id), SwitchOutcome::Committed, Some(_)) = (&report.id, report.outcome, output::lost()) {
        output::complain(&format!(
            "the switch {id} is committed; to put it back: samehost switch --undo {id}"
        ));
    }
    Ok(match report.outcome {
        SwitchOutcome::Nothing | SwitchOutcome::Planned | SwitchOutcome::Committed => Ending::Done,
        SwitchOutcome::Left => Ending::Left,
        SwitchOutcome::Refused | SwitchOutcome::Declined => Ending::Finding,
        SwitchOutcome::RolledBack => Ending::RolledBack,
    })
}

// `samehost switch --all`: every switch that a scan finds worthwhile, one transaction each.

/// Default time for observing traffic.
const OBSERVE_ALL: Duration = Duration::from_secs(10);

pub(super) fn all(options: &SwitchOptions) -> anyhow::Result<Ending> {
    let interrupted = interrupt::flag();
    let observe = options.observe.unwrap_or(OBSERVE_ALL);
    let scan = scan::look(Some((observe, Timed::Not)), false, options.json, &interrupted)?;
    signals::done();
    if interrupt::is_requested() {
        return Ok(Ending::Interrupted);
    }
    let mut targets = BTreeSet::new();
    for advice in &scan.advice {
        let who = format!("{} → {}", advice.client, service(&scan, advice));
        match advice.possible {
            Possible::Now | Possible::AfterSetting if is_worth_it(advice) => {
                let found = samehost_switch::configurations(&scan, &advice.client_pids);
                if found.is_empty() {
                    output::complain(&format!(
                        "{who}: no configuration that samehost can edit was found; name it: samehost switch PATH"
                    ));
                }
                targets.extend(found);
            }
            Possible::Now | Possible::AfterSetting => {
                let why = advice.saving.as_ref().map_or_else(
                    || "no traffic was seen, so what a switch saves is not known".to_owned(),
                    saving_in_words,
                );
                output::complain(&format!("{who}, by the traffic of the last {observe:?}: {why}"));
            }
            Possible::Unknown | Possible::Cannot => {
                output::complain(&format!("{who}: cannot switch; samehost scan says why"));
            }
        }
    }
    if targets.is_empty() {
        output::complain("nothing found that is worth a switch");
        return Ok(Ending::Done);
    }
    // Whoever asks for everything has named the servers' files too.
    let mut options = options.clone();
    options.accept.push(ObstacleCode::OtherFiles);
    let mut worst = Ending::Done;
    for target in targets {
        signals::done();
        if interrupt::is_requested() {
            return Ok(Ending::Interrupted);
        }
        // It scans anew: the switch before has changed the machine, and a person may have taken an hour to answer.
        let ending = one(&options, &[path(&target)])?;
        if ending != Ending::Done {
            worst = ending;
        }
        if ending == Ending::Interrupted {
            break;
        }
    }
    Ok(worst)
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn service(scan: &Scan, advice: &Advice) -> String {
    scan.services.get(advice.service).map_or_else(|| "unknown".to_owned(), |service| service.name.clone())
}

/// Whether observed traffic would benefit. Without observed traffic a switch is not worth the risk.
fn is_worth_it(advice: &Advice) -> bool {
    advice.saving.is_some_and(|saving| saving.worth_it)
}
