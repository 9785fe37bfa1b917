//! Every text in which an address of a place that is left may stand: the configurations of the plan with the project
//! around them, what other servers of this machine run by, and the units that are written down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use samehost_edit::Files;
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_scan::services_at;
use samehost_services::Kind;

use super::left::{Left, Sources};
use crate::configuration::leads::files_below;
use crate::configuration::server_files::{self, folder, project};
use crate::configuration::{ConfigFile, ParsedConfig, units};
use crate::disk::{Disk, Reads};
use crate::place::real;
use crate::plan::stages::follow::assignments;

/// Longest text that is searched, and all those around the plan's own together, in bytes.
const LONGEST: usize = 1 << 20;
const MOST_BYTES: u64 = 64 << 20;
/// How many directories below the one of an application are searched.
const DEEPEST: usize = 5;
/// Directories of everybody: a file there has no project around it.
const EVERYBODYS: &[&str] =
    &["/", "/etc", "/home", "/opt", "/root", "/srv", "/usr/local/etc", "/var", "/var/www"];

/// A text with those who read it.
pub(super) struct Text {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) readers: Vec<Rc<ParsedConfig>>,
    pub(super) whose: Whose,
}

/// Whose words a text has. A port alone is where a server listens in its own words, and where a program connects in others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Applications,
    Servers,
}

/// The texts that may lead to one of these places.
pub(super) fn texts(scan: &Scan, lefts: &[Left<'_>], sources: &Sources) -> Vec<Text> {
    let mut all = Texts { lefts, found: BTreeMap::new(), read: 0 };
    let mut below: BTreeSet<(PathBuf, usize)> = BTreeSet::new();
    let mut of_servers: BTreeSet<&Path> = BTreeSet::new();
    for main in &sources.configurations {
        let Ok(Some(config)) = ConfigFile::at(main, sources.reader.as_ref()) else {
            below.insert((folder(main).to_owned(), 0));
            continue;
        };
        let whose = if config.kind().is_some() { Whose::Servers } else { Whose::Applications };
        if whose == Whose::Servers {
            of_servers.insert(folder(main));
        }
        let root = project(main);
        let is_shared = whose == Whose::Servers || EVERYBODYS.iter().any(|name| root == Path::new(name));
        below.insert(if is_shared { (folder(main).to_owned(), 0) } else { (root, DEEPEST) });
        for path in all.of_configuration(&config, whose) {
            below.insert((folder(&path).to_owned(), 0));
        }
    }
    for (folder, deepest) in below {
        let is_servers = deepest == 0 && of_servers.contains(&*folder);
        let whose = if is_servers { Whose::Servers } else { Whose::Applications };
        for path in files_below(&folder, deepest, sources.reader.as_ref()) {
            let disk = Disk::of(&path, Reads::Application, sources.reader.as_ref());
            all.add(&path, &disk, whose);
        }
    }
    all.of_servers(scan);
    all.of_units(scan);
    all.found.into_values().collect()
}

/// The variables that the plan's own configurations set.
pub(super) fn assigned(sources: &Sources) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for main in &sources.configurations {
        let disk = Disk::of(main, Reads::Application, sources.reader.as_ref());
        names.extend(assignments(&disk.read(main).unwrap_or_default()).into_keys());
    }
    names
}

struct Texts<'a> {
    lefts: &'a [Left<'a>],
    /// By their real paths.
    found: BTreeMap<PathBuf, Text>,
    /// Bytes of texts around the plan's own that were read.
    read: u64,
}

impl Texts<'_> {
    /// The texts of a configuration, whose paths are returned.
    fn of_configuration(&mut self, config: &ConfigFile, whose: Whose) -> BTreeSet<PathBuf> {
        let files = config.files();
        let parsed = config.read().ok().map(Rc::new);
        let paths = match &parsed {
            Some(parsed) => parsed.paths(&files),
            None => BTreeSet::from([config.file.clone()]),
        };
        for path in &paths {
            let Some(text) = text_of(&files, path) else { continue };
            let key = files.real(path);
            let new = || Text { path: path.clone(), text, readers: Vec::new(), whose };
            let one = self.found.entry(key).or_insert_with(new);
            one.readers.extend(parsed.clone());
        }
        paths
    }

    /// A text around the plan's own, where it has words of a place that is left.
    fn add(&mut self, path: &Path, disk: &Disk, whose: Whose) {
        let key = real(path);
        let length = std::fs::metadata(path).map_or(0, |found| found.len());
        if self.found.contains_key(&key) || length > LONGEST as u64 || self.read + length > MOST_BYTES {
            return;
        }
        self.read += length;
        let Some(text) = text_of(disk, path).filter(|text| self.may_lead(text)) else { return };
        let config = ConfigFile::at(path, None).ok().flatten();
        let readers = config.and_then(|config| config.read().ok()).into_iter().map(Rc::new).collect();
        self.found.insert(key, Text { path: path.to_owned(), text, readers, whose });
    }

    /// Whether a text has the number or the name of a place that is left; a host alone may mean a usual port.
    fn may_lead(&self, text: &str) -> bool {
        self.lefts.iter().any(|left| match left.from {
            Endpoint::Tcp { port, .. } => {
                let is_usual = Kind::all().any(|kind| kind.descriptor().ports.contains(port));
                let mut hosts = ["127.", "localhost", "0.0.0.0", "::"].iter();
                text.contains(&port.to_string()) || (is_usual && hosts.any(|host| text.contains(host)))
            }
            _ => text.contains('/'),
        })
    }

    /// What other servers run by: a proxy before a server, another server's replica, a pool of PHP-FPM with what it hands
    /// to PHP. Web servers are asked by themselves (`elsewhere`).
    fn of_servers(&mut self, scan: &Scan) {
        for (at, service) in scan.services.iter().enumerate() {
            let is_left = self.lefts.iter().any(|left| services_at(scan, left.from).contains(&at));
            if is_left || matches!(service.kind, None | Some(Kind::Nginx | Kind::Apache)) {
                continue;
            }
            let mut files = server_files::of(scan, service).into_iter();
            if let Some(config) = files.find_map(|path| ConfigFile::at(&path, None).ok()?) {
                self.of_configuration(&config, Whose::Servers);
            }
        }
    }

    fn of_units(&mut self, scan: &Scan) {
        let mut servers = BTreeSet::new();
        for at in self.lefts.iter().flat_map(|left| services_at(scan, left.from)) {
            let service = scan.services.get(at);
            let process = service.and_then(|service| scan.main_process(service));
            servers.extend(process.and_then(|process| process.unit.clone()));
        }
        for unit in units::written().into_iter().filter(|unit| !servers.contains(&unit.name)) {
            let whose = if unit.is_of_a_server() { Whose::Servers } else { Whose::Applications };
            for (path, _) in unit.files.iter().chain(&unit.environment_files) {
                self.add(path, &Disk::of(path, Reads::RootsServer, None), whose);
            }
        }
    }
}

fn text_of(files: &dyn Files, path: &Path) -> Option<String> {
    let bytes = files.read(path).ok()?;
    if bytes.len() > LONGEST || bytes.contains(&0) {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
