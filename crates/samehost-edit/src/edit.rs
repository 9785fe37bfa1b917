//! An edit: bytes that replace others in a file, as few as possible. Everything else in the file stays as it is.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes that replace others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edit {
    /// The file; a missing one is created from the edits at 0..0.
    pub file: PathBuf,
    /// The replaced bytes of the current file; an empty range inserts.
    pub range: Range<usize>,
    /// The bytes that come.
    pub with: Vec<u8>,
}

impl Edit {
    /// An edit of a file.
    pub fn new(file: &Path, range: Range<usize>, with: impl Into<Vec<u8>>) -> Self {
        Edit { file: file.to_owned(), range, with: with.into() }
    }
}

/// Why edits cannot be applied. Always a bug in an editor, never the user's mistake.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EditError {
    /// Two of them change the same bytes.
    #[error("two edits of {0} are about the same bytes")]
    Overlap(PathBuf),
    /// One is outside of the file.
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
        let kept = text.get(at..edit.range.start).filter(|_| edit.range.end <= text.len());
        let kept = kept.filter(|_| edit.range.start <= edit.range.end);
        out.extend_from_slice(kept.ok_or_else(|| EditError::Outside(edit.file.clone()))?);
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
    use super::*;

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
