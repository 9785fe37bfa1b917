//! Safely takes a path for a listening socket, and releases it. Removes only a socket that nobody listens on,
//! or the very file that it created.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid, chmod, chownat, lstat, mkdir, open, unlink};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use samehost_model::Endpoint;

use crate::address;
use crate::error::{ListenError, describe};
use crate::lock_file::{LockFile, NotTaken, lock_path, same_file};
use crate::options::ListenOptions;
use crate::socket::{self, Blocking, Connecting};

/// A path that we own: the socket file that we created, and the lock beside it.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    made: Stat,
    /// Released last, after the file was removed.
    _lock: LockFile,
}

/// Result of probing an existing socket file.
enum Answer {
    Nobody,
    Somebody(Option<u32>),
    Unknown(Errno),
}

impl Claim {
    /// Locks the path, removes a dead socket, and lets `bind` create the file.
    pub(crate) fn take(
        endpoint: &Endpoint,
        options: &ListenOptions,
        bind: impl FnOnce(&Path) -> Result<(), Errno>,
    ) -> Result<Claim, ListenError> {
        let given = endpoint.path().unwrap_or(Path::new(""));
        // For removal, when the working directory may have changed.
        let path = std::path::absolute(given)
            .map_err(|source| ListenError::Other { endpoint: endpoint.clone(), source })?;
        check_directory(endpoint, options, &path)?;
        let lock = LockFile::take(&lock_path(&path)).map_err(|reason| match reason {
            NotTaken::Held(holder) => match ask(&path) {
                Answer::Somebody(Some(pid)) => {
                    ListenError::InUse { endpoint: endpoint.clone(), pid: Some(pid) }
                }
                _ => ListenError::InUse { endpoint: endpoint.clone(), pid: holder },
            },
            NotTaken::Failed(errno @ (Errno::ACCESS | Errno::PERM)) if !lock_path(&path).exists() => {
                ListenError::from_errno(endpoint, errno)
            }
            NotTaken::Failed(errno) => {
                let path = lock_path(&path);
                ListenError::Lock { endpoint: endpoint.clone(), path, source: errno.into() }
            }
        })?;
        clear(endpoint, &path)?;
        bind(&path).map_err(ListenError::at(endpoint))?;
        let made = lstat(&path).map_err(ListenError::at(endpoint))?;
        Ok(Claim { path, made, _lock: lock })
    }

    /// Path of the socket file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the requested owner and mode of the file.
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
        if !rustix::fs::fstat(&file).is_ok_and(|there| same_file(&there, &self.made)) {
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

fn give(held: &OwnedFd, uid: u32, gid: u32) -> Result<(), Errno> {
    chownat(held, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
}

/// Changes the owner of a directory that we just created, through a descriptor, so that it cannot have been
/// replaced meanwhile.
fn give_directory(path: &Path, uid: u32, gid: u32) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    if rustix::fs::fstat(&file)?.st_uid != rustix::process::geteuid().as_raw() {
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
            return Err(ListenError::UnderTmp { endpoint: endpoint.clone(), path: path.to_owned() });
        }
    }
    if directory.exists() {
        return Ok(());
    }
    let missing = |directory: &Path| ListenError::NoDirectory {
        endpoint: endpoint.clone(),
        directory: directory.to_owned(),
    };
    if !options.create_directory {
        return match directory.try_exists() {
            Ok(false) => Err(missing(directory)),
            _ => Ok(()), // Not visible: bind(2) will report the reason.
        };
    }
    match mkdir(directory, Mode::RWXU) {
        Ok(()) => match options.owner {
            Some((uid, gid)) => {
                give_directory(directory, uid, gid).map_err(|errno| ListenError::from_errno(endpoint, errno))
            }
            None => Ok(()),
        },
        Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => Err(missing(directory.parent().unwrap_or(directory))),
        Err(errno) => Err(ListenError::from_errno(endpoint, errno)),
    }
}

/// Removes a dead socket, if there is one at the path; fails if anything else is there. Must be called with the
/// lock held.
fn clear(endpoint: &Endpoint, path: &Path) -> Result<(), ListenError> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(ListenError::Occupied { endpoint: endpoint.clone(), found: describe(found.file_type()) });
    }
    let before = lstat(path).map_err(|errno| ListenError::from_errno(endpoint, errno))?;
    match ask(path) {
        Answer::Somebody(pid) => Err(ListenError::InUse { endpoint: endpoint.clone(), pid }),
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
                unlink(path).map_err(|errno| ListenError::from_errno(endpoint, errno))?;
            }
            Ok(())
        }
    }
}

/// Probes a socket by connecting: only ECONNREFUSED means that nobody listens.
fn ask(path: &Path) -> Answer {
    // An absolute path may be too long although the relative one was not; then connect via its directory.
    let connected = match address::unix_path(path) {
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
    connect_to(&address::unix_path(&short).map_err(|_| Errno::NAMETOOLONG)?)
}

fn connect_to(address: &SocketAddrUnix) -> Result<Option<u32>, Errno> {
    let fd = socket::open(AddressFamily::UNIX, SocketType::STREAM, Blocking::No)?;
    let Connecting::Done = socket::start(&fd, address)? else {
        return Ok(None);
    };
    Ok(socket::peer_pid(&fd))
}

/// Process that listens at an address, if it answers.
pub(crate) fn listening_pid(address: &SocketAddrUnix) -> Option<u32> {
    connect_to(address).ok().flatten()
}
