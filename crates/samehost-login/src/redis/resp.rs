//! RESP2, the protocol of Redis: encodes commands and parses replies. Pure: no I/O, no clock, and nothing
//! that a server sends can make it panic or allocate memory for bytes that were only announced.

use std::fmt;
use std::io::Write;

/// Deepest nesting of arrays that is parsed; real replies have at most three levels.
const DEEPEST: u32 = 8;
/// Longest bulk string that is parsed: Redis's own limit.
const LONGEST: i64 = 512 * 1024 * 1024;
/// Most items of a reply in all. An item takes eight times the memory of its bytes; what is asked here has two.
const MOST_ITEMS: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Simple(Vec<u8>),
    /// `-ERR unknown command`.
    Error(String),
    /// `:42`.
    Integer(i64),
    /// `$3`; `None` is nil.
    Bulk(Option<Vec<u8>>),
    /// `*2`; `None` is nil.
    Array(Option<Vec<Reply>>),
}

/// Bytes that are not a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a RESP2 reply: {0}")]
pub struct Malformed(String);

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Simple(text) => write!(f, "{}", text.escape_ascii()),
            Reply::Error(text) => f.write_str(text),
            Reply::Integer(number) => write!(f, "{number}"),
            Reply::Bulk(Some(text)) => write!(f, "{}", text.escape_ascii()),
            Reply::Bulk(None) | Reply::Array(None) => f.write_str("nil"),
            Reply::Array(Some(items)) => write!(f, "an array of {}", items.len()),
        }
    }
}

impl Reply {
    /// The text of a bulk or simple string.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Reply::Simple(text) | Reply::Bulk(Some(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }
}

/// Appends a command: an array of bulk strings.
pub fn command(words: &[&[u8]], out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Parses the first reply in `input`; returns it with its length, or `None` while it is incomplete.
///
/// # Errors
/// When the bytes are not a reply.
pub fn parse(input: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let (mut at, mut items) = (0, 0);
    Ok(reply(input, &mut at, 0, &mut items)?.map(|reply| (reply, at)))
}

fn reply(input: &[u8], at: &mut usize, depth: u32, read: &mut usize) -> Result<Option<Reply>, Malformed> {
    *read += 1;
    if *read > MOST_ITEMS {
        return Err(Malformed("more items than any reply has".into()));
    }
    let Some(line) = line(input, at)? else { return Ok(None) };
    let Some((kind, rest)) = line.split_first() else { return Err(Malformed("an empty line".into())) };
    Ok(Some(match kind {
        b'+' => Reply::Simple(rest.to_vec()),
        b'-' => Reply::Error(String::from_utf8_lossy(rest).into_owned()),
        b':' => Reply::Integer(number(rest)?),
        b'$' => match length(rest)? {
            None => Reply::Bulk(None),
            Some(length) => {
                let Some(end) = at.checked_add(length).filter(|end| end + 2 <= input.len()) else {
                    return Ok(None);
                };
                if &input[end..end + 2] != b"\r\n" {
                    return Err(Malformed("a bulk string does not end where it should".into()));
                }
                let text = input[*at..end].to_vec();
                *at = end + 2;
                Reply::Bulk(Some(text))
            }
        },
        b'*' if depth == DEEPEST => return Err(Malformed("arrays nested too deep".into())),
        b'*' => match length(rest)? {
            None => Reply::Array(None),
            Some(length) => {
                let mut items = Vec::new();
                for _ in 0..length {
                    match reply(input, at, depth + 1, read)? {
                        Some(item) => items.push(item),
                        None => return Ok(None),
                    }
                }
                Reply::Array(Some(items))
            }
        },
        other => return Err(Malformed(format!("it begins with `{}`", other.escape_ascii()))),
    }))
}

/// The line at `at` without its end; moves `at` behind it.
fn line<'a>(input: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, Malformed> {
    let rest = &input[*at..];
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
        // The first byte shows whether it makes sense to wait for the rest.
        return match rest.first() {
            Some(b'+' | b'-' | b':' | b'$' | b'*') | None => Ok(None),
            Some(other) => Err(Malformed(format!("it begins with `{}`", other.escape_ascii()))),
        };
    };
    let Some(line) = rest[..end].strip_suffix(b"\r") else {
        return Err(Malformed("a line without carriage return".into()));
    };
    *at += end + 1;
    Ok(Some(line))
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Malformed(format!("`{}` is not a number", text.escape_ascii())))
}

fn length(text: &[u8]) -> Result<Option<usize>, Malformed> {
    match number(text)? {
        -1 => Ok(None),
        length @ 0..=LONGEST => Ok(usize::try_from(length).ok()),
        other => Err(Malformed(format!("{other} is not a length"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(reply: &Reply, out: &mut Vec<u8>) {
        match reply {
            Reply::Simple(text) => out.extend([b"+".as_slice(), text, b"\r\n"].concat()),
            Reply::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
            Reply::Integer(number) => out.extend(format!(":{number}\r\n").bytes()),
            Reply::Bulk(None) => out.extend(b"$-1\r\n"),
            Reply::Bulk(Some(text)) => {
                out.extend(format!("${}\r\n", text.len()).bytes());
                out.extend([text.as_slice(), b"\r\n"].concat());
            }
            Reply::Array(None) => out.extend(b"*-1\r\n"),
            Reply::Array(Some(items)) => {
                out.extend(format!("*{}\r\n", items.len()).bytes());
                items.iter().for_each(|item| encode(item, out));
            }
        }
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            "[ -~]{0,20}".prop_map(|text| Reply::Simple(text.into_bytes())),
            "[A-Z]{1,9} [ -~]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)).prop_map(Reply::Bulk),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            proptest::option::of(proptest::collection::vec(inner, 0..4)).prop_map(Reply::Array)
        })
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        command(&[b"SET", b"k", b"a\r\nb"], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for wrong in [
            "HTTP/1.1 200", "\r\n", "+OK\n", ":x\r\n", "$-2\r\n", "$1\r\nabc", "$999999999999\r\n", "*-7\r\n",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(parse(&b"*1\r\n".repeat(100)).is_err(), "nested too deep");
        assert_eq!(parse(b"*400000000\r\n"), Ok(None), "an announced length takes no memory");
    }

    proptest! {
        #[test]
        fn every_reply_comes_back_and_no_part_of_it_is_taken_for_one(reply in replies(), after in ".{0,5}") {
            let mut bytes = Vec::new();
            encode(&reply, &mut bytes);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
            bytes.extend(after.bytes());
            prop_assert_eq!(parse(&bytes), Ok(Some((reply, length))));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn nothing_that_looks_like_resp_makes_it_panic(text in "([+\\-:$*][0-9\\-]{0,3}(\r\n)?){0,12}") {
            let _ = parse(text.as_bytes());
        }
    }
}
