//! A switch in the store: its state, and what it changes.

use std::path::PathBuf;

use samehost_system::clock;

use crate::journal::{History, JournalHeader};
use crate::state::State;

/// A switch, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub id: String,
    /// When it began, RFC 3339, UTC.
    pub started_at: String,
    /// How far it is.
    pub state: State,
    /// The process that began it.
    pub process: u32,
    /// The user's words.
    pub command: String,
    /// One line of what it does.
    pub summary: String,
    /// The files, in the order in which they change.
    pub files: Vec<PathBuf>,
    /// Files that were not put back because somebody else had changed them. Their backups have to be compared by hand.
    pub left: Vec<PathBuf>,
    /// Deadline of the confirmation, RFC 3339, UTC.
    pub awaits: Option<String>,
    /// Why it was put back without a request, what confirmed it, or what is wrong with its journal.
    pub reason: Option<String>,
}

impl Entry {
    /// Of a journal that was read.
    pub(crate) fn of(begun: JournalHeader, state: State, history: &History) -> Self {
        let mut files: Vec<PathBuf> = Vec::new();
        for step in begun.steps {
            if !files.contains(&step.path) {
                files.push(step.path);
            }
        }
        let JournalHeader { id, started_at, process, command, summary, .. } = begun;
        let awaits = history.awaits().map(str::to_owned);
        let reason = history.reason().map(str::to_owned);
        let left = history.left().to_vec();
        Entry { id, started_at, state, process, command, summary, files, left, awaits, reason }
    }

    /// An entry for a journal that cannot be read: the reason, and the files that it may be about.
    pub(crate) fn unreadable(id: String, state: State, reason: String, files: Vec<PathBuf>) -> Self {
        let started_at = begun_at(&id).unwrap_or_default();
        let (command, summary, left, reason) = (String::new(), String::new(), Vec::new(), Some(reason));
        Entry { id, started_at, state, process: 0, command, summary, files, left, awaits: None, reason }
    }

    /// Whether its journal cannot be read, so that it is unknown what remains to be done.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        matches!(self.state, State::Damaged | State::Newer)
    }

    /// Whether the deadline of its confirmation has passed.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        let until = self.awaits.as_deref().map(str::parse::<jiff::Timestamp>);
        // A deadline that cannot be read counts as passed.
        until.is_some_and(|until| until.map_or(true, |until| until <= jiff::Timestamp::now()))
    }

    /// How long until the deadline of its confirmation, in seconds, negative after it; `None` where it awaits none.
    #[must_use]
    pub fn deadline_in_s(&self) -> Option<f64> {
        let until: jiff::Timestamp = self.awaits.as_deref()?.parse().ok()?;
        Some(until.duration_since(jiff::Timestamp::now()).as_secs_f64())
    }
}

/// Start of a switch according to its id: RFC 3339, UTC.
fn begun_at(id: &str) -> Option<String> {
    let time = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", id.get(..15)?).ok()?;
    Some(clock::utc(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()))
}

/// Whether this is the id of a switch. Directories with other names are not ours.
pub(crate) fn is_id(name: &str) -> bool {
    let shape = "00000000-000000-0000";
    if name.len() != shape.len() {
        return false;
    }
    name.bytes().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
        b'-' => byte == b'-',
        _ => byte.is_ascii_digit() || byte.is_ascii_lowercase(),
    })
}

/// Id of a switch that begins now: the time, UTC, to 1/65536 of a second, so that ids sort by age.
pub(crate) fn name_of_now() -> String {
    let now = jiff::Timestamp::now();
    let fraction = i64::from(now.subsec_nanosecond()) * 65_536 / 1_000_000_000;
    format!("{}-{fraction:04x}", now.strftime("%Y%m%d-%H%M%S"))
}
