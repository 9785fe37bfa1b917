//! A stage of a switch: the files that change, what checks and loads them, and what must answer then.

use std::path::PathBuf;

use samehost_model::scan::Scan;
use samehost_model::{Endpoint, ObstacleCode};

use crate::check::{Planned, planned};
use crate::configuration::config_file::ConfigFile;
use crate::findings::{Findings, bar};
use crate::reload::{PlannedReload, ReloadAction};

/// A file that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// Which.
    pub(crate) path: PathBuf,
    /// Content before the stage; `None`: missing.
    pub(crate) before: Option<Vec<u8>>,
    /// As it is afterwards.
    pub(crate) after: Option<Vec<u8>>,
    /// For a new file: the file whose text it contains.
    pub(crate) like: Option<PathBuf>,
}

/// A stage. Everything serves after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedStage {
    /// What it is for.
    pub(crate) title: &'static str,
    /// The files that change.
    pub(crate) changes: Vec<Replacement>,
    /// Commands that check the files.
    pub(crate) checks: Vec<Planned>,
    /// What makes programs load them.
    pub(crate) reloads: Vec<PlannedReload>,
    /// Endpoints that must answer afterwards.
    pub(crate) awaits: Vec<Endpoint>,
    /// New endpoints that servers take in it.
    pub(crate) takes: Vec<Endpoint>,
    /// Servers that leave their old place in it.
    pub(crate) leaves: Vec<Leaving>,
    /// The configurations that change in it, by file and editor.
    pub(crate) of: Vec<(PathBuf, &'static str)>,
}

impl PlannedStage {
    /// Adds the check of a configuration that changes in it, and that this process runs by, or returns a note why the
    /// check is not run.
    pub(crate) fn check(&mut self, scan: &Scan, config: &ConfigFile, pid: Option<u32>) -> Option<String> {
        match planned(scan, config, pid)? {
            Ok(check) => {
                self.checks.push(check);
                None
            }
            Err(note) => Some(note),
        }
    }

    /// Adds what makes a program load its change, once; or returns what is in the way.
    pub(crate) fn reload(&mut self, action: ReloadAction) -> Findings {
        let mut findings = Findings::default();
        match action {
            ReloadAction::Nothing(note) => findings.note(note),
            ReloadAction::Command(reload) => {
                if !self.reloads.iter().any(|other| other.command == reload.command) {
                    self.reloads.push(reload);
                }
            }
            ReloadAction::Missing { found, remedy } => {
                findings.add([bar(ObstacleCode::Reload, found, remedy)]);
            }
        }
        findings
    }
}

/// What a stage is for, in order.
pub(crate) const TITLES: [&str; 4] = [
    "the server listens at the new place as well",
    "the client moves",
    "the server leaves the old place",
    "the client forgets the old place",
];

/// The stages of a switch, and what was found while they were made.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub(crate) stages: Vec<PlannedStage>,
    pub(crate) findings: Findings,
}

/// A server leaves its old place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// Where it listens no longer.
    pub(crate) from: Endpoint,
    /// Where it listens.
    pub(crate) to: Endpoint,
    /// Whether something serves at both places before.
    pub(crate) can_wait: bool,
    /// Whether its clients moved before, so that nobody should still use the old place.
    pub(crate) moved: bool,
    /// A client that has to be restarted first, and that this program does not restart.
    pub(crate) restart: Option<String>,
}

/// The note for a server that can only be at one place.
pub(crate) fn moves_away(from: &Endpoint) -> String {
    format!("the server can be at one place only: it moves, and then nothing answers at {from} any more")
}
