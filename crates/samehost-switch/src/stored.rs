//! What is kept with a switch beside its journal, for commands that come later: the connections that moved, with the stages
//! that were deferred, and how long requests took before.
//!
//! A deferred stage becomes a plan on request, after the same checks as every other. Its content is stored and never
//! computed again; a file that changed meanwhile is refused.
//!
//! The looks at how long requests take are short: a person waits for the switch meanwhile. What is compared are blocks
//! of time within two looks; what differs between the hours of the looks is in neither, and whoever shows it has to say
//! so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::{Files, Role, Setting, editor};
use samehost_model::human::format_value;
use samehost_model::scan::{ExchangeMode, Scan};
use samehost_model::switch::{NoOwnTimes, NoTraffic, OwnTimes, SwitchObstacle};
use samehost_model::{Endpoint, ObstacleCode};
use samehost_scan::{OwnLook, OwnPair, Stamps, Trusted, look_at_own_times, service_at, services_at};
use samehost_system::{clock, interrupt, lookup};
use samehost_transaction::{Entry, FileChange, State, Store, TransactionError, listed};
use serde::{Deserialize, Serialize};

use crate::configuration::server_files;
use crate::configuration::{ConfigFile, ParsedConfig};
use crate::disk::Disk;
use crate::findings::{Findings, bar, shown};
use crate::left_place::OldPlace;
use crate::old_place::leading::{who_leads_there, with_inert};
use crate::old_place::left::{Left, Sources};
use crate::old_place::{self, Look, Watch, used};
use crate::plan::Plan;
use crate::plan::client::{ClientSide, Wanted};
use crate::plan::hop::Hop;
use crate::plan::login::{Failed, try_hop};
use crate::plan::server::Server;
use crate::plan::stages::{Leaving, PlannedStage, Staged, TITLES};
use crate::reload::{ReloadWords, reload_action};
use crate::request::{Environment, SwitchRequest};

/// Name of the note with the moved connections and the deferred stages.
const FINISH: &str = "finish";
/// Name of the note with the looks at how long requests took before.
const TIMES: &str = "times";

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    #[error(transparent)]
    Store(#[from] TransactionError),
    #[error("no switch {0}; samehost switch list names them")]
    Unknown(String),
    #[error("switch {0} left nothing for later")]
    Nothing(String),
    #[error("switch {id} is {state}: {hint}")]
    State { id: String, state: State, hint: &'static str },
}

#[derive(Serialize, Deserialize)]
struct Later {
    hops: Vec<LaterHop>,
    stages: Vec<LaterStage>,
    /// What its values are known from, so that it is asked again who leads to what is closed.
    #[serde(default)]
    sources: Sources,
    /// The places that the way back gives to the servers again, with who had them.
    #[serde(default)]
    places: Vec<OldPlace>,
    /// How its services are reloaded, as it was said of the switch.
    #[serde(default)]
    reloads: Vec<String>,
}

impl Later {
    /// What was kept with a switch; `None` where nothing was, or a later version wrote it.
    fn of(store: &Store, id: &str) -> Option<Self> {
        serde_json::from_slice(&store.noted(id, FINISH)?).ok()
    }

    /// The old places that its deferred stages close.
    fn closes(&self) -> Vec<Endpoint> {
        let leaves = self.stages.iter().flat_map(|stage| &stage.leaves);
        leaves.filter_map(|(from, _)| from.parse().ok()).collect()
    }
}

#[derive(Serialize, Deserialize)]
struct LaterHop {
    file: PathBuf,
    editor: String,
    name: String,
    from: String,
    to: String,
    /// Whether a client must first be seen at the new place, because it needs a restart that this program does not
    /// make.
    is_restarted: bool,
    /// Users that its server may run as, beside root and the account that its package created.
    #[serde(default)]
    trusted: Vec<u32>,
    /// The application's user, where a person named one.
    #[serde(default)]
    user: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct LaterStage {
    title: String,
    changes: Vec<FileChange>,
    of: Vec<(PathBuf, String)>,
    leaves: Vec<(String, String)>,
}

/// Stores the looks before a switch with it, its moved connections, and the bytes of the deferred stages.
///
/// Computing the deferred stages again at `switch finish` was rejected: what is kept is what somebody agreed
/// to, and a file that was changed meanwhile is refused. So a switch may end with a server that listens
/// at both places until then (docs/decisions/0069).
pub(crate) fn keep(
    plan: &Plan,
    request: &SwitchRequest,
    before: &Before,
    environment: &Environment<'_>,
    id: &str,
) -> Result<(), TransactionError> {
    let store = environment.store;
    if !before.looks.is_empty() {
        // Numbers and names always serialise.
        store.note(id, TIMES, &serde_json::to_vec(before).unwrap_or_default())?;
    }
    let leaves: Vec<&Leaving> = plan.later.iter().flat_map(|stage| &stage.leaves).collect();
    let scan = (environment.scan)();
    let mut later = Later {
        hops: Vec::new(),
        stages: Vec::new(),
        sources: plan.sources.clone(),
        places: Vec::new(),
        reloads: request.reloads.iter().map(ToString::to_string).collect(),
    };
    if let Some(scan) = &scan {
        later.places = OldPlace::of_hops(scan, &plan.hops);
    }
    if let (Some(scan), false) = (&scan, leaves.is_empty()) {
        let mut lefts = Vec::new();
        for leaving in &leaves {
            lefts.push(Left { from: &leaving.from, to: &leaving.to, hops: &plan.hops });
        }
        later.sources = with_inert(scan, &lefts, &plan.sources);
    }
    for hop in plan.hops.iter().filter(|hop| hop.setting.role == Role::Connects) {
        let is_restarted =
            leaves.iter().any(|leaving| leaving.restart.is_some() && leaving.from == hop.setting.endpoint);
        later.hops.push(LaterHop {
            file: hop.config.file.clone(),
            editor: hop.config.editor.name().to_owned(),
            name: hop.setting.name.clone(),
            from: hop.setting.endpoint.to_string(),
            to: hop.to.to_string(),
            is_restarted,
            trusted: hop.server.trusted.users().collect(),
            user: request.user.clone(),
        });
    }
    later.stages.extend(plan.later.iter().map(LaterStage::of));
    // Paths and bytes always serialise.
    store.note(id, FINISH, &serde_json::to_vec(&later).unwrap_or_default())
}

/// Adds to what is kept with a switch the sockets' files that its servers have just made.
pub(crate) fn keep_sockets(store: &Store, id: &str, taken: &[Endpoint]) -> Result<(), TransactionError> {
    let Some(mut later) = Later::of(store, id) else { return Ok(()) };
    later.places.iter_mut().for_each(|place| place.remember(taken));
    store.note(id, FINISH, &serde_json::to_vec(&later).unwrap_or_default())
}

impl LaterStage {
    fn of(stage: &PlannedStage) -> Self {
        let mut later = LaterStage {
            title: stage.title.to_owned(),
            changes: stage.changes.clone(),
            of: Vec::new(),
            leaves: Vec::new(),
        };
        for (file, editor) in &stage.of {
            later.of.push((file.clone(), (*editor).to_owned()));
        }
        for leaving in &stage.leaves {
            later.leaves.push((leaving.from.to_string(), leaving.to.to_string()));
        }
        later
    }
}

/// The plan of the deferred stages of a switch.
///
/// # Errors
/// When it left nothing, or is not in force. What is in the way is an obstacle of the plan.
pub fn finishing(
    store: &Store,
    id: &str,
    request: &SwitchRequest,
    scan: &Scan,
    look: Look<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Plan, FinishError> {
    let Some(entry) = listed(store)?.into_iter().find(|entry| entry.id == id) else {
        return Err(FinishError::Unknown(id.to_owned()));
    };
    let hint = match entry.state {
        State::Committed => None,
        State::Awaiting => Some("confirm it first: samehost switch confirm ID"),
        State::Unfinished => Some("end it first: samehost switch recover"),
        _ => Some("there is nothing to finish"),
    };
    if let Some(hint) = hint {
        return Err(FinishError::State { id: id.to_owned(), state: entry.state, hint });
    }
    let later = match Later::of(store, id) {
        Some(later) if !later.stages.is_empty() => later,
        _ => return Err(FinishError::Nothing(id.to_owned())),
    };
    // What was said of the switch holds of its last step; what is said now goes before it.
    let mut request = request.clone();
    request.reloads.extend(later.reloads.iter().map(|words| ReloadWords::parse(words)));
    let mut plan = Plan { closes: later.closes(), ..Plan::default() };
    for hop in &later.hops {
        let Some(read) = read_again(hop) else { continue };
        plan.secrets.extend(read.reading.settings.iter().filter_map(|setting| setting.password.clone()));
        let Some((hop, notes)) = again(hop, scan, read, Wanted::ToLogIn) else { continue };
        plan.findings.note(notes);
        plan.hops.push(hop);
    }
    let staged = stages(&later, &request, scan);
    plan.findings.merge(staged.findings);
    plan.stages = staged.stages;
    if plan.stages.is_empty() || plan.is_barred() {
        return Ok(plan);
    }
    for (from, to) in later.stages.iter().flat_map(|stage| &stage.leaves) {
        let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { continue };
        let (reasons, note) =
            still_there(&later, &from, &to, &plan.hops, &request, scan, (look, is_interrupted));
        plan.findings.add(reasons);
        plan.findings.note(note);
    }
    Ok(plan)
}

/// Logs in again over the connections of a switch, as the application, with the current configuration. Returns why one
/// of the logins fails. Connections that cannot be found any more are not failures.
#[must_use]
pub fn refused_since(store: &Store, id: &str, scan: &Scan, program: &Path) -> Option<String> {
    for hop in moved_hops(store, id, scan, Wanted::ToLogIn) {
        // Who stops the watcher says nothing of the login, and what it lacks itself neither.
        if let Err(failed) = try_hop(&hop, program)
            && !interrupt::is_requested()
            && !failed.error.is_of_this_process()
        {
            let Failed { client, over, error, .. } = *failed;
            return Some(format!("{} over {over} as {}: {error}", hop.setting.name, client.name));
        }
    }
    None
}

/// The places that a switch in force left open, and that `switch finish` closes.
#[must_use]
pub fn left_open(store: &Store, entry: &Entry) -> Vec<Endpoint> {
    if !matches!(entry.state, State::Committed | State::Awaiting) {
        return Vec::new();
    }
    let stages = Later::of(store, &entry.id).map(|later| later.stages).unwrap_or_default();
    let mut open: Vec<Endpoint> = Vec::new();
    for stage in stages {
        if stage.changes.iter().all(|change| on_disk(change) == change.after) {
            continue;
        }
        open.extend(stage.leaves.iter().filter_map(|(from, _)| from.parse().ok()));
    }
    open
}

/// The places that were left with a stored switch; none of one before they were kept.
pub(crate) fn old_places(store: &Store, id: &str) -> Vec<OldPlace> {
    Later::of(store, id).map(|later| later.places).unwrap_or_default()
}

/// Where the connections and servers of a stored switch went.
#[must_use]
pub fn new_places(store: &Store, id: &str) -> Vec<Endpoint> {
    let Some(later) = Later::of(store, id) else { return Vec::new() };
    let mut all: Vec<Endpoint> = Vec::new();
    let hops = later.hops.iter().filter_map(|hop| hop.to.parse().ok());
    for to in hops.chain(later.places.into_iter().map(|place| place.to)) {
        if !all.contains(&to) {
            all.push(to);
        }
    }
    all
}

/// The moved connections of a stored switch, by their current configurations. Those that cannot be found any more are left
/// out.
pub(crate) fn moved_hops(store: &Store, id: &str, scan: &Scan, wanted: Wanted<'_>) -> Vec<Hop> {
    let Some(later) = Later::of(store, id) else { return Vec::new() };
    let mut hops = Vec::new();
    for hop in &later.hops {
        if let Some(read) = read_again(hop)
            && let Some((hop, _)) = again(hop, scan, read, wanted)
        {
            hops.push(hop);
        }
    }
    hops
}

fn read_again(hop: &LaterHop) -> Option<ParsedConfig> {
    let config = ConfigFile { file: hop.file.clone(), editor: editor(&hop.editor)?, reader: None };
    config.read().ok()
}

/// A moved connection according to its current configuration; with notes on processes that were skipped.
fn again(hop: &LaterHop, scan: &Scan, read: ParsedConfig, wanted: Wanted<'_>) -> Option<(Hop, Vec<String>)> {
    let (from, to): (Endpoint, Endpoint) = (hop.from.parse().ok()?, hop.to.parse().ok()?);
    let ParsedConfig { config, reading, .. } = read;
    let there: Vec<&Setting> = reading.settings.iter().filter(|setting| setting.endpoint == to).collect();
    let by_name = there.iter().find(|setting| setting.role == Role::Connects && setting.name == hop.name);
    let found = *by_name.or(there.first())?;
    let setting = Setting { endpoint: from, ..found.clone() };
    let mut trusted = Trusted::default();
    for user in &hop.trusted {
        trusted = trusted.or(*user);
    }
    let service = service_at(scan, &to, setting.protocol, &trusted).ok();
    let server = Server::of(scan, service, setting.protocol, trusted);
    let name = server.service(scan).map(|service| service.name.clone());
    let server = Server { name, ..server };
    // Whom a person named once is the application still, whatever else runs beside it by now.
    let wanted = match &hop.user {
        Some(user) if wanted == Wanted::ToLogIn && lookup::account(user).is_some() => Wanted::User(user),
        _ => wanted,
    };
    let (client, notes) = ClientSide::find(scan, &config, &setting, service, wanted).ok()?;
    Some((
        Hop { config, setting, to, server, server_line: None, client, login: None, awaits_restart: false },
        notes,
    ))
}

fn on_disk(change: &FileChange) -> Option<Vec<u8>> {
    Disk::default().read(&change.path).ok()
}

/// The stored stages; refused if a file is not as the switch left it.
fn stages(later: &Later, request: &SwitchRequest, scan: &Scan) -> Staged {
    let changes: Vec<&FileChange> = later.stages.iter().flat_map(|stage| &stage.changes).collect();
    let mut staged = Staged::default();
    if changes.iter().all(|change| on_disk(change) == change.after) {
        return staged;
    }
    for change in &changes {
        let first = changes.iter().find(|other| other.path == change.path);
        if first.is_some_and(|first| on_disk(first) != first.before) {
            staged.findings.add([bar(
                ObstacleCode::Changed,
                format!("{} is not as the switch left it", shown(&change.path)),
                "Make the last step by hand, or undo the switch and make it anew",
            )]);
        }
    }
    for kept in &later.stages {
        let (stage, findings) = stage(kept, request, scan);
        staged.stages.push(stage);
        staged.findings.merge(findings);
    }
    staged
}

fn stage(kept: &LaterStage, request: &SwitchRequest, scan: &Scan) -> (PlannedStage, Findings) {
    let title = TITLES.into_iter().find(|title| *title == kept.title);
    let title = title.unwrap_or("the server leaves the old place");
    let changes = kept.changes.clone();
    let mut stage = PlannedStage { title, changes, ..PlannedStage::default() };
    let mut findings = Findings::default();
    for (file, name) in &kept.of {
        let Some(editor) = editor(name) else { continue };
        let config = ConfigFile { file: file.clone(), editor, reader: None };
        stage.of.push((file.clone(), editor.name()));
        // If several such servers run, the one that listens there.
        let pid = match listening(scan, &kept.leaves, &config) {
            Some(pid) => Some(pid),
            None => server_files::process_of(scan, &config),
        };
        findings.note(stage.check(scan, &config, pid));
        findings.merge(stage.reload(reload_action(scan, editor.uptake(file), file, pid, &request.reloads)));
    }
    for (from, to) in &kept.leaves {
        let (Ok(from), Ok(to)) = (from.parse::<Endpoint>(), to.parse::<Endpoint>()) else { continue };
        stage.awaits.push(to.clone());
        stage.leaves.push(last(from, to));
    }
    (stage, findings)
}

/// The process of a configuration's kind that listens at one of the new places.
fn listening(scan: &Scan, leaves: &[(String, String)], config: &ConfigFile) -> Option<u32> {
    for (_, to) in leaves {
        let Ok(to) = to.parse::<Endpoint>() else { continue };
        for at in services_at(scan, &to) {
            let Some(service) = scan.services.get(at) else { continue };
            if service.kind == config.kind() && service.pid.is_some() {
                return service.pid;
            }
        }
    }
    None
}

fn last(from: Endpoint, to: Endpoint) -> Leaving {
    Leaving { from, to, can_wait: false, moved: false, restart: None }
}

/// Reasons not to close a place: somebody uses it; with a note.
fn still_there(
    later: &Later,
    from: &Endpoint,
    to: &Endpoint,
    hops: &[Hop],
    request: &SwitchRequest,
    scan: &Scan,
    (look, is_interrupted): (Look<'_>, &dyn Fn() -> bool),
) -> (Vec<SwitchObstacle>, Option<String>) {
    let mut reasons: Vec<SwitchObstacle> = Vec::new();
    let (leading, note) = who_leads_there(scan, Left { from, to, hops }, &later.sources);
    for named in leading {
        reasons.push(bar(ObstacleCode::StillUsed, named.found, named.remedy));
    }
    let watch = Watch { endpoint: from, hops: &[], period: request.observe, look, is_interrupted };
    let seen = watch.for_the_period();
    reasons.extend(used(&last(from.clone(), to.clone()), &seen, request.observe));
    for hop in later.hops.iter().filter(|hop| hop.is_restarted && hop.from == from.to_string()) {
        let there = old_place::connected(scan, to, &[]);
        if there.others.is_empty() && there.movers.is_empty() {
            reasons.push(bar(
                ObstacleCode::StillUsed,
                format!("no client is seen at {to} yet ({} in {})", hop.name, shown(&hop.file)),
                "Restart the application first, and have it make a request",
            ));
        }
    }
    for reason in &mut reasons {
        reason.bars = true;
    }
    (reasons, note)
}

/// How long a look takes: ten blocks, and no longer than people wait for a page.
pub const LOOK: Duration = Duration::from_secs(3);

/// How long requests took before a switch.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Before {
    looks: Vec<LookBefore>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LookBefore {
    /// The connection's file and its name there.
    file: PathBuf,
    name: String,
    from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<OwnTimes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    no_times: Option<NoOwnTimes>,
}

/// The looks at one connection of a configuration before a switch and after it.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnLooks {
    pub id: String,
    pub name: String,
    /// Where it led before, and where it leads now.
    pub from: String,
    pub to: String,
    pub before: Result<OwnTimes, NoOwnTimes>,
    /// `None` where the look before has no times, so that there is nothing to compare.
    pub after: Option<Result<OwnTimes, NoOwnTimes>>,
}

impl Before {
    /// Looks how long the requests of the connections take that are going to move, for [`LOOK`] at most; empty where no
    /// client moves, or nothing says when a request begins.
    pub(crate) fn look(hops: &[Hop], environment: &Environment<'_>) -> Self {
        let moving: Vec<&Hop> = hops.iter().filter(|hop| hop.setting.role == Role::Connects).collect();
        let Some(stamps) = environment.stamps else { return Before::default() };
        if moving.is_empty() {
            return Before::default();
        }
        let Some(scan) = (environment.scan)() else { return Before::default() };
        (environment.progress)("looking at how long requests take now");
        let mut pairs = Vec::new();
        for hop in &moving {
            pairs.push(OwnPair { pids: hop.client.application.pids(), to: hop.setting.endpoint.clone() });
        }
        let is_interrupted = environment.is_interrupted;
        let how = OwnLook { at: clock::utc_now(), stamps, period: LOOK, is_interrupted };
        let mut looks = Vec::new();
        for (hop, found) in moving.iter().zip(look_at_own_times(&scan, &pairs, &how)) {
            let (times, no_times) = match found {
                Ok(times) => (Some(times), None),
                Err(why) => (None, Some(why)),
            };
            let file = hop.config.file.clone();
            let from = hop.setting.endpoint.to_string();
            looks.push(LookBefore { file, name: hop.setting.name.clone(), from, times, no_times });
        }
        Before { looks }
    }

    fn of(store: &Store, id: &str) -> Self {
        match store.noted(id, TIMES) {
            Some(noted) => serde_json::from_slice(&noted).unwrap_or_default(),
            None => Before::default(),
        }
    }

    /// What a person is told of it: the times, and what to do where there would be some.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for look in &self.looks {
            let (name, from) = (&look.name, &look.from);
            match look.found() {
                Some(Ok(times)) => notes.push(format!(
                    "a request of {name} took {} over {from} before; samehost switch check compares what it takes now",
                    format_value(times.mean_us, "us")
                )),
                Some(Err(NoOwnTimes::Traffic(NoTraffic::NoBeginning))) => notes.push(format!(
                    "how long a request of {name} took before is not kept: this kernel allows no program where functions begin to \
                     send; with --exact system calls are stamped for three seconds, and switch check compares"
                )),
                _ => {}
            }
        }
        notes
    }
}

impl LookBefore {
    fn found(&self) -> Option<Result<&OwnTimes, NoOwnTimes>> {
        match (&self.times, self.no_times) {
            (Some(times), _) => Some(Ok(times)),
            (None, Some(why)) => Some(Err(why)),
            (None, None) => None,
        }
    }
}

/// A connection that is looked at again.
struct Again {
    id: String,
    before: LookBefore,
    hop: Hop,
}

/// Looks for a period at the connections of these switches that were looked at before, with the same stamps as then.
/// None of a switch without such a look, of an older version for example. Takes no time where none of them has times to
/// compare with.
#[must_use]
pub fn look_again(
    switches: &[(&Store, &str)],
    scan: &Scan,
    period: Duration,
    is_interrupted: &dyn Fn() -> bool,
) -> Vec<OwnLooks> {
    let mut all = Vec::new();
    for (store, id) in switches {
        let before = Before::of(store, id);
        if before.looks.is_empty() {
            continue;
        }
        for hop in moved_hops(store, id, scan, Wanted::ToLook) {
            for look in &before.looks {
                let is_its = look.file == hop.config.file && look.name == hop.setting.name;
                if is_its && look.found().is_some() {
                    all.push(Again { id: (*id).to_owned(), before: look.clone(), hop });
                    break;
                }
            }
        }
    }
    let mut pairs: Vec<OwnPair> = Vec::new();
    let mut stamps = Stamps::Functions;
    for one in &all {
        let Some(times) = &one.before.times else { continue };
        pairs.push(OwnPair { pids: one.hop.client.application.pids(), to: one.hop.to.clone() });
        if times.mode == ExchangeMode::SystemCalls {
            stamps = Stamps::SystemCalls;
        }
    }
    let how = OwnLook { at: clock::utc_now(), stamps, period, is_interrupted };
    let mut after = look_at_own_times(scan, &pairs, &how).into_iter();
    let mut looks = Vec::new();
    for one in all {
        let (before, after) = match (one.before.times, one.before.no_times) {
            (Some(times), _) => (Ok(times), after.next()),
            (None, Some(why)) => (Err(why), None),
            (None, None) => continue,
        };
        let (name, from) = (one.before.name, one.before.from);
        looks.push(OwnLooks { id: one.id, name, from, to: one.hop.to.to_string(), before, after });
    }
    looks
}
