//! Files that a test compares, and programs that it makes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::must;

/// Copies a program, to be started under another name. `cp` does it: what this process had open for writing could not be
/// started ("Text file busy") while a child that another thread just forked still holds the descriptor.
///
/// # Panics
/// When `cp` fails, as where the program is not installed.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let [from, to] = [from.as_ref(), to.as_ref()].map(|path| path.to_str().expect("a path in UTF-8"));
    must("cp", &["--preserve=mode", from, to]);
}

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
