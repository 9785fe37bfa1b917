//! Applies a plan as a transaction: writes, checks, reloads, proves; then commits, or puts everything back.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use samehost_edit::Role;
use samehost_model::scan::{ApplicationSeen, Login, LoginOutcome, Scan, Standing};
use samehost_model::switch::{PageTimesCompared, SwitchObstacle, SwitchOutcome, SwitchReport};
use samehost_model::{Endpoint, ObstacleCode, Redactor};
use samehost_system::clock;
use samehost_transaction::{
    Intent, Reload, ReloadError, RolledBack, Settled, Stage, State, Transaction, TransactionError, may_begin,
    settled,
};
use samehost_transport::{ConnectError, ConnectOptions, connect};

use crate::check::Verdict;
use crate::findings::{bar, shown};
use crate::old_place::{left_places, still_in_use, still_tcp};
use crate::plan::Plan;
use crate::plan::hop::Hop;
use crate::plan::login::{LoggedIn, ask_each, try_hop};
use crate::plan::obstacles::login::{fewer_rights, refused};
use crate::plan::occupant::{listener, stranger, without_its_name};
use crate::plan::stages::PlannedStage;
use crate::reload::carry_out::{reload, reload_now};
use crate::report::redacted;
use crate::request::{Environment, Page, PageError, SwitchRequest};
use crate::stored::{Before, keep, keep_sockets};
use crate::usage::{Seen, Usage};
use crate::way_back::not_back;

/// How long is watched, without a page, for the application to connect by itself.
const MOMENT: Duration = Duration::from_millis(500);
/// Time limit for a reloaded server to answer at its new endpoint.
const PATIENCE: Duration = Duration::from_secs(20);

/// Carries a plan out, and returns its report with the outcome. Where somebody still used an old place, everything is put
/// back, and the plan is tried again without the stages that would have closed it (docs/decisions/0069).
///
/// # Errors
/// When the transaction could not begin, with nothing touched.
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
    let before = Before::look(&plan.hops, environment);
    if let Some(page) = environment.page {
        progress("timing the page as it is");
        page.time_before();
    }
    loop {
        let (report, in_use) = attempt(&plan, request, &before, environment)?;
        match in_use {
            Some(InUse { stage, who }) if stage > 0 && report.outcome == SwitchOutcome::RolledBack => {
                plan = plan.hold_back(stage, who);
            }
            _ => return Ok(redacted(report, &redactor)),
        }
    }
}

/// Somebody still used the old place before this stage.
#[derive(Debug)]
struct InUse {
    stage: usize,
    who: Vec<SwitchObstacle>,
}

/// Proof that everything serves over the new endpoints.
struct Proved {
    proofs: Vec<String>,
    /// The login of each move.
    logins: Vec<Proof>,
    /// Why some checks were not run.
    notes: Vec<String>,
    /// What the application was seen to do, of each move.
    seen: Vec<Seen>,
    /// Until when the switch is to be confirmed.
    until: Option<String>,
    /// Then the page that was named keeps it, where it stays as it was.
    has_page: bool,
    page_times: Option<PageTimesCompared>,
}

/// Why everything is put back. Its text is the reason in the report.
#[derive(Debug, thiserror::Error)]
enum Aborted {
    #[error("interrupted")]
    Interrupted,
    #[error("the check failed: {0}")]
    Check(String),
    #[error(transparent)]
    Reload(ReloadError),
    #[error("after the reload nothing answers at {endpoint}: {source}")]
    Silent { endpoint: Endpoint, source: Box<ConnectError> },
    #[error("the page answered {before} before, and now: {now}")]
    Page { before: String, now: PageError },
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error("{}", .0.found)]
    Obstacle(SwitchObstacle),
    #[error("{}", .0.who.first().map_or("", |first| first.found.as_str()))]
    InUse(InUse),
}

impl From<SwitchObstacle> for Aborted {
    fn from(obstacle: SwitchObstacle) -> Self {
        Aborted::Obstacle(obstacle)
    }
}

fn attempt(
    plan: &Plan,
    request: &SwitchRequest,
    before: &Before,
    environment: &Environment<'_>,
) -> Result<(SwitchReport, Option<InUse>), TransactionError> {
    let mut report = plan.report(request);
    let mut transaction = Transaction::begin(environment.store, &intent(plan, &report, environment))?;
    let id = transaction.id().to_owned();
    report.id = Some(id.clone());
    let aborted = match proceed(plan, request, before, &mut transaction, environment) {
        Ok(proved) => {
            let failed = transaction.commit().err();
            add_proofs(&mut report, plan, proved);
            say_how_it_stands(
                &mut report,
                &settled(environment.store, &id),
                failed.map(|error| error.to_string()),
            );
            report.notes.extend(before.notes());
            if let Some(scan) = (environment.scan)() {
                report.still_tcp = still_tcp(&plan.hops, &scan);
            }
            (report.closed, report.still_open) = left_places(&plan.stages, environment);
            return Ok((report, None));
        }
        // Whatever was under way when the signal came failed by it: a login, a check, a wait for a server, a page.
        Err(aborted) if (environment.is_interrupted)() && !matches!(aborted, Aborted::Transaction(_)) => {
            Aborted::Interrupted
        }
        Err(aborted) => aborted,
    };
    let reason = aborted.to_string();
    (environment.progress)(&format!("{reason}: everything is put back"));
    let back = transaction.roll_back(&mut |step: &Reload| reload(&step.command));
    report.left = left_undone(&back);
    let now = settled(environment.store, &id);
    if now.as_ref().is_ok_and(|now| now.state() == Some(State::RolledBack)) {
        report.left.extend(not_back(environment.store, &id));
        // They are about what would hold after the change ("restart the application, so that it takes it").
        report.notes.clear();
    }
    say_how_it_stands(&mut report, &now, Some(reason));
    match aborted {
        Aborted::InUse(in_use) => return Ok((report, Some(in_use))),
        Aborted::Obstacle(obstacle) => report.obstacles.push(obstacle),
        _ => {}
    }
    Ok((report, None))
}

/// Gives a report its outcome, by what the store and the disk say after everything was tried, and the reason with it: what was
/// tried may have failed at any point. Nothing else makes an outcome of a switch that was begun.
fn say_how_it_stands(
    report: &mut SwitchReport,
    now: &Result<Settled, TransactionError>,
    tried: Option<String>,
) {
    let why = tried.unwrap_or_default();
    let (outcome, reason) = match now {
        Err(error) => {
            (SwitchOutcome::Unfinished, Some(format!("{why}. How it stands is not known: {error}")))
        }
        Ok(now) => match now.state() {
            Some(State::Committed | State::Awaiting) => (SwitchOutcome::Committed, None),
            Some(State::RolledBack) => (SwitchOutcome::RolledBack, Some(why)),
            _ if now.is_in_force() => (
                SwitchOutcome::Unfinished,
                Some(format!(
                    "The switch {} is in force, and its end is not in the journal: {why}",
                    now.id()
                )),
            ),
            _ => (SwitchOutcome::Unfinished, Some(format!("{why}. {}", files_in_words(now)))),
        },
    };
    (report.outcome, report.reason) = (outcome, reason);
}

/// How many files of a switch are back.
#[must_use]
pub fn files_in_words(now: &Settled) -> String {
    let back = now.files().iter().filter(|file| file.is_back()).count();
    format!("{back} of {} files have the text of before the switch", now.files().len())
}

fn intent(plan: &Plan, report: &SwitchReport, environment: &Environment<'_>) -> Intent {
    let mut moves = Vec::new();
    for hop in &report.hops {
        // A web server's line has its first place in its name.
        let names: Vec<&str> = [&hop.name].into_iter().chain(&hop.also).map(String::as_str).collect();
        moves.push(format!("{} {} → {}", names.join(", "), hop.from, hop.to));
    }
    Intent {
        command: environment.command.clone(),
        summary: moves.join(", "),
        stages: plan.stages.iter().map(stage_to_write).collect(),
    }
}

impl Plan {
    /// Whether its files can be written, with a store in this state directory, for a dry run and before a person is asked.
    ///
    /// # Errors
    /// The one with which [`apply`] would not begin.
    pub fn may_begin(&self, state: &Path) -> Result<(), TransactionError> {
        may_begin(state, &self.stages.iter().map(stage_to_write).collect::<Vec<_>>())
    }
}

/// A stage as the transaction takes it.
fn stage_to_write(stage: &PlannedStage) -> Stage {
    let mut to_write = Stage { changes: stage.changes.clone(), reloads: Vec::new() };
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

/// Every stage, then the proof, up to the record after which a crash is completed and not put back. Nothing is
/// committed before a login over each new endpoint, and, with a page, an answer as before: what a file says and what a
/// reload returned is not taken for an application that works (docs/decisions/0128).
fn proceed(
    plan: &Plan,
    request: &SwitchRequest,
    before: &Before,
    transaction: &mut Transaction,
    environment: &Environment<'_>,
) -> Result<Proved, Aborted> {
    keep(plan, request, before, environment, transaction.id())?;
    let page_before = environment.page.map(Page::remember);
    let mut notes = Vec::new();
    for index in 0..plan.stages.len() {
        notes.extend(make(index, plan, request, transaction, environment)?);
    }
    let logins = prove(&plan.hops, environment)?;
    let mut proofs: Vec<String> = logins.iter().map(|proof| proof.sentence.clone()).collect();
    let usage = Usage::of_moves(&[&plan.hops]);
    let mut page_times = None;
    if let (Some(page), Some(before)) = (environment.page, page_before) {
        match usage.during(|| page_as_before(page, before.clone()))? {
            Ok(proof) => proofs.push(proof),
            Err(note) => notes.push(note),
        }
        // Whether it is as before was asked already.
        usage.repeat(environment.is_interrupted, || drop(page.compare()));
        // Where the application is at the old place, it would be the old way's time.
        if !usage.seen().iter().any(Seen::is_left_behind) {
            (environment.progress)("timing the page again");
            page_times = page.time_since();
        }
        // It may have failed in between.
        page_as_before(page, before)?.ok();
    } else {
        usage.wait(MOMENT, environment.is_interrupted);
    }
    not_interrupted(environment)?;
    environment.store.note(transaction.id(), "watch", &(environment.note)())?;
    let until = environment.confirm_within.map(|within| {
        let within = jiff::SignedDuration::try_from(within).unwrap_or(jiff::SignedDuration::MAX);
        clock::utc(jiff::Timestamp::now().checked_add(within).unwrap_or(jiff::Timestamp::MAX))
    });
    transaction.verified_until(until.clone())?;
    let has_page = environment.page.is_some();
    Ok(Proved { proofs, logins, notes, seen: usage.seen(), until, has_page, page_times })
}

/// Completes the report of a switch that was committed: what was proved, and what the application was seen to do.
fn add_proofs(report: &mut SwitchReport, plan: &Plan, proved: Proved) {
    report.kept_by_page = proved.until.is_some() && proved.has_page;
    report.confirm_until = proved.until;
    report.page_times = proved.page_times;
    report.proofs = proved.proofs;
    let (mut clients, mut listeners) = (Vec::new(), Vec::new());
    let all = report.hops.iter_mut().zip(&plan.hops).zip(proved.logins).zip(&proved.seen);
    for (((shown, hop), made), seen) in all {
        shown.login = Some(made.shown);
        let proves = |seen| made.proof.as_ref().map_or(Standing::Written, |login| Standing::of(login, seen));
        // A listener has no client here whose doing could be seen.
        if hop.setting.role != Role::Connects {
            listeners.push(proves(ApplicationSeen::NotSeen));
            continue;
        }
        let standing = proves(seen.application());
        clients.push(standing);
        shown.standing = Some(standing);
        shown.seen_new = seen.new.iter().cloned().collect();
        shown.seen_old = seen.old.iter().cloned().collect();
        shown.awaits_restart = hop.awaits_restart && !proved.has_page;
        // Two lines of one program say the same of it.
        let new = seen.others().into_iter().filter(|note| !report.notes.contains(note));
        report.notes.extend(new.collect::<Vec<_>>());
    }
    report.standing = clients.into_iter().min().or(listeners.into_iter().min());
    report.notes.extend(proved.notes);
}

/// Performs one stage: its files, their checks, the reloads, and the endpoints that must answer then. Returns why
/// checks were not run.
///
/// The order is what keeps it safe. Who still uses an old place is waited for before anything of the stage is written. The
/// addresses are asked for again right before the write. The checks see the files in their places, before any program reads
/// them. That reloads follow is in the journal before the first one.
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
        let who =
            still_in_use(stage, &plan.hops, request.observe, environment.scan, environment.is_interrupted);
        if !who.is_empty() {
            return Err(Aborted::InUse(InUse { stage: index, who }));
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
            Verdict::Wrong(why) => return Err(Aborted::Check(why)),
        }
    }
    not_interrupted(environment)?;
    transaction.reloading(index)?;
    for reload in &stage.reloads {
        (environment.progress)(&reload.what);
        if let Err(ReloadError(why)) = reload_now(reload, &files_after(stage)) {
            return Err(Aborted::Reload(ReloadError(Redactor::new(&plan.secrets).message(&why))));
        }
    }
    for endpoint in &stage.awaits {
        answers(endpoint, environment)?;
    }
    if !stage.awaits.is_empty() {
        try_new_servers(&plan.hops, environment)?;
    }
    if !stage.takes.is_empty() {
        keep_sockets(environment.store, transaction.id(), &stage.takes)?;
    }
    Ok(not_checked)
}

/// Fails where somebody else has what the servers are to take in this stage. The plan asked already; it is asked again
/// right before the write, because minutes may have passed since, at a question that a person answered.
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

/// Fails unless the server that is meant listens at the new place of each move, and nobody else.
fn meant_servers<'a>(
    hops: impl Iterator<Item = &'a Hop>,
    environment: &Environment<'_>,
) -> Result<(), SwitchObstacle> {
    let Some(scan) = (environment.scan)() else { return Ok(()) };
    for hop in hops {
        has_its_name(&scan, hop)?;
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

/// Fails where a server that got a new socket has not the file at its path, or somebody else bound the name as well.
fn has_its_name(scan: &Scan, hop: &Hop) -> Result<(), SwitchObstacle> {
    let (Some(_), Some(path)) = (&hop.server_line, hop.to.path()) else { return Ok(()) };
    let Some(occupant) = without_its_name(scan, &hop.server, path) else { return Ok(()) };
    Err(bar(
        ObstacleCode::SocketPath,
        format!("{}: {occupant}", hop.to),
        "Start that one again, so that it makes its socket anew, and name another place: --socket /run/NAME/NAME.sock",
    ))
}

/// Logs in as the application at servers that did not listen at their new endpoint before, once they do. No client has
/// moved yet. The other servers were asked before the switch.
fn try_new_servers(hops: &[Hop], environment: &Environment<'_>) -> Result<(), SwitchObstacle> {
    let new: Vec<&Hop> = hops.iter().filter(|hop| hop.server_line.is_some()).collect();
    meant_servers(new.iter().copied(), environment)?;
    let answers = ask_each(&new, |hop| {
        let found = try_hop(hop, environment.program).map_err(|failed| refused(hop, &failed))?;
        fewer_rights(hop, &found.views, environment.program).map_or(Ok(()), Err)
    });
    answers.into_iter().collect()
}

/// A login over the new endpoint of a move that succeeded, after everything was written.
struct Proof {
    shown: String,
    proof: Option<Login>,
    /// The same with the name of the connection and where it goes.
    sentence: String,
}

/// Logs in as the application over all new endpoints, after everything was written. Before a password is sent, it is asked
/// again who listens there.
fn prove(hops: &[Hop], environment: &Environment<'_>) -> Result<Vec<Proof>, SwitchObstacle> {
    meant_servers(hops.iter(), environment)?;
    let all: Vec<&Hop> = hops.iter().collect();
    let answers = ask_each(&all, |hop| {
        let LoggedIn { shown, login: proof, .. } =
            try_hop(hop, environment.program).map_err(|failed| refused(hop, &failed))?;
        let has_login = proof.as_ref().is_some_and(|login| login.outcome() == LoginOutcome::LoggedIn);
        let verb = if has_login { "logs in" } else { "connects" };
        let sentence = format!("{} {verb} over {} {shown}", hop.setting.name, hop.to);
        Ok(Proof { shown, proof, sentence })
    });
    answers.into_iter().collect()
}

/// Compares a page with what it was before; the proof, in words. One that failed before and does so now proves nothing, and is no
/// reason to put the switch back: then a note.
fn page_as_before(
    page: &dyn Page,
    before: Result<String, PageError>,
) -> Result<Result<String, String>, Aborted> {
    match before {
        Ok(before) => match page.compare() {
            Ok(_) => Ok(Ok(format!("the page answers as before: {before}"))),
            Err(now) => Err(Aborted::Page { before, now }),
        },
        Err(before) => Ok(match page.remember() {
            Ok(after) => Ok(format!("the page, which failed before ({before}): {after}")),
            Err(now) => Err(format!(
                "the page proves nothing: it failed before the switch, and does now: {now}. Name one that works: --page URL"
            )),
        }),
    }
}

fn not_interrupted(environment: &Environment<'_>) -> Result<(), Aborted> {
    if (environment.is_interrupted)() { Err(Aborted::Interrupted) } else { Ok(()) }
}

/// Waits until something accepts connections at an endpoint.
fn answers(endpoint: &Endpoint, environment: &Environment<'_>) -> Result<(), Aborted> {
    let begun = Instant::now();
    let options = ConnectOptions { timeout: Some(Duration::from_secs(2)), ..ConnectOptions::default() };
    loop {
        match connect(endpoint, &options) {
            Ok(_) => return Ok(()),
            Err(source) if begun.elapsed() > PATIENCE => {
                return Err(Aborted::Silent { endpoint: endpoint.clone(), source: Box::new(source) });
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
    let mut files = Vec::new();
    for change in &stage.changes {
        if change.after.is_some() {
            files.push(change.path.clone());
        }
    }
    files
}
