//! A refusal: what an editor will not change, where it stands, why, and what to write there by hand.

use std::fmt;
use std::path::{Path, PathBuf};

use samehost_model::Redactor;

/// What an editor returns: where nothing else is said, its error is a refusal.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Why a configuration is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file.
    pub file: PathBuf,
    /// The line in it, from 1; 0 where it is the file as a whole.
    pub line: u32,
    /// What is not understood, or would not be safe. Never holds a password.
    pub reason: String,
    /// The exact edit to make by hand.
    pub by_hand: String,
}

impl Refusal {
    /// A refusal of a line of a file; 0 is the file as a whole.
    pub(crate) fn new(file: &Path, line: u32, reason: impl Into<String>, by_hand: impl Into<String>) -> Self {
        Refusal { file: file.to_owned(), line, reason: reason.into(), by_hand: by_hand.into() }
    }

    /// A refusal of a line by who does not know the file: the caller adds it with [`Refusal::in_file`].
    pub(crate) fn at(line: u32, reason: impl Into<String>) -> Self {
        Refusal { file: PathBuf::new(), line, reason: reason.into(), by_hand: String::new() }
    }

    /// The same with its file, where it has none yet.
    #[must_use]
    pub(crate) fn in_file(mut self, file: &Path) -> Self {
        if self.file.as_os_str().is_empty() {
            file.clone_into(&mut self.file);
        }
        self
    }

    /// The same with another edit to make by hand.
    #[must_use]
    pub(crate) fn by_hand(mut self, by_hand: impl Into<String>) -> Self {
        self.by_hand = by_hand.into();
        self
    }

    /// The same without secrets.
    #[must_use]
    pub fn redacted(mut self, redactor: &Redactor) -> Self {
        self.reason = redactor.message(&self.reason);
        self.by_hand = redactor.message(&self.by_hand);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.reason)?;
        if !self.by_hand.is_empty() {
            write!(f, "\n  by hand: {}", self.by_hand)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
