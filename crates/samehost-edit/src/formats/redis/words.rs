//! The words of a line of redis.conf, split as by the server (sds.c, `sdssplitargs`): double quotes with escapes,
//! single quotes, and words that change their quoting in the middle.

use std::ops::Range;

/// A word and its range, with its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Its bytes, as the server has them.
    pub(super) bytes: Vec<u8>,
    /// Its place in the file.
    pub(super) range: Range<usize>,
}

/// The words in a range of a text; `None` if the quotes are unbalanced.
pub(super) fn words(text: &[u8], range: Range<usize>) -> Option<Vec<Word>> {
    let (mut at, end) = (range.start, range.end);
    let mut found = Vec::new();
    loop {
        while at < end && is_space(text[at]) {
            at += 1;
        }
        if at == end {
            return Some(found);
        }
        let start = at;
        let mut bytes = Vec::new();
        while at < end && !matches!(text[at], b' ' | b'\n' | b'\r' | b'\t') {
            match text[at] {
                quote @ (b'"' | b'\'') => {
                    at = quoted(text, at + 1, end, quote, &mut bytes)?;
                    break;
                }
                byte => bytes.push(byte),
            }
            at += 1;
        }
        found.push(Word { bytes, range: start..at });
    }
}

/// Reads up to the closing quote, after which a word must end; returns the position after it.
fn quoted(text: &[u8], mut at: usize, end: usize, quote: u8, into: &mut Vec<u8>) -> Option<usize> {
    while at < end {
        let next = (at + 1 < end).then(|| text[at + 1]);
        match (text[at], next) {
            (b'\\', Some(b'x')) if quote == b'"' && at + 3 < end && hex(&text[at + 2..at + 4]).is_some() => {
                into.push(hex(&text[at + 2..at + 4])?);
                at += 4;
            }
            (b'\\', Some(escaped)) if quote == b'"' => {
                into.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                at += 2;
            }
            (b'\\', Some(b'\'')) if quote == b'\'' => {
                into.push(b'\'');
                at += 2;
            }
            (byte, next) if byte == quote => return next.is_none_or(is_space).then_some(at + 1),
            (byte, _) => {
                into.push(byte);
                at += 1;
            }
        }
    }
    None
}

/// What C's isspace says.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u8::from_str_radix(digits, 16).ok()
}

/// A value in place of another word, in that one's quotes.
pub(super) fn quote(value: &str, like: &[u8]) -> String {
    let special = value.bytes().any(|byte| is_space(byte) || matches!(byte, b'"' | b'\''));
    match like.first() {
        Some(b'\'') if !value.contains(['\'', '\\']) => format!("'{value}'"),
        Some(b'"' | b'\'') => doubled(value),
        _ if special || value.is_empty() => doubled(value),
        _ => value.to_owned(),
    }
}

fn doubled(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Option<Vec<String>> {
        let found = words(text.as_bytes(), 0..text.len())?;
        Some(found.into_iter().map(|word| String::from_utf8(word.bytes).unwrap()).collect())
    }

    #[test]
    fn splits_as_the_server() {
        let list = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(split("port 6379"), list(&["port", "6379"]));
        assert_eq!(split(" a \"b c\\x41\\n\" 'd\\'e\\n'"), list(&["a", "b cA\n", "d'e\\n"]));
        assert_eq!(split("un\"quo ted\" x"), list(&["unquo ted", "x"]));
        assert_eq!(split("a \"\""), list(&["a", ""]));
        assert_eq!(split("a \"b\"c"), None);
        assert_eq!(split("a 'b"), None);
        assert_eq!(split("a \"\\xzz\""), list(&["a", "xzz"]));
    }

    #[test]
    fn what_is_quoted_reads_back() {
        for value in ["/run/a.sock", "/run/a b", "/q'\"\\x41", ""] {
            for like in ["", "'", "\""] {
                let written = quote(value, like.as_bytes());
                assert_eq!(split(&written).unwrap(), [value], "{written}");
            }
        }
    }
}
