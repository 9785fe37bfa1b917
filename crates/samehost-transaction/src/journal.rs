//! Journal of one transaction: JSON lines, each on the disk before the action that it announces. An incomplete last
//! line, from a crash, counts as not written. Contains hashes, never content.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, SeekFrom, flock, seek};

use crate::error::{TransactionError, at};
use crate::reading::Read;
use crate::record::{History, JournalHeader, Record};
use crate::system;

/// Space reserved for the records that end a transaction, in bytes.
const RESERVE: u64 = 16 * 1024;

/// A journal that is locked by us.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: OwnedFd,
    history: History,
}

impl Journal {
    /// A new one.
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
        self.history.push(record.clone());
        Ok(())
    }

    /// What was written so far.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The last record.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.history.last()
    }

    /// Where it is.
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
