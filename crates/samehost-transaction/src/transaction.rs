//! A transaction in progress, from its beginning to its commit or rollback. Everything that can fail before a file is
//! touched fails when it begins, and leaves nothing behind.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::fstat;
use rustix::io::Errno;
use samehost_system::clock;

use crate::error::{TransactionError, at, changed_before, refused};
use crate::intent::{self, Intent, Reloader, Stage, Step};
use crate::journal::{Journal, JournalHeader, Record, SavedMetadata, VERSION};
use crate::limit;
use crate::lock::LockedDirectories;
use crate::metadata::{Permissions, Times};
use crate::put_back::{self, RolledBack};
use crate::replace::{can_make_files, can_replace, refuse_signed};
use crate::room;
use crate::state::State;
use crate::store::{Entry, Store, random};
use crate::version::{Found, id_of_prepared, prepared_prefix};
use crate::writer::{Direction, Writer};

/// A transaction in progress. It holds its locks until it is committed, rolled back or dropped.
///
/// One that is dropped unfinished is ended by [`recover`](crate::recover()). It is the only code that
/// writes users' files, often as root, so it is a crate that knows no service and has fewer than 4,000
/// lines: one person can review all of it in a day. A folder of the switch with a check that nothing else
/// writes was rejected, because Cargo checks the dependencies for nothing. Reloads stay outside, behind a
/// callback, as each service reloads in its own way (docs/decisions/0088).
#[must_use = "a transaction that is dropped unfinished waits for `recover`"]
#[derive(Debug)]
pub struct Transaction {
    pub(crate) store: Store,
    pub(crate) journal: Journal,
    pub(crate) begun: JournalHeader,
    pub(crate) locked: LockedDirectories,
}

impl Transaction {
    /// Locks, checks that each file is as `before` says and can be changed and put back, backs up, journals, and
    /// prepares every version beside its file, so that a full disk or a missing permission shows here. No user file has
    /// been touched when this returns.
    ///
    /// # Errors
    /// [`TransactionError`]; nothing is left behind.
    pub fn begin(store: &Store, intent: &Intent) -> Result<Self, TransactionError> {
        let steps = intent::steps(intent)?;
        let texts = intent.stages.iter().flat_map(|stage| &stage.changes);
        let texts = texts.flat_map(|change| [&change.before, &change.after]).flatten();
        limit::files_may_be(texts.map(Vec::len).max().unwrap_or_default() as u64)?;
        let locked = LockedDirectories::acquire(store, steps.iter().map(|step| step.path.as_path()))?;
        uninterrupted(store, &locked, &steps)?;
        let mut files = BTreeMap::new();
        for step in &steps {
            if !files.contains_key(&step.path) {
                let mut kept = check(&locked, step)?;
                if step.before.is_none() {
                    kept.permissions.no_wider_than(readable_by(intent, &step.path)?);
                }
                files.insert(step.path.clone(), kept);
            }
        }
        let (id, journal) = store.add()?;
        let begun = JournalHeader {
            version: VERSION,
            id: id.clone(),
            token: match random::<8>() {
                Ok(token) => token,
                Err(error) => return Err(given_up(store, &id, error)),
            },
            process: std::process::id(),
            started_at: clock::utc_now(),
            command: intent.command.clone(),
            summary: intent.summary.clone(),
            directories: absent_directories(&locked, &steps),
            steps,
            reloads: intent.stages.iter().map(|stage| stage.reloads.clone()).collect(),
            files,
        };
        let mut transaction = Transaction { store: store.clone(), journal, begun, locked };
        match prepare(&mut transaction, intent) {
            Ok(()) => Ok(transaction),
            Err(error) => {
                // If this fails too, the journal stays, and `recover` removes the rest.
                let writer = Writer::new(store, &transaction.begun, &transaction.locked);
                match writer.discard().and_then(|()| writer.remove_directories()) {
                    Ok(()) => Err(given_up(store, &id, error)),
                    Err(_) => Err(error),
                }
            }
        }
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.begun.id
    }

    /// Where the version of a file before the switch is kept; `None` where the switch makes the file.
    #[must_use]
    pub fn backup(&self, path: &Path) -> Option<PathBuf> {
        self.store.version_before(&self.begun, path)
    }

    /// Puts the files of a stage into place, each atomically. Stages are written in order.
    ///
    /// # Errors
    /// When a file was changed by someone else meanwhile, or the system refuses; then roll back.
    pub fn write(&mut self, stage: usize) -> Result<(), TransactionError> {
        let next = match self.journal.history().furthest() {
            Some(last) => last + 1,
            None => 0,
        };
        if stage != next || stage >= self.begun.reloads.len() {
            return Err(TransactionError::Plan(format!("stage {stage} is written where {next} is next")));
        }
        self.journal.append(&Record::Writing { stage })?;
        let writer = Writer::new(&self.store, &self.begun, &self.locked);
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

    /// Records that everything was found to serve: the point of no return.
    ///
    /// After a crash this record decides. Before it the switch is put back, after it the switch is
    /// completed, in both cases by [`recover`](crate::recover()), which asks nothing. It is on the disk
    /// when this returns. Whoever puts a switch back after that says so by a record of its own
    /// (docs/design.md §8).
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
        Writer::new(&self.store, &self.begun, &self.locked).discard()?;
        let last = self.journal.history().ending();
        self.journal.append(&last)
    }

    /// Puts everything back, the last stage first: its files, then the reloads that were begun.
    pub fn roll_back(mut self, reload: &mut Reloader<'_>) -> RolledBack {
        let writer = Writer::new(&self.store, &self.begun, &self.locked);
        put_back::roll_back(writer, &mut self.journal, reload)
    }
}

fn given_up(store: &Store, id: &str, error: TransactionError) -> TransactionError {
    // What remains is removed by the next `recover`.
    let _ = store.forget(id);
    error
}

/// Whether a transaction with these stages would begin, for a dry run and before a person is asked: the files are as they were
/// read, can be changed and put back, and there is room for it, also in the store of this state directory. Takes no lock and
/// touches nothing, the store included.
///
/// # Errors
/// The one of [`Transaction::begin`].
pub fn may_begin(state: &Path, stages: &[Stage]) -> Result<(), TransactionError> {
    room::check(state, stages)?;
    let intent = Intent { command: String::new(), summary: String::new(), stages: stages.to_vec() };
    let steps = intent::steps(&intent)?;
    let looked = LockedDirectories::only_looked_at(steps.iter().map(|step| step.path.as_path()))?;
    let mut seen: Vec<&Path> = Vec::new();
    for step in &steps {
        if !seen.contains(&step.path.as_path()) {
            check(&looked, step)?;
            seen.push(&step.path);
        }
    }
    Ok(())
}

/// Backs up, journals, makes missing directories, and prepares every version beside its file, in this order: what was made
/// is named in the journal, so that `recover` finds it.
fn prepare(transaction: &mut Transaction, intent: &Intent) -> Result<(), TransactionError> {
    let Transaction { store, journal, begun, locked } = transaction;
    let changes: Vec<_> = intent.stages.iter().flat_map(|stage| &stage.changes).collect();
    store.keep(&begun.id, changes.iter().filter_map(|change| change.before.as_deref()))?;
    Journal::begin(journal, begun)?;
    for directory in &begun.directories {
        locked.make(store, directory)?;
    }
    let writer = Writer::new(store, begun, locked);
    for (step, change) in begun.steps.iter().zip(changes) {
        if let Some(content) = &change.before {
            writer.prepare(step, Direction::Back, content)?;
        }
        if let Some(content) = &change.after {
            writer.prepare(step, Direction::Forward, content)?;
        }
    }
    Ok(())
}

/// Refuses files that an interrupted switch still has to put back. Our own switches are found in the store, those of
/// other users by the versions that they prepared.
fn uninterrupted(store: &Store, locked: &LockedDirectories, steps: &[Step]) -> Result<(), TransactionError> {
    let mut entries = store.list()?;
    entries
        .retain(|entry| matches!(entry.state, State::Unfinished | State::Awaiting) || entry.is_unreadable());
    for step in steps {
        let path = &step.path;
        if let Some(entry) = entries.iter().find(|entry| entry.files.contains(path)) {
            return Err(unfinished(store, entry, path));
        }
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let Some(directory) = locked.of(path) else { continue };
        for prepared in directory.names(&prepared_prefix(name)).map_err(at(path, "look beside it"))? {
            let Some(id) = id_of_prepared(&prepared) else { continue };
            let hint = format!(
                "whoever began it ends it with samehost switch recover; if that knows nothing of it, remove {}",
                path.with_file_name(prepared).display()
            );
            return Err(TransactionError::Interrupted { path: path.clone(), id, hint });
        }
    }
    Ok(())
}

/// The error for a file of a switch in the store that has not ended.
fn unfinished(store: &Store, entry: &Entry, path: &Path) -> TransactionError {
    let (path, id) = (path.to_owned(), entry.id.clone());
    if let Some(until) = entry.awaits.clone() {
        return TransactionError::Unconfirmed { path, id, until };
    }
    let hint = match (&entry.state, &entry.reason) {
        (State::Newer, _) => "a newer samehost wrote its journal: end that one with it".into(),
        (State::Damaged, Some(reason)) => format!(
            "its journal is damaged ({reason}): compare the file with those in {}, and move that directory away when it is settled",
            store.backups(&entry.id).display()
        ),
        _ => "end that one first: samehost switch recover".into(),
    };
    TransactionError::Interrupted { path, id, hint }
}

/// Checks that a file is as it was read, and can be changed and put back. Returns its metadata, or those that a new file
/// will get.
fn check(locked: &LockedDirectories, step: &Step) -> Result<SavedMetadata, TransactionError> {
    let path = step.path.as_path();
    let failed = at(path, "read it");
    let stale = || changed_before(path, "nothing was changed: try again");
    let (Some(directory), Some(name)) = (locked.of(path), path.file_name()) else {
        return if step.before.is_none() { metadata_of_new(locked, path) } else { Err(stale()) };
    };
    can_make_files(path.parent().unwrap_or(path), directory.descriptor())?;
    let found = Found::at(directory.descriptor(), name).map_err(&failed)?;
    match &found {
        Found::Other(kind) => {
            Err(refused(path, &format!("it is {kind}, and no file"), "name the file that is meant"))
        }
        Found::Absent if step.before.is_none() => metadata_of_new(locked, path),
        Found::Regular(regular) if found.is(step.before.as_ref()) => {
            can_replace(path, regular)?;
            let permissions = Permissions::of(&regular.file).map_err(&failed)?;
            refuse_signed(path, permissions.attributes.as_ref())?;
            Ok(SavedMetadata { permissions, times: Some(Times::of(&regular.stat)) })
        }
        _ => Err(stale()),
    }
}

/// Mode of the file that a new file takes its text from, because the new one may hold a password.
fn readable_by(intent: &Intent, path: &Path) -> Result<u32, TransactionError> {
    for change in intent.stages.iter().flat_map(|stage| &stage.changes) {
        if let Some(like) = &change.like
            && change.path == path
        {
            return Ok(std::fs::metadata(like).map_err(at(like, "look at it"))?.mode());
        }
    }
    Ok(0o777)
}

fn metadata_of_new(locked: &LockedDirectories, path: &Path) -> Result<SavedMetadata, TransactionError> {
    let found = match path.ancestors().skip(1).find_map(|above| locked.get(above)) {
        Some(directory) => fstat(directory.descriptor()),
        None => Err(Errno::NOENT),
    };
    let found = found.map_err(|error| at(path, "look at its directory")(error.into()))?;
    Ok(SavedMetadata { permissions: Permissions::of_new(&found), times: None })
}

/// The directories that are missing above the files, outermost first.
fn absent_directories(locked: &LockedDirectories, steps: &[Step]) -> Vec<PathBuf> {
    let mut absent: Vec<PathBuf> = Vec::new();
    for step in steps {
        let above = step.path.ancestors().skip(1);
        absent.extend(above.take_while(|above| locked.get(above).is_none()).map(Path::to_owned));
    }
    absent.sort();
    absent.dedup();
    absent
}
