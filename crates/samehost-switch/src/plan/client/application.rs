//! The application that a configuration belongs to: the processes by which its connections are known, now and after a
//! restart. Who may be logged in as is not therefore the application. For PHP they are behind a master of PHP-FPM: what its pools
//! hand to PHP, and how PHP takes a change of one of its files, is read here too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::formats::php_fpm::{Handed, HandedKind, handed, keeps_environment};
use samehost_edit::formats::php_ini::directive;
use samehost_edit::{Files, Overlay, Uptake};
use samehost_model::scan::Scan;
use samehost_services::Kind;
use samehost_system::identity::stat_field;
use samehost_system::proc::pids;
use samehost_system::{open, peer};

use super::identity::{ClientIdentity, PHP_FPM, handing_over, of_programs, works_in};
use super::pools::{fpm_config, pools_of};
use crate::configuration::config_file::ConfigFile;
use crate::configuration::server_files;
use crate::findings::place;
use crate::place::real;

/// How much of a process's title is read, in bytes.
const LONGEST_TITLE: u64 = 4096;

/// The processes of an application, by which its connections are known. New ones come with each reload, and belong to it
/// by the one that starts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Application {
    /// Processes and their descendants.
    pub(crate) families: Vec<u32>,
    /// Masters of PHP-FPM, each with the name of the pool whose workers count.
    pub(crate) pools: Vec<(u32, String)>,
    /// The directory in which its processes work, where it takes its configuration by being started again.
    pub(crate) folder: Option<PathBuf>,
}

impl Application {
    /// The processes now.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.families.iter().flat_map(|root| peer::family(*root)).collect();
        if let Some(folder) = &self.folder {
            // Our own logins are not the application's, in whatever directory this command was given.
            let own = peer::family(std::process::id());
            let at_work = at_work_in(folder).into_iter().flat_map(peer::family);
            pids.extend(at_work.filter(|pid| !own.contains(pid)));
        }
        for (master, name) in &self.pools {
            let title = format!("php-fpm: pool {name}");
            pids.extend(peer::children(*master).into_iter().filter(|worker| title_of(*worker) == title));
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// The title that a process gave itself, or its command line.
fn title_of(pid: u32) -> String {
    let title = open::proc_file(&format!("/proc/{pid}/cmdline"), LONGEST_TITLE).unwrap_or_default();
    String::from_utf8_lossy(&title).trim_end_matches(['\0', ' ']).to_owned()
}

/// The processes of the application that a configuration belongs to, given who will connect. Of PHP, those of the pool that
/// serves the directory; where no web server names it, those of every pool, if one master has them all. `process` is the one
/// that runs by the configuration itself, where that is known.
pub(crate) fn application(
    scan: &Scan,
    config: &ConfigFile,
    process: Option<u32>,
    clients: &[ClientIdentity],
) -> Application {
    if let (Some(Kind::PhpFpm), Some(master)) = (config.kind(), process) {
        return Application { families: vec![master], ..Application::default() };
    }
    if clients.iter().any(|client| client.name.starts_with("php-fpm")) {
        let directory = server_files::folder(&config.file);
        let serving =
            directory.ancestors().take(2).map(|at| pools_of(scan, at)).find(|pools| !pools.is_empty());
        if let Some(serving) = serving {
            let pools = serving.into_iter().map(|pool| (pool.master, pool.name)).collect();
            return Application { pools, ..Application::default() };
        }
        let masters = of_programs(scan, &[PHP_FPM]).into_iter().map(|worker| worker.parent);
        let masters: BTreeSet<u32> = masters.filter(|pid| *pid > 1).collect();
        if masters.len() > 1 {
            // Whose connection it is could not be told.
            return Application::default();
        }
        return Application { families: masters.into_iter().collect(), ..Application::default() };
    }
    // A program that connects for a moment need not be connected when we look, and one that takes its file at its start has
    // another number then: it is known by the directory in which it works, or by its unit. Whoever talks to the same service
    // and may read the file can be logged in as, and is not therefore the application.
    let starts_again = config.editor.uptake(&config.file) == Uptake::RestartApplication;
    let folder = starts_again.then(|| real(server_files::folder(&config.file)));
    let units = if starts_again { handing_over(scan, &config.file) } else { BTreeSet::new() };
    let mut families = Vec::new();
    for client in clients {
        let process = client.pid.and_then(|pid| scan.process(pid));
        let unit = process.and_then(|process| process.unit.as_deref());
        let is_handed = unit.is_some_and(|unit| units.contains(unit));
        if let (Some(pid), Some(folder)) = (client.pid, &folder)
            && !is_handed
            && !works_in(pid, folder)
        {
            continue;
        }
        families.extend(client.pid);
        // A supervisor's parent starts more than this application.
        if let Some(parent) = client.parent.filter(|parent| *parent > 1) {
            let parents_name = scan.process(parent).map(|process| &process.name);
            if process.map(|process| &process.name) == parents_name {
                families.push(parent);
            }
        }
    }
    Application { families, pools: Vec::new(), folder }
}

/// Processes that work in a directory or below it. Whoever does so at a terminal is a person.
fn at_work_in(folder: &Path) -> Vec<u32> {
    let mut found = pids();
    found.retain(|pid| works_in(*pid, folder) && stat_field(*pid, 7).is_some_and(|terminal| terminal == "0"));
    found
}

/// After how many seconds PHP looks at a file again, where nothing says otherwise (opcache.revalidate_freq).
const USUAL_REVALIDATION: u64 = 2;

/// Values of variables by their names.
pub(crate) type Variables = BTreeMap<String, String>;

/// A master of PHP-FPM that runs an application.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    pub(crate) pid: u32,
    pub(crate) config: ConfigFile,
    /// The pools that serve the application; empty where that is not known.
    pub(crate) pools: Vec<String>,
}

impl Master {
    /// What its pools hand to PHP: those that serve the application, where that is known.
    pub(crate) fn handed(&self) -> Vec<Handed> {
        self.of_its_pools(handed(&self.config.file, &self.config.files()))
    }

    /// What its pools hand to PHP when files have these texts.
    pub(crate) fn handed_with(&self, changed: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<Handed> {
        let files = self.config.files();
        let mut texts = BTreeMap::new();
        for Handed { file, .. } in handed(&self.config.file, &files) {
            // A pool's file may be named by a link.
            let Ok(real) = file.canonicalize() else { continue };
            if let Some(text) = changed.get(&real) {
                texts.insert(file, text.clone());
            }
        }
        self.of_its_pools(handed(&self.config.file, &Overlay::new(&files, texts)))
    }

    /// Whether it gives PHP the environment that it was started with, which nobody can read.
    pub(crate) fn keeps_environment(&self) -> bool {
        keeps_environment(&self.config.file, &self.config.files())
    }

    /// Whether its pools hand on these values, in other files than those on disk; one that is empty is not handed on.
    pub(crate) fn says(&self, files: &dyn Files, wanted: &Variables) -> bool {
        for one in self.of_its_pools(handed(&self.config.file, files)) {
            let HandedKind::Variable(name) = &one.what else { continue };
            if wanted.get(name).is_some_and(|new| one.value.as_ref() != Some(new)) {
                return false;
            }
        }
        true
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
                return Some((value, place(&one.file, one.line)));
            }
        }
        let files = self.config.files();
        let ini = server_files::folder(&self.config.file).join("php.ini");
        let (value, file, line) = files.exists(&ini).then(|| directive(&ini, &files, key))??;
        Some((value, place(&file, line)))
    }
}

/// The masters of PHP-FPM that run an application: those of its pools, else those of its clients.
pub(super) fn masters(scan: &Scan, application: &Application, clients: &[ClientIdentity]) -> Vec<Master> {
    let mut wanted: Vec<(u32, Vec<String>)> = Vec::new();
    for (master, pool) in &application.pools {
        match wanted.iter_mut().find(|(known, _)| known == master) {
            Some((_, pools)) => pools.push(pool.clone()),
            None => wanted.push((*master, vec![pool.clone()])),
        }
    }
    if wanted.is_empty() {
        let pids = clients.iter().flat_map(|client| [client.pid, client.parent]).flatten();
        wanted.extend(pids.map(|pid| (pid, Vec::new())));
    }
    let mut found = Vec::new();
    for (pid, pools) in wanted {
        found.extend(fpm_config(scan, pid).map(|config| Master { pid, config, pools }));
    }
    found
}

/// How PHP takes a change of one of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Revalidation {
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

/// How PHP of these masters takes a change of a file; `None` where it is not PHP's.
pub(super) fn revalidation(file: &Path, masters: &[Master]) -> Option<Revalidation> {
    if file.extension().is_none_or(|extension| extension != "php") {
        return None;
    }
    let mut longest = Duration::from_secs(USUAL_REVALIDATION);
    for master in masters {
        if let Some((value, place)) = master.setting("opcache.validate_timestamps")
            && is_off(&value)
            && master.setting("opcache.enable").is_none_or(|(value, _)| !is_off(&value))
        {
            let file = master.config.file.clone();
            return Some(Revalidation::Never { master: master.pid, file, place });
        }
        let seconds = master.setting("opcache.revalidate_freq").and_then(|(value, _)| value.parse().ok());
        longest = longest.max(Duration::from_secs(seconds.unwrap_or(0)));
    }
    Some(Revalidation::After(longest))
}

fn is_off(value: &str) -> bool {
    ["0", "off", "no", "false", ""].contains(&value.to_ascii_lowercase().as_str())
}
