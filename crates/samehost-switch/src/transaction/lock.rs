//! Who is at work where: an flock on each directory in which files change. It holds between any two users and any two
//! state directories, for everybody opens the same directory; the kernel frees it when its process ends, however.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Stat, flock, fstat, major, minor};
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
fn process(file: impl AsFd) -> Option<u32> {
    holder(&fs::read_to_string("/proc/locks").ok()?, &fstat(file).ok()?)
}

/// The holder in the words of /proc/locks: `12: FLOCK  ADVISORY  WRITE 4242 fe:00:131074 0 EOF`. Where no line has the
/// device, one with the inode alone must do: btrfs has another device there than in stat.
fn holder(locks: &str, file: &Stat) -> Option<u32> {
    let inode = file.st_ino.to_string();
    let device = format!("{:02x}:{:02x}:", major(file.st_dev), minor(file.st_dev));
    let held = |on: &str| {
        locks.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, _, process, place, ..] = words[..] else { return None };
            let same = place.starts_with(on) && place.rsplit(':').next() == Some(&inode);
            process.parse().ok().filter(|process| same && *process > 0)
        })
    };
    held(&device).or_else(|| held(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_of_this_device() {
        let file = rustix::fs::stat("/proc/self").unwrap();
        let (major, minor, inode) = (major(file.st_dev), minor(file.st_dev), file.st_ino);
        let line = |process: u32, major: u32| {
            format!("1: FLOCK  ADVISORY  WRITE {process} {major:02x}:{minor:02x}:{inode} 0 EOF\n")
        };
        assert_eq!(holder(&(line(7, major + 1) + &line(8, major)), &file), Some(8));
        assert_eq!(holder(&line(7, major + 1), &file), Some(7));
        assert_eq!(holder(&line(7, major).replace("FLOCK", "-> FLOCK"), &file), None);
        assert_eq!(holder("", &file), None);
    }
}
