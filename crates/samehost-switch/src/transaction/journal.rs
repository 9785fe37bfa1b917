//! The journal of one transaction: JSON lines, each on the disk before what it announces is done. A last line that was
//! torn by a crash counts as not written. Holds hashes, never content.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, SeekFrom, flock, seek};
use serde::{Deserialize, Serialize};

use super::error::at;
use super::metadata::{Permissions, Times};
use super::plan::Step;
use super::reading::Read;
use super::version::Digest;
use super::{Reload, TransactionError, system};

/// The layout of the journal. 2: a switch can await its confirmation; all that 1 could say means the same.
pub(super) const VERSION: u32 = 2;
/// Kept free for the records that end a transaction, in bytes.
const RESERVE: u64 = 16 * 1024;

/// What is known before the first file is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) version: u32,
    pub(super) id: String,
    /// Part of the prepared files' names, so that nobody who may fetch from the directory can guess them.
    pub(super) token: String,
    pub(super) process: u32,
    pub(super) started_at: String,
    pub(super) command: String,
    pub(super) summary: String,
    pub(super) steps: Vec<Step>,
    /// By stage.
    pub(super) reloads: Vec<Vec<Reload>>,
    pub(super) files: BTreeMap<PathBuf, Kept>,
    /// Directories that the switch makes, outermost first.
    pub(super) directories: Vec<PathBuf>,
}

/// What a file carries beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) permissions: Permissions,
    /// None where the switch makes the file.
    pub(super) times: Option<Times>,
}

impl Begun {
    /// As a transaction writes it.
    pub(super) fn current_version() -> u32 {
        VERSION
    }

    /// The version before the switch of a file, where there was one.
    pub(super) fn original(&self, path: &Path) -> Option<&Digest> {
        self.steps.iter().find(|step| step.path == path)?.before.as_ref()
    }

    /// What the switch leaves of a file.
    pub(super) fn last(&self, path: &Path) -> Option<&Digest> {
        self.steps.iter().rfind(|step| step.path == path)?.after.as_ref()
    }

    /// Whether this step is the first of its file.
    pub(super) fn is_first(&self, step: &Step) -> bool {
        self.steps
            .iter()
            .find(|other| other.path == step.path)
            .is_some_and(|first| first.number == step.number)
    }

    /// Whether a file is as this step found it, or as one before did, on the way back.
    pub(super) fn is_back(&self, step: &Step, is: impl Fn(Option<&Digest>) -> bool) -> bool {
        let earlier = |other: &&Step| other.path == step.path && other.number <= step.number;
        !is(step.after.as_ref()) && self.steps.iter().filter(earlier).any(|other| is(other.before.as_ref()))
    }

    /// The paths in whose directories something changes.
    pub(super) fn places(&self) -> impl Iterator<Item = &Path> {
        self.steps.iter().map(|step| &step.path).chain(&self.directories).map(PathBuf::as_path)
    }

    pub(super) fn is_sound(&self) -> bool {
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
pub(super) enum Record {
    /// Backed up; nothing touched yet.
    Begun(Box<Begun>),
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
pub(super) struct History {
    records: Vec<Record>,
}

impl Record {
    /// Whether the switch is in force after this record, and nothing of it is left to be done.
    pub(super) fn is_in_force(&self) -> bool {
        matches!(self, Record::Committed | Record::Confirmed { .. } | Record::Awaiting { .. })
    }

    /// Whether nothing of the switch is left to be done after this record, in force or not.
    pub(super) fn has_ended(&self) -> bool {
        self.is_in_force() || matches!(self, Record::RolledBack { .. } | Record::Undone { .. })
    }
}

impl History {
    /// Of these records.
    pub(super) fn of(records: Vec<Record>) -> Self {
        History { records }
    }

    /// The last record.
    pub(super) fn last(&self) -> Option<&Record> {
        self.records.last()
    }

    /// Whether the switch is past the point where a crash is completed.
    pub(super) fn is_verified(&self) -> bool {
        matches!(self.last(), Some(Record::Verified { .. }))
    }

    /// Until when the switch is to be confirmed, where it is still to be.
    pub(super) fn awaits(&self) -> Option<&str> {
        match self.last() {
            Some(Record::Verified { until: Some(until) } | Record::Awaiting { until }) => Some(until),
            _ => None,
        }
    }

    /// Why it was put back, or by what it was confirmed, where that was written down.
    pub(super) fn reason(&self) -> Option<&str> {
        self.records.iter().rev().find_map(|record| match record {
            Record::Undoing { why: Some(text) } | Record::Confirmed { by: text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// The files that were left as they are, for they were none of the switch's versions.
    pub(super) fn left(&self) -> &[PathBuf] {
        match self.last() {
            Some(Record::RolledBack { left } | Record::Undone { left }) => left,
            _ => &[],
        }
    }

    /// Whether an undo was begun and not ended.
    pub(super) fn is_undoing(&self) -> bool {
        matches!(self.last(), Some(Record::Undoing { .. }))
    }

    /// The last stage whose files may be in place.
    pub(super) fn furthest(&self) -> Option<usize> {
        self.records
            .iter()
            .filter_map(|record| if let Record::Writing { stage } = record { Some(*stage) } else { None })
            .max()
    }

    /// The stages whose reloads may have happened.
    pub(super) fn reloaded(&self) -> BTreeSet<usize> {
        self.records
            .iter()
            .filter_map(|record| if let Record::Reloading { stage } = record { Some(*stage) } else { None })
            .collect()
    }
}

/// A journal that is locked by us.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: OwnedFd,
    history: History,
}

impl Journal {
    /// A new one.
    pub(super) fn new(path: PathBuf, file: OwnedFd) -> Self {
        Journal { path, file, history: History::default() }
    }

    /// One that was read; what is torn at its end is cut off.
    pub(super) fn resume(
        path: PathBuf,
        file: OwnedFd,
        read: Read,
    ) -> Result<(Self, Begun), TransactionError> {
        system::truncate(&file, read.length).map_err(at(&path, "cut the torn line off"))?;
        seek(&file, SeekFrom::End(0)).map_err(|error| at(&path, "read it")(error.into()))?;
        Ok((Journal { path, file, history: read.history }, read.begun))
    }

    /// Writes the first line, and keeps room for those that end the transaction.
    pub(super) fn begin(&mut self, begun: &Begun) -> Result<(), TransactionError> {
        let record = Record::Begun(Box::new(begun.clone()));
        let length = self.write(&record)?;
        system::reserve(&self.file, length + RESERVE).map_err(at(&self.path, "reserve room"))
    }

    /// Writes a line, and waits until it is on the disk.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), TransactionError> {
        self.write(record)?;
        self.history.records.push(record.clone());
        Ok(())
    }

    /// What was written so far.
    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// The last record.
    pub(super) fn last(&self) -> Option<&Record> {
        self.history.last()
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self, record: &Record) -> Result<u64, TransactionError> {
        let failed = at(&self.path, "write the journal");
        let mut line = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        // What a write that failed left half-done must not stand before a whole line.
        let end = seek(&self.file, SeekFrom::Current(0)).map_err(|error| failed(error.into()))?;
        let written = system::write(&self.file, &line).and_then(|()| system::sync(&self.file));
        if let Err(error) = written {
            let _ = system::truncate(&self.file, end);
            let _ = seek(&self.file, SeekFrom::Start(end));
            return Err(failed(error));
        }
        Ok(end + line.len() as u64)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // As with a directory: closing alone would leave it to a child that is just being started.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}
