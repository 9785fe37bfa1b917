//! What the store and the disk say of a switch after something was done with it: its state by its journal, and its files, compared.
//!
//! Whoever acts knows what they tried, and not what is there: a rename may fail in the middle of an undo, and a journal at its
//! end. "undone" was printed before it was known. So nothing is told of an ending, and no exit status decided, but by a value
//! that only [`settled`] makes, by reading.

use std::path::{Path, PathBuf};

use crate::error::TransactionError;
use crate::foresee::{differences, look};
use crate::journal::{JournalHeader, Record};
use crate::state::State;
use crate::store::{Entry, Opened, Store};
use crate::version::Found;

/// A switch as it is on the disk. Made by [`settled`] alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    id: String,
    state: Option<State>,
    is_in_force: bool,
    files: Vec<SettledFile>,
    left: Vec<PathBuf>,
    damage: Option<String>,
}

/// A file of a switch, compared after everything was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledFile {
    path: PathBuf,
    version: Version,
}

/// Which version of a file is at its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// As before the switch, to the last byte and attribute.
    Before,
    /// The text is that of before the switch, and these metadata are of today, in words.
    TextBefore(Vec<String>),
    /// As the switch wrote it.
    Switched,
    /// Neither, or it cannot be looked at: why.
    Other(String),
}

impl Settled {
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `None`: the store knows no such switch, or it ended before anything was touched.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        self.state
    }

    #[must_use]
    pub fn files(&self) -> &[SettledFile] {
        &self.files
    }

    /// Files that were left because somebody else had changed them, by the journal.
    #[must_use]
    pub fn left(&self) -> &[PathBuf] {
        &self.left
    }

    /// Why its journal cannot be read.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Whether it is in force by its journal, which also says so of one that was verified and whose end could not be written.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        self.is_in_force
    }
}

impl SettledFile {
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Whether it has the text of before the switch.
    #[must_use]
    pub fn is_back(&self) -> bool {
        matches!(self.version, Version::Before | Version::TextBefore(_))
    }
}

/// Asks the store and the disk how a switch stands now.
///
/// # Errors
/// When the store cannot be read.
pub fn settled(store: &Store, id: &str) -> Result<Settled, TransactionError> {
    let nothing = |state, damage| Settled {
        id: id.to_owned(),
        state,
        is_in_force: false,
        files: Vec::new(),
        left: Vec::new(),
        damage,
    };
    match store.see(id) {
        Ok(Opened::Running) => Ok(nothing(Some(State::Running), None)),
        Ok(Opened::Nothing) | Err(TransactionError::Unknown { .. }) => Ok(nothing(None, None)),
        Ok(Opened::There(there)) => {
            let (begun, history) = *there;
            Ok(Settled {
                id: id.to_owned(),
                state: Some(Record::state_after(history.last())),
                is_in_force: history.is_verified() || history.last().is_some_and(Record::is_in_force),
                files: files(&begun),
                left: history.left().to_vec(),
                damage: None,
            })
        }
        Err(error @ TransactionError::Newer { .. }) => {
            Ok(nothing(Some(State::Newer), Some(error.to_string())))
        }
        Err(error @ TransactionError::Damaged { .. }) => {
            Ok(nothing(Some(State::Damaged), Some(error.to_string())))
        }
        Err(error) => Err(error),
    }
}

/// The files of a switch, without those that it made and took away itself, where they are gone.
fn files(begun: &JournalHeader) -> Vec<SettledFile> {
    let mut files: Vec<SettledFile> = Vec::new();
    for step in &begun.steps {
        let path = &step.path;
        if files.iter().any(|file| file.path == *path) {
            continue;
        }
        let version = version(begun, path).unwrap_or_else(|error| Version::Other(error.to_string()));
        let is_passing = begun.original(path) == begun.last(path);
        if !is_passing || version != Version::Before {
            files.push(SettledFile { path: path.clone(), version });
        }
    }
    files
}

fn version(begun: &JournalHeader, path: &Path) -> Result<Version, TransactionError> {
    let found = look(path)?;
    if !found.is(begun.original(path)) {
        let mut steps = begun.steps.iter().filter(|step| step.path == path);
        let is_ours = steps.any(|step| found.is(step.after.as_ref()) || found.is(step.before.as_ref()));
        return Ok(if is_ours {
            Version::Switched
        } else {
            Version::Other("changed by someone else".into())
        });
    }
    let Found::Regular(regular) = &found else { return Ok(Version::Before) };
    let words = differences(begun, path, regular)?;
    Ok(if words.is_empty() { Version::Before } else { Version::TextBefore(words) })
}

/// All switches by their journals and the disk, the oldest first: those whose files somebody put back by hand are known.
///
/// What a journal says of files is how they were. "In force" was said for good of a switch whose files had long been put back, and an
/// undo of it was refused. The journal is not changed for it: whoever writes the switch's text again has it in force again.
///
/// # Errors
/// When the store cannot be read.
pub fn listed(store: &Store) -> Result<Vec<Entry>, TransactionError> {
    let mut entries = store.list()?;
    for at in (0..entries.len()).rev() {
        if !entries[at].is_in_force() {
            continue;
        }
        let now = settled(store, &entries[at].id)?;
        let mut back: Vec<&SettledFile> = now.files().iter().collect();
        back.retain(|file| file.is_back() && !has_later(&entries, at, &file.path));
        if !back.is_empty() && back.len() == now.files().len() && entries[at].state == State::Committed {
            entries[at].state = State::PutBack;
        }
        entries[at].back = back.into_iter().map(|file| file.path.clone()).collect();
    }
    Ok(entries)
}

/// Whether a later switch in force has the last word on a file.
fn has_later(entries: &[Entry], at: usize, file: &Path) -> bool {
    entries[at + 1..].iter().any(|later| later.is_in_force() && later.files.iter().any(|other| other == file))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub id: String,
    /// One line of what it did: `DB_HOST tcp:… → unix:…, …`.
    pub summary: String,
    /// The files that no later switch changed.
    pub files: Vec<SettledFile>,
}

/// Every switch in force, or put back by hand, with its files as they are now.
///
/// # Errors
/// When the store cannot be read.
pub fn standing(store: &Store) -> Result<Vec<Standing>, TransactionError> {
    let entries = listed(store)?;
    let mut all = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        if entry.is_in_force() || entry.state == State::PutBack {
            let mut files = settled(store, &entry.id)?.files;
            files.retain(|file| !has_later(&entries, at, &file.path));
            all.push(Standing { id: entry.id.clone(), summary: entry.summary.clone(), files });
        }
    }
    Ok(all)
}
