//! Finds a known secret in a text: literally, with any of its characters escaped, and in base64. Whether it
//! is searched for inside words depends on how likely a match is a coincidence.

use std::collections::BTreeSet;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::printable::is_hidden;

/// Minimum length of a secret that is searched for; a shorter one is hidden only next to a name such as
/// `password`. One or two characters match everywhere. A password that is a plain word (`redis`) is
/// hidden only as a word of its own. Hiding such a word everywhere was rejected: stars in
/// `/run/***/***.sock` would tell the password and make the path useless (docs/decisions/0066).
const SHORTEST: usize = 3;

#[derive(Clone)]
pub(super) struct Known {
    pub(super) text: String,
    parts: Vec<Part>,
    /// Whether a coincidental match is unlikely; if not, it must match a whole word.
    pub(super) is_distinctive: bool,
    /// Characters that any base64 text with the secret contains, for each of its three possible alignments.
    base64: Vec<String>,
}

/// A run of hidden characters is one part: each may have been removed or become a space, and 20,000 NULs that are asked for
/// one by one at each place of a text took 5.6 s.
#[derive(Clone)]
enum Part {
    Shown(char),
    Hidden(BTreeSet<char>),
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Known {
    /// `None` if the secret is too short to search for.
    pub(super) fn new(text: &str) -> Option<Self> {
        let chars: Vec<char> = text.trim_matches(is_hidden).chars().collect();
        if chars.len() < SHORTEST {
            return None;
        }
        let mut parts = Vec::new();
        for &c in &chars {
            match parts.last_mut() {
                Some(Part::Hidden(run)) if is_hidden(c) => _ = run.insert(c),
                _ if is_hidden(c) => parts.push(Part::Hidden(BTreeSet::from([c]))),
                _ => parts.push(Part::Shown(c)),
            }
        }
        Some(Known {
            text: text.to_owned(),
            parts,
            is_distinctive: is_distinctive(&chars),
            base64: in_base64(text.as_bytes()),
        })
    }

    pub(super) fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = 0;
        let begins: Vec<u8> = self.text.trim_start_matches(is_hidden).bytes().take(1).collect();
        while at < text.len() {
            // Fifty passwords in the plan of fifty sites took three quarters of its time, nearly all at places where none can begin.
            let byte = text.as_bytes()[at];
            let may_begin = begins.contains(&byte) || BEGINNINGS.contains(&byte);
            if may_begin
                && let Some(end) = self.end_of_match(text, at)
                && self.is_whole_word(text, at, end)
            {
                found.push(at..end);
                at = end;
                continue;
            }
            at += 1;
            while !text.is_char_boundary(at) {
                at += 1;
            }
        }
        for part in &self.base64 {
            found.extend(text.match_indices(part).map(|(at, part)| word_of_base64(text, at, part.len())));
        }
        found
    }

    /// End of the longest occurrence that starts at `at`.
    fn end_of_match(&self, text: &str, at: usize) -> Option<usize> {
        let mut ends = BTreeSet::from([at]);
        for part in &self.parts {
            let mut from: Vec<usize> = ends.iter().copied().collect();
            match part {
                Part::Shown(c) => {
                    ends.clear();
                    from.into_iter().for_each(|end| ends.extend(ends_of_forms(text, end, *c)));
                }
                Part::Hidden(run) => {
                    while let Some(end) = from.pop() {
                        let next = run.iter().flat_map(|c| ends_of_forms(text, end, *c));
                        from.extend(next.filter(|end| ends.insert(*end)).collect::<Vec<_>>());
                    }
                }
            }
            if ends.is_empty() {
                return None;
            }
        }
        ends.pop_last()
    }

    /// Whether a match counts: of a distinctive secret each does. A password that is a plain word (`redis`, `app`) also occurs in
    /// paths and names, and masking it there would reveal it, so it must match a whole word.
    fn is_whole_word(&self, text: &str, start: usize, end: usize) -> bool {
        if self.is_distinctive {
            return true;
        }
        let (before, after) = (&text[..start], &text[end..]);
        let is_number = self.text.bytes().all(|byte| byte.is_ascii_digit());
        let begins = match before.chars().next_back() {
            None => true,
            Some('.') => false,
            Some(':') => !is_number,
            Some(c) => !joins(c) || ends_with_escape(before),
        };
        let mut after = after.chars();
        let ends = match (after.next(), after.next()) {
            (None, _) => true,
            (Some('.' | ':'), Some(c)) => !(joins(c) || c.is_ascii_digit()),
            (Some(c), _) => !joins(c),
        };
        begins && ends
    }
}

fn joins(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '/' | '-')
}

/// Whether a text ends with an escape such as `%3A` or `\n`, whose last letter is not part of a word.
fn ends_with_escape(before: &str) -> bool {
    let bytes = before.as_bytes();
    match bytes {
        [.., b'\\', b'n' | b't' | b'r'] => true,
        [.., b'%', high, low] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
        _ => false,
    }
}

/// Whether a secret is long or has several kinds of characters, so that no ordinary word, number or name equals it.
fn is_distinctive(chars: &[char]) -> bool {
    let kinds: [fn(&char) -> bool; 4] =
        [char::is_ascii_lowercase, char::is_ascii_uppercase, char::is_ascii_digit, |c: &char| {
            !c.is_ascii_alphanumeric()
        }];
    let kinds = kinds.into_iter().filter(|kind| chars.iter().any(kind)).count();
    chars.len() >= 12 || (chars.len() >= 6 && kinds >= 2)
}

/// Base64 characters that depend only on the secret's bytes, for each alignment in a group of three, in both
/// alphabets.
fn in_base64(bytes: &[u8]) -> Vec<String> {
    if bytes.len() < 4 {
        return Vec::new();
    }
    let mut parts = Vec::new();
    for offset in 0..3 {
        let text = STANDARD_NO_PAD.encode([&b"\0\0"[..offset], bytes].concat());
        let (first, last) = ((offset * 8).div_ceil(6), (offset + bytes.len()) * 8 / 6);
        let Some(part) = text.get(first..last) else { continue };
        let safe = part.replace('+', "-").replace('/', "_");
        if safe != part {
            parts.push(safe);
        }
        parts.push(part.to_owned());
    }
    parts
}

/// Extends a match to the whole base64 text, whose other characters contain bits of the secret.
fn word_of_base64(text: &str, at: usize, length: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let before = bytes[..at].iter().rev().take_while(|byte| is_base64(byte) && **byte != b'=').count();
    let after = bytes[at + length..].iter().take_while(|byte| is_base64(byte)).count();
    at - before..at + length + after
}

fn is_base64(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=_-".contains(byte)
}

// Encodings of one character of a secret: literal, percent-encoded, escaped by backslashes, an HTML entity,
// doubled, or as written by shells and PHP; also nested.

const MOST_BACKSLASHES: usize = 32;

/// What an encoding of a character may begin with, beside the character itself.
const BEGINNINGS: &[u8] = b"\\%&+'";

/// All end positions of encodings of the character that start at `at`.
fn ends_of_forms(text: &str, at: usize, c: char) -> Vec<usize> {
    let mut found = Vec::new();
    let Some(rest) = text.get(at..) else { return found };
    let backslashes = rest.bytes().take(MOST_BACKSLASHES).take_while(|byte| *byte == b'\\').count();
    for escapes in 0..=backslashes {
        let behind = &rest[escapes..];
        if behind.starts_with(c) {
            found.push(at + escapes + c.len_utf8());
        }
        if escapes > 0 {
            let code = escaped(behind, c).map(|length| at + escapes + length);
            found.extend(code);
        }
    }
    found.extend(percent(rest, c).into_iter().map(|length| at + length));
    found.extend(entity(rest, c).into_iter().map(|length| at + length));
    match c {
        ' ' if rest.starts_with('+') => found.push(at + 1),
        '\'' => {
            let forms = ["''", "'\\''", "'\"'\"'"];
            found.extend(forms.iter().filter(|form| rest.starts_with(**form)).map(|form| at + form.len()));
        }
        '"' | '$' | '%' if rest.chars().take(2).eq([c, c]) => found.push(at + 2),
        _ if is_hidden(c) && rest.starts_with(' ') => found.push(at + 1),
        _ => {}
    }
    found
}

/// Length of an escape without its backslash: `n`, `x41`, `101`, `u0041`, `u{41}`, `U00000041`.
fn escaped(rest: &str, c: char) -> Option<usize> {
    let short = match c {
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\0' => '0',
        '\u{8}' => 'b',
        '\u{c}' => 'f',
        '\u{b}' => 'v',
        '\u{1b}' => 'e',
        _ => '\0',
    };
    if short != '\0' && rest.starts_with(short) {
        return Some(1);
    }
    units(rest, c).or(code_point(rest, c)).or(byte_codes(rest, c))
}

/// Length of `u0041`, or of a surrogate pair `ud83d\ude00`.
fn units(rest: &str, c: char) -> Option<usize> {
    let mut units = [0; 2];
    let mut at = 0;
    for (index, unit) in c.encode_utf16(&mut units).iter().enumerate() {
        if index > 0 {
            at += rest.get(at..)?.bytes().take_while(|byte| *byte == b'\\').count();
        }
        let digits = rest.get(at..)?.strip_prefix('u')?.get(..4)?;
        if u16::from_str_radix(digits, 16) != Ok(*unit) {
            return None;
        }
        at += 5;
    }
    Some(at)
}

/// Length of `u{41}` or `U00000041`.
fn code_point(rest: &str, c: char) -> Option<usize> {
    let (digits, length) = match rest.strip_prefix("u{") {
        Some(rest) => {
            let digits = rest.split('}').next().filter(|digits| digits.len() <= 8)?;
            (digits, digits.len() + 3)
        }
        None => (rest.strip_prefix('U')?.get(..8)?, 9),
    };
    if u32::from_str_radix(digits, 16) == Ok(u32::from(c)) { Some(length) } else { None }
}

/// Length of the bytes `xc3\xa4` or `303\244`.
fn byte_codes(rest: &str, c: char) -> Option<usize> {
    let mut bytes = [0; 4];
    let mut at = 0;
    for (index, byte) in c.encode_utf8(&mut bytes).bytes().enumerate() {
        if index > 0 {
            at += rest.get(at..)?.bytes().take_while(|byte| *byte == b'\\').count();
        }
        let rest = rest.get(at..)?;
        let (value, length) = match rest.strip_prefix('x') {
            Some(rest) => (u8::from_str_radix(rest.get(..2)?, 16), 3),
            None => (u8::from_str_radix(rest.get(..3)?, 8), 3),
        };
        if value != Ok(byte) {
            return None;
        }
        at += length;
    }
    Some(at)
}

/// Lengths of percent-encoded bytes in either case, such as `%41`; also encoded repeatedly, `%2541`.
fn percent(rest: &str, c: char) -> Vec<usize> {
    let mut bytes = [0; 4];
    let mut ends = vec![0];
    for byte in c.encode_utf8(&mut bytes).bytes() {
        let mut next = Vec::new();
        for end in ends {
            let mut at = end + 1;
            while let Some(digits) = rest.get(at..at + 2).filter(|_| rest[end..].starts_with('%')) {
                if u8::from_str_radix(digits, 16) == Ok(byte) {
                    next.push(at + 2);
                }
                // The percent sign itself is encoded.
                if digits != "25" {
                    break;
                }
                at += 2;
            }
        }
        ends = next;
    }
    ends
}

/// Lengths of `&amp;`, `&#39;`, `&#x27;`; also escaped repeatedly, `&amp;#39;`.
fn entity(rest: &str, c: char) -> Vec<usize> {
    let mut found = Vec::new();
    let mut inner = rest.strip_prefix('&');
    while let Some(text) = inner {
        let Some(name) = text.split(';').next().filter(|name| name.len() <= 9 && name.len() < text.len())
        else {
            break;
        };
        let value = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            "nbsp" => Some('\u{a0}'),
            _ => number(name),
        };
        if value == Some(c) {
            found.push(rest.len() - text.len() + name.len() + 1);
        }
        inner = text.strip_prefix("amp;");
    }
    found
}

fn number(name: &str) -> Option<char> {
    let digits = name.strip_prefix('#')?;
    let code = match digits.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    char::from_u32(code.ok()?)
}
