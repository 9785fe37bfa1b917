//! Resolves a path as another process sees it: through `/proc/PID/root`, component by component, with
//! symbolic links resolved inside that root. Opens with O_PATH only and changes nothing.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

use super::acl::Acl;

/// Limit on symbolic links (the kernel's `MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// Root directory of a process.
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

    /// Permission bits.
    pub(crate) fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    /// Device and inode.
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
    pub(crate) fn walk(&self, path: &Path) -> Result<Vec<Step>, (PathBuf, Errno)> {
        let mut at = PathBuf::from("/");
        let mut steps = vec![self.step(&at)?];
        let mut rest: VecDeque<OsString> = components(path).collect();
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let step = self.step(&next)?;
            if step.file_type() != FileType::Symlink {
                at = next;
                steps.push(step);
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err((next, Errno::LOOP));
            }
            let target = self.target(&next).map_err(|errno| (next, errno))?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            for part in components(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(part);
            }
        }
        Ok(steps)
    }

    /// The file that a path names.
    pub(crate) fn find(&self, path: &Path) -> Option<Step> {
        self.walk(path).ok()?.pop()
    }

    fn step(&self, path: &Path) -> Result<Step, (PathBuf, Errno)> {
        let found = self.open(path).and_then(|file| {
            let stat = statat(&file, c"", AtFlags::EMPTY_PATH)?;
            Ok(Step { path: path.to_owned(), stat, acl: Acl::of(&file) })
        });
        found.map_err(|errno| (path.to_owned(), errno))
    }

    fn target(&self, path: &Path) -> Result<PathBuf, Errno> {
        let target = readlinkat(self.open(path)?, c"", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }
}

fn components(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
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
}
