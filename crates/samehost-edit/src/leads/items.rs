//! A text as the values that stand in it, whatever format it has: what is quoted, the words that are not, and the values of
//! options, each with the key before it and the brackets around it.

use std::collections::HashMap;
use std::ops::Range;

use super::address::{self, PLACES, is_comment, is_of_a_name};
use super::variables::{Known, as_shells_write, with_defaults};

/// Longest line that is looked at as one, in bytes, and about how long the pieces of a longer one are: a piece of 8 KiB of nothing
/// but quotes or `${` took 30 s for a megabyte of them.
const LONGEST_LINE: usize = 8192;
const PIECE: usize = 256;
/// How far before a bracket its name is looked for, in bytes: of a line of brackets each was looked for in all before it.
const LONGEST_NAME: usize = 64;
/// How many values of a text are kept.
const MOST: usize = 50_000;
/// Directives of web servers with addresses to which they do not connect.
const OWN_DIRECTIVES: &[&str] = &[
    "return", "rewrite", "server_name", "listen", "allow", "deny", "proxy_redirect", "add_header",
    "resolver", "ProxyPassReverse", "Listen", "Require", "Allow", "Deny",
];

/// Signs before a value that something is compared with, and that leads nowhere.
const COMPARING: &[&str] = &["==", "!=", "=~", "!~"];

/// The name of stunnel's `connect`, which leads to this machine with a port alone; each of its services has `accept` beside it.
pub(super) const CONNECT: &str = "connect port";
const ACCEPT: &str = "accept";

/// A value of a text.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its line, from 1.
    pub(super) line: u32,
    /// The name before it.
    pub(super) key: String,
    /// The value, with variables as this text sets them.
    pub(super) text: String,
    /// The variables without which this counts: it is their default.
    pub(super) unless: Vec<String>,
    /// Its column, from 1.
    pub(super) column: u32,
    /// What its key belongs to, as an index into the scopes of the text.
    pub(super) scope: usize,
    /// Whether nothing but a comma or a blank is between it and the one before it here.
    pub(super) follows: bool,
    /// Whether a word that may be a host of another machine is beside it so.
    pub(super) is_beside_a_name: bool,
    /// Whether it is an argument of a call, by itself or among others.
    pub(super) is_argument: bool,
    /// Whether its key is an option of one letter: `-p 6379`.
    pub(super) is_option: bool,
    /// Whether a schema has it for the `default` of its key: what counts is said elsewhere.
    pub(super) is_default: bool,
}

/// The values of a text, in its order, with its scopes; its comments, and lines that connect to nobody, are left out. With it
/// whether there are more than are kept.
pub(super) fn items(text: &str) -> (Vec<Item>, Scopes, bool) {
    let known = Known::of(text);
    let is_accept = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == ACCEPT);
    let is_stunnels = text.lines().any(is_accept);
    let mut reader = Reader { is_xml: is_xml(text), is_stunnels, ..Reader::default() };
    for (number, code) in lines_of_code(text) {
        reader.line = number;
        if is_directive_of_its_own(code) {
            continue;
        }
        for (start, piece) in pieces(code) {
            // JSON may escape its slashes. Caddy has `{$HOST:127.0.0.1}`, and PHP `{$host}`.
            let piece = piece.replace("\\/", "/").replace("{$", "${");
            // What is printed a person reads: a variable in that is named where it is set. A program's `$url` is not the variable `url` of
            // its environment.
            let is_printed = code.trim_start().starts_with("print ");
            let filled = if is_printed { piece.into() } else { known.filled(&piece) };
            let piece = as_shells_write(&filled);
            if start == 0 {
                reader.begin_line(&piece);
            }
            reader.before_piece = start as u32;
            reader.read(&piece);
            reader.above = name_for_below(&piece).unwrap_or(std::mem::take(&mut reader.above));
        }
    }
    (reader.items, reader.scopes, reader.is_cut)
}

/// The lines of a text that are no comments, each with its number and without the comment at its end.
pub(super) fn lines_of_code(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let mut comment_ends = None;
    // Lua's and SQL's comments need no blank behind their sign; `--host` alone in a line is an option where no comment has one.
    let has_dashes = text.lines().any(|line| line.trim_start().starts_with("-- "));
    text.lines().enumerate().filter_map(move |(index, line)| {
        if has_dashes && line.trim_start().starts_with("--") {
            return None;
        }
        let code = without_comment(line, &mut comment_ends)?;
        Some((u32::try_from(index + 1).unwrap_or(u32::MAX), code))
    })
}

/// A line over [`LONGEST_LINE`] in pieces of some [`PIECE`], each with where it begins: up to a comma outside of quotes, else up to a blank or the end
/// of what is quoted. JSON is one line of a megabyte, and a port was closed under an address in such a one.
fn pieces(line: &str) -> Vec<(usize, &str)> {
    if line.len() <= LONGEST_LINE {
        return vec![(0, line)];
    }
    let (mut pieces, mut start, mut best) = (Vec::new(), 0, 0);
    let (mut quote, mut opened, mut before) = (None, 0, ' ');
    let ends = ['"', '\'', '`'].into_iter().filter_map(|one| Some((one, line.rfind(one)?)));
    let last: HashMap<char, usize> = ends.collect();
    for (at, letter) in line.char_indices() {
        if at.saturating_sub(start) >= PIECE {
            let end = if best > start { best } else { at };
            pieces.push((start, &line[start..end]));
            start = end;
        }
        match quote {
            Some(open) if letter == open && before != '\\' => {
                quote = None;
                if opened < start {
                    // The end of a text that began in another piece opens none.
                    pieces.push((start, &line[start..at]));
                    start = at + 1;
                }
            }
            None if last.get(&letter).is_some_and(|last| *last > at) => (quote, opened) = (Some(letter), at),
            _ => {}
        }
        let is_between = quote.is_none() && matches!(letter, ',' | ';' | '&');
        let is_far =
            at.saturating_sub(best.max(start)) > PIECE / 2 && (letter.is_ascii_whitespace() || letter == '>');
        if is_between || is_far {
            best = at + letter.len_utf8();
        }
        before = letter;
    }
    pieces.push((start, &line[start..]));
    pieces
}

/// An XML file begins with a tag; PHP and ERB with one of their own.
fn is_xml(text: &str) -> bool {
    let start = text.trim_start();
    start.starts_with('<')
        && !start.starts_with("<?php")
        && !start.starts_with("<?=")
        && !start.starts_with("<%")
}

/// What keys belong together by, whatever the format has: a pair of brackets, an element, lines that are indented alike below one,
/// an item of a list, a section. Each has the scope around it and the name before it, if one is; 0 is the text.
pub(super) struct Scopes(Vec<(usize, String)>);

impl Default for Scopes {
    fn default() -> Self {
        Scopes(vec![(0, String::new())])
    }
}

impl Scopes {
    fn within(&mut self, around: usize, name: &str) -> usize {
        self.0.push((around, name.to_owned()));
        self.0.len() - 1
    }

    pub(super) fn name(&self, scope: usize) -> &str {
        &self.0[scope].1
    }

    /// The scopes around one, the nearest first.
    pub(super) fn around(&self, scope: usize) -> impl Iterator<Item = usize> + '_ {
        let next = |scope: &usize| (*scope > 0).then(|| self.0[*scope].0);
        std::iter::successors(next(&scope), next)
    }
}

/// What is known of a text up to a line.
#[derive(Default)]
struct Reader {
    items: Vec<Item>,
    line: u32,
    /// How many bytes of the line are before the piece of it that is read.
    before_piece: u32,
    /// Whether there are values that are not kept, since there are too many.
    is_cut: bool,
    /// The name that a line above gives to those below it.
    above: String,
    scopes: Scopes,
    /// The brackets and tags that are open, each with its scope.
    open: Vec<(char, usize)>,
    /// Lines outside of brackets: how far those are indented that are around the next one, each with its scope.
    indented: Vec<(usize, usize)>,
    is_xml: bool,
    is_stunnels: bool,
    is_in_tag: bool,
    /// What is between the last value and the end of its line.
    rest: String,
    last: Last,
}

/// The value before, whether it is kept or not.
#[derive(Default)]
struct Last {
    line: u32,
    key: String,
    text: String,
    is_kept: bool,
}

/// A value in a line, by its place there, quotes included.
struct Span {
    start: usize,
    end: usize,
    text: String,
    is_quoted: bool,
}

impl Reader {
    fn read(&mut self, code: &str) {
        let (spans, bare) = spans(code);
        let (mut at, mut list) = (0, 0);
        let mut options = None;
        for (index, span) in spans.iter().enumerate() {
            self.brackets_of(code, &bare, at..span.start);
            let gap = format!("{}{}", std::mem::take(&mut self.rest), &code[at..span.start]);
            at = span.end;
            // A scheme of which a text is made: `"redis://" + host`.
            let is_begun = span.text.ends_with("://") && code[at..].trim_start().starts_with(['+', '.', '%']);
            if is_begun || COMPARING.iter().any(|sign| gap.trim_end().ends_with(sign)) {
                self.last = Last::default();
                continue;
            }
            let behind = spans.get(index + 1).map_or(code.len(), |next| next.start);
            let is_closed = code[at..behind].trim_start().starts_with([',', ')', ']']);
            let mut before = Before::of(&code[..span.start]);
            // A value of the same list is no key: the name of a host was the password in the one before it.
            let is_of_list = index > 0
                && gap.trim() == ","
                && spans[index - 1].is_quoted
                && !is_name(&spans[index - 1].text);
            if !is_of_list {
                list = span.start;
            }
            let named;
            let may_lead = span.text.contains([':', '/']) && !span.text.starts_with(':');
            if is_of_list && (may_lead || address::host(&span.text).is_some()) {
                named = Before::of(&code[..list]).key();
                before = Before { name: &named, is_assigned: false, is_option: false, is_first: false };
            }
            let (value, unless) = with_defaults(&span.text);
            if span.is_quoted && (is_command(&value) || holds_values(&span.text)) {
                let column = self.before_piece + span.start as u32;
                self.read_command(&value.replace("\\\"", "\""), &unless, column);
                continue;
            }
            let is_argument = is_closed && gap.trim_end().ends_with(['(', ',', '[']);
            let mut item = self.item(span, &before, &gap, is_argument);
            if item.is_option {
                item.scope = *options.get_or_insert_with(|| self.scopes.within(item.scope, ""));
            }
            self.keep(item);
        }
        self.brackets_of(code, &bare, at..bare.len());
        self.rest = format!("{}\n", &code[at..]);
    }

    /// Keeps a value that may be a part of an address; a text has many others.
    fn keep(&mut self, mut item: Item) {
        let is_port = address::port(&item.text).is_some();
        if self.is_stunnels && is_port && item.key == "connect" {
            CONNECT.clone_into(&mut item.key);
        }
        let may_be_a_name = address::host(&item.text).is_none() && address::is_any_host(&item.text);
        if item.follows
            && may_be_a_name
            && self.last.is_kept
            && address::port(&self.last.text).is_some()
            && let Some(port) = self.items.last_mut()
        {
            port.is_beside_a_name = true;
        }
        let last = &self.last;
        item.is_beside_a_name =
            item.follows && address::host(&last.text).is_none() && address::is_any_host(&last.text);
        let is_alone =
            is_port && (item.is_argument || item.follows || item.is_option || is_of_port(&item.key));
        let is_address = item.text.contains([':', '/', '=']) || address::host(&item.text).is_some();
        // `port:` is a key.
        let is_key = item.text.ends_with(':');
        let is_kept = (is_alone || is_address || is_of_host(&item)) && !is_key;
        self.is_cut |= is_kept && self.items.len() >= MOST;
        let is_kept = is_kept && !self.is_cut;
        item.follows &= last.is_kept;
        self.last = Last { line: item.line, key: item.key.clone(), text: item.text.clone(), is_kept };
        if is_kept {
            self.items.push(item);
        }
    }

    /// The words of a command that is one value.
    fn read_command(&mut self, command: &str, unless: &[String], column: u32) {
        let scopes = std::mem::take(&mut self.scopes);
        let mut inner = Reader { line: self.line, scopes, ..Reader::default() };
        let scope = inner.scopes.within(self.scope(), "");
        inner.open.push(('"', scope));
        inner.read(command);
        self.scopes = inner.scopes;
        for item in &mut inner.items {
            item.column += column + 1;
            item.unless.extend_from_slice(unless);
        }
        self.items.append(&mut inner.items);
        self.is_cut |= inner.is_cut;
        self.last = Last::default();
    }

    fn item(&self, span: &Span, before: &Before<'_>, gap: &str, is_argument: bool) -> Item {
        let is_between = gap.trim().trim_start_matches(',').is_empty();
        let follows = is_between && (gap.contains(',') || !gap.contains('\n')) && !gap.is_empty();
        // Arguments by their places belong to what is around the call: define('DB_PORT', 1), port(6379).
        let mut own = self.open.iter().rev();
        let mut scope = match own.find(|(bracket, _)| *bracket != '(' || before.is_assigned) {
            // `{host, "127.0.0.1"}` of Erlang is a key with its value.
            Some((_, scope)) if before.is_first => self.scopes.0[*scope].0,
            Some((_, scope)) => *scope,
            None => self.line_scope(),
        };
        let (mut key, mut text) = (before.key(), span.text.clone());
        if let Some((name, value)) = text.split_once('=')
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
            && !value.contains([' ', ';'])
        {
            // `Environment=DB_HOST=127.0.0.1`
            (key, text) = (name.trim_start_matches('-').to_owned(), value.to_owned());
        } else if key.is_empty() || key == "value" {
            if key == "value" && !self.named_by().is_empty() {
                // `name` and `value` are one pair of what is around both.
                scope = self.scopes.0[scope].0;
            }
            // The name of an item of a list, or of a `value` beside a `name`.
            key = if key == "value" { self.named_by() } else { &self.above }.to_owned();
        } else if self.is_xml && !self.is_in_tag {
            // The text of an element, whose name is the key.
            scope = self.scopes.0[scope].0;
        }
        let is_default = key == "default" && before.is_assigned && !self.scopes.name(scope).is_empty();
        if is_default {
            // `DBserver = ['default' => 'localhost']`, and `"db_host": {"default": "localhost"}`
            key = self.scopes.name(scope).to_owned();
            scope = self.scopes.0[scope].0;
        }
        let mut is_option = before.is_option && key.len() == 1;
        if let Some((letter, value)) = attached(&text) {
            (key, text, is_option) = (letter, value, true);
        }
        let (text, unless) = with_defaults(&text);
        Item {
            line: self.line,
            key,
            text,
            unless,
            column: self.before_piece + span.start as u32 + 1,
            scope,
            follows,
            is_beside_a_name: false,
            is_argument,
            is_option,
            is_default,
        }
    }

    /// The `name` to which a `value` belongs.
    fn named_by(&self) -> &str {
        let Last { line, key, text, .. } = &self.last;
        if *line == self.line && matches!(key.as_str(), "name" | "key") { text } else { &self.above }
    }

    fn scope(&self) -> usize {
        self.open.last().map_or_else(|| self.line_scope(), |(_, scope)| *scope)
    }

    fn line_scope(&self) -> usize {
        self.indented.last().map_or(0, |(_, scope)| *scope)
    }

    /// The scope of a line outside of brackets, by how far it is indented; an item of a list and a section begin one.
    fn begin_line(&mut self, code: &str) {
        let line = code.trim();
        let is_section = line.starts_with('[')
            && line.ends_with(']')
            && !line.contains([',', '"', '\'', ':'])
            && !line[1..].starts_with(|first: char| first.is_ascii_digit());
        if is_section {
            self.open.clear();
            self.indented = vec![(0, self.scopes.within(0, line.trim_matches(['[', ']'])))];
            return;
        }
        if !self.open.is_empty() || line.starts_with(is_closing) {
            return;
        }
        let depth = code.len() - code.trim_start().len();
        let item = line.strip_prefix("- ").map(|rest| depth + line.len() - rest.trim_start().len());
        self.indented.retain(|(other, _)| *other <= depth);
        if self.indented.last().is_none_or(|(other, _)| *other < depth) {
            self.indent(depth);
        }
        // An item that is a mapping; `- DB_HOST=127.0.0.1` is one of many of the same.
        let is_mapping =
            line.split([' ', '\t']).nth(1).is_some_and(|first| first.ends_with(':') || first == "-");
        if let Some(inside) = item.filter(|_| is_mapping) {
            self.indent(inside);
        }
    }

    fn indent(&mut self, depth: usize) {
        let around = self.line_scope();
        // The first lines of a text, and those of a section, are as deep as it is.
        let scope =
            if depth == 0 && self.indented.is_empty() { 0 } else { self.scopes.within(around, &self.above) };
        self.indented.push((depth, scope));
    }

    fn brackets_of(&mut self, code: &str, bare: &str, range: Range<usize>) {
        for at in range {
            let next = bare.as_bytes().get(at + 1).copied().unwrap_or_default();
            match bare.as_bytes()[at] {
                b'(' => self.open('(', ""),
                b'[' | b'{' => {
                    let before = code.get(at.saturating_sub(LONGEST_NAME)..at).unwrap_or_default();
                    self.open(char::from(bare.as_bytes()[at]), &Before::of(before).key());
                }
                b')' | b']' | b'}' => drop(self.open.pop()),
                b'<' if self.is_xml && next == b'/' => drop(self.open.pop()),
                b'<' if self.is_xml && next.is_ascii_alphabetic() => {
                    self.open('<', "");
                    self.is_in_tag = true;
                }
                b'>' if self.is_in_tag => {
                    if bare[..at].ends_with('/') {
                        self.open.pop();
                    }
                    self.is_in_tag = false;
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, bracket: char, name: &str) {
        let scope = self.scopes.within(self.scope(), name);
        self.open.push((bracket, scope));
    }
}

const END_OF_POD: &str = "=cut";

/// A line without its comment; `None` where it is one. `ends` is what ends the comment in which it begins.
fn without_comment<'a>(line: &'a str, ends: &mut Option<&'static str>) -> Option<&'a str> {
    let code = line.trim();
    if let Some(end) = *ends {
        if code.contains(end) {
            *ends = None;
        }
        return None;
    }
    // Perl's own documentation.
    if line.starts_with('=') && line[1..].starts_with(|first: char| first.is_ascii_lowercase()) {
        *ends = (!line.starts_with(END_OF_POD)).then_some(END_OF_POD);
        return None;
    }
    // A text of Python that is assigned to nothing says what the code does.
    for (start, end) in [("/*", "*/"), ("\"\"\"", "\"\"\""), ("'''", "'''"), ("<!--", "-->")] {
        if let Some(rest) = code.strip_prefix(start) {
            *ends = if rest.contains(end) { None } else { Some(end) };
            return None;
        }
    }
    if code.is_empty() || is_comment(code) { None } else { Some(code_of(line)) }
}

/// A line up to the comment at its end.
pub(super) fn code_of(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match quote {
            Some(open) if letter == open && before != '\\' => quote = None,
            Some(_) => {}
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            None if !before.is_whitespace() || line[at..].starts_with("#!") => {}
            None if letter == '#' || line[at..].starts_with("// ") || line[at..].starts_with("/* ") => {
                return &line[..at];
            }
            None => {}
        }
        before = letter;
    }
    line
}

/// Whether a line is a directive of a web server that connects to nobody, PHP's `return [...]` being none; or a test of Monit's over
/// UDP: `if failed host 127.0.0.1 port 161 type udp`.
fn is_directive_of_its_own(code: &str) -> bool {
    let first = code.split_whitespace().next().unwrap_or_default();
    if code.trim_start().starts_with("if failed ") && code.contains("type udp") {
        return true;
    }
    // A section of Apache says what holds of an address (`<Proxy fcgi://127.0.0.1:9000>`), and connects nowhere.
    first.starts_with("<Proxy") || (OWN_DIRECTIVES.contains(&first) && !code.contains(['[', '(']))
}

/// The name that a line gives to those below it: `servers:`, `- name: DB_HOST`.
fn name_for_below(code: &str) -> Option<String> {
    let code = code.trim().trim_start_matches("- ");
    let (key, value) = code.split_once(':')?;
    let name = match (key.trim_matches(['"', '\'']), value.trim().trim_matches(['"', '\'', ','])) {
        ("name", value) => value,
        (key, "" | "[" | "|" | ">") => key,
        _ => return None,
    };
    let is_name = !name.is_empty() && name.chars().all(is_of_a_name);
    is_name.then(|| name.to_owned())
}

/// Whether a value is a command: one with options, or with a number that stands alone; or options alone.
fn is_command(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let is_one = words.next().is_some_and(|first| first.starts_with("--") || !first.contains(['=', ':']));
    is_one && words.any(|word| word.starts_with('-') || address::port(word).is_some())
}

/// Whether a value is JSON: an object, or a list of texts.
fn holds_values(text: &str) -> bool {
    text.starts_with(['{', '[']) && text.contains(['"', '\''])
}

/// The value of an option of one letter that is written to it: `-p6379`.
fn attached(word: &str) -> Option<(String, String)> {
    let letter = ["h", "p", "P"]
        .into_iter()
        .find(|letter| word.strip_prefix('-').is_some_and(|rest| rest.starts_with(letter)))?;
    let value = &word[2..];
    let is_its = address::port(value).is_some() || address::host(value).is_some();
    is_its.then(|| (letter.to_owned(), value.to_owned()))
}

/// What is quoted in a line, and the words that are not, in their order; with the line as it is outside of quotes, byte for
/// byte as long.
fn spans(code: &str) -> (Vec<Span>, String) {
    let mut found = Vec::new();
    let mut rest = 0;
    let mut bare = String::new();
    while let Some(open) = code[rest..].find(['"', '\'', '`']).map(|at| rest + at) {
        let quote = &code[open..=open];
        let mut ends = code[open + 1..].match_indices(quote).map(|(at, _)| open + 1 + at);
        let Some(close) = ends.find(|at| !code[..*at].ends_with('\\')) else { break };
        bare.push_str(&code[rest..open]);
        bare.push_str(&" ".repeat(close + 1 - open));
        let text = code[open + 1..close].to_owned();
        // A name in quotes is what is before a value, and no value.
        let behind = &code[close + 1..];
        let after = behind.trim_start();
        // `"127.0.0.1" :port` of Clojure is a value before the next key.
        let is_keyword = behind.starts_with(' ')
            && after.strip_prefix(':').is_some_and(|name| name.starts_with(|one: char| one.is_alphabetic()));
        let after_index = after.strip_prefix(']').map_or(after, str::trim_start);
        if (!after.starts_with(':') || is_keyword) && !after_index.starts_with('=') {
            found.push(Span { start: open, end: close + 1, text, is_quoted: true });
        }
        rest = close + 1;
    }
    bare.push_str(&code[rest..]);
    let mut at = 0;
    for word in bare.split([' ', '\t', ',', '<', '>']) {
        let start = at;
        at += word.len() + 1;
        if !word.is_empty() {
            found.extend(bare_value(word, start));
        }
    }
    found.sort_by_key(|span| span.start);
    (found, bare)
}

/// The value in a word outside of quotes: what is behind its key, without the brackets around it.
fn bare_value(word: &str, start: usize) -> Option<Span> {
    let mut from =
        word.find('=').filter(|equals| !word[..*equals].contains(['/', ':'])).map_or(0, |at| at + 1);
    let is_template = word.contains("${");
    // A term of Erlang ends with a dot.
    let word = word.strip_suffix('.').filter(|term| term.ends_with(is_closing)).unwrap_or(word);
    let closing: &[char] = if is_template { &[';', ']', ')'] } else { &[';', '{', '}', '[', ']', '(', ')'] };
    let end = word.trim_end_matches(closing).len().max(from);
    // `{port:6379`, `:6379` behind a name in quotes, `Redis(6379`
    if let Some(at) = word[from..end].rfind(['(', '[', '{', ':']).map(|at| from + at)
        && address::port(&word[at + 1..end]).is_some()
    {
        let name = word[from..at].trim_end_matches(is_opening);
        let is_key = word[at..].starts_with(':') && (name.is_empty() || is_of_port(name));
        if is_key || !word[at..].starts_with(':') {
            from = at + 1;
        }
    }
    let is_address = word[from..end].starts_with('[') && word.contains("]:");
    if !is_template && !is_address {
        from = end - word[from..end].trim_start_matches(|one| is_opening(one) || one == ';').len();
    }
    let text = word[from..end].to_owned();
    (!text.is_empty()).then(|| Span { start: start + from, end: start + end, text, is_quoted: false })
}

fn is_closing(letter: char) -> bool {
    matches!(letter, ')' | ']' | '}')
}

fn is_opening(letter: char) -> bool {
    matches!(letter, '(' | '[' | '{' | ')' | ']' | '}')
}

/// Ends of keys whose values are ports: JDBC's data sources have `portNumber`, Envoy `port_value`, ThinkPHP `hostport`.
pub(super) const PORTS: &[&str] = &["portnumber", "port_value", "hostport", "port"];

/// Whether a key says that its value is where a server is, of which another value is the port.
pub(super) fn is_of_host(item: &Item) -> bool {
    let key = item.key.to_ascii_lowercase();
    !item.text.is_empty() && ((item.is_option && key == "h") || PLACES.iter().any(|end| key.ends_with(end)))
}

/// Words that end as those do.
const NO_PORTS: &[&str] = &["support", "report", "import", "export", "transport"];

/// Whether a key says that its value is a port.
pub(super) fn is_of_port(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    PORTS.iter().any(|end| key.ends_with(end)) && !NO_PORTS.iter().any(|word| key.ends_with(word))
}

/// Words of names whose values are addresses, where nothing but a comma is between both: `define('DB_HOST', …)`.
const NAMING: &[&str] =
    &["host", "server", "addr", "url", "uri", "dsn", "port", "path", "sock", "connection", "broker", "cache"];

/// Whether a text before a comma is the name of what follows: a variable, or a word of an address.
fn is_name(text: &str) -> bool {
    let is_plain = !text.is_empty() && text.chars().all(is_of_a_name);
    let is_variable = text.contains('_') && !text.contains(|one: char| one.is_ascii_lowercase());
    let lower = text.to_ascii_lowercase();
    is_plain
        && (is_variable || NAMING.iter().any(|word| lower.contains(word)))
        && address::host(text).is_none()
}

/// The last name in the text before a value, with how it stands there.
struct Before<'a> {
    name: &'a str,
    is_assigned: bool,
    is_option: bool,
    /// Whether it begins a pair of brackets, and a comma follows.
    is_first: bool,
}

impl<'a> Before<'a> {
    fn of(before: &'a str) -> Self {
        let end = before.trim_end_matches(|letter: char| !is_of_a_name(letter));
        let start = end
            .rfind(|letter: char| !is_of_a_name(letter))
            .map_or(0, |at| at + end[at..].chars().next().map_or(1, char::len_utf8));
        let name = &end[start..];
        let is_option = name.len() == 2 && name.starts_with('-');
        let (ahead, behind) = (&end[..start], before[end.len()..].trim());
        let is_first = ahead.ends_with(['{', '[']) && behind == "," && !name.is_empty();
        Before { name, is_assigned: behind.contains(['=', ':']), is_option, is_first }
    }

    fn key(&self) -> String {
        self.name.trim_matches(['-', '.']).to_owned()
    }
}
