//! A Caddyfile as Caddy understands it: tokens, then statements with their blocks, where `import` stands for a snippet or for
//! files.
//!
//! In its tokens (caddyconfig/caddyfile/lexer.go of 2.6) a quote counts only where a token begins, and its token ends with it;
//! a comment begins only where a token would.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use crate::budget::{self, Metered};
use crate::files::{Files, glob, is_pattern};
use crate::lines;
use crate::refusal::{At, Refusal, Result};

const DEEPEST: usize = 20;
/// Deepest block; what goes through them calls itself.
const DEEPEST_BLOCK: usize = 100;

#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) file: Rc<PathBuf>,
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

    /// Whether there is room for it once more, with all that is in it.
    fn is_held(&self) -> bool {
        let bytes: usize = self.words.iter().map(|word| word.value.len() + size_of::<Token>()).sum();
        budget::step(20 + bytes / 8)
            && budget::hold(bytes + size_of::<Statement>())
            && self.block.iter().flatten().all(Statement::is_held)
    }

    pub(super) fn below(&self) -> Vec<&Statement> {
        let mut found = Vec::new();
        for one in self.block.iter().flatten() {
            found.push(one);
            found.extend(one.below());
        }
        found
    }
}

/// The directives of all sites, in the order of the text, as they are once everything is imported.
pub(super) fn read(file: &Path, files: &Metered<'_>) -> Result<Vec<Statement>> {
    let mut reader = Reader { files, snippets: BTreeMap::new(), is_braceless: false };
    let statements = reader.file(file)?;
    let mut found = Vec::new();
    reader.top(statements, &mut found, 0)?;
    Ok(found)
}

struct Reader<'a> {
    files: &'a Metered<'a>,
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
        let tokens = tokens(text).map_err(|(line, why)| refuse(line, why))?;
        parse(&Rc::new(file.to_owned()), tokens)
    }

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
            (Some(_), None) if statement.words.is_empty() => {}
            (Some(block), None) => found.extend(self.expanded(block, depth)?),
            // The addresses of a site may go on below.
            (None, _) if statement.words.last().is_some_and(|word| word.value.ends_with(',')) => {}
            (None, _) => self.is_braceless = true,
        }
        Ok(())
    }

    fn expanded(&self, statements: Vec<Statement>, depth: usize) -> Result<Vec<Statement>> {
        let mut found = Vec::new();
        for mut statement in statements {
            if statement.word(0) == "import" {
                let imported = self.imported(&statement, depth)?;
                found.extend(self.expanded(imported, depth + 1)?);
                continue;
            }
            if let Some(block) = statement.block.take() {
                statement.block = Some(self.expanded(block, depth)?);
            }
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
            budget::at(statement.line);
            let has_room = snippet.iter().all(Statement::is_held);
            return Ok(if has_room { snippet.clone() } else { Vec::new() });
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
        let mut statements = Vec::new();
        for path in &paths {
            statements.extend(self.file(&self.plain(path))?);
        }
        Ok(statements)
    }
}

fn is_brace(word: &Token) -> bool {
    matches!(word.value.as_str(), "{" | "}" | "{}")
}

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
        let complete = if words[0].value == "}" {
            match stack.pop() {
                Some(closed) if words.len() == 1 => closed,
                _ => {
                    let reason = "a closing brace is not alone in its line, or one too many";
                    return Err(here.refusal(reason, by_hand));
                }
            }
        } else {
            let opens = words.pop_if(|word| word.value == "{").is_some();
            if words.iter().any(is_brace) {
                return Err(here.refusal("a brace stands in the middle of a line", by_hand));
            }
            if opens && stack.len() >= DEEPEST_BLOCK {
                return Err(here.refusal("blocks are nested too deeply", "write the blocks less deep"));
            }
            if opens {
                stack.push(Statement { file: Rc::clone(file), words, block: Some(Vec::new()), line });
                continue;
            }
            Statement { file: Rc::clone(file), words, block: None, line }
        };
        match stack.last_mut() {
            Some(open) => open.block.get_or_insert_default().push(complete),
            None => statements.push(complete),
        }
    }
    match stack.last() {
        Some(open) => Err(open.refusal(open.line, "a brace is not closed", "correct the braces first")),
        None => Ok(statements),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) value: String,
    /// As it is written, with its quotes.
    pub(super) range: Range<usize>,
    /// From 1.
    pub(super) line: u32,
    /// Whether it is the first of its line, to Caddy: a backslash joins lines.
    pub(super) begins_line: bool,
    pub(super) is_quoted: bool,
    /// Whether Caddy puts the value of an environment variable there, before it looks for tokens.
    pub(super) has_variable: bool,
}

/// The tokens of a text; or a line, and what is unusual in it.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, (u32, &'static str)> {
    let last_brace = text.rfind('}').unwrap_or_default();
    let mut lexer = Lexer { text, at: 0, line: 1, is_new_line: true, last_brace };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        budget::at(token.line);
        if !budget::step(20 + token.value.len()) || !budget::hold(token.value.len() + 2 * size_of::<Token>())
        {
            break;
        }
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    is_new_line: bool,
    /// Behind it no variable ends: half a million that stay open took 17 s.
    last_brace: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        if next == '\n' {
            self.line += 1;
        }
        Some(next)
    }

    fn skip(&mut self) {
        let mut in_comment = false;
        loop {
            let rest = self.rest();
            if rest.starts_with("\\\n") || rest.starts_with("\\\r\n") {
                // The line goes on, even that of a comment; the comment does not.
                while self.bump() != Some('\n') {}
                in_comment = false;
                continue;
            }
            match rest.chars().next() {
                Some('\n') => {
                    self.is_new_line = true;
                    in_comment = false;
                }
                Some('#') => in_comment = true,
                Some(next) if in_comment || next.is_whitespace() => {}
                _ => return,
            }
            self.bump();
        }
    }

    fn next(&mut self) -> Result<Option<Token>, (u32, &'static str)> {
        self.skip();
        let (start, line) = (self.at, self.line);
        let begins_line = std::mem::take(&mut self.is_new_line);
        let mut token = Token { range: start..start, line, begins_line, ..Token::default() };
        match self.rest().chars().next() {
            None => return Ok(None),
            Some(quote @ ('"' | '`')) => {
                token.is_quoted = true;
                self.bump();
                self.quoted(quote, &mut token)?;
            }
            Some(_) => self.bare(&mut token)?,
        }
        token.range.end = self.at;
        if !token.is_quoted && token.value.starts_with("<<") {
            return Err((line, "it has a heredoc, which Caddy knows only since 2.7"));
        }
        Ok(Some(token))
    }

    fn quoted(&mut self, quote: char, token: &mut Token) -> Result<(), (u32, &'static str)> {
        loop {
            if self.variable(token) {
                continue;
            }
            match self.bump() {
                None => return Err((token.line, "a quote is not closed")),
                Some(next) if next == quote => return Ok(()),
                Some('\\') if quote == '"' => match self.bump() {
                    Some('"') => token.value.push('"'),
                    Some(next) => token.value.extend(['\\', next]),
                    None => return Err((token.line, "a quote is not closed")),
                },
                Some(next) => token.value.push(next),
            }
        }
    }

    fn bare(&mut self, token: &mut Token) -> Result<(), (u32, &'static str)> {
        loop {
            if self.variable(token) {
                continue;
            }
            let rest = self.rest();
            let next = rest.chars().next();
            if rest.starts_with('\r') && !rest.starts_with("\r\n") {
                return Err((self.line, "it has a carriage return inside a line"));
            }
            // The backslash before a newline ends the token, and is none of it.
            let joins = rest.starts_with("\\\n") || rest.starts_with("\\\r\n");
            if joins || next.is_none_or(char::is_whitespace) {
                return Ok(());
            }
            token.value.extend(self.bump());
        }
    }

    /// Takes a variable, whose default may have spaces.
    fn variable(&mut self, token: &mut Token) -> bool {
        if self.at > self.last_brace {
            return false;
        }
        let Some(end) = self.rest().strip_prefix("{$").and_then(|rest| rest.find('}')) else { return false };
        let end = self.at + 2 + end;
        while self.at <= end {
            token.value.extend(self.bump());
        }
        token.has_variable = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        tokens(text).unwrap().into_iter().map(|token| token.value).collect()
    }

    #[test]
    fn tokens_are_those_of_caddy() {
        assert_eq!(
            values("a \"b c\"d `e\\\"` f#g # h\n\"i\\\"j\\k\""),
            ["a", "b c", "d", "e\\\"", "f#g", "i\"j\\k"]
        );
        assert_eq!(values("a\\\n b \\q x\"y"), ["a", "b", "\\q", "x\"y"]);
        assert_eq!(values("{$A:b c} x{$D}"), ["{$A:b c}", "x{$D}"]);
        assert!(tokens("a \"b").is_err() && tokens("respond <<EOF\nx\nEOF").is_err());
    }

    #[test]
    fn tokens_know_their_lines() {
        let found = tokens("a \\\n b\nc # d \\\ne\n\"f\ng\" h").unwrap();
        let places: Vec<_> =
            found.iter().map(|one| (one.value.as_str(), one.line, one.begins_line)).collect();
        assert_eq!(
            places,
            [
                ("a", 1, true),
                ("b", 2, false),
                ("c", 3, true),
                ("e", 4, false),
                ("f\ng", 5, true),
                ("h", 6, false)
            ]
        );
        assert_eq!(found[4].range, 17..22);
    }
}
