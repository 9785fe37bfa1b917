//! Every text in which an address of a place that is left may stand: the configurations of the plan with the project
//! around them, what other servers of this machine run by, the units that are written down, and where the other programs
//! of a machine have their settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use samehost_edit::Files;
use samehost_edit::formats::EDITORS;
use samehost_model::scan::{Scan, Service};
use samehost_model::{Endpoint, Protocol};
use samehost_scan::services_at;
use samehost_services::Kind;
use samehost_system::User;

use super::left::{Left, Sources};
use super::started::{CRON, LONGEST, read, started};
use crate::configuration::leads::{OF_AN_APPLICATION, files_below};
use crate::configuration::server_files::{self, folder, project};
use crate::configuration::{ConfigFile, ParsedConfig, units};
use crate::disk::{Disk, Reads};
use crate::place::real;
use crate::plan::stages::follow::assignments;

/// How long all texts around the plan's own may be together, in bytes.
const MOST_BYTES: u64 = 64 << 20;
/// Directories of everybody: a file there has no project around it.
const EVERYBODYS: &[&str] =
    &["/", "/etc", "/home", "/opt", "/root", "/srv", "/usr/local/etc", "/var", "/var/www"];

/// Where programs of a machine have their settings, with how many directories below are searched.
const MACHINES: &[(&str, usize)] = &[
    ("/etc", 5),
    ("/usr/lib/systemd/system", 1),
    ("/usr/local/bin", 1),
    ("/usr/local/sbin", 1),
    ("/usr/local/etc", 3),
];
/// Where they have their projects.
const PROJECTS: &[(&str, usize)] = &[("/srv", 3), ("/var/www", 3), ("/opt", 3), ("/home", 4), ("/root", 3)];
/// Of another project: files for settings by the ends of their names, and those of code by a word in their path.
const OF_SETTINGS: &[&str] = &["yml", "yaml", "toml", "ini", "conf", "cfg", "cnf", "env", "properties", "sh"];
const OF_CODE: &[&str] = &[
    "php", "py", "js", "rb", "json", "go", "ts", "mjs", "cjs", "tsx", "jsx", "java", "kt", "scala", "groovy",
    "cs", "fs", "vb", "rs", "ex", "exs", "erl", "clj", "pl", "pm", "lua", "swift", "dart",
];
const WORDS: &[&str] = &["conf", "settings", "database", "parameters"];
/// How deep another project's code is searched, in which directories it does not run here, and words of the names of files that are so.
const DEEPEST_CODE: usize = 10;
const NOT_RUN: &[&str] = &[
    "target", "build", "dist", "_build", "deps", "third_party", "mod", "gems", "dist-packages", "doc",
    "wp-includes", "wp-admin", "spec", "specs", "__tests__", "testdata", "fixtures", "example", "examples",
    "test", "tests", "conftest", "mock", "mocks", "min", "dockerfile", "samehost",
];
/// What platforms start a project with.
const STARTED_BY: &[&str] = &["procfile", "app.json"];
/// Where a server is given the words that it starts with.
const STARTS: &[&str] = &["default", "sysconfig", "init.d", "conf.d", "systemd"];

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
    /// Of a program of this machine that the plan does not know.
    Machines,
    /// Of a project that is none of the plan's.
    OtherProjects,
    /// Of its code.
    OthersCode,
}

/// The texts that may lead to one of these places, and whether there were too many to look at all of them.
pub(super) fn texts(scan: &Scan, lefts: &[Left<'_>], sources: &Sources) -> (Vec<Text>, bool) {
    let mut all = Texts { lefts, found: BTreeMap::new(), read: 0, is_cut: false };
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
        below.insert(if is_shared { (folder(main).to_owned(), 0) } else { (root, OF_AN_APPLICATION) });
        for path in all.of_configuration(&config, whose) {
            below.insert((folder(&path).to_owned(), 0));
        }
    }
    for (folder, deepest) in below {
        let is_servers = deepest == 0 && of_servers.contains(&*folder);
        let whose = if is_servers { Whose::Servers } else { Whose::Applications };
        for path in all.below(&folder, deepest, sources.reader.as_ref(), &|_, _| true) {
            let disk = Disk::of(&path, Reads::Application, sources.reader.as_ref());
            all.add(&path, &disk, whose);
        }
    }
    all.of_servers(scan);
    all.of_units(scan);
    all.of_machine(scan);
    (all.found.into_values().collect(), all.is_cut)
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
    /// Whether there was more than is read.
    is_cut: bool,
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
            let Some(text) = read(path, &files) else { continue };
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
        if self.found.contains_key(&key) || length > LONGEST {
            return;
        }
        if self.read + length > MOST_BYTES {
            self.is_cut = true;
            return;
        }
        self.read += length;
        if let Some(text) = read(path, disk) {
            self.keep(path, text, whose);
        }
    }

    fn keep(&mut self, path: &Path, text: String, whose: Whose) {
        if !self.may_lead(&format!("{}\n{text}", name_of(path)), whose) {
            return;
        }
        let is_own = matches!(whose, Whose::Applications | Whose::Servers);
        let config = if is_own { ConfigFile::at(path, None).ok().flatten() } else { None };
        let readers = config.and_then(|config| config.read().ok()).into_iter().map(Rc::new).collect();
        self.found.entry(real(path)).or_insert(Text { path: path.to_owned(), text, readers, whose });
    }

    /// Whether a text has the number or the name of a place that is left; a host alone may mean a usual port.
    fn may_lead(&self, text: &str, whose: Whose) -> bool {
        let is_others = !matches!(whose, Whose::Applications | Whose::Servers);
        self.lefts.iter().any(|left| match left.from {
            Endpoint::Tcp { port, .. } => {
                let mut usual = Kind::all().filter(|kind| kind.descriptor().ports.contains(port));
                let has_host = ["127.", "localhost", "0.0.0.0", "::"].iter().any(|host| text.contains(host));
                let has_tool = |kind: Kind| {
                    let known = kind.descriptor();
                    known.tools.iter().chain(&known.calls).any(|tool| text.contains(tool.as_str()))
                };
                text.contains(&port.to_string())
                    || whose != Whose::OthersCode
                        && usual.any(|kind| has_tool(kind) || has_host && (!is_others || names(text, kind)))
            }
            Endpoint::Unix(path) if is_others => {
                let named = [Some(path.as_path()), path.parent()];
                named.into_iter().flatten().any(|path| text.contains(&*path.to_string_lossy()))
            }
            _ => text.contains('/'),
        })
    }

    fn below(
        &mut self,
        folder: &Path,
        deepest: usize,
        reader: Option<&User>,
        is_wanted: &dyn Fn(&Path, &str) -> bool,
    ) -> Vec<PathBuf> {
        let (paths, is_cut) = files_below(folder, deepest, reader, is_wanted);
        self.is_cut |= is_cut;
        paths
    }

    /// The settings of programs that nobody named; but what a server that leaves starts with says where it listens.
    fn of_machine(&mut self, scan: &Scan) {
        let mut own = BTreeSet::new();
        for service in self.services(scan) {
            own.extend(service.kind.iter().flat_map(|kind| kind.descriptor().programs.iter().cloned()));
            let unit = scan.main_process(service).and_then(|process| process.unit.clone());
            own.extend(unit.and_then(|unit| unit.strip_suffix(".service").map(str::to_owned)));
        }
        let starts_it = |path: &Path| {
            let mut parts = path.iter().map(|part| part.to_string_lossy());
            parts.any(|part| STARTS.contains(&&*part))
                && parts.any(|part| own.contains(part.split('.').next().unwrap_or_default()))
        };
        for (folder, deepest) in MACHINES {
            for path in self.below(Path::new(folder), *deepest, None, &|path, _| !starts_it(path)) {
                self.add(&path, &Disk::of(&path, Reads::Application, None), Whose::Machines);
            }
        }
        let disk = Disk::default();
        for path in CRON.iter().flat_map(|folder| disk.list(Path::new(folder)).unwrap_or_default()) {
            self.add(&path, &disk, Whose::Machines);
        }
        let (started, is_cut) = &*started(&self.units_of_servers(scan));
        self.is_cut |= is_cut;
        for (path, text) in started {
            self.keep(path, text.clone(), Whose::Machines);
        }
        for (folder, deepest) in PROJECTS {
            for path in self.below(Path::new(folder), *deepest, None, &is_of_settings) {
                self.add(&path, &Disk::of(&path, Reads::Application, None), Whose::OtherProjects);
            }
        }
        for (folder, _) in PROJECTS {
            for path in self.below(Path::new(folder), DEEPEST_CODE, None, &is_code_that_runs) {
                self.add(&path, &Disk::of(&path, Reads::Application, None), Whose::OthersCode);
            }
        }
    }

    /// The servers at the places that are left.
    fn services<'s>(&self, scan: &'s Scan) -> Vec<&'s Service> {
        let at = self.lefts.iter().flat_map(|left| services_at(scan, left.from));
        at.filter_map(|at| scan.services.get(at)).collect()
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

    /// The units of the servers at the places that are left.
    fn units_of_servers(&self, scan: &Scan) -> BTreeSet<String> {
        let services = self.services(scan).into_iter();
        services.filter_map(|service| scan.main_process(service)?.unit.clone()).collect()
    }

    fn of_units(&mut self, scan: &Scan) {
        let servers = self.units_of_servers(scan);
        for unit in units::written().iter().filter(|unit| !servers.contains(&unit.name)) {
            let whose = if unit.is_of_a_server() { Whose::Servers } else { Whose::Applications };
            for (path, _) in unit.files.iter().chain(&unit.environment_files) {
                self.add(path, &Disk::of(path, Reads::RootsServer, None), whose);
            }
        }
    }
}

/// The name of a file, which may be that of the service of which its values are.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a text has the name of a server, or of what is spoken to it.
pub(super) fn names(text: &str, kind: Kind) -> bool {
    let text = text.to_ascii_lowercase();
    let protocol = kind.protocol().map(Protocol::name);
    [Some(kind.name()), protocol].into_iter().flatten().any(|name| text.contains(name))
}

/// Whether a file is code in which settings may stand.
pub(super) fn is_code(path: &Path) -> bool {
    OF_CODE.iter().any(|end| path.extension().is_some_and(|own| own == *end))
}

/// Whether a file is code of another project that runs on this machine, by its path and its name in small letters.
fn is_code_that_runs(path: &Path, name: &str) -> bool {
    // The first directory below is somebody's name.
    let mut folders = folder(path).iter().skip(3).map(|part| part.to_string_lossy());
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_tests = ["Test", "Tests", "Spec"].iter().any(|end| stem.ends_with(end))
        || name.split(['.', '_', '-']).any(|word| NOT_RUN.contains(&word));
    let is_code = is_code(path) || !name.contains('.');
    is_code && !is_tests && !folders.any(|part| NOT_RUN.contains(&&*part.to_ascii_lowercase()))
}

/// Whether another project may have its settings in a file, by its path and its name in small letters.
fn is_of_settings(path: &Path, name: &str) -> bool {
    let end = name.rsplit('.').next().unwrap_or_default();
    let way = path.to_string_lossy().to_ascii_lowercase();
    let is_settings = WORDS.iter().any(|word| way.contains(word));
    let mut usual = EDITORS.iter().flat_map(|editor| editor.names());
    name.starts_with(".env")
        || name == ".htaccess"
        || STARTED_BY.contains(&name)
        || OF_SETTINGS.contains(&end)
        || (OF_CODE.contains(&end) && is_settings)
        || usual.any(|name| path.ends_with(name))
}
