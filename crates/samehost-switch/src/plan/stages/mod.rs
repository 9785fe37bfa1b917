//! The stages of a switch, in an order in which everything serves after each: servers also listen at the new place, then
//! clients move, then servers leave the old place. A stage has the files that change, what checks and loads them, and
//! what must answer then. Each computes its text from the original configuration, never from an edited one.
//!
//! A server that can listen at one place only is handled in one of three ways. A copy of it runs beside it for a while
//! (`Editor::transition`), or its clients have both addresses for a while (`Editor::connects_to_both`), or it moves first
//! and there is a gap.

pub(crate) mod follow;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_edit::formats::php_fpm::ends_requests;
use samehost_edit::formats::redis::keeps_nothing;
use samehost_edit::{Access, Files, Goal, Move, ProposalError, Role, Setting, Uptake, apply, propose};
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};
use samehost_scan::services_at;
use samehost_services::{Kind, NewSocket};
use samehost_system::accounts;
use samehost_system::proc::status;
use samehost_transaction::{FileChange, resolve};

use self::follow::{client_reload_action, needs_restart};
use super::hop::Hop;
use crate::check::{Planned, planned};
use crate::configuration::{ConfigFile, ParsedConfig};
use crate::findings::{Findings, bar, in_one_line, shown};
use crate::place::{real, same_port};
use crate::reload::{PlannedReload, ReloadAction, has_no_systemd, reload_action, runs_as};
use crate::request::{Direction, SwitchRequest};

/// A stage: what changes together. Everything serves after it, so that a switch may stop there, and is put back stage by
/// stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedStage {
    pub(crate) title: &'static str,
    pub(crate) changes: Vec<FileChange>,
    /// Commands that check the files.
    pub(crate) checks: Vec<Planned>,
    /// What makes programs load them.
    pub(crate) reloads: Vec<PlannedReload>,
    /// Endpoints that must answer afterwards.
    pub(crate) awaits: Vec<Endpoint>,
    /// New endpoints that servers take in it.
    pub(crate) takes: Vec<Endpoint>,
    /// Servers that leave their old place in it.
    pub(crate) leaves: Vec<Leaving>,
    /// The configurations that change in it, by file and editor.
    pub(crate) of: Vec<(PathBuf, &'static str)>,
    /// Each file that changes, with its configuration: a pool's file is a part of php-fpm.conf.
    pub(crate) parts: Vec<Part>,
}

/// A file that changes, as a part of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) configuration: PathBuf,
    pub(crate) file: PathBuf,
}

impl PlannedStage {
    /// Whether this file changes in it, under whatever name.
    pub(crate) fn changes_file(&self, file: &Path) -> bool {
        let file = real(file);
        self.changes.iter().any(|change| real(&change.path) == file)
    }

    /// Adds the check of a configuration that changes in it, and that this process runs by, or returns a note why the
    /// check is not run.
    pub(crate) fn check(&mut self, scan: &Scan, config: &ConfigFile, pid: Option<u32>) -> Option<String> {
        match planned(scan, config, pid)? {
            Ok(check) => {
                self.checks.push(check);
                None
            }
            Err(not_run) => Some(not_run.to_string()),
        }
    }

    /// Adds what makes a program load its change, once; or returns what is in the way.
    pub(crate) fn reload(&mut self, action: ReloadAction) -> Findings {
        let mut findings = Findings::default();
        match action {
            ReloadAction::Nothing(note) => findings.note(note),
            ReloadAction::Command(reload) => {
                match self.reloads.iter_mut().find(|other| other.command == reload.command) {
                    Some(other) => other.of.extend(reload.of),
                    None => self.reloads.push(reload),
                }
            }
            ReloadAction::Missing { found, remedy } => {
                findings.add([bar(ObstacleCode::Reload, found, remedy)]);
            }
        }
        findings
    }
}

/// What a stage is for, in order.
pub(crate) const TITLES: [&str; 4] = [
    "the server listens at the new place as well",
    "the client moves",
    "the server leaves the old place",
    "the client forgets the old place",
];

/// The stages of a switch, and what was found while they were made.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub(crate) stages: Vec<PlannedStage>,
    pub(crate) findings: Findings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// Where it listens no longer.
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    /// Whether something serves at both places before.
    pub(crate) can_wait: bool,
    /// Whether its clients moved before, so that nobody should still use the old place.
    pub(crate) moved: bool,
    /// A client that has to be restarted first, and that this program does not restart.
    pub(crate) restart: Option<String>,
}

/// The note for a server that can only be at one place.
pub(crate) fn moves_away(from: &Endpoint) -> String {
    format!("the server can be at one place only: it moves, and then nothing answers at {from} any more")
}

/// Contents of files; `None`: missing.
type Texts = BTreeMap<PathBuf, Option<Vec<u8>>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Old,
    /// At the old place, with a copy of itself at the new one.
    Copied,
    Both,
    New,
}

/// The title of the first stage where a server can be at one place only: nothing listens at both.
const MOVES_AWAY: &str = "the server moves to the new place";

fn title(index: usize, changing: &[Changing<'_>]) -> &'static str {
    for side in changing.iter().flat_map(|changing| &changing.sides) {
        let moves_at_once = side.states[0] == State::New && side.setting.role == Role::Listens;
        if index == 0 && moves_at_once {
            return MOVES_AWAY;
        }
    }
    TITLES[index]
}

struct Side<'a> {
    config: &'a ConfigFile,
    setting: &'a Setting,
    goal: Goal,
    pid: Option<u32>,
    /// The move, where it is the client's side.
    client: Option<&'a Hop>,
    /// How far it has moved after each stage.
    states: [State; 4],
}

impl Side<'_> {
    fn state_before(&self, index: usize) -> State {
        if index == 0 { State::Old } else { self.states[index - 1] }
    }
}

struct Changing<'a> {
    scan: &'a Scan,
    config: &'a ConfigFile,
    sides: Vec<&'a Side<'a>>,
    pid: Option<u32>,
    reload: ReloadAction,
}

/// The stages in which these connections move.
pub(crate) fn build(
    request: &SwitchRequest,
    scan: &Scan,
    configurations: &[ParsedConfig],
    hops: &[Hop],
) -> Staged {
    let mut staged = Staged::default();
    let (sides, notes) = sides(request, hops);
    staged.findings.note(notes);
    let changing: Vec<Changing<'_>> =
        configurations.iter().map(|read| Changing::of(request, scan, &read.config, &sides)).collect();
    let mut restarts: Vec<(&Endpoint, String)> = Vec::new();
    for hop in hops {
        if let Some(client) = needs_restart(scan, request, hop) {
            restarts.push((&hop.setting.endpoint, client));
        }
    }
    let mut texts: Vec<Texts> = configurations.iter().map(|_| Texts::new()).collect();
    for index in 0..TITLES.len() {
        match stage(index, &changing, hops, &restarts, &mut texts) {
            Ok((stage, findings)) => {
                staged.findings.merge(findings);
                if !stage.changes.is_empty() {
                    staged.stages.push(stage);
                }
            }
            Err(obstacle) => {
                staged.findings.add([obstacle]);
                staged.stages.clear();
                return staged;
            }
        }
    }
    staged
}

impl<'a> Changing<'a> {
    fn of(request: &SwitchRequest, scan: &'a Scan, config: &'a ConfigFile, sides: &'a [Side<'a>]) -> Self {
        let sides: Vec<&Side<'_>> = sides.iter().filter(|side| side.config.file == config.file).collect();
        let pid = sides.iter().find_map(|side| side.pid);
        let has_server = sides.iter().any(|side| side.setting.role == Role::Listens);
        let reload = match sides.iter().find_map(|side| side.client) {
            Some(hop) if !has_server => client_reload_action(scan, request, hop, pid),
            _ => reload_action(scan, config.editor.uptake(&config.file), &config.file, pid, &request.reloads),
        };
        Changing { scan, config, sides, pid, reload }
    }

    /// Adds to a stage what follows from a change of this configuration: the check, the reload, and what must answer
    /// then.
    fn finish(&self, index: usize, stage: &mut PlannedStage) -> Findings {
        let mut findings = Findings::default();
        stage.of.push((self.config.file.clone(), self.config.editor.name()));
        findings.note(stage.check(self.scan, self.config, self.pid));
        findings.merge(stage.reload(self.reload.clone()));
        findings.note(self.lost());
        for side in self.sides.iter().filter(|side| side.setting.role == Role::Listens) {
            if side.states[index] == State::Old {
                continue;
            }
            if side.state_before(index) == State::Old {
                stage.takes.push(side.goal.endpoint.clone());
                findings.add(self.never_listens(side));
            }
            if side.pid.is_none() {
                continue;
            }
            // A command may return before its server is up, and somebody else may answer at the new place: who is at the old one
            // again has started.
            let from = &side.setting.endpoint;
            if side.states[index] != State::New && !services_at(self.scan, from).is_empty() {
                stage.awaits.push(from.clone());
            }
            stage.awaits.push(side.goal.endpoint.clone());
        }
        findings
    }

    /// What is lost as the server takes its change: requests that are under way, or all that it has.
    fn lost(&self) -> Option<String> {
        let (file, files) = (&self.config.file, self.config.files());
        match (self.config.editor.uptake(file), &self.reload) {
            (Uptake::Reload(Kind::PhpFpm), ReloadAction::Command(_)) if ends_requests(file, &files) => {
                Some(format!(
                    "{}: a reload of this PHP-FPM ends the requests that it serves at that moment, and their visitors get 502; with process_control_timeout = 10s in [global] of its main file they are finished first",
                    file.display()
                ))
            }
            (Uptake::Restart(kind), _) if self.pid.is_some() => {
                let is_kept = match kind.family() {
                    Kind::Memcached => false,
                    Kind::Redis => !keeps_nothing(file, &files),
                    _ => true,
                };
                (!is_kept).then(|| {
                    format!("{} keeps nothing on disk: what it has is gone after its restart", kind.label())
                })
            }
            _ => None,
        }
    }

    /// What is in the way where the server of a unit runs and nothing makes it take its change: nobody would ever
    /// listen at the new place. What another root's unit starts is not what runs here.
    fn never_listens(&self, side: &Side<'_>) -> Option<SwitchObstacle> {
        let ReloadAction::Nothing(Some(note)) = &self.reload else { return None };
        if !has_no_systemd(&self.config.file) {
            return None;
        }
        let (pid, to) = (side.pid?, &side.goal.endpoint);
        let kind = match runs_as(self.scan, pid) {
            Some(kind) => format!("{kind}="),
            None => String::new(),
        };
        let what = format!("process {pid} has to listen at {to} before its clients move there, and {note}");
        Some(bar(
            ObstacleCode::Reload,
            what,
            format!("Say how it takes the change: --reload '{kind}COMMAND'"),
        ))
    }
}

/// One stage, possibly without changes. `restarts`: clients that this program does not restart, and where they connect
/// to.
fn stage(
    index: usize,
    changing: &[Changing<'_>],
    hops: &[Hop],
    restarts: &[(&Endpoint, String)],
    texts: &mut [Texts],
) -> Result<(PlannedStage, Findings), SwitchObstacle> {
    let mut stage = PlannedStage { title: title(index, changing), ..PlannedStage::default() };
    let mut findings = Findings::default();
    for (changing, texts) in changing.iter().zip(texts) {
        let Changing { config, sides, .. } = changing;
        let after = configuration(config, sides, index).map_err(|error| refused(config, error))?;
        let changes = advance(&config.files(), texts, after, most_private(sides).as_deref());
        if !changes.is_empty() {
            for change in &changes {
                let part = Part { configuration: config.file.clone(), file: change.path.clone() };
                stage.parts.push(part);
            }
            stage.changes.extend(changes);
            stage.leaves.extend(leaving(index, sides, hops, restarts));
            findings.merge(changing.finish(index, &mut stage));
        }
    }
    for change in &stage.changes {
        if stage.changes.iter().filter(|other| other.path == change.path).count() > 1 {
            return Err(bar(
                ObstacleCode::SameFile,
                format!("two of the configurations change {}", shown(&change.path)),
                "Switch one after the other",
            ));
        }
    }
    for change in &mut stage.changes {
        match resolve(&change.path) {
            Ok(path) => change.path = path,
            Err(error) => findings.add([bar(ObstacleCode::File, error.to_string(), "")]),
        }
    }
    Ok((stage, findings))
}

fn refused(config: &ConfigFile, error: ProposalError) -> SwitchObstacle {
    match error {
        ProposalError::Refused(refusal) => {
            bar(ObstacleCode::NotUnderstood, in_one_line(&refusal), refusal.by_hand)
        }
        other => bar(
            ObstacleCode::NotUnderstood,
            other.to_string(),
            format!("Edit {} by hand; samehost how SERVICE has the words", config.file.display()),
        ),
    }
}

/// Everything that changes, with its state after each stage.
fn sides<'a>(request: &SwitchRequest, hops: &'a [Hop]) -> (Vec<Side<'a>>, Vec<String>) {
    let (mut sides, mut notes): (Vec<Side<'a>>, Vec<String>) = Default::default();
    for hop in hops {
        let mut client = [State::Old, State::New, State::New, State::New];
        if let Some((config, setting)) = &hop.server_line {
            let (goal, note) = server_goal(request, hop, setting);
            notes.extend(note);
            if let (Direction::Unix, Some(kind)) = (request.to, hop.server.kind) {
                notes.extend(kind.descriptor().about_socket.clone());
            }
            let (server, gap) = server_states(request, hop, config, setting, &goal, &mut client);
            notes.extend(gap);
            if sides.iter().all(|side| side.config.file != config.file || side.setting != setting) {
                let pid = hop.server.pid;
                sides.push(Side { config, setting, goal, pid, client: None, states: server });
            }
        }
        if hop.setting.role == Role::Connects {
            sides.push(Side {
                config: &hop.config,
                setting: &hop.setting,
                goal: Goal::client(hop.to.clone()),
                pid: hop.client.process,
                client: Some(hop),
                states: client,
            });
        }
    }
    (sides, notes)
}

/// How far a server has moved after each stage, with notes where it cannot be at both places. Of the ways in the head
/// of this file, the first that its editor knows counts. One in which the client has both addresses changes the
/// client's states too.
fn server_states(
    request: &SwitchRequest,
    hop: &Hop,
    config: &ConfigFile,
    setting: &Setting,
    goal: &Goal,
    client: &mut [State; 4],
) -> ([State; 4], Vec<String>) {
    let editor = config.editor;
    if editor.listens_on_both() {
        let last = if request.close_tcp { State::New } else { State::Both };
        return ([State::Both, State::Both, last, last], Vec::new());
    }
    let mut notes = vec![moves_away(&setting.endpoint)];
    if let Ok(Some(_)) = editor.transition(&config.file, &config.files(), setting, goal) {
        return ([State::Copied, State::Copied, State::New, State::New], notes);
    }
    let has_client = hop.setting.role == Role::Connects;
    if has_client && hop.config.editor.connects_to_both(&hop.setting) {
        *client = [State::Old, State::Both, State::Both, State::New];
        return ([State::Old, State::Old, State::New, State::New], notes);
    }
    if has_client {
        notes.push(format!(
            "between the restart of {} and that of its client nothing is served",
            hop.server.kind.map_or(editor.about(), Kind::label)
        ));
    }
    ([State::New; 4], notes)
}

/// Permissions of a server's new socket: for the client alone, if the server can give it away or shares a group with
/// it; else for everyone here, as with the port.
fn server_goal(request: &SwitchRequest, hop: &Hop, setting: &Setting) -> (Goal, Option<String>) {
    /// Default backlog of nginx and PHP-FPM.
    const USUAL_BACKLOG: u32 = 511;
    let backlog = match setting.backlog {
        Some(backlog) if backlog < USUAL_BACKLOG => Some(USUAL_BACKLOG),
        _ => None,
    };
    let goal = Goal { endpoint: hop.to.clone(), stays: !request.close_tcp, access: None, backlog };
    let mut new_socket = NewSocket::default();
    if let Some((config, _)) = &hop.server_line
        && let Some(kind) = config.kind()
    {
        new_socket = kind.descriptor().new_socket;
    }
    if request.to == Direction::Tcp || new_socket == NewSocket::Everyone {
        return (goal, None);
    }
    let client = hop.client.identities.first().map(|client| &client.identity);
    let server = hop.server.pid.and_then(status::read);
    let gives = new_socket == NewSocket::Owner;
    let shares = match (client, server) {
        (Some(client), _) if client.uid == 0 => true,
        (Some(client), Some(server)) => client.gid == server.gid || client.groups.contains(&server.gid),
        _ => false,
    };
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

/// The files of a configuration after a stage, if they differ from those on disk.
///
/// The text after a stage is computed from the original text and not from that of the stage before,
/// although several stages change the same file. So every version is known before the first one is
/// written, and each can be prepared, shown and hashed beforehand.
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

/// The most private of the files that a new file may take its text from: a pool's file may be readable by fewer users
/// than the file that includes it.
fn most_private(sides: &[&Side<'_>]) -> Option<PathBuf> {
    let files = sides.iter().flat_map(|side| [&side.setting.file, &side.config.file]);
    files.min_by_key(|path| others_bits(path)).cloned()
}

/// How many of the permissions of others and of the group a file gives; the most where that is not to be seen.
fn others_bits(path: &Path) -> u32 {
    match std::fs::metadata(path) {
        Ok(found) => (found.mode() & 0o077).count_ones(),
        Err(_) => u32::MAX,
    }
}

/// Advances the files of one configuration to their state after a stage; returns the changes. A file that the stage
/// before changed and this one does not mention returns to its original content.
fn advance(files: &dyn Files, now: &mut Texts, mut after: Texts, like: Option<&Path>) -> Vec<FileChange> {
    for path in now.keys() {
        if !after.contains_key(path) {
            after.insert(path.clone(), files.read(path).ok());
        }
    }
    let mut changes = Vec::new();
    for (path, after) in &after {
        let before = match now.get(path) {
            Some(before) => before.clone(),
            None => files.read(path).ok(),
        };
        if before != *after {
            let like = if before.is_none() { like.map(Path::to_owned) } else { None };
            changes.push(FileChange { path: path.clone(), before, after: after.clone(), like });
        }
    }
    *now = after;
    changes
}

/// The servers of one configuration that leave their old place in a stage.
fn leaving(
    index: usize,
    sides: &[&Side<'_>],
    hops: &[Hop],
    restarts: &[(&Endpoint, String)],
) -> Vec<Leaving> {
    let mut leaving = Vec::new();
    for side in sides.iter().filter(|side| side.setting.role == Role::Listens) {
        let before = side.state_before(index);
        if side.states[index] != State::New || before == State::New {
            continue;
        }
        let from = side.setting.endpoint.clone();
        let restart = restarts.iter().find(|(at, _)| same_port(at, &from));
        leaving.push(Leaving {
            can_wait: matches!(before, State::Both | State::Copied),
            moved: has_clients(hops, &from),
            restart: restart.map(|(_, client)| client.clone()),
            to: side.goal.endpoint.clone(),
            from,
        });
    }
    leaving
}

pub(crate) fn has_clients(hops: &[Hop], from: &Endpoint) -> bool {
    hops.iter().any(|hop| hop.setting.role == Role::Connects && same_port(&hop.setting.endpoint, from))
}
