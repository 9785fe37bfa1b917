//! Errors of transactions: what failed, where, and what to try. They never contain the content of a file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use samehost_system::{Asked, Refusal};

use crate::state::State;

/// Who is at work in a directory. All three are unknown where the kernel shows no holder of its lock and no prepared
/// file lies there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// From the store, or from the names of the files that it prepared there.
    pub id: Option<String>,
    pub process: Option<u32>,
    pub program: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id.as_deref().unwrap_or("id unknown"))?;
        if let Some(process) = self.process {
            write!(f, ", process {process}")?;
        }
        if let Some(program) = &self.program {
            write!(f, " ({program})")?;
        }
        Ok(())
    }
}

/// Why a transaction does not go on, with what the user can try.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The intent contradicts itself, which is a bug in this program.
    #[error("the switch contradicts itself: {0}; nothing was changed: please report this")]
    Plan(String),
    /// The file cannot be changed and put back exactly.
    #[error("{path}: {reason}; nothing was changed: {hint}")]
    Refused { path: PathBuf, reason: String, hint: String },
    /// The file changed since it was read.
    #[error("{path}: changed by someone else{}", kept(.backup.as_deref(), .hint))]
    Changed {
        path: PathBuf,
        /// Where the version before the switch is kept; `None` before the switch, and for a file that it made.
        backup: Option<PathBuf>,
        hint: String,
    },
    #[error(
        "{path}: another switch is at work there ({holder}); nothing was changed: wait for it to end, and try again"
    )]
    Busy { path: PathBuf, holder: Holder },
    #[error("{path}: the switch {id} of it was interrupted; nothing was changed: {hint}")]
    Interrupted { path: PathBuf, id: String, hint: String },
    /// An earlier switch of this file is not confirmed yet.
    #[error(
        "{path}: the switch {id} of it takes itself back at {until} unless it is confirmed; nothing was changed: samehost switch confirm {id}, or samehost switch undo {id}, first"
    )]
    Unconfirmed {
        path: PathBuf,
        id: String,
        /// Until when, RFC 3339, UTC.
        until: String,
    },
    #[error("{path}: cannot {doing}: {source}{}", hint(.path, .source))]
    System {
        path: PathBuf,
        /// What was tried, as the words that follow "cannot".
        doing: &'static str,
        source: io::Error,
    },
    /// This process may not write files that are long enough.
    #[error(
        "files of this process may have {limit} bytes (ulimit -f, RLIMIT_FSIZE), and {needed} are needed; nothing was changed: raise the limit"
    )]
    FileSize { limit: u64, needed: u64 },
    #[error("no switch {id} in {store}; samehost switch list names them")]
    Unknown { id: String, store: PathBuf },
    /// Whoever knows what runs here says that it may not be put back now.
    #[error("switch {id} is not put back, and nothing was touched: {reason}")]
    Barred { id: String, reason: String },
    #[error("switch {id} is {state}: {hint}")]
    State { id: String, state: State, hint: &'static str },
    #[error(
        "{path}: written by a newer samehost ({what}); nothing was changed: use that one for this switch"
    )]
    Newer { path: PathBuf, what: String },
    /// A journal or a backup was changed after it was written.
    #[error(
        "{path}: {reason}; nothing was changed: the versions before are in the switch's directory backup; move that switch out of the store when it is settled"
    )]
    Damaged { path: PathBuf, reason: String },
}

/// Turns a system error into one with the path and with what was tried there, the words that follow "cannot".
pub(crate) fn at<'a>(path: &'a Path, doing: &'static str) -> impl Fn(io::Error) -> TransactionError + 'a {
    move |source| TransactionError::System { path: path.to_owned(), doing, source }
}

fn kept(backup: Option<&Path>, hint: &str) -> String {
    match backup {
        Some(backup) => {
            format!(" and not overwritten; the version before the switch is {}; {hint}", backup.display())
        }
        None => format!("; {hint}"),
    }
}

/// What to try with a file, behind a semicolon; empty where nothing is known.
pub(crate) fn hint(path: &Path, error: &io::Error) -> String {
    let known = match Errno::from_io_error(error) {
        Some(errno @ (Errno::ACCESS | Errno::PERM | Errno::FBIG)) => {
            return match Refusal::of(Asked::ChangeFile, errno) {
                refusal if refusal.is_of_ordinary_user() => format!("; {}", refusal.try_next()),
                refusal if refusal.has_reason() => format!("; {refusal}"),
                refusal => format!("; {}", refusal.try_next()),
            };
        }
        Some(Errno::ROFS) => "; the file system is read-only: remount it (mount -o remount,rw)",
        Some(Errno::NOSPC) if has_no_inode(path) => {
            "; no inode is left on the disk (df -i): remove some files"
        }
        Some(Errno::NOSPC) => "; the disk is full: free some room",
        Some(Errno::DQUOT) => "; the quota is used up: free some room, or have it raised",
        Some(Errno::IO) => "; the disk fails: see dmesg",
        _ => "",
    };
    known.to_owned()
}

/// Whether the file system of a path, or of what is above it, has room for no further file, however short.
fn has_no_inode(path: &Path) -> bool {
    let found = path.ancestors().find_map(|above| rustix::fs::statvfs(above).ok());
    // Some file systems count none.
    found.is_some_and(|found| found.f_files > 0 && found.f_favail == 0)
}

/// The error for a file, or a directory, that somebody changed before anything of it was.
pub(crate) fn changed_before(path: &Path, hint: &str) -> TransactionError {
    TransactionError::Changed { path: path.to_owned(), backup: None, hint: hint.into() }
}

pub(crate) fn refused(path: &Path, reason: &str, hint: &str) -> TransactionError {
    TransactionError::Refused { path: path.to_owned(), reason: reason.into(), hint: hint.into() }
}
