//! What prevents that a file is replaced by another, or would be lost by it. Permissions and free space are not predicted;
//! preparing the versions tests them.
//!
//! Replacing by a rename changes the inode: hard links would part, immutable and append-only files refuse it, a file that
//! is a mount point cannot be replaced from here, and a seal or a signature would not fit the new content. Writing in place
//! was rejected, because a kill would leave a part of a file. The refusal says what to try, such as `chattr -i`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, fstat, fstatfs, stat, statx};

use crate::error::{TransactionError, refused};
use crate::version::Regular;

/// OVERLAYFS_SUPER_MAGIC of linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;

/// Where engines of containers keep the layers of what runs in them.
const OF_ENGINES: &[&str] =
    &["/docker/", "/containers/storage/", "/containerd/", "/buildkit/", "/lxc/", "/lxd/", "/kubelet/"];

/// What stands in the way, and what to try.
pub(crate) struct Held {
    pub(crate) reason: String,
    pub(crate) hint: String,
}

impl Held {
    fn new(reason: &str, hint: impl Into<String>) -> Self {
        Held { reason: reason.to_owned(), hint: hint.into() }
    }

    pub(crate) fn refused(&self, path: &Path) -> TransactionError {
        refused(path, &self.reason, &self.hint)
    }
}

/// Refuses a directory in which files cannot be replaced.
pub(crate) fn can_make_files(path: &Path, descriptor: BorrowedFd<'_>) -> Result<(), TransactionError> {
    if let Some(held) = held_directory(path, descriptor) {
        return Err(held.refused(path));
    }
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        reason = "the type differs between architectures"
    )]
    let is_layered = matches!(fstatfs(descriptor), Ok(found) if found.f_type as u64 == OVERLAY);
    if is_layered && !is_on_root(descriptor) && is_of_a_container(descriptor) {
        return Err(refused(
            path,
            "is a container's layered file system, and lost with the container",
            "change the image, or the volume that the container mounts",
        ));
    }
    Ok(())
}

/// What keeps a directory's names as they are.
pub(crate) fn held_directory(path: &Path, descriptor: BorrowedFd<'_>) -> Option<Held> {
    let (reason, hint) = flag(descriptor)?;
    Some(Held::new(&format!("the directory is {reason}"), format!("{hint} {}", path.display())))
}

/// Whether a directory is on the file system of `/`: inside of a container its layered file system is the place to work.
fn is_on_root(directory: BorrowedFd<'_>) -> bool {
    match (fstat(directory), stat("/")) {
        (Ok(own), Ok(root)) => own.st_dev == root.st_dev,
        _ => false,
    }
}

/// Whether a layered file system is a container's: mounted where this system has no such mount (`/proc/PID/root`), or with its
/// layers where engines keep them. Any other one is the host's own, such as that of a live system, and kept as long as its
/// upper directory is.
fn is_of_a_container(directory: BorrowedFd<'_>) -> bool {
    let number = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", directory.as_raw_fd()));
    let number = number.unwrap_or_default();
    let Some(number) = number.lines().find_map(|line| line.strip_prefix("mnt_id:")) else { return true };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_it = mounts.lines().find(|line| line.split(' ').next() == Some(number.trim()));
    let upper =
        of_it.and_then(|mount| mount.split([',', ' ']).find_map(|word| word.strip_prefix("upperdir=")));
    match upper {
        // Engines also name it relative to their own directory.
        Some(upper) => !upper.starts_with('/') || OF_ENGINES.iter().any(|place| upper.contains(place)),
        None => of_it.is_none(),
    }
}

/// Refuses a file that cannot be replaced by another without losing something.
pub(crate) fn can_replace(path: &Path, found: &Regular) -> Result<(), TransactionError> {
    if let Some(held) = held(path, found) {
        return Err(held.refused(path));
    }
    let links = links(found);
    if links > 1 {
        return Err(refused(
            path,
            &format!("the file has {links} names (hard links), and replacing it would part them"),
            "find them (find DIR -samefile FILE), and keep one, or edit by hand",
        ));
    }
    Ok(())
}

/// How many names a file has.
#[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
pub(crate) fn links(found: &Regular) -> u64 {
    u64::from(found.stat.st_nlink)
}

/// What keeps a file in its place, or would be lost with it.
pub(crate) fn held(path: &Path, found: &Regular) -> Option<Held> {
    if let Some((reason, hint)) = flag(found.file.as_fd()) {
        return Some(Held::new(&format!("the file is {reason}"), format!("{hint} {}", path.display())));
    }
    let attributes = attributes(found.file.as_fd());
    if attributes.contains(StatxAttributes::VERITY) {
        return Some(Held::new(
            "the file is sealed by fs-verity, and would not be afterwards",
            "edit it by hand, and seal it anew",
        ));
    }
    if attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Some(Held::new(
            "the file is a mount of its own, and cannot be replaced from here",
            "change the file that is mounted here (findmnt names it)",
        ));
    }
    None
}

/// Refuses files with a signature, which would not fit the new content.
pub(crate) fn refuse_signed(
    path: &Path,
    attributes: Option<&BTreeMap<String, Vec<u8>>>,
) -> Result<(), TransactionError> {
    let mut names = attributes.into_iter().flat_map(BTreeMap::keys);
    match names.find(|name| matches!(name.as_str(), "security.ima" | "security.evm")) {
        None => Ok(()),
        Some(name) => Err(refused(
            path,
            &format!("the file is signed ({name}), and would not be afterwards"),
            "edit it by hand, and sign it anew",
        )),
    }
}

/// The attribute (chattr) that prevents a change, as an adjective, and the command that removes it; `None` where there is
/// none, or the file system shows none.
fn flag(of: BorrowedFd<'_>) -> Option<(&'static str, &'static str)> {
    let found = attributes(of);
    if found.contains(StatxAttributes::IMMUTABLE) {
        Some(("immutable", "try: chattr -i"))
    } else if found.contains(StatxAttributes::APPEND) {
        Some(("append-only", "try: chattr -a"))
    } else {
        None
    }
}

fn attributes(of: BorrowedFd<'_>) -> StatxAttributes {
    match statx(of, OsStr::new(""), AtFlags::EMPTY_PATH, StatxFlags::empty()) {
        Ok(found) => found.stx_attributes,
        Err(_) => StatxAttributes::empty(),
    }
}
