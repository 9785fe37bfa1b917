//! Reads a file that may hold passwords: a regular one of sensible length, and the permissions of that very file.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use samehost_system::open;

/// The longest file of passwords.
const LONGEST: u64 = 1 << 20;

/// Its permission bits and its text.
pub(crate) fn read(path: &Path) -> io::Result<(u32, String)> {
    let file = open::regular(path)?;
    let mode = file.metadata()?.mode();
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok((mode, text))
}
