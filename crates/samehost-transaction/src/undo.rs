//! What a person does to a switch that was committed: undoes it (all of it, or, if a file changed since, nothing), confirms
//! it where it would be put back otherwise, which changes its journal only, or forgets it.
//!
//! To forget removes journals and backups of switches that have ended, and with them the possibility to undo. Removed
//! backups are not overwritten, so a disk may keep their content for a while.

use std::path::Path;

use crate::error::TransactionError;
use crate::intent::Reloader;
use crate::journal::{JournalHeader, Record};
use crate::lock::LockedDirectories;
use crate::paths::Directory;
use crate::put_back::{RolledBack, finish_undo};
use crate::replace;
use crate::state::State;
use crate::store::{Opened, Store};
use crate::version::Found;
use crate::writer::{self, Direction, Writer};

/// Undoes a committed switch, the last stage first: every byte. Mode, owner, access control list and attributes were kept by the
/// switch; what somebody changed of them since stays.
///
/// # Errors
/// When there is no such switch, it is not in force, or one of its files was changed since; nothing was changed then.
pub fn undo(store: &Store, id: &str, reload: &mut Reloader<'_>) -> Result<RolledBack, TransactionError> {
    undo_because(store, id, None, reload)
}

/// Undoes a switch that awaits its confirmation; with the reason, for the journal.
///
/// # Errors
/// As [`undo`]; also when it was confirmed meanwhile.
pub fn take_back(
    store: &Store,
    id: &str,
    why: &str,
    reload: &mut Reloader<'_>,
) -> Result<RolledBack, TransactionError> {
    undo_because(store, id, Some(why), reload)
}

/// Locks, checks every file, journals, prepares, and then puts back. Until the files are prepared nothing of them was
/// touched, and the journal gets its last record again.
fn undo_because(
    store: &Store,
    id: &str,
    why: Option<&str>,
    reload: &mut Reloader<'_>,
) -> Result<RolledBack, TransactionError> {
    let (mut journal, begun) = match store.take(id)? {
        Opened::Running => return Err(running(id)),
        Opened::Nothing => return Err(nothing(id)),
        Opened::There(there) => *there,
    };
    if let (Some(Record::Committed | Record::Confirmed { .. }), Some(_)) = (journal.last(), why) {
        return Err(state(id, State::Committed, "it was confirmed"));
    }
    is_in_force(id, journal.last())?;
    let locked = LockedDirectories::acquire(store, begun.places())?;
    let writer = Writer::new(store, &begun, &locked);
    check(store, &begun, |path| writer.look(path))?;
    store.may_go_back(id)?;
    let before = journal.last().cloned();
    journal.append(&Record::Undoing { why: why.map(str::to_owned) })?;
    if let Err(error) = prepare(writer) {
        // If this fails too, `recover` completes the undo.
        writer.discard()?;
        journal.append(&before.unwrap_or(Record::Committed))?;
        return Err(error);
    }
    Ok(finish_undo(writer, &mut journal, reload))
}

fn state(id: &str, state: State, hint: &'static str) -> TransactionError {
    TransactionError::State { id: id.to_owned(), state, hint }
}

pub(crate) fn running(id: &str) -> TransactionError {
    state(id, State::Running, "wait for it to end, and try again")
}

pub(crate) fn nothing(id: &str) -> TransactionError {
    state(id, State::Unfinished, "it touched nothing: samehost switch recover")
}

/// Fails unless a switch with this last record can be undone.
pub(crate) fn is_in_force(id: &str, last: Option<&Record>) -> Result<(), TransactionError> {
    const GONE: &str = "nothing of it is left to undo";
    match last {
        Some(last) if last.is_in_force() => Ok(()),
        Some(Record::RolledBack { .. }) => Err(state(id, State::RolledBack, GONE)),
        Some(Record::Undone { .. }) => Err(state(id, State::Undone, GONE)),
        _ => Err(state(id, State::Unfinished, "end it first: samehost switch recover")),
    }
}

/// Fails unless every file still has the text that the switch left, and can be replaced, or has that of before again: somebody put it
/// back by hand, and there is nothing to do. Its metadata may be others by now: they stay.
pub(crate) fn check(
    store: &Store,
    begun: &JournalHeader,
    look: impl Fn(&Path) -> Result<Found, TransactionError>,
) -> Result<(), TransactionError> {
    for step in &begun.steps {
        let path = &step.path;
        let found = look(path)?;
        if !found.is(begun.last(path)) {
            let later = later(store, begun, path)?;
            if later.is_some() || !found.is(begun.original(path)) {
                return Err(changed(store, begun, path, later));
            }
            continue;
        }
        if let Found::Regular(regular) = &found
            && let Some(held) = replace::held(path, regular)
        {
            return Err(held.refused(path));
        }
        if let Some(parent) = path.parent()
            && let Ok(directory) = Directory::open(parent)
            && let Some(held) = replace::held_directory(parent, directory.descriptor())
        {
            return Err(held.refused(parent));
        }
    }
    Ok(())
}

/// The newest later switch in force that changed a file as well.
fn later(store: &Store, begun: &JournalHeader, path: &Path) -> Result<Option<String>, TransactionError> {
    let mut entries = store.list()?.into_iter().rev().take_while(|entry| entry.id > begun.id);
    let found = entries.find(|entry| entry.is_in_force() && entry.files.iter().any(|file| file == path));
    Ok(found.map(|entry| entry.id))
}

/// The error for a file that changed since, by a later switch or by somebody else.
fn changed(store: &Store, begun: &JournalHeader, path: &Path, later: Option<String>) -> TransactionError {
    let mut error = writer::changed(store, begun, path);
    if let (TransactionError::Changed { hint, .. }, Some(later)) = (&mut error, later) {
        *hint = format!("undo the later switch first: samehost switch undo {later}");
    }
    error
}

fn prepare(writer: Writer<'_>) -> Result<(), TransactionError> {
    for step in &writer.begun.steps {
        if let Some(digest) = &step.before {
            let content = writer.store.kept(&writer.begun.id, digest)?;
            writer.prepare(step, Direction::Back, &content)?;
        }
    }
    Ok(())
}

/// Confirms a switch, so that it stays in force. `by` says for the journal who or what confirmed it. A switch that is
/// in force already stays so.
///
/// # Errors
/// When there is no such switch, it was put back meanwhile, or it is being put back.
pub fn confirm(store: &Store, id: &str, by: &str) -> Result<(), TransactionError> {
    let (mut journal, _) = match store.take(id)? {
        Opened::Running => return Err(at_work(id)),
        Opened::Nothing => return Err(nothing(id)),
        Opened::There(there) => *there,
    };
    match confirmable(id, journal.last())? {
        Confirmable::Awaiting => journal.append(&Record::Confirmed { by: by.to_owned() }),
        Confirmable::InForce => Ok(()),
    }
}

/// Whether [`confirm`] would confirm a switch. Changes nothing.
///
/// # Errors
/// As [`confirm`].
pub fn may_be_confirmed(store: &Store, id: &str) -> Result<(), TransactionError> {
    match store.see(id)? {
        Opened::Running => Err(at_work(id)),
        Opened::Nothing => Err(nothing(id)),
        Opened::There(there) => confirmable(id, there.1.last()).map(drop),
    }
}

enum Confirmable {
    Awaiting,
    InForce,
}

fn confirmable(id: &str, last: Option<&Record>) -> Result<Confirmable, TransactionError> {
    match last {
        Some(Record::Awaiting { .. }) => Ok(Confirmable::Awaiting),
        Some(Record::Committed | Record::Confirmed { .. }) => Ok(Confirmable::InForce),
        Some(Record::RolledBack { .. }) => Err(state(id, State::RolledBack, "there is nothing to confirm")),
        Some(Record::Undone { .. }) => {
            Err(state(id, State::Undone, "it was not confirmed in time; samehost switch list says why"))
        }
        _ => Err(state(id, State::Unfinished, "end it first: samehost switch recover")),
    }
}

fn at_work(id: &str) -> TransactionError {
    state(id, State::Running, "it is being put back, or not done yet")
}

/// Forgets a switch that has ended.
///
/// # Errors
/// When there is no such switch, or something of it is left to be done: then its backup is what that needs.
pub fn forget(store: &Store, id: &str) -> Result<(), TransactionError> {
    // The journal stays locked until it is removed.
    let (journal, _) = match store.take(id)? {
        Opened::Running => return Err(running(id)),
        Opened::Nothing => return store.forget(id),
        Opened::There(there) => *there,
    };
    has_ended(id, journal.last())?;
    store.forget(id)
}

/// Whether [`forget`] would forget a switch. Changes nothing.
///
/// # Errors
/// As [`forget`].
pub fn may_be_forgotten(store: &Store, id: &str) -> Result<(), TransactionError> {
    match store.see(id)? {
        Opened::Running => Err(running(id)),
        Opened::Nothing => Ok(()),
        Opened::There(there) => has_ended(id, there.1.last()),
    }
}

fn has_ended(id: &str, last: Option<&Record>) -> Result<(), TransactionError> {
    match last {
        Some(Record::Awaiting { .. }) => {
            Err(state(id, State::Awaiting, "confirm it, or undo it: its backup is the way back"))
        }
        Some(last) if last.has_ended() => Ok(()),
        _ => Err(state(id, State::Unfinished, "end it first: samehost switch recover")),
    }
}
