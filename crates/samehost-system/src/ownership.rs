//! Who may change what a path leads to: the file, and every directory on the way, for whoever may write a directory may
//! put another file in its place. Only looks.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The kernel gives up after as many symbolic links (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// Somebody who may change what a path leads to, and is none of those who may.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} can be changed by {by}", path.display())]
pub struct ForeignWriter {
    /// The file or the directory on the way.
    pub path: PathBuf,
    /// Who, in words: `user 33`, `group 1000`, `everyone`.
    pub by: String,
}

/// The first who may change what a path leads to, besides root and the `trusted` users; none where nobody else can.
///
/// A group that may write counts as others, but for root's own. An access control list shows in the group's bits, which
/// are its mask. Of a sticky directory (/tmp) only what is in it and belongs to one of them is safe.
///
/// # Errors
/// The kernel's, when a component is not there or cannot be seen.
pub fn foreign_writer(path: &Path, trusted: &[u32]) -> io::Result<Option<ForeignWriter>> {
    let mut at = PathBuf::from("/");
    let mut above = fs::symlink_metadata(&at)?;
    if let Some(found) = writer(&at, &above, trusted) {
        return Ok(Some(found));
    }
    let mut rest = components(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            above = fs::symlink_metadata(&at)?;
            continue;
        }
        let next = at.join(&name);
        let metadata = fs::symlink_metadata(&next)?;
        let is_sticky = above.mode() & 0o1000 != 0 && is_open(&above);
        if is_sticky && !is_trusted(metadata.uid(), trusted) {
            return Ok(Some(ForeignWriter { path: next, by: format!("user {}", metadata.uid()) }));
        }
        if metadata.file_type().is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error()));
            }
            if !is_trusted(metadata.uid(), trusted) {
                return Ok(Some(ForeignWriter { path: next, by: format!("user {}", metadata.uid()) }));
            }
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
                above = fs::symlink_metadata(&at)?;
            }
            for name in components(&target).into_iter().rev() {
                rest.push_front(name);
            }
            continue;
        }
        // What is in an open sticky directory may be added to, but not replaced: judged at the next component.
        let is_passed = metadata.is_dir() && metadata.mode() & 0o1000 != 0 && !rest.is_empty();
        let found =
            if is_passed { owner(&next, &metadata, trusted) } else { writer(&next, &metadata, trusted) };
        if found.is_some() {
            return Ok(found);
        }
        at = next;
        above = metadata;
    }
    Ok(None)
}

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            _ => None,
        })
        .collect()
}

fn is_trusted(uid: u32, trusted: &[u32]) -> bool {
    uid == 0 || trusted.contains(&uid)
}

fn is_open(metadata: &Metadata) -> bool {
    metadata.mode() & 0o002 != 0 || (metadata.mode() & 0o020 != 0 && metadata.gid() != 0)
}

fn owner(path: &Path, metadata: &Metadata, trusted: &[u32]) -> Option<ForeignWriter> {
    let uid = metadata.uid();
    (!is_trusted(uid, trusted)).then(|| ForeignWriter { path: path.to_owned(), by: format!("user {uid}") })
}

/// Who may write a file or a directory itself.
fn writer(path: &Path, metadata: &Metadata, trusted: &[u32]) -> Option<ForeignWriter> {
    let by = |by: String| Some(ForeignWriter { path: path.to_owned(), by });
    if let Some(found) = owner(path, metadata, trusted) {
        return Some(found);
    }
    match metadata.mode() {
        mode if mode & 0o002 != 0 => by("everyone".into()),
        mode if mode & 0o020 != 0 && metadata.gid() != 0 => by(format!("group {}", metadata.gid())),
        _ => None,
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
    fn one_directory_on_the_way_is_enough() {
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
        // Sticky: nobody can take root's file away, but a link of somebody else's is his.
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
    }
}
