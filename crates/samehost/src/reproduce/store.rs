//! The experiments of a reproduction that did not come to its end, kept for the next call to go on with.

use std::fs;
use std::path::{Path, PathBuf};

use samehost_model::{Experiment, Host, Mode};
use serde::{Deserialize, Serialize};

use crate::{output, storage};

/// A kept experiment older than this is measured again, in seconds: the machine may have changed.
const LONGEST: i64 = 24 * 3600;

/// What must be the same for a kept experiment to be part of another reproduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Key {
    samehost_version: String,
    mode: Mode,
    kernel: String,
    cpu_model: String,
    cpus: u32,
    cpus_allowed: u32,
    memory_mib: u64,
    /// Seconds asked for with --budget.
    budget_s: Option<f64>,
}

/// One kept experiment.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: Key,
    experiment: Experiment,
}

/// Where experiments are kept: a file each in a directory of their mode.
#[derive(Debug)]
pub struct Store {
    directory: Option<PathBuf>,
    key: Key,
}

impl Store {
    /// The store of this machine and mode.
    pub fn new(host: &Host, mode: Mode, budget_s: Option<f64>) -> Self {
        let key = Key {
            samehost_version: env!("CARGO_PKG_VERSION").into(),
            mode,
            kernel: host.kernel.clone(),
            cpu_model: host.cpu_model.clone(),
            cpus: host.cpus,
            cpus_allowed: host.cpus_allowed,
            memory_mib: host.memory_mib,
            budget_s,
        };
        let directory = storage::directory().map(|state| state.join("reproduce").join(mode.to_string()));
        Store { directory, key }
    }

    fn path(&self, id: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{id}.json")))
    }

    /// Keeps a finished experiment.
    ///
    /// # Errors
    /// When there is no place for it; measuring goes on all the same.
    pub fn keep(&self, experiment: &Experiment) -> anyhow::Result<()> {
        let path = self
            .path(&experiment.id)
            .ok_or_else(|| anyhow::anyhow!("neither XDG_STATE_HOME nor HOME is set"))?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let kept = Kept { key: self.key.clone(), experiment: experiment.clone() };
        output::write_to(&path, &serde_json::to_vec(&kept)?)
    }

    /// The kept experiment of this id, where there is one of the same machine, mode and day.
    pub fn kept(&self, id: &str) -> Option<Experiment> {
        let bytes = fs::read(self.path(id)?).ok()?;
        // A file of another version or cut short is none.
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        let at: jiff::Timestamp = kept.experiment.measured_at.as_deref()?.parse().ok()?;
        let age = jiff::Timestamp::now().as_second() - at.as_second();
        let usable = kept.key == self.key && kept.experiment.id == id && (0..LONGEST).contains(&age);
        usable.then_some(Experiment { kept: true, ..kept.experiment })
    }

    /// Forgets the kept experiments of these ids.
    pub fn forget<'a>(&self, ids: impl Iterator<Item = &'a str>) {
        for path in ids.filter_map(|id| self.path(id)) {
            remove(&path);
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::debug!(%error, path = %path.display(), "a kept experiment stays");
    }
}
