//! What a journal says: its header, and one record for each step that is about to be taken. Holds hashes, never content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::intent::Reload;
use crate::metadata::{Permissions, Times};
use crate::plan::Step;
use crate::version::Digest;

/// The layout of the journal. 2: a switch can await its confirmation; all that 1 could say means the same.
pub(crate) const VERSION: u32 = 2;

/// What is known before the first file is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalHeader {
    pub(crate) version: u32,
    pub(crate) id: String,
    /// Part of the prepared files' names, so that nobody who may fetch from the directory can guess them.
    pub(crate) token: String,
    pub(crate) process: u32,
    pub(crate) started_at: String,
    pub(crate) command: String,
    pub(crate) summary: String,
    pub(crate) steps: Vec<Step>,
    /// By stage.
    pub(crate) reloads: Vec<Vec<Reload>>,
    pub(crate) files: BTreeMap<PathBuf, SavedMetadata>,
    /// Directories that the switch makes, outermost first.
    pub(crate) directories: Vec<PathBuf>,
}

/// What a file carries beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedMetadata {
    pub(crate) permissions: Permissions,
    /// None where the switch makes the file.
    pub(crate) times: Option<Times>,
}

impl JournalHeader {
    /// As a transaction writes it.
    pub(crate) fn current_version() -> u32 {
        VERSION
    }

    /// The version before the switch of a file, where there was one.
    pub(crate) fn original(&self, path: &Path) -> Option<&Digest> {
        self.steps.iter().find(|step| step.path == path)?.before.as_ref()
    }

    /// What the switch leaves of a file.
    pub(crate) fn last(&self, path: &Path) -> Option<&Digest> {
        self.steps.iter().rfind(|step| step.path == path)?.after.as_ref()
    }

    /// Whether this step is the first of its file.
    pub(crate) fn is_first(&self, step: &Step) -> bool {
        self.steps
            .iter()
            .find(|other| other.path == step.path)
            .is_some_and(|first| first.number == step.number)
    }

    /// Whether a file is as this step found it, or as one before did, on the way back.
    pub(crate) fn is_back(&self, step: &Step, is: impl Fn(Option<&Digest>) -> bool) -> bool {
        let earlier = |other: &&Step| other.path == step.path && other.number <= step.number;
        !is(step.after.as_ref()) && self.steps.iter().filter(earlier).any(|other| is(other.before.as_ref()))
    }

    /// The paths in whose directories something changes.
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
    /// The files of a stage may be in place from here on.
    Writing { stage: usize },
    /// Its reloads may have happened from here on.
    Reloading { stage: usize },
    /// Everything was found to serve; where it is to be confirmed, until when (RFC 3339, UTC).
    Verified {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<String>,
    },
    /// In force, and put back unless it is confirmed until then.
    Awaiting { until: String },
    /// Ended: in force, for somebody or something said so.
    Confirmed { by: String },
    /// Ended: in force.
    Committed,
    /// To be put back, whatever came before.
    RollingBack,
    /// Ended: put back, but for these.
    RolledBack { left: Vec<PathBuf> },
    /// To be put back after it was committed; what was seen, where nobody asked for it.
    Undoing {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Ended: put back, but for these.
    Undone { left: Vec<PathBuf> },
}

/// What a journal says, after its first line.
#[derive(Debug, Default)]
pub(crate) struct History {
    records: Vec<Record>,
}

impl Record {
    /// Whether the switch is in force after this record, and nothing of it is left to be done.
    pub(crate) fn is_in_force(&self) -> bool {
        matches!(self, Record::Committed | Record::Confirmed { .. } | Record::Awaiting { .. })
    }

    /// Whether nothing of the switch is left to be done after this record, in force or not.
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

    /// Whether the switch is past the point where a crash is completed.
    pub(crate) fn is_verified(&self) -> bool {
        matches!(self.last(), Some(Record::Verified { .. }))
    }

    /// Until when the switch is to be confirmed, where it is still to be.
    pub(crate) fn awaits(&self) -> Option<&str> {
        match self.last() {
            Some(Record::Verified { until: Some(until) } | Record::Awaiting { until }) => Some(until),
            _ => None,
        }
    }

    /// Why it was put back, or by what it was confirmed, where that was written down.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Undoing { why: Some(text) } | Record::Confirmed { by: text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// The files that were left as they are, for they were none of the switch's versions.
    pub(crate) fn left(&self) -> &[PathBuf] {
        match self.last() {
            Some(Record::RolledBack { left } | Record::Undone { left }) => left,
            _ => &[],
        }
    }

    /// Whether an undo was begun and not ended.
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
