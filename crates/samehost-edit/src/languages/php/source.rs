//! One PHP file and its syntax tree. A file with a syntax error is not accepted.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tree_sitter::{Node, Tree};

use super::value::{Trouble, Valued};
use crate::languages::syntax::{self, walk};

/// Longer than any configuration; limits what the parser gets.
const LONGEST: usize = 4 << 20;

/// A PHP file and its syntax tree, by tree-sitter-php.
/// Editors need the byte ranges of PHP's syntax. tree-sitter-php gives them, is small and maintained, and
/// builds with our version of Rust; the newest mago-syntax that cargo found for it was a beta. Where PHP
/// reads differently (short tags, `??>` in a comment), or the parser sees an error, the file is refused
/// (docs/decisions/0058).
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: Vec<u8>,
    tree: Tree,
    /// Where each line ends. Every value says its line; counting from the beginning for each made 2,000 lines take 29 s.
    line_ends: Vec<usize>,
    words: OnceCell<HashMap<Vec<u8>, usize>>,
}

impl Source {
    pub(crate) fn parse(path: &Path, text: Vec<u8>) -> Result<Source, Trouble> {
        if text.len() > LONGEST {
            return Err(Trouble::new(path, 0, "the file is too long for a configuration"));
        }
        // To PHP every byte above 0x7f is a letter of a name, whatever the encoding. This letter keeps the position,
        // and neither Latin-1 nor a byte order mark can mislead the parser; strings are read from the text itself.
        let ascii: Vec<u8> = text.iter().map(|byte| if byte.is_ascii() { *byte } else { b'Z' }).collect();
        let mut tree = tree(&ascii).ok_or_else(|| Trouble::new(path, 0, "the PHP parser gave up"))?;
        if tree.root_node().has_error() {
            tree = halted(&ascii, &tree).unwrap_or(tree);
        }
        let line_ends = (0..text.len()).filter(|at| text[*at] == b'\n').collect();
        let source = Source { path: path.to_owned(), text, tree, line_ends, words: OnceCell::new() };
        if source.root().has_error() {
            let wrong = walk(source.root()).find(|node| node.is_error() || node.is_missing());
            let line = wrong.map_or(0, |node| source.line(node.start_byte()));
            return Err(Trouble::new(path, line, "this is not understood as PHP"));
        }
        match source.strange() {
            Some((line, reason)) => Err(Trouble::new(path, line, reason)),
            None => Ok(source),
        }
    }

    /// Text that PHP would read differently from the parser, or differently with another php.ini.
    fn strange(&self) -> Option<(u32, &'static str)> {
        for node in walk(self.root()) {
            let text = self.of(node);
            let reason = match node.kind() {
                "php_tag" if !self.is_full_tag(node) => {
                    "whether a short tag `<?` opens PHP depends on php.ini"
                }
                "comment" if !text.starts_with(b"/*") && text.windows(2).any(|two| two == b"?>") => {
                    "a comment that contains `?>` ends there for PHP"
                }
                "heredoc_start" if !text.is_ascii() => {
                    "the name of this heredoc has letters outside of ASCII"
                }
                "goto_statement" => "`goto` changes what is executed",
                _ => continue,
            };
            return Some((self.line(node.start_byte()), reason));
        }
        None
    }

    /// Whether a tag opens PHP with every php.ini: `<?php` and a space, or `<?=`.
    fn is_full_tag(&self, tag: Node<'_>) -> bool {
        let follows = self.text.get(tag.end_byte()).is_none_or(u8::is_ascii_whitespace);
        let text = self.of(tag);
        text.len() == 5 && follows || text == b"<?="
    }

    pub(crate) fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    /// The line of a byte, from 1.
    pub(crate) fn line(&self, at: usize) -> u32 {
        let lines = self.line_ends.partition_point(|end| *end < at);
        u32::try_from(lines + 1).unwrap_or(u32::MAX)
    }

    /// How often a word of letters, digits and `_` stands in it.
    pub(crate) fn count(&self, word: &[u8]) -> usize {
        let words = self.words.get_or_init(|| {
            let mut words: HashMap<Vec<u8>, usize> = HashMap::new();
            for one in self.text.split(|byte| !is_in_word(*byte)).filter(|one| !one.is_empty()) {
                *words.entry(one.to_vec()).or_default() += 1;
            }
            words
        });
        words.get(word).copied().unwrap_or_default()
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        // The tree of a halted program may be longer than its text.
        self.text.get(range.start..range.end.min(self.text.len())).unwrap_or_default()
    }

    pub(crate) fn of(&self, node: Node<'_>) -> &[u8] {
        self.slice(node.byte_range())
    }

    /// The trouble with a node: where it is, and why what it says is not known.
    pub(crate) fn trouble(&self, node: Node<'_>, reason: impl Into<String>) -> Trouble {
        Trouble::new(&self.path, self.line(node.start_byte()), reason)
    }

    pub(crate) fn unknown(&self, node: Node<'_>, reason: impl Into<String>) -> Valued {
        Valued::unknown(self.trouble(node, reason))
    }
}

/// Whether PHP takes a byte for a part of a name.
pub(crate) fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn tree(text: &[u8]) -> Option<Tree> {
    syntax::tree(&tree_sitter_php::LANGUAGE_PHP.into(), text)
}

const HALT: &[u8] = b"__halt_compiler";

fn is_halt(node: &Node<'_>, text: &[u8]) -> bool {
    node.kind() == "name" && text[node.byte_range()].eq_ignore_ascii_case(HALT)
}

/// The program before `__halt_compiler();`: everything after it is data.
fn halted(text: &[u8], tree: &Tree) -> Option<Tree> {
    let at = walk(tree.root_node()).find(|node| is_halt(node, text))?.start_byte();
    let shorter = [&text[..at], HALT, b"();"].concat();
    let tree = self::tree(&shorter).filter(|tree| !tree.root_node().has_error())?;
    // In text between PHP it means nothing.
    let called = walk(tree.root_node()).any(|node| is_halt(&node, &shorter));
    if called { Some(tree) } else { None }
}
