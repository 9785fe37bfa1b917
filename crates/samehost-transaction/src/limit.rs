//! How long a file this process may write (`ulimit -f`, RLIMIT_FSIZE). A journal that cannot grow is found out before anything is
//! touched: later it would leave a switch half done.

use rustix::process::{Resource, getrlimit};

use crate::error::TransactionError;

/// What a journal of a usual switch takes with the room that it reserves, in bytes.
const JOURNAL_BYTES: u64 = 64 * 1024;

/// Fails where this process may not write a file of this many bytes, or no journal.
///
/// # Errors
/// [`TransactionError::FileSize`].
pub fn files_may_be(bytes: u64) -> Result<(), TransactionError> {
    let needed = bytes.max(JOURNAL_BYTES);
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < needed => Err(TransactionError::FileSize { limit, needed }),
        _ => Ok(()),
    }
}
