//! The sections of haproxy.cfg, and what a proxy has from its `defaults`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::lexer::{self, Word};
use crate::files::Files;
use crate::lines::{self, lines};
use crate::refusal::{At, Refusal, Result};

/// Most `defaults` that inherit from each other.
pub(super) const DEEPEST: usize = 16;

/// A line with words.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u32,
    /// At least one.
    pub(super) words: Vec<Word>,
    /// Whether it stands between `.if` and `.endif`.
    pub(super) is_conditional: bool,
}

impl Line {
    /// A word's value; empty where the line is shorter.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", |word| &word.value)
    }

    /// Whether its first words are these.
    pub(super) fn begins(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(index, word)| self.word(index) == *word)
    }

    /// Whether one of its words is this one.
    pub(super) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|one| one.value == word)
    }
}

/// A section: its first line, and those below.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) head: Line,
    pub(super) lines: Vec<Line>,
    /// Which of them say something of every server.
    for_servers: Vec<usize>,
}

impl Section {
    pub(super) fn keyword(&self) -> &str {
        self.head.word(0)
    }

    /// Whether servers of a proxy are in it.
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
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "mailers",
    "resolvers",
    "http-errors",
    "ring",
    "log-forward",
    "log-profile",
    "program",
    "fcgi-app",
    "cache",
    "crt-store",
    "traces",
    "acme",
    "healthcheck",
];

/// A configuration.
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
    pub(super) fn read(file: &Path, files: &dyn Files) -> Result<Self> {
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
            let words = lexer::words(&text[line.range.clone()], line.range.start)
                .map_err(|why| here.refusal(why, "correct the line first"))?;
            let Some(first) = words.first() else { continue };
            match first.value.as_str() {
                ".if" => depth += 1,
                ".endif" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if first.value.starts_with('.') {
                continue;
            }
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
            for line in section.lines.iter().filter(|line| super::server::is_server(line)) {
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

    /// How many servers of this name are in proxies of that name.
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
}
