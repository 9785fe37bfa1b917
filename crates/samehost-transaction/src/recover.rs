//! Ends what a crash interrupted: a verified switch is completed, any other is put back. A switch in progress is left
//! alone.

use crate::error::TransactionError;
use crate::intent::Reload;
use crate::journal::Journal;
use crate::locked_directories::LockedDirectories;
use crate::put_back::{self, Rollback, RolledBack};
use crate::record::{JournalHeader, Record};
use crate::store::{JournalStatus, Store};
use crate::writer::Writer;

/// How an interrupted switch was ended.
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
    /// It is at work, and left alone.
    Running,
    /// It could not be ended.
    Failed(TransactionError),
}

/// A switch that `recover` did not end.
#[derive(Debug)]
pub struct Recovered {
    /// Its name.
    pub id: String,
    /// How it is now.
    pub ending: Ending,
}

/// Ends every interrupted switch, the newest first. Can itself be interrupted and repeated.
///
/// # Errors
/// When the store cannot be read; what a single switch meets is in its ending.
pub fn recover(
    store: &Store,
    reload: &mut dyn FnMut(&Reload) -> Result<(), String>,
) -> Result<Vec<Recovered>, TransactionError> {
    let mut recovered = Vec::new();
    for id in store.ids()?.into_iter().rev() {
        if let Some(ending) = end(store, &id, reload).unwrap_or_else(|error| Some(Ending::Failed(error))) {
            recovered.push(Recovered { id, ending });
        }
    }
    Ok(recovered)
}

/// Ends one switch; `None` if it had ended.
fn end(
    store: &Store,
    id: &str,
    reload: &mut dyn FnMut(&Reload) -> Result<(), String>,
) -> Result<Option<Ending>, TransactionError> {
    let (mut journal, begun) = match store.take(id)? {
        JournalStatus::Running => return Ok(Some(Ending::Running)),
        JournalStatus::Nothing => return store.forget(id).map(|()| Some(Ending::Nothing)),
        JournalStatus::Ours(ours) => *ours,
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
        let until = journal.history().awaits().map(str::to_owned);
        journal.append(&until.map_or(Record::Committed, |until| Record::Awaiting { until }))?;
        return Ok(Some(Ending::Committed));
    }
    if journal.history().is_undoing() {
        return Ok(Some(Ending::Undone(undo(store, &mut journal, &begun, &locked, reload))));
    }
    Ok(Some(Ending::RolledBack(put_back::roll_back(store, &mut journal, &begun, &locked, reload))))
}

/// Completes an undo that was journalled.
pub(crate) fn undo(
    store: &Store,
    journal: &mut Journal,
    begun: &JournalHeader,
    held: &LockedDirectories,
    reload: &mut dyn FnMut(&Reload) -> Result<(), String>,
) -> RolledBack {
    let mut back = Rollback::new(store, begun, held, journal.history().reloaded());
    back.go(begun.reloads.len() - 1, reload);
    back.end(journal, |left| Record::Undone { left })
}
