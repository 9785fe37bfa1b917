//! Reproduces the published experiments: the registry, the run, the judgement of each claim, and results
//! stored so that an interrupted run can continue.

mod claims;
mod congestion;
mod published;
mod run;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use samehost_model::{Experiment, Host, Mode};
use serde::{Deserialize, Serialize};

use crate::{output, storage};

pub use published::{Published, chosen};
pub use run::{Reproducer, next, planned};

pub const FOLDER: &str = "reproduce";
/// Age up to which a stored experiment is used, in seconds; the machine may have changed since.
const LONGEST: i64 = 24 * 3600;

/// Properties that must be equal for a stored experiment to be reused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Key {
    samehost_version: String,
    mode: Mode,
    kernel: String,
    cpu_model: String,
    cpus: u32,
    cpus_allowed: u32,
    memory_mib: u64,
    /// Of --budget.
    budget_s: Option<f64>,
    /// Of --server.
    #[serde(default)]
    server: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: Key,
    experiment: Experiment,
}

/// Stored experiments of an incomplete reproduction, so that the next call can continue it: a directory for each mode, with a file
/// for each experiment.
#[derive(Debug)]
pub struct Store {
    directory: Option<PathBuf>,
    key: Key,
}

impl Store {
    pub fn new(host: &Host, mode: Mode, budget_s: Option<f64>, server: Option<String>) -> Self {
        let key = Key {
            samehost_version: env!("CARGO_PKG_VERSION").into(),
            mode,
            kernel: host.kernel.clone(),
            cpu_model: host.cpu_model.clone(),
            cpus: host.cpus,
            cpus_allowed: host.cpus_allowed,
            memory_mib: host.memory_mib,
            budget_s,
            server,
        };
        let directory = storage::directory().map(|state| state.join(FOLDER).join(mode.to_string()));
        Store { directory, key }
    }

    fn path(&self, id: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{id}.json")))
    }

    pub fn keep(&self, experiment: &Experiment) -> anyhow::Result<()> {
        let path = self.path(&experiment.id).context("neither XDG_STATE_HOME nor HOME is set")?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let kept = Kept { key: self.key.clone(), experiment: experiment.clone() };
        output::write_to(&path, &serde_json::to_vec(&kept)?)
    }

    /// The stored experiment with this id, if it is of the same machine and mode and recent enough.
    pub fn kept(&self, id: &str) -> Option<Experiment> {
        let bytes = fs::read(self.path(id)?).ok()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        let at: jiff::Timestamp = kept.experiment.measured_at.as_deref()?.parse().ok()?;
        let age = jiff::Timestamp::now().as_second() - at.as_second();
        if kept.key != self.key || kept.experiment.id != id || !(0..LONGEST).contains(&age) {
            return None;
        }
        Some(Experiment { kept: true, ..kept.experiment })
    }

    /// Deletes the stored experiments with these ids.
    pub fn forget<'a>(&self, ids: impl Iterator<Item = &'a str>) {
        for id in ids {
            let Some(path) = self.path(id) else { continue };
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::debug!(%error, path = %path.display(), "a kept experiment stays");
            }
        }
    }
}
