//! The system calls that write, each between two points at which tests inject a [`fault`]. No other file of this crate
//! writes to the disk.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Timestamps, Uid, XattrFlags, fallocate, fchmod,
    fchown, fremovexattr, fsetxattr, fsync, ftruncate, futimens, mkdirat, openat, renameat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;

use self::fault::point;

/// Size of one write, in bytes: a fault point is passed in the middle of a larger file.
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

/// Waits until a file, or the names in a directory, are on the disk.
pub(crate) fn sync(file: impl AsFd) -> io::Result<()> {
    between("fsync", || fsync(file.as_fd()))
}

/// Renames a file over another, which is gone then.
///
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

pub(crate) fn make_directory(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    between("mkdir", || mkdirat(directory, name, Mode::from_raw_mode(0o700)))
}

/// Sets the mode, all twelve bits.
pub(crate) fn change_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    between("chmod", || fchmod(file.as_fd(), Mode::from_raw_mode(mode)))
}

pub(crate) fn change_owner(file: impl AsFd, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    between("chown", || fchown(file.as_fd(), user.map(Uid::from_raw), group.map(Gid::from_raw)))
}

pub(crate) fn set_attribute(file: impl AsFd, name: &str, value: &[u8]) -> io::Result<()> {
    between("setxattr", || fsetxattr(file.as_fd(), name, value, XattrFlags::empty()))
}

pub(crate) fn remove_attribute(file: impl AsFd, name: &str) -> io::Result<()> {
    between("removexattr", || fremovexattr(file.as_fd(), name))
}

pub(crate) fn set_times(file: impl AsFd, times: &Timestamps) -> io::Result<()> {
    between("utimens", || futimens(file.as_fd(), times))
}

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

/// Injects faults for tests. Each system call that writes is enclosed by two points, and the N-th point kills the
/// process or fails. Only in builds with debug assertions; elsewhere a point does nothing.
///
/// `SAMEHOST_FAULT` = `kill:N` (SIGKILL), `error:N` (EIO once), `full:N` (ENOSPC once), `broken:N` (EIO from there on),
/// `list` (counts only).
#[doc(hidden)]
pub mod fault {
    #[cfg(not(debug_assertions))]
    #[inline]
    pub(super) fn point(_: &'static str) -> std::io::Result<()> {
        Ok(())
    }

    #[cfg(debug_assertions)]
    pub(super) use armed::point;
    #[cfg(debug_assertions)]
    pub use armed::{disarm, passed};

    #[cfg(debug_assertions)]
    mod armed {
        use std::io;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::sync::{Mutex, OnceLock, PoisonError};

        use rustix::io::Errno;
        use rustix::process::{Signal, getpid, kill_process};

        enum Fault {
            Kill(usize),
            Once(usize, Errno),
            From(usize),
            List,
        }

        static PASSED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
        static DISARMED: AtomicBool = AtomicBool::new(false);

        fn fault() -> Option<&'static Fault> {
            static FAULT: OnceLock<Option<Fault>> = OnceLock::new();
            FAULT
                .get_or_init(|| {
                    let asked = std::env::var("SAMEHOST_FAULT").ok()?;
                    let (kind, number) = asked.split_once(':').unwrap_or((&asked, "0"));
                    let number = number.parse().ok()?;
                    match kind {
                        "kill" => Some(Fault::Kill(number)),
                        "error" => Some(Fault::Once(number, Errno::IO)),
                        "full" => Some(Fault::Once(number, Errno::NOSPC)),
                        "broken" => Some(Fault::From(number)),
                        "list" => Some(Fault::List),
                        _ => None,
                    }
                })
                .as_ref()
        }

        pub(crate) fn point(name: &'static str) -> io::Result<()> {
            let Some(fault) = fault().filter(|_| !DISARMED.load(Ordering::Relaxed)) else { return Ok(()) };
            let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
            passed.push(name);
            match *fault {
                Fault::Kill(number) if passed.len() == number => {
                    kill_process(getpid(), Signal::KILL)?;
                    Err(Errno::INTR.into())
                }
                Fault::Once(number, error) if passed.len() == number => Err(error.into()),
                Fault::From(number) if passed.len() >= number => Err(Errno::IO.into()),
                _ => Ok(()),
            }
        }

        pub fn passed() -> Vec<&'static str> {
            PASSED.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }

        /// No fault from here on.
        pub fn disarm() {
            DISARMED.store(true, Ordering::Relaxed);
        }
    }
}
