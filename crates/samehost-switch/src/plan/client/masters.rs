//! Masters of PHP-FPM that run an application: what their pools hand to PHP, and how PHP takes a change of one of its
//! files. Only reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::formats::php_fpm::{Handed, HandedKind, handed, keeps_environment};
use samehost_edit::formats::php_ini::directive;
use samehost_edit::{Files, Overlay};
use samehost_model::scan::Scan;

use super::application::Application;
use super::identity::ClientIdentity;
use super::pools::fpm_config;
use crate::configuration::config_file::ConfigFile;
use crate::configuration::server_files;
use crate::findings::place;

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
