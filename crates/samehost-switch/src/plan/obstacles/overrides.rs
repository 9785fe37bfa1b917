//! What an application uses in the end. A variable of its environment goes before a file's, so an edit of the file changes
//! nothing. It is looked for where it is set: in pools of PHP-FPM, in the environment of the processes, in units, in web
//! servers, and in Compose.
//!
//! What Compose has in `environment:`, or in an `env_file:` of a service, goes before the file in that container. An
//! application that runs on this machine is not concerned (its container's processes are asked for their environment), so
//! these are notes: many projects have a compose.yaml for their developers alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use samehost_edit::formats::php_fpm::HandedKind;
use samehost_edit::formats::systemd::places;
use samehost_edit::{Files, Role, Setting, editor, leads, once_in_a_run};
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, Protocol};
use samehost_services::Kind;
use samehost_system::lookup;
use samehost_system::proc::{self, unit_or_container};

use super::super::client::environment;
use crate::configuration::server_files::{self, environment_files_of, hands_over};
use crate::configuration::units::{self, GivenVariable, WrittenUnit};
use crate::disk::{Disk, Reads};
use crate::findings::{bar, place, shown};
use crate::old_place::left::is_there;
use crate::plan::client::Variables;
use crate::plan::client::own::{Home, Judged};
use crate::plan::client::pools::given_to;
use crate::plan::hop::Hop;
use crate::plan::stages::PlannedStage;
use crate::plan::stages::follow::{moved_by, other_site, texts};
use crate::reload::unit_of;

/// What goes before a file that moves, whatever format it has. A variable goes before `.env` by its name; before another
/// file where the file or its framework asks for it (`Editor::is_beaten_by`), and where libpq does; and only a value
/// that another name leads to the old place counts then, as what it says instead is not known.
struct Beats<'a> {
    scan: &'a Scan,
    hop: &'a Hop,
    hops: &'a [Hop],
    /// The variables of a `.env` before, and those that get another value.
    before: Variables,
    moved: Variables,
    text: String,
}

impl Beats<'_> {
    /// What is to be done about a variable whose value goes before the file and is another one.
    ///
    /// The new value of the file stands for the old one of the file alone: where a pool said `/3` and the file `/1`, the file's new
    /// value was given for the pool's, and the application read another database.
    fn remedy(&self, name: &str, value: &str) -> Option<String> {
        let Hop { config, setting, to, .. } = self.hop;
        let (take_out, again) = (format!("Take {name} out there, or give it"), "; then switch again");
        if let Some(new) = self.moved.get(name) {
            let leads_to = |place: &Endpoint| leads_from(self.scan, name, value, place);
            if new == value || self.hops.iter().any(|hop| leads_to(&hop.to)) {
                return None;
            }
            let file = shown(&setting.file);
            return Some(match self.hops.iter().find(|hop| leads_to(&hop.setting.endpoint)) {
                _ if self.before.get(name).is_some_and(|old| old == value) => {
                    format!("{take_out} the new value ({new}){again}")
                }
                Some(hop) => format!(
                    "Have it lead to {} there, and leave what else it says: that is not what {file} says{again}",
                    hop.to
                ),
                None => format!("Decide which of the two is meant: {file} says something else{again}"),
            });
        }
        if setting.protocol == Protocol::Postgres && to.path().is_some() && name == "PGHOSTADDR" {
            return Some(format!("{take_out} none at all{again}")).filter(|_| !value.is_empty());
        }
        if !config.editor.is_beaten_by(&self.text, name) || self.is_outweighed(name) {
            return None;
        }
        let is_old = leads_from(self.scan, name, value, &setting.endpoint);
        let goes_before = is_old || goes_before_default(name, value, setting);
        Some(format!("{take_out} one that leads to {to}{again}")).filter(|_| goes_before)
    }

    /// Whether the file gets the path in a variable of its own, beside which a host and its port count no more: Laravel's `DB_SOCKET`.
    fn is_outweighed(&self, name: &str) -> bool {
        let socket =
            name.strip_suffix("HOST").or(name.strip_suffix("PORT")).map(|start| format!("{start}SOCKET"));
        let path = socket.and_then(|socket| self.moved.get(&socket)).map(Path::new);
        path.is_some() && path == self.hop.to.path()
    }
}

/// Whether a variable's host or port goes before that of a file, where the other half is the file's own: `DB_HOST=127.0.0.1` beside a
/// default port, and any other port. A host whose name says another server is none: `REDIS_HOST` beside a database.
fn goes_before_default(name: &str, value: &str, setting: &Setting) -> bool {
    let Endpoint::Tcp { port: own, .. } = setting.endpoint else { return false };
    if let Ok(port) = value.parse::<u16>() {
        return name.ends_with("PORT") && port != own;
    }
    let usual = Kind::of_protocol(setting.protocol).and_then(|kind| kind.descriptor().ports.first());
    let found = leads(&format!("{name}={value}"));
    let mut endpoints = found.iter().flat_map(|lead| &lead.endpoints).peekable();
    let is_its = endpoints.peek().is_none()
        || endpoints.any(|one| matches!(one, Endpoint::Tcp { port, .. } if Some(port) == usual));
    name.ends_with("HOST") && lookup::is_here(value) && is_its
}

/// Whether a variable leads to a place. Symfony has the number of the database behind the path.
fn leads_from(scan: &Scan, name: &str, value: &str, place: &Endpoint) -> bool {
    let is_below = |endpoint: &Endpoint| match (endpoint.path(), place.path()) {
        (Some(path), Some(place)) => path.starts_with(place),
        _ => false,
    };
    let found = leads(&format!("{name}={value}"));
    let mut endpoints = found.iter().flat_map(|lead| &lead.endpoints);
    endpoints.any(|endpoint| is_below(endpoint) || is_there(scan, endpoint, place))
}

/// Values that go before those which these stages write.
pub(super) fn overrides(scan: &Scan, hops: &[Hop], stages: &[PlannedStage]) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    for hop in hops.iter().filter(|hop| hop.setting.role == Role::Connects) {
        let is_written = stages.iter().any(|stage| stage.changes_file(&hop.setting.file));
        if !is_written {
            continue;
        }
        let text = hop.config.files().read(&hop.setting.file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let (before, _) = texts(hop, stages);
        let beats = Beats { scan, hop, hops, before, moved: moved_by(hop, stages), text };
        for obstacle in of_hop(&beats, stages, &units::written()) {
            if !found.contains(&obstacle) {
                found.push(obstacle);
            }
        }
    }
    found
}

/// The values that go before those of one move's file, wherever they are set.
fn of_hop(beats: &Beats<'_>, stages: &[PlannedStage], units: &[WrittenUnit]) -> Vec<SwitchObstacle> {
    let Beats { scan, hop, before, .. } = beats;
    let mut found = Vec::new();
    let mut add = |name: &str, value: &str, who: &str, place: &str, other_reader: Option<&Path>| {
        let Some(mut remedy) = beats.remedy(name, value) else { return };
        if let Some(root) = other_reader {
            remedy.push_str(&format!(
                ". The site in {} is given it as well, and has to understand it",
                shown(root)
            ));
        }
        found.push(bar(
            ObstacleCode::EffectiveValue,
            format!(
                "{who} sets {name} to {value} ({place}), and that goes before {}: the application would go on as it is",
                shown(&hop.setting.file)
            ),
            remedy,
        ));
    };
    for master in &hop.client.masters {
        for one in master.handed_with(&written(stages)) {
            let HandedKind::Variable(name) = &one.what else { continue };
            let value = one.value.as_deref().unwrap_or("a value that is computed");
            let who = format!("pool {} of PHP-FPM {}", one.pool, master.pid);
            add(name, value, &who, &place(&one.file, one.line), other_site(hop));
        }
    }
    for given in given_to(scan, &hop.setting.file) {
        add(&given.name, &given.value, "a web server", &place(&given.file, given.line), None);
    }
    let processes = processes(hop);
    for unit in not_running(units, hop, &processes) {
        // As with a process: what hands the file over, or changes with it, brings the new values.
        if hands_over(&unit.name, &hop.setting.file) || changes_unit(stages, &unit.name) {
            continue;
        }
        let who = format!("unit {}", unit.name);
        for GivenVariable { name, value, place } in unit.variables() {
            add(&name, &value, &who, &place, None);
        }
    }
    for process in processes.iter() {
        let environment = environment(process.pid);
        if is_loaded_from(before, &environment) {
            continue;
        }
        if let Some(unit) = &process.unit
            && (hands_over(unit, &hop.setting.file) || changes_unit(stages, unit))
        {
            continue;
        }
        let who = format!("the environment of {} {}", process.name, process.pid);
        for (name, value) in &environment {
            add(name, value, &who, &process.place_of(name), None);
        }
    }
    found
}

/// The units of the application that do not run: its next start is by one of them. Those that run are told by their
/// processes.
fn not_running<'a>(units: &'a [WrittenUnit], hop: &Hop, running: &[Running]) -> Vec<&'a WrittenUnit> {
    let folder = server_files::project(&hop.setting.file);
    let runs = |unit: &WrittenUnit| running.iter().any(|process| process.unit.as_ref() == Some(&unit.name));
    units.iter().filter(|unit| unit.is_of(|path| path.starts_with(&folder)) && !runs(unit)).collect()
}

fn written(stages: &[PlannedStage]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut texts = BTreeMap::new();
    for change in stages.iter().flat_map(|stage| &stage.changes) {
        if let Some(after) = &change.after {
            texts.insert(change.path.clone(), after.clone());
        }
    }
    texts
}

/// Whether a variable moves, and gets another value than this.
fn differs(moved: &Variables, name: &str, value: &str) -> bool {
    match moved.get(name) {
        Some(new) => new != value,
        None => false,
    }
}

/// Notes on variables of the application's own environment that the file does not have, and that lead to the same place by
/// another name (`REDIS_URL` beside a file's `REDIS_HOST`): which of the two its program asks for first is not known.
pub(super) fn other_names(scan: &Scan, hops: &[Hop], stages: &[PlannedStage]) -> Vec<String> {
    let mut notes = Vec::new();
    for hop in hops.iter().filter(|hop| hop.setting.role == Role::Connects) {
        let (file, _) = texts(hop, stages);
        let text = hop.config.files().read(&hop.setting.file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        for process in processes(hop).iter() {
            for (name, value) in environment(process.pid) {
                if file.contains_key(&name) || hop.config.editor.is_beaten_by(&text, &name) {
                    continue;
                }
                if leads_from(scan, &name, &value, &hop.setting.endpoint) {
                    notes.push(format!(
                        "the environment of {} {} has {name}, which leads to {} as well ({}): whether it goes before {} is not known",
                        process.name,
                        process.pid,
                        hop.setting.endpoint,
                        process.place_of(&name),
                        shown(&hop.setting.file)
                    ));
                }
            }
        }
    }
    notes
}

/// Notes on pools that hand on an environment which nobody can read.
pub(super) fn unseen_environments(hops: &[Hop]) -> Vec<String> {
    let mut notes = Vec::new();
    for hop in hops.iter().filter(|hop| hop.config.editor.name() == "dotenv") {
        for master in &hop.client.masters {
            if master.keeps_environment() {
                notes.push(format!(
                    "PHP-FPM {} gives PHP the environment that it was started with (clear_env = no, {}), which cannot be read. A variable there goes before {}",
                    master.pid,
                    shown(&master.config.file),
                    shown(&hop.setting.file)
                ));
            }
        }
    }
    notes
}

/// A process of an application, whether it has a socket now or not.
struct Running {
    pid: u32,
    name: String,
    unit: Option<String>,
}

/// The processes of a move's application whose environment can be read: its own, and nobody's who only speaks to the same
/// server; also those that have no socket now, as a worker that waits, and those beside PHP-FPM that execute the same project.
/// PHP-FPM writes its title over the environment that it was started with: what is read there is none.
fn processes(hop: &Hop) -> Rc<Vec<Running>> {
    let file = &hop.setting.file;
    once_in_a_run(&format!("processes of the application of {}", shown(file)), || {
        let mut pids = hop.client.application.pids();
        if hop.client.application.home.is_none() {
            let home = Home::of(server_files::project(file), file);
            pids.extend(home.processes(&mut Judged::default()).own);
        }
        pids.sort_unstable();
        pids.dedup();
        let named =
            pids.into_iter().map(|pid| Running { pid, name: proc::name(pid), unit: unit_or_container(pid) });
        named.filter(|process| !process.name.starts_with("php-fpm")).collect()
    })
}

/// Whether these stages change what a unit tells its processes.
fn changes_unit(stages: &[PlannedStage], unit: &str) -> bool {
    let mut changing = stages.iter().flat_map(|stage| &stage.of);
    changing.any(|(file, editor)| *editor == "systemd" && unit_of(file) == unit)
}

/// Whether an environment has all of a file, as it is now: it came from there, and the next start brings the new values.
fn is_loaded_from(file: &Variables, environment: &Variables) -> bool {
    !file.is_empty() && file.iter().all(|(name, value)| environment.get(name) == Some(value))
}

impl Running {
    /// Where its environment gets a variable: a line of its unit, if it is there.
    fn place_of(&self, name: &str) -> String {
        let Some(unit) = &self.unit else { return "set when it was started".to_owned() };
        for path in places(Path::new("/"), unit) {
            let Ok(bytes) = Disk::of(&path, Reads::RootsServer, None).read(&path) else { continue };
            for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
                if line.trim_start().starts_with("Environment=") && line.contains(&format!("{name}=")) {
                    return place(&path, number as u32 + 1);
                }
            }
        }
        for path in environment_files_of(unit) {
            let Ok(bytes) = Disk::of(&path, Reads::RootsServer, None).read(&path) else { continue };
            for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
                if line.trim_start().starts_with(&format!("{name}=")) {
                    return format!(
                        "{}:{}, which {unit} names in EnvironmentFile=",
                        shown(&path),
                        number + 1
                    );
                }
            }
        }
        format!("by {unit}, or what it reads")
    }
}

/// Notes on variables that move and that Compose sets as well.
pub(super) fn set_by_compose(hops: &[Hop], stages: &[PlannedStage]) -> Vec<String> {
    let mut notes = Vec::new();
    let names = editor("compose").map_or(&[][..], |editor| editor.names());
    for hop in hops {
        let moved = moved_by(hop, stages);
        let folder = hop.setting.file.parent().unwrap_or(Path::new("/"));
        let files = hop.config.files();
        for path in names.iter().map(|name| folder.join(name)) {
            let Ok(bytes) = files.read(&path) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            for (line, name) in set_in(&text, &moved) {
                notes.push(format!(
                    "{}:{line} gives a container {name}, which goes before {} there: change it too where the application runs in one",
                    shown(&path),
                    shown(&hop.setting.file)
                ));
            }
            for other in env_files(&text).iter().map(|name| folder.join(name)) {
                if other == hop.setting.file {
                    continue;
                }
                let Ok(bytes) = files.read(&other) else { continue };
                for (line, name) in set_in(&String::from_utf8_lossy(&bytes), &moved) {
                    notes.push(format!(
                        "{}:{line} sets {name} for a container (env_file of {}): change it too where the application runs in one",
                        shown(&other),
                        shown(&path)
                    ));
                }
            }
        }
    }
    notes
}

/// Lines that set a variable to another value than the one that it gets. `${DB_HOST}` is taken from the file itself.
fn set_in(text: &str, moved: &Variables) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.trim().trim_start_matches("- ").trim_matches(['"', '\'']);
        for sign in ["=", ":"] {
            let Some((name, value)) = code.split_once(sign) else { continue };
            let (name, value) = (name.trim(), value.trim().trim_matches(['"', '\'']));
            if differs(moved, name, value) && !value.contains('$') && !value.is_empty() {
                found.push((index + 1, name.to_owned()));
                break;
            }
        }
    }
    found
}

/// The files in `env_file:` of any service.
fn env_files(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_list = false;
    for line in text.lines() {
        let code = line.trim();
        if let Some(value) = code.strip_prefix("env_file:") {
            is_list = value.trim().is_empty();
            let only = value.trim().trim_matches(['[', ']', '"', '\'', ' ']);
            if !only.is_empty() {
                found.push(only.to_owned());
            }
            continue;
        }
        match code.strip_prefix("- ") {
            Some(item) if is_list => {
                let item = item.trim_start_matches("path:").trim().trim_matches(['"', '\'']);
                found.push(item.to_owned());
            }
            _ => is_list = false,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::stages::follow::{assignments, changed};

    #[test]
    fn a_host_or_a_port_alone_goes_before_a_default() {
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 27541 };
        let setting = Setting::connects("DATABASES default", Protocol::Postgres, "", endpoint);
        for (name, value, expected) in [
            ("DB_HOST", "127.0.0.1", true),
            ("DB_HOST", "localhost", true),
            ("SHOP_HOST", "127.0.0.1", true),
            ("DB_PORT", "5499", true),
            ("DB_PORT", "27541", false),
            ("DB_HOST", "10.99.0.7", false),
            ("REDIS_HOST", "127.0.0.1", false),
            ("WORKERS", "4", false),
        ] {
            assert_eq!(goes_before_default(name, value, &setting), expected, "{name}={value}");
        }
    }

    #[test]
    fn only_variables_that_move_matter_and_a_file_that_was_loaded_whole_is_its_source() {
        let before = assignments(b"# A\nexport DB_HOST=127.0.0.1\nDB_PORT='3306'\nAPP=x\n");
        let after = assignments(b"DB_HOST=localhost\nAPP=x\nDB_SOCKET=/run/s\n");
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

    #[test]
    fn what_compose_sets_itself_is_found_and_what_it_takes_from_the_file_is_not() {
        let moved =
            Variables::from([("DB_HOST".into(), "/run/pg".into()), ("DB_PORT".into(), "5432".into())]);
        let text =
            "services:\n  app:\n    environment:\n      DB_HOST: 127.0.0.1\n      - \"DB_PORT=5499\"\n";
        assert_eq!(set_in(text, &moved), [(4, "DB_HOST".to_owned()), (5, "DB_PORT".to_owned())]);
        assert!(
            set_in("      DB_HOST: ${DB_HOST}\n      DB_PORT: 5432\n      - DB_HOST\n", &moved).is_empty()
        );
        let files = env_files(
            "    env_file: a.env\n  b:\n    env_file:\n      - ./b.env\n      - path: c.env\n    image: x\n",
        );
        assert_eq!(files, ["a.env", "./b.env", "c.env"]);
    }
}
