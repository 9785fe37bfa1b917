//! Reads a file that may contain passwords: only a regular file of limited length, with the permissions of
//! the file that was opened.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use samehost_system::open;

/// Longest password file.
const LONGEST: u64 = 1 << 20;

/// Permission bits and text of the file.
pub(crate) fn read(path: &Path) -> io::Result<(u32, String)> {
    text_of(open::regular(path)?)
}

/// The same of a file as a process sees it, which has to be its user's own: nobody else's is read for it.
pub(crate) fn read_of_process(pid: u32, uid: u32, path: &Path) -> io::Result<(u32, String)> {
    let file = open::regular_in_root(pid, path)?;
    if file.metadata()?.uid() != uid {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's"));
    }
    text_of(file)
}

fn text_of(file: File) -> io::Result<(u32, String)> {
    let mode = file.metadata()?.mode();
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok((mode, text))
}
