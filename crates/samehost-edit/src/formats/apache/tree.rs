//! An Apache configuration as its directives, in the order in which Apache reads them, with included files in their
//! places. Independent of what the directives do.

use std::path::{Path, PathBuf};

use super::text::{self, Text, Variables};
use crate::files::{Files, MOST_FILES, glob, is_pattern};
use crate::refusal::{Refusal, Result};

/// Maximum depth of includes; Apache's own limit is 20.
const DEEPEST: usize = 20;
/// Maximum number of directives; a file that is included again counts again.
const MOST_NODES: usize = 500_000;
/// Sections that Apache skips where they do not apply, so that what they define may not be defined.
const CONDITIONS: &[&str] = &["ifmodule", "ifdefine", "ifversion", "iffile", "ifdirective", "ifsection"];
/// Names of the file that Apache begins with.
const MAIN_NAMES: &[&str] = &["apache2.conf", "httpd.conf", "conf/httpd.conf"];

/// A file of the configuration.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    text: Vec<u8>,
}

/// A directive, or the beginning of a section.
#[derive(Debug)]
pub(super) struct Node {
    /// Lower case; of a section with its `<`.
    pub(super) name: String,
    /// Its arguments.
    pub(super) words: Vec<Text>,
    /// As an index into [`Tree::sources`].
    pub(super) source: usize,
    pub(super) line: u32,
    /// Where it begins in its file.
    pub(super) start: usize,
    /// The section around it.
    pub(super) parent: Option<usize>,
}

/// A configuration.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) sources: Vec<Source>,
    pub(super) nodes: Vec<Node>,
    /// Includes that could not be followed.
    pub(super) missing: Vec<Refusal>,
    /// What is defined at the end.
    pub(super) variables: Variables,
    /// Where relative names begin, if that is known.
    root: Option<PathBuf>,
}

impl Tree {
    /// Reads a configuration with everything it includes.
    ///
    /// # Errors
    /// When Apache would not read it.
    pub(super) fn read(file: &Path, files: &dyn Files) -> Result<Tree> {
        let is_main = MAIN_NAMES.iter().any(|name| file.ends_with(name));
        let main = if is_main { Some(file.to_owned()) } else { main_of(file, files) };
        let root = main.as_deref().and_then(root_of).map(Path::to_owned);
        let tree = Tree { root, ..Tree::default() };
        let mut reader = Reader { files, is_main, tree, included: 0 };
        let source = reader.source(file, None)?;
        reader.expand(source, None, 0)?;
        Ok(reader.tree)
    }

    /// The sections around a directive, from the inside.
    pub(super) fn around(&self, node: usize) -> impl Iterator<Item = &Node> {
        let index = std::iter::successors(self.nodes[node].parent, |outer| self.nodes[*outer].parent);
        index.map(|index| &self.nodes[index])
    }

    /// The virtual host around a directive.
    pub(super) fn host(&self, node: usize) -> Option<usize> {
        std::iter::successors(Some(node), |inner| self.nodes[*inner].parent)
            .find(|outer| self.nodes[*outer].name == "<virtualhost")
    }

    /// Everything that Apache reads or loads because of it, the file that was asked for first: its sources, and libraries.
    pub(super) fn files(&self, files: &dyn Files) -> Vec<PathBuf> {
        let libraries = self.nodes.iter().filter_map(|node| match node.name.as_str() {
            "loadmodule" => node.words.get(1..),
            "loadfile" => Some(&node.words[..]),
            _ => None,
        });
        let folder = self.root.as_deref().unwrap_or(Path::new("/"));
        let libraries = libraries.flatten().map(|word| folder.join(path_of(&word.bytes)));
        let sources = self.sources.iter().map(|source| source.path.clone());
        sources.chain(libraries.filter(|path| files.exists(path))).collect()
    }

    /// Whether Perl of the configuration runs while Apache reads it.
    pub(super) fn runs_perl(&self) -> bool {
        self.nodes.iter().any(|node| node.name.trim_start_matches('<').starts_with("perl"))
    }

    pub(super) fn path(&self, node: usize) -> &Path {
        &self.sources[self.nodes[node].source].path
    }

    /// Position of a directive, for messages.
    pub(super) fn place(&self, node: usize) -> String {
        format!("{}:{}", self.path(node).display(), self.nodes[node].line)
    }

    pub(super) fn refusal(
        &self,
        node: usize,
        reason: impl Into<String>,
        by_hand: impl Into<String>,
    ) -> Refusal {
        Refusal::new(self.path(node), self.nodes[node].line, reason, by_hand)
    }
}

/// The file that Apache begins with, in a directory above another file.
pub(super) fn main_of(file: &Path, files: &dyn Files) -> Option<PathBuf> {
    let above = file.ancestors().skip(1).take(4);
    let mut names = above.flat_map(|directory| MAIN_NAMES.iter().map(|name| directory.join(name)));
    names.find(|main| main != file && files.read(main).is_ok())
}

/// The directory of relative names, as distributions build it.
fn root_of(main: &Path) -> Option<&Path> {
    let directory = main.parent()?;
    if directory.ends_with("conf") { directory.parent() } else { Some(directory) }
}

struct Reader<'a> {
    files: &'a dyn Files,
    is_main: bool,
    tree: Tree,
    included: usize,
}

impl Reader<'_> {
    fn source(&mut self, path: &Path, from: Option<usize>) -> Result<usize> {
        if let Some(index) = self.tree.sources.iter().position(|source| source.path == path) {
            return Ok(index);
        }
        let text = self.files.read(path).map_err(|error| match from {
            Some(node) => self.tree.refusal(
                node,
                format!("{}: {error}", path.display()),
                "make the file readable, or remove the include; then try again",
            ),
            None => Refusal::new(path, 0, error.to_string(), "make the file readable; then try again"),
        })?;
        self.tree.sources.push(Source { path: path.to_owned(), text });
        Ok(self.tree.sources.len() - 1)
    }

    /// Adds the directives of a file below a section.
    fn expand(&mut self, source: usize, below: Option<usize>, depth: usize) -> Result<()> {
        let text = self.tree.sources[source].text.clone();
        let path = self.tree.sources[source].path.clone();
        let wrong = |line: u32, reason: String| {
            Refusal::new(&path, line, reason, "apachectl configtest says the same: correct it first")
        };
        let mut open: Vec<usize> = Vec::new();
        for line in text::lines(&text) {
            if self.tree.nodes.len() > MOST_NODES {
                return Err(wrong(line.number, "the configuration has too many lines".into()));
            }
            let in_perl = open.last().is_some_and(|open| self.tree.nodes[*open].name == "<perl");
            let mut text = line.text.resolved(&self.tree.variables);
            if text.bytes.first() == Some(&b'<') {
                text.close();
            }
            let mut words = text.words();
            let Some(first) = words.first() else { continue };
            let name = String::from_utf8_lossy(&first.bytes).to_ascii_lowercase();
            if let Some(closed) = name.strip_prefix("</") {
                match open.last() {
                    Some(last) if self.tree.nodes[*last].name.strip_prefix('<') == Some(closed) => {
                        open.pop();
                    }
                    Some(_) if in_perl => {}
                    _ => return Err(wrong(line.number, format!("`</{closed}>` closes no section"))),
                }
                continue;
            }
            if in_perl {
                continue;
            }
            if name == "rewriterule" {
                words = text.words_of_rewrite();
            }
            let node = self.tree.nodes.len();
            let is_section = name.starts_with('<');
            let start = text.start();
            let parent = open.last().copied().or(below);
            words.remove(0);
            self.tree.nodes.push(Node { name, words, source, line: line.number, start, parent });
            if is_section {
                open.push(node);
            } else {
                self.at_once(node, depth)?;
            }
        }
        match open.last() {
            None => Ok(()),
            Some(last) => {
                let node = &self.tree.nodes[*last];
                Err(wrong(node.line, format!("`{}>` is not closed", node.name)))
            }
        }
    }

    /// Directives that act while Apache reads.
    fn at_once(&mut self, node: usize, depth: usize) -> Result<()> {
        let first = self.tree.nodes[node].words.first().map(|word| word.bytes.clone());
        let (mut is_conditional, mut in_macro) = (false, false);
        for section in self.tree.around(node).filter_map(|one| one.name.strip_prefix('<')) {
            is_conditional |= CONDITIONS.contains(&section);
            in_macro |= section == "macro";
        }
        match (self.tree.nodes[node].name.as_str(), first) {
            ("define", Some(name)) => {
                let value = self.tree.nodes[node].words.get(1).map_or(Vec::new(), |word| word.bytes.clone());
                self.tree.variables.insert(name, Some(value).filter(|_| !is_conditional && !in_macro));
            }
            ("undefine", Some(name)) => {
                self.tree.variables.insert(name, None);
            }
            ("serverroot", Some(path)) => {
                let path = path_of(&path);
                self.tree.root = Some(path).filter(|path| path.is_absolute());
            }
            ("include" | "includeoptional", Some(pattern)) if !in_macro => {
                self.include(node, &pattern, depth)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn include(&mut self, node: usize, pattern: &[u8], depth: usize) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let path = path_of(pattern);
        let full = match &self.tree.root {
            _ if pattern.windows(2).any(|two| two == b"${") => None,
            Some(root) => Some(root.join(path)),
            None => Some(path).filter(|path| path.is_absolute()),
        };
        let Some(full) = full else {
            let reason = "which files are included is not known here";
            let refusal = self.tree.refusal(node, reason, "ask for the file that Apache begins with");
            self.tree.missing.push(refusal);
            return Ok(());
        };
        let is_optional = self.tree.nodes[node].name == "includeoptional";
        let found = if is_pattern(full.as_os_str().as_bytes()) {
            glob(self.files, full.as_os_str().as_bytes())
                .map_err(|error| self.tree.refusal(node, error.to_string(), "make the directory readable"))?
        } else {
            vec![full]
        };
        for path in found {
            self.file_or_directory(node, &path, is_optional, depth)?;
        }
        Ok(())
    }

    /// A directory stands for all files in it.
    fn file_or_directory(&mut self, node: usize, path: &Path, is_optional: bool, depth: usize) -> Result<()> {
        self.included += 1;
        if depth >= DEEPEST || self.included > MOST_FILES {
            let reason = "the files include each other without an end";
            return Err(self.tree.refusal(node, reason, "remove the include that goes round"));
        }
        match self.source(path, Some(node)) {
            Ok(source) => self.expand(source, self.tree.nodes[node].parent, depth + 1),
            Err(refusal) => match self.files.list(path) {
                Ok(entries) => {
                    entries.iter().try_for_each(|entry| self.file_or_directory(node, entry, true, depth + 1))
                }
                Err(_) if is_optional && !self.files.exists(path) => Ok(()),
                // Without the main file the place of relative names is unknown.
                Err(_) if !self.is_main => {
                    self.tree.missing.push(refusal);
                    Ok(())
                }
                Err(_) => Err(refusal),
            },
        }
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}
