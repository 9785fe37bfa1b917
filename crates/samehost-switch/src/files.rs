//! Files as an editor sees them: the disk, or the disk with some files as they would be.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use samehost_system::open::Budget;

/// The most names in directories that one reading looks at.
const MOST_NAMES: usize = 100_000;
/// The most files that one reading opens: files can include each other without an end.
const MOST_FILES: usize = 20_000;

/// Where an editor reads.
pub trait Files {
    /// The bytes of a file; symbolic links are followed.
    ///
    /// # Errors
    /// As std's.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The entries of a directory, by full path, sorted; for includes that name many.
    ///
    /// # Errors
    /// As std's.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    /// The path without symbolic links, as programs know their own files (`__DIR__` in PHP); as given where that cannot
    /// be found.
    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// The disk, for one reading: each file is a regular one of bounded length, and so are all of them together.
#[derive(Debug, Default)]
pub struct Disk {
    budget: Budget,
    listed: AtomicUsize,
    opened: AtomicUsize,
}

/// One more of something that is bounded.
fn one_more(count: &AtomicUsize, most: usize, what: &str) -> io::Result<()> {
    if count.fetch_add(1, Ordering::Relaxed) < most {
        return Ok(());
    }
    let text = format!("more than {most} {what}, too many for a configuration");
    Err(io::Error::new(io::ErrorKind::QuotaExceeded, text))
}

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        one_more(&self.opened, MOST_FILES, "files")?;
        self.budget.read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            one_more(&self.listed, MOST_NAMES, "names in directories")?;
            entries.push(entry?.path());
        }
        entries.sort();
        Ok(entries)
    }

    fn real(&self, path: &Path) -> PathBuf {
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }
}

/// Files as they would be: those given, and what lies below for all others.
pub struct Overlay<'a> {
    below: &'a dyn Files,
    changed: BTreeMap<PathBuf, Vec<u8>>,
}

impl<'a> Overlay<'a> {
    /// Lays changed files over others.
    #[must_use]
    pub fn new(below: &'a dyn Files, changed: BTreeMap<PathBuf, Vec<u8>>) -> Self {
        Overlay { below, changed }
    }
}

impl Files for Overlay<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.changed.get(path).map_or_else(|| self.below.read(path), |bytes| Ok(bytes.clone()))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut made: Vec<PathBuf> =
            self.changed.keys().filter(|path| path.parent() == Some(directory)).cloned().collect();
        match self.below.list(directory) {
            Ok(entries) => made.extend(entries),
            Err(error) if made.is_empty() => return Err(error),
            Err(_) => {}
        }
        made.sort();
        made.dedup();
        Ok(made)
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.below.real(path)
    }
}
