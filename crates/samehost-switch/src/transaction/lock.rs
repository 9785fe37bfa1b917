//! Who is at work where: an flock on each directory in which files change. It holds between any two users and any two
//! state directories, for everybody opens the same directory; the kernel frees it when its process ends, however.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;

use super::TransactionError;
use super::directory::Directory;
use super::error::{Holder, at};
use super::store::Store;
use super::writer;

/// Locks a directory, or says who has it.
pub(super) fn lock(store: &Store, path: &Path, directory: &Directory) -> Result<(), TransactionError> {
    match flock(directory.descriptor(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let mut holder = Holder { process: process(directory.descriptor()), ..Holder::default() };
            holder.program = holder
                .process
                .and_then(|process| fs::read_to_string(format!("/proc/{process}/comm")).ok())
                .map(|name| name.trim().to_owned());
            holder.id = holder
                .process
                .and_then(|process| store.run_by(process))
                .or_else(|| directory.names(".").ok()?.iter().find_map(|name| writer::id_of(name)));
            Err(TransactionError::Busy { path: path.to_owned(), holder })
        }
        Err(error) => Err(at(path, "lock the directory")(error.into())),
    }
}

/// Which process holds the flock of a file, as /proc/locks tells.
pub(super) fn process(file: impl AsFd) -> Option<u32> {
    let inode = fstat(file).ok()?.st_ino.to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // 12: FLOCK  ADVISORY  WRITE 4242 fe:00:131074 0 EOF; btrfs has another device here than in stat.
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let held = words.get(1) == Some(&"FLOCK") && words.get(5)?.rsplit(':').next() == Some(&inode);
        held.then(|| words.get(4)?.parse().ok()).flatten()
    })
}
