//! The lines of a .env file, read so that every library agrees: phpdotenv, Symfony's, Ruby's, python-dotenv,
//! django-environ and Node's. Entries that they read differently are marked as unclear.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use crate::files::Edit;
use crate::refusal::{Refusal, Result};

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// From 1.
    pub(super) line: u32,
    pub(super) value: Range<usize>,
    /// The value; `${…}` stands as it is.
    pub(super) text: String,
    /// Whether `$` stands for itself.
    pub(super) literal: bool,
    pub(super) unclear: Option<&'static str>,
    /// Whether there is space around the equals sign, which Symfony and django-environ do not accept.
    pub(super) spaced: bool,
    /// Whether a comment follows an unquoted value, which old versions of django-environ include in it.
    pub(super) commented: bool,
    pub(super) marked: bool,
    pub(super) bare: bool,
    /// The quote that its value opens and does not close in its line.
    opens: Option<u8>,
    /// Text before the name: spaces, `export `.
    before: String,
    end: usize,
}

#[derive(Debug)]
pub(super) struct Lines {
    pub(super) entries: Vec<Entry>,
    /// Which entries have a name, in order: each variable of a connection is asked for by its name.
    named: HashMap<String, Vec<usize>>,
    newline: &'static str,
    text: Vec<u8>,
}

impl Lines {
    pub(super) fn parse(text: &[u8]) -> Result<Lines> {
        let newline = if text.windows(2).any(|pair| pair == b"\r\n") { "\r\n" } else { "\n" };
        let mut lines = Lines { entries: Vec::new(), named: HashMap::new(), newline, text: text.to_owned() };
        let start = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let mut at = start;
        // The quote that an earlier line has opened, and that line.
        let mut open: Option<(u8, u32)> = None;
        for (index, line) in text[start..].split(|byte| *byte == b'\n').enumerate() {
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let body = line.strip_suffix(b"\r").unwrap_or(line);
            if body.contains(&b'\r') {
                return Err(Refusal::at(
                    number,
                    "it has a carriage return inside of a line, where the libraries do not agree",
                ));
            }
            if body.contains(&0) {
                return Err(Refusal::at(number, "it has a zero byte"));
            }
            if let Some((quote, _)) = open {
                if let Some(mut entry) = entry(body, at, number) {
                    entry.unclear = Some("it stands inside of a quoted text of several lines");
                    lines.add(entry);
                }
                if closing(body, quote).is_some() {
                    open = None;
                }
            } else if let Some(mut entry) = entry(body, at, number) {
                entry.marked = start == 3 && index == 0;
                open = entry.opens.map(|quote| (quote, number));
                if open.is_some() {
                    entry.unclear = Some("its value goes over several lines");
                }
                lines.add(entry);
            }
            at += line.len() + 1;
        }
        match open {
            Some((_, line)) => Err(Refusal::at(line, "the quote that this line opens is never closed")),
            None => Ok(lines),
        }
    }

    fn add(&mut self, entry: Entry) {
        self.named.entry(entry.name.clone()).or_default().push(self.entries.len());
        self.entries.push(entry);
    }

    pub(super) fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        let places = self.named.get(name).map_or(&[][..], Vec::as_slice);
        places.iter().map(|place| &self.entries[*place])
    }

    pub(super) fn last(&self, name: &str) -> Option<&Entry> {
        self.all(name).next_back()
    }

    /// The line of a name's last entry; 0 if it has none.
    pub(super) fn line_of(&self, name: &str) -> u32 {
        self.last(name).map_or(0, |entry| entry.line)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.last(name).is_some()
    }

    /// Value of a name, if it is clear and has no variables in it.
    pub(super) fn literal(&self, name: &str) -> Option<&str> {
        let entry = self.last(name).filter(|entry| entry.unclear.is_none() && entry.is_plain())?;
        Some(&entry.text)
    }

    /// An entry whose value has a variable in it, and would change with it.
    pub(super) fn user_of(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| !entry.literal && uses(&entry.text, name))
    }

    /// An edit that sets a variable: in place, or in a new line below another's.
    pub(super) fn set(&self, file: &Path, name: &str, value: &str, below: &Entry) -> Option<Edit> {
        match self.last(name) {
            Some(entry) if entry.text == value => None,
            Some(entry) => Some(Edit::new(file, entry.value.clone(), value)),
            None => {
                let line = format!("{}{}{name}={value}", self.newline_at(below), below.before);
                Some(Edit::new(file, below.end..below.end, line))
            }
        }
    }

    fn newline_at(&self, entry: &Entry) -> &'static str {
        match self.text.get(entry.end) {
            Some(b'\r') => "\r\n",
            Some(_) => "\n",
            None => self.newline,
        }
    }
}

impl Entry {
    pub(super) fn is_plain(&self) -> bool {
        self.literal || !self.text.contains('$')
    }

    /// A refusal of its line that begins with its name.
    pub(super) fn refusal(&self, reason: &str) -> Refusal {
        Refusal::at(self.line, format!("{} {reason}", self.name))
    }
}

/// Whether a value contains a variable: `$NAME` or `${NAME…}`.
fn uses(text: &str, name: &str) -> bool {
    for (at, _) in text.match_indices('$') {
        let rest = &text[at + 1..];
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let Some(behind) = rest.strip_prefix(name) else { continue };
        if !behind.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_') {
            return true;
        }
    }
    false
}

/// Where a quoted text ends; a backslash hides a quote between double quotes only.
fn closing(line: &[u8], quote: u8) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in line.iter().enumerate() {
        if *byte == quote && !is_escaped {
            return Some(at);
        }
        is_escaped = *byte == b'\\' && !is_escaped && quote == b'"';
    }
    None
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn behind_blanks(body: &[u8], from: usize) -> usize {
    from + body[from..].iter().take_while(|byte| is_blank(byte)).count()
}

/// Reads the value of an entry, which begins at `value` of its line; an empty one stands behind the equals sign.
fn read_value(entry: &mut Entry, body: &[u8], equals: usize, value: usize) -> Range<usize> {
    let rest = &body[value..];
    match rest.first().copied() {
        None => {}
        Some(b'#') => entry.commented = true,
        Some(quote @ (b'"' | b'\'')) => {
            let Some(length) = closing(&rest[1..], quote) else {
                (entry.literal, entry.opens) = (quote == b'\'', Some(quote));
                return value..body.len();
            };
            let end = value + 1 + length;
            let after = body.get(end + 1..).unwrap_or_default();
            let tail = after.trim_ascii();
            if !(tail.is_empty() || (tail.starts_with(b"#") && after.first().is_some_and(is_blank))) {
                entry.unclear = Some("something stands behind its closing quote");
            }
            entry.literal = quote == b'\'';
            return value + 1..end;
        }
        Some(b'`') => {
            entry.opens = if closing(&rest[1..], b'`').is_none() { Some(b'`') } else { None };
            entry.unclear = Some("only Node's library takes backticks for quotes");
            return value..body.len();
        }
        Some(_) => {
            let comment = rest.windows(2).position(|pair| is_blank(&pair[0]) && pair[1] == b'#');
            entry.commented = comment.is_some();
            let text = rest[..comment.unwrap_or(rest.len())].trim_ascii_end();
            if text.iter().any(is_blank) {
                entry.unclear = Some("its value has spaces and no quotes");
            } else if text.iter().any(|byte| b"#\"'`".contains(byte)) {
                entry.unclear = Some("its value has a # or a quote inside, and no quotes around it");
            }
            return value..value + text.len();
        }
    }
    equals + 1..equals + 1
}

fn ambiguous(text: &[u8]) -> Option<&'static str> {
    if text.contains(&b'\\') {
        return Some("its value has a backslash");
    }
    if std::str::from_utf8(text).is_err() {
        return Some("its value is not UTF-8");
    }
    if text.windows(2).any(|pair| pair == b"$(") {
        return Some("its value runs a command");
    }
    None
}

fn entry(body: &[u8], at: usize, line: u32) -> Option<Entry> {
    let mut start = behind_blanks(body, 0);
    if body[start..].starts_with(b"export") && body.get(start + 6).is_some_and(is_blank) {
        start = behind_blanks(body, start + 6);
    }
    let length =
        body[start..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    let name = std::str::from_utf8(&body[start..start + length]).ok().filter(|name| !name.is_empty())?;
    let equals = behind_blanks(body, start + length);
    let is_equals = match body.get(equals)? {
        b'=' => true,
        b':' => false,
        _ => return None,
    };
    let value = behind_blanks(body, equals + 1);
    let rest = &body[value..];
    let spaced = is_equals
        && (equals > start + length || (value > equals + 1 && !matches!(rest.first(), None | Some(b'#'))));
    let mut entry = Entry {
        name: name.to_owned(),
        line,
        text: String::new(),
        value: 0..0,
        literal: false,
        unclear: None,
        spaced,
        commented: false,
        opens: None,
        marked: false,
        bare: !matches!(rest.first(), Some(b'"' | b'\'')),
        before: String::from_utf8_lossy(&body[..start]).into_owned(),
        end: at + body.len(),
    };
    let range = read_value(&mut entry, body, equals, value);
    let text = body.get(range.clone()).unwrap_or_default();
    // Backticks take precedence over everything else.
    if rest.first() != Some(&b'`') && !is_equals {
        entry.unclear = Some("only Ruby's library takes a colon for the equals sign");
    }
    entry.unclear = entry.unclear.or_else(|| ambiguous(text));
    entry.text = String::from_utf8_lossy(text).into_owned();
    entry.value = at + range.start..at + range.end;
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Entry {
        Lines::parse(text.as_bytes()).unwrap().entries.remove(0)
    }

    #[test]
    fn values_as_every_library_reads_them() {
        for (text, value) in [
            ("A=b", "b"),
            ("  export A=b  # c", "b"),
            ("A=\"b c\" # d", "b c"),
            ("A='b$c'", "b$c"),
            ("A=", ""),
            ("A=   # nothing", ""),
            ("A=\"\"\r\n", ""),
        ] {
            let entry = one(text);
            assert_eq!((entry.text.as_str(), entry.unclear), (value, None), "{text}");
        }
    }

    #[test]
    fn what_they_do_not_agree_on_is_unclear() {
        for text in ["A=b c", "A=b#c", "A=b\\c", "A: b", "A=\"b\"c", "A=`b`", "A=$(b)", "A=\"b\nc\""] {
            assert!(one(text).unclear.is_some(), "{text}");
        }
        assert!(Lines::parse(b"A=\"b\nC=d\n").is_err());
        assert!(Lines::parse(b"A=b\rC=d\n").is_err());
    }

    #[test]
    fn a_variable_is_used_or_its_name_only_begins_the_same() {
        assert!(uses("redis://${REDIS_HOST}:1", "REDIS_HOST"));
        assert!(uses("$REDIS_HOST", "REDIS_HOST"));
        assert!(!uses("${REDIS_HOST_B}", "REDIS_HOST"));
    }
}
