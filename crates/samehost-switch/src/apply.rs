//! Applies a plan as a transaction: writes, checks, reloads, proves; then commits, or puts everything back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use samehost_edit::Role;
use samehost_model::scan::{Scan, Standing};
use samehost_model::switch::{SwitchObstacle, SwitchOutcome, SwitchReport};
use samehost_model::{Endpoint, ObstacleCode, Protocol, Redactor};
use samehost_scan::Stamps;
use samehost_system::clock;
use samehost_transaction::{
    FileChange, Intent, Reload, RolledBack, Stage, Store, Transaction, TransactionError,
};
use samehost_transport::{ConnectOptions, connect};

use crate::check::Verdict;
use crate::findings::{bar, redacted, shown};
use crate::later::keep;
use crate::old_place::still_in_use;
use crate::own_times::Before;
use crate::plan::Plan;
use crate::plan::hop::Hop;
use crate::plan::occupant::{listener, stranger};
use crate::plan::stages::PlannedStage;
use crate::preflight::{fewer_rights, obstacle, try_hop};
use crate::reload::{reload, reload_now};
use crate::request::SwitchRequest;
use crate::usage::{Seen, Usage};

/// How long is watched, without a page, for the application to connect by itself.
const MOMENT: Duration = Duration::from_millis(500);
/// How often a page is asked for until a connection of the application is seen.
const MOST_REQUESTS: u32 = 20;
/// Time limit for a reloaded server to answer at its new endpoint.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a transaction needs from outside.
pub struct Environment<'a> {
    /// This program, for logins as another user.
    pub program: &'a Path,
    /// Where transactions are kept.
    pub store: &'a Store,
    /// The user's command, without secrets.
    pub command: String,
    /// A page of the site, if the user named one.
    pub page: Option<&'a dyn Page>,
    /// How the switch is to be confirmed, if it is.
    pub confirm: Option<Confirm<'a>>,
    /// Whether the user wants to stop.
    pub is_interrupted: &'a dyn Fn() -> bool,
    /// Told what is being done.
    pub progress: &'a dyn Fn(&str),
    /// A fresh look at this machine.
    pub scan: &'a dyn Fn() -> Option<Scan>,
    /// How it is known when a request begins, for a look at how long requests take before the switch; without it there is none.
    pub stamps: Option<Stamps>,
}

/// A page that an application serves.
pub trait Page {
    /// Requests the page and remembers properties of the response; describes them.
    ///
    /// # Errors
    /// Why there is no answer.
    fn remember(&self) -> Result<String, String>;

    /// Requests the page again and compares the response with what was remembered; describes it.
    ///
    /// # Errors
    /// Why there is no answer, or how it differs.
    fn compare(&self) -> Result<String, String>;
}

/// A switch that is undone unless somebody confirms it.
#[derive(Clone, Copy)]
pub struct Confirm<'a> {
    /// How long it waits.
    pub within: Duration,
    /// State for whoever watches the switch.
    pub note: &'a dyn Fn() -> Vec<u8>,
}

/// Carries a plan out.
///
/// # Errors
/// When the transaction could not begin, with nothing touched, or could not put back what it had touched.
pub fn apply(
    plan: Plan,
    request: &SwitchRequest,
    environment: &Environment<'_>,
) -> Result<SwitchReport, TransactionError> {
    let redactor = plan.redactor();
    // Progress messages may quote servers, checks and reloads.
    let progress = |what: &str| (environment.progress)(&redactor.message(what));
    let environment =
        &Environment { progress: &progress, command: environment.command.clone(), ..*environment };
    let mut plan = plan;
    let before = look_before(&plan, environment);
    loop {
        let (report, in_use) = attempt(&plan, request, &before, environment)?;
        match in_use {
            // Put back because of the last stages alone: without them the rest is tried again.
            Some((at, reasons)) if at > 0 => plan = plan.hold_back(at, reasons),
            _ => return Ok(redacted(report, &redactor)),
        }
    }
}

/// How long the requests of what moves take now.
fn look_before(plan: &Plan, environment: &Environment<'_>) -> Before {
    let moves_clients = plan.hops.iter().any(|hop| hop.setting.role == Role::Connects);
    let Some(stamps) = environment.stamps.filter(|_| moves_clients) else { return Before::default() };
    let Some(scan) = (environment.scan)() else { return Before::default() };
    (environment.progress)("looking at how long requests take now");
    Before::look(&plan.hops, &scan, stamps, environment.is_interrupted)
}

/// The stage before which somebody still used the old place, and who.
type InUse = Option<(usize, Vec<SwitchObstacle>)>;

/// Proof that everything serves over the new endpoints.
struct Proved {
    /// In words.
    proofs: Vec<String>,
    /// What the login of each move showed.
    logins: Vec<String>,
    /// Why some checks were not run.
    notes: Vec<String>,
    /// What the application was seen to do, of each move.
    seen: Vec<Seen>,
    /// Until when the switch is to be confirmed.
    until: Option<String>,
}

/// Why everything is put back.
enum Aborted {
    Because(String),
    Obstacle(SwitchObstacle),
    /// Before this stage somebody still used the old place; with who.
    InUse(usize, Vec<SwitchObstacle>),
}

impl Aborted {
    fn reason(&self) -> String {
        match self {
            Aborted::Because(reason) => reason.clone(),
            Aborted::Obstacle(obstacle) => obstacle.found.clone(),
            Aborted::InUse(_, who) => who.first().map(|first| first.found.clone()).unwrap_or_default(),
        }
    }
}

impl From<String> for Aborted {
    fn from(reason: String) -> Self {
        Aborted::Because(reason)
    }
}

impl From<SwitchObstacle> for Aborted {
    fn from(obstacle: SwitchObstacle) -> Self {
        Aborted::Obstacle(obstacle)
    }
}

impl From<TransactionError> for Aborted {
    fn from(error: TransactionError) -> Self {
        Aborted::Because(error.to_string())
    }
}

fn attempt(
    plan: &Plan,
    request: &SwitchRequest,
    before: &Before,
    environment: &Environment<'_>,
) -> Result<(SwitchReport, InUse), TransactionError> {
    let mut report = plan.report(request);
    let mut transaction = Transaction::begin(environment.store, &intent(plan, &report, environment))?;
    report.id = Some(transaction.id().to_owned());
    let kept = before.keep(environment.store, transaction.id()).map_err(Aborted::from);
    match kept.and_then(|()| proceed(plan, request, &mut transaction, environment)) {
        Ok(proved) => {
            transaction.commit()?;
            report.confirm_until = proved.until;
            report.outcome = SwitchOutcome::Committed;
            report.proofs = proved.proofs;
            for (hop, login) in report.hops.iter_mut().zip(proved.logins) {
                hop.login = Some(login);
            }
            note_usage(&mut report, plan, &proved.seen);
            report.notes.extend(proved.notes);
            report.notes.extend(before.notes());
            report.still_tcp = (environment.scan)().map_or(Vec::new(), |scan| still_tcp(plan, &scan));
            Ok((report, None))
        }
        Err(aborted) => {
            let reason = aborted.reason();
            (environment.progress)(&format!("{reason}: everything is put back"));
            let back = transaction.roll_back(&mut |step: &Reload| reload(&step.command));
            report.outcome = SwitchOutcome::RolledBack;
            report.reason = Some(reason);
            report.left = left_undone(&back);
            let in_use = match aborted {
                Aborted::Because(_) => None,
                Aborted::Obstacle(obstacle) => {
                    report.obstacles.push(obstacle);
                    None
                }
                Aborted::InUse(at, who) => Some((at, who)),
            };
            Ok((report, in_use))
        }
    }
}

fn intent(plan: &Plan, report: &SwitchReport, environment: &Environment<'_>) -> Intent {
    let moves: Vec<String> =
        report.hops.iter().map(|hop| format!("{} {} → {}", hop.name, hop.from, hop.to)).collect();
    Intent {
        command: environment.command.clone(),
        summary: moves.join(", "),
        stages: plan.stages.iter().map(stage_to_write).collect(),
    }
}

/// A stage as the transaction takes it.
fn stage_to_write(stage: &PlannedStage) -> Stage {
    let mut to_write = Stage::default();
    for change in &stage.changes {
        to_write.changes.push(FileChange {
            path: change.path.clone(),
            before: change.before.clone(),
            after: change.after.clone(),
            like: change.like.clone(),
        });
    }
    for reload in &stage.reloads {
        to_write.reloads.push(Reload {
            what: Redactor::default().command(&reload.what),
            command: reload.command.words(),
        });
    }
    to_write
}

/// What putting back left undone, for people.
#[must_use]
pub fn left_undone(back: &RolledBack) -> Vec<String> {
    let mut lines = Vec::new();
    for left in &back.left {
        lines.push(format!("{} was left as it is: {}", shown(&left.path), left.reason));
    }
    for failed in &back.failures {
        lines.push(format!("{} could not be put back: {}", shown(&failed.path), failed.reason));
    }
    for (step, why) in &back.reload_failures {
        lines.push(format!("the files are as they were, but `{}` failed: {why}", step.what));
    }
    lines
}

/// Every stage, then the proof.
fn proceed(
    plan: &Plan,
    request: &SwitchRequest,
    transaction: &mut Transaction,
    environment: &Environment<'_>,
) -> Result<Proved, Aborted> {
    keep(plan, environment.store, transaction.id())?;
    let page_before = environment.page.map(Page::remember);
    let mut notes = Vec::new();
    for index in 0..plan.stages.len() {
        notes.extend(make(index, plan, request, transaction, environment)?);
    }
    meant_servers(&plan.hops, environment)?;
    let (logins, mut proofs) = log_in(&plan.hops, environment)?;
    let usage = Usage::of_moves(&plan.hops);
    if let (Some(page), Some(before)) = (environment.page, page_before) {
        proofs.push(usage.during(|| page_as_before(page, before))?);
        ask_again(&usage, page, environment);
    } else {
        usage.wait(MOMENT, environment.is_interrupted);
    }
    not_interrupted(environment)?;
    let until = environment.confirm.as_ref().map(|confirm| {
        let within = jiff::SignedDuration::try_from(confirm.within).unwrap_or(jiff::SignedDuration::MAX);
        let until = jiff::Timestamp::now().checked_add(within).unwrap_or(jiff::Timestamp::MAX);
        clock::utc(until)
    });
    if let Some(confirm) = &environment.confirm {
        environment.store.note(transaction.id(), "watch", &(confirm.note)())?;
    }
    transaction.verified_until(until.clone())?;
    Ok(Proved { proofs, logins, notes, seen: usage.seen(), until })
}

/// Asks for the page again while it shows nothing of a connection: a request takes milliseconds, and a look may miss it.
fn ask_again(usage: &Usage, page: &dyn Page, environment: &Environment<'_>) {
    for _ in 0..MOST_REQUESTS {
        if usage.is_clear() || (environment.is_interrupted)() {
            return;
        }
        // PHP goes on with the file as it was for a while.
        std::thread::sleep(usage.settles_in());
        // Whether it is as before was asked already.
        let _ = usage.during(|| page.compare());
    }
}

/// Adds to a report what the application was seen to do.
fn note_usage(report: &mut SwitchReport, plan: &Plan, seen: &[Seen]) {
    for ((shown, hop), seen) in report.hops.iter_mut().zip(&plan.hops).zip(seen) {
        // A listener has no client here whose doing could be seen.
        if hop.setting.role != Role::Connects {
            continue;
        }
        shown.standing = Some(seen.standing());
        shown.seen_new = seen.new.iter().cloned().collect();
        shown.seen_old = seen.old.iter().cloned().collect();
        if seen.old_ended > 0 && seen.old.is_empty() {
            report.notes.push(format!(
                "{} connections at {} ended after the change: they are not known to be this application's",
                seen.old_ended, hop.setting.endpoint
            ));
        }
    }
    let least = report.hops.iter().filter_map(|hop| hop.standing).min();
    report.standing = Some(least.unwrap_or(Standing::Tried));
}

/// Performs one stage: its files, their checks, the reloads, and the endpoints that must answer then. Returns why
/// checks were not run.
fn make(
    index: usize,
    plan: &Plan,
    request: &SwitchRequest,
    transaction: &mut Transaction,
    environment: &Environment<'_>,
) -> Result<Vec<String>, Aborted> {
    let stage = &plan.stages[index];
    not_interrupted(environment)?;
    if stage.leaves.iter().any(|leaving| leaving.moved && leaving.can_wait) {
        (environment.progress)("waiting until no client uses the old address");
        let reasons =
            still_in_use(stage, &plan.hops, request.observe, environment.scan, environment.is_interrupted);
        if !reasons.is_empty() {
            return Err(Aborted::InUse(index, reasons));
        }
        not_interrupted(environment)?;
    }
    (environment.progress)(stage.title);
    still_free(stage, &plan.hops, environment)?;
    transaction.write(index)?;
    let mut not_checked = Vec::new();
    for check in &stage.checks {
        match check.run(&plan.secrets) {
            Verdict::Sound => {}
            Verdict::NotChecked(why) => not_checked.push(why),
            Verdict::Wrong(why) => return Err(format!("the check failed: {why}").into()),
        }
    }
    not_interrupted(environment)?;
    transaction.reloading(index)?;
    for reload in &stage.reloads {
        (environment.progress)(&reload.what);
        reload_now(&reload.command, &files_after(stage))
            .map_err(|error| Redactor::new(&plan.secrets).message(&error))?;
    }
    for endpoint in &stage.awaits {
        answers(endpoint, environment)?;
    }
    if !stage.awaits.is_empty() {
        // Only now can the new endpoint be tried; no client has moved yet.
        try_new_servers(&plan.hops, environment)?;
    }
    Ok(not_checked)
}

/// Compares a page with what it was before; the proof, in words.
fn page_as_before(page: &dyn Page, before: Result<String, String>) -> Result<String, String> {
    match before {
        Ok(before) => match page.compare() {
            Ok(_) => Ok(format!("the page answers as before: {before}")),
            Err(error) => Err(format!("the page answered {before} before, and now: {error}")),
        },
        Err(before) => Ok(match page.remember() {
            Ok(after) => format!("the page, which did not answer before: {after}"),
            Err(_) => format!("the page did not answer before, and does not now: {before}"),
        }),
    }
}

fn not_interrupted(environment: &Environment<'_>) -> Result<(), String> {
    if (environment.is_interrupted)() { Err("interrupted".into()) } else { Ok(()) }
}

/// Waits until something accepts connections at an endpoint.
fn answers(endpoint: &Endpoint, environment: &Environment<'_>) -> Result<(), String> {
    let begun = Instant::now();
    let options = ConnectOptions { timeout: Some(Duration::from_secs(2)), ..ConnectOptions::default() };
    loop {
        match connect(endpoint, &options) {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(format!("after the reload nothing answers at {endpoint}: {error}"));
            }
            Err(_) => {
                not_interrupted(environment)?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The files of a stage that programs read after it.
fn files_after(stage: &PlannedStage) -> Vec<PathBuf> {
    let stay = stage.changes.iter().filter(|change| change.after.is_some());
    stay.map(|change| change.path.clone()).collect()
}

/// Asks the kernel again, right before the write, whether nobody else has what the servers are to take: minutes may have
/// passed since the plan, at a question that a person answered.
fn still_free(
    stage: &PlannedStage,
    hops: &[Hop],
    environment: &Environment<'_>,
) -> Result<(), SwitchObstacle> {
    if stage.takes.is_empty() {
        return Ok(());
    }
    let Some(scan) = (environment.scan)() else { return Ok(()) };
    for hop in hops.iter().filter(|hop| hop.server_line.is_some() && stage.takes.contains(&hop.to)) {
        if let Some(occupant) = listener(&scan, &hop.server, &hop.to) {
            return Err(bar(
                ObstacleCode::SocketPath,
                format!("{} is not free any more: {occupant}", hop.to),
                "Name a place that nobody uses: --socket /run/NAME/NAME.sock, or --address 127.0.0.1:PORT",
            ));
        }
    }
    Ok(())
}

/// Whether the server that is meant listens at the new place of each move, and nobody else.
fn meant_servers(hops: &[Hop], environment: &Environment<'_>) -> Result<(), SwitchObstacle> {
    let Some(scan) = (environment.scan)() else { return Ok(()) };
    for hop in hops {
        let Some(occupant) = stranger(&scan, &hop.server, &hop.to) else { continue };
        let meant = hop.server.name.as_deref().unwrap_or("the server of this configuration");
        return Err(bar(
            ObstacleCode::ServerIdentity,
            format!("{}: {occupant}, and not {meant}", hop.to),
            "Stop the one that does not belong there, or name another place: --socket /run/NAME/NAME.sock",
        ));
    }
    Ok(())
}

/// Logs in as the application at servers that did not listen at their new endpoint before.
fn try_new_servers(hops: &[Hop], environment: &Environment<'_>) -> Result<(), SwitchObstacle> {
    let new: Vec<Hop> = hops.iter().filter(|hop| hop.server_line.is_some()).cloned().collect();
    meant_servers(&new, environment)?;
    for hop in &new {
        let (_, views) = try_hop(hop, environment.program).map_err(|failed| obstacle(hop, &failed))?;
        // The others were asked before the switch.
        if let Some(fewer) = fewer_rights(hop, &views, environment.program) {
            return Err(fewer);
        }
    }
    Ok(())
}

/// Logs in as the application over all new endpoints. Returns what each login showed, and the proofs.
fn log_in(hops: &[Hop], environment: &Environment<'_>) -> Result<(Vec<String>, Vec<String>), SwitchObstacle> {
    let logged_in = hops.iter().map(|hop| {
        let (login, _) = try_hop(hop, environment.program).map_err(|failed| obstacle(hop, &failed))?;
        let verb = if hop.setting.protocol == Protocol::Plain { "connects" } else { "logs in" };
        let proof = format!("{} {verb} over {} {login}", hop.setting.name, hop.to);
        Ok((login, proof))
    });
    logged_in.collect()
}

/// Clients still connected over TCP to a service that the plan moved clients away from.
fn still_tcp(plan: &Plan, scan: &Scan) -> Vec<String> {
    let mut found = Vec::new();
    for hop in &plan.hops {
        let services = samehost_scan::services_at(scan, &hop.setting.endpoint);
        for connection in &scan.connections {
            if !connection.service.is_some_and(|at| services.contains(&at)) || !connection.kind.is_tcp() {
                continue;
            }
            let name = match scan.holder(connection.client) {
                Some(process) => format!("{} {}", process.name, process.pid),
                None => continue,
            };
            let text = format!("{name} → {}", hop.setting.endpoint);
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}
