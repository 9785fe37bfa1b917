//! Files as an editor sees them: those of a source, or with some of them replaced by their new content; and patterns of their
//! names as in glob(3), which servers use for includes.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where an editor reads; what is behind it limits the length and the type of files.
/// Editors are pure, and are a crate that cannot touch the disk. As a folder of the crate that writes
/// users' files as root, one of them read the disk past the files that it was given. Formats are many and
/// large and the transaction is small and dangerous, so the two need different reviews. What editors read is counted
/// in `budget.rs` (docs/decisions/0086).
pub trait Files {
    /// Content of a file; symbolic links are followed.
    ///
    /// # Errors
    /// As std's.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Full paths of a directory's entries, sorted; for includes with patterns.
    ///
    /// # Errors
    /// As std's.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    /// The path without symbolic links, as programs know their own files (`__DIR__` in PHP); unchanged if it cannot be
    /// resolved.
    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn exists(&self, path: &Path) -> bool {
        self.read(path).is_ok() || self.list(path).is_ok()
    }
}

/// Files with new content: the given ones, and an underlying source for all others.
pub struct Overlay<'a> {
    below: &'a dyn Files,
    changed: BTreeMap<PathBuf, Vec<u8>>,
}

impl<'a> Overlay<'a> {
    #[must_use]
    pub fn new(below: &'a dyn Files, changed: BTreeMap<PathBuf, Vec<u8>>) -> Self {
        Overlay { below, changed }
    }
}

impl Files for Overlay<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self.changed.get(path) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.below.read(path),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut made: Vec<PathBuf> =
            self.changed.keys().filter(|path| path.parent() == Some(directory)).cloned().collect();
        match self.below.list(directory) {
            Ok(entries) => made.extend(entries),
            Err(error) if made.is_empty() => return Err(error),
            Err(_) => {}
        }
        made.sort();
        made.dedup();
        Ok(made)
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.below.real(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.changed.contains_key(path) || self.below.exists(path)
    }
}

#[cfg(test)]
pub(crate) struct TestDisk;

#[cfg(test)]
impl Files for TestDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut entries =
            std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        Ok(entries)
    }
}

pub(crate) fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// Files that match a pattern, sorted as by glob(3); empty if nothing matches.
/// Servers hand the patterns of their includes to glob(3), so its rules decide: `*`, `?`, `[…]` and a
/// backslash count within one component, and a leading dot matches itself only. A pattern without any of them
/// is returned as a path whether or not there is such a file; the server decides what a missing one means.
///
/// # Errors
/// When a directory is there and cannot be listed.
pub fn glob(files: &dyn Files, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = vec![if pattern.starts_with(b"/") { "/".into() } else { PathBuf::new() }];
    let parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    for (index, part) in parts.iter().enumerate() {
        if !is_pattern(part) {
            for path in &mut found {
                path.push(std::ffi::OsString::from_vec(unescaped(part)));
            }
            continue;
        }
        let mut next = Vec::new();
        for directory in &found {
            let entries = match files.list(directory) {
                Ok(entries) => entries,
                Err(error) if missing(&error) => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                if entry.file_name().is_some_and(|name| matches(part, name.as_bytes())) {
                    next.push(entry);
                }
            }
        }
        found = next;
        if found.is_empty() || index + 1 == parts.len() {
            break;
        }
    }
    // A path after a pattern may not exist.
    let last_is_literal = parts.last().is_some_and(|part| !is_pattern(part));
    if last_is_literal && is_pattern(pattern) {
        found.retain(|path| is_listed(files, path));
    }
    found.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    Ok(found)
}

/// The files that an include names, by a path or a pattern.
pub(crate) fn included(full: PathBuf, files: &dyn Files) -> io::Result<Vec<PathBuf>> {
    let pattern = full.as_os_str().as_bytes();
    if is_pattern(pattern) { glob(files, pattern) } else { Ok(vec![full]) }
}

/// The main file of one of these names in a directory above a part of a configuration.
pub(crate) fn main_of(file: &Path, names: &[&str], files: &dyn Files) -> Option<PathBuf> {
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

fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_listed(files: &dyn Files, path: &Path) -> bool {
    let Some(parent) = path.parent() else { return false };
    files.list(parent).is_ok_and(|entries| entries.iter().any(|entry| entry == path))
}

fn unescaped(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut escaped = false;
    for byte in part {
        if *byte == b'\\' && !escaped {
            escaped = true;
        } else {
            escaped = false;
            out.push(*byte);
        }
    }
    out
}

/// Whether a name matches a pattern of one path component. A leading dot only matches itself.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // Position of the last star, and how much of the name it matches: the usual backtracking by one step.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match step(&pattern[p..], name[n]) {
            Step::Star => {
                star = Some((p + 1, n));
                p += 1;
            }
            Step::One(length) => {
                p += length;
                n += 1;
            }
            Step::No => match star {
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    (p, n) = (after, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

enum Step {
    Star,
    One(usize),
    No,
}

fn step(pattern: &[u8], byte: u8) -> Step {
    match pattern {
        [] => Step::No,
        [b'*', ..] => Step::Star,
        [b'?', ..] => Step::One(1),
        [b'[', rest @ ..] => match set(rest, byte) {
            Some((true, length)) => Step::One(length + 1),
            Some((false, _)) => Step::No,
            // Not a set: the bracket itself.
            None if byte == b'[' => Step::One(1),
            None => Step::No,
        },
        [b'\\', one, ..] if *one == byte => Step::One(2),
        [b'\\', _, ..] => Step::No,
        [one, ..] if *one == byte => Step::One(1),
        _ => Step::No,
    }
}

/// Whether a byte is in a set such as `a-z]`, and the set's length; `None` if it is not closed.
fn set(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    let first = at;
    let mut inside = false;
    loop {
        match pattern.get(at)? {
            b']' if at > first => return Some((inside != negated, at + 1)),
            from => {
                let to = pattern.get(at + 2).filter(|to| pattern.get(at + 1) == Some(&b'-') && **to != b']');
                inside |= (*from..=*to.unwrap_or(from)).contains(&byte);
                at += if to.is_some() { 3 } else { 1 };
            }
        }
    }
}

/// Bytes that replace others in a file, as few as possible; everything else in the file stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edit {
    /// The file; a missing one is created from the edits at 0..0.
    pub file: PathBuf,
    /// The replaced bytes of the current file; an empty range inserts.
    pub range: Range<usize>,
    pub with: Vec<u8>,
}

impl Edit {
    pub fn new(file: &Path, range: Range<usize>, with: impl Into<Vec<u8>>) -> Self {
        Edit { file: file.to_owned(), range, with: with.into() }
    }
}

/// Why edits cannot be applied. Always a bug in an editor, never the user's mistake.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EditError {
    #[error("two edits of {0} are about the same bytes")]
    Overlap(PathBuf),
    #[error("an edit of {0} is about bytes that it does not have")]
    Outside(PathBuf),
}

/// A file's text with its edits applied; the same edit given twice counts once.
///
/// # Errors
/// When two overlap, or one is outside of the text.
pub fn apply(text: &[u8], edits: &[&Edit]) -> Result<Vec<u8>, EditError> {
    let mut sorted: Vec<&Edit> = edits.to_vec();
    sorted.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut given = HashSet::new();
    sorted.retain(|edit| given.insert(*edit));
    let mut out = Vec::with_capacity(text.len() + 64);
    let mut at = 0;
    for edit in sorted {
        if edit.range.start < at {
            return Err(EditError::Overlap(edit.file.clone()));
        }
        if edit.range.start > edit.range.end || edit.range.end > text.len() {
            return Err(EditError::Outside(edit.file.clone()));
        }
        out.extend_from_slice(&text[at..edit.range.start]);
        out.extend_from_slice(&edit.with);
        at = edit.range.end;
    }
    out.extend_from_slice(&text[at..]);
    Ok(out)
}

/// The edit of a text at position `at` of a file; `None` if nothing changes.
pub(crate) fn minimal(file: &Path, at: usize, before: &str, after: &str) -> Option<Edit> {
    if before == after {
        return None;
    }
    let start = before.bytes().zip(after.bytes()).take_while(same).count();
    let (old, new) = (&before.as_bytes()[start..], &after.as_bytes()[start..]);
    let end = old.iter().rev().copied().zip(new.iter().rev().copied()).take_while(same).count();
    Some(Edit::new(file, at + start..at + before.len() - end, &new[..new.len() - end]))
}

fn same((a, b): &(u8, u8)) -> bool {
    a == b
}

#[cfg(test)]
mod tests {
    use super::{TestDisk, *};

    #[test]
    fn names_match_as_glob_has_them() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".a.conf", false),
            (".*", ".a", true),
            ("*.conf", "a.conf.bak", false),
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("[0-9]*.conf", "10-a.conf", true),
            ("[!0-9]*.conf", "10-a.conf", false),
            ("[^.]*", "a", true),
            ("[]a]", "]", true),
            ("?.conf", "a.conf", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_found_below_directories() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b/x.conf", "a/x.conf", "a/y.txt", "c/z.conf"] {
            std::fs::create_dir_all(root.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(root.path().join(name), "").unwrap();
        }
        let found = |pattern: &str| -> Vec<String> {
            let pattern = format!("{}/{pattern}", root.path().display());
            let found = glob(&TestDisk, pattern.as_bytes()).unwrap();
            found.iter().map(|path| path.strip_prefix(root.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(found("*/*.conf"), ["a/x.conf", "b/x.conf", "c/z.conf"]);
        assert_eq!(found("*/x.conf"), ["a/x.conf", "b/x.conf"]);
        assert_eq!(found("d/*.conf"), [""; 0]);
        assert_eq!(found("[ab]/x.*"), ["a/x.conf", "b/x.conf"]);
    }

    fn edit(range: Range<usize>, with: &str) -> Edit {
        Edit::new(Path::new("f"), range, with)
    }

    #[test]
    fn everything_else_stays() {
        let (a, b) = (edit(1..2, "XY"), edit(4..4, "!"));
        assert_eq!(apply(b"abcd", &[&b, &a, &a]).unwrap(), b"aXYcd!");
        assert_eq!(apply(b"abcd", &[]).unwrap(), b"abcd");
        // Several at the end of a file that does not exist yet.
        let (title, one, two) = (edit(0..0, "t"), edit(0..0, "1"), edit(0..0, "2"));
        assert_eq!(apply(b"", &[&title, &one, &title, &two]).unwrap(), b"t12");
    }

    #[test]
    fn mistakes_are_seen() {
        let (a, b) = (edit(1..3, ""), edit(2..4, ""));
        assert!(matches!(apply(b"abcd", &[&a, &b]), Err(EditError::Overlap(_))));
        assert!(matches!(apply(b"ab", &[&a]), Err(EditError::Outside(_))));
    }

    #[test]
    fn only_what_differs() {
        let edit = minimal(Path::new("f"), 10, "redis://localhost:1", "redis://host:1").unwrap();
        assert_eq!(edit, Edit::new(Path::new("f"), 18..23, ""));
        assert_eq!(minimal(Path::new("f"), 0, "same", "same"), None);
    }
}
