//! A Caddyfile as Caddy understands it: statements with their blocks, where `import` stands for a snippet or for files.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::lexer::{self, Token};
use crate::files::{Bounded, Files};
use crate::glob::{glob, is_pattern};
use crate::lines;
use crate::refusal::{At, Refusal, Result};

/// Imports nest no deeper than this.
const DEEPEST: usize = 20;

/// The words of a line, and the block that opens at its end.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) file: Rc<PathBuf>,
    /// Without the brace.
    pub(super) words: Vec<Token>,
    pub(super) block: Option<Vec<Statement>>,
    /// From 1.
    pub(super) line: u32,
}

impl Statement {
    /// A word's value; empty where the statement is shorter.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", |word| &word.value)
    }

    pub(super) fn refusal(&self, line: u32, why: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.file, line, why, by_hand)
    }

    /// The statements below it, at any depth.
    pub(super) fn below(&self) -> Vec<&Statement> {
        let own = self.block.iter().flatten();
        own.flat_map(|one| std::iter::once(one).chain(one.below())).collect()
    }
}

/// The directives of all sites, in the order of the text, as they are once everything is imported.
pub(super) fn read(file: &Path, files: &dyn Files) -> Result<Vec<Statement>> {
    let bounded = Bounded::new(files);
    let mut reader = Reader { files: &bounded, snippets: BTreeMap::new(), is_braceless: false };
    let statements = reader.file(file)?;
    let mut found = Vec::new();
    reader.top(statements, &mut found, 0)?;
    Ok(found)
}

struct Reader<'a> {
    files: &'a dyn Files,
    snippets: BTreeMap<String, Vec<Statement>>,
    /// Whether a site has begun whose directives stand in no braces.
    is_braceless: bool,
}

impl Reader<'_> {
    fn file(&self, file: &Path) -> Result<Vec<Statement>> {
        let refuse = |line: u32, why: &str| Refusal::new(file, line, why, "change it by hand");
        let bytes = lines::read(file, self.files)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| refuse(0, "it is not UTF-8"))?;
        if text.starts_with('\u{feff}') {
            return Err(refuse(0, "it begins with a byte order mark"));
        }
        if text.trim_start().starts_with('{') && text.trim_start()[1..].trim_start().starts_with('"') {
            return Err(refuse(0, "it is JSON, and not a Caddyfile"));
        }
        let tokens = lexer::tokens(text).map_err(|(line, why)| refuse(line, why))?;
        parse(&Rc::new(file.to_owned()), tokens)
    }

    /// The statements outside of any site.
    fn top(&mut self, statements: Vec<Statement>, found: &mut Vec<Statement>, depth: usize) -> Result<()> {
        for statement in statements {
            if statement.word(0) == "import" {
                let imported = self.imported(&statement, depth)?;
                self.top(imported, found, depth + 1)?;
            } else if self.is_braceless {
                found.extend(self.expanded(vec![statement], depth)?);
            } else {
                self.site(statement, found, depth)?;
            }
        }
        Ok(())
    }

    fn site(&mut self, mut statement: Statement, found: &mut Vec<Statement>, depth: usize) -> Result<()> {
        let name = statement.word(0).strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let name = name.filter(|_| statement.words.len() == 1).map(str::to_owned);
        match (statement.block.take(), name) {
            (Some(block), Some(name)) => {
                self.snippets.insert(name, block);
            }
            // The global options.
            (Some(_), None) if statement.words.is_empty() => {}
            (Some(block), None) => found.extend(self.expanded(block, depth)?),
            // The addresses of a site may go on below.
            (None, _) if statement.words.last().is_some_and(|word| word.value.ends_with(',')) => {}
            (None, _) => self.is_braceless = true,
        }
        Ok(())
    }

    /// Statements with what they import in its place.
    fn expanded(&self, statements: Vec<Statement>, depth: usize) -> Result<Vec<Statement>> {
        let mut found = Vec::new();
        for mut statement in statements {
            if statement.word(0) == "import" {
                let imported = self.imported(&statement, depth)?;
                found.extend(self.expanded(imported, depth + 1)?);
                continue;
            }
            let block = statement.block.take();
            statement.block = block.map(|block| self.expanded(block, depth)).transpose()?;
            found.push(statement);
        }
        Ok(found)
    }

    /// A path without `..`, if it leads to the same file: no file is edited under two names.
    fn plain(&self, path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        for part in path.components() {
            if part != Component::ParentDir || !plain.pop() {
                plain.push(part);
            }
        }
        if self.files.real(&plain) == self.files.real(path) { plain } else { path.to_owned() }
    }

    /// What an `import` stands for.
    fn imported(&self, statement: &Statement, depth: usize) -> Result<Vec<Statement>> {
        let refuse =
            |why: &str| statement.refusal(statement.line, why, "name a file or a snippet that is there");
        if statement.block.is_some() {
            return Err(refuse("it imports with a block, which Caddy knows only since 2.9"));
        }
        let Some(word) = statement.words.get(1) else { return Err(refuse("it imports nothing")) };
        if depth >= DEEPEST {
            return Err(refuse("imports are nested too deeply"));
        }
        if let Some(snippet) = self.snippets.get(&word.value) {
            return Ok(snippet.clone());
        }
        if word.value.contains('{') {
            return Err(refuse("what it imports is put together from variables"));
        }
        let folder = statement.file.parent().unwrap_or(Path::new("/"));
        let path = folder.join(&word.value);
        let pattern = path.as_os_str().as_encoded_bytes();
        let paths = glob(self.files, pattern).map_err(|error| refuse(&error.to_string()))?;
        if !is_pattern(pattern) && !self.files.exists(&path) {
            return Err(refuse(&format!("there is no snippet and no file {}", word.value)));
        }
        let all = paths.iter().map(|path| self.file(&self.plain(path))).collect::<Result<Vec<_>>>()?;
        Ok(all.into_iter().flatten().collect())
    }
}

/// Whether a word is a brace, in quotes or not.
fn is_brace(word: &Token) -> bool {
    matches!(word.value.as_str(), "{" | "}" | "{}")
}

/// The statements of a file.
fn parse(file: &Rc<PathBuf>, tokens: Vec<Token>) -> Result<Vec<Statement>> {
    let mut stack: Vec<Statement> = Vec::new();
    let mut statements = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(first) = tokens.next() {
        let line = first.line;
        let by_hand = "correct the braces first";
        let here = At { file, line };
        let mut words = vec![first];
        while let Some(word) = tokens.next_if(|next| !next.begins_line) {
            words.push(word);
        }
        if words.iter().any(|word| is_brace(word) && word.is_quoted) {
            return Err(here.refusal("a brace stands in quotes", by_hand));
        }
        if words[0].value == "}" {
            let closed = stack.pop().filter(|_| words.len() == 1);
            let closed = closed.ok_or_else(|| {
                here.refusal("a closing brace is not alone in its line, or one too many", by_hand)
            })?;
            let above = stack.last_mut().and_then(|open| open.block.as_mut());
            above.unwrap_or(&mut statements).push(closed);
            continue;
        }
        let opens = words.pop_if(|word| word.value == "{").is_some();
        if words.iter().any(is_brace) {
            return Err(here.refusal("a brace stands in the middle of a line", by_hand));
        }
        let statement = Statement { file: Rc::clone(file), words, block: opens.then(Vec::new), line };
        if opens {
            stack.push(statement);
        } else {
            let above = stack.last_mut().and_then(|open| open.block.as_mut());
            above.unwrap_or(&mut statements).push(statement);
        }
    }
    match stack.last() {
        Some(open) => Err(open.refusal(open.line, "a brace is not closed", "correct the braces first")),
        None => Ok(statements),
    }
}
