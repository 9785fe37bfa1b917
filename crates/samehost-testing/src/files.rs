//! Files that a test compares.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a directory and of those in it: content by path.
///
/// # Panics
/// When one cannot be read.
#[must_use]
pub fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                ahead.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).expect("a path below the directory");
            found.insert(name.to_owned(), fs::read(&path).expect("a file"));
        }
    }
    found
}
