//! The smallest edit that turns one text into another.

use std::path::Path;

use crate::edit::Edit;

/// The edit of a text at position `at` of a file; `None` if nothing changes.
pub(crate) fn minimal(file: &Path, at: usize, before: &str, after: &str) -> Option<Edit> {
    if before == after {
        return None;
    }
    let same = |(a, b): &(u8, u8)| a == b;
    let start = before.bytes().zip(after.bytes()).take_while(same).count();
    let (old, new) = (&before.as_bytes()[start..], &after.as_bytes()[start..]);
    let end = old.iter().rev().copied().zip(new.iter().rev().copied()).take_while(same).count();
    Some(Edit::new(file, at + start..at + before.len() - end, &new[..new.len() - end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs() {
        let edit = minimal(Path::new("f"), 10, "redis://localhost:1", "redis://host:1").unwrap();
        assert_eq!(edit, Edit::new(Path::new("f"), 18..23, ""));
        assert_eq!(minimal(Path::new("f"), 0, "same", "same"), None);
    }
}
