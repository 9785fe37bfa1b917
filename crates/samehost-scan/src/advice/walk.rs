//! Resolves a path as another process sees it: through `/proc/PID/root`, component by component, with
//! symbolic links resolved inside that root. Opens with O_PATH only and changes nothing.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, getxattr, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;
use samehost_system::ownership::components;

use crate::proc::status::Status;

/// Limit on symbolic links (the kernel's `MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

pub(crate) struct Root(OwnedFd);

/// One component of a path: a directory on it, or the file that it names.
#[derive(Debug)]
pub(crate) struct Step {
    /// Path inside that root.
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
    /// Access control list; `None` when there are only mode bits.
    pub(crate) acl: Option<Acl>,
}

impl Step {
    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub(crate) fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }
}

impl Root {
    pub(crate) fn of(pid: u32) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty()).map(Root)
    }

    /// Opens a path inside the root, without following a symbolic link at its end.
    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(&self.0, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    /// Every directory on a path, then the file it names. An error names the component that failed.
    ///
    /// Each component is opened by itself and not the whole path at once, because the modes of all of them count: which one
    /// refuses a client is what an administrator has to change.
    pub(crate) fn walk(&self, path: &Path) -> Result<Vec<Step>, (PathBuf, Errno)> {
        let mut at = PathBuf::from("/");
        let mut steps = vec![self.step(&at).map_err(|errno| (at.clone(), errno))?];
        let mut rest = components(path);
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let step = self.step(&next).map_err(|errno| (next.clone(), errno))?;
            if step.file_type() != FileType::Symlink {
                at = next;
                steps.push(step);
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err((next, Errno::LOOP));
            }
            let target = self.link_target(&next).map_err(|errno| (next, errno))?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            for part in components(&target).into_iter().rev() {
                rest.push_front(part);
            }
        }
        Ok(steps)
    }

    pub(crate) fn find(&self, path: &Path) -> Option<Step> {
        self.walk(path).ok()?.pop()
    }

    fn step(&self, path: &Path) -> Result<Step, Errno> {
        let file = self.open(path)?;
        let stat = statat(&file, c"", AtFlags::EMPTY_PATH)?;
        Ok(Step { path: path.to_owned(), stat, acl: Acl::of(&file) })
    }

    fn link_target(&self, path: &Path) -> Result<PathBuf, Errno> {
        let target = readlinkat(self.open(path)?, c"", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }
}

// POSIX access control lists from the extended attribute `system.posix_acl_access`, evaluated as acl(5)
// describes. The parser is pure and does not panic on any input.

/// `POSIX_ACL_XATTR_VERSION`, the only version so far.
const VERSION: u32 = 2;
const ENTRY: usize = 8;
/// Size limit of the attribute: most file systems store at most 4 KiB.
const MOST: usize = 64 * 1024;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    rights: u32,
    id: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Entry {
    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Entry {
            tag: u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?),
            rights: u32::from(u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?)),
            id: u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?),
        })
    }
}

impl Acl {
    /// ACL of an open file (O_PATH suffices); `None` when it has only mode bits.
    pub(crate) fn of(file: impl AsFd) -> Option<Self> {
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let mut bytes = vec![0; MOST];
        let length = getxattr(path, c"system.posix_acl_access", &mut bytes[..]).ok()?;
        Acl::parse(bytes.get(..length)?)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION {
            return None;
        }
        let entries: Vec<Entry> = entries.chunks_exact(ENTRY).filter_map(Entry::parse).collect();
        if entries.is_empty() { None } else { Some(Acl(entries)) }
    }

    fn rights_of(&self, tag: u16) -> Option<u32> {
        Some(self.0.iter().find(|entry| entry.tag == tag)?.rights)
    }

    /// Whether the permissions `wanted` (4 read, 2 write, 1 search) are granted to a process, on a file of
    /// that owner and group. Capabilities are not considered.
    pub(crate) fn gives(&self, wanted: u32, status: &Status, owner: u32, group: u32) -> bool {
        if status.uid == owner {
            return self.rights_of(USER_OBJ).unwrap_or(0) & wanted == wanted;
        }
        let mask = self.rights_of(MASK).unwrap_or(7);
        if let Some(entry) = self.0.iter().find(|entry| entry.tag == USER && entry.id == status.uid) {
            return entry.rights & mask & wanted == wanted;
        }
        let mut is_in_a_group = false;
        for entry in &self.0 {
            let entrys_group = match entry.tag {
                GROUP_OBJ => group,
                GROUP => entry.id,
                _ => continue,
            };
            if status.gid != entrys_group && !status.groups.contains(&entrys_group) {
                continue;
            }
            is_in_a_group = true;
            // One matching group must grant all of it.
            if entry.rights & mask & wanted == wanted {
                return true;
            }
        }
        // The entry for others applies only to processes in none of the groups.
        !is_in_a_group && self.rights_of(OTHER).unwrap_or(0) & wanted == wanted
    }

    /// Permissions of the owning group with the mask applied. Without an ACL these are the mode's middle bits.
    pub(crate) fn of_own_group(&self) -> u32 {
        self.rights_of(GROUP_OBJ).unwrap_or(0) & self.rights_of(MASK).unwrap_or(7)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn links_are_followed_and_every_directory_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("run")).unwrap();
        std::fs::write(real.join("run/file"), "").unwrap();
        std::os::unix::fs::symlink("../run", real.join("run/again")).unwrap();
        std::os::unix::fs::symlink(real.join("run"), real.join("var")).unwrap();
        std::os::unix::fs::symlink("loop", real.join("loop")).unwrap();
        let root = Root::of(std::process::id()).unwrap();
        let steps = root.walk(&real.join("var/again/file")).unwrap();
        assert_eq!(steps.last().unwrap().path, real.join("run/file"));
        assert!(steps.iter().any(|step| step.path == real.join("run")));
        assert_eq!(root.walk(&real.join("loop")).unwrap_err().1, Errno::LOOP);
        let (stopped, errno) = root.walk(&real.join("none/x")).unwrap_err();
        assert_eq!((stopped, errno), (real.join("none"), Errno::NOENT));
    }

    /// `user::rw-, user:33:rw-, group::r--, group:110:-w-, mask::rw-, other::---`
    fn list(mask: u16) -> Vec<u8> {
        let entries = [
            (USER_OBJ, 6, u32::MAX),
            (USER, 6, 33),
            (GROUP_OBJ, 4, u32::MAX),
            (GROUP, 2, 110),
            (MASK, mask, 0),
            (OTHER, 0, 0),
        ];
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::to_le_bytes(rights));
            bytes.extend(u32::to_le_bytes(id));
        }
        bytes
    }

    #[test]
    fn the_first_class_that_fits_decides_and_the_mask_holds_it() {
        let process =
            |uid, gid, groups: &[u32]| Status { uid, gid, groups: groups.to_vec(), ..Status::default() };
        let acl = Acl::parse(&list(6)).unwrap();
        let gives = |status: &Status| acl.gives(2, status, 0, 5);
        assert!(gives(&process(33, 33, &[])), "the user is named");
        assert!(gives(&process(44, 44, &[110])), "a group is named");
        assert!(!gives(&process(44, 5, &[])), "the file's group may only read");
        assert!(gives(&process(44, 5, &[110])), "one of two groups gives it");
        assert!(!gives(&process(44, 44, &[])), "others may nothing");
        assert!(gives(&process(0, 44, &[])), "the owner");
        let masked = Acl::parse(&list(4)).unwrap();
        assert!(!masked.gives(2, &process(33, 33, &[]), 0, 5), "the mask takes it away");
        assert!(masked.gives(2, &process(0, 0, &[]), 0, 5), "not from the owner");
        assert_eq!((acl.of_own_group(), masked.of_own_group()), (4, 4));
        assert!(Acl::parse(b"\x01\0\0\0").is_none() && Acl::parse(&list(6)[..4]).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), versioned: bool) {
            if versioned {
                bytes.splice(0..0, VERSION.to_le_bytes());
            }
            if let Some(acl) = Acl::parse(&bytes) {
                acl.gives(2, &Status::default(), 1, 1);
            }
        }
    }
}
