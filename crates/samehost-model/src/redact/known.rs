//! Finds a known secret in a text: literally, with any of its characters escaped, and in base64. Whether it
//! is searched for inside words depends on how likely a match is a coincidence.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::forms;

/// Minimum length of a secret to search for, because one or two characters match everywhere. Shorter ones are
/// hidden only next to a name such as `password`.
const SHORTEST: usize = 3;

#[derive(Clone)]
pub(super) struct Known {
    text: String,
    chars: Vec<char>,
    /// Whether a coincidental match is unlikely; if not, it must match a whole word.
    is_distinctive: bool,
    /// Characters that any base64 text with the secret contains, for each of its three possible alignments.
    base64: Vec<String>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Known {
    /// `None` if the secret is too short to search for.
    pub(super) fn new(text: &str) -> Option<Self> {
        let chars: Vec<char> = text.chars().collect();
        (chars.len() >= SHORTEST).then(|| Known {
            text: text.to_owned(),
            is_distinctive: is_distinctive(&chars),
            base64: in_base64(text.as_bytes()),
            chars,
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a coincidental match is unlikely.
    pub(super) fn is_distinctive(&self) -> bool {
        self.is_distinctive
    }

    /// All occurrences in a text.
    pub(super) fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < text.len() {
            if let Some(end) = self.ends(text, at).filter(|end| self.is_it(text, at, *end)) {
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
    fn ends(&self, text: &str, at: usize) -> Option<usize> {
        let mut ends = vec![at];
        for c in &self.chars {
            let mut next = Vec::new();
            for end in ends {
                forms::ends(text, end, *c, &mut next);
            }
            next.sort_unstable();
            next.dedup();
            if next.is_empty() {
                return None;
            }
            ends = next;
        }
        ends.pop().filter(|end| *end > at)
    }

    /// Whether a match counts. A password that is a plain word (`redis`, `app`) also occurs in paths and
    /// names, and masking it there would reveal it, so it must match a whole word.
    fn is_it(&self, text: &str, start: usize, end: usize) -> bool {
        if self.is_distinctive {
            return true;
        }
        let (before, after) = (&text[..start], &text[end..]);
        let is_number = self.chars.iter().all(char::is_ascii_digit);
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
