//! The disk for one reading, bounded as the real one is: files can include each other without an end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use samehost_edit::Files;
use samehost_system::open::Budget;

/// The most files that one reading opens.
const MOST_FILES: usize = 20_000;

#[derive(Default)]
pub(crate) struct Disk {
    budget: Budget,
    opened: AtomicUsize,
}

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if self.opened.fetch_add(1, Ordering::Relaxed) >= MOST_FILES {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.budget.read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
        let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        Ok(entries)
    }

    fn real(&self, path: &Path) -> PathBuf {
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }
}
