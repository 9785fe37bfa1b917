//! Finds the end of a Lua block in an nginx configuration: the closing brace outside of strings and comments.
//! Understands nothing else of Lua.

/// Length up to and including the closing brace; the opening one precedes the text. `None` if the block does not end.
pub(super) fn length(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 1);
    loop {
        let rest = text.get(at..)?;
        at += match rest {
            [] => return None,
            [b'{', ..] => {
                depth += 1;
                1
            }
            [b'}', ..] => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
                1
            }
            [b'-', b'-', comment @ ..] => 2 + long(comment).or_else(|| line(comment))?,
            [b'[', ..] => long(rest).unwrap_or(1),
            [quote @ (b'"' | b'\''), string @ ..] => 1 + quoted(string, *quote)?,
            _ => 1,
        };
    }
}

/// Length of `[[ … ]]`, `[=[ … ]=]` and so on; `None` if none begins here or it does not end.
fn long(text: &[u8]) -> Option<usize> {
    let level = text.strip_prefix(b"[")?.iter().take_while(|byte| **byte == b'=').count();
    if text.get(level + 1) != Some(&b'[') {
        return None;
    }
    let mut close = vec![b'='; level + 2];
    (close[0], close[level + 1]) = (b']', b']');
    let from = level + 2;
    let found = text.get(from..)?.windows(close.len()).position(|window| window == close)?;
    Some(from + found + close.len())
}

fn line(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == b'\n')
}

fn quoted(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        match *text.get(at)? {
            b'\\' => at += 2,
            b'\n' => return None,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_in_strings_and_comments_do_not_count() {
        for (text, rest) in [
            (" a = {1, {2}} } b", " b"),
            (" '}' } b", " b"),
            (" \"\\\"}\" } b", " b"),
            (" [[ } ]] } b", " b"),
            (" [==[ } ]] ]=] } ]==] } b", " b"),
            (" -- }\n } b", " b"),
            (" --[[ }\n } ]] } b", " b"),
            (" t[a[1]] = x } b", " b"),
        ] {
            let length = length(text.as_bytes()).unwrap();
            assert_eq!(&text[length..], rest, "{text}");
        }
        assert_eq!(length(b" { } "), None);
        assert_eq!(length(b" ' } "), None);
    }
}
