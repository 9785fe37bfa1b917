//! A lock file that exists while it is held and decides between two starting servers. It is removed without a
//! moment in which two could hold it. Its name is specific to samehost, because MySQL and PostgreSQL use
//! `PATH.lock`. A foreign file with that name is neither changed nor removed. Independent of sockets.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, ftruncate, lstat, open, unlink,
};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use rustix::process::geteuid;

/// The lock, held until dropped.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    fd: OwnedFd,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// Held by another process; its process id, if it has written it already.
    Held(Option<u32>),
    /// An error of the kernel.
    Failed(Errno),
}

/// Lock file of a path: `PATH.samehost-lock`.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".samehost-lock");
    name.into()
}

pub(crate) fn same_file(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

impl LockFile {
    /// Takes the lock without waiting.
    pub(crate) fn take(path: &Path) -> Result<LockFile, NotTaken> {
        // An iteration repeats only if a former holder removed the file between our open and our lock.
        for _ in 0..1000 {
            let fd = open_lock(path).map_err(NotTaken::Failed)?;
            if let Some(lock) = LockFile::lock(fd, path)? {
                return Ok(lock);
            }
        }
        Err(NotTaken::Failed(Errno::AGAIN))
    }

    /// Locks an open file; `None` if the path no longer leads to it.
    fn lock(fd: OwnedFd, path: &Path) -> Result<Option<LockFile>, NotTaken> {
        match retry_on_intr(|| flock(&fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(NotTaken::Held(holder(&fd))),
            Err(errno) => return Err(NotTaken::Failed(errno)),
        }
        // A lock on a removed file is worthless, because the next process would create and lock a new file.
        // Only the holder removes the file, so once the path leads to our locked file, it stays so.
        let locked = fstat(&fd).map_err(NotTaken::Failed)?;
        if !lstat(path).is_ok_and(|there| same_file(&there, &locked)) {
            return Ok(None);
        }
        if !is_ours(&fd, &locked) {
            return Err(NotTaken::Failed(Errno::EXIST));
        }
        let _ = ftruncate(&fd, 0);
        let _ = pwrite(&fd, format!("{}\n", std::process::id()).as_bytes(), 0);
        Ok(Some(LockFile { path: path.to_owned(), fd }))
    }
}

/// Creates the file or opens the existing one, which must be regular; never blocks.
fn open_lock(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    loop {
        let make = flags | OFlags::CREATE | OFlags::EXCL;
        match retry_on_intr(|| open(path, make, Mode::RUSR | Mode::WUSR)) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
        match retry_on_intr(|| open(path, flags, Mode::empty())) {
            // The holder removed it in between.
            Err(Errno::NOENT) => {}
            other => return other,
        }
    }
}

/// Whether a file is one of our locks: owned by this user, regular, with one link, and containing only a process id.
fn is_ours(fd: &OwnedFd, stat: &Stat) -> bool {
    let mut text = [0; 16];
    let length = pread(fd, &mut text, 0).unwrap_or(0);
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == geteuid().as_raw()
        && stat.st_nlink == 1
        && stat.st_size < text.len() as i64
        && text[..length].iter().all(|byte| byte.is_ascii_digit() || *byte == b'\n')
}

fn holder(fd: &OwnedFd) -> Option<u32> {
    let mut text = [0; 16];
    let length = pread(fd, &mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Removed while still locked: a process that opened it before will find, once it has the lock, that
        // the path leads elsewhere, and starts again.
        let ours = fstat(&self.fd).ok().zip(lstat(&self.path).ok());
        if ours.is_some_and(|(held, there)| same_file(&held, &there)) {
            let _ = unlink(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_held_once_and_gone_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.lock");
        let lock = LockFile::take(&path).unwrap();
        let NotTaken::Held(pid) = LockFile::take(&path).unwrap_err() else { panic!("must be held") };
        assert_eq!(pid, Some(std::process::id()));
        drop(lock);
        assert!(!path.exists());
        drop(LockFile::take(&path).unwrap());
    }

    #[test]
    fn a_lock_on_a_removed_file_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.lock");
        let first = LockFile::take(&path).unwrap();
        let [late, later] = [(); 2].map(|()| open_lock(&path).unwrap());
        drop(first);
        assert!(LockFile::lock(late, &path).unwrap().is_none());
        let _second = LockFile::take(&path).unwrap();
        assert!(LockFile::lock(later, &path).unwrap().is_none());
    }

    #[test]
    fn two_never_hold_it_however_often_it_changes_hands() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.lock");
        let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        if let Ok(lock) = LockFile::take(&path) {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            taken.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now(); // Lets the others in, if they can.
                            inside.fetch_sub(1, Ordering::SeqCst);
                            drop(lock);
                        }
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_not_ours_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.lock");
        for text in ["M4711\n", "a file of somebody's, longer than a number", "4711\n"] {
            std::fs::write(&path, text).unwrap();
            let taken = LockFile::take(&path);
            // A file with only a number is left by a killed process of ours.
            assert_eq!(taken.is_ok(), text == "4711\n", "{text}");
            assert!(taken.is_ok() || std::fs::read_to_string(&path).unwrap() == text);
        }
        std::fs::write(&path, "").unwrap();
        std::fs::hard_link(&path, directory.path().join("other")).unwrap();
        assert!(matches!(LockFile::take(&path), Err(NotTaken::Failed(Errno::EXIST))));
        assert!(path.exists());
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.lock");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(LockFile::take(&path), Err(NotTaken::Failed(Errno::LOOP))));
    }
}
