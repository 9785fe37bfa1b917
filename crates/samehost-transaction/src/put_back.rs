//! How a switch is put back: the last stage first, its files and then its reloads, so that what serves after a stage
//! serves again at each point of the way. What is none of our versions is someone else's work, and left alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::error::TransactionError;
use crate::intent::Reload;
use crate::journal::Journal;
use crate::locked_directories::LockedDirectories;
use crate::plan::Step;
use crate::record::{JournalHeader, Record};
use crate::store::Store;
use crate::writer::{Direction, Writer};

/// A file that was left as it is, for it is none of the versions of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Which.
    pub path: PathBuf,
    /// Where the version before the switch is kept.
    pub backup: Option<PathBuf>,
    /// What, why, and what to try.
    pub reason: String,
}

/// A file that could not be put back; the switch stays unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Which; a file, or something of the switch's own.
    pub path: PathBuf,
    /// Where the version before the switch is kept.
    pub backup: Option<PathBuf>,
    /// What, why, and what to try.
    pub reason: String,
}

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolledBack {
    /// The files that are as before now and were not, each once.
    pub files: Vec<PathBuf>,
    /// Those that someone else changed meanwhile.
    pub left: Vec<Skipped>,
    /// Those that the system refused to put back; `recover` tries again.
    pub failures: Vec<Failed>,
    /// Reloads that failed, and why: their programs may still run with the files of the switch.
    pub reload_failures: Vec<(Reload, String)>,
}

impl RolledBack {
    /// Whether every file is as before, and every reload was done.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.failures.is_empty() && self.reload_failures.is_empty()
    }
}

/// Rolls a transaction back that was not committed, as far as it went.
pub(crate) fn roll_back(
    store: &Store,
    journal: &mut Journal,
    begun: &JournalHeader,
    held: &LockedDirectories,
    reload: &mut dyn FnMut(&Reload) -> Result<(), String>,
) -> RolledBack {
    let verified = journal.history().is_verified();
    // A journal that cannot be written stops no roll-back, unless it says that a crash is to be completed.
    if let Err(error) = journal.append(&Record::RollingBack)
        && verified
    {
        let failed = Failed { path: journal.path().to_owned(), backup: None, reason: error.to_string() };
        return RolledBack { failures: vec![failed], ..RolledBack::default() };
    }
    let mut back = Rollback::new(store, begun, held, journal.history().reloaded());
    if let Some(furthest) = journal.history().furthest() {
        back.go(furthest, reload);
    }
    back.end(journal, |left| Record::RolledBack { left })
}

/// The way back.
pub(crate) struct Rollback<'a> {
    writer: Writer<'a>,
    begun: &'a JournalHeader,
    reloaded: BTreeSet<usize>,
    store: &'a Store,
    done: RolledBack,
}

impl<'a> Rollback<'a> {
    /// From the versions of a switch; the reloads of these stages are done again.
    pub(crate) fn new(
        store: &'a Store,
        begun: &'a JournalHeader,
        held: &'a LockedDirectories,
        reloaded: BTreeSet<usize>,
    ) -> Self {
        let writer = Writer::new(store, begun, held);
        Rollback { writer, begun, reloaded, store, done: RolledBack::default() }
    }

    /// Puts the stages back from this one to the first. Where the system refuses a file, the stages before stay: with
    /// them everything serves, and `recover` goes on.
    pub(crate) fn go(&mut self, furthest: usize, reload: &mut dyn FnMut(&Reload) -> Result<(), String>) {
        for stage in (0..=furthest).rev() {
            for step in self.begun.steps.iter().filter(|step| step.stage == stage).rev() {
                if let Err(error) = self.take(step) {
                    self.fail(&step.path, &error);
                }
            }
            if !self.done.failures.is_empty() {
                // Half of a stage's files may not fit the other half: what runs, runs on as it is.
                break;
            }
            if self.reloaded.contains(&stage) {
                for again in self.begun.reloads[stage].iter().rev() {
                    if let Err(reason) = reload(again) {
                        self.done.reload_failures.push((again.clone(), reason));
                    }
                }
            }
        }
    }

    /// Removes what was prepared, and journals the end, where all went well.
    pub(crate) fn end(
        mut self,
        journal: &mut Journal,
        record: impl Fn(Vec<PathBuf>) -> Record,
    ) -> RolledBack {
        if self.done.failures.is_empty() {
            let left = self.done.left.iter().map(|left| left.path.clone()).collect();
            let ended = self
                .writer
                .discard()
                .and_then(|()| self.writer.remove_directories())
                .and_then(|()| journal.append(&record(left)));
            if let Err(error) = ended {
                self.fail(journal.path(), &error);
            }
        }
        self.done
    }

    fn take(&mut self, step: &Step) -> Result<(), TransactionError> {
        let path = step.path.as_path();
        if self.done.left.iter().any(|left| left.path == path) {
            return Ok(());
        }
        let found = self.writer.look(path)?;
        if self.begun.is_back(step, |version| found.is(version)) {
            return Ok(());
        }
        if found.is(step.after.as_ref()) {
            match self.writer.install(step, Direction::Back) {
                Ok(()) => {
                    self.done.files.retain(|file| file != path);
                    self.done.files.push(path.to_owned());
                    return Ok(());
                }
                Err(TransactionError::Changed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let reason = self.writer.changed(path).to_string();
        self.done.left.push(Skipped { path: path.to_owned(), backup: self.backup(path), reason });
        Ok(())
    }

    fn fail(&mut self, path: &Path, error: &TransactionError) {
        let (path, backup) = (path.to_owned(), self.backup(path));
        self.done.failures.push(Failed { path, backup, reason: error.to_string() });
    }

    fn backup(&self, path: &Path) -> Option<PathBuf> {
        self.begun.original(path).map(|digest| self.store.backup(&self.begun.id, digest))
    }
}
