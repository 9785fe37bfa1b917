//! Python literals in a text, with their positions, and where a setting gets its value: in one statement, or it is not
//! understood. Anything but a plain literal is code, and is not examined.

use std::collections::HashSet;
use std::ops::Range;

use tree_sitter::{Node, Tree};

use super::Settings;
use crate::files::Files;
use crate::languages::syntax::{self, children, walk};
use crate::refusal::{Refusal, Result};

/// dj_database_url's call, whose default is a URL.
pub(super) const OF_A_URL: &str = "dj_database_url.config";
/// Calls that ask the environment for a variable: Python's own, django-environ's and decouple's.
const ASK: &[&str] = &[
    OF_A_URL, "os.environ.get", "environ.get", "os.getenv", "getenv", "env", "env.str", "env.int", "config",
];

pub(super) struct Source {
    pub(super) text: Vec<u8>,
    tree: Tree,
}

pub(super) enum Value<'a> {
    /// A text without escapes, and the range inside its quotes.
    Text(String, Range<usize>),
    /// A whole number, and its bytes.
    Number(String, Range<usize>),
    Nothing,
    Dict(Vec<(String, Node<'a>)>),
    List(Vec<Node<'a>>),
    Code,
}

impl Source {
    /// Reads a text; fails with the line where Python would.
    pub(super) fn parse(text: Vec<u8>) -> Result<Source, u32> {
        let tree = syntax::tree(&tree_sitter_python::LANGUAGE.into(), &text).ok_or(0u32)?;
        let source = Source { text, tree };
        let error = walk(source.root()).find(|node| node.is_error() || node.is_missing()).map(line);
        error.map_or(Ok(source), Err)
    }

    pub(super) fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    pub(super) fn bytes(&self, node: Node<'_>) -> &[u8] {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    pub(super) fn written(&self, node: Node<'_>) -> String {
        String::from_utf8_lossy(self.bytes(node)).into_owned()
    }

    pub(super) fn value<'a>(&'a self, mut node: Node<'a>) -> Value<'a> {
        // There may be as many brackets as bytes.
        while node.kind() == "parenthesized_expression" {
            let Some(inner) = children(node).first().copied() else { return Value::Code };
            node = inner;
        }
        match node.kind() {
            "string" => self.string(node).map_or(Value::Code, |(text, range)| Value::Text(text, range)),
            "integer" if self.bytes(node).iter().all(u8::is_ascii_digit) => {
                Value::Number(self.written(node), node.byte_range())
            }
            "none" => Value::Nothing,
            "dictionary" => self.dictionary(node).map_or(Value::Code, Value::Dict),
            "list" | "tuple" => Value::List(children(node)),
            _ => Value::Code,
        }
    }

    /// The variable that a call asks the environment for, and the default beside it: `os.environ.get('DB_HOST', '127.0.0.1')`,
    /// `env('DB_HOST', default='127.0.0.1')`, also within `int(…)`; what dj_database_url asks for unless it is told.
    pub(super) fn given<'a>(&'a self, mut node: Node<'a>) -> Option<(String, Node<'a>)> {
        let function = |node: Node<'a>| Some(self.written(node.child_by_field_name("function")?));
        let arguments = |node: Node<'a>| Some(children(node.child_by_field_name("arguments")?));
        while node.kind() == "call" && function(node)? == "int" {
            node = *arguments(node)?.first()?;
        }
        let (function, all) = (function(node)?, arguments(node)?);
        let (named, placed): (Vec<Node<'a>>, Vec<Node<'a>>) =
            all.into_iter().partition(|one| one.kind() == "keyword_argument");
        let named = |name: &str| {
            let is_it = |one: &&Node<'a>| {
                one.child_by_field_name("name").is_some_and(|own| self.bytes(own) == name.as_bytes())
            };
            named.iter().find(is_it)?.child_by_field_name("value")
        };
        let default = named("default").or(placed.get(1).copied())?;
        let variable = match named("env").or(placed.first().copied()).map(|node| self.value(node)) {
            Some(Value::Text(variable, _)) => variable,
            None if function == OF_A_URL => "DATABASE_URL".to_owned(),
            _ => return None,
        };
        ASK.contains(&function.as_str()).then_some((variable, default))
    }

    /// Whether a node is the call that reads a database's URL from the environment.
    pub(super) fn is_of_a_url(&self, node: Node<'_>) -> bool {
        node.child_by_field_name("function").is_some_and(|own| self.bytes(own) == OF_A_URL.as_bytes())
    }

    fn string(&self, node: Node<'_>) -> Option<(String, Range<usize>)> {
        let text = std::str::from_utf8(self.bytes(node)).ok()?;
        let quote = text.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
        let inside = text.strip_prefix(quote)?.strip_suffix(quote)?;
        // Triple quotes, escapes and line breaks are not edited.
        if inside.contains(['\\', '\'', '"', '\n', '\r']) {
            return None;
        }
        Some((inside.to_owned(), node.start_byte() + 1..node.end_byte() - 1))
    }

    fn dictionary<'a>(&'a self, node: Node<'a>) -> Option<Vec<(String, Node<'a>)>> {
        let (mut pairs, mut keys): (Vec<(String, Node<'a>)>, _) = (Vec::new(), HashSet::new());
        for pair in children(node) {
            // `**other` is code.
            let (key, value) = (pair.child_by_field_name("key")?, pair.child_by_field_name("value")?);
            let Value::Text(key, _) = self.value(key) else { return None };
            if !keys.insert(key.clone()) {
                return None;
            }
            pairs.push((key, value));
        }
        Some(pairs)
    }
}

pub(super) fn line(node: Node<'_>) -> u32 {
    u32::try_from(node.start_position().row + 1).unwrap_or(u32::MAX)
}

/// Functions that run other code, or hand out the names of this one.
const RUN_CODE: [&[u8]; 5] = [b"exec", b"execfile", b"include", b"globals", b"locals"];

impl Settings<'_> {
    /// Value of a name that a single statement assigns and nothing else touches.
    pub(super) fn only(&self, name: &str) -> Result<Option<Node<'_>>> {
        let source = &self.source;
        let mut mentions = walk(source.root())
            .filter(|node| node.kind() == "identifier" && source.bytes(*node) == name.as_bytes());
        let Some(first) = mentions.next() else { return Ok(None) };
        let by_hand = format!("{name} written out once, at the end of the file");
        let written = assigned(first);
        let other = if written.is_none() { Some(first) } else { mentions.next() };
        if let Some(other) = other {
            let reason = format!("{name} is changed or used by other code");
            return Err(Refusal::at(line(other), reason).by_hand(by_hand));
        }
        let Some((value, statement)) = written else { return Ok(None) };
        match self.later(statement, name) {
            Some((at, module)) => {
                Err(Refusal::at(at, format!("{module} below may set {name} anew")).by_hand(by_hand))
            }
            None => Ok(Some(value)),
        }
    }

    /// A later line that may set the name: a wildcard import, or code that runs other code.
    fn later(&self, statement: Node<'_>, name: &str) -> Option<(u32, String)> {
        let source = &self.source;
        for node in walk(source.root()) {
            if node.start_byte() <= statement.end_byte() {
                continue;
            }
            let called = if node.kind() == "call" { node.child_by_field_name("function") } else { None };
            if called.is_some_and(|function| RUN_CODE.contains(&source.bytes(function))) {
                return Some((line(node), source.written(node)));
            }
            let mut cursor = node.walk();
            let stars = node.kind() == "import_from_statement"
                && node.children(&mut cursor).any(|child| child.kind() == "wildcard_import");
            if !stars {
                continue;
            }
            let module = node.child_by_field_name("module_name");
            let module = module.map(|module| source.written(module)).unwrap_or_default();
            let plain = module.trim_start_matches('.');
            let file = format!("{}.py", plain.rsplit('.').next().unwrap_or_default());
            let one_dot = module.len() - plain.len() <= 1 && !plain.is_empty();
            let harmless = match self.file.parent().map(|folder| self.files.read(&folder.join(file))) {
                Some(Ok(text)) => one_dot && !String::from_utf8_lossy(&text).contains(name),
                // `from .local import *` of a module that does not exist.
                Some(Err(_)) => module.starts_with('.') && one_dot && !plain.contains('.'),
                None => false,
            };
            if !harmless {
                return Some((line(node), module));
            }
        }
        None
    }
}

/// Value and statement of a name on the left of an assignment at module level.
fn assigned(node: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let assignment = node.parent().filter(|parent| parent.kind() == "assignment")?;
    let statement = assignment.parent().filter(|parent| parent.kind() == "expression_statement")?;
    statement.parent().filter(|parent| parent.kind() == "module")?;
    assignment.child_by_field_name("left").filter(|left| left.id() == node.id())?;
    let value = assignment.child_by_field_name("right").filter(|right| right.kind() != "assignment")?;
    Some((value, statement))
}
