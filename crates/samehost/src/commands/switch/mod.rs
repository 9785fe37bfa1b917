//! `samehost switch`: from TCP to a Unix socket or back, each switch as one transaction: plan, pre-flight, diff, prompt,
//! apply.

mod confirm;
mod stored;
mod watch;

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
use samehost_transaction::State;

use self::confirm::{Site, agrees, may_ask};
use crate::cli::{SwitchOptions, UnixOrTcp};
use crate::commands::scan;
use crate::exit::Ending;
use crate::storage::switches;
use crate::wrong_use::WrongUse;
use crate::{output, signals};

pub use watch::watch_switch;

pub fn switch(options: &SwitchOptions) -> anyhow::Result<Ending> {
    check(options)?;
    if !options.dry_run {
        confirm::take_back_overdue()?;
    }
    if let Some(id) = &options.confirm {
        return confirm::confirm(&stored::named(id, &[State::Awaiting])?);
    }
    if options.list {
        return stored::list(options.json);
    }
    if options.check {
        return stored::check(options);
    }
    if options.prune {
        return stored::prune(options);
    }
    if let Some(id) = &options.forget {
        return stored::forget(id, options);
    }
    if options.recover {
        return stored::recover(options);
    }
    if let Some(id) = &options.undo {
        return stored::undo(&stored::named(id, &[State::Committed, State::Awaiting])?, options);
    }
    if let Some(id) = &options.finish {
        return finish(options, id);
    }
    if options.all {
        return all(options);
    }
    one(options, &options.targets)
}

/// Refuses options that do nothing beside others. In a plan that has no use for them they are named ([`notes`]): silence lets people
/// believe that what they asked for was done.
fn check(options: &SwitchOptions) -> Result<(), WrongUse> {
    if options.address.is_some() && options.to == UnixOrTcp::Unix {
        return refuse(
            "--address is the TCP address for --to tcp; to a Unix socket it does nothing".to_owned(),
        );
    }
    if options.socket.is_some() && options.to == UnixOrTcp::Tcp {
        return refuse("--socket is the socket to move to; with --to tcp it does nothing");
    }
    if options.close_tcp && options.to == UnixOrTcp::Tcp {
        return refuse(
            "--close-tcp is for a move to a Unix socket; with --to tcp it would close what is moved to"
                .to_owned(),
        );
    }
    if options.keep_tcp && options.to == UnixOrTcp::Tcp {
        return refuse("--keep-tcp is for a move to a Unix socket; with --to tcp it does nothing");
    }
    let Some(operation) = operation(options) else { return Ok(()) };
    match given(options).into_iter().find(|name| !takes(operation, name)) {
        Some(name) => refuse(format!("{name} does nothing with {operation}: leave it away")),
        None => Ok(()),
    }
}

/// The operation on stored switches, by its option; `None` for a switch that is to be made.
fn operation(options: &SwitchOptions) -> Option<&'static str> {
    let all = [
        (options.undo.is_some(), "--undo"),
        (options.finish.is_some(), "--finish"),
        (options.confirm.is_some(), "--confirm"),
        (options.forget.is_some(), "--forget"),
        (options.list, "--list"),
        (options.recover, "--recover"),
        (options.check, "--check"),
        (options.prune, "--prune"),
    ];
    all.iter().find(|(is_asked, _)| *is_asked).map(|(_, name)| *name)
}

fn given(options: &SwitchOptions) -> Vec<&'static str> {
    let all = [
        (options.to == UnixOrTcp::Tcp, "--to"),
        (options.socket.is_some(), "--socket"),
        (options.address.is_some(), "--address"),
        (options.close_tcp, "--close-tcp"),
        (options.keep_tcp, "--keep-tcp"),
        (options.user.is_some(), "--user"),
        (options.server_user.is_some(), "--server-user"),
        (!options.reload.is_empty(), "--reload"),
        (options.page.is_some(), "--page"),
        (options.confirm_within.is_some(), "--confirm-within"),
        (!options.accept.is_empty(), "--accept"),
        (options.observe.is_some(), "--observe"),
        (options.exact, "--exact"),
    ];
    all.iter().filter(|(is_given, _)| *is_given).map(|(_, name)| *name).collect()
}

fn takes(operation: &str, name: &str) -> bool {
    match operation {
        "--finish" => ["--reload", "--page", "--confirm-within", "--accept", "--observe"].contains(&name),
        "--check" => name == "--observe",
        _ => false,
    }
}

fn unused_reloads(report: &SwitchReport, unused: &[&ReloadWords]) -> Vec<String> {
    let mut steps = report.steps.iter().chain(&report.later);
    if !unused.is_empty() && steps.all(|step| step.reloads.is_empty()) {
        return vec!["--reload is used for nothing: no program has to be told of this change".to_owned()];
    }
    let mut notes = Vec::new();
    for words in unused {
        notes.push(match words.kind {
            Some(kind) => format!(
                "--reload {}=… is used for nothing: no program of that name has to be told of this change",
                kind.name()
            ),
            None => "--reload is used for nothing: what has to be told of this change has another command"
                .to_owned(),
        });
    }
    notes
}

/// Notes on options of which a plan makes no use; `unused` are commands of `--reload` that it does not run.
fn notes(options: &SwitchOptions, report: &SwitchReport, unused: &[&ReloadWords]) -> Vec<String> {
    let mut notes = Vec::new();
    let hops = &report.hops;
    if report.outcome == SwitchOutcome::Refused {
        return notes;
    }
    if let Some(socket) = &options.socket {
        let endpoint = format!("unix:{}", socket.display());
        if !hops.iter().any(|hop| hop.to == endpoint) {
            let goes: Vec<&str> = hops.iter().map(|hop| hop.to.as_str()).collect();
            let goes = if goes.is_empty() {
                "nothing moves".to_owned()
            } else {
                format!("what moves goes to {}", goes.join(", "))
            };
            notes.push(format!("--socket {} is used for nothing: {goes}", socket.display()));
        }
    }
    if let Some(address) = &options.address
        && !hops.iter().any(|hop| hop.to == format!("tcp:{address}"))
    {
        notes.push(format!(
            "--address {address} is used for nothing: the server has its port already, or nothing moves"
        ));
    }
    if options.user.is_some() && hops.iter().all(|hop| hop.clients.is_empty()) {
        notes.push("--user is used for nothing: no connection of an application moves".to_owned());
    }
    notes.extend(unused_reloads(report, unused));
    if options.keep_tcp && report.later.is_empty() {
        notes.push("--keep-tcp keeps nothing: no step of this would close a port".to_owned());
    }
    if !options.accept.is_empty() && !options.yes {
        notes.push("--accept is used for nothing without --yes: you are asked".to_owned());
    }
    if options.dry_run && options.page.is_some() {
        notes.push("--page is not asked for by a dry run".to_owned());
    }
    if options.dry_run && options.exact {
        notes.push("--exact is for a switch that is made: a dry run looks at no requests".to_owned());
    }
    if options.dry_run && options.confirm_within.is_some() {
        notes.push("--confirm-within is for a switch that is made, and not for a dry run".to_owned());
    }
    notes
}

fn refuse<T>(text: impl Into<String>) -> Result<T, WrongUse> {
    Err(WrongUse(text.into()))
}

/// Default time for observing who else uses an address that would be closed.
/// The last stages used to take a port away from whoever else used it: another virtual host, or an
/// application that nobody had restarted. One look at a moment was rejected, because it misses short
/// connections. Where somebody is seen, these stages are kept with the switch for `--finish`, or the
/// switch is refused with who uses the address and by which line (docs/decisions/0069).
const OBSERVE: Duration = Duration::from_secs(5);

fn one(options: &SwitchOptions, targets: &[String]) -> anyhow::Result<Ending> {
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

fn finish(options: &SwitchOptions, id: &str) -> anyhow::Result<Ending> {
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
    request: &SwitchRequest,
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
    let notes = notes(options, &plan.report(request), &plan.unused(&request.reloads));
    plan.note(notes);
    let report = plan.report(request);
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
    apply(options, plan, request, Applied { program: &program, words, report: &report, interrupted })
}

struct Applied<'a> {
    program: &'a Path,
    words: String,
    report: &'a SwitchReport,
    interrupted: &'a AtomicBool,
}

fn apply(
    options: &SwitchOptions,
    plan: Plan,
    request: &SwitchRequest,
    with: Applied<'_>,
) -> anyhow::Result<Ending> {
    let store = switches::store()?;
    let site = options.page.as_deref().map(Site::ask).transpose()?;
    let within = confirm::within(options);
    let note = || confirm::note(site.as_ref(), with.report);
    let quiet = options.json || !io::stderr().is_terminal();
    let done = samehost_switch::apply(
        plan,
        request,
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

fn look() -> anyhow::Result<Scan> {
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

/// Default time for observing traffic with `--all`.
const OBSERVE_ALL: Duration = Duration::from_secs(10);

/// `samehost switch --all`: every switch that a scan finds worthwhile, one transaction each.
fn all(options: &SwitchOptions) -> anyhow::Result<Ending> {
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
                let why = match &advice.saving {
                    Some(saving) => saving_in_words(saving),
                    None => "no traffic was seen, so what a switch saves is not known".to_owned(),
                };
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
    match scan.services.get(advice.service) {
        Some(service) => service.name.clone(),
        None => "unknown".to_owned(),
    }
}

/// Whether observed traffic would benefit. Without observed traffic a switch is not worth the risk.
fn is_worth_it(advice: &Advice) -> bool {
    advice.saving.is_some_and(|saving| saving.worth_it)
}
