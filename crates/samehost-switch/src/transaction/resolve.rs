//! From the path that a user names to the file that is meant: symbolic links are followed on purpose, or refused.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::TransactionError;
use super::error::at;
use super::examine::refused;

/// As many links as the kernel follows.
const LINKS: usize = 40;

/// The file that a path means: absolute, with no symbolic link in it. A link is followed when root or we ourselves
/// made it, or the owner of what it points to: any other could aim a switch by root at a file that is not its maker's.
/// Of a file that is not there the directories that are there are resolved.
///
/// # Errors
/// [`TransactionError::Refused`] for a link by someone else, a loop, or a link that leads nowhere.
pub fn resolve(path: &Path) -> Result<PathBuf, TransactionError> {
    let absolute = std::path::absolute(path).map_err(at(path, "resolve the path"))?;
    let mut ahead: VecDeque<OsString> = parts(&absolute);
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    let mut absent = false;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let here = resolved.join(&part);
        let found = match fs::symlink_metadata(&here) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                absent = true;
                None
            }
            other => Some(other.map_err(at(&here, "look at it"))?),
        };
        let Some(link) = found.filter(Metadata::is_symlink) else {
            if absent && ahead.iter().any(|part| part == "..") {
                return Err(refused(
                    &here,
                    "is not there, and the path leads through it",
                    "name the file itself",
                ));
            }
            resolved = here;
            continue;
        };
        links += 1;
        if links > LINKS {
            return Err(refused(path, "its symbolic links go round in a circle", "name the file itself"));
        }
        follow(&here, &link)?;
        let target = fs::read_link(&here).map_err(at(&here, "read the link"))?;
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        for part in parts(&target).into_iter().rev() {
            ahead.push_front(part);
        }
    }
    Ok(resolved)
}

/// Whether this link is one to follow.
fn follow(here: &Path, link: &Metadata) -> Result<(), TransactionError> {
    if link.uid() == 0 || link.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let target = match fs::metadata(here) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refused(here, "is a symbolic link that leads nowhere", "name the file itself"));
        }
        other => other.map_err(at(here, "look at what the link points to"))?,
    };
    if target.uid() == link.uid() {
        return Ok(());
    }
    let reason = format!(
        "is a symbolic link by user {} to what is user {}'s, and not followed",
        link.uid(),
        target.uid()
    );
    Err(refused(here, &reason, "if this is meant, name the file that it points to"))
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}
