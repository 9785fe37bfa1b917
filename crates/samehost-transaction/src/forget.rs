//! Forgets switches that have ended: removes their journals and backups, and with them the possibility to undo. Removed
//! backups are not overwritten, so a disk may keep their content for a while.

use crate::error::TransactionError;
use crate::record::Record;
use crate::state::State;
use crate::store::{JournalStatus, Store};
use crate::undo;

/// Forgets a switch that has ended.
///
/// # Errors
/// When there is no such switch, or something of it is left to be done: then its backup is what that needs.
pub fn forget(store: &Store, id: &str) -> Result<(), TransactionError> {
    // The journal stays locked until it is removed.
    let (journal, _) = match store.take(id)? {
        JournalStatus::Running => return Err(undo::running(id)),
        JournalStatus::Nothing => return store.forget(id),
        JournalStatus::Ours(ours) => *ours,
    };
    let state = |state: State, hint: &'static str| TransactionError::State { id: id.to_owned(), state, hint };
    match journal.last() {
        Some(Record::Awaiting { .. }) => {
            Err(state(State::Awaiting, "confirm it, or undo it: its backup is the way back"))
        }
        Some(last) if last.has_ended() => store.forget(id),
        _ => Err(state(State::Unfinished, "end it first: samehost switch --recover")),
    }
}
