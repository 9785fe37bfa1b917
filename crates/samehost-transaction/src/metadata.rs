//! Metadata of a file: mode, owner, group, access control list, extended attributes, times. They are read, copied to
//! another file, and verified afterwards.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Stat, Timespec, Timestamps, fgetxattr, flistxattr, fstat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::system;

/// Permissions of a file. Access control lists and SELinux labels are extended attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Permissions {
    /// All twelve bits.
    pub(crate) mode: u32,
    /// User and group; `None`: as the system creates them.
    pub(crate) owner: Option<(u32, u32)>,
    /// By name; `None`: as the system creates them.
    pub(crate) attributes: Option<BTreeMap<String, Vec<u8>>>,
}

/// Times of last access and last change, in seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    accessed: (i64, i64),
    modified: (i64, i64),
}

#[derive(Debug)]
pub(crate) enum GiveError {
    System(&'static str, io::Error),
    /// The system reported success, but the permissions differ.
    Differs(&'static str),
}

impl Permissions {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        let stat = fstat(file.as_fd())?;
        Ok(Permissions {
            mode: stat.st_mode & 0o7777,
            owner: Some((stat.st_uid, stat.st_gid)),
            attributes: Some(attributes(file)?),
        })
    }

    /// Permissions of a new file in a directory: owned by the directory's owner, readable by whoever may read there.
    pub(crate) fn of_new(directory: &Stat) -> Self {
        let owner = rustix::process::geteuid().is_root().then_some((directory.st_uid, directory.st_gid));
        Permissions { mode: 0o600 | (directory.st_mode & 0o044), owner, attributes: None }
    }

    /// Removes permissions of others that this mode does not grant.
    pub(crate) fn no_wider_than(&mut self, mode: u32) {
        self.mode &= 0o700 | (mode & 0o077);
    }

    /// Applies them to a file, and reads them back: some file systems report success and keep something else. Owner first,
    /// because a change of it clears set-user-ID and capabilities (chown(2)); the mode last, because only then may others
    /// read.
    pub(crate) fn give(&self, file: impl AsFd) -> Result<(), GiveError> {
        let file = file.as_fd();
        if let Some(owner) = self.owner {
            give_owner(file, owner).map_err(failed("owner and group"))?;
        }
        if let Some(wanted) = &self.attributes {
            let now = attributes(file).map_err(failed("extended attributes"))?;
            for name in now.keys().filter(|name| !wanted.contains_key(*name)) {
                system::remove_attribute(file, name).map_err(failed(named(name)))?;
            }
            for (name, value) in wanted.iter().filter(|(name, value)| now.get(*name) != Some(value)) {
                system::set_attribute(file, name, value).map_err(failed(named(name)))?;
            }
        }
        let mode = fstat(file).map_err(|error| GiveError::System("mode", error.into()))?.st_mode;
        if mode & 0o7777 != self.mode {
            system::change_mode(file, self.mode).map_err(failed("mode"))?;
        }
        match self.lost_in(&Permissions::of(file).map_err(failed("metadata"))?) {
            Some(what) => Err(GiveError::Differs(what)),
            None => Ok(()),
        }
    }

    /// Where a file has other ones, in words: what it has now, and what these say.
    pub(crate) fn differences(&self, now: &Permissions) -> Vec<String> {
        let mut all = Vec::new();
        if now.mode != self.mode {
            all.push(format!("its mode is {:04o} ({:04o} before the switch)", now.mode, self.mode));
        }
        if let (Some(then), Some(today)) = (self.owner, now.owner)
            && then != today
        {
            all.push(format!(
                "its owner is {}:{} ({}:{} before the switch)",
                today.0, today.1, then.0, then.1
            ));
        }
        let (Some(then), Some(today)) = (&self.attributes, &now.attributes) else { return all };
        for name in then.keys().chain(today.keys()) {
            let what = format!("its {} changed from before the switch ({name})", named(name));
            if then.get(name) != today.get(name) && !all.contains(&what) {
                all.push(what);
            }
        }
        all
    }

    /// The first part that a file lacks or has differently, by name; `None` where all are kept. What these permissions
    /// leave to the system is not compared.
    pub(crate) fn lost_in(&self, now: &Permissions) -> Option<&'static str> {
        if self.owner.is_some() && self.owner != now.owner {
            return Some("owner and group");
        }
        if now.mode != self.mode {
            return Some("mode");
        }
        let (wanted, now) = (self.attributes.as_ref()?, now.attributes.as_ref()?);
        for name in wanted.keys().chain(now.keys()) {
            if now.get(name) != wanted.get(name) {
                return Some(named(name));
            }
        }
        None
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> GiveError {
    move |error| GiveError::System(what, error)
}

/// Gives a file an owner and a group, with no system call where it has both.
pub(crate) fn give_owner(file: impl AsFd, (user, group): (u32, u32)) -> io::Result<()> {
    let now = fstat(file.as_fd())?;
    let user = if now.st_uid == user { None } else { Some(user) };
    let group = if now.st_gid == group { None } else { Some(group) };
    if user.is_none() && group.is_none() { Ok(()) } else { system::change_owner(file, user, group) }
}

impl Times {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    pub(crate) fn of(stat: &Stat) -> Self {
        Times {
            accessed: (stat.st_atime as i64, stat.st_atime_nsec as i64),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        }
    }

    pub(crate) fn give(self, file: impl AsFd) -> io::Result<()> {
        let [last_access, last_modification] =
            [self.accessed, self.modified].map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
        system::set_times(file, &Timestamps { last_access, last_modification })
    }
}

fn named(attribute: &str) -> &'static str {
    match attribute {
        "system.posix_acl_access" => "access control list",
        "security.selinux" => "SELinux label",
        "security.capability" => "capabilities",
        _ => "extended attributes",
    }
}

/// All extended attributes that the kernel shows us; empty if the file system has none.
fn attributes(file: impl AsFd) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let file = file.as_fd();
    let names = match sized(|buffer| flistxattr(file, buffer)) {
        Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        other => other?,
    };
    let mut attributes = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = std::str::from_utf8(name)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "an attribute's name is not UTF-8"))?;
        match sized(|buffer| fgetxattr(file, name, buffer)) {
            Ok(value) => drop(attributes.insert(name.to_owned(), value)),
            // Removed meanwhile, or not readable for us: nothing that could be copied.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(attributes)
}

/// Repeats the call with a larger buffer until the result fits.
fn sized(ask: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 1024];
    loop {
        match ask(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            // The kernel's own limit for both is 64 KiB.
            Err(Errno::RANGE) if buffer.len() < 128 * 1024 => buffer.resize(buffer.len() * 4, 0),
            Err(error) => return Err(error),
        }
    }
}
