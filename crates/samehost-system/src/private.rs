//! Whether a directory is one that only this user can change: where journals and stored results are kept. For root that
//! includes the whole path, because whoever can replace a part of it can plant what root would believe.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::ownership::{ForeignWriter, foreign_writer};

/// Why a directory is not ours alone.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    /// It cannot be looked at.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It belongs to this user.
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
    if let Some(found) = found.as_ref().filter(|found| found.uid() != user.as_raw()) {
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
    foreign_writer(looked_at, &[])?.map_or(Ok(()), |foreign| Err(NotPrivate::Writer(foreign)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

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
