//! A refusal: what an editor will not change, where it stands, why, and what to write there by hand.

use std::fmt;
use std::path::PathBuf;

use samehost_model::Redactor;

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
