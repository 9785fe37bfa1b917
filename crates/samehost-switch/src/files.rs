//! Files as an editor sees them: the disk, or the disk with some files as they would be.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

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

/// The disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
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
