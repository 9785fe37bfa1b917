//! Puts a switch back that was committed: all of it, or, where a file is no longer what the switch left, nothing.

use super::directory::Held;
use super::journal::{Begun, Record};
use super::put_back::RolledBack;
use super::recover;
use super::store::{Opened, State, Store};
use super::writer::{Direction, Writer};
use super::{Reload, TransactionError};

/// Puts a committed switch back: every byte, mode, owner, access control list and attribute, the last stage first.
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

/// The same of a switch that awaits its confirmation, and the reason, for the journal.
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
    let state = |state: State, hint: &'static str| TransactionError::State { id: id.to_owned(), state, hint };
    let (mut journal, begun) = match store.take(id)? {
        Opened::Running => return Err(state(State::Running, "wait for it to end, and try again")),
        Opened::Nothing => {
            return Err(state(State::Unfinished, "it touched nothing: samehost switch --recover"));
        }
        Opened::Ours(ours) => *ours,
    };
    match journal.last() {
        Some(Record::Committed | Record::Confirmed { .. }) if why.is_some() => {
            return Err(state(State::Committed, "it was confirmed"));
        }
        Some(last) if last.is_in_force() => {}
        Some(Record::RolledBack { .. }) => {
            return Err(state(State::RolledBack, "nothing of it is left to undo"));
        }
        Some(Record::Undone { .. }) => return Err(state(State::Undone, "nothing of it is left to undo")),
        _ => return Err(state(State::Unfinished, "end it first: samehost switch --recover")),
    }
    let held = Held::acquire(store, begun.places())?;
    check(store, &begun, &held)?;
    let before = journal.last().cloned();
    journal.append(&Record::Undoing { why: why.map(str::to_owned) })?;
    if let Err(error) = prepare(store, &begun, &held) {
        // Where this fails too, `recover` completes the undo.
        Writer::new(store, &begun, &held).discard()?;
        journal.append(&before.unwrap_or(Record::Committed))?;
        return Err(error);
    }
    Ok(recover::undo(store, &mut journal, &begun, &held, reload))
}

/// Every file must still be what the switch left.
fn check(store: &Store, begun: &Begun, held: &Held) -> Result<(), TransactionError> {
    let writer = Writer::new(store, begun, held);
    for step in &begun.steps {
        if writer.look(&step.path)?.is(begun.last(&step.path)) {
            continue;
        }
        let later = |entry: &super::Entry| {
            entry.id > begun.id
                && matches!(entry.state, State::Committed | State::Awaiting)
                && entry.files.contains(&step.path)
        };
        let mut error = writer.changed(&step.path);
        if let (TransactionError::Changed { hint, .. }, Some(later)) =
            (&mut error, store.list()?.into_iter().rfind(later))
        {
            *hint = format!("undo the later switch first: samehost switch --undo {}", later.id);
        }
        return Err(error);
    }
    Ok(())
}

fn prepare(store: &Store, begun: &Begun, held: &Held) -> Result<(), TransactionError> {
    let writer = Writer::new(store, begun, held);
    for step in &begun.steps {
        if let Some(digest) = &step.before {
            writer.prepare(step, Direction::Back, &store.kept(&begun.id, digest)?)?;
        }
    }
    Ok(())
}
