//! Encodings of one character of a secret: literal, percent-encoded, escaped by backslashes, an HTML entity,
//! doubled, or as written by shells and PHP; also nested.

/// Maximum consecutive backslashes that count as an escape.
const MOST_BACKSLASHES: usize = 32;

/// Adds all end positions of encodings of the character that start at `at`.
pub(super) fn ends(text: &str, at: usize, c: char, found: &mut Vec<usize>) {
    let Some(rest) = text.get(at..) else { return };
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
        // Hidden characters may have been removed, or replaced by a space.
        _ if crate::printable::is_hidden(c) => {
            found.push(at);
            if rest.starts_with(' ') {
                found.push(at + 1);
            }
        }
        _ => {}
    }
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
    units(rest, c).or_else(|| code_point(rest, c)).or_else(|| byte_codes(rest, c))
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
    (u32::from_str_radix(digits, 16) == Ok(u32::from(c))).then_some(length)
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
