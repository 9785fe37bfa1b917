//! Whether there is room for what a transaction writes: for the backups in the store, and for the versions beside each file. Asked
//! before anything is begun and by a dry run, which says then what the real run would fail with. Reads only.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfs, StatVfsMountFlags, statvfs};

use crate::error::{TransactionError, at};
use crate::intent::Stage;

/// The journal with its notes.
const JOURNAL_BYTES: u64 = 16 * 1024;
/// A directory entry and a file's last block.
const BESIDE_A_FILE_BYTES: u64 = 4096;

/// Checks the file systems of a store (its state directory, which may not be there yet) and of each file.
///
/// # Errors
/// When one of them is read-only, or has less room than is needed.
pub(crate) fn check(state: &Path, stages: &[Stage]) -> Result<(), TransactionError> {
    let mut needed: BTreeMap<u64, (&Path, StatVfs, u64)> = BTreeMap::new();
    let mut add = |path, bytes: u64| -> Result<(), TransactionError> {
        let there = existing(path);
        let device = there.metadata().map_err(at(path, "look for room"))?.dev();
        let found = statvfs(there).map_err(io::Error::from).map_err(at(path, "look for room"))?;
        // Of a mount, and not of its device, which may be mounted twice.
        if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(at(path, "write there")(rustix::io::Errno::ROFS.into()));
        }
        needed.entry(device).or_insert((there, found, 0)).2 += bytes;
        Ok(())
    };
    add(state, JOURNAL_BYTES)?;
    for change in stages.iter().flat_map(|stage| &stage.changes) {
        let length = |version: &Option<Vec<u8>>| version.as_ref().map_or(0, Vec::len) as u64;
        let (before, after) = (length(&change.before), length(&change.after));
        add(state, before + BESIDE_A_FILE_BYTES)?;
        add(&change.path, before + after + 2 * BESIDE_A_FILE_BYTES)?;
    }
    for (path, found, bytes) in needed.into_values() {
        if free_bytes(&found).is_some_and(|free| free < bytes) {
            return Err(at(path, "write there")(rustix::io::Errno::NOSPC.into()));
        }
    }
    Ok(())
}

/// The nearest directory that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("/"))
}

/// What this user may still write; `None` of a file system that does not count blocks.
fn free_bytes(found: &StatVfs) -> Option<u64> {
    let blocks = if rustix::process::geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    if found.f_blocks == 0 { None } else { Some(blocks.saturating_mul(found.f_frsize)) }
}
