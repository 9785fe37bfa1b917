//! How short the text is at least that a part of a regular expression matches.

/// The fewest bytes that a reference (`$1`) stands for; 0 where that is not plain to see.
pub(super) fn shortest(pattern: &str, reference: u32) -> usize {
    if pattern.contains('|') {
        return 0;
    }
    let bytes = pattern.as_bytes();
    let Some(start) = group(bytes, reference) else { return 0 };
    let (mut at, mut depth, mut length) = (start, 0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => break,
            b')' => depth -= 1,
            // What is in a class is not counted.
            b'[' => at += bytes[at..].iter().position(|byte| *byte == b']').unwrap_or(bytes.len() - at),
            b'\\' => {
                at += 1;
                let is_literal = bytes.get(at).is_some_and(|next| !next.is_ascii_alphanumeric());
                length += usize::from(is_literal && depth == 0 && is_once(bytes, at));
            }
            byte if depth == 0 && (byte.is_ascii_alphanumeric() || b"/_-".contains(byte)) => {
                length += usize::from(is_once(bytes, at));
            }
            _ => {}
        }
        at += 1;
    }
    length
}

/// Where the group of a reference begins.
fn group(bytes: &[u8], reference: u32) -> Option<usize> {
    if reference == 0 {
        return Some(0);
    }
    let (mut number, mut at) = (0, 0);
    loop {
        match bytes.get(at)? {
            b'\\' => at += 1,
            b'[' => at += bytes[at..].iter().position(|byte| *byte == b']')?,
            b'(' if bytes.get(at + 1) != Some(&b'?') => {
                number += 1;
                if number == reference {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Whether no quantifier follows that allows for none.
fn is_once(bytes: &[u8], at: usize) -> bool {
    !bytes.get(at + 1).is_some_and(|next| b"*?{".contains(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_to_be_there_counts() {
        for (pattern, reference, length) in [
            (r"^/(.*\.php(/.*)?)$", 1, 4),
            (r"^/(.*\.php(/.*)?)$", 2, 1),
            (r"^/(.*)$", 1, 0),
            (r"^/(.*)$", 0, 1),
            (r"^/a(?:b)[(](\d\d/x?yz*)", 1, 2),
            (r"^/(a|bc)", 1, 0),
            (r"^/(abc){0}", 2, 0),
        ] {
            assert_eq!(shortest(pattern, reference), length, "{pattern} {reference}");
        }
    }
}
