//! What a transaction is to do, as its caller says it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One file in one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The file, as [`resolve`](crate::resolve()) gives it: absolute, with no symbolic link in it.
    pub path: PathBuf,
    /// Its bytes before; none where the switch makes it.
    pub before: Option<Vec<u8>>,
    /// Its bytes afterwards; none where the switch removes it.
    pub after: Option<Vec<u8>>,
    /// Where the switch makes it: a file that it takes its text from, and is never more readable than.
    pub like: Option<PathBuf>,
}

/// What makes running programs take the files of a stage. Data to this module: the caller runs it.
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
    /// The files; each at most once a stage.
    pub changes: Vec<FileChange>,
    /// What takes them into use; done again, last first, when the stage is put back.
    pub reloads: Vec<Reload>,
}

/// What a transaction is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// The user's words, without secrets.
    pub command: String,
    /// One line of what it does, without secrets.
    pub summary: String,
    /// In order; a file may change again in a later one.
    pub stages: Vec<Stage>,
}
