//! The stages of a switch, so ordered that everything serves after each: servers listen at the new place as well, then
//! clients move, then servers let go of the old place. Each stage is the configuration's text as a function of the
//! original one, never an edit of an edit.
//!
//! A server that listens at one place only either stands beside a copy of itself for a while (`Editor::transition`), or
//! its clients hold both addresses for a while (`Editor::connects_to_both`), or it is moved first and there is a gap.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_edit::{Access, Files, Goal, Role, Setting, apply};
use samehost_edit::{Move, ProposalError, propose};
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_scan::identity;
use samehost_services::NewSocket;
use samehost_system::accounts;

use super::config_file::ConfigFile;
use super::hop::Hop;
use super::leaving::{Leaving, client_reload_action, has_clients, moves_away, needs_restart};
use super::place::{said, same_port};
use super::{Direction, ParsedConfig, Plan, SwitchRequest, bar, server_files};
use crate::check::{Planned, planned};
use crate::reload::{ReloadAction, reload_action};
use samehost_transaction::resolve;

/// Files as they would be; none: not there.
type Texts = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// A file that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// Which.
    pub(crate) path: PathBuf,
    /// As it is before the stage; none: not there.
    pub(crate) before: Option<Vec<u8>>,
    /// As it is afterwards.
    pub(crate) after: Option<Vec<u8>>,
    /// Where it is made: the file whose text it takes.
    pub(crate) like: Option<PathBuf>,
}

/// A stage: everything serves after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedStage {
    /// What it is for.
    pub(crate) title: &'static str,
    /// The files that change.
    pub(crate) changes: Vec<Replacement>,
    /// Commands that say whether they are well formed.
    pub(crate) checks: Vec<Planned>,
    /// What makes programs take them: in words, and as a command.
    pub(crate) reloads: Vec<(String, Vec<String>)>,
    /// Endpoints that must answer afterwards.
    pub(crate) awaits: Vec<Endpoint>,
    /// Servers that leave their old place in it.
    pub(crate) leaves: Vec<Leaving>,
    /// The configurations that change in it, by file and editor.
    pub(crate) of: Vec<(PathBuf, &'static str)>,
}

impl PlannedStage {
    /// Adds the check of a configuration that changes in it, or returns a note why it is not run.
    pub(crate) fn check(&mut self, config: &ConfigFile) -> Option<String> {
        match config.editor.check(&config.file, &config.files()).map(planned)? {
            Ok(check) => {
                self.checks.push(check);
                None
            }
            Err(note) => Some(note),
        }
    }
}

/// How far a side has moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Old,
    /// At the old place, with a copy of itself at the new one.
    Copied,
    Both,
    New,
}

/// What a stage is for, in order.
pub(crate) const TITLES: [&str; 4] = [
    "the server listens at the new place as well",
    "the client moves",
    "the server leaves the old place",
    "the client forgets the old place",
];

/// A side of a hop: what changes in one configuration.
struct Side<'a> {
    config: &'a ConfigFile,
    setting: &'a Setting,
    goal: Goal,
    pid: Option<u32>,
    hop: Option<&'a Hop>,
    /// How far it has moved after each stage.
    states: [State; 4],
}

/// Builds the stages of a plan.
pub(crate) fn build(request: &SwitchRequest, scan: &Scan, configurations: &[ParsedConfig], plan: &mut Plan) {
    let hops = plan.hops.clone();
    let (sides, notes) = sides(request, scan, &hops);
    plan.notes.extend(notes);
    // The files of each configuration, as they are so far.
    let mut texts: Vec<Texts> = configurations.iter().map(|_| Texts::new()).collect();
    for (index, title) in TITLES.into_iter().enumerate() {
        let mut stage = PlannedStage { title, ..PlannedStage::default() };
        for (read, texts) in configurations.iter().zip(&mut texts) {
            let config = &read.config;
            let own: Vec<&Side<'_>> = sides.iter().filter(|side| side.config.file == config.file).collect();
            let changed = match configuration(config, &own, index) {
                Ok(after) => {
                    advance(&config.files(), texts, after, most_private(&own).as_deref(), &mut stage)
                }
                Err(error) => {
                    plan.stages.clear();
                    return plan.add([refused(config, error)]);
                }
            };
            if changed {
                stage.of.push((config.file.clone(), config.editor.name()));
                leave(request, scan, &hops, &own, index, &mut stage);
                finish(request, scan, config, &own, index, &mut stage, plan);
            }
        }
        let twice =
            |change: &Replacement| stage.changes.iter().filter(|other| other.path == change.path).count() > 1;
        if let Some(change) = stage.changes.iter().find(|change| twice(change)) {
            plan.stages.clear();
            return plan.add([bar(
                "same-file",
                format!("two of the configurations change {}", shown(&change.path)),
                "Switch one after the other",
            )]);
        }
        for change in &mut stage.changes {
            match resolve(&change.path) {
                Ok(path) => change.path = path,
                Err(error) => plan.add([bar("file", error.to_string(), "")]),
            }
        }
        if !stage.changes.is_empty() {
            plan.stages.push(stage);
        }
    }
}

fn refused(config: &ConfigFile, error: ProposalError) -> SwitchObstacle {
    match error {
        ProposalError::Refused(refusal) => bar("not-understood", said(&refusal), refusal.by_hand),
        other => bar(
            "not-understood",
            other.to_string(),
            format!("Edit {} by hand; samehost how SERVICE has the words", config.file.display()),
        ),
    }
}

/// Everything that changes, with how far it is after each stage.
fn sides<'a>(request: &SwitchRequest, scan: &Scan, hops: &'a [Hop]) -> (Vec<Side<'a>>, Vec<String>) {
    let (mut sides, mut notes): (Vec<Side<'a>>, Vec<String>) = Default::default();
    for hop in hops {
        let mut client = [State::Old, State::New, State::New, State::New];
        if let Some((config, setting)) = &hop.server {
            let editor = config.editor;
            let (goal, note) = server_goal(request, scan, hop, setting);
            notes.extend(note);
            let copies = editor
                .transition(&config.file, &config.files(), setting, &goal)
                .is_ok_and(|edits| edits.is_some());
            let holds =
                hop.setting.role == Role::Connects && hop.config.editor.connects_to_both(&hop.setting);
            let server = if editor.listens_on_both() {
                let last = if request.close_tcp { State::New } else { State::Both };
                [State::Both, State::Both, last, last]
            } else {
                notes.push(moves_away(&setting.endpoint));
                if copies {
                    [State::Copied, State::Copied, State::New, State::New]
                } else if holds {
                    client = [State::Old, State::Both, State::Both, State::New];
                    [State::Old, State::Old, State::New, State::New]
                } else {
                    if hop.setting.role == Role::Connects {
                        notes.push(format!(
                            "between the restart of {} and that of its client nothing is served",
                            editor.about()
                        ));
                    }
                    [State::New; 4]
                }
            };
            let pid = hop.service.and_then(|at| scan.services.get(at)).and_then(|service| service.pid);
            let is_new = |side: &Side<'_>| side.config.file != config.file || side.setting != setting;
            if sides.iter().all(is_new) {
                sides.push(Side { config, setting, goal, pid, hop: None, states: server });
            }
        }
        if hop.setting.role == Role::Connects {
            let pid = server_files::process_of(scan, &hop.config);
            let goal = Goal::client(hop.to.clone());
            sides.push(Side {
                config: &hop.config,
                setting: &hop.setting,
                goal,
                pid,
                hop: Some(hop),
                states: client,
            });
        }
    }
    (sides, notes)
}

/// Who may use a server's new socket: the client alone, where the server can give it away or has a group with it in
/// common; else everyone here, as with the port.
fn server_goal(request: &SwitchRequest, scan: &Scan, hop: &Hop, setting: &Setting) -> (Goal, Option<String>) {
    /// What nginx and PHP-FPM take where nothing is said.
    const USUAL_BACKLOG: u32 = 511;
    let backlog = setting.backlog.filter(|backlog| *backlog < USUAL_BACKLOG).map(|_| USUAL_BACKLOG);
    let goal = Goal { endpoint: hop.to.clone(), stays: !request.close_tcp, access: None, backlog };
    let kind = hop.server.as_ref().and_then(|(config, _)| config.kind());
    let new_socket = kind.map(|kind| kind.descriptor().new_socket).unwrap_or_default();
    if request.to == Direction::Tcp || new_socket == NewSocket::Everyone {
        return (goal, None);
    }
    let client = hop.clients.first().map(|client| &client.identity);
    let server = hop.service.and_then(|at| scan.services.get(at)?.pid).and_then(identity);
    let gives = new_socket == NewSocket::Owner;
    let shares = client.is_some_and(|client| {
        let group = server.map(|server| server.gid);
        client.uid == 0 || group.is_some_and(|group| client.gid == group || client.groups.contains(&group))
    });
    let mut note = None;
    let access = match client {
        Some(client) if gives => Access {
            owner: accounts::user_name(client.uid),
            group: accounts::group_name(client.gid),
            mode: 0o660,
        },
        Some(_) if shares => Access { owner: None, group: None, mode: 0o660 },
        _ => {
            note = Some(format!(
                "{} will be open to every user of this machine, as the port is: client and server have no group in common",
                hop.to
            ));
            Access { owner: None, group: None, mode: 0o666 }
        }
    };
    (Goal { access: Some(access), ..goal }, note)
}

/// The files of a configuration after a stage, as far as they differ from those on disk.
fn configuration(config: &ConfigFile, sides: &[&Side<'_>], index: usize) -> Result<Texts, ProposalError> {
    let mut moves = Vec::new();
    let mut texts = Texts::new();
    for side in sides {
        match side.states[index] {
            State::Old => {}
            State::Both => moves.push(one(side, true)),
            State::New => moves.push(one(side, false)),
            State::Copied => {
                let edits =
                    config.editor.transition(&config.file, &config.files(), side.setting, &side.goal)?;
                for edit in edits.into_iter().flatten() {
                    let before = config.files().read(&edit.file).unwrap_or_default();
                    texts.insert(edit.file.clone(), Some(apply(&before, &[&edit])?));
                }
            }
        }
    }
    for proposal in propose(config.editor, &config.file, &config.files(), &moves)? {
        texts.insert(proposal.file, Some(proposal.after));
    }
    Ok(texts)
}

fn one(side: &Side<'_>, stays: bool) -> Move {
    Move { setting: side.setting.clone(), goal: Goal { stays, ..side.goal.clone() } }
}

/// Of the files that a made one may take its text from, the one that the fewest may read: a pool's file may be for fewer
/// than the file that includes it.
fn most_private(sides: &[&Side<'_>]) -> Option<PathBuf> {
    let files = sides.iter().flat_map(|side| [&side.setting.file, &side.config.file]);
    let readable = |path: &&PathBuf| {
        std::fs::metadata(path).map_or(u32::MAX, |found| (found.mode() & 0o077).count_ones())
    };
    files.min_by_key(readable).cloned()
}

/// Brings the files of one configuration from what they were before a stage to what they are after it; whether any
/// changes. What the stage before had changed and this one does not speak of is as it was at first.
fn advance(
    files: &dyn Files,
    now: &mut Texts,
    mut after: Texts,
    like: Option<&Path>,
    stage: &mut PlannedStage,
) -> bool {
    for path in now.keys() {
        if !after.contains_key(path) {
            after.insert(path.clone(), files.read(path).ok());
        }
    }
    let mut any = false;
    for (path, after) in &after {
        let before = now.get(path).cloned().unwrap_or_else(|| files.read(path).ok());
        if before != *after {
            any = true;
            let like = like.filter(|_| before.is_none()).map(Path::to_owned);
            stage.changes.push(Replacement { path: path.clone(), before, after: after.clone(), like });
        }
    }
    *now = after;
    any
}

/// Adds the servers that leave their old place in a stage.
fn leave(
    request: &SwitchRequest,
    scan: &Scan,
    hops: &[Hop],
    sides: &[&Side<'_>],
    index: usize,
    stage: &mut PlannedStage,
) {
    for side in sides.iter().filter(|side| side.setting.role == Role::Listens) {
        let before = index.checked_sub(1).map_or(State::Old, |before| side.states[before]);
        if side.states[index] != State::New || before == State::New {
            continue;
        }
        let from = side.setting.endpoint.clone();
        let clients = hops.iter().filter(|hop| same_port(&hop.setting.endpoint, &from));
        stage.leaves.push(Leaving {
            can_wait: matches!(before, State::Both | State::Copied),
            moved: has_clients(hops, &from),
            restart: clients.into_iter().find_map(|hop| needs_restart(scan, request, hop)),
            to: side.goal.endpoint.clone(),
            from,
        });
    }
}

/// Adds what follows from a change of this configuration: the check, the reload, and what must answer then.
fn finish(
    request: &SwitchRequest,
    scan: &Scan,
    config: &ConfigFile,
    sides: &[&Side<'_>],
    index: usize,
    stage: &mut PlannedStage,
    plan: &mut Plan,
) {
    plan.note(stage.check(config));
    let pid = sides.iter().find_map(|side| side.pid);
    let client = sides.iter().find_map(|side| side.hop.filter(|_| side.setting.role == Role::Connects));
    let taken = match client {
        Some(hop) => client_reload_action(scan, request, hop, pid),
        None => reload_action(scan, config.editor.uptake(), &config.file, pid, &request.reloads),
    };
    match taken {
        ReloadAction::Nothing(note) => plan.note(note),
        ReloadAction::Words { what, command } => {
            if !stage.reloads.iter().any(|(_, other)| *other == command) {
                stage.reloads.push((what, command));
            }
        }
        ReloadAction::Missing { found, remedy } => plan.add([bar("reload", found, remedy)]),
    }
    let listens = sides.iter().filter(|side| side.setting.role == Role::Listens && side.pid.is_some());
    let moved = listens.filter(|side| side.states[index] != State::Old);
    stage.awaits.extend(moved.map(|side| side.goal.endpoint.clone()));
}

/// A path for people.
#[must_use]
pub(crate) fn shown(path: &Path) -> String {
    samehost_model::scan::Address::Path(path.to_owned()).to_string()
}
