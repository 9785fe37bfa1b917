//! A transaction in progress, from its beginning to its commit or rollback.

use std::path::PathBuf;

use crate::error::TransactionError;
use crate::intent::Reload;
use crate::journal::Journal;
use crate::lock::LockedDirectories;
use crate::put_back::{self, RolledBack};
use crate::record::{JournalHeader, Record};
use crate::store::Store;
use crate::writer::{Direction, Writer};

/// A transaction in progress. It holds its locks until it is committed, rolled back or dropped. One that is dropped
/// unfinished is ended by [`recover`](crate::recover()).
#[must_use = "a transaction that is dropped unfinished waits for `recover`"]
#[derive(Debug)]
pub struct Transaction {
    pub(crate) store: Store,
    pub(crate) journal: Journal,
    pub(crate) begun: JournalHeader,
    pub(crate) held: LockedDirectories,
}

impl Transaction {
    /// Its id in the store.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.begun.id
    }

    /// Where the previous version of a file is kept.
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

    /// Records that the reloads of a stage are about to be tried, so that recovery knows that they may have happened.
    ///
    /// # Errors
    /// When the journal cannot be written; then roll back without having reloaded.
    pub fn reloading(&mut self, stage: usize) -> Result<(), TransactionError> {
        self.journal.append(&Record::Reloading { stage })
    }

    /// Records that everything was found to serve. A crash after this is completed by [`recover`](crate::recover()).
    ///
    /// # Errors
    /// When the journal cannot be written, or a stage was not; then roll back.
    pub fn verified(&mut self) -> Result<(), TransactionError> {
        self.verified_until(None)
    }

    /// Like [`Transaction::verified`], for a switch that is put back unless it is confirmed until this time (RFC 3339,
    /// UTC). A crash after this is completed, and the switch then awaits its confirmation.
    ///
    /// # Errors
    /// As [`Transaction::verified`].
    pub fn verified_until(&mut self, until: Option<String>) -> Result<(), TransactionError> {
        if self.journal.history().furthest() != self.begun.reloads.len().checked_sub(1) {
            return Err(TransactionError::Plan("it is not written to the end".into()));
        }
        self.journal.append(&Record::Verified { until })
    }

    /// Ends the transaction. Removes what was prepared for a rollback; the backups stay for [`undo`](crate::undo()).
    ///
    /// # Errors
    /// When the system refuses; the switch stays in force, and [`recover`](crate::recover()) ends it.
    pub fn commit(mut self) -> Result<(), TransactionError> {
        if !self.journal.history().is_verified() {
            self.verified()?;
        }
        Writer::new(&self.store, &self.begun, &self.held).discard()?;
        let until = self.journal.history().awaits().map(str::to_owned);
        self.journal.append(&until.map_or(Record::Committed, |until| Record::Awaiting { until }))
    }

    /// Puts everything back, the last stage first: its files, then the reloads that were begun.
    pub fn roll_back(mut self, reload: &mut dyn FnMut(&Reload) -> Result<(), String>) -> RolledBack {
        put_back::roll_back(&self.store, &mut self.journal, &self.begun, &self.held, reload)
    }
}
