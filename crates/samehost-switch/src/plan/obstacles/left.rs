//! What leads to a service here and is not moved, with file, line and why: values that no editor spoke of. Without this, a
//! file whose lines are in words of their own had "nothing to do", and whoever read that took it for done.
//!
//! What an editor read, refused or changes is not told again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use samehost_edit::{Files, Lead, LeadForm, Role, leads};
use samehost_model::scan::{Scan, Service};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};
use samehost_scan::services_at;
use samehost_services::UnixSocket;

use crate::changed_lines;
use crate::configuration::leads::{Left, by_hand, of_text};
use crate::configuration::server_files;
use crate::configuration::{ConfigFile, ParsedConfig};
use crate::findings::{Findings, shown};
use crate::place::real;
use crate::plan::stages::PlannedStage;
use crate::request::{Direction, SwitchRequest};

/// How many lines a key that says nothing by itself (`host`) may be from what an editor read or refused,
/// to be told with that.
///
/// "Nothing to do" used to be the answer for a file whose lines no editor
/// understood, and people read that as done. So the text of every configuration is searched for values
/// that lead here. Where what an editor understands is at its goal already, such a value gives status 5,
/// and beside something that moves it bars nothing: status 1 for both would fail each later run of a
/// switch by Ansible or cron (docs/decisions/0131).
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
    stages: &[PlannedStage],
) -> Findings {
    let (mut obstacles, mut notes) = (Vec::new(), Vec::new());
    for left in values(request, scan, read, unread, stages) {
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

/// The values of these configurations that lead to services here, and of which no editor spoke.
fn values(
    request: &SwitchRequest,
    scan: &Scan,
    read: &[ParsedConfig],
    unread: &[ConfigFile],
    stages: &[PlannedStage],
) -> Vec<Left> {
    let (mut found, mut seen): (Vec<Left>, BTreeSet<PathBuf>) = Default::default();
    for parsed in read {
        let files = parsed.config.files();
        let known = Told::of(scan, parsed, &files);
        for path in parsed.paths(&files) {
            if !seen.insert(files.real(&path)) {
                continue;
            }
            let changed = changed_lines(&path, stages);
            for left in of_file(request, scan, &parsed.config, &path, &files) {
                if !changed.contains(&left.lead.line) && !known.has(&left, &files.real(&path)) {
                    found.push(left);
                }
            }
        }
    }
    for config in unread {
        found.extend(of_file(request, scan, config, &config.file, &config.files()));
    }
    found
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
            || (own.is_some() && is_of(scan, service, own));
        if !is_its_own {
            found.push(left);
        }
    }
    found
}

fn is_of(scan: &Scan, service: &Service, own: Option<u32>) -> bool {
    match scan.main_process(service) {
        Some(process) if Some(process.parent) == own => true,
        _ => service.pid == own,
    }
}

/// The lines of a file that these stages change or take away.
fn changed_lines(path: &Path, stages: &[PlannedStage]) -> BTreeSet<u32> {
    let mut lines = BTreeSet::new();
    for change in stages.iter().flat_map(|stage| &stage.changes) {
        if real(&change.path) != real(path) {
            continue;
        }
        let (before, after) =
            (change.before.as_deref().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
        let changed = changed_lines::changed_lines(before, after);
        lines.extend(changed.iter().filter(|one| one.sign == '-').map(|one| one.line));
    }
    lines
}

/// What an editor spoke of in a configuration: as a setting, as a part of one, or as a refusal. Prepared once: a file
/// may have thousands of settings.
struct Told {
    /// Lines of settings and refusals, by their real files.
    lines: HashMap<PathBuf, BTreeSet<u32>>,
    /// Names of settings, and the last words of names of several.
    names: HashSet<String>,
    /// Lines of connections to each service, by their real files: `host` near one is a part of it.
    blocks: HashMap<(PathBuf, usize), BTreeSet<u32>>,
    /// Lines of refusals, by their real files.
    refused: HashMap<PathBuf, BTreeSet<u32>>,
}

impl Told {
    fn of(scan: &Scan, parsed: &ParsedConfig, files: &dyn Files) -> Self {
        let mut known = Told {
            lines: HashMap::new(),
            names: HashSet::new(),
            blocks: HashMap::new(),
            refused: HashMap::new(),
        };
        let mut real: HashMap<PathBuf, PathBuf> = HashMap::new();
        let mut services: HashMap<Endpoint, Vec<usize>> = HashMap::new();
        let mut real_of =
            |path: &Path| real.entry(path.to_owned()).or_insert_with(|| files.real(path)).clone();
        for refusal in &parsed.reading.refused {
            let file = real_of(&refusal.file);
            known.lines.entry(file.clone()).or_default().insert(refusal.line);
            known.refused.entry(file).or_default().insert(refusal.line);
        }
        for setting in &parsed.reading.settings {
            let file = real_of(&setting.file);
            known.lines.entry(file.clone()).or_default().insert(setting.line);
            if let Some(last) = setting.name.rsplit(' ').next() {
                known.names.insert(last.to_owned());
            }
            known.names.insert(setting.name.clone());
            if setting.role != Role::Connects {
                continue;
            }
            let there = services
                .entry(setting.endpoint.clone())
                .or_insert_with(|| services_at(scan, &setting.endpoint));
            for service in there.iter() {
                known.blocks.entry((file.clone(), *service)).or_default().insert(setting.line);
            }
        }
        known
    }

    fn has(&self, left: &Left, file: &Path) -> bool {
        let lead = &left.lead;
        let is_there = matches!(self.lines.get(file), Some(lines) if lines.contains(&lead.line));
        if is_there || (!lead.name.is_empty() && self.names.contains(&lead.name)) {
            return true;
        }
        let around = [self.refused.get(file), self.blocks.get(&(file.to_owned(), left.service))];
        is_general(lead) && around.into_iter().flatten().any(|lines| is_near(lines, lead.line))
    }
}

fn is_near(lines: &BTreeSet<u32>, line: u32) -> bool {
    lines.range(line.saturating_sub(NEAR)..=line.saturating_add(NEAR)).next().is_some()
}

/// Whether a key says nothing of what it belongs to but by the lines around it: `host`.
fn is_general(lead: &Lead) -> bool {
    let name = lead.name.to_ascii_lowercase();
    lead.form == LeadForm::Host
        && ["host", "hostname", "server", "dbhost", "db_host", "address"].contains(&name.as_str())
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
