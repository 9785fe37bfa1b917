//! A secret that is known, looked for in a text: as it is, with any of its characters escaped, and in base64. How sure
//! one can be that it is the secret which stands there decides where it is looked for.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::forms;

/// Below this, a secret is not looked for: one or two characters stand everywhere by chance. Where it is set it is
/// hidden by the setting's name.
const SHORTEST: usize = 3;

/// A known secret.
#[derive(Clone)]
pub(super) struct Known {
    text: String,
    chars: Vec<char>,
    /// Whether it can hardly stand anywhere by chance; otherwise only whole words are taken for it.
    is_distinctive: bool,
    /// What must stand in every base64 text that it is in, for each of the three places where it can begin.
    base64: Vec<String>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Known {
    /// None where it is too short to be looked for.
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

    /// Whether it can hardly stand anywhere by chance.
    pub(super) fn is_distinctive(&self) -> bool {
        self.is_distinctive
    }

    /// Where it stands.
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

    /// Where it ends that begins here, the furthest.
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

    /// A password that is a plain word (`redis`, `app`) stands in paths and names by chance, and stars there would tell
    /// it: only a word of its own is taken for it.
    fn is_it(&self, text: &str, start: usize, end: usize) -> bool {
        if self.is_distinctive {
            return true;
        }
        let (before, after) = (&text[..start], &text[end..]);
        let is_number = self.chars.iter().all(char::is_ascii_digit);
        let joins = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '-');
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

/// Whether a text ends with an escape, whose last letter is no part of a word: `%3A`, `\n`.
fn ends_with_escape(before: &str) -> bool {
    let bytes = before.as_bytes();
    match bytes {
        [.., b'\\', b'n' | b't' | b'r'] => true,
        [.., b'%', high, low] => high.is_ascii_hexdigit() && low.is_ascii_hexdigit(),
        _ => false,
    }
}

/// Long, or of several kinds of characters: no word, number or name that stands in a text by chance.
fn is_distinctive(chars: &[char]) -> bool {
    let kinds: [fn(&char) -> bool; 4] =
        [char::is_ascii_lowercase, char::is_ascii_uppercase, char::is_ascii_digit, |c: &char| {
            !c.is_ascii_alphanumeric()
        }];
    let kinds = kinds.into_iter().filter(|kind| chars.iter().any(kind)).count();
    chars.len() >= 12 || (chars.len() >= 6 && kinds >= 2)
}

/// The characters of base64 that the bytes alone decide, for each place in a group of three where they can begin, in
/// both alphabets.
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

/// The whole of a base64 text around a part of it: its other characters hold bits of the secret.
fn word_of_base64(text: &str, at: usize, length: usize) -> Range<usize> {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(byte);
    let bytes = text.as_bytes();
    let before = bytes[..at].iter().rev().take_while(|byte| is_base64(byte) && **byte != b'=').count();
    let after = bytes[at + length..].iter().take_while(|byte| is_base64(byte)).count();
    at - before..at + length + after
}
