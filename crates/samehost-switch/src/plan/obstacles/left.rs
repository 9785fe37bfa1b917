//! What leads to a service here and is not moved, with file, line and why: values that no editor spoke of. Without this, a
//! file whose lines are in words of their own had "nothing to do", and whoever read that took it for done.
//!
//! What an editor read, refused or changes is not told again.

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use samehost_edit::{Files, LeadForm, Reading, Setting, leads};
use samehost_model::scan::{Scan, Service};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};
use samehost_scan::services_at;
use samehost_services::UnixSocket;
use samehost_system::User;

use crate::configuration::leads::{Left, Readers, by_hand, of_text, settings_below};
use crate::configuration::server_files;
use crate::configuration::{ConfigFile, ParsedConfig};
use crate::disk::{Disk, Reads};
use crate::findings::{Findings, shown};
use crate::place::real;
use crate::plan::stages::follow::assignments;
use crate::request::{Direction, SwitchRequest};

/// Bytes of the other files of directories that are searched.
///
/// "Nothing to do" used to be the answer for a file whose lines no editor
/// understood, and people read that as done. So the text of every configuration, and of the other files of a
/// directory that was named, is searched for values
/// that lead here. Where what an editor understands is at its goal already, such a value gives status 5,
/// and beside something that moves it bars nothing: status 1 for both would fail each later run of a
/// switch by Ansible or cron (docs/decisions/0131). What a value is a part of was told by nearness, and a second store beside
/// one that moves was passed over.
const MOST_BYTES: usize = 32 << 20;
/// How many lines of a block may be before or behind the one that an editor refused.
const NEAR: u32 = 12;

/// Why a value that leads to a service is not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    NotRead,
    /// The service cannot listen on a Unix socket, for this reason.
    NoSocket(&'static str),
}

fn stays(left: &Left, scan: &Scan, to: Direction) -> Stays {
    if to == Direction::Unix
        && let Some(service) = scan.services.get(left.service)
        && let Some(kind) = service.kind
        && let UnixSocket::Never(why) = kind.descriptor().unix()
    {
        return Stays::NoSocket(why);
    }
    Stays::NotRead
}

/// The obstacles and notes for values that stay. They bar nothing by themselves: other lines of the file may move.
pub(super) fn findings(
    request: &SwitchRequest,
    scan: &Scan,
    read: &[ParsedConfig],
    unread: &[ConfigFile],
) -> Findings {
    let (mut obstacles, mut notes) = (Vec::new(), Vec::new());
    for left in values(request, scan, read, unread) {
        let leads = left.leads(scan);
        match stays(&left, scan, request.to) {
            Stays::NoSocket(why) => {
                notes.push(format!("{leads}, which cannot listen on a Unix socket ({why}): it stays"));
            }
            Stays::NotRead => obstacles.push(SwitchObstacle {
                code: ObstacleCode::NotMoved,
                bars: false,
                found: format!("{leads}, and stays: what reads this value is not known"),
                remedy: by_hand(scan, &left, request.to),
            }),
        }
    }
    notes.extend(mounted(scan, read));
    let mut findings = Findings::default();
    findings.add(obstacles);
    findings.note(notes);
    findings
}

/// The values of these configurations, and of the other files of the directories that were named, that lead to services here,
/// and of which no editor spoke.
fn values(request: &SwitchRequest, scan: &Scan, read: &[ParsedConfig], unread: &[ConfigFile]) -> Vec<Left> {
    let (mut found, mut seen): (Vec<Left>, BTreeSet<PathBuf>) = Default::default();
    // Variables that a file of the plan sets: their defaults count for nobody.
    let mut set: BTreeSet<String> = BTreeSet::new();
    for parsed in read {
        let text = parsed.config.files().read(&parsed.config.file).unwrap_or_default();
        set.extend(assignments(&text).into_keys());
        set.extend(parsed.reading.settings.iter().map(|setting| setting.name.clone()));
    }
    let (settings, refused) = (
        lines(read, |reading| reading.settings.iter().flat_map(Setting::places).collect()),
        lines(read, |reading| reading.refused.iter().map(|one| (&*one.file, one.line)).collect()),
    );
    for parsed in read {
        let files = parsed.config.files();
        for path in parsed.paths(&files) {
            let key = files.real(&path);
            if !seen.insert(key.clone()) {
                continue;
            }
            let text = files.read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let none = BTreeSet::new();
            let settings = settings.get(&key).unwrap_or(&none);
            let refused = refused.get(&key).unwrap_or(&none);
            let all = read.iter().flat_map(|parsed| &parsed.reading.settings);
            let own: BTreeSet<&str> =
                all.filter(|one| one.file == path).map(|one| one.name.as_str()).collect();
            let mut readers = Readers::of(read.iter().collect(), &path, &text);
            let unnamed = LazyCell::new(|| unnamed(parsed, &path, &key));
            for left in of_file(request, scan, &parsed.config, &path, &files) {
                let lead = &left.lead;
                // A variable beside one that outweighs it (DB_HOST beside DB_SOCKET) is read, and changes nothing.
                let is_set = own.contains(&*lead.name) || lead.unless.iter().any(|name| set.contains(name));
                // Of a host in lines of its own its block is refused.
                let around = lead.line.saturating_sub(NEAR)..=lead.line.saturating_add(NEAR);
                let is_host = lead.form == LeadForm::Host;
                let is_refused = refused.contains(&lead.line)
                    || is_host && refused.range(around).next().is_some() && readers.is_of_refused(lead);
                if is_set || is_refused || unnamed.contains(&lead.line) {
                    continue;
                }
                let is_line = settings.contains(&lead.line);
                let parts = if is_line && !left.is_one_of_several { None } else { readers.parts(lead) };
                if !parts.map_or(is_line, |settings| !settings.is_empty()) {
                    found.push(left);
                }
            }
        }
    }
    for config in unread {
        seen.insert(real(&config.file));
        found.extend(of_file(request, scan, config, &config.file, &config.files()));
    }
    found.extend(beside(request, scan, seen, &set));
    found
}

/// Lines of a file that the program reads as well and that is a configuration of its own: another site of the same nginx, which
/// nobody named. What reads its values is known.
fn unnamed(parsed: &ParsedConfig, path: &Path, key: &Path) -> BTreeSet<u32> {
    let config = ConfigFile { file: path.to_owned(), ..parsed.config.clone() };
    let settings = parsed.reading.settings.iter().map(|setting| &setting.file);
    let mut own = settings.chain(parsed.reading.refused.iter().map(|refusal| &refusal.file));
    if real(&parsed.config.file) == key || own.any(|file| file == path) {
        return BTreeSet::new();
    }
    let Ok(read) = config.read() else { return BTreeSet::new() };
    read.reading.settings.iter().flat_map(Setting::places).map(|(_, line)| line).collect()
}

/// The values in the other text files of the directories that were named.
fn beside(
    request: &SwitchRequest,
    scan: &Scan,
    mut seen: BTreeSet<PathBuf>,
    set: &BTreeSet<String>,
) -> Vec<Left> {
    let mut found = Vec::new();
    let reader = request.user.as_deref().and_then(User::named);
    let mut budget = MOST_BYTES;
    for directory in request.targets.iter().map(Path::new).filter(|path| path.is_dir()) {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        for path in settings_below(&directory, reader.as_ref()) {
            if !seen.insert(real(&path)) {
                continue;
            }
            let disk = Disk::of(&path, Reads::Application, reader.as_ref());
            let Ok(bytes) = disk.read(&path) else { continue };
            budget = budget.saturating_sub(bytes.len());
            if budget == 0 {
                break;
            }
            let mut values = of_text(scan, &path, &bytes, request.to);
            values.retain(|left| !left.lead.unless.iter().any(|name| set.contains(name)));
            found.extend(values);
        }
    }
    found
}

/// Lines of these readings, by their real files.
fn lines(
    read: &[ParsedConfig],
    of: impl Fn(&Reading) -> Vec<(&Path, u32)>,
) -> HashMap<PathBuf, BTreeSet<u32>> {
    let mut all: HashMap<PathBuf, BTreeSet<u32>> = HashMap::new();
    let mut known: HashMap<PathBuf, PathBuf> = HashMap::new();
    for parsed in read {
        for (file, line) in of(&parsed.reading) {
            let file = known.entry(file.to_owned()).or_insert_with(|| real(file)).clone();
            all.entry(file).or_default().insert(line);
        }
    }
    all
}

/// The values of a file that lead to a service here, other than the one whose file this is.
fn of_file(
    request: &SwitchRequest,
    scan: &Scan,
    config: &ConfigFile,
    path: &Path,
    files: &dyn Files,
) -> Vec<Left> {
    let Ok(bytes) = files.read(path) else { return Vec::new() };
    let own = server_files::process_of(scan, config);
    let mut found = Vec::new();
    for left in of_text(scan, path, &bytes, request.to) {
        let Some(service) = scan.services.get(left.service) else { continue };
        let is_its_own = (service.kind.is_some() && service.kind == config.kind())
            || (own.is_some() && is_process_of(scan, service, own));
        if !is_its_own {
            found.push(left);
        }
    }
    found
}

fn is_process_of(scan: &Scan, service: &Service, own: Option<u32>) -> bool {
    match scan.main_process(service) {
        Some(process) if Some(process.parent) == own => true,
        _ => service.pid == own,
    }
}

/// Notes on sockets whose file is mounted into a container.
fn mounted(scan: &Scan, read: &[ParsedConfig]) -> Vec<String> {
    let mut notes = Vec::new();
    for parsed in read {
        let config = &parsed.config;
        if config.editor.name() != "compose" {
            continue;
        }
        let Ok(bytes) = config.files().read(&config.file) else { continue };
        for lead in leads(&String::from_utf8_lossy(&bytes)) {
            let (LeadForm::MountedPath, Some(Endpoint::Unix(path))) = (lead.form, lead.endpoints.first())
            else {
                continue;
            };
            if services_at(scan, &Endpoint::Unix(path.clone())).is_empty() {
                continue;
            }
            let folder = path.parent().unwrap_or(Path::new("/"));
            notes.push(format!(
                "{}:{} mounts the socket's file {}: at the server's next start there is a new one, and the container keeps the old. Mount its directory: {folder}:{folder}",
                shown(&config.file),
                lead.line,
                shown(path),
                folder = shown(folder)
            ));
        }
    }
    notes
}
