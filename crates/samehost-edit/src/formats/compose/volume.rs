//! The edits that mount a volume in a service, and declare it.

use std::path::Path;

use super::service::Service;
use crate::edit::Edit;
use crate::languages::yaml::{Document, Kind, Node, line_at, newline_at};

const ONE_LINE: &str = "its volumes are not written as a list of lines";

/// A file to edit.
pub(super) struct Text<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    pub(super) document: &'a Document,
}

impl Text<'_> {
    /// Mounts a source at a directory of a service.
    pub(super) fn mount(
        &self,
        service: &Service<'_>,
        source: &str,
        directory: &str,
    ) -> Result<Edit, &'static str> {
        let volume = format!("{source}:{directory}");
        match service.map.get("volumes") {
            Some((_, list)) => {
                let Kind::List(items) = &list.kind else { return Err(ONE_LINE) };
                let first = items.first().ok_or(ONE_LINE)?;
                let line = line_at(self.text, first.range.start);
                let before = self.before(first)?;
                let dash = before.trim_start();
                if !dash.starts_with('-') || !dash[1..].trim().is_empty() {
                    return Err(ONE_LINE);
                }
                let newline = newline_at(self.text, line.end);
                Ok(Edit::new(self.file, line.start..line.start, format!("{before}{volume}{newline}")))
            }
            None => {
                let (indent, newline, at) = self.below(service.map)?;
                let with = format!("{newline}{indent}volumes:{newline}{indent}  - {volume}");
                Ok(Edit::new(self.file, at..at, with))
            }
        }
    }

    /// Declares a volume in the file; `None` if it is declared.
    pub(super) fn declare(&self, name: &str) -> Result<Option<Edit>, &'static str> {
        let Some((_, volumes)) = self.document.root.get("volumes") else {
            let newline = newline_at(self.text, self.text.len());
            let break_before = if self.text.ends_with('\n') { "" } else { newline };
            let end = self.text.len();
            let with = format!("{break_before}{newline}volumes:{newline}  {name}:{newline}");
            return Ok(Some(Edit::new(self.file, end..end, with)));
        };
        if volumes.get(name).is_some() {
            return Ok(None);
        }
        let (first, _) = volumes.pairs().first().ok_or("its volumes are declared in an unusual way")?;
        let line = line_at(self.text, first.range.start);
        let before = self.before(first)?;
        if !before.bytes().all(|byte| byte == b' ') || before.is_empty() {
            return Err("its volumes are declared on one line");
        }
        let newline = newline_at(self.text, line.end);
        Ok(Some(Edit::new(self.file, line.start..line.start, format!("{before}{name}:{newline}"))))
    }

    /// A new variable below another's line.
    pub(super) fn variable(
        &self,
        at: usize,
        name: &str,
        value: &str,
        is_list: IsList,
    ) -> Result<Edit, &'static str> {
        let line = line_at(self.text, at);
        let before = self.text.get(line.start..at).unwrap_or_default();
        let written = match is_list {
            IsList::Yes if before.trim_start().starts_with('-') => format!("{before}{name}={value}"),
            IsList::No if before.bytes().all(|byte| byte == b' ') => format!("{before}{name}: {value}"),
            _ => return Err("its variables are written on one line"),
        };
        // In a list the quote may be before the name.
        let written = written.replace(['"', '\''], "");
        Ok(Edit::new(self.file, line.end..line.end, format!("{}{written}", newline_at(self.text, line.end))))
    }

    /// The text before a node in its line.
    fn before(&self, node: &Node) -> Result<&str, &'static str> {
        let line = line_at(self.text, node.range.start);
        self.text.get(line.start..node.range.start).ok_or(ONE_LINE)
    }

    /// Indentation of a service's keys, and the end of a line after which a new key can be inserted.
    fn below(&self, map: &Node) -> Result<(String, &'static str, usize), &'static str> {
        let found = ["image", "restart", "container_name", "build", "hostname"].iter().find_map(|name| {
            let (key, value) = map.get(name)?;
            let line = line_at(self.text, key.range.start);
            let indent = self.text.get(line.start..key.range.start)?;
            let rest = self.text.get(value.range.end..line.end)?.trim_start();
            let plain = indent.bytes().all(|byte| byte == b' ') && (rest.is_empty() || rest.starts_with('#'));
            (plain && value.text().is_some())
                .then(|| (indent.to_owned(), newline_at(self.text, line.end), line.end))
        });
        found.ok_or("it is written on one line")
    }
}

/// Whether variables are a list of `NAME=value`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IsList {
    Yes,
    No,
}
