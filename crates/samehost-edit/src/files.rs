//! Files as an editor sees them: those of a source, or with some of them replaced by their new content.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where an editor reads. A path may lead to a device, so the implementation limits the length and the type of files.
/// Editors limit how many files a configuration includes.
pub trait Files {
    /// Content of a file; symbolic links are followed.
    ///
    /// # Errors
    /// As std's.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Full paths of a directory's entries, sorted; for includes with patterns.
    ///
    /// # Errors
    /// As std's.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    /// The path without symbolic links, as programs know their own files (`__DIR__` in PHP); unchanged if it cannot be
    /// resolved.
    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// Whether a path exists.
    fn exists(&self, path: &Path) -> bool {
        self.read(path).is_ok() || self.list(path).is_ok()
    }
}

/// Files with new content: the given ones, and an underlying source for all others.
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

    fn exists(&self, path: &Path) -> bool {
        self.changed.contains_key(path) || self.below.exists(path)
    }
}

/// Maximum number of files in one configuration, each counted as often as it is included.
pub(crate) const MOST_FILES: usize = 4096;

/// Limits the number of files that can be read, so that files that include each other come to an end.
pub(crate) struct Bounded<'a> {
    below: &'a dyn Files,
    left: Cell<usize>,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(below: &'a dyn Files) -> Self {
        Bounded { below, left: Cell::new(MOST_FILES) }
    }
}

impl Files for Bounded<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| {
            let text = format!("the files include each other more than {MOST_FILES} times");
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        })?;
        self.left.set(left);
        self.below.read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        self.below.list(directory)
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.below.real(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.below.exists(path)
    }
}

/// Remembers the files that are read.
pub(crate) struct Remembered<'a> {
    below: &'a dyn Files,
    read: RefCell<Vec<PathBuf>>,
}

impl<'a> Remembered<'a> {
    pub(crate) fn new(below: &'a dyn Files) -> Self {
        Remembered { below, read: RefCell::default() }
    }

    /// The files that were read, each once, in the order of the first time.
    pub(crate) fn paths(self) -> Vec<PathBuf> {
        self.read.into_inner()
    }
}

impl Files for Remembered<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = self.below.read(path)?;
        let mut read = self.read.borrow_mut();
        if read.iter().all(|other| other != path) {
            read.push(path.to_owned());
        }
        Ok(text)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        self.below.list(directory)
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.below.real(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.below.exists(path)
    }
}

/// The disk as it is, for tests.
#[cfg(test)]
pub(crate) struct TestDisk;

#[cfg(test)]
impl Files for TestDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut entries =
            std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        Ok(entries)
    }
}
