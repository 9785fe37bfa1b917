//! Reads a file that may contain passwords: only a regular file of limited length, with the permissions of
//! the file that was opened.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use samehost_system::open;

/// Longest password file.
const LONGEST: u64 = 1 << 20;

/// Permission bits and text of the file.
pub(crate) fn read(path: &Path) -> io::Result<(u32, String)> {
    let file = open::regular(path)?;
    let mode = file.metadata()?.mode();
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok((mode, text))
}
