//! `samehost switch`: from TCP to a Unix socket or back, each switch as one transaction: plan, pre-flight, diff, prompt,
//! apply.

mod checked;
mod confirm;
mod ending;
mod page;
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
    Decider, Direction, Environment, PASSED, Page, Plan, ReloadWords, SwitchRequest, finishing, plan,
};
use samehost_system::{interrupt, may_open_enough};
use samehost_transaction::{Entry, Store};
use samehost_transport::{ConnectError, ConnectOptions, connect};

use self::confirm::{agrees, may_ask};
use self::ending::worse;
use self::page::Site;
use crate::cli::{ApplyOptions, Consent, FinishOptions, MoveOptions, StoredVerb, SwitchOptions, UnixOrTcp};
use crate::commands::scan;
use crate::exit::Ending;
use crate::storage::switches;
use crate::wrong_use::WrongUse;
use crate::{output, progress, signals, storage};

pub use watch::watch_switch;

pub fn switch(options: &SwitchOptions) -> anyhow::Result<Ending> {
    match &options.stored {
        None => move_targets(&options.moving),
        Some(StoredVerb::List(options)) => stored::list(options),
        Some(StoredVerb::Check(options)) => checked::check(options),
        Some(StoredVerb::Undo(options)) => stored::undo(options),
        Some(StoredVerb::Confirm(options)) => confirm::confirm(options),
        Some(StoredVerb::Recover(options)) => stored::recover(options),
        Some(StoredVerb::Finish(options)) => finish(options),
        Some(StoredVerb::Prune(options)) => stored::prune(options),
    }
}

/// Whether an act only shows what it would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Looks,
    Acts,
}

impl Doing {
    fn of(is_dry_run: bool) -> Self {
        if is_dry_run { Doing::Looks } else { Doing::Acts }
    }
}

fn move_targets(options: &MoveOptions) -> anyhow::Result<Ending> {
    check(options)?;
    if !options.apply.consent.dry_run {
        samehost_transaction::files_may_be(0)?;
    }
    confirm::take_back_overdue(Doing::of(options.apply.consent.dry_run))?;
    signals::only_look();
    if options.all { all(options) } else { one(options, &options.targets) }
}

/// Refuses options that do nothing beside others. In a plan that has no use for them they are named ([`notes`]): silence lets people
/// believe that what they asked for was done.
fn check(options: &MoveOptions) -> Result<(), WrongUse> {
    if options.address.is_some() && options.to == UnixOrTcp::Unix {
        return refuse("--address is the TCP address for --to tcp; to a Unix socket it does nothing");
    }
    if options.socket.is_some() && options.to == UnixOrTcp::Tcp {
        return refuse("--socket is the socket to move to; with --to tcp it does nothing");
    }
    if options.close_tcp && options.to == UnixOrTcp::Tcp {
        return refuse(
            "--close-tcp is for a move to a Unix socket; with --to tcp it would close what is moved to",
        );
    }
    if options.keep_tcp && options.to == UnixOrTcp::Tcp {
        return refuse("--keep-tcp is for a move to a Unix socket; with --to tcp it does nothing");
    }
    Ok(())
}

fn unused_reloads(report: &SwitchReport, unused: &[&ReloadWords]) -> Vec<String> {
    let mut steps = report.steps.iter().chain(&report.later);
    if !unused.is_empty() && steps.all(|step| step.reloads.is_empty()) {
        return vec!["--reload is used for nothing: no program has to be told of this change".to_owned()];
    }
    let mut notes = Vec::new();
    for words in unused {
        notes.push(match words.whose.name() {
            Some(name) => format!(
                "--reload {name}=… is used for nothing: no program of that name has to be told of this change"
            ),
            None => "--reload is used for nothing: what has to be told of this change has another command"
                .to_owned(),
        });
    }
    notes
}

/// Notes on options of which a plan makes no use.
fn notes(options: &MoveOptions, report: &SwitchReport) -> Vec<String> {
    let mut notes = Vec::new();
    let hops = &report.hops;
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
    if options.keep_tcp && report.later.is_empty() {
        notes.push("--keep-tcp keeps nothing: no step of this would close a port".to_owned());
    }
    if options.apply.consent.dry_run && options.exact {
        notes.push("--exact is for a switch that is made: a dry run looks at no requests".to_owned());
    }
    notes
}

/// The same of the options that are those of every plan; `unused` are commands of `--reload` that it does not run.
fn notes_on_applying(options: &ApplyOptions, report: &SwitchReport, unused: &[&ReloadWords]) -> Vec<String> {
    let mut notes = unused_reloads(report, unused);
    let is_for_yes = |code: &ObstacleCode| !PASSED.contains(code);
    if options.accept.iter().any(is_for_yes) && !options.consent.yes {
        notes.push("--accept is used for nothing without --yes: you are asked".to_owned());
    }
    if options.consent.dry_run && options.confirm_within.is_some() {
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
/// connections. Where somebody is seen, these stages are kept with the switch for `switch finish`, or the
/// switch is refused with who uses the address and by which line (docs/decisions/0069).
const OBSERVE: Duration = Duration::from_secs(5);

/// The same in the plan, of an address that is observed again before it goes, after its clients moved. Whoever is connected is seen
/// at once, and nobody waits five seconds for a dry run, or ten for a switch, whose plan takes a third of one.
const LOOK_FIRST: Duration = Duration::from_secs(1);

fn one(options: &MoveOptions, targets: &[String]) -> anyhow::Result<Ending> {
    let entries = switches::entries()?;
    stored::refuse_beside_others(&entries, targets)?;
    let waiting = progress::waiting("what is here, and who talks to what");
    let page = options.apply.page.as_deref().map(Site::ask);
    let request = SwitchRequest {
        has_page: page.as_ref().is_some_and(|page| page.as_ref().is_ok_and(Site::works)),
        left_open: left_open(&entries),
        ..request_of(options, targets)?
    };
    let scan = look()?;
    waiting.set_message("what a switch would change, and what is in the way");
    let mut plan = plan(&request, &scan).map_err(|error| WrongUse(error.to_string()))?;
    let interrupted = interrupt::flag();
    waiting.set_message("who else uses the old address");
    // A barred plan too: all that is in the way is told at once.
    plan = plan.look_who_stays(&request, &scan, &|| look().ok(), &|| interrupted.load(Ordering::Relaxed));
    waiting.finish_and_clear();
    let wanted = Wanted {
        request: &request,
        words: words(options, targets),
        moving: Some(options),
        interrupted: &interrupted,
        page,
    };
    make(&options.apply, plan, wanted)
}

fn finish(options: &FinishOptions) -> anyhow::Result<Ending> {
    let put_back = confirm::take_back_overdue(Doing::of(options.apply.consent.dry_run))?;
    signals::only_look();
    let has_later = |store: &Store, entry: &Entry| !samehost_switch::left_open(store, entry).is_empty();
    let Some(id) = &confirm::named(options.id.as_deref(), has_later, &put_back)? else {
        let nothing = "Nothing to finish: no switch of this user left an address open";
        return confirm::nothing_to_do(nothing, options.apply.consent.json);
    };
    let page = options.apply.page.as_deref().map(Site::ask);
    let request = SwitchRequest {
        reloads: reloads(&options.apply),
        observe: options.apply.observe.unwrap_or(OBSERVE),
        has_page: page.as_ref().is_some_and(|page| page.as_ref().is_ok_and(Site::works)),
        ..SwitchRequest::new(vec![id.clone()], Direction::Unix)
    };
    let scan = look()?;
    let interrupted = interrupt::flag();
    let is_interrupted: &dyn Fn() -> bool = &|| interrupted.load(Ordering::Relaxed);
    let plan = finishing(&switches::store_of(id)?, id, &request, &scan, &|| look().ok(), is_interrupted)
        .map_err(|error| WrongUse(error.to_string()))?;
    let words = format!("samehost switch finish {id}");
    make(
        &options.apply,
        plan,
        Wanted { request: &request, page, words, moving: None, interrupted: &interrupted },
    )
}

/// What a plan was made for.
struct Wanted<'a> {
    request: &'a SwitchRequest,
    /// Asked for once: what is wrong with it is said when everything else is in order.
    page: Option<anyhow::Result<Site>>,
    /// The command line for the journal.
    words: String,
    /// `None` for what a switch left for later, which moves nobody.
    moving: Option<&'a MoveOptions>,
    interrupted: &'a AtomicBool,
}

/// Runs the pre-flight checks, shows the plan, prompts, and applies it.
fn make(options: &ApplyOptions, mut plan: Plan, mut wanted: Wanted<'_>) -> anyhow::Result<Ending> {
    let consent = options.consent;
    let request = wanted.request;
    let program = std::env::current_exe().context("the path of this program")?;
    // With --all one command may be for another of the switches.
    let is_of_all = wanted.moving.is_some_and(|moving| moving.all);
    if let (Some(misnamed), false) = (plan.misnamed(&request.reloads), is_of_all) {
        return Err(WrongUse(misnamed).into());
    }
    plan = plan.passing(&options.accept);
    if plan.may_try() && !plan.is_empty() {
        let waiting = progress::waiting("whether the application is let in at the new place");
        plan = plan.try_logins(&program)?.passing(&options.accept);
        waiting.finish_and_clear();
    }
    if interrupt::is_requested() {
        return Ok(Ending::Interrupted);
    }
    // With --dry-run too: what it shows is what is then done, asked or refused.
    let decider = if consent.yes { Decider::Nobody } else { Decider::Person };
    plan = plan.decided_by(decider, &options.accept);
    let report = plan.report(request);
    if report.outcome != SwitchOutcome::Refused {
        let mut notes_on = wanted.moving.map(|moving| notes(moving, &report)).unwrap_or_default();
        notes_on.extend(notes_on_applying(options, &report, &plan.unused(&request.reloads)));
        plan.note(notes_on);
    }
    let report = plan.report(request);
    if report.outcome != SwitchOutcome::Planned {
        return end(consent, &report);
    }
    plan.may_begin(&switches::state()?)?;
    let site = wanted.page.take().transpose()?;
    if consent.dry_run {
        let ending = end(consent, &report)?;
        if !consent.json {
            writeln!(
                output::Stdout,
                "\nNothing was touched. Without --dry-run it {}.",
                if consent.yes { "does this" } else { "asks before it does this" }
            )?;
        }
        return Ok(ending);
    }
    if !consent.yes {
        may_ask(consent)?;
        show(consent, &report)?;
        if !agrees()? {
            output::complain("nothing was touched");
            return Ok(Ending::Finding);
        }
    }
    if interrupt::is_requested() {
        return Ok(Ending::Interrupted);
    }
    signals::begin()?;
    apply(options, plan, &wanted, site.as_ref(), (&program, &report))
}

fn apply(
    options: &ApplyOptions,
    plan: Plan,
    wanted: &Wanted<'_>,
    site: Option<&Site>,
    (program, report): (&Path, &SwitchReport),
) -> anyhow::Result<Ending> {
    let store = switches::store()?;
    let within = confirm::within(options);
    let note = || confirm::note(site, report);
    let done = samehost_switch::apply(
        plan,
        wanted.request,
        &Environment {
            program,
            store: &store,
            command: wanted.words.clone(),
            page: site.map(|site| site as &dyn Page),
            confirm_within: within,
            note: &note,
            is_interrupted: &|| wanted.interrupted.load(Ordering::Relaxed),
            progress: &|what| tell_progress(options.consent.json, what),
            scan: &|| look().ok(),
            stamps: wanted.moving.map(stamps),
        },
    )?;
    let mut is_watched = Ok(());
    if let (SwitchOutcome::Committed, Some(id), Some(_), Some(within)) =
        (done.outcome, &done.id, &done.confirm_until, within)
    {
        is_watched = confirm::watch_over(program, id, within);
    }
    let ending = end(options.consent, &done)?;
    is_watched?;
    Ok(ending)
}

/// Says on a terminal what is about to be done.
fn tell_progress(quiet: bool, what: &str) {
    if !quiet && io::stderr().is_terminal() {
        output::complain(what);
    }
}

fn stamps(options: &MoveOptions) -> Stamps {
    if options.exact { Stamps::SystemCalls } else { Stamps::Functions }
}

/// Longest wait for somebody to answer at a new place.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(5);

/// Why connecting to an endpoint fails. That this process may open nothing more says nothing of who is there.
fn unanswered(endpoint: &Endpoint) -> Option<String> {
    let options = ConnectOptions { timeout: Some(MAX_CONNECT_TIME), ..ConnectOptions::default() };
    match connect(endpoint, &options) {
        Ok(_) | Err(ConnectError::TooManyFiles(..)) => None,
        Err(error) => Some(format!("nobody answers at {endpoint}: {error}")),
    }
}

fn look() -> anyhow::Result<Scan> {
    may_open_enough()?;
    Ok(samehost_scan::collect_seeing(env!("CARGO_PKG_VERSION"))?)
}

fn request_of(options: &MoveOptions, targets: &[String]) -> anyhow::Result<SwitchRequest> {
    let address = options.address.as_ref().map(|text| format!("tcp:{text}").parse::<Endpoint>()).transpose();
    let to = match options.to {
        UnixOrTcp::Unix => Direction::Unix,
        UnixOrTcp::Tcp => Direction::Tcp,
    };
    Ok(SwitchRequest {
        address: address.map_err(|error| WrongUse(error.to_string()))?,
        socket: options.socket.clone(),
        close_tcp: options.close_tcp,
        user: options.user.clone(),
        server_user: options.server_user.clone(),
        reloads: reloads(&options.apply),
        keep_tcp: options.keep_tcp,
        only: options.only.clone(),
        observe: options.apply.observe.unwrap_or(OBSERVE),
        look_first: options.apply.observe.unwrap_or(LOOK_FIRST),
        ..SwitchRequest::new(targets.to_vec(), to)
    })
}

/// What the switches before left open, with their ids.
fn left_open(entries: &[(Store, Entry)]) -> Vec<(Endpoint, String)> {
    let mut open = Vec::new();
    for (store, entry) in entries {
        let places = samehost_switch::left_open(store, entry);
        open.extend(places.into_iter().map(|place| (place, entry.id.clone())));
    }
    open
}

fn reloads(options: &ApplyOptions) -> Vec<ReloadWords> {
    options.reload.iter().map(|text| ReloadWords::parse(text)).collect()
}

/// Command line for the journal, with secrets redacted.
fn words(options: &MoveOptions, targets: &[String]) -> String {
    let targets = Redactor::default().words(targets);
    format!("samehost switch {} --to {}", targets.join(" "), options.to.name())
}

fn show(consent: Consent, report: &SwitchReport) -> anyhow::Result<()> {
    if consent.json {
        return output::print_json(report);
    }
    output::show(|terminal, out| terminal.render_switch(report, out))
}

fn end(consent: Consent, report: &SwitchReport) -> anyhow::Result<Ending> {
    show(consent, report)?;
    if let (Some(id), SwitchOutcome::Committed, Some(_)) = (&report.id, report.outcome, output::lost()) {
        output::complain(&format!("the switch {id} is committed; to put it back: samehost switch undo {id}"));
    }
    Ok(match report.outcome {
        // In force, and contradicted by what its application does: a script reads the status alone.
        SwitchOutcome::Committed if report.is_contradicted() => Ending::Finding,
        SwitchOutcome::Nothing | SwitchOutcome::Planned | SwitchOutcome::Committed => Ending::Done,
        SwitchOutcome::Left => Ending::Left,
        SwitchOutcome::Refused | SwitchOutcome::Declined => Ending::Finding,
        SwitchOutcome::RolledBack => Ending::RolledBack,
        SwitchOutcome::Unfinished => Ending::Unfinished,
    })
}

/// Default time for observing traffic with `--all`.
const OBSERVE_ALL: Duration = Duration::from_secs(10);

/// Whether a scan will know what is worth a switch.
fn assert_priced() -> anyhow::Result<()> {
    if storage::stored_prices().is_some() {
        return Ok(());
    }
    anyhow::bail!(
        "--all moves what is worth a switch, and what a request costs here is not known: `samehost checkup`, as this user, measures it"
    );
}

/// `samehost switch --all`: every switch that a scan finds worthwhile, one transaction each.
fn all(options: &MoveOptions) -> anyhow::Result<Ending> {
    let interrupted = interrupt::flag();
    assert_priced()?;
    let observe = options.apply.observe.unwrap_or(OBSERVE_ALL);
    let scan = scan::look(Some((observe, Timed::Not)), &interrupted)?;
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
            // Nobody's application.
            Possible::Tool => {}
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
    options.apply.accept.push(ObstacleCode::OtherFiles);
    let mut worst = Ending::Done;
    for target in targets {
        signals::done();
        if interrupt::is_requested() {
            return Ok(Ending::Interrupted);
        }
        // It scans anew: the switch before has changed the machine, and a person may have taken an hour to answer.
        let ending = one(&options, &[path(&target)])?;
        worst = worse(worst, ending);
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
