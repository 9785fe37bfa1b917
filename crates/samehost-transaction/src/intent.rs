//! What a transaction is to do, as given by its caller.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One file in one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Absolute path without symbolic links, as returned by [`resolve`](crate::resolve()).
    pub path: PathBuf,
    /// Content before; `None` if the switch creates the file.
    pub before: Option<Vec<u8>>,
    /// Content afterwards; `None` if the switch removes the file.
    pub after: Option<Vec<u8>>,
    /// If the switch creates the file: the file whose text it contains. The new file is never readable by more users
    /// than that one.
    pub like: Option<PathBuf>,
}

/// How running programs load the files of a stage. Only data here; the caller runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// What is reloaded, for people.
    pub what: String,
    /// The words of the command.
    pub command: Vec<String>,
}

/// Changes after which everything serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// The files, each at most once per stage.
    pub changes: Vec<FileChange>,
    /// Reloads after the files changed; repeated in reverse order when the stage is put back.
    pub reloads: Vec<Reload>,
}

/// What a transaction is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// The user's words, without secrets.
    pub command: String,
    /// Summary in one line, without secrets.
    pub summary: String,
    /// In order; a later stage may change a file again.
    pub stages: Vec<Stage>,
}
