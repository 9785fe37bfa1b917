//! An Apache configuration as its directives, in the order in which Apache reads them, with included files in their places.
//! Independent of what the directives do. Lines are read as Apache reads them (`ap_cfg_getline`, `ap_resolve_env` and
//! `ap_getword_conf` of 2.4), each byte with its place in the file. A backslash at the end of a line joins it with the next
//! one, also that of a comment; only then are variables replaced, and only then are words parted.
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::budget::{self, Evaluated, Metered};
use crate::files::{Files, included, main_of};
use crate::lines::{has_only, unreadable};
use crate::refusal::{At, Refusal, Result};

/// What `Define` has set so far. `None` stands for a variable that is only set under a condition.
pub(super) type Variables = BTreeMap<Vec<u8>, Option<Evaluated>>;

/// The place of a byte in its file: where it begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    start: u32,
    end: u32,
}

/// Bytes and their places; all bytes of a variable have the place of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) bytes: Evaluated,
    places: Evaluated<Place>,
}

#[derive(Debug)]
pub(super) struct Line {
    /// Of its first byte, from 1.
    pub(super) number: u32,
    pub(super) text: Text,
}

impl Text {
    /// A byte always has its place: without room for both neither is there.
    fn push(&mut self, byte: u8, place: Place) {
        if self.bytes.push(byte) && !self.places.push(place) {
            self.bytes.pop();
        }
    }

    fn extend(&mut self, other: &Text, range: Range<usize>) {
        for at in range {
            self.push(other.bytes[at], other.places[at]);
        }
    }

    fn trimmed(&self) -> Text {
        let start = self.bytes.len() - self.bytes.trim_ascii_start().len();
        let mut text = Text::default();
        text.extend(self, start..start + self.bytes.trim_ascii().len());
        text
    }

    /// The bytes as text, with a sign in place of what is not UTF-8.
    pub(super) fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Drops the bracket that ends a section's line.
    pub(super) fn close(&mut self) {
        if self.bytes.last() == Some(&b'>') {
            self.bytes.pop();
            self.places.pop();
        }
    }

    pub(super) fn start(&self) -> usize {
        self.places.first().map_or(0, |place| place.start as usize)
    }

    /// The bytes of the file to replace so that `with` stands at these bytes. A variable of which only a part would
    /// change is written out. `None` if what is written out would need quotes.
    pub(super) fn splice(&self, range: Range<usize>, with: &str) -> Option<(Range<usize>, String)> {
        let is_inside =
            |at: usize| 0 < at && at < self.places.len() && self.places[at - 1] == self.places[at];
        let (mut start, mut end) = (range.start, range.end);
        while is_inside(start) {
            start -= 1;
        }
        while is_inside(end) {
            end += 1;
        }
        let around = [&self.bytes[start..range.start], &self.bytes[range.end..end]];
        if !around.iter().all(|part| has_only(part, "/._-:@|+")) {
            return None;
        }
        let [before, after] = around.map(String::from_utf8_lossy);
        let from = match (self.places.get(start), self.places.last()) {
            (Some(place), _) => place.start as usize,
            (None, Some(last)) => last.end as usize,
            (None, None) => 0,
        };
        let to = if end > start { self.places[end - 1].end as usize } else { from };
        Some((from..to, format!("{before}{with}{after}")))
    }

    /// The same with its variables replaced. A variable without a value stays as it is written, as with Apache.
    pub(super) fn resolved(&self, variables: &Variables) -> Text {
        let mut out = Text::default();
        let (mut at, mut close) = (0, 0);
        while at < self.bytes.len() {
            // Looked for once: a line may have as many `${` as bytes, and no end of any.
            if close < at {
                close = at;
            }
            while self.bytes.get(close).is_some_and(|byte| *byte != b'}') {
                close += 1;
            }
            let name = self.bytes.get(at..close).and_then(|name| name.strip_prefix(b"${"));
            let value = name.and_then(|name| variables.get(name)).filter(|_| close < self.bytes.len());
            if let Some(Some(value)) = value {
                let place = Place { start: self.places[at].start, end: self.places[close].end };
                for byte in value.iter() {
                    out.push(*byte, place);
                }
                at = close + 1;
            } else {
                out.extend(self, at..at + 1);
                at += 1;
            }
        }
        out
    }

    /// Its words: quotes around a word are not part of it, and a backslash hides a quote or a backslash.
    pub(super) fn words(&self) -> Vec<Text> {
        self.split(|byte, next, quote| {
            let is_hidden = byte == b'\\' && (next == b'\\' || Some(next) == quote);
            is_hidden.then_some(1)
        })
    }

    /// Its words as mod_rewrite parts them (`parseargline`): a backslash hides a space, and stays.
    fn words_of_rewrite(&self) -> Vec<Text> {
        self.split(|byte, next, _quote| {
            let is_hidden = byte == b'\\' && next.is_ascii_whitespace();
            is_hidden.then_some(0)
        })
    }

    /// `hides` takes a byte, the next one and the quote around them. If the first hides the next, it returns how many bytes
    /// of itself are dropped.
    fn split(&self, hides: impl Fn(u8, u8, Option<u8>) -> Option<usize>) -> Vec<Text> {
        let bytes = &self.bytes;
        let mut words = Vec::new();
        let mut at = 0;
        loop {
            at += bytes[at..].len() - bytes[at..].trim_ascii_start().len();
            let Some(first) = bytes.get(at) else { return words };
            let quote = Some(*first).filter(|byte| *byte == b'"' || *byte == b'\'');
            at += usize::from(quote.is_some());
            let mut word = Text::default();
            while let Some(byte) = bytes.get(at) {
                let is_end = match quote {
                    Some(quote) => quote == *byte,
                    None => byte.is_ascii_whitespace(),
                };
                if is_end {
                    break;
                }
                let next = bytes.get(at + 1);
                if let Some(dropped) = next.and_then(|next| hides(*byte, *next, quote)) {
                    word.extend(self, at + dropped..at + 2);
                    if dropped > 0 {
                        // The byte and its backslash are replaced together.
                        if let Some(last) = word.places.last_mut() {
                            last.start = self.places[at].start;
                        }
                    }
                    at += 2;
                } else {
                    word.extend(self, at..at + 1);
                    at += 1;
                }
            }
            at = (at + usize::from(quote.is_some())).min(bytes.len());
            words.push(word);
        }
    }
}

/// The lines of a file that are neither empty nor comments, as they are asked for.
pub(super) fn lines(file: &[u8]) -> Lines<'_> {
    Lines { file, at: 0, number: 1 }
}

pub(super) struct Lines<'a> {
    file: &'a [u8],
    at: usize,
    number: u32,
}

impl Lines<'_> {
    /// The next line, with those that it is joined with.
    fn joined(&mut self) -> Text {
        let mut text = Text::default();
        loop {
            let (file, at) = (self.file, self.at);
            let newline = file[at..].iter().position(|byte| *byte == b'\n');
            let end = newline.map_or(file.len(), |found| at + found);
            let is_last = end == file.len();
            let content = if !is_last && file[at..end].last() == Some(&b'\r') { end - 1 } else { end };
            let joins = !is_last && file[at..content].last() == Some(&b'\\');
            for (offset, byte) in file[at..content - usize::from(joins)].iter().enumerate() {
                let start = u32::try_from(at + offset).unwrap_or(u32::MAX);
                text.push(*byte, Place { start, end: start.saturating_add(1) });
            }
            self.at = (end + 1).min(file.len());
            self.number += 1;
            if !joins {
                return text.trimmed();
            }
        }
    }
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while self.at < self.file.len() {
            let number = self.number;
            budget::at(number);
            let text = self.joined();
            if budget::is_spent() {
                return None;
            }
            if text.bytes.first().is_some_and(|byte| *byte != b'#') {
                return Some(Line { number, text });
            }
        }
        None
    }
}

/// Maximum depth of includes; Apache's own limit is 20.
const DEEPEST: usize = 20;
/// Sections that Apache skips where they do not apply, so that what they define may not be defined.
const CONDITIONS: &[&str] = &["ifmodule", "ifdefine", "ifversion", "iffile", "ifdirective", "ifsection"];
pub(super) const MAIN_NAMES: &[&str] = &["apache2.conf", "httpd.conf", "conf/httpd.conf"];

#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    text: Rc<[u8]>,
}

#[derive(Debug)]
pub(super) struct Node {
    /// Lower case; of a section with its `<`.
    pub(super) name: String,
    pub(super) words: Vec<Text>,
    /// As an index into [`Tree::sources`].
    pub(super) source: usize,
    pub(super) line: u32,
    pub(super) start: usize,
    pub(super) parent: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) sources: Vec<Source>,
    pub(super) nodes: Vec<Node>,
    /// Includes that could not be followed.
    pub(super) missing: Vec<Refusal>,
    pub(super) variables: Variables,
    /// Where relative names begin, if that is known.
    root: Option<PathBuf>,
}

impl Tree {
    /// Reads a configuration with everything it includes; a refusal, when Apache would not read it.
    pub(super) fn read(file: &Path, files: &Metered<'_>) -> Result<Tree> {
        let is_main = MAIN_NAMES.iter().any(|name| file.ends_with(name));
        let main = if is_main { Some(file.to_owned()) } else { main_of(file, MAIN_NAMES, files) };
        let root = main.as_deref().and_then(root_of).map(Path::to_owned);
        let tree = Tree { root, ..Tree::default() };
        let mut reader = Reader { files, is_main, tree, places: HashMap::new() };
        let source = reader.source(file, None)?;
        reader.expand(source, None, 0)?;
        Ok(reader.tree)
    }

    pub(super) fn around(&self, node: usize) -> impl Iterator<Item = &Node> {
        let index = std::iter::successors(self.nodes[node].parent, |outer| self.nodes[*outer].parent);
        index.map(|index| {
            budget::step(10);
            &self.nodes[index]
        })
    }

    pub(super) fn host(&self, node: usize) -> Option<usize> {
        std::iter::successors(Some(node), |inner| self.nodes[*inner].parent)
            .find(|outer| self.nodes[*outer].name == "<virtualhost")
    }

    /// Everything that Apache reads or loads because of it, the file that was asked for first: its sources, and libraries.
    pub(super) fn files(&self, files: &Metered<'_>) -> Vec<PathBuf> {
        let folder = self.root.as_deref().unwrap_or(Path::new("/"));
        let mut found: Vec<PathBuf> = self.sources.iter().map(|source| source.path.clone()).collect();
        for node in &self.nodes {
            let libraries = match node.name.as_str() {
                // Its first word is the name of the module.
                "loadmodule" => node.words.get(1..).unwrap_or_default(),
                "loadfile" => &node.words[..],
                _ => continue,
            };
            for library in libraries {
                let path = folder.join(path_of(&library.bytes));
                if files.exists(&path) {
                    found.push(path);
                }
            }
        }
        found
    }

    pub(super) fn runs_perl(&self) -> bool {
        self.nodes.iter().any(|node| node.name.trim_start_matches('<').starts_with("perl"))
    }

    pub(super) fn path(&self, node: usize) -> &Path {
        &self.sources[self.nodes[node].source].path
    }

    pub(super) fn place(&self, node: usize) -> String {
        format!("{}:{}", self.path(node).display(), self.nodes[node].line)
    }

    pub(super) fn at(&self, node: usize) -> At<'_> {
        At { file: self.path(node), line: self.nodes[node].line }
    }
}

/// The directory of relative names, as distributions build it.
fn root_of(main: &Path) -> Option<&Path> {
    let directory = main.parent()?;
    if directory.ends_with("conf") { directory.parent() } else { Some(directory) }
}

struct Reader<'a> {
    files: &'a Metered<'a>,
    is_main: bool,
    tree: Tree,
    /// Where each file stands among the sources.
    places: HashMap<PathBuf, usize>,
}

impl Reader<'_> {
    fn source(&mut self, path: &Path, from: Option<usize>) -> Result<usize> {
        if let Some(index) = self.places.get(path) {
            return Ok(*index);
        }
        let from = from.map(|node| self.tree.at(node));
        let text = self.files.read(path).map_err(|error| unreadable(path, from, &error))?;
        self.places.insert(path.to_owned(), self.tree.sources.len());
        self.tree.sources.push(Source { path: path.to_owned(), text: text.into() });
        Ok(self.tree.sources.len() - 1)
    }

    fn expand(&mut self, source: usize, below: Option<usize>, depth: usize) -> Result<()> {
        let text = Rc::clone(&self.tree.sources[source].text);
        let path = self.tree.sources[source].path.clone();
        let wrong = |line: u32, reason: String| {
            Refusal::new(&path, line, reason, "apachectl configtest says the same: correct it first")
        };
        let mut open: Vec<usize> = Vec::new();
        for line in lines(&text) {
            let in_perl = open.last().is_some_and(|open| self.tree.nodes[*open].name == "<perl");
            let number = line.number;
            let mut text = line.text.resolved(&self.tree.variables);
            if text.bytes.first() == Some(&b'<') {
                text.close();
            }
            let mut words = text.words();
            let Some(first) = words.first() else { continue };
            let name = first.lossy().to_ascii_lowercase();
            if let Some(closed) = name.strip_prefix("</") {
                match open.last() {
                    Some(last) if self.tree.nodes[*last].name.strip_prefix('<') == Some(closed) => {
                        open.pop();
                    }
                    Some(_) if in_perl => {}
                    _ => return Err(wrong(number, format!("`</{closed}>` closes no section"))),
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
            budget::hold(size_of::<Node>() + words.len() * size_of::<Text>() + name.len());
            self.tree.nodes.push(Node { name, words, source, line: number, start, parent });
            if is_section {
                open.push(node);
            } else {
                self.at_once(node, depth)?;
            }
        }
        let Some(last) = open.last() else { return Ok(()) };
        let node = &self.tree.nodes[*last];
        Err(wrong(node.line, format!("`{}>` is not closed", node.name)))
    }

    /// Takes account of a directive that changes what Apache reads below it: `Define`, `ServerRoot`, `Include`.
    fn at_once(&mut self, node: usize, depth: usize) -> Result<()> {
        let first = self.tree.nodes[node].words.first().map(|word| word.bytes.to_vec());
        let (mut is_conditional, mut in_macro) = (false, false);
        for section in self.tree.around(node).filter_map(|one| one.name.strip_prefix('<')) {
            is_conditional |= CONDITIONS.contains(&section);
            in_macro |= section == "macro";
        }
        match (self.tree.nodes[node].name.as_str(), first) {
            ("define", Some(name)) => {
                // A value that Apache may not set, or sets once for each use of a macro, is none that is known.
                let value = if is_conditional || in_macro {
                    None
                } else {
                    Some(
                        self.tree.nodes[node]
                            .words
                            .get(1)
                            .map_or(Evaluated::default(), |word| word.bytes.clone()),
                    )
                };
                self.tree.variables.insert(name, value);
            }
            ("undefine", Some(name)) => {
                self.tree.variables.insert(name, None);
            }
            ("serverroot", Some(path)) => {
                let path = path_of(&path);
                self.tree.root = if path.is_absolute() { Some(path) } else { None };
            }
            ("include" | "includeoptional", Some(pattern)) if !in_macro => {
                self.include(node, &pattern, depth)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn include(&mut self, node: usize, pattern: &[u8], depth: usize) -> Result<()> {
        let path = path_of(pattern);
        let full = match &self.tree.root {
            _ if pattern.windows(2).any(|two| two == b"${") => None,
            Some(root) => Some(root.join(path)),
            None => Some(path).filter(|path| path.is_absolute()),
        };
        let Some(full) = full else {
            let reason = "which files are included is not known here";
            let refusal = self.tree.at(node).refusal(reason, "ask for the file that Apache begins with");
            self.tree.missing.push(refusal);
            return Ok(());
        };
        let is_optional = self.tree.nodes[node].name == "includeoptional";
        let found = included(full, self.files);
        for path in found
            .map_err(|error| self.tree.at(node).refusal(error.to_string(), "make the directory readable"))?
        {
            self.file_or_directory(node, &path, is_optional, depth)?;
        }
        Ok(())
    }

    /// A directory stands for all files in it.
    fn file_or_directory(&mut self, node: usize, path: &Path, is_optional: bool, depth: usize) -> Result<()> {
        if depth >= DEEPEST || !budget::open() {
            let reason = "the files include each other without an end";
            return Err(self.tree.at(node).refusal(reason, "remove the include that goes round"));
        }
        match self.source(path, Some(node)) {
            Ok(source) => self.expand(source, self.tree.nodes[node].parent, depth + 1),
            Err(refusal) => match self.files.list(path) {
                Ok(entries) => {
                    for entry in &entries {
                        self.file_or_directory(node, entry, true, depth + 1)?;
                    }
                    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let words = lines(text.as_bytes()).next().unwrap().text.words();
        words.iter().map(|word| String::from_utf8_lossy(&word.bytes).into_owned()).collect()
    }

    #[test]
    fn lines_are_joined_before_comments_are_seen() {
        let found = lines(b"# a \\\nProxyPass / x\r\n a \\\r\n b\\\nc\n\n d");
        let found: Vec<_> =
            found.map(|line| (line.number, String::from_utf8_lossy(&line.text.bytes).into_owned())).collect();
        assert_eq!(found, [(3, "a  bc".to_owned()), (7, "d".to_owned())]);
    }

    #[test]
    fn words_are_parted_as_apache_does() {
        assert_eq!(words(r#"a "b c" 'd "e' "f\"g" h\\i \j"#), ["a", "b c", "d \"e", "f\"g", "h\\i", "\\j"]);
        assert_eq!(
            words(r#"SetHandler "proxy:unix:/a"|fcgi://b"#),
            ["SetHandler", "proxy:unix:/a", "|fcgi://b"]
        );
        let rewrite = lines(br#"^a\ b$ "c\"d" e"#).next().unwrap().text.words_of_rewrite();
        let rewrite: Vec<_> = rewrite.iter().map(|word| String::from_utf8_lossy(&word.bytes)).collect();
        assert_eq!(rewrite, ["^a\\ b$", "c\\", "d\"", "e"]);
    }

    #[test]
    fn variables_are_written_out_where_a_part_of_them_changes() {
        let mut value = Evaluated::default();
        value.extend(b"proxy:fcgi://a:1");
        let variables = Variables::from([(b"V".to_vec(), Some(value))]);
        let line = lines(b"x ${V}/${W}").next().unwrap();
        let word = &line.text.resolved(&variables).words()[1];
        assert_eq!(*word.bytes, *b"proxy:fcgi://a:1/${W}");
        assert_eq!(word.splice(6..6, "unix:/s|"), Some((2..6, "proxy:unix:/s|fcgi://a:1".to_owned())));
        assert_eq!(word.splice(0..0, "unix:/s|"), Some((2..2, "unix:/s|".to_owned())));
        assert_eq!(word.splice(16..17, "|"), Some((6..7, "|".to_owned())));
    }
}
