//! Checks whether a file can be changed and put back exactly, before anything is touched. Permissions and free space
//! are not predicted here; preparing the versions tests them.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, fstat, fstatfs, stat, statx};

use crate::error::{TransactionError, refused};
use crate::version::Regular;

/// What statfs calls overlayfs.
const OVERLAY: u64 = 0x794c_7630;

/// Refuses a directory in which files cannot be replaced.
pub(crate) fn directory(path: &Path, descriptor: BorrowedFd<'_>) -> Result<(), TransactionError> {
    if let Some(flag) = flag(descriptor, OsStr::new("")) {
        let (reason, hint) = (format!("the directory is {}", flag.0), flag.1.to_owned() + " ");
        return Err(refused(path, &reason, &(hint + &path.display().to_string())));
    }
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        reason = "the type differs between architectures"
    )]
    let overlay = fstatfs(descriptor).is_ok_and(|found| found.f_type as u64 == OVERLAY);
    let ours = || Some(fstat(descriptor).ok()?.st_dev == stat("/").ok()?.st_dev);
    if overlay && ours() != Some(true) {
        return Err(refused(
            path,
            "is a container's layered file system, and lost with the container",
            "change the image, or the volume that the container mounts",
        ));
    }
    Ok(())
}

/// Refuses a file that cannot be replaced by another without losing something.
pub(crate) fn file(
    path: &Path,
    directory: BorrowedFd<'_>,
    name: &OsStr,
    found: &Regular,
) -> Result<(), TransactionError> {
    if let Some((reason, hint)) = flag(directory, name) {
        return Err(refused(path, &format!("the file is {reason}"), &format!("{hint} {}", path.display())));
    }
    #[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
    let links = u64::from(found.stat.st_nlink);
    if links > 1 {
        return Err(refused(
            path,
            &format!("the file has {links} names (hard links), and replacing it would part them"),
            "find them (find DIR -samefile FILE), and keep one, or edit by hand",
        ));
    }
    let attributes = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())
        .map_or(StatxAttributes::empty(), |found| found.stx_attributes);
    if attributes.contains(StatxAttributes::VERITY) {
        return Err(refused(
            path,
            "the file is sealed by fs-verity, and would not be afterwards",
            "edit it by hand, and seal it anew",
        ));
    }
    if attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(refused(
            path,
            "the file is a mount of its own, and cannot be replaced from here",
            "change the file that is mounted here (findmnt names it)",
        ));
    }
    Ok(())
}

/// Refuses files with a signature, which would not fit the new content.
pub(crate) fn signed<'a>(
    path: &Path,
    mut attributes: impl Iterator<Item = &'a String>,
) -> Result<(), TransactionError> {
    match attributes.find(|name| matches!(name.as_str(), "security.ima" | "security.evm")) {
        None => Ok(()),
        Some(name) => Err(refused(
            path,
            &format!("the file is signed ({name}), and would not be afterwards"),
            "edit it by hand, and sign it anew",
        )),
    }
}

/// The attribute (chattr) that prevents a change, and the command that removes it.
fn flag(directory: BorrowedFd<'_>, name: &OsStr) -> Option<(&'static str, &'static str)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let found = statx(directory, name, flags, StatxFlags::empty()).ok()?.stx_attributes;
    if found.contains(StatxAttributes::IMMUTABLE) {
        Some(("immutable", "try: chattr -i"))
    } else if found.contains(StatxAttributes::APPEND) {
        Some(("append-only", "try: chattr -a"))
    } else {
        None
    }
}
