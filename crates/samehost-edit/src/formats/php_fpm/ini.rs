//! The lines of a PHP-FPM configuration, as FPM reads them: each by itself, with PHP's INI scanner. Independent of
//! settings.

use std::ops::Range;

use crate::lines::{self, trim};

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// `[www]`
    Section(String),
    /// `listen = 127.0.0.1:9000`
    Entry(Entry),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// As written; FPM ignores its case.
    pub(super) key: String,
    /// Range of the value, without quotes.
    pub(super) range: Range<usize>,
    /// The value, if it is literal; otherwise why it is not understood.
    pub(super) value: Result<String, &'static str>,
    /// The whole line without its newline.
    pub(super) line: Range<usize>,
    /// Its number, from 1.
    pub(super) number: u32,
}

impl Entry {
    pub(super) fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }
}

/// The lines of a text that are not empty.
pub(super) fn lines(text: &[u8]) -> Vec<Line> {
    let mark = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let all = lines::lines(text).into_iter();
    all.filter_map(|one| line(text, one.range.start.max(mark)..one.range.end, one.number)).collect()
}

/// Content of a line; `None` if it is empty or a comment.
fn line(text: &[u8], range: Range<usize>, number: u32) -> Option<Line> {
    let range = trim(text, range);
    let bytes = &text[range.clone()];
    if bytes.is_empty() || bytes[0] == b';' {
        return None;
    }
    if bytes[0] == b'[' {
        let end = bytes.iter().position(|byte| *byte == b']')?;
        let name = String::from_utf8_lossy(&bytes[1..end]).into_owned();
        return Some(Line::Section(name.trim().trim_matches(['"', '\'']).to_owned()));
    }
    let equals = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
    let key = String::from_utf8_lossy(&bytes[..equals]).trim().to_owned();
    let rest = trim(text, (range.start + equals + 1).min(range.end)..range.end);
    let (range_of_value, value) = value(text, rest);
    Some(Line::Entry(Entry { key, range: range_of_value, value, line: range, number }))
}

/// Range and content of a value.
fn value(text: &[u8], range: Range<usize>) -> (Range<usize>, Result<String, &'static str>) {
    let bytes = &text[range.clone()];
    if let Some(quote @ (b'"' | b'\'')) = bytes.first().copied() {
        let Some(length) = bytes[1..].iter().position(|byte| *byte == quote) else {
            return (range, Err("its quote is not closed"));
        };
        let inner = range.start + 1..range.start + 1 + length;
        let behind = text[inner.end + 1..range.end].trim_ascii_start();
        if !(behind.is_empty() || behind[0] == b';') {
            return (range, Err("it is put together from parts"));
        }
        let value = literal(&text[inner.clone()]);
        return (inner, value);
    }
    let length = bytes.iter().position(|byte| *byte == b';').unwrap_or(bytes.len());
    let inner = trim(text, range.start..range.start + length);
    let value = literal(&text[inner.clone()]);
    (inner, value)
}

/// Text of a value, if nothing in it is special to PHP.
fn literal(bytes: &[u8]) -> Result<String, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    if text.contains("${") {
        Err("it has a variable of the environment in it")
    } else if text.contains(['"', '\'', '\\', '(', ')', '|', '&', '!', '^', '~', '#', '{', '}']) {
        Err("it has characters that mean something to PHP")
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_fpm_takes_them_for() {
        let parsed = |text: &str| {
            let found = lines(text.as_bytes());
            let one = |line: &Line| match line {
                Line::Section(name) => format!("[{name}]"),
                Line::Entry(entry) => {
                    let value = entry.value.clone().unwrap_or_else(|reason| format!("({reason})"));
                    format!("{}:{}={value}", entry.number, entry.key)
                }
            };
            found.iter().map(one).collect::<Vec<_>>()
        };
        assert_eq!(parsed("[www] ; x\n;a=b\n\n listen\t=\t9000 ; y\r\n"), ["[www]", "4:listen=9000"]);
        assert_eq!(parsed("a=\"b;c\" ; d\nb='c'"), ["1:a=b;c", "2:b=c"]);
        assert_eq!(parsed("\u{feff}[\"www\"]\na="), ["[www]", "2:a="]);
        assert_eq!(parsed("a"), ["1:a="]);
        assert!(parsed("a = \"b\"c")[0].contains('(') && parsed("a = ${b}")[0].contains('('));
        assert!(parsed("a = \"b")[0].contains('('));
    }
}
