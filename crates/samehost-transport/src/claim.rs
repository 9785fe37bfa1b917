//! Safely takes a path for a listening socket, and releases it. Removes only a socket that nobody listens on,
//! or the very file that it created. It opens a socket only to ask whether somebody listens.
//!
//! A lock file that exists while it is held decides between two starting servers. It is removed without a
//! moment in which two could hold it. Its name is specific to samehost, because MySQL and PostgreSQL use
//! `PATH.lock`. A foreign file with that name is neither changed nor removed.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid, chmod, chownat, flock, fstat, ftruncate,
    lstat, mkdir, open, unlink,
};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::geteuid;
use samehost_model::Endpoint;

use crate::error::{ListenError, describe};
use crate::socket;
use crate::socket::{Blocking, Connecting};
use crate::tuning::ListenOptions;

/// A path that we own: the socket file that we created, and the lock beside it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) path: PathBuf,
    made: Stat,
    /// Released last, after the file was removed.
    _lock: LockFile,
}

enum Answer {
    Nobody,
    Somebody(Option<u32>),
    Unknown(Errno),
}

impl Claim {
    /// Locks the path, removes a dead socket, lets `bind` create the file, and remembers which file that is.
    ///
    /// # Errors
    /// When somebody listens there or is starting to, something else than a socket is at the path, its directory is
    /// missing or public, or the kernel refuses.
    pub(crate) fn take(
        endpoint: &Endpoint,
        options: &ListenOptions,
        bind: impl FnOnce(&Path) -> Result<(), Errno>,
    ) -> Result<Claim, ListenError> {
        let given = endpoint.path().unwrap_or(Path::new(""));
        // For removal, when the working directory may have changed.
        let path =
            std::path::absolute(given).map_err(|source| ListenError::Other(endpoint.clone(), source))?;
        check_directory(endpoint, options, &path)?;
        let lock = LockFile::take(&lock_path(&path)).map_err(|reason| not_taken(endpoint, &path, reason))?;
        clear(endpoint, &path)?;
        bind(&path).map_err(ListenError::at(endpoint))?;
        let made = lstat(&path).map_err(ListenError::at(endpoint))?;
        Ok(Claim { path, made, _lock: lock })
    }

    pub(crate) fn set_rights(&self, endpoint: &Endpoint, options: &ListenOptions) -> Result<(), ListenError> {
        let failed = |errno| match errno {
            Errno::PERM | Errno::ACCESS => ListenError::PermissionDenied {
                endpoint: endpoint.clone(),
                doing: "setting the owner and mode of the socket file".to_owned(),
                advice: "only root gives files away: run as that user, or leave the owner out",
            },
            errno => ListenError::from_errno(endpoint, errno),
        };
        if options.owner.is_none() && self.made.st_mode & 0o7777 == options.mode {
            return Ok(());
        }
        // Uses a descriptor that was checked to be our file, because the path may lead to a replacement by now.
        let file = open(&self.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed)?;
        if !fstat(&file).is_ok_and(|there| same_file(&there, &self.made)) {
            return Err(failed(Errno::STALE));
        }
        if let Some((uid, gid)) = options.owner {
            give(&file, uid, gid).map_err(failed)?;
        }
        if self.made.st_mode & 0o7777 == options.mode {
            return Ok(());
        }
        use std::os::fd::AsRawFd;
        let through = format!("/proc/self/fd/{}", file.as_raw_fd());
        chmod(through, Mode::from_raw_mode(options.mode)).map_err(failed)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if lstat(&self.path).is_ok_and(|there| same_file(&there, &self.made)) {
            let _ = unlink(&self.path);
        }
    }
}

/// The error of [`Claim::take`] where the lock was not taken.
fn not_taken(endpoint: &Endpoint, path: &Path, reason: NotTaken) -> ListenError {
    let endpoint = endpoint.clone();
    match reason {
        // The kernel knows better than the lock file who listens, if it answers.
        NotTaken::Held(holder) => match ask(path) {
            Answer::Somebody(Some(pid)) => ListenError::InUse(endpoint, Some(pid)),
            _ => ListenError::InUse(endpoint, holder),
        },
        NotTaken::Failed(errno @ (Errno::ACCESS | Errno::PERM)) if !lock_path(path).exists() => {
            ListenError::from_errno(&endpoint, errno)
        }
        NotTaken::Failed(errno) => {
            ListenError::Lock { endpoint, path: lock_path(path), source: errno.into() }
        }
    }
}

fn give(socket: &OwnedFd, uid: u32, gid: u32) -> Result<(), Errno> {
    chownat(socket, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
}

/// Changes the owner of a directory that we just created, through a descriptor, so that it cannot have been
/// replaced meanwhile.
fn give_directory(path: &Path, uid: u32, gid: u32) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    if fstat(&file)?.st_uid != geteuid().as_raw() {
        return Err(Errno::STALE);
    }
    give(&file, uid, gid)
}

/// Checks the directory: it must exist or be created, and must not be public if public directories are refused.
fn check_directory(endpoint: &Endpoint, options: &ListenOptions, path: &Path) -> Result<(), ListenError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if options.refuse_tmp {
        // Resolves symbolic links of the nearest existing ancestor: /home/me/sockets may be a link into /tmp.
        let there = directory.ancestors().find_map(|part| part.canonicalize().ok()).unwrap_or_default();
        if ["/tmp", "/var/tmp"].iter().any(|public| there.starts_with(public) || path.starts_with(public)) {
            return Err(ListenError::UnderTmp(endpoint.clone(), path.to_owned()));
        }
    }
    if directory.exists() {
        return Ok(());
    }
    let missing = |directory: &Path| ListenError::NoDirectory(endpoint.clone(), directory.to_owned());
    if !options.create_directory {
        return match directory.try_exists() {
            Ok(false) => Err(missing(directory)),
            _ => Ok(()), // Not visible: bind(2) will report the reason.
        };
    }
    match mkdir(directory, Mode::RWXU) {
        Ok(()) => match options.owner {
            Some((uid, gid)) => give_directory(directory, uid, gid).map_err(ListenError::at(endpoint)),
            None => Ok(()),
        },
        Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => Err(missing(directory.parent().unwrap_or(directory))),
        Err(errno) => Err(ListenError::from_errno(endpoint, errno)),
    }
}

/// Removes a dead socket, if there is one at the path; fails if anything else is there. Must be called
/// with the lock held. A path is removed only when it is a socket and the kernel refuses a connection to
/// it. A full queue and another type of socket mean that somebody listens, and missing permissions are an
/// error. Redis and memcached remove whatever they find at their path, which took another server's
/// clients away (docs/decisions/0129). The lock decides between two starters of ours (docs/design.md §7).
fn clear(endpoint: &Endpoint, path: &Path) -> Result<(), ListenError> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(ListenError::Occupied(endpoint.clone(), describe(found.file_type())));
    }
    let before = lstat(path).map_err(ListenError::at(endpoint))?;
    match ask(path) {
        Answer::Somebody(pid) => Err(ListenError::InUse(endpoint.clone(), pid)),
        Answer::Unknown(Errno::ACCESS) => Err(ListenError::PermissionDenied {
            endpoint: endpoint.clone(),
            doing: "asking whether anybody listens on the socket that is there".to_owned(),
            advice: "it belongs to another user: choose another path, or run as that user",
        }),
        Answer::Unknown(Errno::NOENT) => Ok(()),
        Answer::Unknown(errno) => Err(ListenError::from_errno(endpoint, errno)),
        Answer::Nobody => {
            // Programs that do not use our lock may have replaced it meanwhile; bind(2) will then fail.
            if lstat(path).is_ok_and(|there| same_file(&there, &before)) {
                unlink(path).map_err(ListenError::at(endpoint))?;
            }
            Ok(())
        }
    }
}

/// Probes a socket by connecting: only ECONNREFUSED means that nobody listens.
fn ask(path: &Path) -> Answer {
    // An absolute path may be too long although the relative one was not; then connect via its directory.
    let connected = match socket::unix_path(path) {
        Ok(address) => connect_to(&address),
        Err(_) => through_directory(path),
    };
    match connected {
        Ok(pid) => Answer::Somebody(pid),
        // A full backlog, or a live socket of another type.
        Err(Errno::AGAIN | Errno::PROTOTYPE) => Answer::Somebody(None),
        Err(Errno::CONNREFUSED) => Answer::Nobody,
        Err(errno) => Answer::Unknown(errno),
    }
}

fn through_directory(path: &Path) -> Result<Option<u32>, Errno> {
    use std::os::fd::AsRawFd;
    let directory = path.parent().ok_or(Errno::NAMETOOLONG)?;
    let name = path.file_name().ok_or(Errno::NAMETOOLONG)?;
    let file = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string()).join(name);
    connect_to(&socket::unix_path(&short).map_err(|_| Errno::NAMETOOLONG)?)
}

fn connect_to(address: &SocketAddrUnix) -> Result<Option<u32>, Errno> {
    let fd = socket::open(AddressFamily::UNIX, SocketType::STREAM, Blocking::No)?;
    let Connecting::Done = socket::start(&fd, address)? else {
        return Ok(None);
    };
    Ok(socket::peer_pid(&fd))
}

pub(crate) fn listening_pid(address: &SocketAddrUnix) -> Option<u32> {
    connect_to(address).ok().flatten()
}

#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    fd: OwnedFd,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum NotTaken {
    /// Held by another process; its process id, if it has written it already.
    Held(Option<u32>),
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
