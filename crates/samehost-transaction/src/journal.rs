//! Journal of one transaction: a header, and one record before each step, as JSON lines, each on the disk before the
//! action that it announces. An incomplete last line, from a crash, counts as not written. Contains hashes, never
//! content.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, SeekFrom, flock, seek};
use serde::{Deserialize, Serialize};

use crate::error::{TransactionError, at};
use crate::intent::{Reload, Step};
use crate::metadata::{Permissions, Times};
use crate::state::State;
use crate::system;
use crate::version::Digest;

/// Version of the journal's layout; in 2 a switch can await its confirmation, and everything of version 1
/// means the same. A switch of today is undone by a version of next year, so every later version reads
/// all earlier layouts, and test data keeps journals of each. What only a later version can have written
/// is distinguished from damage. Refusing everything when one journal cannot be read was rejected: one
/// damaged file would block every undo.
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
    pub(crate) reloads: Vec<Vec<Reload>>,
    pub(crate) files: BTreeMap<PathBuf, SavedMetadata>,
    /// Directories that the switch creates, outermost first.
    pub(crate) directories: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedMetadata {
    pub(crate) permissions: Permissions,
    /// `None` if the switch creates the file.
    pub(crate) times: Option<Times>,
}

impl JournalHeader {
    /// The version of a file before the switch; `None` if it makes it.
    pub(crate) fn original(&self, path: &Path) -> Option<&Digest> {
        self.steps.iter().find(|step| step.path == path)?.before.as_ref()
    }

    /// The version of a file after the switch; `None` if it removes it.
    pub(crate) fn last(&self, path: &Path) -> Option<&Digest> {
        self.steps.iter().rfind(|step| step.path == path)?.after.as_ref()
    }

    pub(crate) fn is_first(&self, step: &Step) -> bool {
        let first = self.steps.iter().find(|other| other.path == step.path);
        first.map(|first| first.number) == Some(step.number)
    }

    /// Whether, during a rollback, a file is as this step or an earlier one found it.
    pub(crate) fn is_back(&self, step: &Step, is: impl Fn(Option<&Digest>) -> bool) -> bool {
        if is(step.after.as_ref()) {
            return false;
        }
        for other in &self.steps {
            if other.path == step.path && other.number <= step.number && is(other.before.as_ref()) {
                return true;
            }
        }
        false
    }

    /// The steps of other files in the stages before a step's.
    pub(crate) fn before(&self, step: &Step) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |other| other.stage < step.stage && other.path != step.path)
    }

    /// Paths in whose directories something changes.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Path> {
        self.steps.iter().map(|step| &step.path).chain(&self.directories).map(PathBuf::as_path)
    }

    /// Whether the rest of the program can rely on it: hashes are hashes and no paths, each file is absolute and has its
    /// metadata, and each stage has its reloads. A journal that was damaged may be sound JSON all the same.
    pub(crate) fn is_sound(&self) -> bool {
        for step in &self.steps {
            for digest in [&step.before, &step.after].into_iter().flatten() {
                if !digest.is_sound() {
                    return false;
                }
            }
            let is_known = self.files.contains_key(&step.path) && step.stage < self.reloads.len();
            if !step.path.is_absolute() || !is_known {
                return false;
            }
        }
        true
    }
}

/// One line of a journal. The words of these records are an interface.
///
/// `postrm purge` of the Debian package reads the last line of each journal, as the program itself is
/// gone by then. After `undone` and `rolled_back` with nothing left a switch never changes again, and its
/// backups go; all others stay, because they are the only way back. A list that the program writes in
/// `prerm` was rejected: it would be out of date where a copy in another place undid a switch meanwhile
/// (docs/decisions/0098).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Begun(Box<JournalHeader>),
    /// From here on files of the stage may be in place.
    Writing {
        stage: usize,
    },
    /// From here on reloads of the stage may have happened.
    Reloading {
        stage: usize,
    },
    /// Everything was found to serve; with the deadline if it is to be confirmed (RFC 3339, UTC). It decides what becomes
    /// of the switch after a crash.
    Verified {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<String>,
    },
    /// In force, and put back unless it is confirmed by then.
    Awaiting {
        until: String,
    },
    Confirmed {
        by: String,
    },
    Committed,
    /// Will be put back, whatever came before.
    RollingBack,
    /// Ended: put back, except for files that somebody else had changed.
    RolledBack {
        left: Vec<PathBuf>,
    },
    /// Will be put back after it was committed; with the reason if nobody asked for it.
    Undoing {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Ended: put back, except for files that somebody else had changed.
    Undone {
        left: Vec<PathBuf>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) records: Vec<Record>,
}

impl Record {
    /// The state of a switch on which nobody works, by the last record of its journal.
    pub(crate) fn state_after(last: Option<&Record>) -> State {
        match last {
            Some(Record::Committed | Record::Confirmed { .. }) => State::Committed,
            Some(Record::Awaiting { .. }) => State::Awaiting,
            Some(Record::RolledBack { .. }) => State::RolledBack,
            Some(Record::Undone { .. }) => State::Undone,
            _ => State::Unfinished,
        }
    }

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
    pub(crate) fn last(&self) -> Option<&Record> {
        self.records.last()
    }

    /// Whether a crash is completed rather than put back.
    pub(crate) fn is_verified(&self) -> bool {
        matches!(self.last(), Some(Record::Verified { .. }))
    }

    pub(crate) fn awaits(&self) -> Option<&str> {
        match self.last() {
            Some(Record::Verified { until: Some(until) } | Record::Awaiting { until }) => Some(until),
            _ => None,
        }
    }

    /// The record that ends a switch which was verified.
    pub(crate) fn ending(&self) -> Record {
        match self.awaits() {
            Some(until) => Record::Awaiting { until: until.to_owned() },
            None => Record::Committed,
        }
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        for record in self.records.iter().rev() {
            if let Record::Undoing { why: Some(text) } | Record::Confirmed { by: text } = record {
                return Some(text);
            }
        }
        None
    }

    /// Files that were left as they are because they were not versions of the switch.
    pub(crate) fn left(&self) -> &[PathBuf] {
        match self.last() {
            Some(Record::RolledBack { left } | Record::Undone { left }) => left,
            _ => &[],
        }
    }

    pub(crate) fn is_undoing(&self) -> bool {
        matches!(self.last(), Some(Record::Undoing { .. }))
    }

    /// The last stage whose files may be in place.
    pub(crate) fn furthest(&self) -> Option<usize> {
        let mut furthest = None;
        for record in &self.records {
            if let Record::Writing { stage } = record {
                furthest = furthest.max(Some(*stage));
            }
        }
        furthest
    }

    /// The stages whose reloads may have happened.
    pub(crate) fn reloaded(&self) -> BTreeSet<usize> {
        let mut reloaded = BTreeSet::new();
        for record in &self.records {
            if let Record::Reloading { stage } = record {
                reloaded.insert(*stage);
            }
        }
        reloaded
    }
}

/// Space reserved in the journal for the records that end a transaction, in bytes.
///
/// A switch must be undone exactly on a full disk too. Its files are prepared beforehand and only renamed
/// on the way back, and the journal's last lines have their room here. Where a file system cannot
/// reserve, the line may fail, and then `recover` finds the files by their hashes.
const RESERVE: u64 = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: OwnedFd,
    history: History,
}

impl Journal {
    pub(crate) fn new(path: PathBuf, file: OwnedFd) -> Self {
        Journal { path, file, history: History::default() }
    }

    /// Opens a journal that was read, and truncates an incomplete last line.
    pub(crate) fn resume(
        path: PathBuf,
        file: OwnedFd,
        read: Read,
    ) -> Result<(Self, JournalHeader), TransactionError> {
        system::truncate(&file, read.length).map_err(at(&path, "cut the torn line off"))?;
        seek(&file, SeekFrom::End(0)).map_err(|error| at(&path, "read it")(error.into()))?;
        Ok((Journal { path, file, history: read.history }, read.begun))
    }

    /// Writes the first line, and reserves space for the records that end the transaction.
    pub(crate) fn begin(&mut self, begun: &JournalHeader) -> Result<(), TransactionError> {
        let record = Record::Begun(Box::new(begun.clone()));
        let length = self.write(&record)?;
        system::reserve(&self.file, length + RESERVE).map_err(at(&self.path, "reserve room"))
    }

    /// Writes a line, and waits until it is on the disk.
    pub(crate) fn append(&mut self, record: &Record) -> Result<(), TransactionError> {
        self.write(record)?;
        self.history.records.push(record.clone());
        Ok(())
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn last(&self) -> Option<&Record> {
        self.history.last()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self, record: &Record) -> Result<u64, TransactionError> {
        let failed = at(&self.path, "write the journal");
        let mut line = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        // Remains of a failed write must not precede a complete line.
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
        // Unlocks explicitly, as with a directory: a child that is being started may have inherited the descriptor.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) begun: JournalHeader,
    pub(crate) history: History,
    /// Length of its complete lines, in bytes.
    pub(crate) length: u64,
}

/// Reads a journal of this version or an earlier one; `None` if its first line is incomplete, because then nothing was
/// touched. An incomplete last line counts as not written. Everything else that a crash cannot leave is an error: what
/// remains to be done is unknown then, and a guess would overwrite files.
///
/// # Errors
/// [`TransactionError::Newer`] for what only a later version writes, else [`TransactionError::Damaged`].
pub(crate) fn read(path: &Path, id: &str, bytes: &[u8]) -> Result<Option<Read>, TransactionError> {
    let damaged = |reason: String| TransactionError::Damaged { path: path.to_owned(), reason };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut records = Vec::new();
    let mut length = 0;
    for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
        if let Some(what) = of_later(line) {
            return Err(TransactionError::Newer { path: path.to_owned(), what });
        }
        match serde_json::from_slice::<Record>(line) {
            Ok(record) => records.push(record),
            // A complete line was written as it is; a crash only leaves incomplete ones.
            Err(_) if length + line.len() == whole && !is_json(line) => break,
            Err(error) => {
                return Err(damaged(format!("line {} is not a journal record ({error})", records.len() + 1)));
            }
        }
        length += line.len();
    }
    let mut records = records.into_iter();
    match records.next() {
        None if is_torn(bytes) => Ok(None),
        None => Err(damaged("does not begin as a journal does".into())),
        Some(Record::Begun(begun)) if begun.id == id && begun.is_sound() => {
            let history = History { records: records.collect() };
            Ok(Some(Read { begun: *begun, history, length: length as u64 }))
        }
        Some(_) => Err(damaged("does not begin as a journal does".into())),
    }
}

/// Something in a complete line that only a later version writes.
fn of_later(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        record: String,
        version: Option<u64>,
    }
    const KNOWN: &[&str] = &[
        "begun", "writing", "reloading", "verified", "awaiting", "confirmed", "committed", "rolling_back",
        "rolled_back", "undoing", "undone",
    ];
    let head: Head = serde_json::from_slice(line).ok()?;
    match head.version {
        Some(version) if head.record == "begun" && version > u64::from(VERSION) => {
            Some(format!("layout {version}"))
        }
        _ if !KNOWN.contains(&head.record.as_str()) => Some(format!("a record `{}`", head.record)),
        _ => None,
    }
}

/// Whether a crash may have left this of the first line: the beginning of the line, then the bytes that a file system
/// pads with.
fn is_torn(bytes: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"{\"record\":\"begun\",";
    let written = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (written, rest) = bytes.split_at(written);
    let length = written.len().min(BEGINNING.len());
    // A terminated line is not incomplete: it was damaged later, and the switch may have touched files.
    !written.contains(&b'\n')
        && written[..length] == BEGINNING[..length]
        && rest.iter().all(|byte| matches!(byte, 0 | b'\n'))
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

/// What can be reported of a journal that cannot be read: every path in it may be one of its files.
pub(crate) fn salvage(bytes: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(bytes);
    let mut files: Vec<PathBuf> = Vec::new();
    for (at, _) in text.match_indices("\"/") {
        // A JSON string ends at the first quote that is not escaped.
        let mut ended = serde_json::Deserializer::from_str(&text[at..]).into_iter::<String>();
        let Some(Ok(path)) = ended.next() else { continue };
        let path = PathBuf::from(path);
        let is_key = text[at + ended.byte_offset()..].starts_with(':');
        let is_file = is_key || text[..at].ends_with("\"path\":");
        if is_file && !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_known_to_its_own_version() {
        let left = Vec::new;
        let (until, by) = (String::new(), String::new());
        for record in [
            Record::Writing { stage: 0 },
            Record::Reloading { stage: 0 },
            Record::Verified { until: None },
            Record::Awaiting { until },
            Record::Confirmed { by },
            Record::Committed,
            Record::RollingBack,
            Record::RolledBack { left: left() },
            Record::Undoing { why: None },
            Record::Undone { left: left() },
        ] {
            let line = serde_json::to_vec(&record).unwrap();
            assert_eq!(of_later(&line), None, "{record:?}");
        }
    }

    #[test]
    fn what_is_later_is_told_from_what_is_damaged() {
        assert_eq!(of_later(b"{\"record\":\"begun\",\"version\":7}\n").as_deref(), Some("layout 7"));
        assert_eq!(of_later(b"{\"record\":\"paused\"}\n").as_deref(), Some("a record `paused`"));
        assert_eq!(of_later(b"{\"record\":\"com"), None);
        assert_eq!(of_later(b"\0\0\0\n"), None);
    }

    #[test]
    fn only_the_beginning_of_a_journal_is_nothing() {
        for nothing in
            [&b""[..], b"{\"rec", b"{\"record\":\"begun\",\"version\":2,\"id\":\"x", b"{\"re\0\0\0", b"\0\0"]
        {
            assert!(matches!(read(Path::new("/j"), "id", nothing), Ok(None)), "{nothing:?}");
        }
        for damaged in [&[0xff; 40][..], b"{\"other", b"x\n", b"{\"re\0x"] {
            assert!(
                matches!(read(Path::new("/j"), "id", damaged), Err(TransactionError::Damaged { .. })),
                "{damaged:?}"
            );
        }
    }

    #[test]
    fn paths_of_a_broken_journal_are_found() {
        let text = r#"{"rec?d":"begun","steps":[{"path":"/a/\u00e9 \"b"},{"path":"/c"}],"command":["/no"],"files":{"/c":1"#;
        assert_eq!(salvage(text.as_bytes()), [PathBuf::from("/a/\u{e9} \"b"), "/c".into()]);
        assert!(salvage(b"\0\xff\"/").is_empty());
    }

    /// Journals of the first version, interrupted at every point.
    fn recorded() -> Vec<Vec<u8>> {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journals-0.1");
        let stories = std::fs::read_dir(kept).unwrap().map(|story| story.unwrap().path().join("switches"));
        // One file there describes how the others were made.
        let switches = stories.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
        let journals: Vec<Vec<u8>> =
            switches.map(|switch| std::fs::read(switch.unwrap().path().join("journal")).unwrap()).collect();
        // This one was interrupted before it wrote anything.
        journals.into_iter().filter(|journal| !journal.is_empty()).collect()
    }

    fn id_of(journal: &[u8]) -> String {
        let first = journal.split(|byte| *byte == b'\n').next().unwrap();
        let begun: serde_json::Value = serde_json::from_slice(first).unwrap();
        begun["id"].as_str().unwrap().to_owned()
    }

    proptest::proptest! {
        #[test]
        fn bent_journals_are_read_soundly_or_not_at_all(bytes in samehost_testing::bent(recorded())) {
            for id in recorded().iter().map(|journal| id_of(journal)) {
                let Ok(Some(read)) = read(Path::new("/j"), &id, &bytes) else { continue };
                proptest::prop_assert!(read.begun.is_sound() && read.begun.id == id);
                proptest::prop_assert!(read.length <= bytes.len() as u64);
            }
            proptest::prop_assert!(salvage(&bytes).iter().all(|path| path.is_absolute()));
        }
    }
}
