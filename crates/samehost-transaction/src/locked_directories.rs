//! The directories of the files that a transaction changes. They are opened and locked once and then used by
//! descriptor, so that renames above them do not matter.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, openat};

use crate::directory::Directory;
use crate::error::{TransactionError, at};
use crate::lock::{self, Lock};
use crate::store::Store;
use crate::system;

/// The directories that a transaction holds, by path.
#[derive(Debug, Default)]
pub(crate) struct LockedDirectories {
    open: BTreeMap<PathBuf, Directory>,
    locks: Vec<Lock>,
}

impl LockedDirectories {
    /// Opens and locks the directories of these files; for a directory that does not exist, its nearest existing
    /// parent.
    pub(crate) fn acquire<'a>(
        store: &Store,
        files: impl Iterator<Item = &'a Path>,
    ) -> Result<Self, TransactionError> {
        let mut locked = LockedDirectories::default();
        for file in files {
            let mut directory = file.parent().unwrap_or(Path::new("/"));
            while let Err(error) = locked.hold(store, directory) {
                directory = match (&error, directory.parent()) {
                    (TransactionError::System { source, .. }, Some(parent))
                        if source.kind() == io::ErrorKind::NotFound =>
                    {
                        parent
                    }
                    _ => return Err(error),
                };
            }
        }
        Ok(locked)
    }

    /// Opens and locks one directory, unless it is held already.
    fn hold(&mut self, store: &Store, path: &Path) -> Result<(), TransactionError> {
        if self.open.contains_key(path) {
            return Ok(());
        }
        let directory = Directory::open(path).map_err(at(path, "open the directory"))?;
        let lock = lock::lock(store, path, &directory)?;
        let again = Directory::open(path).map_err(at(path, "open the directory"))?;
        let [before, now] = [&directory, &again]
            .map(|one| fstat(one.descriptor()).map(|stat| (stat.st_dev, stat.st_ino)).ok());
        if before != now {
            return Err(TransactionError::Changed {
                path: path.to_owned(),
                backup: None,
                hint: "nothing was changed: try again".into(),
            });
        }
        self.locks.push(lock);
        self.open.insert(path.to_owned(), directory);
        Ok(())
    }

    /// The directory of a file, if it exists.
    pub(crate) fn of(&self, file: &Path) -> Option<&Directory> {
        self.open.get(file.parent()?)
    }

    /// One of the held directories.
    pub(crate) fn get(&self, path: &Path) -> Option<&Directory> {
        self.open.get(path)
    }

    /// Creates a directory with its parent's owner, group and mode, and holds it.
    pub(crate) fn make(&mut self, store: &Store, path: &Path) -> Result<(), TransactionError> {
        if let (Some(parent), Some(name)) = (self.of(path), path.file_name()) {
            let make = || -> io::Result<()> {
                let like = fstat(parent.descriptor())?;
                system::make_directory(parent.descriptor(), name)?;
                let made = openat(
                    parent.descriptor(),
                    name,
                    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                let now = fstat(&made)?;
                // Makes sure that this is the directory just created, and not one that another user put in its place.
                if now.st_uid != rustix::process::geteuid().as_raw() || now.st_mode & 0o777 != 0o700 {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid) {
                    system::change_owner(&made, Some(like.st_uid), Some(like.st_gid))?;
                }
                system::change_mode(&made, like.st_mode & 0o777)?;
                system::sync(parent.descriptor())
            };
            make().map_err(at(path, "make the directory"))?;
        }
        self.hold(store, path)
    }
}
