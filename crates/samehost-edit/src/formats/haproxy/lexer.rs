//! The words of a line as HAProxy splits it (`parse_line` in src/tools.c of 2.6): single and double quotes, backslashes,
//! `#` wherever a word or a part of one may begin. A line ends with its newline, whatever stands before it.

use std::ops::Range;

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Without quotes and backslashes.
    pub(super) value: String,
    /// As it is written, in the file.
    pub(super) range: Range<usize>,
    /// Whether HAProxy puts the value of an environment variable there.
    pub(super) has_variable: bool,
}

/// The words of the line at this position of a file.
///
/// # Errors
/// What HAProxy would refuse.
pub(super) fn words(line: &[u8], at: usize) -> Result<Vec<Word>, &'static str> {
    let mut lexer = Lexer { line, next: 0 };
    let mut words = Vec::new();
    loop {
        while lexer.peek().is_some_and(is_space) {
            lexer.next += 1;
        }
        let start = lexer.next;
        let Some((value, has_variable)) = lexer.word()? else { return Ok(words) };
        let value = String::from_utf8_lossy(&value).into_owned();
        words.push(Word { value, range: at + start..at + lexer.next, has_variable });
    }
}

/// As isspace(3): HAProxy splits at a form feed too.
fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

struct Lexer<'a> {
    line: &'a [u8],
    next: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.next).copied()
    }

    /// The next word, and whether it has a variable.
    fn word(&mut self) -> Result<Option<(Vec<u8>, bool)>, &'static str> {
        let mut value = Vec::new();
        let mut quote = None;
        let mut has_variable = false;
        let start = self.next;
        while let Some(byte) = self.peek() {
            match (quote, byte) {
                (None, b'#') => break,
                (None, _) if is_space(byte) => break,
                (None, b'"' | b'\'') => quote = Some(byte),
                (Some(open), _) if open == byte => quote = None,
                (None | Some(b'"'), b'\\') => {
                    self.next += 1;
                    self.escaped(&mut value, quote == Some(b'"'))?;
                    continue;
                }
                (_, 0) => return Err("it has a NUL byte"),
                (Some(b'"'), b'$') => {
                    has_variable = true;
                    value.push(byte);
                }
                _ => value.push(byte),
            }
            self.next += 1;
        }
        match quote {
            Some(_) => Err("a quote is not closed"),
            None => Ok((self.next > start).then_some((value, has_variable))),
        }
    }

    /// What a backslash stands for, and the byte behind it.
    fn escaped(&mut self, value: &mut Vec<u8>, is_quoted: bool) -> Result<(), &'static str> {
        let Some(byte) = self.peek() else {
            value.push(b'\\');
            return Ok(());
        };
        self.next += 1;
        match byte {
            b' ' | b'\\' | b'#' | b'"' | b'\'' => value.push(byte),
            b'$' if is_quoted => value.push(byte),
            b't' => value.push(b'\t'),
            b'r' => value.push(b'\r'),
            b'n' => value.push(b'\n'),
            b'x' => {
                let digits =
                    self.line.get(self.next..self.next + 2).and_then(|two| std::str::from_utf8(two).ok());
                let code = digits.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|code| *code > 0);
                value.push(code.ok_or("`\\x` wants two hexadecimal digits")?);
                self.next += 2;
            }
            // Not an escape: both bytes count, and the second may be a space or begin something.
            _ => {
                self.next -= 1;
                value.push(b'\\');
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(line: &str) -> Vec<String> {
        words(line.as_bytes(), 0).unwrap().into_iter().map(|word| word.value).collect()
    }

    /// The right-hand sides are what HAProxy 2.6 made of these.
    #[test]
    fn words_are_split_as_the_program_splits_them() {
        let joined = |line: &str| values(line).concat();
        assert_eq!(
            values("server a\\ b '127.0.0.1:80'\tcheck#x"),
            ["server", "a b", "127.0.0.1:80", "check"]
        );
        assert_eq!(joined(r"/run/\x41"), "/run/A");
        assert_eq!(joined(r"/run/'a\ b'"), r"/run/a\ b");
        assert_eq!(joined(r#""/run/a\"b""#), r#"/run/a"b"#);
        assert_eq!(joined(r"/run/a\qb"), r"/run/a\qb");
        assert_eq!(joined("/run/a#b"), "/run/a");
        assert_eq!(joined("\"/run/a#b\""), "/run/a#b");
        assert_eq!(joined("/run/a\"b c\"d"), "/run/ab cd");
        assert_eq!(joined(r"/run/a\'b"), "/run/a'b");
        assert_eq!(values("a\x0cb\r"), ["a", "b"]);
        assert_eq!(values("''"), [""]);
    }

    #[test]
    fn words_have_their_places_and_variables() {
        let found = words(b"  \"a$b\" '$c' \\$d", 10).unwrap();
        let places: Vec<_> = found.iter().map(|word| (word.range.clone(), word.has_variable)).collect();
        assert_eq!(places, [(12..17, true), (18..22, false), (23..26, false)]);
        assert!(words(b"server 'a", 0).is_err() && words(b"\\xZZ", 0).is_err());
    }
}
