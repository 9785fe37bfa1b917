//! Opens files whose names other users may have chosen: in a configuration, a command line, or a directory
//! that others can write. A name may lead to a pipe that never ends, a terminal, a device that acts on being
//! opened (a watchdog reboots the machine), or a file of a terabyte. So a name is first resolved without
//! opening anything (`O_PATH`); then only a regular file is opened, and reads are limited.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use crate::refusal::{Asked, Refusal};

/// Longest file that is read as a configuration, in bytes; address lists of nginx have megabytes.
pub const LONGEST: u64 = 16 << 20;
/// Most bytes that are read for one request, all files together.
pub const MOST: u64 = 64 << 20;

#[derive(Debug)]
pub struct Budget {
    /// Bytes that may still be read, over several files.
    left: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { left: AtomicU64::new(MOST) }
    }
}

impl Budget {
    /// Reads a file as [`read`] does, and subtracts its length from the budget.
    ///
    /// # Errors
    /// As [`read`]; `FileTooLarge` also when all files together are too long.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read_opened(&regular(path)?)
    }

    /// Reads a file that [`regular`] opened.
    ///
    /// # Errors
    /// As [`Budget::read`].
    pub fn read_opened(&self, file: &File) -> io::Result<Vec<u8>> {
        let bytes = bytes(file, LONGEST.min(self.left.load(Ordering::Relaxed)))?;
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(bytes.len() as u64))
        });
        Ok(bytes)
    }
}

/// Opens a regular file for reading. Follows symbolic links, except those of /proc that lead to open files.
/// The name is resolved without being opened (`O_PATH`), and only a regular file is opened then. Opening
/// first and checking afterwards was rejected: a pipe would wait, and some devices act on being opened
/// (docs/decisions/0076).
///
/// # Errors
/// `InvalidInput` when it is not a regular file.
pub fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).map_err(named)?;
    reopen(&found)
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`regular`]; `FileTooLarge` when it is longer, whatever length it claims.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    bytes(&regular(path)?, limit)
}

/// The text of a file of at most [`LONGEST`] bytes, read as [`read`] does; empty where it cannot be read.
pub(crate) fn text(path: &str) -> String {
    let bytes = read(Path::new(path), LONGEST).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a file below the root directory of a process: absolute paths and symbolic links are resolved inside
/// it, and cannot lead out.
///
/// # Errors
/// As [`read`]; also when the process has ended.
pub fn read_in_root(pid: u32, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    bytes(&regular_in_root(pid, path)?, limit)
}

/// As [`regular`], below the root directory of a process.
///
/// # Errors
/// As [`regular`]; also when the process has ended.
pub fn regular_in_root(pid: u32, path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, format!("/proc/{pid}/root"), flags | OFlags::DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    reopen(&openat2(root, path, flags, Mode::empty(), resolve).map_err(named)?)
}

/// Reads at most `limit` bytes of a file of /proc: a process can make its command line as long as its memory.
pub fn proc_file(path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut found)?;
    Ok(found)
}

/// Opens the file that a path led to if it is a regular file. Uses its descriptor, so it does not matter what
/// the path leads to now.
fn reopen(found: &OwnedFd) -> io::Result<File> {
    if FileType::from_raw_mode(fstat(found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

/// Reads an open file of at most `limit` bytes.
///
/// # Errors
/// `FileTooLarge` when it is longer, whatever length it claims.
pub fn bytes(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    if file.metadata()?.len() > limit {
        return Err(too_long(limit));
    }
    let mut found = Vec::new();
    // One byte more than allowed: a file can grow, and a file of a special file system may claim length 0.
    file.take(limit.saturating_add(1)).read_to_end(&mut found)?;
    if found.len() as u64 > limit { Err(too_long(limit)) } else { Ok(found) }
}

/// An error of openat2(2). Where the call itself is missing, its number alone would say nothing of the reason.
fn named(errno: Errno) -> io::Error {
    match errno {
        Errno::NOSYS => io::Error::new(io::ErrorKind::Unsupported, Refusal::of(Asked::OpenFile, errno)),
        _ => errno.into(),
    }
}

fn too_long(limit: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("this file is longer than {limit} bytes, too long for a configuration"),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::mkfifoat;

    use super::*;

    #[test]
    fn only_regular_files_of_bounded_length_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("a"), "text").unwrap();
        symlink("a", path("link")).unwrap();
        assert_eq!(read(&path("link"), 4).unwrap(), b"text");
        assert_eq!(read(&path("a"), 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        mkfifoat(CWD, path("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        for other in [path("pipe"), "/dev/zero".into(), "/dev/watchdog".into(), "/".into()] {
            let error = read(&other, 10).unwrap_err();
            let is_absent = error.kind() == io::ErrorKind::NotFound;
            assert!(is_absent || error.kind() == io::ErrorKind::InvalidInput, "{}: {error}", other.display());
        }
        let sparse = File::create(path("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert_eq!(read(&path("sparse"), LONGEST).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn all_files_together_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "text").unwrap();
        let budget = Budget { left: AtomicU64::new(6) };
        assert_eq!(budget.read(&path).unwrap(), b"text");
        assert_eq!(budget.read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn links_below_a_root_stay_below_it() {
        let own = std::process::id();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read_in_root(own, &path, 10).unwrap(), b"text");
        assert!(read_in_root(own, Path::new("/proc/self/fd/0"), 10).is_err(), "no open file of a process");
        assert!(read_in_root(u32::MAX, &path, 10).is_err());
    }
}
