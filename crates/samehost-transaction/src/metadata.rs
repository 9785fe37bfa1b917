//! What a file carries beside its bytes: mode, owner, group, access control list, extended attributes, times. Read,
//! given to another file, and held against it afterwards.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Stat, Timespec, Timestamps, fgetxattr, flistxattr, fstat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::system;

/// Who may do what with a file. An access control list and a SELinux label are extended attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Permissions {
    /// Twelve bits.
    pub(crate) mode: u32,
    /// User and group; none: as the system makes them.
    pub(crate) owner: Option<(u32, u32)>,
    /// By name; none: as the system makes them.
    pub(crate) attributes: Option<BTreeMap<String, Vec<u8>>>,
}

/// When a file was last read and last changed, in seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    accessed: (i64, i64),
    modified: (i64, i64),
}

/// Why permissions cannot be given to a file.
#[derive(Debug)]
pub(crate) enum GiveError {
    /// The system refuses.
    System(&'static str, io::Error),
    /// The system agreed, and they differ all the same.
    Differs(&'static str),
}

impl Permissions {
    /// Of an open file.
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        let stat = fstat(file.as_fd())?;
        Ok(Permissions {
            mode: stat.st_mode & 0o7777,
            owner: Some((stat.st_uid, stat.st_gid)),
            attributes: Some(attributes(file)?),
        })
    }

    /// Those of a new file beside others: as the directory's owner would make it, for whoever may read there.
    pub(crate) fn of_new(directory: &Stat) -> Self {
        let owner = rustix::process::geteuid().is_root().then_some((directory.st_uid, directory.st_gid));
        Permissions { mode: 0o600 | (directory.st_mode & 0o044), owner, attributes: None }
    }

    /// Takes from others what a file of this mode does not give them.
    pub(crate) fn no_wider_than(&mut self, mode: u32) {
        self.mode &= 0o700 | (mode & 0o077);
    }

    /// Gives them to a file. The mode comes last: only then may others read.
    pub(crate) fn give(&self, file: impl AsFd) -> Result<(), GiveError> {
        let file = file.as_fd();
        let failed = |what: &'static str| move |error: io::Error| GiveError::System(what, error);
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

    /// What of these a file does not have.
    pub(crate) fn lost_in(&self, now: &Permissions) -> Option<&'static str> {
        if self.owner.is_some() && self.owner != now.owner {
            return Some("owner and group");
        }
        if now.mode != self.mode {
            return Some("mode");
        }
        let (wanted, now) = (self.attributes.as_ref()?, now.attributes.as_ref()?);
        let differs = |name: &&String| now.get(*name) != wanted.get(*name);
        wanted.keys().chain(now.keys()).find(differs).map(|name| named(name))
    }
}

/// Gives a file to a user and a group.
pub(crate) fn give_owner(file: impl AsFd, (user, group): (u32, u32)) -> io::Result<()> {
    let now = fstat(file.as_fd())?;
    let (user, group) = ((now.st_uid != user).then_some(user), (now.st_gid != group).then_some(group));
    if user.is_none() && group.is_none() { Ok(()) } else { system::change_owner(file, user, group) }
}

impl Times {
    /// Of what stat tells.
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    pub(crate) fn of(stat: &Stat) -> Self {
        Times {
            accessed: (stat.st_atime as i64, stat.st_atime_nsec as i64),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        }
    }

    /// Gives them to a file.
    pub(crate) fn give(self, file: impl AsFd) -> io::Result<()> {
        let at = |(seconds, nanoseconds): (i64, i64)| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps { last_access: at(self.accessed), last_modification: at(self.modified) };
        system::set_times(file, &times)
    }
}

/// What an attribute is called for people.
fn named(attribute: &str) -> &'static str {
    match attribute {
        "system.posix_acl_access" => "access control list",
        "security.selinux" => "SELinux label",
        "security.capability" => "capabilities",
        _ => "extended attributes",
    }
}

/// All extended attributes that the kernel shows us; none where the file system has none.
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
            // Gone meanwhile, or listed and not for us to see: nothing that we could carry over.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(attributes)
}

/// Asks with a larger buffer until the answer fits.
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
