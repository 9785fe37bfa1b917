//! The lines of a configuration that PHP's INI scanner reads (Zend/zend_ini_scanner.l): php.ini as a whole, and the files
//! of PHP-FPM line by line. Independent of settings.

use std::ops::Range;

use crate::lines::{self, has_only, trim};
use crate::refusal::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quotes {
    /// To the end of the line: PHP-FPM gives PHP one line after the other.
    OfALine,
    OfAFile,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Section(String),
    /// `listen = 127.0.0.1:9000`
    Entry(Entry),
    /// A line at which PHP may stop reading the file, by its number; with [`Quotes::OfAFile`] only.
    Odd(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As written; FPM ignores its case.
    pub(crate) key: String,
    /// Range of the value, without quotes.
    pub(crate) range: Range<usize>,
    /// The value, if it is literal; otherwise why it is not understood.
    pub(crate) value: Result<String, Reason>,
    pub(crate) quote: Option<u8>,
    /// The whole line without its newline.
    pub(crate) line: Range<usize>,
    pub(crate) number: u32,
}

impl Entry {
    pub(crate) fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }
}

/// The lines of a text that are not empty, as they are asked for: a list of them took 80 times as much as the text.
pub(crate) fn lines(text: &[u8], quotes: Quotes) -> impl Iterator<Item = Line> {
    let mark = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let (mut all, mut behind) = (lines::lines(text), mark);
    let mut next = None;
    std::iter::from_fn(move || {
        while next.is_none() {
            let one = all.next()?;
            if one.range.start < behind && one.range.start != 0 {
                continue;
            }
            let range = one.range.start.max(mark)..one.range.end;
            let content = text[range.clone()].trim_ascii();
            let mut is_odd_here =
                quotes == Quotes::OfAFile && content.starts_with(b"[") && !content.contains(&b']');
            if let Some((line, end)) = line(text, range, one.number, quotes) {
                is_odd_here |= quotes == Quotes::OfAFile && is_odd(text, &line, one.range.start);
                behind = end;
                next = Some(line);
            }
            if is_odd_here {
                return Some(Line::Odd(one.number));
            }
        }
        next.take()
    })
}

/// Content of a line, and where its value ends; `None` if it is empty or a comment.
fn line(text: &[u8], range: Range<usize>, number: u32, quotes: Quotes) -> Option<(Line, usize)> {
    let range = trim(text, range);
    let bytes = &text[range.clone()];
    if bytes.is_empty() || bytes[0] == b';' {
        return None;
    }
    if bytes[0] == b'[' {
        let end = bytes.iter().position(|byte| *byte == b']')?;
        let name = String::from_utf8_lossy(&bytes[1..end]).into_owned();
        return Some((Line::Section(name.trim().trim_matches(['"', '\'']).to_owned()), range.end));
    }
    let equals = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
    let key = String::from_utf8_lossy(&bytes[..equals]).trim().to_owned();
    let rest = trim(text, (range.start + equals + 1).min(range.end)..range.end);
    let Value { range: range_of_value, value, quote, end } = value(text, rest, quotes);
    let entry = Entry { key, range: range_of_value, value, quote, line: range, number };
    Some((Line::Entry(entry), end))
}

/// Whether a line may be an error to PHP, which ignores all that follows one.
fn is_odd(text: &[u8], line: &Line, start: usize) -> bool {
    let is_plain =
        |text: &[u8]| !text.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t' && *byte != b'\n');
    match line {
        Line::Section(_) => {
            let whole = text[lines::around(text, start)].trim_ascii();
            let end = whole.iter().position(|byte| *byte == b']').map_or(whole.len(), |end| end + 1);
            let behind = &whole[end..];
            !is_plain(whole) || !matches!(behind.trim_ascii().first(), None | Some(b';'))
        }
        Line::Entry(entry) => {
            let written = &text[entry.range.clone()];
            let is_whole = match entry.quote {
                Some(b'"') => !written.windows(2).any(|two| two == b"${") || entry.value.is_err(),
                Some(_) => true,
                None => is_expression(written),
            };
            !is_key(&entry.key) || !is_plain(written) || !is_whole
        }
        Line::Odd(_) => true,
    }
}

/// Whether a key is a name, with an index behind it or not. Words for values are none.
fn is_key(key: &str) -> bool {
    let name = match key.split_once('[') {
        Some((name, index)) if index.ends_with(']') => name,
        Some(_) => return false,
        None => key,
    };
    let is_word =
        ["null", "yes", "no", "true", "false", "on", "off", "none"].contains(&&*name.to_ascii_lowercase());
    !name.is_empty() && has_only(name, "._-:/ ") && !is_word
}

/// Whether a value without quotes is one word, or constants with operators: `E_ALL & ~E_STRICT`.
fn is_expression(value: &[u8]) -> bool {
    if !value.iter().any(|byte| b"\"'\\()|&!^~{}=$".contains(byte)) {
        return true;
    }
    let mut parts = value.split(|byte| b"|&^".contains(byte)).map(<[u8]>::trim_ascii);
    parts.all(|part| {
        let name = part.strip_prefix(b"~").or_else(|| part.strip_prefix(b"!")).unwrap_or(part);
        !name.is_empty() && has_only(name, "_")
    })
}

struct Value {
    range: Range<usize>,
    value: Result<String, Reason>,
    quote: Option<u8>,
    /// Where it ends, its quotes included.
    end: usize,
}

fn value(text: &[u8], range: Range<usize>, quotes: Quotes) -> Value {
    let refused = |why, end| Value { range: range.clone(), value: Err(why), quote: None, end };
    let bytes = &text[range.clone()];
    if let Some(quote @ (b'"' | b'\'')) = bytes.first().copied() {
        let limit = if quotes == Quotes::OfAFile { text.len() } else { range.end };
        let Some(close) = closing(&text[..limit], range.start + 1, quote) else {
            return refused("its quote is not closed".into(), limit);
        };
        let inner = range.start + 1..close;
        let end = lines::around(text, close).end;
        let behind = text[close + 1..end].trim_ascii();
        if !(behind.is_empty() || behind[0] == b';') {
            return refused("it is put together from parts".into(), end);
        }
        let value = literal(&text[inner.clone()], Some(quote));
        return Value { range: inner, value, quote: Some(quote), end };
    }
    let length = bytes.iter().position(|byte| *byte == b';').unwrap_or(bytes.len());
    let inner = trim(text, range.start..range.start + length);
    let value = literal(&text[inner.clone()], None);
    Value { range: inner, value, quote: None, end: range.end }
}

/// Where a quote closes; in double quotes a backslash takes away what the next character means.
fn closing(text: &[u8], from: usize, quote: u8) -> Option<usize> {
    let mut at = from;
    while at < text.len() && text[at] != quote {
        at += if quote == b'"' && text[at] == b'\\' { 2 } else { 1 };
    }
    if at < text.len() { Some(at) } else { None }
}

/// Text of a value, if nothing in it is special to PHP.
fn literal(bytes: &[u8], quote: Option<u8>) -> Result<String, Reason> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    let special: &[char] = match quote {
        Some(b'\'') => return Ok(text.to_owned()),
        Some(_) => &['\\'],
        None => &['"', '\'', '\\', '(', ')', '|', '&', '!', '^', '~', '#', '{', '}', '='],
    };
    if text.contains("${") {
        Err("it has a variable of the environment in it".into())
    } else if text.contains(special) {
        Err("it has characters that mean something to PHP".into())
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &Line) -> String {
        match line {
            Line::Odd(number) => format!("{number}?"),
            Line::Section(name) => format!("[{name}]"),
            Line::Entry(entry) => {
                let value = entry.value.clone().unwrap_or_else(|reason| format!("({reason})"));
                format!("{}:{}={value}", entry.number, entry.key)
            }
        }
    }

    #[test]
    fn lines_are_what_fpm_takes_them_for() {
        fn parsed(text: &str) -> Vec<String> {
            let found = lines(text.as_bytes(), Quotes::OfALine);
            found.map(|line| shown(&line)).collect()
        }
        assert_eq!(parsed("[www] ; x\n;a=b\n\n listen\t=\t9000 ; y\r\n"), ["[www]", "4:listen=9000"]);
        assert_eq!(parsed("a=\"b;c\" ; d\nb='c'"), ["1:a=b;c", "2:b=c"]);
        assert_eq!(parsed("\u{feff}[\"www\"]\na="), ["[www]", "2:a="]);
        assert_eq!(parsed("a"), ["1:a="]);
        assert!(parsed("a = \"b\"c")[0].contains('(') && parsed("a = ${b}")[0].contains('('));
        assert!(parsed("a = \"b")[0].contains('('));
    }

    #[test]
    fn a_line_at_which_php_stops_is_known() {
        fn is_odd(text: &str) -> bool {
            lines(text.as_bytes(), Quotes::OfAFile).any(|line| line == Line::Odd(1))
        }
        for text in [
            "a = b=c", "\"a = b", "a = \"b\" \"c\"", "[a] b", "a = b(c", "a\u{1} = b", "a = \"b", "a = b & ",
            "[a", "]", "a[b", "on = 1",
        ] {
            assert!(is_odd(text), "{text}");
        }
        for text in [
            "a = E_ALL & ~E_STRICT", "[a] ; b", "a = \"b=c;&\" ; d", "a.b = x, y z/?*", "a[b] =",
            "a = '${x}'",
        ] {
            assert!(!is_odd(text), "{text}");
        }
    }

    #[test]
    fn quotes_of_a_file_may_go_over_several_lines() {
        let text = b"a = \"x\n; b = 1\n[c]\" ; d\ne = tcp://h:1?x=2\nf = 'a=b&c' \ng = \"a&b=c\"\nh = \"a\\\"\ni=1\"\nj = 2";
        let found = lines(text, Quotes::OfAFile);
        let found: Vec<String> = found.map(|line| shown(&line)).collect();
        assert_eq!(found[..2], ["1:a=x\n; b = 1\n[c]", "4?"]);
        assert!(found[2].starts_with("4:e=(") && found[5].starts_with("7:h=("), "{found:?}");
        assert_eq!(found[3..5], ["5:f=a=b&c", "6:g=a&b=c"]);
        assert_eq!(found[6..], ["9:j=2"]);
    }
}
