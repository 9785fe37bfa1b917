//! Directories are opened without following symbolic links. In the path that a user names, these are followed
//! deliberately to the file that is meant, or refused.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use rustix::fs::{CWD, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, readlinkat};
use rustix::io::Errno;

use crate::error::{TransactionError, at, refused};

#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
}

impl Directory {
    /// Opens an absolute path, component by component; a symbolic link anywhere in it is an error.
    ///
    /// Root edits files below directories that a site's user can rename. From here on only descriptors
    /// count, so renaming what is above an opened directory changes nothing. Using paths throughout was
    /// rejected: the user could move something else under root's hands. Links were resolved before, on
    /// purpose, where root, the current user or the target's owner made them.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut parts: Vec<&OsStr> = Vec::new();
        for component in path.components() {
            if component != Component::RootDir {
                parts.push(component.as_os_str());
            }
        }
        // Only the last one is read; for those above it the right to search is enough.
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

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The names in the directory that begin with this, `.` and `..` among them where it is empty or a dot.
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

/// Maximum number of links, as in the kernel.
const LINKS: usize = 40;

/// The file that a path means: absolute, without symbolic links. A link is followed if its maker is root, this user, or
/// the owner of its target; anybody else could direct a switch by root at somebody else's file. For a file that does
/// not exist, the existing directories are resolved.
///
/// # Errors
/// [`TransactionError::Refused`] for a link by someone else, a loop, or a link that leads nowhere.
pub fn resolve(path: &Path) -> Result<PathBuf, TransactionError> {
    let absolute = std::path::absolute(path).map_err(at(path, "resolve the path"))?;
    let mut ahead: VecDeque<OsString> = parts(&absolute);
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    let mut absent = false;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let here = resolved.join(&part);
        let Some(target) = link(&here, &resolved, &mut absent)? else {
            if absent && ahead.iter().any(|part| part == "..") {
                return Err(refused(
                    &here,
                    "is not there, and the path leads through it",
                    "name the file itself",
                ));
            }
            resolved = here;
            continue;
        };
        links += 1;
        if links > LINKS {
            return Err(refused(path, "its symbolic links go round in a circle", "name the file itself"));
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        for part in parts(&target).into_iter().rev() {
            ahead.push_front(part);
        }
    }
    Ok(resolved)
}

/// Target of a path that is a link to follow. Owner and target are read from one descriptor, so that they belong
/// together even if the name changes meanwhile.
fn link(here: &Path, directory: &Path, absent: &mut bool) -> Result<Option<PathBuf>, TransactionError> {
    let failed = at(here, "look at it");
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat(CWD, here, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            *absent = true;
            return Ok(None);
        }
        other => other.map_err(|error| failed(error.into()))?,
    };
    let stat = fstat(&found).map_err(|error| failed(error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    let target = readlinkat(&found, "", Vec::new()).map_err(|error| failed(error.into()))?;
    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
    if stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(Some(target));
    }
    let owner = match fs::metadata(directory.join(&target)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refused(here, "is a symbolic link that leads nowhere", "name the file itself"));
        }
        other => other.map_err(at(here, "look at what the link points to"))?.uid(),
    };
    if owner == stat.st_uid {
        return Ok(Some(target));
    }
    let reason =
        format!("is a symbolic link by user {} to what is user {owner}'s, and not followed", stat.st_uid);
    Err(refused(here, &reason, "if this is meant, name the file that it points to"))
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let mut parts = VecDeque::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push_back(part.to_owned()),
            Component::ParentDir => parts.push_back("..".into()),
            _ => {}
        }
    }
    parts
}
