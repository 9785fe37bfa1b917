//! The system calls that write, each between two points of [`fault`](crate::fault). No other file of this crate writes
//! to the disk.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Timestamps, Uid, XattrFlags, fallocate, fchmod,
    fchown, fremovexattr, fsetxattr, fsync, ftruncate, futimens, mkdirat, openat, renameat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;

use crate::fault::point;

/// Size of one write, in bytes.
const PIECE: usize = 64 * 1024;

fn between<T>(name: &'static str, call: impl FnOnce() -> rustix::io::Result<T>) -> io::Result<T> {
    point(name)?;
    let value = call()?;
    point(name)?;
    Ok(value)
}

/// Creates a file that only its owner may read. An existing file is an error.
pub(crate) fn create(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    between("create", || openat(directory, name, flags, Mode::from_raw_mode(0o600)))
}

/// Opens a lock file, and creates it if it is missing.
pub(crate) fn open_lock(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    between("create", || openat(directory, name, flags, Mode::from_raw_mode(0o600)))
}

/// Appends all of these bytes.
pub(crate) fn write(file: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        let mut rest = piece;
        while !rest.is_empty() {
            let written = match between("write", || rustix::io::write(file.as_fd(), rest)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                other => other?,
            };
            rest = &rest[written..];
        }
    }
    Ok(())
}

/// Makes it last.
pub(crate) fn sync(file: impl AsFd) -> io::Result<()> {
    between("fsync", || fsync(file.as_fd()))
}

/// Renames a file over another, which is gone then.
/// The prepared file is on the disk before, and the caller syncs the directory after it, so that a power
/// cut at any moment leaves the old file or the new one and never a part. A test checks that every rename
/// stands between two `fsync`s. Before and after each call of this file is a fault point, in debug
/// builds, at which tests kill the process or let the call fail (docs/design.md §8).
pub(crate) fn replace(directory: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    between("rename", || renameat(directory, from, directory, to))
}

/// Renames a file to a name that is not taken. If the file system cannot guarantee that (NFS), the check just before
/// has to suffice.
pub(crate) fn place(directory: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    between("rename", || match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => renameat(directory, from, directory, to),
        other => other,
    })
}

/// Removes a file. A missing file is not an error.
pub(crate) fn remove(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match between("unlink", || unlinkat(directory, name, AtFlags::empty())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes an empty directory. One that is missing or not empty stays as it is.
pub(crate) fn remove_directory(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    between("rmdir", || match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::NOTDIR) => Ok(()),
        other => other,
    })
}

/// Creates a directory that only its owner may enter.
pub(crate) fn make_directory(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    between("mkdir", || mkdirat(directory, name, Mode::from_raw_mode(0o700)))
}

/// Sets the mode, all twelve bits.
pub(crate) fn change_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    between("chmod", || fchmod(file.as_fd(), Mode::from_raw_mode(mode)))
}

/// Sets owner and group, where given.
pub(crate) fn change_owner(file: impl AsFd, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    between("chown", || fchown(file.as_fd(), user.map(Uid::from_raw), group.map(Gid::from_raw)))
}

/// Sets an extended attribute.
pub(crate) fn set_attribute(file: impl AsFd, name: &str, value: &[u8]) -> io::Result<()> {
    between("setxattr", || fsetxattr(file.as_fd(), name, value, XattrFlags::empty()))
}

/// Removes an extended attribute.
pub(crate) fn remove_attribute(file: impl AsFd, name: &str) -> io::Result<()> {
    between("removexattr", || fremovexattr(file.as_fd(), name))
}

/// Sets the times of last access and of last change.
pub(crate) fn set_times(file: impl AsFd, times: &Timestamps) -> io::Result<()> {
    between("utimens", || futimens(file.as_fd(), times))
}

/// Cuts a file off.
pub(crate) fn truncate(file: impl AsFd, length: u64) -> io::Result<()> {
    between("truncate", || ftruncate(file.as_fd(), length))
}

/// Reserves space behind a file's end, if the file system supports it.
pub(crate) fn reserve(file: impl AsFd, length: u64) -> io::Result<()> {
    match between("fallocate", || fallocate(file.as_fd(), FallocateFlags::KEEP_SIZE, 0, length)) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::NOSYS)) => Ok(()),
        other => other,
    }
}
