//! Confirms a switch that would be put back otherwise. Changes its journal only.

use crate::error::TransactionError;
use crate::record::Record;
use crate::state::State;
use crate::store::{JournalStatus, Store};

/// Confirms a switch, so that it stays in force. `by` says for the journal who or what confirmed it. A switch that is
/// in force already stays so.
///
/// # Errors
/// When there is no such switch, it was put back meanwhile, or it is being put back.
pub fn confirm(store: &Store, id: &str, by: &str) -> Result<(), TransactionError> {
    let state = |state: State, hint: &'static str| TransactionError::State { id: id.to_owned(), state, hint };
    let (mut journal, _) = match store.take(id)? {
        JournalStatus::Running => return Err(state(State::Running, "it is being put back, or not done yet")),
        JournalStatus::Nothing => {
            return Err(state(State::Unfinished, "it touched nothing: samehost switch --recover"));
        }
        JournalStatus::Ours(ours) => *ours,
    };
    match journal.last() {
        Some(Record::Awaiting { .. }) => journal.append(&Record::Confirmed { by: by.to_owned() }),
        Some(Record::Committed | Record::Confirmed { .. }) => Ok(()),
        Some(Record::RolledBack { .. }) => Err(state(State::RolledBack, "there is nothing to confirm")),
        Some(Record::Undone { .. }) => {
            Err(state(State::Undone, "it was not confirmed in time; samehost switch --list says why"))
        }
        _ => Err(state(State::Unfinished, "end it first: samehost switch --recover")),
    }
}
