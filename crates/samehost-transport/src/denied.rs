//! Finds the component of a path that denies access to a socket. Changes nothing.

use std::fmt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// A missing permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Search permission on a directory (its x bit).
    Search,
    /// Write permission on the socket (its w bit), required for connecting.
    Write,
    /// Unknown: the file permissions suffice, so a security module or a user namespace may be the cause.
    Unknown,
}

/// The component of a path that denies access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The path up to and including that component.
    pub part: PathBuf,
    /// The missing permission.
    pub right: Right,
    /// Its permission bits, owner and group; `None` if not visible.
    pub held_by: Option<(u32, u32, u32)>,
    /// The user who was denied.
    pub uid: u32,
}

impl Denied {
    /// Checks the path from its root, and returns the first component that this process may not use.
    #[must_use]
    pub fn on_the_way_to(path: &Path) -> Denied {
        let allowed = |part: &Path, access| accessat(CWD, part, access, AtFlags::EACCESS).is_ok();
        let mut directories: Vec<&Path> = path.ancestors().skip(1).collect();
        directories.reverse();
        let denied = directories
            .into_iter()
            .map(|directory| if directory.as_os_str().is_empty() { Path::new(".") } else { directory })
            .find(|directory| !allowed(directory, Access::EXEC_OK));
        let (part, right) = match denied {
            Some(directory) => (directory, Right::Search),
            None if allowed(path, Access::WRITE_OK) => (path, Right::Unknown),
            None => (path, Right::Write),
        };
        Denied {
            part: part.to_owned(),
            right,
            held_by: part.metadata().ok().map(|found| (found.mode() & 0o7777, found.uid(), found.gid())),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied { part, right, held_by, uid } = self;
        let what = match part.metadata().map(|found| found.file_type()) {
            Ok(kind) if kind.is_dir() => "directory ",
            Ok(kind) if kind.is_socket() => "socket ",
            _ => "",
        };
        let part = part.display();
        let rights = match held_by {
            Some((mode, owner, group)) => format!(" (mode {mode:04o}, owner uid {owner}, group gid {group})"),
            None => String::new(),
        };
        match right {
            Right::Search => write!(
                f,
                "the {what}{part}{rights} may not be searched by uid {uid}; join its group, or give it the x bit (`chmod o+x {part}`)"
            ),
            Right::Write => write!(
                f,
                "the {what}{part}{rights} may not be written by uid {uid}, which connecting needs; join its group, or set the server's socket mode (0660 or 0666)"
            ),
            Right::Unknown => write!(
                f,
                "the modes of {part}{rights} allow it to uid {uid}, so something else forbids it; look for SELinux or AppArmor denials (`dmesg`, `ausearch -m avc`)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_it_cannot_explain() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let denied = Denied::on_the_way_to(&path);
        assert_eq!(denied.right, Right::Unknown);
        assert!(denied.to_string().contains("SELinux"), "{denied}");
    }
}
