//! Errors of transactions: what failed, where, and what to try. They never contain the content of a file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::state::State;

/// Who holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The switch, where it can be told.
    pub id: Option<String>,
    /// The process, if the kernel reports it.
    pub process: Option<u32>,
    /// The name of its program.
    pub program: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id.as_deref().unwrap_or("id unknown"))?;
        if let Some(process) = self.process {
            write!(f, ", process {process}")?;
        }
        self.program.as_ref().map_or(Ok(()), |program| write!(f, " ({program})"))
    }
}

/// Why a transaction does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The intent contradicts itself, which is a bug in this program.
    #[error("the switch contradicts itself: {0}; nothing was changed: please report this")]
    Plan(String),
    /// The file cannot be changed and put back exactly.
    #[error("{path}: {reason}; nothing was changed: {hint}")]
    Refused {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
        /// What to try.
        hint: String,
    },
    /// The file changed since it was read.
    #[error("{path}: changed by someone else{}", kept(.backup.as_deref(), .hint))]
    Changed {
        /// Which.
        path: PathBuf,
        /// Where the version before the switch is kept.
        backup: Option<PathBuf>,
        /// What to try.
        hint: String,
    },
    /// Another switch is working in this directory.
    #[error(
        "{path}: another switch is at work there ({holder}); nothing was changed: wait for it to end, and try again"
    )]
    Busy {
        /// The directory.
        path: PathBuf,
        /// Who.
        holder: Holder,
    },
    /// An earlier switch of this file was interrupted.
    #[error("{path}: the switch {id} of it was interrupted; nothing was changed: {hint}")]
    Interrupted {
        /// The file.
        path: PathBuf,
        /// The earlier switch.
        id: String,
        /// What to try.
        hint: String,
    },
    /// An earlier switch of this file is not confirmed yet.
    #[error(
        "{path}: the switch {id} of it takes itself back at {until} unless it is confirmed; nothing was changed: samehost switch --confirm {id}, or --undo {id}, first"
    )]
    Unconfirmed {
        /// The file.
        path: PathBuf,
        /// The earlier switch.
        id: String,
        /// Until when, RFC 3339, UTC.
        until: String,
    },
    /// The system refuses.
    #[error("{path}: cannot {doing}: {source}{}", hint(.source))]
    System {
        /// Where.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// No switch has this id.
    #[error("no switch {id} in {store}; samehost switch --list names them")]
    Unknown {
        /// What was asked for.
        id: String,
        /// Where they are kept.
        store: PathBuf,
    },
    /// The state of the switch does not allow this.
    #[error("switch {id} is {state}: {hint}")]
    State {
        /// Which.
        id: String,
        /// Its state.
        state: State,
        /// What to try.
        hint: &'static str,
    },
    /// A journal of a later version.
    #[error(
        "{path}: written by a newer samehost ({what}); nothing was changed: use that one for this switch"
    )]
    Newer {
        /// Which.
        path: PathBuf,
        /// What this version does not know.
        what: String,
    },
    /// A journal or a backup was changed after it was written.
    #[error(
        "{path}: {reason}; nothing was changed: the versions before are in the switch's directory backup; move that switch out of the store when it is settled"
    )]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Adds the place and the attempted action to a system error.
pub(crate) fn at<'a>(path: &'a Path, doing: &'static str) -> impl Fn(io::Error) -> TransactionError + 'a {
    move |source| TransactionError::System { path: path.to_owned(), doing, source }
}

fn kept(backup: Option<&Path>, hint: &str) -> String {
    let backup = backup.map_or(String::new(), |backup| {
        format!(" and not overwritten; the version before the switch is {}", backup.display())
    });
    format!("{backup}; {hint}")
}

/// What to try after a system error.
pub(crate) fn hint(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => "; try as root (sudo)",
        Some(Errno::ROFS) => "; the file system is read-only: remount it (mount -o remount,rw)",
        Some(Errno::NOSPC) => "; the disk is full: free some room",
        Some(Errno::DQUOT) => "; the quota is used up: free some room, or have it raised",
        Some(Errno::IO) => "; the disk fails: see dmesg",
        _ => "",
    }
}

/// A refusal: what, why, and what to try.
pub(crate) fn refused(path: &Path, reason: &str, hint: &str) -> TransactionError {
    TransactionError::Refused { path: path.to_owned(), reason: reason.into(), hint: hint.into() }
}
