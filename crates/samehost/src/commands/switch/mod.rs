//! `samehost switch`: from TCP to a Unix socket or back, as a transaction.

mod confirm;
mod kept;
mod one;
mod stored;
mod watch;

use samehost_model::switch::{SwitchOutcome, SwitchReport};
use samehost_switch::ReloadWords;
use samehost_transaction::State;

use crate::cli::{SwitchOptions, UnixOrTcp};
use crate::exit::Ending;
use crate::wrong_use::WrongUse;

pub use watch::watch_switch;

pub fn switch(options: &SwitchOptions) -> anyhow::Result<Ending> {
    check(options)?;
    // Overdue switches are rolled back first.
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
        return kept::check(options);
    }
    if options.prune {
        return kept::prune(options);
    }
    if let Some(id) = &options.forget {
        return kept::forget(id, options);
    }
    if options.recover {
        return stored::recover(options);
    }
    if let Some(id) = &options.undo {
        return stored::undo(&stored::named(id, &[State::Committed, State::Awaiting])?, options);
    }
    if let Some(id) = &options.finish {
        return one::finish(options, id);
    }
    if options.all {
        return one::all(options);
    }
    one::one(options, &options.targets)
}

// Options that do nothing: with an operation on a stored switch they are wrong use; in a plan that has no use for them they
// are told. Silence lets people believe that what they asked for was done.

/// Refuses options that have no meaning beside others.
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

/// The operation on stored switches that was asked for.
fn operation(options: &SwitchOptions) -> Option<&'static str> {
    [
        (options.undo.is_some(), "--undo"),
        (options.finish.is_some(), "--finish"),
        (options.confirm.is_some(), "--confirm"),
        (options.forget.is_some(), "--forget"),
        (options.list, "--list"),
        (options.recover, "--recover"),
        (options.check, "--check"),
        (options.prune, "--prune"),
    ]
    .into_iter()
    .find_map(|(is_asked, name)| is_asked.then_some(name))
}

/// The options of a switch that were given.
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
    all.into_iter().filter_map(|(is_given, name)| is_given.then_some(name)).collect()
}

/// Whether an operation makes use of an option.
fn takes(operation: &str, name: &str) -> bool {
    match operation {
        "--finish" => ["--reload", "--page", "--confirm-within", "--accept", "--observe"].contains(&name),
        "--check" => name == "--observe",
        _ => false,
    }
}

/// Notes on commands of `--reload` that a plan does not run.
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
