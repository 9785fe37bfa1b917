//! Puts a switch back, the last stage first: its files, then its reloads, so that everything serves at each point. A
//! file that is not one of our versions is somebody else's work, and is left alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::error::TransactionError;
use crate::intent::{Reload, ReloadError, Reloader, Step};
use crate::journal::{Journal, Record};
use crate::lock::LockedDirectories;
use crate::store::{Opened, Store};
use crate::writer::{Direction, Writer};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotPutBack {
    /// A file of the user, or one of the switch itself.
    pub path: PathBuf,
    /// Where the version before the switch is kept.
    pub backup: Option<PathBuf>,
    /// What, why, and what to try.
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolledBack {
    /// Files that were changed back, each once.
    pub files: Vec<PathBuf>,
    /// Files that were left as they are, because somebody else changed them meanwhile.
    pub left: Vec<NotPutBack>,
    /// Files that the system refused to change back. The switch stays unfinished, and `recover` tries again.
    pub failures: Vec<NotPutBack>,
    /// Reloads that failed, and why. Their programs may still use the files of the switch.
    pub reload_failures: Vec<(Reload, ReloadError)>,
}

impl RolledBack {
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.failures.is_empty() && self.reload_failures.is_empty()
    }
}

/// Rolls back a transaction that was not committed, as far as it had come.
pub(crate) fn roll_back(writer: Writer<'_>, journal: &mut Journal, reload: &mut Reloader<'_>) -> RolledBack {
    let verified = journal.history().is_verified();
    // A rollback continues if the journal cannot be written, unless the journal says that a crash is to be completed.
    if let Err(error) = journal.append(&Record::RollingBack)
        && verified
    {
        let failed = NotPutBack { path: journal.path().to_owned(), backup: None, reason: error.to_string() };
        return RolledBack { failures: vec![failed], ..RolledBack::default() };
    }
    let mut back = Rollback::new(writer, journal);
    if let Some(furthest) = journal.history().furthest() {
        back.go(furthest, reload);
    }
    back.end(journal, |left| Record::RolledBack { left })
}

struct Rollback<'a> {
    writer: Writer<'a>,
    /// The stages whose reloads may have happened, and are repeated.
    reloaded: BTreeSet<usize>,
    done: RolledBack,
}

impl<'a> Rollback<'a> {
    fn new(writer: Writer<'a>, journal: &Journal) -> Self {
        Rollback { writer, reloaded: journal.history().reloaded(), done: RolledBack::default() }
    }

    /// Puts back the stages from this one to the first: of each its files, then the reloads that were begun.
    ///
    /// After each stage everything serves, and that has to hold on the way back too. All files
    /// first and then all reloads was rejected: in between, servers and clients would not fit together.
    /// If the system refuses a file, the earlier stages stay, everything serves with them, and `recover`
    /// continues there.
    fn go(&mut self, furthest: usize, reload: &mut Reloader<'_>) {
        for stage in (0..=furthest).rev() {
            for step in self.writer.begun.steps.iter().filter(|step| step.stage == stage).rev() {
                if let Err(error) = self.put_back(step) {
                    self.fail(&step.path, &error);
                }
            }
            if !self.done.failures.is_empty() {
                // The files of a half restored stage may not fit each other, so programs keep what they run with.
                break;
            }
            if self.reloaded.contains(&stage) {
                for again in self.writer.begun.reloads[stage].iter().rev() {
                    if let Err(why) = reload(again) {
                        self.done.reload_failures.push((again.clone(), why));
                    }
                }
            }
        }
    }

    /// Removes the prepared versions and journals the end, if all went well.
    fn end(mut self, journal: &mut Journal, record: impl Fn(Vec<PathBuf>) -> Record) -> RolledBack {
        if self.done.failures.is_empty() {
            let left = self.done.left.iter().map(|left| left.path.clone()).collect();
            if let Err(error) = self.clean_up(journal, &record(left)) {
                self.fail(journal.path(), &error);
            }
        }
        self.done
    }

    fn clean_up(&self, journal: &mut Journal, last: &Record) -> Result<(), TransactionError> {
        self.writer.discard()?;
        self.writer.remove_directories()?;
        journal.append(last)
    }

    /// Puts one file back by one step. A file that is back already, from a rollback that was cut off, stays; one that is
    /// none of the switch's versions is left, and noted once.
    fn put_back(&mut self, step: &Step) -> Result<(), TransactionError> {
        let path = step.path.as_path();
        if self.done.left.iter().any(|left| left.path == path) {
            return Ok(());
        }
        let found = self.writer.look(path)?;
        if self.writer.begun.is_back(step, |version| found.is(version)) {
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
        match self.needs_the_rest(step) {
            Some(why) => self.done.failures.push(self.not_put_back(path, format!("{reason}; {why}"))),
            None => self.done.left.push(self.not_put_back(path, reason)),
        }
        Ok(())
    }

    /// Why the stages before this one have to stay with a file that is left: it leads to what they made. `None` where nothing of them
    /// is left to be put back.
    ///
    /// A recovery took the socket away under a file that it had left, which named it. To refuse the whole recovery was rejected: the
    /// later stages go back, and everything serves then, as it does where the system refuses a file.
    fn needs_the_rest(&self, step: &Step) -> Option<String> {
        let is_back = |other: &Step| match self.writer.look(&other.path) {
            Ok(found) => self.writer.begun.is_back(other, |version| found.is(version)),
            Err(_) => false,
        };
        if self.writer.begun.before(step).all(is_back) {
            return None;
        }
        self.writer.store.needed_by(&self.writer.begun.id, &step.path)
    }

    fn fail(&mut self, path: &Path, error: &TransactionError) {
        let failed = self.not_put_back(path, error.to_string());
        self.done.failures.push(failed);
    }

    fn not_put_back(&self, path: &Path, reason: String) -> NotPutBack {
        let backup = self.writer.store.version_before(self.writer.begun, path);
        NotPutBack { path: path.to_owned(), backup, reason }
    }
}

#[derive(Debug)]
pub enum Ending {
    /// It was verified, and is in force.
    Committed,
    /// It was put back; still unfinished if there are failures.
    RolledBack(RolledBack),
    /// Its undo was completed; still unfinished if there are failures.
    Undone(RolledBack),
    /// It had touched nothing; its prepared versions are removed.
    Nothing,
    Running,
    Failed(TransactionError),
}

/// A switch that had not ended when [`recover`] found it.
#[derive(Debug)]
pub struct Recovered {
    pub id: String,
    pub ending: Ending,
}

/// Ends what a crash interrupted, the newest switch first: one that was verified is completed, any other is put back, and
/// one that is at work is left alone. It asks nothing, and can itself be interrupted and repeated.
///
/// # Errors
/// When the store cannot be read; what a single switch meets is in its ending.
pub fn recover(store: &Store, reload: &mut Reloader<'_>) -> Result<Vec<Recovered>, TransactionError> {
    let mut recovered = Vec::new();
    for id in store.ids()?.into_iter().rev() {
        match recover_one(store, &id, reload) {
            Ok(Some(ending)) => recovered.push(Recovered { id, ending }),
            Ok(None) => {}
            Err(error) => recovered.push(Recovered { id, ending: Ending::Failed(error) }),
        }
    }
    Ok(recovered)
}

/// Ends one switch; `None` if it had ended.
fn recover_one(
    store: &Store,
    id: &str,
    reload: &mut Reloader<'_>,
) -> Result<Option<Ending>, TransactionError> {
    let (mut journal, begun) = match store.take(id)? {
        Opened::Running => return Ok(Some(Ending::Running)),
        Opened::Nothing => return store.forget(id).map(|()| Some(Ending::Nothing)),
        Opened::There(there) => *there,
    };
    if journal.last().is_some_and(Record::has_ended) {
        return Ok(None);
    }
    let locked = LockedDirectories::acquire(store, begun.places())?;
    let writer = Writer::new(store, &begun, &locked);
    // First frees the space that a rollback may need.
    writer.discard_forward()?;
    if journal.history().is_verified() {
        writer.discard()?;
        let last = journal.history().ending();
        journal.append(&last)?;
        return Ok(Some(Ending::Committed));
    }
    store.may_go_back(id)?;
    if journal.history().is_undoing() {
        return Ok(Some(Ending::Undone(finish_undo(writer, &mut journal, reload))));
    }
    Ok(Some(Ending::RolledBack(roll_back(writer, &mut journal, reload))))
}

/// Puts everything back after the undo was journalled, by whoever began it or by [`recover`].
pub(crate) fn finish_undo(
    writer: Writer<'_>,
    journal: &mut Journal,
    reload: &mut Reloader<'_>,
) -> RolledBack {
    let mut back = Rollback::new(writer, journal);
    back.go(writer.begun.reloads.len() - 1, reload);
    back.end(journal, |left| Record::Undone { left })
}
