//! A directory, opened without following symbolic links.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Dir, FlockOperation, Mode, OFlags, flock, openat};

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
}

impl Directory {
    /// Opens an absolute path. A symbolic link anywhere in it is an error.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parts: Vec<&OsStr> = path
            .components()
            .filter(|component| *component != Component::RootDir)
            .map(Component::as_os_str)
            .collect();
        // Only the last one is read.
        let mut access = if parts.is_empty() { OFlags::RDONLY } else { OFlags::PATH };
        let mut descriptor = openat(CWD, "/", flags | access, Mode::empty())?;
        for (index, part) in parts.iter().enumerate() {
            if index + 1 == parts.len() {
                access = OFlags::RDONLY;
            }
            descriptor = openat(&descriptor, *part, flags | access, Mode::empty())?;
        }
        Ok(Directory { descriptor })
    }

    /// To work in it.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Names in the directory that a switch prepared, of those with this prefix.
    pub(crate) fn names(&self, beginning: &str) -> io::Result<Vec<OsString>> {
        use std::os::unix::ffi::OsStrExt;
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(beginning.as_bytes()) {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Unlocks explicitly: a child that another thread is starting may have inherited the descriptor.
        let _ = flock(&self.descriptor, FlockOperation::Unlock);
    }
}
