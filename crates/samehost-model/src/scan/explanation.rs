//! What a code of a scan means, for people: of an obstacle, a finding, or BBR on loopback.

/// A general explanation; each text but the first is one or more sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The code, as in the listing and in JSON.
    pub code: &'static str,
    /// What it is, in one sentence: a line of the list of all codes.
    pub is: &'static str,
    /// What else is to be known of it; empty where that sentence is all.
    pub more: &'static str,
    /// When it matters.
    pub matters: &'static str,
    /// What to change.
    pub change: &'static str,
    /// How to undo that.
    pub undo: &'static str,
}
