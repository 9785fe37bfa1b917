//! PHP's four kinds of string literals: decodes them, with the variables in them, and writes another value in their place.

use std::ops::Range;

use tree_sitter::Node;

use super::Run;
use super::expressions::{here, inherit};
use super::source::Source;
use super::value::{Quoting, TOO_LARGE, Value, Valued};
use crate::budget::Evaluated;
use crate::languages::syntax::children;
use crate::lines::{around, has_only};

/// Range of a string literal's content; an expression has none.
pub(crate) fn content(source: &Source, node: Node<'_>) -> Option<(Quoting, Range<usize>)> {
    let range = node.byte_range();
    match node.kind() {
        "string" | "encapsed_string" => {
            let text = source.of(node);
            let open = if text.first()?.eq_ignore_ascii_case(&b'b') { 2 } else { 1 };
            let quoting = if node.kind() == "string" { Quoting::Single } else { Quoting::Double };
            if range.start + open >= range.end {
                return None;
            }
            Some((quoting, range.start + open..range.end - 1))
        }
        "heredoc" | "nowdoc" => {
            let quoting = if node.kind() == "heredoc" { Quoting::Heredoc } else { Quoting::Nowdoc };
            let text = source.of(node);
            let start = range.start + text.iter().position(|byte| *byte == b'\n')? + 1;
            let tag = node.child_by_field_name("end_tag")?;
            let closing = source.slice(start..tag.end_byte());
            let last = closing.iter().rposition(|byte| *byte == b'\n').map(|at| start + at);
            let Some(mut end) = last else { return Some((quoting, start..start)) };
            if source.text.get(end.wrapping_sub(1)) == Some(&b'\r') && end > start {
                end -= 1;
            }
            Some((quoting, start..end))
        }
        _ => None,
    }
}

/// Spaces and tabs before the closing name of a heredoc, which PHP removes from each line.
pub(crate) fn indentation(source: &Source, node: Node<'_>) -> Vec<u8> {
    let Some(tag) = node.child_by_field_name("end_tag") else { return Vec::new() };
    let line = around(&source.text, tag.end_byte()).start;
    let bytes = source.slice(line..tag.end_byte());
    let length = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    bytes[..length].to_vec()
}

/// Value of a literal's bytes; `None` if PHP would not accept them.
pub(crate) fn decode(quoting: Quoting, text: &[u8]) -> Option<Vec<u8>> {
    match quoting {
        Quoting::Single => Some(single(text)),
        Quoting::Double => escaped(text, true),
        Quoting::Heredoc => escaped(text, false),
        Quoting::Nowdoc => Some(text.to_vec()),
        Quoting::Expression => None,
    }
}

fn single(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'\\', Some(next @ (b'\\' | b'\''))) => {
                out.push(*next);
                bytes.next();
            }
            _ => out.push(byte),
        }
    }
    out
}

/// Escapes of double quotes, as in zend_scan_escape_string; in a heredoc `\"` stays as it is.
fn escaped(text: &[u8], quoted: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (byte, next) = (text[at], text.get(at + 1).copied());
        let (b'\\', Some(next)) = (byte, next) else {
            out.push(byte);
            at += 1;
            continue;
        };
        at += 2;
        match next {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'v' => out.push(0x0b),
            b'e' => out.push(0x1b),
            b'f' => out.push(0x0c),
            b'\\' | b'$' => out.push(next),
            b'"' if quoted => out.push(next),
            b'0'..=b'7' => {
                let digits = run(&text[at - 1..], 3, |byte| matches!(byte, b'0'..=b'7'));
                let number = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
                out.push(u8::try_from(number & 0xff).ok()?);
                at += digits.len() - 1;
            }
            b'x' => {
                let digits = run(&text[at..], 2, |byte| byte.is_ascii_hexdigit());
                if digits.is_empty() {
                    out.extend_from_slice(b"\\x");
                } else {
                    out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                }
                at += digits.len();
            }
            b'u' if text.get(at) == Some(&b'{') => {
                let digits = run(&text[at + 1..], 8, |byte| byte.is_ascii_hexdigit());
                if text.get(at + 1 + digits.len()) != Some(&b'}') {
                    return None;
                }
                let code = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
                out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
                at += digits.len() + 2;
            }
            _ => out.extend_from_slice(&[b'\\', next]),
        }
    }
    Some(out)
}

fn run(text: &[u8], most: usize, wanted: impl Fn(u8) -> bool) -> &[u8] {
    let length = text.iter().take(most).take_while(|byte| wanted(**byte)).count();
    &text[..length]
}

/// A value in the form of a literal: the bytes that replace its content, or the whole expression. `None` for anything
/// but plain letters, digits and the punctuation of hosts and paths, which are literal in all four kinds.
pub(crate) fn encode(quoting: Quoting, value: &str) -> Option<String> {
    if !has_only(value, "/._@+,=~:[]-") {
        return None;
    }
    Some(match quoting {
        Quoting::Expression => format!("'{value}'"),
        _ => value.to_owned(),
    })
}

impl Run<'_> {
    pub(super) fn string(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let Some((quoting, mut range)) = content(source, node) else {
            return source.unknown(node, "this string is not understood");
        };
        let document = matches!(quoting, Quoting::Heredoc | Quoting::Nowdoc);
        let parts = if node.kind() == "heredoc" { node.child_by_field_name("value") } else { Some(node) };
        let mut parts: Vec<Node<'_>> = parts.map(children).unwrap_or_default();
        let fixed = ["string_content", "escape_sequence", "nowdoc_body", "heredoc_start", "heredoc_end"];
        parts.retain(|part| !fixed.contains(&part.kind()));
        if document {
            let indentation = indentation(source, node);
            let lines = source.slice(range.clone()).contains(&b'\n');
            if lines && (!indentation.is_empty() || !parts.is_empty()) {
                return source.unknown(node, "this is a text of several lines");
            }
            if !source.slice(range.clone()).starts_with(&indentation) && !range.is_empty() {
                return source.unknown(node, "this heredoc's indentation is wrong");
            }
            range.start = (range.start + indentation.len()).min(range.end);
        }
        if parts.is_empty() {
            return match decode(quoting, source.slice(range.clone())) {
                Some(text) => {
                    let mut valued = here(source, node, Value::Text(text));
                    if let Some(place) = &mut valued.place {
                        (place.range, place.quoting, place.comment) = (range, quoting, false);
                    }
                    valued
                }
                None => source.unknown(node, "this string has an escape that PHP does not know"),
            };
        }
        self.joined(source, node, quoting, range, parts)
    }

    /// The text of a string with these parts in it, which are evaluated.
    fn joined(
        &mut self,
        source: &Source,
        node: Node<'_>,
        quoting: Quoting,
        range: Range<usize>,
        parts: Vec<Node<'_>>,
    ) -> Valued {
        let mut text = Evaluated::default();
        let mut at = range.start;
        for part in parts {
            let mut until = part.start_byte();
            let mut after = part.end_byte();
            let braces = source.text.get(until.wrapping_sub(1)) == Some(&b'{');
            if braces && source.text.get(after) == Some(&b'}') {
                (until, after) = (until - 1, after + 1);
            }
            let valued = self.evaluate(source, part);
            match (valued.value.text(), decode(quoting, source.slice(at..until.max(at)))) {
                (Some(value), Some(before)) => {
                    text.extend(&before);
                    text.extend(&value);
                }
                _ => return inherit(valued, || source.trouble(node, "this string holds what is not known")),
            }
            at = after;
            if Self::is_too_long(text.len()) {
                return source.unknown(node, TOO_LARGE);
            }
        }
        match decode(quoting, source.slice(at..range.end.max(at))) {
            Some(rest) => {
                text.extend(&rest);
            }
            None => return source.unknown(node, "this string has an escape that PHP does not know"),
        }
        Valued { value: Value::Text(text.into_bytes()), place: None, via: Some(source.of(node).to_vec()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_say_what_php_says() {
        let double = |text: &str| decode(Quoting::Double, text.as_bytes()).unwrap();
        assert_eq!(double(r"127\x2e0\56\060.1\u{3a}3306"), b"127.0.0.1:3306");
        assert_eq!(double(r#"\q\"\$\x"#), br#"\q"$\x"#);
        assert_eq!(decode(Quoting::Heredoc, br#"\""#).unwrap(), br#"\""#);
        assert_eq!(decode(Quoting::Single, br"it\'s \n \\").unwrap(), br"it's \n \");
        assert_eq!(decode(Quoting::Double, br"\u{zz}"), None);
        assert_eq!(encode(Quoting::Double, "$x"), None);
    }
}
