//! The deferred stages of a switch: stored with it, and turned into a plan on request, after the same checks. The
//! content to write is stored and never computed again; a file that changed meanwhile is refused.

use std::path::{Path, PathBuf};

use samehost_edit::{Files, Role, Setting, editor};
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};
use samehost_scan::{Trusted, service_at, services_at};
use serde::{Deserialize, Serialize};

use crate::configuration::config_file::{ConfigFile, ParsedConfig};
use crate::configuration::server_files;
use crate::disk::Disk;
use crate::findings::{Findings, bar, shown};
use crate::old_place;
use crate::old_place::{Look, Watch, elsewhere, used};
use crate::plan::Plan;
use crate::plan::client::{ClientSide, Wanted};
use crate::plan::hop::Hop;
use crate::plan::server::Server;
use crate::plan::stages::{Leaving, PlannedStage, Replacement, Staged, TITLES};
use crate::preflight::try_hop;
use crate::reload::reload_action;
use crate::request::SwitchRequest;
use samehost_transaction::{State, Store, TransactionError};

/// Name of the stored note.
const NOTE: &str = "finish";

/// Why a switch cannot be finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// The store.
    #[error(transparent)]
    Store(#[from] TransactionError),
    /// There is no such switch.
    #[error("no switch {0}; samehost switch --list names them")]
    Unknown(String),
    /// It left nothing for later.
    #[error("switch {0} left nothing for later")]
    Nothing(String),
    /// It is not in force.
    #[error("switch {id} is {state}: {hint}")]
    State {
        /// Which.
        id: String,
        /// Its state.
        state: State,
        /// What to try.
        hint: &'static str,
    },
}

#[derive(Serialize, Deserialize)]
struct Later {
    hops: Vec<LaterHop>,
    stages: Vec<LaterStage>,
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
}

#[derive(Serialize, Deserialize)]
struct LaterStage {
    title: String,
    changes: Vec<LaterChange>,
    of: Vec<(PathBuf, String)>,
    leaves: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct LaterChange {
    path: PathBuf,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    like: Option<PathBuf>,
}

/// Stores the moved connections with their switch, and the bytes of the plan's deferred stages.
/// Computing the deferred stages again at `--finish` was rejected: what is kept is what somebody agreed
/// to, and a file that was changed meanwhile is refused. So a switch may end with a server that listens
/// at both places until then (docs/decisions/0069).
pub(crate) fn keep(plan: &Plan, store: &Store, id: &str) -> Result<(), TransactionError> {
    let mut later = Later { hops: Vec::new(), stages: Vec::new() };
    let leaves: Vec<&Leaving> = plan.later.iter().flat_map(|stage| &stage.leaves).collect();
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
        });
    }
    for stage in &plan.later {
        let leaves = stage.leaves.iter();
        later.stages.push(LaterStage {
            title: stage.title.to_owned(),
            changes: stage.changes.iter().map(LaterChange::of).collect(),
            of: stage.of.iter().map(|(file, editor)| (file.clone(), (*editor).to_owned())).collect(),
            leaves: leaves.map(|leaving| (leaving.from.to_string(), leaving.to.to_string())).collect(),
        });
    }
    // Paths and bytes always serialise.
    store.note(id, NOTE, &serde_json::to_vec(&later).unwrap_or_default())
}

impl LaterChange {
    fn of(change: &Replacement) -> Self {
        LaterChange {
            path: change.path.clone(),
            before: change.before.clone(),
            after: change.after.clone(),
            like: change.like.clone(),
        }
    }

    fn replacement(&self) -> Replacement {
        Replacement {
            path: self.path.clone(),
            before: self.before.clone(),
            after: self.after.clone(),
            like: self.like.clone(),
        }
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
    let entry = store.list()?.into_iter().find(|entry| entry.id == id);
    let entry = entry.ok_or_else(|| FinishError::Unknown(id.to_owned()))?;
    let hint = match entry.state {
        State::Committed => None,
        State::Awaiting => Some("confirm it first: samehost switch --confirm ID"),
        State::Unfinished => Some("end it first: samehost switch --recover"),
        _ => Some("there is nothing to finish"),
    };
    if let Some(hint) = hint {
        return Err(FinishError::State { id: id.to_owned(), state: entry.state, hint });
    }
    let kept = store.noted(id, NOTE).and_then(|bytes| serde_json::from_slice::<Later>(&bytes).ok());
    let later = kept.filter(|later| !later.stages.is_empty());
    let later = later.ok_or_else(|| FinishError::Nothing(id.to_owned()))?;
    let mut plan = Plan::default();
    for hop in &later.hops {
        let Some(read) = read_again(hop) else { continue };
        plan.secrets.extend(read.reading.settings.iter().filter_map(|setting| setting.password.clone()));
        let Some((hop, notes)) = again(hop, scan, read, Wanted::ToLogIn) else { continue };
        plan.findings.note(notes);
        plan.hops.push(hop);
    }
    let staged = stages(&later, request, scan);
    plan.findings.merge(staged.findings);
    plan.stages = staged.stages;
    if plan.stages.is_empty() || plan.is_barred() {
        return Ok(plan);
    }
    for (from, to) in later.stages.iter().flat_map(|stage| &stage.leaves) {
        let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { continue };
        plan.findings.add(still_there(&later, &from, &to, request, scan, (look, is_interrupted)));
    }
    Ok(plan)
}

/// Logs in again over the connections of a switch, as the application, with the current configuration. Returns why one
/// of the logins fails. Connections that cannot be found any more are not failures.
#[must_use]
pub fn refused_since(store: &Store, id: &str, scan: &Scan, program: &Path) -> Option<String> {
    let hops = moved_hops(store, id, scan, Wanted::ToLogIn).into_iter();
    let mut failed = hops.filter_map(|hop| Some((try_hop(&hop, program).err()?, hop)));
    let (failed, hop) = failed.next()?;
    Some(format!("{} over {} as {}: {}", hop.setting.name, failed.over, failed.client.name, failed.error))
}

/// The moved connections of a stored switch, by their current configurations. Those that cannot be found any more are left
/// out.
pub(crate) fn moved_hops(store: &Store, id: &str, scan: &Scan, wanted: Wanted<'_>) -> Vec<Hop> {
    let Some(noted) = store.noted(id, NOTE) else { return Vec::new() };
    let Ok(later) = serde_json::from_slice::<Later>(&noted) else { return Vec::new() };
    let mut hops = Vec::new();
    for hop in &later.hops {
        hops.extend(read_again(hop).and_then(|read| again(hop, scan, read, wanted)).map(|(hop, _)| hop));
    }
    hops
}

/// The current configuration of a moved connection.
fn read_again(hop: &LaterHop) -> Option<ParsedConfig> {
    let config = ConfigFile { file: hop.file.clone(), editor: editor(&hop.editor)?, reader: None };
    config.read().ok()
}

/// A moved connection according to its current configuration; with notes on processes that were skipped.
fn again(hop: &LaterHop, scan: &Scan, read: ParsedConfig, wanted: Wanted<'_>) -> Option<(Hop, Vec<String>)> {
    let (from, to): (Endpoint, Endpoint) = (hop.from.parse().ok()?, hop.to.parse().ok()?);
    let ParsedConfig { config, reading } = read;
    let there: Vec<&Setting> = reading.settings.iter().filter(|setting| setting.endpoint == to).collect();
    let by_name = there.iter().find(|setting| setting.role == Role::Connects && setting.name == hop.name);
    let found = *by_name.or(there.first())?;
    let setting = Setting { endpoint: from, ..found.clone() };
    let trusted = hop.trusted.iter().copied().fold(Trusted::default(), Trusted::or);
    let service = service_at(scan, &to, setting.protocol, &trusted).ok();
    let server = Server::of(scan, service, setting.protocol, trusted);
    let name = server.service(scan).map(|service| service.name.clone());
    let server = Server { name, ..server };
    let (client, notes) = ClientSide::find(scan, &config, &setting, service, wanted).ok()?;
    Some((Hop { config, setting, to, server, server_line: None, client, login: None }, notes))
}

/// What the file of a change has now.
fn on_disk(change: &LaterChange) -> Option<Vec<u8>> {
    Disk::default().read(&change.path).ok()
}

/// The stored stages; refused if a file is not as the switch left it.
fn stages(later: &Later, request: &SwitchRequest, scan: &Scan) -> Staged {
    let changes: Vec<&LaterChange> = later.stages.iter().flat_map(|stage| &stage.changes).collect();
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

/// A stored stage with its current checks and reloads.
fn stage(kept: &LaterStage, request: &SwitchRequest, scan: &Scan) -> (PlannedStage, Findings) {
    let title = TITLES.into_iter().find(|title| *title == kept.title);
    let title = title.unwrap_or("the server leaves the old place");
    let changes = kept.changes.iter().map(LaterChange::replacement).collect();
    let mut stage = PlannedStage { title, changes, ..PlannedStage::default() };
    let mut findings = Findings::default();
    for (file, name) in &kept.of {
        let Some(editor) = editor(name) else { continue };
        let config = ConfigFile { file: file.clone(), editor, reader: None };
        stage.of.push((file.clone(), editor.name()));
        // If several such servers run, the one that listens there.
        let places = kept.leaves.iter().filter_map(|(_, to)| to.parse().ok());
        let there = places
            .flat_map(|to: Endpoint| services_at(scan, &to))
            .find_map(|at| scan.services.get(at).filter(|service| service.kind == config.kind())?.pid);
        let pid = there.or_else(|| server_files::process_of(scan, &config));
        findings.note(stage.check(scan, &config, pid));
        findings.merge(stage.reload(reload_action(scan, editor.uptake(file), file, pid, &request.reloads)));
    }
    let ends = kept.leaves.iter().filter_map(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    stage.leaves = ends.map(|(from, to)| last(from, to)).collect();
    stage.awaits = stage.leaves.iter().map(|leaving| leaving.to.clone()).collect();
    (stage, findings)
}

/// A server that leaves its old place in the last step of a switch.
fn last(from: Endpoint, to: Endpoint) -> Leaving {
    Leaving { from, to, can_wait: false, moved: false, restart: None }
}

/// Reasons not to close a place: somebody uses it.
fn still_there(
    later: &Later,
    from: &Endpoint,
    to: &Endpoint,
    request: &SwitchRequest,
    scan: &Scan,
    (look, is_interrupted): (Look<'_>, &dyn Fn() -> bool),
) -> Vec<SwitchObstacle> {
    let named = elsewhere::named(scan, from, to, &[]).into_iter();
    let mut reasons: Vec<SwitchObstacle> =
        named.map(|named| bar(ObstacleCode::StillUsed, named.found, named.remedy)).collect();
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
    reasons.into_iter().map(|reason| SwitchObstacle { bars: true, ..reason }).collect()
}
