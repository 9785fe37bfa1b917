//! Finds the users who may change what a path leads to: the file, and every directory on the way, because a
//! user who can write a directory can replace a file in it. Only inspects.
//!
//! Whether a directory is one that only this user can change: where journals and stored results are kept. For root that
//! includes the whole path, because whoever can replace a part of it can plant what root would believe.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::identity::identity;
use crate::proc::namespace;

/// Most symbolic links that the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// A user, or users, who may change what a path leads to and are not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} can be changed by {by}", path.display())]
pub struct ForeignWriter {
    /// The file, link or directory on the way that he may change.
    pub path: PathBuf,
    /// The user in words: `user 33`, `group 1000`, `everyone`.
    pub by: String,
    pub who: Who,
    /// Whether it is a symbolic link: its owner decided where the path leads.
    pub is_link: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    User(u32),
    /// All members of a group.
    Group(u32),
    Everyone,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Who::User(uid) => write!(f, "user {uid}"),
            Who::Group(gid) => write!(f, "group {gid}"),
            Who::Everyone => f.write_str("everyone"),
        }
    }
}

/// The user, other than root, who controls the contents of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decider {
    pub who: Who,
    /// The file, link or directory on the way through which he controls them.
    pub path: PathBuf,
    /// Group of the file that may read it, if root owns the file and he controls it only through a directory.
    pub group_of_roots_file: Option<u32>,
    /// Device and inode of what the path leads to.
    pub file: (u64, u64),
}

/// The user who controls the contents of a path; `None` if only root does. That is the owner of a symbolic
/// link, which decides where it leads; else the owner of the file; else a user who may replace it, the
/// nearest directory first.
///
/// # Errors
/// As [`foreign_writer`].
pub fn decider(path: &Path) -> io::Result<Option<Decider>> {
    let mut writers = Vec::new();
    View::ours(&[]).foreign_writers(path, &mut writers)?;
    let metadata = fs::metadata(path)?;
    let file = (metadata.dev(), metadata.ino());
    if let Some(link) = writers.iter().find(|writer| writer.is_link) {
        let path = link.path.clone();
        return Ok(Some(Decider { who: link.who, path, group_of_roots_file: None, file }));
    }
    if metadata.uid() != 0 {
        let who = Who::User(metadata.uid());
        return Ok(Some(Decider { who, path: path.to_owned(), group_of_roots_file: None, file }));
    }
    let Some(nearest) = writers.last() else { return Ok(None) };
    let group = metadata.gid();
    let group_may_read = group != 0 && metadata.mode() & 0o040 != 0;
    Ok(Some(Decider {
        who: nearest.who,
        path: nearest.path.clone(),
        group_of_roots_file: group_may_read.then_some(group),
        file,
    }))
}

/// The first user, other than root and the `trusted` users, who may change what a path leads to; `None` if
/// there is none.
///
/// A group with write permission counts as other users, except root's own group. An access control list shows in the
/// group bits, which are its mask. In a sticky directory (/tmp), only files that belong to a trusted user are safe.
///
/// # Errors
/// When a component does not exist or is not visible to us.
pub fn foreign_writer(path: &Path, trusted: &[u32]) -> io::Result<Option<ForeignWriter>> {
    View::ours(trusted).foreign_writer(path)
}

/// The root directory of a process, as a path from here: `/` if it is the same as ours, or not visible to us. It is another
/// one also where the mounts below it are others.
#[must_use]
pub fn root_of(pid: Option<u32>) -> PathBuf {
    let ours = PathBuf::from("/");
    let Some(pid) = pid else { return ours };
    let theirs = PathBuf::from(format!("/proc/{pid}/root/"));
    match identity(&theirs) {
        Some(root) if identity(&ours) != Some(root) => theirs,
        Some(_) if namespace(pid, "mnt") != namespace("self", "mnt") => theirs,
        _ => ours,
    }
}

#[derive(Clone, Debug)]
pub struct View {
    pub root: PathBuf,
    /// Users and groups that may write below it, besides root's.
    pub users: Vec<u32>,
    pub groups: Vec<u32>,
}

impl View {
    fn ours(trusted: &[u32]) -> Self {
        View { root: PathBuf::from("/"), users: trusted.to_vec(), groups: Vec::new() }
    }

    /// The first other user who may change what a path leads to; as [`foreign_writer`].
    ///
    /// # Errors
    /// When a component does not exist or is not visible to us.
    pub fn foreign_writer(&self, path: &Path) -> io::Result<Option<ForeignWriter>> {
        let mut all = Vec::new();
        let seen = self.foreign_writers(path, &mut all);
        // The first one is the answer, even if a later component cannot be read.
        if let Some(first) = all.into_iter().next() {
            return Ok(Some(first));
        }
        seen.map(|()| None)
    }

    /// All such users, from the root directory on. Each component is looked at as the kernel would come to it: a symbolic link
    /// is followed by putting its components before the rest, and `..` goes up from where the link led.
    fn foreign_writers(&self, path: &Path, all: &mut Vec<ForeignWriter>) -> io::Result<()> {
        let mut at = PathBuf::from("/");
        let mut above = self.look(&at)?;
        all.extend(self.writer(&at, &above));
        let mut rest = components(&std::path::absolute(path)?);
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                at.pop();
                above = self.look(&at)?;
                continue;
            }
            let next = at.join(&name);
            let metadata = self.look(&next)?;
            let is_sticky = above.mode() & 0o1000 != 0 && is_open(&above);
            let is_link = metadata.file_type().is_symlink();
            if (is_sticky || is_link)
                && let Some(found) = self.owner(&next, &metadata)
            {
                all.push(ForeignWriter { is_link, ..found });
            }
            if is_link {
                links += 1;
                if links > MOST_LINKS {
                    return Err(io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error()));
                }
                let target = fs::read_link(self.inside(&next))?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                    above = self.look(&at)?;
                }
                for name in components(&target).into_iter().rev() {
                    rest.push_front(name);
                }
                continue;
            }
            // A sticky directory that others can write may get new files, but its files cannot be replaced:
            // the next component decides.
            let is_passed = metadata.is_dir() && metadata.mode() & 0o1000 != 0 && !rest.is_empty();
            // Write permission on a socket only allows connecting.
            let is_owners = is_passed || metadata.file_type().is_socket();
            all.extend(if is_owners { self.owner(&next, &metadata) } else { self.writer(&next, &metadata) });
            at = next;
            above = metadata;
        }
        Ok(())
    }

    /// Whether every user may create files in a directory, including a sticky one; false if it cannot be looked at.
    #[must_use]
    pub fn is_open_to_all(&self, directory: &Path) -> bool {
        match fs::metadata(self.inside(directory)) {
            Ok(found) => found.mode() & 0o002 != 0,
            Err(_) => false,
        }
    }

    /// No earlier component is a link, so the path does not lead out of the root.
    fn look(&self, path: &Path) -> io::Result<Metadata> {
        fs::symlink_metadata(self.inside(path))
    }

    fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn is_trusted(&self, uid: u32) -> bool {
        uid == 0 || self.users.contains(&uid)
    }

    fn owner(&self, path: &Path, metadata: &Metadata) -> Option<ForeignWriter> {
        let uid = metadata.uid();
        (!self.is_trusted(uid)).then(|| foreign(path, Who::User(uid)))
    }

    /// Who may write the file or directory itself: its owner, else everyone, else its group.
    fn writer(&self, path: &Path, metadata: &Metadata) -> Option<ForeignWriter> {
        if let Some(found) = self.owner(path, metadata) {
            return Some(found);
        }
        let is_groups = metadata.gid() == 0 || self.groups.contains(&metadata.gid());
        match metadata.mode() {
            mode if mode & 0o002 != 0 => Some(foreign(path, Who::Everyone)),
            mode if mode & 0o020 != 0 && !is_groups => Some(foreign(path, Who::Group(metadata.gid()))),
            _ => None,
        }
    }
}

fn foreign(path: &Path, who: Who) -> ForeignWriter {
    ForeignWriter { path: path.to_owned(), by: who.to_string(), who, is_link: false }
}

/// The names on a path, with `..` among them, which counts only where a link before it has been followed.
#[must_use]
pub fn components(path: &Path) -> VecDeque<OsString> {
    let mut names = VecDeque::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push_back(name.to_owned()),
            Component::ParentDir => names.push_back(OsString::from("..")),
            _ => {}
        }
    }
    names
}

fn is_open(metadata: &Metadata) -> bool {
    metadata.mode() & 0o002 != 0 || (metadata.mode() & 0o020 != 0 && metadata.gid() != 0)
}

#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it belongs to user {0}")]
    Owner(u32),
    /// Somebody else could hide or replace it.
    #[error(transparent)]
    Writer(#[from] ForeignWriter),
}

/// Fails unless a directory is ours alone. One that is missing would be, if it were made now: the part of its path that
/// exists is looked at. In a sticky directory what we make stays ours.
///
/// # Errors
/// When it is not, or cannot be looked at.
pub fn private(directory: &Path) -> Result<(), NotPrivate> {
    let user = rustix::process::geteuid();
    let found = match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other?),
    };
    if let Some(found) = &found
        && found.uid() != user.as_raw()
    {
        return Err(NotPrivate::Owner(found.uid()));
    }
    // An ordinary user trusts his own path, as all his programs do.
    if !user.is_root() {
        return Ok(());
    }
    let looked_at = match found {
        Some(_) => directory,
        None => {
            let there = directory.ancestors().skip(1).find(|path| path.exists()).unwrap_or(Path::new("/"));
            let found = fs::metadata(there)?;
            let is_sticky = found.uid() == 0 && found.mode() & 0o1000 != 0;
            there.parent().filter(|_| is_sticky).unwrap_or(there)
        }
    };
    match foreign_writer(looked_at, &[])? {
        Some(foreign) => Err(NotPrivate::Writer(foreign)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn roots_own_files_are_roots() {
        assert_eq!(foreign_writer(Path::new("/etc/passwd"), &[]).unwrap(), None);
        assert!(foreign_writer(Path::new("/no/such/file"), &[]).is_err());
    }

    #[test]
    fn a_servers_own_group_may_write_and_a_socket_is_connected_to_as_root() {
        fn view(groups: Vec<u32>) -> View {
            View { root: "/".into(), users: vec![33], groups }
        }
        assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        mode(directory.path(), 0o755);
        let folder = directory.path().join("run");
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(33), Some(33)).unwrap();
        mode(&folder, 0o2775);
        let socket = folder.join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        mode(&socket, 0o777);
        assert_eq!(view(vec![33]).foreign_writer(&socket).unwrap(), None);
        assert_eq!(view(vec![]).foreign_writer(&socket).unwrap().unwrap().by, "group 33");
        // The same below another root.
        let inside = View { root: directory.path().to_owned(), ..view(vec![33]) };
        assert_eq!(inside.foreign_writer(Path::new("/run/s")).unwrap(), None);
        assert!(!inside.is_open_to_all(Path::new("/run")));
        chown(&socket, Some(34), None).unwrap();
        assert_eq!(inside.foreign_writer(Path::new("/run/s")).unwrap().unwrap().path, Path::new("/run/s"));
        assert_eq!(root_of(Some(std::process::id())), Path::new("/"));
    }

    #[test]
    fn one_directory_on_the_way_is_enough_as_root() {
        assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        let (folder, file) = (directory.path().join("a"), directory.path().join("a/b"));
        fs::create_dir(&folder).unwrap();
        mode(&folder, 0o755);
        fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        assert_eq!(foreign_writer(&file, &[]).unwrap(), None);
        chown(&folder, Some(33), None).unwrap();
        let found = foreign_writer(&file, &[]).unwrap().unwrap();
        assert_eq!((found.path, found.by.as_str()), (folder.clone(), "user 33"));
        assert_eq!(foreign_writer(&file, &[33]).unwrap(), None);
        chown(&folder, Some(0), None).unwrap();
        mode(&folder, 0o777);
        assert_eq!(foreign_writer(&file, &[]).unwrap().unwrap().by, "everyone");
        // Sticky: other users cannot replace root's file, but another user's link is under his control.
        mode(&folder, 0o1777);
        assert_eq!(foreign_writer(&file, &[]).unwrap(), None);
        symlink("/etc/passwd", folder.join("link")).unwrap();
        assert_eq!(foreign_writer(&folder.join("link"), &[]).unwrap(), None);
        std::os::unix::fs::lchown(folder.join("link"), Some(33), None).unwrap();
        assert_eq!(foreign_writer(&folder.join("link"), &[]).unwrap().unwrap().by, "user 33");
        mode(&folder, 0o755);
        mode(&file, 0o664);
        chown(&file, None, Some(33)).unwrap();
        assert_eq!(foreign_writer(&file, &[]).unwrap().unwrap().by, "group 33");
        assert_eq!(decider(&file).unwrap().unwrap().who, Who::Group(33));
    }

    #[test]
    fn whoever_made_the_link_the_file_or_the_directory_decides_as_root() {
        assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        mode(directory.path(), 0o755);
        let (folder, file) = (directory.path().join("a"), directory.path().join("a/b"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "").unwrap();
        mode(&file, 0o640);
        assert_eq!(decider(&file).unwrap(), None);
        chown(&folder, Some(1001), None).unwrap();
        chown(&file, None, Some(33)).unwrap();
        let found = decider(&file).unwrap().unwrap();
        assert_eq!((found.who, found.group_of_roots_file), (Who::User(1001), Some(33)));
        chown(&file, Some(1002), None).unwrap();
        let found = decider(&file).unwrap().unwrap();
        assert_eq!((found.who, found.group_of_roots_file), (Who::User(1002), None));
        let link = directory.path().join("link");
        symlink(&file, &link).unwrap();
        assert_eq!(decider(&link).unwrap().unwrap().who, Who::User(1002));
        std::os::unix::fs::lchown(&link, Some(1003), None).unwrap();
        assert_eq!(decider(&link).unwrap().unwrap().who, Who::User(1003));
    }

    #[test]
    fn what_somebody_else_could_replace_is_not_roots_as_root() {
        assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        let place = |name: &str| directory.path().join(name);
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(private(&place("state/scans")).is_ok(), "it would be made by us");
        fs::create_dir(place("state")).unwrap();
        assert!(private(&place("state")).is_ok());
        chown(place("state"), Some(1001), None).unwrap();
        assert!(matches!(private(&place("state")), Err(NotPrivate::Owner(1001))));
        assert!(matches!(private(&place("state/scans")), Err(NotPrivate::Writer(_))));
        // Root's own directory, to which a link of somebody else leads.
        fs::create_dir(place("roots")).unwrap();
        symlink(place("roots"), place("state/scans")).unwrap();
        std::os::unix::fs::lchown(place("state/scans"), Some(1001), None).unwrap();
        assert!(matches!(private(&place("state/scans")), Err(NotPrivate::Writer(_))));
        // Everybody may make files in it, and nobody may replace ours.
        fs::create_dir(place("sticky")).unwrap();
        fs::set_permissions(place("sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(private(&place("sticky/scans")).is_ok());
        fs::create_dir(place("sticky/scans")).unwrap();
        assert!(private(&place("sticky/scans")).is_ok());
        fs::set_permissions(place("sticky/scans"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(private(&place("sticky/scans")), Err(NotPrivate::Writer(_))));
    }
}
