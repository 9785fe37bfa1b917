//! What the trees of Apache's and nginx' configurations have in common: the main file above a part, and included files.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::files::{Files, glob, is_pattern};
use crate::refusal::{At, Refusal};

/// The main file of one of these names in a directory above a part of the configuration.
pub(super) fn main_of(file: &Path, names: &[&str], files: &dyn Files) -> Option<PathBuf> {
    for directory in file.ancestors().skip(1).take(4) {
        for name in names {
            let main = directory.join(name);
            if main != file && files.read(&main).is_ok() {
                return Some(main);
            }
        }
    }
    None
}

/// The files that an include names.
pub(super) fn named(full: PathBuf, files: &dyn Files) -> io::Result<Vec<PathBuf>> {
    let pattern = full.as_os_str().as_bytes();
    if is_pattern(pattern) { glob(files, pattern) } else { Ok(vec![full]) }
}

/// The refusal of a file that cannot be read; `from` is the include that names it.
pub(super) fn unreadable(path: &Path, from: Option<At<'_>>, error: &io::Error) -> Refusal {
    match from {
        Some(include) => include.refusal(
            format!("{}: {error}", path.display()),
            "make the file readable, or remove the include; then try again",
        ),
        None => Refusal::new(path, 0, error.to_string(), "make the file readable; then try again"),
    }
}
