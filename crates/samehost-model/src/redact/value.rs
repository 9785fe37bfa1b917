//! Extent of a value, quoted or not, in configurations, shells and programming languages. If unclear, the
//! longer extent is used: hiding too much is a nuisance, hiding too little a leak.

/// End of a value that is quoted at `start`, including concatenated parts (`'a'"b"`, `'a' . 'b'`). `None`
/// without a quote, or for an empty value.
pub(super) fn quoted(line: &str, start: usize) -> Option<usize> {
    let bytes = line.as_bytes();
    let end = one_quoted(bytes, start)?;
    let is_empty = end - start == 2;
    let whole = joined(bytes, end);
    (!is_empty || whole > end).then_some(whole)
}

/// End of one quoted part: the next quote with as many backslashes before it as the first one had, or the end
/// of the line.
fn one_quoted(bytes: &[u8], start: usize) -> Option<usize> {
    let slashes = bytes[start..].iter().take_while(|byte| **byte == b'\\').count();
    let quote = *bytes.get(start + slashes).filter(|byte| b"'\"`".contains(byte))?;
    let mut at = start + slashes + 1;
    let mut before = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match *byte {
            b'\\' => before += 1,
            byte if byte == quote && closes(before, slashes) => return Some(at),
            _ => before = 0,
        }
    }
    Some(bytes.len())
}

/// Whether a quote after `before` backslashes closes one that was opened after `slashes`: an odd number of
/// backslashes escapes `"`; inside a quoted text, where quotes are `\"`, a larger number does.
fn closes(before: usize, slashes: usize) -> bool {
    if slashes == 0 { before.is_multiple_of(2) } else { before <= slashes }
}

/// End of the parts that are concatenated to a part ending at `at`.
fn joined(bytes: &[u8], mut at: usize) -> usize {
    loop {
        let next = bytes.get(at).copied();
        match next {
            None => return at,
            Some(b'\'' | b'"' | b'`') => at = one_quoted(bytes, at).unwrap_or(bytes.len()),
            // PHP concatenates with a dot.
            Some(b' ' | b'\t' | b'.') => match concatenated(&bytes[at..]) {
                Some(skip) => at += skip,
                None if next == Some(b'.') => at += 1,
                None => return at,
            },
            Some(byte) if byte.is_ascii_whitespace() || b",;:)]}&|<>#".contains(&byte) => return at,
            Some(b'\\') if matches!(bytes.get(at + 1), Some(b'"')) => return at,
            Some(b'\\') => at = (at + 2).min(bytes.len()),
            Some(_) => at += 1,
        }
    }
}

/// Distance to the next quote after a dot.
fn concatenated(bytes: &[u8]) -> Option<usize> {
    let dot = blanks(bytes);
    let behind = bytes.get(dot..).filter(|rest| rest.first() == Some(&b'.'))?;
    let quote = 1 + blanks(&behind[1..]);
    matches!(behind.get(quote), Some(b'\'' | b'"')).then_some(dot + quote)
}

fn blanks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// End of a word by shell rules: quotes and backslashes protect blanks. Also ends at `stops`.
pub(super) fn word(line: &str, start: usize, stops: &[u8]) -> usize {
    let bytes = line.as_bytes();
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\\' => at += 2,
            b'\'' | b'"' => at = one_quoted(bytes, at).unwrap_or(bytes.len()),
            byte if byte.is_ascii_whitespace() || stops.contains(&byte) => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// End of a value in a map or a list: the next comma or bracket outside nested brackets and quotes.
pub(super) fn item(line: &str, start: usize) -> usize {
    let bytes = line.as_bytes();
    let (mut at, mut depth) = (start, 0_u32);
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\\' => at += 1,
            b'\'' | b'"' => {
                at = one_quoted(bytes, at).unwrap_or(bytes.len());
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b',' | b';' if depth == 0 => break,
            b')' | b']' | b'}' if depth == 0 => break,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    line[..at.min(bytes.len())].trim_end().len().max(start)
}

/// Position of the next of these bytes, or the end of the line.
pub(super) fn until(line: &str, start: usize, stops: &[u8]) -> usize {
    line.bytes()
        .skip(start)
        .position(|byte| stops.contains(&byte))
        .map_or(line.len(), |length| start + length)
}

/// Whether a value is not a secret: empty, a reference to a variable, or no value at all. With a password's
/// name (`says_password`) even a plain word is a password.
pub(super) fn is_harmless(value: &str, says_password: Name) -> bool {
    let value = value.trim().trim_end_matches([';', ',', ')', ']', '}', '.', '"', '\'']);
    let bare = value.trim_matches(['"', '\'']);
    let is_variable = bare
        .strip_prefix('$')
        .is_some_and(|name| is_name(name.strip_prefix('{').map_or(name, |name| name.trim_end_matches('}'))));
    let nothing = ["", "***", "null", "nil", "~", "None", "NULL", "undefined"];
    let switches = ["true", "false", "yes", "no", "on", "off"];
    is_variable
        || nothing.contains(&value)
        // A placeholder in instructions.
        || bare == "PASSWORD"
        || (says_password == Name::Other && switches.contains(&value.to_ascii_lowercase().as_str()))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What a secret's name denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A password: any word can be one.
    Password,
    /// A token, a key, a salt or an authentication setting: values such as `on` are not secrets.
    Other,
}

/// A value without its quotes and backslashes.
pub(super) fn unquoted(value: &str) -> String {
    let value = value.trim_start_matches('\\');
    let Some(quote) = value.chars().next().filter(|c| matches!(c, '\'' | '"' | '`')) else {
        return value.to_owned();
    };
    let inner = value[1..].trim_end_matches(quote);
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
}
