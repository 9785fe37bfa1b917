//! Undoes a committed switch: all of it, or, if a file changed since, nothing.

use std::path::Path;

use crate::entry::Entry;
use crate::error::TransactionError;
use crate::intent::Reload;
use crate::locked_directories::LockedDirectories;
use crate::put_back::RolledBack;
use crate::record::{JournalHeader, Record};
use crate::recover;
use crate::state::State;
use crate::store::{JournalStatus, Store};
use crate::writer::{self, Direction, Writer};

/// Undoes a committed switch: every byte, mode, owner, access control list and attribute, the last stage first.
///
/// # Errors
/// When there is no such switch, it is not in force, or one of its files was changed since; nothing was changed then.
pub fn undo(
    store: &Store,
    id: &str,
    reload: &mut dyn FnMut(&Reload) -> Result<(), String>,
) -> Result<RolledBack, TransactionError> {
    put_back(store, id, None, reload)
}

/// Undoes a switch that awaits its confirmation; with the reason, for the journal.
///
/// # Errors
/// As [`undo`]; also when it was confirmed meanwhile.
pub fn take_back(
    store: &Store,
    id: &str,
    why: &str,
    reload: &mut dyn FnMut(&Reload) -> Result<(), String>,
) -> Result<RolledBack, TransactionError> {
    put_back(store, id, Some(why), reload)
}

fn put_back(
    store: &Store,
    id: &str,
    why: Option<&str>,
    reload: &mut dyn FnMut(&Reload) -> Result<(), String>,
) -> Result<RolledBack, TransactionError> {
    let (mut journal, begun) = match store.take(id)? {
        JournalStatus::Running => return Err(running(id)),
        JournalStatus::Nothing => return Err(nothing(id)),
        JournalStatus::Ours(ours) => *ours,
    };
    if let (Some(Record::Committed | Record::Confirmed { .. }), Some(_)) = (journal.last(), why) {
        return Err(state(id, State::Committed, "it was confirmed"));
    }
    is_in_force(id, journal.last())?;
    let locked = LockedDirectories::acquire(store, begun.places())?;
    check(store, &begun, &locked)?;
    let before = journal.last().cloned();
    journal.append(&Record::Undoing { why: why.map(str::to_owned) })?;
    if let Err(error) = prepare(store, &begun, &locked) {
        // If this fails too, `recover` completes the undo.
        Writer::new(store, &begun, &locked).discard()?;
        journal.append(&before.unwrap_or(Record::Committed))?;
        return Err(error);
    }
    Ok(recover::undo(store, &mut journal, &begun, &locked, reload))
}

fn state(id: &str, state: State, hint: &'static str) -> TransactionError {
    TransactionError::State { id: id.to_owned(), state, hint }
}

/// That a switch is at work.
pub(crate) fn running(id: &str) -> TransactionError {
    state(id, State::Running, "wait for it to end, and try again")
}

/// That a switch has touched nothing.
pub(crate) fn nothing(id: &str) -> TransactionError {
    state(id, State::Unfinished, "it touched nothing: samehost switch --recover")
}

/// Whether a switch with this last record can be undone.
pub(crate) fn is_in_force(id: &str, last: Option<&Record>) -> Result<(), TransactionError> {
    const GONE: &str = "nothing of it is left to undo";
    match last {
        Some(last) if last.is_in_force() => Ok(()),
        Some(Record::RolledBack { .. }) => Err(state(id, State::RolledBack, GONE)),
        Some(Record::Undone { .. }) => Err(state(id, State::Undone, GONE)),
        _ => Err(state(id, State::Unfinished, "end it first: samehost switch --recover")),
    }
}

/// Every file must still be as the switch left it.
fn check(store: &Store, begun: &JournalHeader, held: &LockedDirectories) -> Result<(), TransactionError> {
    let writer = Writer::new(store, begun, held);
    for step in &begun.steps {
        if !writer.look(&step.path)?.is(begun.last(&step.path)) {
            return Err(changed(store, begun, &step.path)?);
        }
    }
    Ok(())
}

/// The error for a file that changed since, by a later switch or by somebody else.
pub(crate) fn changed(
    store: &Store,
    begun: &JournalHeader,
    path: &Path,
) -> Result<TransactionError, TransactionError> {
    let later = |entry: &Entry| {
        entry.id > begun.id
            && matches!(entry.state, State::Committed | State::Awaiting)
            && entry.files.iter().any(|file| file == path)
    };
    let mut error = writer::changed(store, begun, path);
    if let (TransactionError::Changed { hint, .. }, Some(later)) =
        (&mut error, store.list()?.into_iter().rfind(later))
    {
        *hint = format!("undo the later switch first: samehost switch --undo {}", later.id);
    }
    Ok(error)
}

fn prepare(store: &Store, begun: &JournalHeader, held: &LockedDirectories) -> Result<(), TransactionError> {
    let writer = Writer::new(store, begun, held);
    for step in &begun.steps {
        if let Some(digest) = &step.before {
            writer.prepare(step, Direction::Back, &store.kept(&begun.id, digest)?)?;
        }
    }
    Ok(())
}
