//! The drop-in with the changes. The vendor's file and the administrator's own stay as they are; what our drop-in sets
//! already is changed in place.

use super::unit::{Assignment, Unit};
use crate::edit::Edit;
use crate::files::Files;
use crate::lines::{self, lines};

/// Its first line.
const HEADER: &str = "# Made by samehost switch\n";

/// An edit that changes an assignment in our drop-in; `None` if it is in another file.
pub(super) fn in_place(unit: &Unit, counted: &Assignment, value: &str) -> Option<Edit> {
    (counted.file == unit.ours()).then(|| Edit::new(&counted.file, counted.range.clone(), value))
}

/// The edits that add lines to our drop-in, which may not exist yet.
pub(super) fn add(unit: &Unit, files: &dyn Files, section: &str, new: &[String]) -> Vec<Edit> {
    let file = unit.ours();
    let text = lines::read(&file, files).unwrap_or_default();
    let at = text.len();
    let header = if text.is_empty() { HEADER } else { "" };
    let gap = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
    let name = if is_in(&text, section) { String::new() } else { format!("[{section}]\n") };
    let title = format!("{gap}{header}{name}");
    let body: String = new.iter().map(|line| format!("{line}\n")).collect();
    let mut edits = Vec::new();
    // Several moves share one section title.
    if !title.is_empty() {
        edits.push(Edit::new(&file, at..at, title));
    }
    edits.push(Edit::new(&file, at..at, body));
    edits
}

/// Whether the last section of a text is this one.
fn is_in(text: &[u8], section: &str) -> bool {
    let title = format!("[{section}]");
    let last =
        lines(text).into_iter().rev().find(|line| text[line.range.clone()].trim_ascii().starts_with(b"["));
    last.is_some_and(|line| text[line.range].trim_ascii() == title.as_bytes())
}
