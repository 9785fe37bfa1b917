//! A refusal: what an editor will not change, where it is, why, and what to write there by hand.

use std::fmt;
use std::path::{Path, PathBuf};

use samehost_model::Redactor;

/// Result of an editor; the default error is a refusal. Where the file and the line are not at hand it is a [`Reason`].
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// What to write by hand where an editor does not know of which server a host is: who knows the place where it leads says more.
pub const OF_UNKNOWN_SERVER: &str = "where the program that reads it takes a path for a host: the path of its server's socket (MySQL), or the directory of that (PostgreSQL)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub file: PathBuf,
    /// The line, from 1; 0 stands for the whole file.
    pub line: u32,
    /// What is not understood, or would not be safe. Never contains a password.
    pub reason: String,
    pub by_hand: String,
}

impl Refusal {
    pub(crate) fn new(file: &Path, line: u32, reason: impl Into<String>, by_hand: impl Into<String>) -> Self {
        Refusal { file: file.to_owned(), line, reason: reason.into(), by_hand: by_hand.into() }
    }

    /// A refusal of a line where the file is unknown. The caller adds it with [`Refusal::in_file`].
    pub(crate) fn at(line: u32, reason: impl Into<String>) -> Self {
        Refusal { file: PathBuf::new(), line, reason: reason.into(), by_hand: String::new() }
    }

    /// The same refusal with its file, if it has none yet.
    #[must_use]
    pub(crate) fn in_file(mut self, file: &Path) -> Self {
        if self.file.as_os_str().is_empty() {
            file.clone_into(&mut self.file);
        }
        self
    }

    #[must_use]
    pub(crate) fn by_hand(mut self, by_hand: impl Into<String>) -> Self {
        self.by_hand = by_hand.into();
        self
    }

    /// The same refusal with every password and other secret in its two sentences masked.
    #[must_use]
    pub fn redacted(mut self, redactor: &Redactor) -> Self {
        self.reason = redactor.message(&self.reason);
        self.by_hand = redactor.message(&self.by_hand);
        self
    }
}

/// Why a value cannot be read or written, in words for people: what a [`Refusal`] says, where only the caller knows the
/// file, the line and what to write by hand. It never contains a password.
///
/// Most functions that take a value apart do not know which key it stands behind. So the words are put behind its name
/// (`DB_HOST: it is not a host's name`), and have the value as their subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Reason(text)
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Reason(text.to_owned())
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A line of a file that is refused for one reason or another; line 0 stands for the whole file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) file: &'a Path,
    pub(crate) line: u32,
}

impl At<'_> {
    pub(crate) fn refusal(self, reason: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(self.file, self.line, reason, by_hand)
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
