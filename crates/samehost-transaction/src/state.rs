//! The states of a switch, as users read them.

use std::fmt;

/// How far a switch is. Its journal says so, and a lock on the journal whether a process works on it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In force.
    Committed,
    /// In force, and put back unless it is confirmed in time.
    Awaiting,
    /// Committed, and every file has the text of before: somebody put it back by hand.
    PutBack,
    /// Rolled back because a check failed.
    RolledBack,
    /// Undone later, on request.
    Undone,
    /// Interrupted: `recover` ends it.
    Unfinished,
    Running,
    Damaged,
    Newer,
}

impl State {
    pub const ALL: [State; 9] = [
        State::Committed,
        State::Awaiting,
        State::PutBack,
        State::RolledBack,
        State::Undone,
        State::Unfinished,
        State::Running,
        State::Damaged,
        State::Newer,
    ];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Committed => "committed",
            State::Awaiting => "awaiting confirmation",
            State::PutBack => "put back by hand",
            State::RolledBack => "rolled back",
            State::Undone => "undone",
            State::Unfinished => "unfinished",
            State::Running => "running",
            State::Damaged => "damaged",
            State::Newer => "newer",
        })
    }
}
