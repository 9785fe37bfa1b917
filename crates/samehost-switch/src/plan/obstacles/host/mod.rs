//! Checks of the machine around a plan: the next boot, a crash, other machines that read the same files, programs that
//! write them again. Only looks.

pub(crate) mod files;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use samehost_edit::Role;
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};
use samehost_services::Kind;
use samehost_system::open;

use crate::findings::{bar, shown};
use crate::plan::hop::Hop;
use crate::plan::stages::PlannedStage;

/// Obstacles that a person who sees them may accept; unattended, `--accept CODE` does.
pub(crate) const FOR_A_PERSON: [ObstacleCode; 2] = [ObstacleCode::Managed, ObstacleCode::SharedFiles];

pub(crate) fn look(scan: &Scan, hops: &[Hop], stages: &[PlannedStage]) -> Vec<SwitchObstacle> {
    let files = edited(stages);
    let mut processes: Vec<u32> = Vec::new();
    for hop in hops {
        processes.extend(hop.client.identities.iter().filter_map(|client| client.pid));
        processes.extend(hop.server.pid);
    }
    let mut obstacles = lost_directories(scan, hops);
    obstacles.extend(stale_sockets(hops));
    for file in &files {
        obstacles.extend(files::mounted_by_itself(file, &processes));
        obstacles.extend(files::shared_by_machines(file));
        obstacles.extend(managed(file));
        obstacles.extend(files::open_in_editor(file));
    }
    obstacles
}

/// Existing files that change.
fn edited(stages: &[PlannedStage]) -> Vec<PathBuf> {
    let changes = stages.iter().flat_map(|stage| &stage.changes);
    let mut files: Vec<PathBuf> =
        changes.filter(|change| change.before.is_some()).map(|change| change.path.clone()).collect();
    files.sort();
    files.dedup();
    files.retain(|file| file.is_file());
    files
}

fn note(code: ObstacleCode, found: String, remedy: impl Into<String>) -> SwitchObstacle {
    SwitchObstacle { bars: false, ..bar(code, found, remedy) }
}

/// File system type of a path, as in statfs; `None` if it cannot be determined.
#[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the type differs between architectures")]
fn file_system(path: &Path) -> Option<u64> {
    // On some architectures it is signed, and 32 bits wide.
    Some(rustix::fs::statfs(path).ok()?.f_type as u64 & 0xffff_ffff)
}

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// Directories of units and of tmpfiles.d, in order of precedence.
const UNITS: &[&str] = &[
    "etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
    "lib/systemd/system",
];

const TMPFILES: &[&str] =
    &["etc/tmpfiles.d", "run/tmpfiles.d", "usr/local/lib/tmpfiles.d", "usr/lib/tmpfiles.d"];

/// New sockets of the plan whose directory is not created at boot: on a tmpfs it is gone then, and a server that cannot
/// create its socket does not start at all, not even on its port. So its unit or a line of tmpfiles.d has to create the
/// directory.
fn lost_directories(scan: &Scan, hops: &[Hop]) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    for hop in hops {
        let (Some((config, _)), Endpoint::Unix(socket)) = (&hop.server_line, &hop.to) else { continue };
        let folder = socket.parent().unwrap_or(Path::new("/"));
        let Some(TMPFS | RAMFS) = file_system(folder) else { continue };
        let process = hop.server.pid.and_then(|pid| scan.process(pid));
        let unit = process.and_then(|process| process.unit.as_deref());
        if is_made_again(Path::new("/"), folder, unit) {
            continue;
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let what = format!(
            "{} is on a tmpfs, and gone after the next boot: {} could not make its socket there, and would not start",
            shown(folder),
            hop.server.name.as_deref().or(config.kind().map(Kind::name)).unwrap_or("the server")
        );
        let remedy = format!(
            "Have its unit make it: systemctl edit {}, [Service] RuntimeDirectory={}; or a line `d {} 0755 USER GROUP -` in /etc/tmpfiles.d/{name}.conf. Where an init script or a container's start makes it: --accept boot",
            unit.unwrap_or("UNIT"),
            runtime_name(folder).unwrap_or(name.clone()),
            shown(folder)
        );
        found.push(bar(ObstacleCode::Boot, what, remedy));
    }
    found
}

/// New sockets of servers that do not remove the socket of a killed predecessor, and then do not start. nginx is one:
/// bind() fails with "Address already in use", and everything that it serves is down.
fn stale_sockets(hops: &[Hop]) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    for hop in hops {
        let (Some((config, setting)), Endpoint::Unix(socket)) = (&hop.server_line, &hop.to) else { continue };
        if setting.role != Role::Listens || config.kind() != Some(Kind::Nginx) {
            continue;
        }
        let socket = shown(socket);
        found.push(note(
            ObstacleCode::Crash,
            format!(
                "when nginx is killed (kill -9, out of memory) it leaves {socket} behind, and does not start until that is removed"
            ),
            format!("Have its unit remove it first: systemctl edit nginx, [Service] ExecStartPre=-/bin/rm -f {socket}"),
        ));
    }
    found
}

/// The name of a directory below /run, as RuntimeDirectory= has it.
fn runtime_name(folder: &Path) -> Option<String> {
    for run in ["/run", "/var/run"] {
        if let Ok(below) = folder.strip_prefix(run) {
            let name = below.to_str()?;
            return if name.is_empty() { None } else { Some(name.to_owned()) };
        }
    }
    None
}

/// Whether a directory exists after a boot: created by the system itself, the server's unit, or tmpfiles.d. If the
/// server's unit is unknown, any unit counts.
fn is_made_again(root: &Path, folder: &Path, unit: Option<&str>) -> bool {
    let always = ["/run", "/var/run", "/dev/shm", "/tmp", "/run/lock", "/run/shm"];
    if always.iter().any(|path| folder == Path::new(path)) || folder.starts_with("/run/user") {
        return true;
    }
    for (_, text) in texts(root, TMPFILES, |name| name.ends_with(".conf")) {
        if text.lines().any(|line| makes(line, folder)) {
            return true;
        }
    }
    let Some(wanted) = runtime_name(folder) else { return false };
    let units = match unit {
        Some(unit) => texts(root, UNITS, |name| is_of(name, unit)),
        None => texts(root, UNITS, |_| true),
    };
    units.iter().any(|(_, text)| has_runtime_directory(text, &wanted))
}

/// Whether a unit has a directory created below /run: `RuntimeDirectory=redis/a` creates `redis` too, and `redis:link` also
/// creates a link.
fn has_runtime_directory(unit: &str, wanted: &str) -> bool {
    for line in unit.lines() {
        let Some(names) = line.trim().strip_prefix("RuntimeDirectory=") else { continue };
        for name in names.split_whitespace() {
            let name = name.split(':').next().unwrap_or(name);
            if Path::new(name).starts_with(wanted) {
                return true;
            }
        }
    }
    false
}

/// Whether a line of tmpfiles.d creates a directory: `d /run/php 0755 www-data www-data`.
fn makes(line: &str, folder: &Path) -> bool {
    let mut words = line.split_whitespace();
    let (Some(kind), Some(path)) = (words.next(), words.next()) else { return false };
    let is_directory = kind.starts_with(['d', 'D', 'v', 'q', 'Q']);
    let path = path.trim_matches('"').replace("%t", "/run").replace("/var/run/", "/run/");
    let folder = match folder.strip_prefix("/var/run") {
        Ok(below) => Path::new("/run").join(below),
        Err(_) => folder.to_owned(),
    };
    is_directory && Path::new(&path).starts_with(&folder)
}

/// Whether a file is a unit or a drop-in of it: `redis@a.service`, `redis@.service`, `redis@a.service.d/x.conf`.
fn is_of(name: &str, unit: &str) -> bool {
    let end = name.find(".d/").unwrap_or(name.len());
    let of = &name[..end];
    if of == unit {
        return true;
    }
    let Some((before, instance)) = unit.split_once('@') else { return false };
    let Some((_, suffix)) = instance.rsplit_once('.') else { return false };
    of == format!("{before}@.{suffix}")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Texts of the files in these directories and in drop-in directories, by name. The first file of a name counts.
fn texts(root: &Path, folders: &[&str], wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for folder in folders.iter().map(|folder| root.join(folder)) {
        let mut paths = entries(&folder);
        for path in paths.clone() {
            if path.extension() == Some(OsStr::new("d")) {
                paths.extend(entries(&path));
            }
        }
        for path in paths {
            let Ok(name) = path.strip_prefix(&folder).map(|name| name.display().to_string()) else {
                continue;
            };
            if !wanted(&name) || found.iter().any(|(other, _)| *other == name) {
                continue;
            }
            // A masked unit is a link to /dev/null: not a regular file, but the name is taken.
            let text = open::read(&path, open::LONGEST).unwrap_or_default();
            found.push((name, String::from_utf8_lossy(&text).into_owned()));
        }
    }
    found
}

/// Number of lines that count as the head of a file.
const HEAD: usize = 25;
/// Phrases in such heads, in lower case. Certbot's `# managed by Certbot` at the end of a line is none: it leaves other
/// lines alone.
const WORDS: &[&str] = &[
    "managed by ansible",
    "ansible managed",
    "managed by puppet",
    "managed by chef",
    "generated by chef",
    "managed by salt",
    "salt managed",
    "managed by cfengine",
    "managed by terraform",
    "this file is managed",
    "file managed by",
    "this file is generated",
    "this file was generated",
    "this file has been generated",
    "file was automatically generated",
    "file is automatically generated",
    "automatically generated file",
    "auto-generated",
    "autogenerated",
    "do not edit",
    "do not modify this file",
    "don't edit this file",
    "changes will be lost",
    "changes will be overwritten",
    "will be overwritten",
    "generated by plesk",
    "generated by cpanel",
    "cloudpanel",
    "ispconfig",
    "generated by webmin",
    "generated by virtualmin",
];
const COMMENT: &[&str] = &["#", ";", "//", "/*", "*", "<?php //", "<?php #"];

/// A note for a file that says that a program writes it: a configuration management puts TCP back at its next run, when the
/// port may be closed already.
fn managed(file: &Path) -> Option<SwitchObstacle> {
    let text = open::read(file, open::LONGEST).ok()?;
    let says = says(&String::from_utf8_lossy(&text))?;
    Some(note(
        ObstacleCode::Managed,
        format!(
            "{} says of itself `{}`: what writes it will put the old place back",
            shown(file),
            samehost_model::printable::clean(&says)
        ),
        "Make the change in what writes it as well, before its next run; unattended: --accept managed. Afterwards, by cron: samehost switch check",
    ))
}

/// The comment in a file's head that says so.
fn says(text: &str) -> Option<String> {
    for line in text.lines().take(HEAD).map(str::trim) {
        if !COMMENT.iter().any(|begin| line.starts_with(begin)) {
            continue;
        }
        let comment = line.trim_matches(['#', ';', '/', '*', ' ', '-', '=', '!']);
        let lower = comment.to_lowercase();
        if WORDS.iter().any(|words| lower.contains(words)) {
            return Some(comment.chars().take(80).collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn units_and_tmpfiles_make_directories_again() {
        let root = root(&[
            ("usr/lib/tmpfiles.d/php.conf", "# x\nd /run/php 0755 www-data www-data - -\n"),
            ("usr/lib/systemd/system/redis@.service", "[Service]\nRuntimeDirectory=redis other\n"),
            ("etc/systemd/system/mariadb.service.d/a.conf", "[Service]\nRuntimeDirectory=mysqld:link\n"),
            ("usr/lib/systemd/system/x.service", "[Service]\nRuntimeDirectory=x\n"),
            ("etc/systemd/system/x.service", "[Service]\nExecStart=/x\n"),
            ("usr/lib/tmpfiles.d/file.conf", "f /run/file/a 0644\n"),
        ]);
        let made = |folder: &str, unit: Option<&str>| is_made_again(root.path(), Path::new(folder), unit);
        assert!(
            made("/run", None) && made("/run/php", Some("php8.2-fpm.service")) && made("/var/run/php", None)
        );
        assert!(made("/run/redis", Some("redis@a.service")) && made("/run/redis", None));
        assert!(made("/run/mysqld", Some("mariadb.service")) && made("/run/user/1000/x", None));
        assert!(!made("/run/mysqld", Some("redis@a.service")), "another unit's goes when that one stops");
        assert!(!made("/run/x", Some("x.service")), "the vendor's unit is replaced");
        assert!(!made("/run/file", None) && !made("/run/nobody", None) && !made("/mnt/x", None));
    }

    #[test]
    fn a_runtime_directory_is_below_run() {
        assert_eq!(runtime_name(Path::new("/run/a/b")).as_deref(), Some("a/b"));
        assert_eq!(runtime_name(Path::new("/var/run/a")).as_deref(), Some("a"));
        assert_eq!(runtime_name(Path::new("/dev/shm/a")), None);
    }

    #[test]
    fn heads_of_managed_files_are_recognised() {
        for text in [
            "# Ansible managed\nport 6379\n",
            "; This file is managed by Puppet.\n[www]\n",
            "<?php\n/**\n * DO NOT EDIT: generated by Plesk\n */\n",
            "#\n# THIS FILE WAS GENERATED by CloudPanel\n",
            "// Any changes will be lost\n",
        ] {
            assert!(says(text).is_some(), "{text}");
        }
        for text in [
            "listen 443 ssl; # managed by Certbot\n",
            "# Redis configuration file example.\nport 6379\n",
            "password = \"do not edit\"\n",
            "<?php\n/**\n * The base configuration for WordPress\n */\n",
        ] {
            assert_eq!(says(text), None, "{text}");
        }
        let late = "a\n".repeat(HEAD) + "# Generated by CONFIG REWRITE, do not edit\n";
        assert_eq!(says(&late), None);
    }
}
