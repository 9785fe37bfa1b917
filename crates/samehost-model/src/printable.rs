//! The filter against hostile text. Text of other programs, users and files passes it before it reaches a terminal
//! or a document. Removes characters that move the cursor, change the direction of writing, or are invisible.

use std::borrow::Cow;

/// Whether a character is invisible or affects its surroundings: control characters, bidirectional marks,
/// zero-width spaces, line separators, tags.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// The text on one line without hidden characters; line breaks and tabs become spaces.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars()
        .filter_map(|c| match c {
            '\n' | '\t' | '\r' | '\u{2028}' | '\u{2029}' => Some(' '),
            c if is_hidden(c) => None,
            c => Some(c),
        })
        .collect()
}

/// Whether there is nothing but printable ASCII and newlines, as in megabytes of JSON for the most part.
///
/// Never inlined: in a caller that is optimised for size it would look at one byte after the other.
#[inline(never)]
#[must_use]
pub fn is_plain(bytes: &[u8]) -> bool {
    // Without a branch for each byte the compiler looks at many at once.
    let is_plain = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
    bytes.chunks(1024).all(|chunk| chunk.iter().fold(true, |all, byte| all & is_plain(byte)))
}

/// Escapes hidden characters as `\u009b`, except newlines. JSON stays equivalent, because hidden characters
/// occur only in its strings.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if is_plain(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        if c == '\n' || !is_hidden(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_harmless() {
        assert_eq!(clean("a\u{1b}[31mb\r\nc\u{7}\u{9b}2J\u{202e}d\u{200b}"), "a[31mb  c2Jd");
        assert_eq!(clean("µs ÷ – ± 日本"), "µs ÷ – ± 日本");
        assert_eq!(escape("a\u{9b}\u{e0041}\tb\n"), "a\\u009b\\udb40\\udc41\\u0009b\n");
    }
}
