//! Locks for directories in which files change: an flock on one lock file per directory, which the kernel releases when
//! the process ends. Root cannot rely on users' locks; it detects their switches by the prepared versions beside the files.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, Stat, flock, fstat, major, minor, mkdirat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{Holder, TransactionError, at, changed_before};
use crate::paths::Directory;
use crate::store::Store;
use crate::system;
use crate::version::id_of_prepared;

/// Directory of the lock files, below a directory in which other users cannot create any.
const FOLDER: &str = "samehost";

/// How long a lock may be held before its holder is reported. A process that removes a directory which it created holds
/// the lock a moment longer, and the file system may have reused the inode number by then.
const PATIENCE: Duration = Duration::from_millis(200);

/// The lock of a directory, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    folder: OwnedFd,
    name: OsString,
    file: OwnedFd,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while the lock is held: whoever opened the file meanwhile notices that, and creates a new one.
        let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
        // Unlocks explicitly: a child that is being started may have inherited the descriptor.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Locks a directory, by a file that nobody else can open, or reports who holds the lock.
///
/// Whoever can open a file for reading can hold its `flock` for as long as he likes, so locking the
/// directories alone was rejected: any user with read permission could block root. The directory itself
/// is locked as well where nobody holds it, so that an ordinary user sees root at work. A lock for each
/// state directory was rejected too, as two of one user would not see each other. A second switch does
/// not wait.
pub(crate) fn lock(store: &Store, path: &Path, directory: &Directory) -> Result<Lock, TransactionError> {
    let failed = at(path, "lock the directory");
    let found = fstat(directory.descriptor()).map_err(|error| failed(error.into()))?;
    let name = OsString::from(format!("{:x}-{:x}", found.st_dev, found.st_ino));
    let folder = folder(store).map_err(|error| failed(error.into()))?;
    let since = Instant::now();
    let lock = loop {
        let file = system::open_lock(folder.as_fd(), &name).map_err(&failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) if since.elapsed() < PATIENCE => {
                std::thread::sleep(PATIENCE / 10);
                continue;
            }
            Err(Errno::WOULDBLOCK) => return Err(busy(store, path, directory, holders(&file).pop())),
            Err(error) => return Err(failed(error.into())),
        }
        let here = fstat(&file).map_err(|error| failed(error.into()))?;
        // Where the name leads to another file, the previous holder has removed the one that is locked here.
        if let Ok(named) = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)
            && (named.st_dev, named.st_ino) == (here.st_dev, here.st_ino)
        {
            break Lock { folder, name, file };
        }
    };
    let taken = flock(directory.descriptor(), FlockOperation::NonBlockingLockExclusive);
    if taken == Err(Errno::WOULDBLOCK) && !geteuid().is_root() {
        let own = geteuid().as_raw();
        for process in holders(directory.descriptor()) {
            // Another user's lock is not honoured: anybody may lock a directory that he may read.
            if matches!(real_user(process), Some(user) if user == 0 || user == own) {
                return Err(busy(store, path, directory, Some(process)));
            }
        }
    }
    Ok(lock)
}

fn busy(store: &Store, path: &Path, directory: &Directory, process: Option<u32>) -> TransactionError {
    let mut holder = Holder { id: None, process, program: None };
    if let Some(process) = process {
        holder.id = store.run_by(process);
        let program = fs::read_to_string(format!("/proc/{process}/comm")).ok();
        holder.program = program.map(|name| name.trim().to_owned());
    }
    if holder.id.is_none() {
        let names = directory.names(".").unwrap_or_default();
        holder.id = names.iter().find_map(|name| id_of_prepared(name));
    }
    TransactionError::Busy { path: path.to_owned(), holder }
}

/// Directory of the lock files: one that lasts until the next boot, else one beside the store.
fn folder(store: &Store) -> rustix::io::Result<OwnedFd> {
    if let Some(folder) = folder_until_boot() {
        return Ok(folder);
    }
    let state = store.path().parent().unwrap_or(store.path());
    open_or_make(&openat(CWD, state, DIRECTORY, Mode::empty())?, "locks")
}

/// The directory below /run, where other users cannot create it, or a file in it; `None` where there is none that is ours
/// alone.
fn folder_until_boot() -> Option<OwnedFd> {
    let user = geteuid();
    let run =
        if user.is_root() { PathBuf::from("/run") } else { format!("/run/user/{}", user.as_raw()).into() };
    let run = openat(CWD, &run, DIRECTORY, Mode::empty()).ok()?;
    if !is_own(&run, 0o022) {
        return None;
    }
    let folder = open_or_make(&run, FOLDER).ok()?;
    if is_own(&folder, 0o077) { Some(folder) } else { None }
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether a directory is this user's, with none of these bits in its mode.
fn is_own(directory: &OwnedFd, others: u32) -> bool {
    match fstat(directory) {
        Ok(found) => found.st_uid == geteuid().as_raw() && found.st_mode & others == 0,
        Err(_) => false,
    }
}

fn open_or_make(above: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    match mkdirat(above, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    openat(above, name, DIRECTORY, Mode::empty())
}

/// The user who started a process, regardless of privileges that it gained since.
fn real_user(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn holders(file: impl AsFd) -> Vec<u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    match fstat(file) {
        Ok(file) => holders_in(&locks, &file),
        Err(_) => Vec::new(),
    }
}

/// Holders from the text of /proc/locks: `12: FLOCK  ADVISORY  WRITE 4242 fe:00:131074 0 EOF`. If no line has the
/// device, lines with the same inode count, because on btrfs the device differs from that of stat.
fn holders_in(locks: &str, file: &Stat) -> Vec<u32> {
    let inode = file.st_ino.to_string();
    let device = format!("{:02x}:{:02x}:", major(file.st_dev), minor(file.st_dev));
    let (mut on_device, mut anywhere) = (Vec::new(), Vec::new());
    for line in locks.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = words[..] else { continue };
        // 0 is a process of another PID namespace.
        let Ok(process @ 1..) = process.parse::<u32>() else { continue };
        if place.rsplit(':').next() != Some(&inode) {
            continue;
        }
        anywhere.push(process);
        if place.starts_with(&device) {
            on_device.push(process);
        }
    }
    if on_device.is_empty() { anywhere } else { on_device }
}

/// The directories of the files that a transaction changes, by path. They are opened and locked once and then used by
/// descriptor, so that renames above them do not matter.
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
                match directory.parent() {
                    Some(parent) if is_missing(&error) => directory = parent,
                    _ => return Err(error),
                }
            }
        }
        Ok(locked)
    }

    /// The same directories without any lock, for who only looks.
    pub(crate) fn only_looked_at<'a>(
        files: impl Iterator<Item = &'a Path>,
    ) -> Result<Self, TransactionError> {
        let mut looked = LockedDirectories::default();
        for file in files {
            let above = file.ancestors().skip(1);
            for directory in above {
                if looked.open.contains_key(directory) {
                    break;
                }
                match Directory::open(directory).map_err(at(directory, "open the directory")) {
                    Ok(opened) => {
                        looked.open.insert(directory.to_owned(), opened);
                        break;
                    }
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(looked)
    }

    /// Opens and locks one directory, unless it is held already.
    fn hold(&mut self, store: &Store, path: &Path) -> Result<(), TransactionError> {
        if self.open.contains_key(path) {
            return Ok(());
        }
        let directory = Directory::open(path).map_err(at(path, "open the directory"))?;
        let lock = lock(store, path, &directory)?;
        let again = Directory::open(path).map_err(at(path, "open the directory"))?;
        let [before, now] = [&directory, &again]
            .map(|one| fstat(one.descriptor()).map(|stat| (stat.st_dev, stat.st_ino)).ok());
        if before != now {
            return Err(changed_before(path, "nothing was changed: try again"));
        }
        self.locks.push(lock);
        self.open.insert(path.to_owned(), directory);
        Ok(())
    }

    pub(crate) fn of(&self, file: &Path) -> Option<&Directory> {
        self.open.get(file.parent()?)
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&Directory> {
        self.open.get(path)
    }

    /// Creates a directory with its parent's owner, group and mode, and holds it.
    pub(crate) fn make(&mut self, store: &Store, path: &Path) -> Result<(), TransactionError> {
        if let (Some(parent), Some(name)) = (self.of(path), path.file_name()) {
            make_like(parent.descriptor(), name).map_err(at(path, "make the directory"))?;
        }
        self.hold(store, path)
    }
}

fn is_missing(error: &TransactionError) -> bool {
    matches!(error, TransactionError::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn make_like(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let like = fstat(parent)?;
    system::make_directory(parent, name)?;
    let made = openat(parent, name, DIRECTORY, Mode::empty())?;
    let now = fstat(&made)?;
    // Makes sure that this is the directory just created, and not one that another user put in its place.
    if now.st_uid != geteuid().as_raw() || now.st_mode & 0o777 != 0o700 {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid) {
        system::change_owner(&made, Some(like.st_uid), Some(like.st_gid))?;
    }
    system::change_mode(&made, like.st_mode & 0o777)?;
    system::sync(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_of_this_device() {
        let file = rustix::fs::stat("/proc/self").unwrap();
        let (major, minor, inode) = (major(file.st_dev), minor(file.st_dev), file.st_ino);
        let line = |process: u32, major: u32| {
            format!("1: FLOCK  ADVISORY  WRITE {process} {major:02x}:{minor:02x}:{inode} 0 EOF\n")
        };
        assert_eq!(holders_in(&(line(7, major + 1) + &line(8, major)), &file), [8]);
        assert_eq!(holders_in(&line(7, major + 1), &file), [7]);
        assert!(holders_in(&line(7, major).replace("FLOCK", "-> FLOCK"), &file).is_empty());
        assert!(holders_in("", &file).is_empty());
    }

    #[test]
    fn a_process_has_the_user_who_started_it() {
        assert_eq!(real_user(std::process::id()), Some(rustix::process::getuid().as_raw()));
        assert_eq!(real_user(u32::MAX), None);
    }
}
