//! Contents of a journal: the header, and one record before each step. Contains hashes, never content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::intent::{Reload, Step};
use crate::metadata::{Permissions, Times};
use crate::version::Digest;

/// Version of the journal's layout. In 2 a switch can await its confirmation; everything of version 1 has the same
/// meaning.
pub(crate) const VERSION: u32 = 2;

/// What is known before the first file is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalHeader {
    pub(crate) version: u32,
    pub(crate) id: String,
    /// Part of the prepared files' names, so that they cannot be guessed by users who may read from the directory but
    /// not list it.
    pub(crate) token: String,
    pub(crate) process: u32,
    pub(crate) started_at: String,
    pub(crate) command: String,
    pub(crate) summary: String,
    pub(crate) steps: Vec<Step>,
    /// By stage.
    pub(crate) reloads: Vec<Vec<Reload>>,
    pub(crate) files: BTreeMap<PathBuf, SavedMetadata>,
    /// Directories that the switch creates, outermost first.
    pub(crate) directories: Vec<PathBuf>,
}

/// Metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedMetadata {
    pub(crate) permissions: Permissions,
    /// `None` if the switch creates the file.
    pub(crate) times: Option<Times>,
}

impl JournalHeader {
    /// As a transaction writes it.
    pub(crate) fn current_version() -> u32 {
        VERSION
    }

    /// The version of a file before the switch, if it existed.
    pub(crate) fn original(&self, path: &Path) -> Option<&Digest> {
        self.steps.iter().find(|step| step.path == path)?.before.as_ref()
    }

    /// What the switch leaves of a file.
    pub(crate) fn last(&self, path: &Path) -> Option<&Digest> {
        self.steps.iter().rfind(|step| step.path == path)?.after.as_ref()
    }

    /// Whether this is the first step of its file.
    pub(crate) fn is_first(&self, step: &Step) -> bool {
        self.steps
            .iter()
            .find(|other| other.path == step.path)
            .is_some_and(|first| first.number == step.number)
    }

    /// Whether, during a rollback, a file is as this step or an earlier one found it.
    pub(crate) fn is_back(&self, step: &Step, is: impl Fn(Option<&Digest>) -> bool) -> bool {
        if is(step.after.as_ref()) {
            return false;
        }
        let mut earlier =
            self.steps.iter().filter(|other| other.path == step.path && other.number <= step.number);
        earlier.any(|other| is(other.before.as_ref()))
    }

    /// Paths in whose directories something changes.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Path> {
        self.steps.iter().map(|step| &step.path).chain(&self.directories).map(PathBuf::as_path)
    }

    pub(crate) fn is_sound(&self) -> bool {
        let digests = self.steps.iter().flat_map(|step| [&step.before, &step.after]).flatten();
        digests.into_iter().all(Digest::is_sound)
            && self.steps.iter().all(|step| {
                step.path.is_absolute()
                    && self.files.contains_key(&step.path)
                    && step.stage < self.reloads.len()
            })
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// Backed up; nothing touched yet.
    Begun(Box<JournalHeader>),
    /// From here on files of the stage may be in place.
    Writing { stage: usize },
    /// From here on reloads of the stage may have happened.
    Reloading { stage: usize },
    /// Everything was found to serve; with the deadline if it is to be confirmed (RFC 3339, UTC).
    Verified {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<String>,
    },
    /// In force, and put back unless it is confirmed by then.
    Awaiting { until: String },
    /// Ended: in force, confirmed by somebody or something.
    Confirmed { by: String },
    /// Ended: in force.
    Committed,
    /// Will be put back, whatever came before.
    RollingBack,
    /// Ended: put back, but for these.
    RolledBack { left: Vec<PathBuf> },
    /// Will be put back after it was committed; with the reason if nobody asked for it.
    Undoing {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Ended: put back, but for these.
    Undone { left: Vec<PathBuf> },
}

/// A journal after its first line.
#[derive(Debug, Default)]
pub(crate) struct History {
    records: Vec<Record>,
}

impl Record {
    /// Whether after this record the switch is in force and nothing remains to be done.
    pub(crate) fn is_in_force(&self) -> bool {
        matches!(self, Record::Committed | Record::Confirmed { .. } | Record::Awaiting { .. })
    }

    /// Whether after this record nothing remains to be done, in force or not.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_in_force() || matches!(self, Record::RolledBack { .. } | Record::Undone { .. })
    }
}

impl History {
    /// One more, which is on the disk.
    pub(crate) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Of these records.
    pub(crate) fn of(records: Vec<Record>) -> Self {
        History { records }
    }

    /// The last record.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.records.last()
    }

    /// Whether a crash is completed rather than put back.
    pub(crate) fn is_verified(&self) -> bool {
        matches!(self.last(), Some(Record::Verified { .. }))
    }

    /// Deadline of the confirmation, if the switch awaits one.
    pub(crate) fn awaits(&self) -> Option<&str> {
        match self.last() {
            Some(Record::Verified { until: Some(until) } | Record::Awaiting { until }) => Some(until),
            _ => None,
        }
    }

    /// The recorded reason why it was put back, or what confirmed it.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Undoing { why: Some(text) } | Record::Confirmed { by: text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Files that were left as they are because they were not versions of the switch.
    pub(crate) fn left(&self) -> &[PathBuf] {
        match self.last() {
            Some(Record::RolledBack { left } | Record::Undone { left }) => left,
            _ => &[],
        }
    }

    /// Whether an undo was begun and not finished.
    pub(crate) fn is_undoing(&self) -> bool {
        matches!(self.last(), Some(Record::Undoing { .. }))
    }

    /// The last stage whose files may be in place.
    pub(crate) fn furthest(&self) -> Option<usize> {
        self.records
            .iter()
            .filter_map(|record| if let Record::Writing { stage } = record { Some(*stage) } else { None })
            .max()
    }

    /// The stages whose reloads may have happened.
    pub(crate) fn reloaded(&self) -> BTreeSet<usize> {
        self.records
            .iter()
            .filter_map(|record| if let Record::Reloading { stage } = record { Some(*stage) } else { None })
            .collect()
    }
}
