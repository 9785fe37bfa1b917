//! What an application uses in the end. A variable of its environment goes before a file's, so an edit of the file changes
//! nothing; and PHP that does not look at its files again goes on with the old one. Both are looked for where they are set:
//! in pools of PHP-FPM, in the environment of the processes, in units and in web servers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::formats::php_fpm::{Handed, HandedKind, handed, keeps_environment};
use samehost_edit::formats::php_ini::directive;
use samehost_edit::formats::systemd::places;
use samehost_edit::{Files, Overlay, Role, Uptake, leads};
use samehost_model::ObstacleCode;
use samehost_model::scan::{Process, Scan};
use samehost_model::switch::SwitchObstacle;
use samehost_services::Kind;
use samehost_system::open;

use super::config_file::ConfigFile;
use super::environment_file::{environment_files_of, hands_over};
use super::findings::bar;
use super::hop::Hop;
use super::place::real;
use super::stages::{PlannedStage, shown};
use super::{SwitchRequest, server_files};
use crate::disk::{Disk, Reads};
use crate::reload::{ReloadAction, reload_action, unit_of};

/// How much of a process's environment is read, in bytes.
const LARGEST_ENVIRONMENT: u64 = 1 << 20;
/// After how many seconds PHP looks at a file again, where nothing says otherwise (opcache.revalidate_freq).
const USUAL_REVALIDATION: u64 = 2;

/// Variables by name.
pub(super) type Variables = BTreeMap<String, String>;

/// Values that go before those which these stages write.
pub(super) fn overrides(scan: &Scan, hops: &[Hop], stages: &[PlannedStage]) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    for hop in hops.iter().filter(|hop| hop.setting.role == Role::Connects) {
        let moved = moved_by(hop, stages);
        if moved.is_empty() {
            continue;
        }
        let (before, _) = texts(hop, stages);
        for obstacle in of_hop(scan, hop, &before, &moved, stages) {
            if !found.contains(&obstacle) {
                found.push(obstacle);
            }
        }
    }
    found
}

/// The variables that get another value by a move, in a file to which the environment goes before; with that value.
pub(super) fn moved_by(hop: &Hop, stages: &[PlannedStage]) -> Variables {
    if hop.setting.role != Role::Connects || hop.config.editor.name() != "dotenv" {
        return Variables::new();
    }
    let (before, after) = texts(hop, stages);
    changed(&before, &after)
}

/// The variables of a move's file before the first stage that changes it, and after the last.
fn texts(hop: &Hop, stages: &[PlannedStage]) -> (Variables, Variables) {
    let file = real(&hop.setting.file);
    let changes = stages.iter().flat_map(|stage| &stage.changes).filter(|change| real(&change.path) == file);
    let (mut before, mut after) = (None, None);
    for change in changes {
        before = before.or_else(|| change.before.clone());
        after.clone_from(&change.after);
    }
    let [before, after] =
        [before, after].map(|text| assignments(&String::from_utf8_lossy(&text.unwrap_or_default())));
    (before, after)
}

/// The assignments of a text, as any program that reads such a file understands the simple ones.
fn assignments(text: &str) -> Variables {
    let mut found = Variables::new();
    for line in text.lines() {
        let line = line.trim().trim_start_matches("export ");
        let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
        let value = value.trim().trim_matches(['"', '\'']);
        found.insert(name.trim().to_owned(), value.to_owned());
    }
    found
}

/// The variables that get another value, with that value; one that goes has an empty one.
fn changed(before: &Variables, after: &Variables) -> Variables {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut moved = Variables::new();
    for name in names {
        if before.get(name) != after.get(name) {
            moved.insert(name.clone(), after.get(name).cloned().unwrap_or_default());
        }
    }
    moved
}

fn of_hop(
    scan: &Scan,
    hop: &Hop,
    file: &Variables,
    moved: &Variables,
    stages: &[PlannedStage],
) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    let mut add = |name: &str, value: &str, who: &str, place: &str| {
        found.push(bar(
            ObstacleCode::EffectiveValue,
            format!(
                "{who} sets {name} to {value} ({place}), and that goes before {}: the application would go on as it is",
                shown(&hop.setting.file)
            ),
            format!("Take {name} out there, or give it the new value ({}); then switch again", moved[name]),
        ));
    };
    for master in masters(scan, hop) {
        for one in master.handed_after(stages) {
            let HandedKind::Variable(name) = &one.what else { continue };
            let value = one.value.unwrap_or_else(|| "a value that is computed".to_owned());
            if moved.get(name).is_some_and(|new| *new != value) {
                let who = format!("pool {} of PHP-FPM {}", one.pool, master.pid);
                add(name, &value, &who, &format!("{}:{}", shown(&one.file), one.line));
            }
        }
    }
    for (name, value, place) in of_web_servers(scan, moved) {
        add(&name, &value, "a web server", &place);
    }
    for process in processes(scan, hop) {
        let environment = environment(process.pid);
        if is_loaded_from(file, &environment)
            || process.unit.as_deref().is_some_and(|unit| hands_over(unit, &hop.setting.file))
            || process.unit.as_deref().is_some_and(|unit| changes_unit(stages, unit))
        {
            continue;
        }
        for (name, new) in moved {
            let Some(value) = environment.get(name).filter(|value| *value != new) else { continue };
            let who = format!("the environment of {} {}", process.name, process.pid);
            add(name, value, &who, &place_of(process, name));
        }
    }
    found
}

/// Notes on variables of the application's own environment that the file does not have, and that lead to the same place by
/// another name (`REDIS_URL` beside a file's `REDIS_HOST`): which of the two its program asks for first is not known.
pub(super) fn other_names(scan: &Scan, hops: &[Hop], stages: &[PlannedStage]) -> Vec<String> {
    let mut notes = Vec::new();
    for hop in hops.iter().filter(|hop| hop.config.editor.name() == "dotenv") {
        let ((file, _), moved) = (texts(hop, stages), moved_by(hop, stages));
        for process in processes(scan, hop) {
            for (name, value) in environment(process.pid) {
                if file.contains_key(&name) || moved.contains_key(&name) {
                    continue;
                }
                let found = leads(&format!("{name}={value}"));
                let is_there = found
                    .iter()
                    .flat_map(|lead| &lead.endpoints)
                    .any(|endpoint| *endpoint == hop.setting.endpoint);
                if is_there {
                    notes.push(format!(
                        "the environment of {} {} has {name}, which leads to {} as well ({}): whether it goes before {} is not known",
                        process.name,
                        process.pid,
                        hop.setting.endpoint,
                        place_of(process, &name),
                        shown(&hop.setting.file)
                    ));
                }
            }
        }
    }
    notes
}

/// Notes on pools that hand on an environment which nobody can read.
pub(super) fn unseen_environments(scan: &Scan, hops: &[Hop]) -> Vec<String> {
    let mut notes = Vec::new();
    for hop in hops.iter().filter(|hop| hop.config.editor.name() == "dotenv") {
        for Master { pid, config, .. } in masters(scan, hop) {
            if keeps_environment(&config.file, &config.files()) {
                notes.push(format!(
                    "PHP-FPM {pid} gives PHP the environment that it was started with (clear_env = no, {}), which cannot be read. A variable there goes before {}",
                    shown(&config.file),
                    shown(&hop.setting.file)
                ));
            }
        }
    }
    notes
}

/// The processes of a move's clients whose environment can be read. PHP-FPM writes its title over the one that it was
/// started with: what is read there is none. A shell that started an application has an environment of its own.
fn processes<'a>(scan: &'a Scan, hop: &Hop) -> Vec<&'a Process> {
    let pids: BTreeSet<u32> = hop.clients.iter().filter_map(|client| client.pid).collect();
    let clients = pids.into_iter().filter_map(|pid| scan.process(pid));
    clients
        .filter(|process| {
            fpm_config(scan, process.pid).is_none() && fpm_config(scan, process.parent).is_none()
        })
        .collect()
}

/// The variables that pools of PHP-FPM hand to the application of a move, with their lines.
pub(super) fn handed_variables(scan: &Scan, hop: &Hop) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for master in masters(scan, hop) {
        for one in master.handed() {
            if let (HandedKind::Variable(name), Some(value)) = (one.what, one.value) {
                found.push((name, value, format!("{}:{}", shown(&one.file), one.line)));
            }
        }
    }
    found
}

/// The environment that a process was started with.
pub(super) fn environment(pid: u32) -> Variables {
    let bytes = open::proc_file(&format!("/proc/{pid}/environ"), LARGEST_ENVIRONMENT).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Whether these stages change what a unit tells its processes.
fn changes_unit(stages: &[PlannedStage], unit: &str) -> bool {
    stages
        .iter()
        .flat_map(|stage| &stage.of)
        .any(|(file, editor)| *editor == "systemd" && unit_of(file) == unit)
}

/// Whether an environment has all of a file, as it is now: it came from there, and the next start brings the new values.
fn is_loaded_from(file: &Variables, environment: &Variables) -> bool {
    !file.is_empty() && file.iter().all(|(name, value)| environment.get(name) == Some(value))
}

/// Where the environment of a process gets a variable: a line of its unit, if it is there.
fn place_of(process: &Process, name: &str) -> String {
    let Some(unit) = &process.unit else { return "set when it was started".to_owned() };
    for path in places(Path::new("/"), unit) {
        let Ok(bytes) = Disk::of(&path, Reads::RootsServer, None).read(&path) else { continue };
        for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            if line.trim_start().starts_with("Environment=") && line.contains(&format!("{name}=")) {
                return format!("{}:{}", shown(&path), number + 1);
            }
        }
    }
    for path in environment_files_of(unit) {
        let Ok(bytes) = Disk::of(&path, Reads::RootsServer, None).read(&path) else { continue };
        for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            if line.trim_start().starts_with(&format!("{name}=")) {
                return format!("{}:{}, which {unit} names in EnvironmentFile=", shown(&path), number + 1);
            }
        }
    }
    format!("by {unit}, or what it reads")
}

/// Lines of running web servers that hand a variable on: `fastcgi_param` of nginx, `SetEnv` of Apache.
fn of_web_servers(scan: &Scan, moved: &Variables) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for service in &scan.services {
        let directive = match service.kind {
            Some(Kind::Nginx) => "fastcgi_param",
            Some(Kind::Apache) => "SetEnv",
            _ => continue,
        };
        for (path, text) in texts_of(&server_files::of(scan, service)) {
            for (number, line) in text.lines().enumerate() {
                let mut words = line.split_ascii_whitespace();
                if words.next() != Some(directive) {
                    continue;
                }
                let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
                let value = value.trim_end_matches(';').trim_matches(['"', '\'']);
                if moved.get(name).is_some_and(|new| new != value) {
                    found.push((
                        name.to_owned(),
                        value.to_owned(),
                        format!("{}:{}", shown(&path), number + 1),
                    ));
                }
            }
        }
    }
    found
}

/// All files of a web server's configuration, as the command that checks it would read them, with their texts. They are
/// read with the permissions of whoever controls the first: an included one may be a tenant's.
pub(super) fn texts_of(mains: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let Some(config) = mains.iter().find_map(|path| ConfigFile::at(path, None).ok()?) else {
        return Vec::new();
    };
    let files = config.files();
    let Some(check) = config.editor.check(&config.file, &files) else { return Vec::new() };
    let mut texts = Vec::new();
    for path in check.reads {
        let Ok(bytes) = files.read(&path) else { continue };
        texts.push((path, String::from_utf8_lossy(&bytes).into_owned()));
    }
    texts
}

/// A master of PHP-FPM that runs a move's application.
pub(super) struct Master {
    pub(super) pid: u32,
    pub(super) config: ConfigFile,
    /// The pools that serve the application; empty where that is not known.
    pub(super) pools: Vec<String>,
}

impl Master {
    /// What its pools hand to PHP: those that serve the application, where that is known.
    pub(super) fn handed(&self) -> Vec<Handed> {
        self.of_its_pools(handed(&self.config.file, &self.config.files()))
    }

    /// What its pools hand to PHP after these stages.
    fn handed_after(&self, stages: &[PlannedStage]) -> Vec<Handed> {
        let files = self.config.files();
        let mut texts = BTreeMap::new();
        for change in stages.iter().flat_map(|stage| &stage.changes) {
            let Some(after) = &change.after else { continue };
            // A pool's file may be named by a link.
            for one in handed(&self.config.file, &files).into_iter().map(|one| one.file) {
                if one.canonicalize().is_ok_and(|real| real == change.path) {
                    texts.insert(one, after.clone());
                }
            }
        }
        self.of_its_pools(handed(&self.config.file, &Overlay::new(&files, texts)))
    }

    /// Whether its pools hand on these values, in other files than those on disk; one that is empty is not handed on.
    pub(super) fn says(&self, files: &dyn Files, wanted: &Variables) -> bool {
        let all = self.of_its_pools(handed(&self.config.file, files));
        let mut named = all.iter().filter_map(|one| match &one.what {
            HandedKind::Variable(name) => Some((wanted.get(name)?, &one.value)),
            HandedKind::Setting(_) => None,
        });
        named.all(|(new, value)| value.as_ref() == Some(new))
    }

    fn of_its_pools(&self, mut all: Vec<Handed>) -> Vec<Handed> {
        all.retain(|one| self.pools.is_empty() || self.pools.contains(&one.pool));
        all
    }

    /// A setting of PHP in its pools, else in the php.ini beside its configuration; with its place.
    fn setting(&self, key: &str) -> Option<(String, String)> {
        for one in self.handed() {
            if one.what == HandedKind::Setting(key.to_owned())
                && let Some(value) = one.value
            {
                return Some((value, format!("{}:{}", shown(&one.file), one.line)));
            }
        }
        let files = self.config.files();
        let ini = server_files::folder(&self.config.file).join("php.ini");
        let (value, file, line) = files.exists(&ini).then(|| directive(&ini, &files, key))??;
        Some((value, format!("{}:{line}", shown(&file))))
    }
}

/// The masters of PHP-FPM that run a move's application.
pub(super) fn masters(scan: &Scan, hop: &Hop) -> Vec<Master> {
    let mut wanted: Vec<(u32, Vec<String>)> = Vec::new();
    for (master, pool) in &hop.application.pools {
        match wanted.iter_mut().find(|(known, _)| known == master) {
            Some((_, pools)) => pools.push(pool.clone()),
            None => wanted.push((*master, vec![pool.clone()])),
        }
    }
    if wanted.is_empty() {
        let pids = hop.clients.iter().flat_map(|client| [client.pid, client.parent]).flatten();
        wanted.extend(pids.map(|pid| (pid, Vec::new())));
    }
    let mut found = Vec::new();
    for (pid, pools) in wanted {
        found.extend(fpm_config(scan, pid).map(|config| Master { pid, config, pools }));
    }
    found
}

/// The configuration by which a master of PHP-FPM runs.
pub(super) fn fpm_config(scan: &Scan, master: u32) -> Option<ConfigFile> {
    let mut services = scan.services.iter().filter(|service| service.kind == Some(Kind::PhpFpm));
    let service = services.find(|service| service.pid == Some(master))?;
    server_files::of(scan, service).iter().find_map(|path| ConfigFile::at(path, None).ok()?)
}

/// How PHP takes a change of one of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Revalidation {
    /// It looks again after this time.
    After(Duration),
    /// It does not look again until it is reloaded.
    Never {
        /// The master of PHP-FPM.
        master: u32,
        /// Its configuration.
        file: PathBuf,
        /// Where that is set.
        place: String,
    },
}

/// How the clients of a move take a change of its file, where they are PHP.
pub(super) fn revalidation(scan: &Scan, hop: &Hop) -> Option<Revalidation> {
    if hop.setting.file.extension().is_none_or(|extension| extension != "php") {
        return None;
    }
    let mut longest = Duration::from_secs(USUAL_REVALIDATION);
    for master in masters(scan, hop) {
        if let Some((value, place)) = master.setting("opcache.validate_timestamps")
            && is_off(&value)
            && master.setting("opcache.enable").is_none_or(|(value, _)| !is_off(&value))
        {
            return Some(Revalidation::Never { master: master.pid, file: master.config.file, place });
        }
        let seconds = master.setting("opcache.revalidate_freq").and_then(|(value, _)| value.parse().ok());
        longest = longest.max(Duration::from_secs(seconds.unwrap_or(0)));
    }
    Some(Revalidation::After(longest))
}

fn is_off(value: &str) -> bool {
    ["0", "off", "no", "false", ""].contains(&value.to_ascii_lowercase().as_str())
}

/// What has PHP take a change that it would not see by itself; `None` where it looks at its files.
pub(super) fn reload_of_php(scan: &Scan, request: &SwitchRequest, hop: &Hop) -> Option<ReloadAction> {
    if hop.config.editor.uptake(&hop.config.file) != Uptake::AtOnce {
        return None;
    }
    let Revalidation::Never { master, file, .. } = revalidation(scan, hop)? else { return None };
    let uptake = Uptake::Reload(Kind::PhpFpm);
    Some(reload_action(scan, uptake, &file, Some(master), &request.reloads))
}

/// The note on a reload that is there for PHP's cache.
pub(super) fn note_on_php(scan: &Scan, hop: &Hop) -> Option<String> {
    match revalidation(scan, hop)? {
        Revalidation::Never { master, place, .. } => Some(format!(
            "PHP-FPM {master} does not look at its files again (opcache.validate_timestamps, {place}): it is reloaded, so that it reads {}",
            shown(&hop.setting.file)
        )),
        Revalidation::After(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_that_move_matter_and_a_file_that_was_loaded_whole_is_its_source() {
        let before = assignments("# A\nexport DB_HOST=127.0.0.1\nDB_PORT='3306'\nAPP=x\n");
        let after = assignments("DB_HOST=localhost\nAPP=x\nDB_SOCKET=/run/s\n");
        let moved = changed(&before, &after);
        let names: Vec<&str> = moved.keys().map(String::as_str).collect();
        assert_eq!(names, ["DB_HOST", "DB_PORT", "DB_SOCKET"]);
        assert_eq!((moved["DB_HOST"].as_str(), moved["DB_PORT"].as_str()), ("localhost", ""));
        let mut environment = before.clone();
        environment.insert("PATH".into(), "/bin".into());
        assert!(is_loaded_from(&before, &environment));
        environment.remove("APP");
        assert!(!is_loaded_from(&before, &environment), "a variable that somebody set by itself");
    }
}
