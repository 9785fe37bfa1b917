//! Programs beside the application that read the same file: those that have it in their command line, in their
//! environment, or open. A companion in another language (a push daemon, a backup script) parses host and port by
//! itself, and fails at its next start where it finds a socket; nobody thinks of it, because the application works.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use samehost_edit::Role;
use samehost_model::ObstacleCode;
use samehost_model::scan::{Process, Scan};
use samehost_model::switch::SwitchObstacle;
use samehost_system::accounts::Names;
use samehost_system::open;
use samehost_system::proc::{own_ancestry, pids, process};

use crate::findings::shown;
use crate::place::real;
use crate::plan::hop::Hop;
use crate::plan::stages::PlannedStage;

/// How much of a process's environment is read, in bytes.
const LARGEST_ENVIRONMENT: u64 = 1 << 20;
/// How many descriptors of a process are looked at.
const MOST_DESCRIPTORS: usize = 4096;
/// Programs that look at any file and make nothing of it.
const ONLOOKERS: &[&str] = &[
    "bash", "sh", "dash", "zsh", "fish", "vim", "vi", "nano", "emacs", "less", "more", "tail", "cat", "sudo",
    "su", "ssh", "sshd", "tmux", "screen", "watch", "cargo",
];

/// How a process comes to read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    CommandLine,
    Environment,
    Open,
}

impl Reads {
    fn in_words(self) -> &'static str {
        match self {
            Reads::CommandLine => "in its command line",
            Reads::Environment => "in its environment",
            Reads::Open => "open",
        }
    }
}

/// The second readers of the files that move, each named once. They bar nothing: TCP stays open for them.
pub(super) fn find(scan: &Scan, hops: &[Hop], stages: &[PlannedStage]) -> Vec<SwitchObstacle> {
    let mut found: Vec<SwitchObstacle> = Vec::new();
    let files = files(hops, stages);
    if files.is_empty() {
        return found;
    }
    let own = own_ancestry();
    // All of them: a scan has only those with sockets. Most are told apart by their command line and environment alone, so
    // that little more is read of each.
    let users = Names::of_users();
    let all: Vec<u32> = pids().into_iter().filter(|pid| !own.contains(pid)).collect();
    for (file, moves) in &files {
        let known: BTreeSet<u32> = moves.iter().flat_map(|hop| known(hop)).collect();
        for pid in all.iter().filter(|pid| !known.contains(pid)) {
            let Some(how) = reads(*pid, file) else { continue };
            let Some(process) = process(*pid, &users) else { continue };
            let is_its = known.contains(&process.parent) || is_of_the_application(&process, file);
            if !is_its && !is_onlooker(&process) {
                found.push(as_obstacle(scan, &process, file, how, moves));
            }
        }
    }
    found
}

/// The files that change, each with the moves in it.
fn files<'a>(hops: &'a [Hop], stages: &[PlannedStage]) -> Vec<(PathBuf, Vec<&'a Hop>)> {
    let mut files: Vec<(PathBuf, Vec<&Hop>)> = Vec::new();
    let changed: Vec<PathBuf> =
        stages.iter().flat_map(|stage| &stage.changes).map(|change| real(&change.path)).collect();
    for hop in hops.iter().filter(|hop| hop.setting.role == Role::Connects) {
        let file = real(&hop.setting.file);
        if !changed.contains(&file) {
            continue;
        }
        match files.iter_mut().find(|(other, _)| *other == file) {
            Some((_, moves)) => moves.push(hop),
            None => files.push((file, vec![hop])),
        }
    }
    files
}

/// The processes of the application itself.
fn known(hop: &Hop) -> Vec<u32> {
    let mut known = hop.client.application.pids();
    known.extend(hop.client.process);
    for client in &hop.client.identities {
        known.extend([client.pid, client.parent].into_iter().flatten().filter(|pid| *pid > 1));
    }
    known.extend(hop.server.pid);
    known
}

fn is_onlooker(process: &Process) -> bool {
    let program = process.executable.as_deref().unwrap_or(&process.name);
    let name = program.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or_default();
    ONLOOKERS.contains(&name) || name.starts_with("samehost")
}

/// Whether a process runs the same language as the application, which then reads the file as the application does.
fn is_of_the_application(process: &Process, file: &Path) -> bool {
    let program = process.executable.as_deref().unwrap_or(&process.name);
    let name = program.rsplit('/').next().unwrap_or_default();
    file.extension() == Some(OsStr::new("php")) && name.starts_with("php")
}

/// How a process comes to read a file; `None` where nothing shows that it does.
fn reads(pid: u32, file: &Path) -> Option<Reads> {
    let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    for word in text_of(pid, "cmdline").split('\0').skip(1) {
        if is_named(word, file, &directory) {
            return Some(Reads::CommandLine);
        }
    }
    for pair in text_of(pid, "environ").split('\0') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        // A shell leaves the last argument of its last command in `_`.
        if name != "_" && name != "OLDPWD" && is_named(value, file, &directory) {
            return Some(Reads::Environment);
        }
    }
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    for descriptor in descriptors.flatten().take(MOST_DESCRIPTORS) {
        if matches!(std::fs::read_link(descriptor.path()), Ok(path) if path == file) {
            return Some(Reads::Open);
        }
    }
    None
}

/// Whether a word, or what is behind its last `=`, leads a process in this directory to a file.
fn is_named(word: &str, file: &Path, directory: &Path) -> bool {
    let path = word.rsplit('=').next().unwrap_or(word);
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or("/");
    path.len() > 1 && path.ends_with(name) && real(&directory.join(path)) == file
}

fn text_of(pid: u32, name: &str) -> String {
    let bytes = open::proc_file(&format!("/proc/{pid}/{name}"), LARGEST_ENVIRONMENT).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn as_obstacle(scan: &Scan, process: &Process, file: &Path, how: Reads, moves: &[&Hop]) -> SwitchObstacle {
    let mut talks: Vec<String> = Vec::new();
    for hop in moves {
        if talks_to(scan, process, hop) {
            talks.push(hop.setting.endpoint.to_string());
        }
    }
    let user = match &process.user {
        Some(user) => user.clone(),
        None => process.uid.to_string(),
    };
    let who = format!("{} {} ({user})", process.titled(), process.pid);
    let talking =
        if talks.is_empty() { String::new() } else { format!(", and talks to {}", talks.join(" and ")) };
    let sockets: Vec<String> = moves.iter().map(|hop| hop.to.to_string()).collect();
    SwitchObstacle {
        code: ObstacleCode::SecondReader,
        bars: false,
        found: format!(
            "{who} has {} {}{talking}. It is another program than the one that is moved: whether it takes {} for an address is not known, and it finds out at its next start",
            shown(file),
            how.in_words(),
            sockets.join(" and ")
        ),
        remedy: format!(
            "Start {} once by hand with the changed file before you rely on it, or give it a file of its own with the old address; do not close TCP while it needs it",
            process.name
        ),
    }
}

fn talks_to(scan: &Scan, process: &Process, hop: &Hop) -> bool {
    for connection in &scan.connections {
        let is_to_it = connection.service.is_some() && connection.service == hop.server.service;
        if !is_to_it || !connection.kind.is_tcp() {
            continue;
        }
        if let Some(socket) = scan.sockets.get(connection.client)
            && socket.pids.contains(&process.pid)
        {
            return true;
        }
    }
    false
}
