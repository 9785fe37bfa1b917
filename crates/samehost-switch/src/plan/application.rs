//! Who will connect: the processes that read a configuration, or the user they run as.

use std::collections::BTreeSet;
use std::path::Path;

use samehost_model::scan::{Process, Scan};
use samehost_scan::{Identity, identity};

use super::server_files;
use super::subject::Subject;
use crate::setting::Uptake;

/// A user that will connect, and a process of theirs where one runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applicant {
    /// A process whose view of the file system and whose rights count.
    pub(crate) pid: Option<u32>,
    /// The one that started it, which has the same view, and outlives a reload.
    pub(crate) parent: Option<u32>,
    /// Who it is.
    pub(crate) identity: Identity,
    /// For people: `php-fpm (www-data)`.
    pub(crate) name: String,
}

impl Applicant {
    /// A process of it that is there now.
    pub(crate) fn present(&self) -> Option<u32> {
        let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
        self.pid.filter(is_there).or(self.parent.filter(is_there))
    }

    /// This program itself, where nobody else is known.
    pub(crate) fn ourselves() -> Self {
        let identity =
            identity(std::process::id()).unwrap_or(Identity { uid: 0, gid: 0, groups: Vec::new() });
        Applicant {
            pid: None,
            parent: None,
            identity,
            name: "this user (no process of the application was seen; --user NAME tries as another)".into(),
        }
    }
}

/// Programs that run PHP at each request.
const PHP: &[&str] = &["php-fpm", "apache", "litespeed", "frankenphp", "php-cgi"];

/// Who will connect because of a configuration; one for each user and view of the file system. `holders` hold a
/// connection to the service now.
pub(crate) fn applicants(scan: &Scan, subject: &Subject, holders: &[u32]) -> Vec<Applicant> {
    let processes: Vec<&Process> = match subject.editor.uptake() {
        Uptake::AtOnce => of_kinds(scan, PHP),
        Uptake::Reload(kind, _) | Uptake::Restart(kind) => {
            let all = of_kinds(scan, &[kind]);
            // Of several such services, the one that this configuration is for.
            let main = server_files::process_of(scan, subject);
            let is_its =
                |process: &&&Process| main.is_some_and(|pid| process.pid == pid || process.parent == pid);
            let its: Vec<&Process> = all.iter().filter(is_its).copied().collect();
            if its.is_empty() { all } else { its }
        }
        Uptake::RestartUnit => {
            let unit = subject.file.file_name().unwrap_or_default().to_string_lossy();
            scan.processes.iter().filter(|process| process.unit.as_deref() == Some(&*unit)).collect()
        }
        Uptake::RestartApplication => {
            let folder = server_files::folder(&subject.file);
            // Not every shell that stands in the directory: who talks to the service, or serves itself.
            let serves = |process: &Process| {
                let own = [process.pid, process.parent];
                scan.services.iter().any(|service| service.pid.is_some_and(|pid| own.contains(&pid)))
            };
            let is_its = |process: &&Process| {
                (holders.contains(&process.pid) || serves(process)) && works_in(process, folder)
            };
            let inside: Vec<&Process> = scan.processes.iter().filter(is_its).collect();
            if inside.is_empty() && folder.join("composer.json").exists() {
                of_kinds(scan, PHP)
            } else {
                inside
            }
        }
    };
    let candidates = if processes.is_empty() {
        scan.processes.iter().filter(|process| holders.contains(&process.pid)).collect()
    } else {
        processes
    };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for process in candidates {
        let Some(identity) = identity(process.pid) else { continue };
        if !seen.insert((identity.uid, identity.gid, identity.groups.clone(), process.mount_namespace)) {
            continue;
        }
        let user = process.user.clone().unwrap_or_else(|| identity.uid.to_string());
        let name = format!("{} ({user})", process.name);
        let parent = Some(process.parent).filter(|pid| scan.process(*pid).is_some());
        found.push(Applicant { pid: Some(process.pid), parent, identity, name });
    }
    found
}

/// The processes of these programs that do the work: not those that others of them descend from.
fn of_kinds<'a>(scan: &'a Scan, kinds: &[&str]) -> Vec<&'a Process> {
    let is_one = |process: &&Process| kinds.iter().any(|kind| is_program(&process.name, kind));
    let all: Vec<&Process> = scan.processes.iter().filter(is_one).collect();
    let parents: BTreeSet<u32> = all.iter().map(|process| process.parent).collect();
    all.into_iter().filter(|process| !parents.contains(&process.pid)).collect()
}

/// Whether a name is a program's, a version (`php-fpm8.2`, `apache2`) or `d` and `-server` behind it allowed.
fn is_program(name: &str, program: &str) -> bool {
    name.strip_prefix(program).is_some_and(|rest| {
        matches!(rest, "" | "d" | "-server") || rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')
    })
}

/// Whether a process works in a directory or below it.
fn works_in(process: &Process, folder: &Path) -> bool {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    std::fs::read_link(format!("/proc/{}/cwd", process.pid)).is_ok_and(|cwd| cwd.starts_with(&real))
}
