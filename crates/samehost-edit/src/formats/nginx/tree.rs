//! An nginx configuration as a tree of directives, with included files in their places. Independent of addresses.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::lexer::{self, End, Statement, Word};
use crate::budget::{self, Metered};
use crate::files::{Files, included, main_of};
use crate::lines::unreadable;
use crate::refusal::{At, Refusal, Result};

/// Maximum depth and number of includes, enough for every real configuration.
const DEEPEST: usize = 16;

/// The blocks with relevant directives. Lines in other blocks (`map`, `types`) are not directives.
const BLOCKS: &[&[u8]] =
    &[b"http", b"server", b"location", b"if", b"limit_except", b"upstream", b"stream", b"events"];

#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: Vec<u8>,
    statements: Rc<[Statement]>,
}

#[derive(Debug)]
pub(super) struct Node {
    /// Its name and arguments; never empty.
    pub(super) words: Rc<[Word]>,
    /// Its file, as an index into [`Tree::sources`].
    pub(super) source: usize,
    pub(super) parent: Option<usize>,
    pub(super) is_block: bool,
    /// One past its `;` or `{`.
    pub(super) after: usize,
}

impl Node {
    pub(super) fn name(&self) -> &[u8] {
        &self.words[0].value
    }

    pub(super) fn arguments(&self) -> &[Word] {
        &self.words[1..]
    }

    /// The value of its first argument; empty if it has none.
    pub(super) fn first(&self) -> &[u8] {
        self.words.get(1).map_or(b"", |word| &word.value)
    }

    pub(super) fn line(&self) -> u32 {
        self.words[0].line
    }

    /// Where it stands among those of all blocks.
    fn in_block(&self) -> (Option<usize>, &[u8]) {
        (self.parent, self.name())
    }
}

/// What a list reserves for it, and its two places in [`Below`].
const BYTES_OF_A_NODE: usize = 2 * size_of::<Node>() + 2 * size_of::<usize>();

pub(super) const MAIN_NAMES: &[&str] = &["nginx.conf"];

#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) sources: Vec<Source>,
    /// In the order in which nginx reads them.
    pub(super) nodes: Vec<Node>,
    /// Whether it is the whole configuration; otherwise a file that others include, with unknown surroundings.
    pub(super) is_whole: bool,
    /// Missing included files: the include, and a refusal.
    pub(super) missing: Vec<(usize, Refusal)>,
    below: Below,
}

/// The directives of each block, and those of each name in it. Each pass and each server asks for those beside it; with a look at
/// all directives for each, 2,000 servers took 16 times as long as 500, and with a map for each block 20,000 blocks took 15 MB.
#[derive(Debug, Default)]
struct Below {
    /// Sorted by their block, in the order of the text.
    children: Vec<usize>,
    /// Sorted by their block and then by their name.
    named: Vec<usize>,
}

impl Below {
    fn of(nodes: &[Node]) -> Below {
        let mut children: Vec<usize> = (0..nodes.len()).collect();
        children.sort_by_key(|index| nodes[*index].parent);
        let mut named = children.clone();
        named.sort_by(|one, other| nodes[*one].in_block().cmp(&nodes[*other].in_block()));
        Below { children, named }
    }
}

impl Tree {
    /// Reads a configuration with everything it includes; a refusal, when nginx would not read it.
    pub(super) fn read(file: &Path, files: &Metered<'_>) -> Result<Tree> {
        let mut reader =
            Reader { files, base: PathBuf::new(), tree: Tree::default(), places: HashMap::new() };
        let source = reader.source(file, None)?;
        reader.tree.is_whole = reader.tree.sources[source].statements.iter().any(|statement| {
            statement.end == End::Opens
                && matches!(&statement.words[0].value[..], b"http" | b"events" | b"stream")
        });
        // Relative includes start at nginx.conf's directory, also in other files.
        let own = file.parent().unwrap_or(Path::new("/"));
        let main = if reader.tree.is_whole { None } else { main_of(file, MAIN_NAMES, files) };
        reader.base = main.as_deref().and_then(Path::parent).unwrap_or(own).to_owned();
        reader.expand(source, None, 0)?;
        let below = Below::of(&reader.tree.nodes);
        Ok(Tree { below, ..reader.tree })
    }

    /// Everything that nginx reads or loads because of it, the main file first: its sources, and files with code.
    pub(super) fn files(&self, main: &Path, files: &Metered<'_>) -> Vec<PathBuf> {
        let folder = main.parent().unwrap_or(Path::new("/"));
        let mut found: Vec<PathBuf> = self.sources.iter().map(|source| source.path.clone()).collect();
        for word in self.nodes.iter().filter(|node| loads_code(node.name())).flat_map(Node::arguments) {
            // A search path of Lua or Perl: the part before the pattern.
            for part in String::from_utf8_lossy(&word.value).split(';') {
                let path = folder.join(part.split('?').next().unwrap_or_default());
                if path != folder && files.exists(&path) {
                    found.push(path);
                }
            }
        }
        found
    }

    pub(super) fn children(&self, parent: Option<usize>) -> &[usize] {
        between(&self.below.children, |index| self.nodes[index].parent.cmp(&parent))
    }

    pub(super) fn named(&self, parent: Option<usize>, name: &[u8]) -> &[usize] {
        between(&self.below.named, |index| self.nodes[index].in_block().cmp(&(parent, name)))
    }

    /// The blocks around a directive, from the inside.
    pub(super) fn around(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |outer| {
            budget::step(10);
            self.nodes[*outer].parent
        })
    }

    /// The levels that hold for a directive, from the inside: the blocks around it, and `None` for the top level.
    pub(super) fn levels(&self, node: usize) -> impl Iterator<Item = Option<usize>> {
        self.around(node).map(Some).chain([None])
    }

    pub(super) fn parent_name(&self, node: usize) -> Option<&[u8]> {
        self.nodes[node].parent.map(|parent| self.nodes[parent].name())
    }

    pub(super) fn source(&self, node: usize) -> &Source {
        &self.sources[self.nodes[node].source]
    }

    pub(super) fn place(&self, node: usize) -> String {
        format!("{}:{}", self.source(node).path.display(), self.nodes[node].line())
    }

    pub(super) fn at(&self, node: usize) -> At<'_> {
        At { file: &self.source(node).path, line: self.nodes[node].line() }
    }

    pub(super) fn text(&self, node: usize) -> String {
        let words = self.nodes[node].words.iter();
        let words: Vec<_> = words.map(|word| String::from_utf8_lossy(&word.value).into_owned()).collect();
        words.join(" ") + if self.nodes[node].is_block { " { … }" } else { ";" }
    }
}

/// Those of a sorted list that are equal to what they are compared with.
fn between(sorted: &[usize], compare: impl Fn(usize) -> Ordering) -> &[usize] {
    let start = sorted.partition_point(|index| compare(*index).is_lt());
    let rest = &sorted[start..];
    &rest[..rest.partition_point(|index| compare(*index).is_eq())]
}

struct Reader<'a> {
    files: &'a Metered<'a>,
    base: PathBuf,
    tree: Tree,
    /// Where each file stands among the sources.
    places: HashMap<PathBuf, usize>,
}

impl Reader<'_> {
    /// Reads a file once. `from` is the include that names it.
    fn source(&mut self, path: &Path, from: Option<usize>) -> Result<usize> {
        if let Some(index) = self.places.get(path) {
            return Ok(*index);
        }
        let from = from.map(|node| self.tree.at(node));
        let text = self.files.read(path).map_err(|error| unreadable(path, from, &error))?;
        if text.starts_with(b"\xef\xbb\xbf") {
            let reason = "begins with a byte order mark, which nginx takes for a part of the first word";
            return Err(Refusal::new(path, 1, reason, "save the file without the byte order mark"));
        }
        let statements = lexer::statements(&text)
            .map_err(|refusal| refusal.in_file(path).by_hand("nginx -t says the same: correct it first"))?;
        self.places.insert(path.to_owned(), self.tree.sources.len());
        self.tree.sources.push(Source { path: path.to_owned(), text, statements: statements.into() });
        Ok(self.tree.sources.len() - 1)
    }

    fn expand(&mut self, source: usize, below: Option<usize>, depth: usize) -> Result<()> {
        let statements = Rc::clone(&self.tree.sources[source].statements);
        let mut open: Vec<usize> = Vec::new();
        // Number of open braces in a block without directives.
        let mut opaque = 0;
        for statement in statements.iter() {
            match statement.end {
                End::Closes if opaque > 0 => opaque -= 1,
                End::Closes => {
                    if open.pop().is_none() {
                        let reason = "nginx does not expect `}` here";
                        return Err(self.unbalanced(source, statement.line, reason));
                    }
                }
                End::Opens if opaque > 0 => opaque += 1,
                _ if opaque > 0 => {}
                end => {
                    let parent = open.last().copied().or(below);
                    let node = self.tree.nodes.len();
                    let is_block = end == End::Opens;
                    if !budget::step(20) || !budget::hold(BYTES_OF_A_NODE) {
                        return Ok(());
                    }
                    let (words, after) = (Rc::clone(&statement.words), statement.after);
                    self.tree.nodes.push(Node { words, source, parent, is_block, after });
                    let name = self.tree.nodes[node].name();
                    if is_block && BLOCKS.contains(&name) {
                        open.push(node);
                    } else if is_block {
                        opaque = 1;
                    } else if name == b"include" {
                        self.include(node, parent, depth)?;
                    }
                }
            }
        }
        if open.is_empty() && opaque == 0 {
            return Ok(());
        }
        let lines = self.tree.sources[source].text.iter().filter(|byte| **byte == b'\n').count();
        let line = u32::try_from(lines).unwrap_or(u32::MAX);
        Err(self.unbalanced(source, line, "the file ends where a block is open"))
    }

    fn unbalanced(&self, source: usize, line: u32, reason: &str) -> Refusal {
        let path = &self.tree.sources[source].path;
        Refusal::new(path, line, reason, "nginx -t says the same: correct it first")
    }

    fn include(&mut self, node: usize, parent: Option<usize>, depth: usize) -> Result<()> {
        use std::os::unix::ffi::OsStringExt;
        let [word] = self.tree.nodes[node].arguments() else {
            let reason = "an include names one file or pattern";
            return Err(self.tree.at(node).refusal(reason, "correct it first"));
        };
        let full = self.base.join(std::ffi::OsString::from_vec(word.value.clone()));
        let paths = included(full, self.files);
        for path in paths
            .map_err(|error| self.tree.at(node).refusal(error.to_string(), "make the directory readable"))?
        {
            if depth >= DEEPEST || !budget::open() {
                let reason = "the files include each other without an end";
                return Err(self.tree.at(node).refusal(reason, "remove the include that goes round"));
            }
            let source = match self.source(&path, Some(node)) {
                Ok(source) => source,
                // For a part alone, nginx's directory is unknown.
                Err(refusal) if !self.tree.is_whole && self.files.read(&path).is_err() => {
                    self.tree.missing.push((node, refusal));
                    continue;
                }
                Err(refusal) => return Err(refusal),
            };
            self.expand(source, parent, depth + 1)?;
        }
        Ok(())
    }
}

fn loads_code(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let starts = ["load_module", "perl_", "js_", "lua_", "passenger_", "wasm_"];
    starts.iter().any(|start| name.starts_with(start)) || name.contains("_by_lua")
}
