//! Tokenizer for nginx configurations that follows ngx_conf_file.c, with the position of each word. Does not resolve
//! includes. The only directives it knows are Lua blocks, whose bodies it skips: up to the closing brace outside of strings and
//! comments. It understands nothing else of Lua.

use std::ops::Range;
use std::rc::Rc;

use crate::budget;
use crate::refusal::{Refusal, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) value: Vec<u8>,
    pub(super) range: Range<usize>,
    pub(super) line: u32,
}

impl Word {
    /// Whether its value is in the file byte for byte, so that a part of the value is a part of the file.
    pub(super) fn is_plain(&self) -> bool {
        self.value.len() == self.range.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Semicolon,
    /// `{`, followed by a block of directives.
    Opens,
    /// `{` of a Lua block, which is skipped already.
    Lua,
    /// `}`: the end of a block.
    Closes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// Shared by each place that the file is included in.
    pub(super) words: Rc<[Word]>,
    pub(super) end: End,
    /// One past the byte that ends it.
    pub(super) after: usize,
    pub(super) line: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Space,
    Comment,
    /// In a word, with its quote if it has one.
    Word(Option<u8>),
    /// After a closing quote, where only a space or an end may follow.
    Closed,
}

/// The statements of a file, in order; a refusal, where nginx would not read it.
pub(super) fn statements(text: &[u8]) -> Result<Vec<Statement>> {
    let mut lexer = Lexer { text, at: 0, line: 1, statements: Vec::new(), words: Vec::new() };
    lexer.run()?;
    Ok(lexer.statements)
}

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    statements: Vec<Statement>,
    words: Vec<Word>,
}

impl Lexer<'_> {
    fn between(&mut self, byte: u8, here: u32) -> Result<State> {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b';' | b'{' if self.words.is_empty() => return Err(self.unexpected(byte, here)),
            b';' | b'{' => self.end(byte, here)?,
            b'}' if !self.words.is_empty() => return Err(self.unexpected(byte, here)),
            b'}' => self.push(End::Closes, here),
            b'#' => return Ok(State::Comment),
            b'"' | b'\'' => return Ok(State::Word(Some(byte))),
            _ => return Ok(State::Word(None)),
        }
        Ok(State::Space)
    }

    fn run(&mut self) -> Result<()> {
        let (mut state, mut start, mut first_line) = (State::Space, 0, 1);
        let (mut escaped, mut variable) = (false, false);
        while let Some(&byte) = self.text.get(self.at).filter(|_| !budget::is_spent()) {
            self.at += 1;
            let here = self.line;
            self.line += u32::from(byte == b'\n');
            if state == State::Comment {
                if byte == b'\n' {
                    state = State::Space;
                }
                continue;
            }
            if escaped {
                escaped = false;
                continue;
            }
            let space = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            match state {
                State::Closed | State::Space => {
                    // In `if ("$a" = "b")` the bracket begins a word.
                    if state == State::Closed && !space && !matches!(byte, b';' | b'{' | b')') {
                        return Err(self.unexpected(byte, here));
                    }
                    let at = self.at;
                    state = self.between(byte, here)?;
                    match state {
                        State::Word(Some(_)) => (start, first_line) = (at, here),
                        State::Word(None) => {
                            (start, first_line) = (at - 1, here);
                            (escaped, variable) = (byte == b'\\', byte == b'$');
                        }
                        _ => {}
                    }
                }
                State::Word(quote) => {
                    // `${name}` opens no block.
                    if byte == b'{' && variable {
                        continue;
                    }
                    variable = byte == b'$';
                    escaped = byte == b'\\';
                    let closes = quote.is_some_and(|quote| byte == quote);
                    if closes || (quote.is_none() && (space || byte == b';' || byte == b'{')) {
                        self.word(start..self.at - 1, first_line);
                        state = if closes { State::Closed } else { State::Space };
                        if !closes && !space {
                            self.end(byte, here)?;
                        }
                    }
                }
                State::Comment => {}
            }
        }
        if !self.words.is_empty() || !matches!(state, State::Space | State::Comment) {
            return Err(Refusal::at(self.line, "the file ends within a directive"));
        }
        Ok(())
    }

    fn unexpected(&self, byte: u8, line: u32) -> Refusal {
        Refusal::at(line, format!("nginx does not expect `{}` here", char::from(byte).escape_default()))
    }

    fn word(&mut self, range: Range<usize>, line: u32) {
        let value = value(&self.text[range.clone()]);
        budget::step(value.len() + 10);
        budget::hold(value.len() + 2 * size_of::<Word>());
        self.words.push(Word { value, range, line });
    }

    fn push(&mut self, end: End, line: u32) {
        let words = std::mem::take(&mut self.words).into();
        budget::hold(size_of::<Statement>());
        budget::at(line);
        self.statements.push(Statement { words, end, after: self.at, line });
    }

    fn end(&mut self, byte: u8, line: u32) -> Result<()> {
        let holds_lua = self.words.first().is_some_and(|word| word.value.ends_with(b"_by_lua_block"));
        if byte == b'{' && holds_lua {
            let length = length(&self.text[self.at..])
                .ok_or_else(|| Refusal::at(line, "the block of Lua does not end"))?;
            let passed = &self.text[self.at..self.at + length];
            self.line += passed.iter().map(|byte| u32::from(*byte == b'\n')).sum::<u32>();
            self.at += length;
            self.push(End::Lua, line);
        } else {
            self.push(if byte == b';' { End::Semicolon } else { End::Opens }, line);
        }
        Ok(())
    }
}

/// Value of a word's bytes: a backslash is removed before quotes and another backslash, and makes `t`, `r` and `n` what
/// they are in C; elsewhere it stays.
fn value(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let meant = match raw[at..] {
            [b'\\', one @ (b'"' | b'\'' | b'\\'), ..] => Some(one),
            [b'\\', b't', ..] => Some(b'\t'),
            [b'\\', b'r', ..] => Some(b'\r'),
            [b'\\', b'n', ..] => Some(b'\n'),
            _ => None,
        };
        out.push(meant.unwrap_or(raw[at]));
        at += if meant.is_some() { 2 } else { 1 };
    }
    out
}

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

    fn parsed(text: &str) -> Vec<String> {
        let found = statements(text.as_bytes()).unwrap();
        found
            .iter()
            .map(|statement| {
                let words: Vec<_> =
                    statement.words.iter().map(|word| String::from_utf8_lossy(&word.value)).collect();
                format!("{}:{}{:?}", statement.line, words.join("|"), statement.end)
            })
            .collect()
    }

    #[test]
    fn words_are_what_nginx_takes_them_for() {
        assert_eq!(parsed("a b;c{d;}"), ["1:a|bSemicolon", "1:cOpens", "1:dSemicolon", "1:Closes"]);
        assert_eq!(parsed("a 'b c' \"d;\" ;"), ["1:a|b c|d;Semicolon"]);
        assert_eq!(parsed("a b#c; # d;\ne f;"), ["1:a|b#cSemicolon", "2:e|fSemicolon"]);
        assert_eq!(parsed("a ${b}c {e;}"), ["1:a|${b}cOpens", "1:eSemicolon", "1:Closes"]);
        assert_eq!(parsed("a \\;b\\ c;"), ["1:a|\\;b\\ cSemicolon"]);
        assert_eq!(parsed("a 'b\\'c\\\\d\\te\\.f';"), ["1:a|b'c\\d\te\\.fSemicolon"]);
        assert_eq!(
            parsed("if (\"$a\" = \"b\"){c;}"),
            ["1:if|(\"$a\"|=|b|)Opens", "1:cSemicolon", "1:Closes"]
        );
        assert_eq!(parsed("a b'c d';"), ["1:a|b'c|d'Semicolon"]);
        assert_eq!(parsed("a\nb\n\n;"), ["4:a|bSemicolon"]);
    }

    #[test]
    fn lua_is_passed_over() {
        let text = "content_by_lua_block {\n s = '}' -- }\n t = {[[ } ]], \"\\\"}\"}\n}\na b;";
        assert_eq!(parsed(text), ["1:content_by_lua_blockLua", "5:a|bSemicolon"]);
        assert!(statements(b"a_by_lua_block { {}").is_err());
    }

    #[test]
    fn what_nginx_refuses_is_refused() {
        for text in ["a", "a;}b", ";", "{", "a \"b\"c;", "a b }", "a 'b", "\u{feff}", "a \\"] {
            let found = statements(text.as_bytes());
            assert!(found.is_err() || text == "a;}b", "{text}: {found:?}");
        }
    }

    #[test]
    fn bytes_are_those_of_the_word() {
        let text = b"proxy_pass  \"http://a\" b\\\"c;";
        let found = statements(text).unwrap();
        let words: Vec<&[u8]> = found[0].words.iter().map(|word| &text[word.range.clone()]).collect();
        assert_eq!(words, [&b"proxy_pass"[..], b"http://a", b"b\\\"c"]);
        assert!(found[0].words[1].is_plain() && !found[0].words[2].is_plain());
    }

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
