//! What follows from a file that moves. Which of its variables move is read from the file before and after the stages
//! (`.env`), by [`moved_by`].
//!
//! A pool of PHP-FPM that sets the same variables to the same values goes before the file, and is changed with it as one
//! transaction. Its file was named by nobody but its operator: without a person it changes only where it was named, or where
//! `--accept other-files` says so, as every other file (decision 129). What cannot be written there stays an obstacle, and so does
//! another value (the pool's `/3` became the `/1` of `.env`: another database) and a pool that serves other sites, which read the
//! variable as well (a page that takes host and port from it ended with 500). To take the line out instead was rejected: a pool's
//! variable is there on purpose, often so that the file may lack it.
//!
//! The program that reads the file has to load the change: by a reload, or by a restart that only a person can make.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use samehost_edit::formats::php_fpm::{HandedKind, handed_on};
use samehost_edit::{Edit, Files, Overlay, Role, Uptake, apply};
use samehost_model::ObstacleCode;
use samehost_model::scan::{Process, Scan};
use samehost_model::switch::SwitchObstacle;
use samehost_services::Kind;
use samehost_transaction::FileChange;

use super::{Part, PlannedStage};
use crate::configuration::server_files;
use crate::findings::{Findings, shown};
use crate::place::real;
use crate::plan::client::{Master, Revalidation, Variables};
use crate::plan::hop::Hop;
use crate::reload::{ReloadAction, ReloadCommand, UnitVerb, reload_action, systemd_runs};
use crate::request::SwitchRequest;

/// Has the pools that set a variable which moves say the same, in the stage in which the file changes.
pub(crate) fn follow(
    request: &SwitchRequest,
    scan: &Scan,
    hops: &[Hop],
    stages: &mut [PlannedStage],
) -> Findings {
    let mut findings = Findings::default();
    for hop in hops {
        let moved = moved_by(hop, stages);
        if moved.is_empty() || other_site(hop).is_some() {
            continue;
        }
        let (before, _) = texts(hop, stages);
        for master in hop.client.masters.iter().filter(|master| says_the_same(master, &before, &moved)) {
            findings.merge(pools(request, scan, hop, master, &moved, stages));
        }
    }
    findings
}

/// A site that the pools of an application serve as well.
pub(crate) fn other_site(hop: &Hop) -> Option<&Path> {
    let own = server_files::project(&hop.setting.file);
    let mut served = hop.client.application.beside.iter();
    served.find(|root| !root.starts_with(&own) && !own.starts_with(root)).map(PathBuf::as_path)
}

/// Whether the pools give the variables that move what the file gives them, before or after.
fn says_the_same(master: &Master, before: &Variables, moved: &Variables) -> bool {
    master.handed().iter().all(|one| {
        let HandedKind::Variable(name) = &one.what else { return true };
        let Some(new) = moved.get(name) else { return true };
        one.value.as_ref().is_some_and(|value| value == new || before.get(name) == Some(value))
    })
}

fn pools(
    request: &SwitchRequest,
    scan: &Scan,
    hop: &Hop,
    master: &Master,
    moved: &Variables,
    stages: &mut [PlannedStage],
) -> Findings {
    let mut findings = Findings::default();
    let files = master.config.files();
    let edits = handed_on(&master.config.file, &files, &master.pools, moved);
    let Some(texts) = edited(&files, &edits) else { return findings };
    if texts.is_empty() {
        return findings;
    }
    let mut after = BTreeMap::new();
    for (path, text) in &texts {
        after.insert(path.clone(), text.after.clone());
    }
    // The pools must say what was asked, and of everything else the same.
    if !master.says(&Overlay::new(&files, after), moved) {
        return findings;
    }
    let Some(stage) = stages.iter_mut().rev().find(|stage| stage.changes_file(&hop.setting.file)) else {
        return findings;
    };
    if texts.keys().any(|path| stage.changes_file(path)) {
        return findings;
    }
    findings.add(as_obstacles(hop, master, moved));
    for (path, Changed { before, after }) in texts {
        stage.of.push((path.clone(), "php-fpm"));
        stage.parts.push(Part { configuration: path.clone(), file: path.clone() });
        stage.changes.push(FileChange {
            path: real(&path),
            before: Some(before),
            after: Some(after),
            like: None,
        });
    }
    findings.note(stage.check(scan, &master.config, Some(master.pid)));
    let file = &master.config.file;
    let action = reload_action(scan, Uptake::Reload(Kind::PhpFpm), file, Some(master.pid), &request.reloads);
    findings.merge(stage.reload(action));
    findings
}

fn as_obstacles(hop: &Hop, master: &Master, moved: &Variables) -> Vec<SwitchObstacle> {
    let mut obstacles = Vec::new();
    for one in master.handed() {
        let HandedKind::Variable(name) = &one.what else { continue };
        let Some(new) = moved.get(name) else { continue };
        if one.value.as_ref() == Some(new) {
            continue;
        }
        obstacles.push(SwitchObstacle {
            code: ObstacleCode::EffectiveValue,
            bars: false,
            found: format!(
                "pool {} of PHP-FPM {} sets {name} ({}:{}), and that goes before {}: that line is changed as well, and PHP-FPM is reloaded",
                one.pool,
                master.pid,
                shown(&one.file),
                one.line,
                shown(&hop.setting.file)
            ),
            remedy: String::new(),
        });
    }
    obstacles
}

struct Changed {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Each file with its text before and after; `None` where the edits do not fit.
fn edited(files: &dyn Files, edits: &[Edit]) -> Option<BTreeMap<PathBuf, Changed>> {
    let mut texts = BTreeMap::new();
    for edit in edits {
        if texts.contains_key(&edit.file) {
            continue;
        }
        let before = files.read(&edit.file).ok()?;
        let own: Vec<&Edit> = edits.iter().filter(|other| other.file == edit.file).collect();
        let after = apply(&before, &own).ok()?;
        texts.insert(edit.file.clone(), Changed { before, after });
    }
    Some(texts)
}

/// The variables that get another value by a move, in a file to which the environment goes before; with that value.
pub(crate) fn moved_by(hop: &Hop, stages: &[PlannedStage]) -> Variables {
    if hop.setting.role != Role::Connects || hop.config.editor.name() != "dotenv" {
        return Variables::new();
    }
    let (before, after) = texts(hop, stages);
    changed(&before, &after)
}

/// The variables of a move's file before the first stage that changes it, and after the last.
pub(crate) fn texts(hop: &Hop, stages: &[PlannedStage]) -> (Variables, Variables) {
    let file = real(&hop.setting.file);
    let (mut before, mut after) = (None, None);
    for change in stages.iter().flat_map(|stage| &stage.changes) {
        if real(&change.path) == file {
            before = before.or_else(|| change.before.clone());
            after.clone_from(&change.after);
        }
    }
    (assignments(before.as_deref().unwrap_or_default()), assignments(after.as_deref().unwrap_or_default()))
}

/// The assignments of a text, as any program that reads such a file understands the simple ones.
pub(crate) fn assignments(text: &[u8]) -> Variables {
    let mut found = Variables::new();
    for line in String::from_utf8_lossy(text).lines() {
        let line = line.trim().trim_start_matches("export ");
        let Some((name, value)) = line.split_once('=') else { continue };
        if line.starts_with('#') {
            continue;
        }
        let value = value.trim().trim_matches(['"', '\'']);
        found.insert(name.trim().to_owned(), value.to_owned());
    }
    found
}

/// The variables that get another value, with that value; one that goes has an empty one.
pub(crate) fn changed(before: &Variables, after: &Variables) -> Variables {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut moved = Variables::new();
    for name in names {
        if before.get(name) != after.get(name) {
            moved.insert(name.clone(), after.get(name).cloned().unwrap_or_default());
        }
    }
    moved
}

/// How the program of a client's configuration loads a change: an application restarts with its own unit, if systemd
/// runs it.
pub(crate) fn client_reload_action(
    scan: &Scan,
    request: &SwitchRequest,
    hop: &Hop,
    pid: Option<u32>,
) -> ReloadAction {
    if let Some(reload) = reload_of_php(scan, request, hop) {
        return reload;
    }
    let uptake = hop.config.editor.uptake(&hop.config.file);
    // A file that a server has to be started again for ends no server where its clients' lines alone change: each of them reads
    // `[client]` of my.cnf as it starts, and the switch asked for a restart of MariaDB.
    if matches!(uptake, Uptake::Restart(_)) {
        return ReloadAction::Nothing(None);
    }
    let found = reload_action(scan, uptake, &hop.config.file, pid, &request.reloads);
    if let (ReloadAction::Nothing(Some(_)), Uptake::RestartApplication) = (&found, uptake)
        && let Some(unit) = unit_of(scan, hop)
        && systemd_runs()
    {
        let what = format!("systemctl restart {unit}, the application's own unit");
        return ReloadAction::command(what, ReloadCommand::Unit { verb: UnitVerb::Restart, unit });
    }
    // "Restart the application" stood below "the application uses the Unix socket now", of PHP behind PHP-FPM.
    let all = processes(scan, hop);
    match found {
        ReloadAction::Nothing(Some(_)) if !all.is_empty() && all.into_iter().all(reads_at_each_request) => {
            ReloadAction::Nothing(None)
        }
        found => found,
    }
}

/// Whether the client of a move reads its file at its start, and this program does not start it again.
fn is_left_to_a_person(scan: &Scan, request: &SwitchRequest, hop: &Hop) -> bool {
    hop.setting.role == Role::Connects
        && hop.config.editor.uptake(&hop.config.file) == Uptake::RestartApplication
        && matches!(client_reload_action(scan, request, hop, None), ReloadAction::Nothing(_))
}

/// Whether an application takes a change only when somebody starts it again. PHP takes it at its next request.
pub(crate) fn awaits_restart(scan: &Scan, request: &SwitchRequest, hop: &Hop) -> bool {
    let its = hop.client.application.pids().into_iter().filter_map(|pid| scan.process(pid));
    let is_phps = its.chain(processes(scan, hop)).any(reads_at_each_request);
    !is_phps && is_left_to_a_person(scan, request, hop)
}

/// The client of a move that uses the old place until it is restarted, if this program does not restart it.
pub(crate) fn needs_restart(scan: &Scan, request: &SwitchRequest, hop: &Hop) -> Option<String> {
    if !is_left_to_a_person(scan, request, hop) {
        return None;
    }
    let running = processes(scan, hop).into_iter().find(|process| !reads_at_each_request(process))?;
    Some(format!("{} {}", running.name, running.pid))
}

/// The single unit that runs all clients of a move.
fn unit_of(scan: &Scan, hop: &Hop) -> Option<String> {
    let mut found = None;
    for process in processes(scan, hop) {
        let unit = process.unit.as_ref()?;
        let is_applications = !reads_at_each_request(process) && process.container.is_none();
        if !is_applications || !unit.ends_with(".service") {
            return None;
        }
        match found {
            Some(other) if other != unit => return None,
            _ => found = Some(unit),
        }
    }
    found.cloned()
}

fn processes<'a>(scan: &'a Scan, hop: &Hop) -> Vec<&'a Process> {
    hop.client.identities.iter().filter_map(|client| scan.process(client.pid?)).collect()
}

/// PHP starts anew with each request; a script that it runs by itself does not.
fn reads_at_each_request(process: &Process) -> bool {
    let is_alone = process.name.starts_with("php") && !process.name.contains(['-', 'c']);
    if is_alone && !process.command_line.iter().any(|word| word == "-S") {
        return false;
    }
    ["php", "apache", "litespeed", "lsphp", "frankenphp"].iter().any(|name| process.name.starts_with(name))
}

/// What has PHP take a change that it would not see by itself; `None` where it looks at its files.
fn reload_of_php(scan: &Scan, request: &SwitchRequest, hop: &Hop) -> Option<ReloadAction> {
    if hop.config.editor.uptake(&hop.config.file) != Uptake::AtOnce {
        return None;
    }
    let Some(Revalidation::Never { master, file, .. }) = &hop.client.revalidation else { return None };
    let uptake = Uptake::Reload(Kind::PhpFpm);
    Some(reload_action(scan, uptake, file, Some(*master), &request.reloads))
}
