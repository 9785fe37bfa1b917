//! The sections of haproxy.cfg, and what a proxy has from its `defaults`.
//!
//! The words of a line are split as by HAProxy (`parse_line` in src/tools.c of 2.6): single and double quotes, backslashes,
//! `#` wherever a word or a part of one may begin. A line ends with its newline, whatever stands before it.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::budget::{self, Metered};
use crate::lines::{self, lines};
use crate::refusal::{At, Reason, Refusal, Result};

/// Most `defaults` that inherit from each other.
pub(super) const DEEPEST: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u32,
    pub(super) words: Vec<Word>,
    /// Whether it stands between `.if` and `.endif`.
    pub(super) is_conditional: bool,
}

impl Line {
    /// A word's value; empty where the line is shorter.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", |word| &word.value)
    }

    pub(super) fn is_server(&self) -> bool {
        self.word(0) == "server"
    }

    pub(super) fn begins(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(index, word)| self.word(index) == *word)
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|one| one.value == word)
    }
}

#[derive(Debug)]
pub(super) struct Section {
    pub(super) head: Line,
    pub(super) lines: Vec<Line>,
    for_servers: Vec<usize>,
}

impl Section {
    pub(super) fn keyword(&self) -> &str {
        self.head.word(0)
    }

    pub(super) fn is_proxy(&self) -> bool {
        ["backend", "listen", "frontend"].contains(&self.keyword())
    }

    /// The lines that every server of a proxy has: `default-server`, and `mode`.
    pub(super) fn with_defaults(&self) -> impl Iterator<Item = &Line> {
        self.for_servers.iter().map(|index| &self.lines[*index])
    }

    fn from(&self) -> Option<&str> {
        let at = self.head.words.iter().position(|word| word.value == "from")?;
        Some(self.head.word(at + 1))
    }
}

/// The words that begin a section, those of later versions included.
const SECTIONS: &[&str] = &[
    "global", "defaults", "frontend", "backend", "listen", "userlist", "peers", "mailers", "resolvers",
    "http-errors", "ring", "log-forward", "log-profile", "program", "fcgi-app", "cache", "crt-store",
    "traces", "acme", "healthcheck",
];

#[derive(Debug, Default)]
pub(super) struct Config {
    pub(super) file: PathBuf,
    pub(super) sections: Vec<Section>,
    /// Where sections of `defaults` stand, in order, and those of each name.
    defaults: Vec<usize>,
    named: HashMap<String, Vec<usize>>,
    /// How many servers of the proxies of a name have a name.
    servers: HashMap<(String, String), usize>,
}

impl Config {
    pub(super) fn read(file: &Path, files: &Metered<'_>) -> Result<Self> {
        let text = lines::read(file, files)?;
        Config::parse(file, &text)
    }

    fn parse(file: &Path, text: &[u8]) -> Result<Self> {
        let mut sections: Vec<Section> = Vec::new();
        let mut depth = 0_usize;
        for line in lines(text) {
            let here = At { file, line: line.number };
            // HAProxy suspects that the rest was lost.
            if line.next == line.range.end {
                return Err(here.refusal(
                    "HAProxy takes no file without a newline at its end",
                    "end the last line first",
                ));
            }
            let mut words = words(&text[line.range.clone()], line.range.start)
                .map_err(|why| here.refusal(why, "correct the line first"))?;
            // A list reserves four words where a line has one: 70 MB of a file of 1 MB.
            words.shrink_to_fit();
            let Some(first) = words.first() else { continue };
            match first.value.as_str() {
                ".if" => depth += 1,
                ".endif" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if first.value.starts_with('.') {
                continue;
            }
            budget::hold(size_of::<Line>() + words.len() * 2 * size_of::<Word>());
            let found = Line { number: line.number, words, is_conditional: depth > 0 };
            if !SECTIONS.contains(&found.word(0)) {
                if let Some(section) = sections.last_mut() {
                    if ["default-server", "mode"].contains(&found.word(0)) {
                        section.for_servers.push(section.lines.len());
                    }
                    section.lines.push(found);
                }
                continue;
            }
            if found.is_conditional {
                let by_hand = "move the section out of `.if`, or edit it by hand";
                return Err(here.refusal("a whole section holds only under a condition", by_hand));
            }
            sections.push(Section { head: found, lines: Vec::new(), for_servers: Vec::new() });
        }
        let mut config = Config { file: file.to_owned(), sections, ..Config::default() };
        for (index, section) in config.sections.iter().enumerate() {
            if section.keyword() == "defaults" {
                config.defaults.push(index);
                config.named.entry(section.head.word(1).to_owned()).or_default().push(index);
            }
            if !section.is_proxy() {
                continue;
            }
            for line in section.lines.iter().filter(|line| line.is_server()) {
                let names = (section.head.word(1).to_owned(), line.word(1).to_owned());
                *config.servers.entry(names).or_default() += 1;
            }
        }
        Ok(config)
    }

    /// The section of `defaults` above one: the last, or the last of a name.
    fn defaults_above(&self, at: usize, name: Option<&str>) -> Option<usize> {
        let all = match name {
            None => &self.defaults,
            Some(name) => self.named.get(name)?,
        };
        let before = all.partition_point(|index| *index < at);
        before.checked_sub(1).map(|last| all[last])
    }

    pub(super) fn servers_named(&self, proxy: &str, server: &str) -> usize {
        self.servers.get(&(proxy.to_owned(), server.to_owned())).copied().unwrap_or_default()
    }

    /// The lines that hold for a proxy, those of its `defaults` first.
    pub(super) fn lines_of(&self, index: usize) -> Vec<&Line> {
        self.chain_of(index).iter().rev().flat_map(|section| &section.lines).collect()
    }

    /// A proxy and the `defaults` that it inherits from, from the inside. As each proxy may have all of them, no more are
    /// followed than `DEEPEST`.
    pub(super) fn chain_of(&self, index: usize) -> Vec<&Section> {
        let mut chain = Vec::new();
        let mut at = index;
        loop {
            let section = &self.sections[at];
            budget::step(20 + section.for_servers.len());
            chain.push(section);
            if chain.len() > DEEPEST {
                break;
            }
            // Only `from` lets one `defaults` inherit from another.
            let by_name = section.from();
            if by_name.is_none() && at != index {
                break;
            }
            let Some(above) = self.defaults_above(at, by_name) else { break };
            at = above;
        }
        chain
    }

    pub(super) fn refusal(&self, line: &Line, why: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.file, line.number, why, by_hand)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) value: String,
    pub(super) range: Range<usize>,
    /// Whether HAProxy puts the value of an environment variable there.
    pub(super) has_variable: bool,
}

/// The words of the line at this position of a file, or what HAProxy would refuse.
pub(super) fn words(line: &[u8], at: usize) -> Result<Vec<Word>, Reason> {
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
    fn word(&mut self) -> Result<Option<(Vec<u8>, bool)>, Reason> {
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
                (_, 0) => return Err("it has a NUL byte".into()),
                (Some(b'"'), b'$') => {
                    has_variable = true;
                    value.push(byte);
                }
                _ => value.push(byte),
            }
            self.next += 1;
        }
        match quote {
            Some(_) => Err("a quote is not closed".into()),
            None => Ok((self.next > start).then_some((value, has_variable))),
        }
    }

    /// What a backslash stands for, and the byte behind it.
    fn escaped(&mut self, value: &mut Vec<u8>, is_quoted: bool) -> Result<(), Reason> {
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
                let two = self.line.get(self.next..self.next + 2).unwrap_or_default();
                let two = std::str::from_utf8(two).unwrap_or_default();
                let code = u8::from_str_radix(two, 16).ok().filter(|code| *code > 0);
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

    #[test]
    fn a_proxy_has_the_defaults_above_or_those_that_it_names() {
        let text = "defaults one\n a 1\ndefaults two from one\n b 2\ndefaults\n c 3\nbackend x\n d 4\nbackend y from two\n e 5\n";
        let config = Config::parse(Path::new("f"), text.as_bytes()).unwrap();
        let text_of = |index: usize| -> String {
            config.lines_of(index).iter().map(|line| line.word(0).to_owned()).collect()
        };
        assert_eq!((text_of(3), text_of(4)), ("cd".to_owned(), "abe".to_owned()));
    }

    fn values(line: &str) -> Vec<String> {
        words(line.as_bytes(), 0).unwrap().into_iter().map(|word| word.value).collect()
    }

    /// The right-hand sides are what HAProxy 2.6 made of these.
    #[test]
    fn words_are_split_as_the_program_splits_them() {
        fn joined(line: &str) -> String {
            values(line).concat()
        }
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
