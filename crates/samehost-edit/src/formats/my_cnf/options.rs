//! MySQL's and MariaDB's option files, parsed as by their programs (my_default.c): groups, includes in their places,
//! quotes, escapes and comments. Independent of the options' meaning.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::budget::Metered;
use crate::files::Files;
use crate::lines::{self, Line, lines, utf8};
use crate::refusal::{At, Refusal, Result};

/// Maximum depth of includes, as in the programs.
const DEEPEST: usize = 10;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) group: String,
    /// Name of the option, in lower case and with dashes.
    pub(super) name: String,
    /// Its value; `None` if the line has no `=`.
    pub(super) value: Option<String>,
    /// The value as written, with quotes.
    pub(super) written: Range<usize>,
    pub(super) file: PathBuf,
    pub(super) line: Line,
}

impl Entry {
    pub(super) fn refusal(&self, reason: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.file, self.line.number, reason, by_hand)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) group: String,
    pub(super) file: PathBuf,
    pub(super) line: Line,
}

/// The options in the order in which the programs read them.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) blocks: Vec<Block>,
    pub(super) entries: Vec<Entry>,
}

impl Options {
    pub(super) fn read(file: &Path, files: &Metered<'_>) -> Result<Options> {
        let mut options = Options::default();
        options.collect(file, files, 0)?;
        Ok(options)
    }

    pub(super) fn last(&self, groups: &[&str], name: &str) -> Option<&Entry> {
        self.entries.iter().rfind(|entry| entry.name == name && groups.contains(&entry.group.as_str()))
    }

    fn collect(&mut self, file: &Path, files: &Metered<'_>, depth: usize) -> Result<()> {
        let text = lines::read(file, files)?;
        let mut block = None;
        for line in lines(&text) {
            let here = At { file, line: line.number };
            let range = trim(&text, line.range.clone());
            let content = &text[range.clone()];
            match content.first() {
                None | Some(b'#' | b';') => {}
                Some(b'!') => self.include(here, content, files, depth)?,
                Some(b'[') => {
                    let Some(end) = content.iter().position(|byte| *byte == b']') else {
                        return Err(here.refusal(
                            "the group has no closing bracket",
                            "write the `]`: the programs do not start with it",
                        ));
                    };
                    let group = String::from_utf8_lossy(&content[1..end]).trim_end().to_ascii_lowercase();
                    block = Some(self.blocks.len());
                    self.blocks.push(Block { group, file: file.to_owned(), line: line.clone() });
                }
                Some(_) => {
                    if content.contains(&0) {
                        return Err(here.refusal("it has a NUL byte", "remove it"));
                    }
                    let Some(block) = block else {
                        return Err(here.refusal(
                            "an option stands before the first group (or the file begins with a byte order mark)",
                            "write `[client]` or `[mysqld]` above it: the programs do not start with it"));
                    };
                    self.entry(file, &text, &line, range, block);
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, file: &Path, text: &[u8], line: &Line, range: Range<usize>, block: usize) {
        let range = trim(text, range.start..comment(text, range));
        let equals = text[range.clone()].iter().position(|byte| *byte == b'=').map(|at| range.start + at);
        let name = trim(text, range.start..equals.unwrap_or(range.end));
        let name = String::from_utf8_lossy(&text[name]).to_ascii_lowercase().replace('_', "-");
        let (value, written) = match equals {
            Some(at) => {
                let written = trim(text, at + 1..range.end);
                let value = unescaped(bare(&text[written.clone()]));
                (Some(String::from_utf8_lossy(&value).into_owned()), written)
            }
            None => (None, range.end..range.end),
        };
        self.entries.push(Entry {
            group: self.blocks[block].group.clone(),
            name,
            value,
            written,
            file: file.to_owned(),
            line: line.clone(),
        });
    }

    fn include(&mut self, here: At<'_>, content: &[u8], files: &Metered<'_>, depth: usize) -> Result<()> {
        let Some(content) = utf8(content) else {
            return Err(here.refusal("the include is not UTF-8", "write the included options here"));
        };
        let (word, path) = content.split_once([' ', '\t']).unwrap_or((content, ""));
        let path = path.trim();
        if !path.starts_with('/') || depth == DEEPEST {
            let reason = format!("`{content}` is not understood, or nests too deep");
            return Err(here.refusal(reason, "name the included file by its whole path"));
        }
        match word {
            "!include" => match files.read(Path::new(path)) {
                // The programs ignore a missing file.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                _ => self.collect(Path::new(path), files, depth + 1),
            },
            "!includedir" => {
                let entries = files.list(Path::new(path)).map_err(|error| {
                    here.refusal(format!("{path} cannot be listed: {error}"), "correct the directory's name")
                })?;
                for entry in entries {
                    if entry.extension().is_some_and(|extension| extension == "cnf") {
                        self.collect(&entry, files, depth + 1)?;
                    }
                }
                Ok(())
            }
            _ => Err(here.refusal(
                format!("`{word}` is not understood"),
                "name the included file with `!include /PATH`",
            )),
        }
    }
}

fn trim(text: &[u8], range: Range<usize>) -> Range<usize> {
    let (mut start, mut end) = (range.start, range.end);
    while start < end && is_space(text[start]) {
        start += 1;
    }
    while end > start && is_space(text[end - 1]) {
        end -= 1;
    }
    start..end
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Start of a comment after an option, or the end: a `#` outside of quotes.
fn comment(text: &[u8], range: Range<usize>) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for at in range.clone() {
        let byte = text[at];
        if matches!(byte, b'\'' | b'"') && !escaped {
            match quote {
                None => quote = Some(byte),
                Some(open) if open == byte => quote = None,
                Some(_) => {}
            }
        }
        if quote.is_none() && byte == b'#' {
            return at;
        }
        escaped = quote.is_some() && byte == b'\\' && !escaped;
    }
    range.end
}

fn bare(value: &[u8]) -> &[u8] {
    match value {
        [first @ (b'\'' | b'"'), inner @ .., last] if first == last => inner,
        _ => value,
    }
}

fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < value.len() {
        let next = value.get(at + 1).copied();
        let special = match (value[at], next) {
            (b'\\', Some(b'n')) => Some(b'\n'),
            (b'\\', Some(b't')) => Some(b'\t'),
            (b'\\', Some(b'r')) => Some(b'\r'),
            (b'\\', Some(b'b')) => Some(8),
            (b'\\', Some(b's')) => Some(b' '),
            (b'\\', Some(same @ (b'"' | b'\'' | b'\\'))) => Some(same),
            _ => None,
        };
        out.push(special.unwrap_or(value[at]));
        at += if special.is_some() { 2 } else { 1 };
    }
    out
}

/// A value in the quotes of the one that it replaces; `None` if that is not safe.
pub(super) fn quoted(value: &str, like: &[u8]) -> Option<String> {
    if value.contains(['"', '\'', '\\']) {
        return None;
    }
    let like = if bare(like).len() < like.len() { like.first().copied() } else { None };
    Some(match like {
        Some(quote) => format!("{0}{value}{0}", char::from(quote)),
        None if lines::is_plain(value) => value.to_owned(),
        None => format!("\"{value}\""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_programs_do() {
        fn value(text: &[u8]) -> String {
            let end = comment(text, 0..text.len());
            String::from_utf8(unescaped(bare(&text[trim(text, 0..end)]))).unwrap()
        }
        assert_eq!(value(b" \"/a#b\"#c"), "/a#b");
        assert_eq!(value(b"/a\\sb\\\\c\\q\"d\""), "/a b\\c\\q\"d\"");
        assert_eq!(value(b" a \"b\" c  # d"), "a \"b\" c");
        assert_eq!(value(b"a;b"), "a;b");
        assert_eq!(value(b"\"a\\\"b\""), "a\"b");
        assert_eq!(value(b"'"), "'");
    }
}
