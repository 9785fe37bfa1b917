//! A transaction over users' files: checked, backed up and journalled before the first of them is touched; written
//! whole or not at all; put back exactly. Knows no formats and runs no programs: reloads are the caller's, by callback.
//!
//! ```text
//! begin     lock, check, back up, journal, prepare every version beside its file (all that needs space or rights)
//! write     one stage: each prepared version is renamed into place
//! reloading journalled before the caller reloads a stage
//! verified  from here on a crash is completed, not rolled back
//! commit | roll_back | (after a crash) recover | (later) undo; where it awaits its confirmation: confirm | take_back
//! ```

mod begin;
mod confirm;
mod directory;
mod entry;
mod error;
mod examine;
#[doc(hidden)]
pub mod fault;
mod foresee;
mod forget;
mod journal;
mod lock;
mod metadata;
mod plan;
mod put_back;
mod reading;
mod recover;
mod resolve;
mod standing;
mod store;
mod system;
mod undo;
mod version;
mod writer;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use confirm::confirm;
pub use entry::{Entry, State};
pub use error::{Holder, TransactionError};
pub use foresee::{Foreseen, Outlook, Prospect, foresee_recovery, foresee_undo};
pub use forget::forget;
pub use put_back::{Failed, Left, RolledBack};
pub use recover::{Ending, Recovered, recover};
pub use resolve::resolve;
pub use standing::{Standing, Stands, standing};
pub use store::Store;
pub use undo::{take_back, undo};

use directory::Held;
use journal::{Begun, Journal, Record};
use writer::{Direction, Writer};

/// One file in one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The file, as [`resolve`] gives it: absolute, with no symbolic link in it.
    pub path: PathBuf,
    /// Its bytes before; none where the switch makes it.
    pub before: Option<Vec<u8>>,
    /// Its bytes afterwards; none where the switch removes it.
    pub after: Option<Vec<u8>>,
    /// Where the switch makes it: a file that it takes its text from, and is never more readable than.
    pub like: Option<PathBuf>,
}

/// What makes running programs take the files of a stage. Data to this module: the caller runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// What is reloaded, for people.
    pub what: String,
    /// The words of the command.
    pub command: Vec<String>,
}

/// Changes after which everything serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// The files; each at most once a stage.
    pub changes: Vec<FileChange>,
    /// What takes them into use; done again, last first, when the stage is put back.
    pub reloads: Vec<Reload>,
}

/// What a transaction is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// The user's words, without secrets.
    pub command: String,
    /// One line of what it does, without secrets.
    pub summary: String,
    /// In order; a file may change again in a later one.
    pub stages: Vec<Stage>,
}

/// A transaction at work: it holds its locks until it is committed, rolled back or dropped. One that is dropped
/// unfinished is what [`recover`] ends.
#[must_use = "a transaction that is dropped unfinished waits for `recover`"]
#[derive(Debug)]
pub struct Transaction {
    store: Store,
    journal: Journal,
    begun: Begun,
    held: Held,
}

impl Transaction {
    /// Locks, checks that each file is as `before` says and can be changed and put back, backs up, journals, and
    /// prepares every version beside its file, so that a full disk or a missing right is met here. No file of the
    /// user's has been touched when this returned.
    ///
    /// # Errors
    /// [`TransactionError`]; nothing is left behind.
    pub fn begin(store: &Store, intent: &Intent) -> Result<Self, TransactionError> {
        begin::begin(store, intent)
    }

    /// Its name among the store's switches.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.begun.id
    }

    /// Where the version before of a file is kept.
    #[must_use]
    pub fn backup(&self, path: &std::path::Path) -> Option<PathBuf> {
        self.begun.original(path).map(|digest| self.store.backup(&self.begun.id, digest))
    }

    /// Puts the files of a stage into place, each atomically. Stages are written in order.
    ///
    /// # Errors
    /// When a file was changed by someone else meanwhile, or the system refuses; then roll back.
    pub fn write(&mut self, stage: usize) -> Result<(), TransactionError> {
        let next = self.journal.history().furthest().map_or(0, |last| last + 1);
        if stage != next || stage >= self.begun.reloads.len() {
            return Err(TransactionError::Plan(format!("stage {stage} is written where {next} is next")));
        }
        self.journal.append(&Record::Writing { stage })?;
        let writer = Writer::new(&self.store, &self.begun, &self.held);
        for step in self.begun.steps.iter().filter(|step| step.stage == stage) {
            writer.install(step, Direction::Forward)?;
        }
        Ok(())
    }

    /// To be called before the reloads of a stage are tried, so that recovery knows that they may have happened.
    ///
    /// # Errors
    /// When the journal cannot be written; then roll back without having reloaded.
    pub fn reloading(&mut self, stage: usize) -> Result<(), TransactionError> {
        self.journal.append(&Record::Reloading { stage })
    }

    /// To be called when everything was found to serve: a crash from here on is completed by [`recover`].
    ///
    /// # Errors
    /// When the journal cannot be written, or a stage was not; then roll back.
    pub fn verified(&mut self) -> Result<(), TransactionError> {
        self.verified_until(None)
    }

    /// The same of a switch that is put back unless it is confirmed until then (RFC 3339, UTC): a crash from here on is
    /// completed, and awaits its confirmation.
    ///
    /// # Errors
    /// As [`Transaction::verified`].
    pub fn verified_until(&mut self, until: Option<String>) -> Result<(), TransactionError> {
        if self.journal.history().furthest() != self.begun.reloads.len().checked_sub(1) {
            return Err(TransactionError::Plan("it is not written to the end".into()));
        }
        self.journal.append(&Record::Verified { until })
    }

    /// Ends it: what was prepared for a roll-back is removed, the backups stay for [`undo`].
    ///
    /// # Errors
    /// When the system refuses; the switch stays in force, and [`recover`] ends it.
    pub fn commit(mut self) -> Result<(), TransactionError> {
        if !self.journal.history().is_verified() {
            self.verified()?;
        }
        Writer::new(&self.store, &self.begun, &self.held).discard()?;
        let until = self.journal.history().awaits().map(str::to_owned);
        self.journal.append(&until.map_or(Record::Committed, |until| Record::Awaiting { until }))
    }

    /// Puts everything back, the last stage first: its files, then its reloads where they were begun.
    pub fn roll_back(mut self, reload: &mut dyn FnMut(&Reload) -> Result<(), String>) -> RolledBack {
        put_back::roll_back(&self.store, &mut self.journal, &self.begun, &self.held, reload)
    }
}
