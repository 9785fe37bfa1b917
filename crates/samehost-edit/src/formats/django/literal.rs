//! Python literals in a text, with their positions. Anything but a plain literal is code, and is not examined.

use std::collections::HashSet;
use std::ops::Range;

use tree_sitter::{Node, Parser, Tree};

/// A Python text and its syntax.
pub(super) struct Source {
    pub(super) text: Vec<u8>,
    tree: Tree,
}

/// A value.
pub(super) enum Value<'a> {
    /// A text without escapes, and the range inside its quotes.
    Text(String, Range<usize>),
    /// A whole number, and its bytes.
    Number(String, Range<usize>),
    /// None.
    Nothing,
    /// Keys with their values, in order.
    Dict(Vec<(String, Node<'a>)>),
    /// Values in order.
    List(Vec<Node<'a>>),
    /// All else.
    Code,
}

impl Source {
    /// Reads a text; fails with the line where Python would.
    pub(super) fn parse(text: Vec<u8>) -> Result<Source, u32> {
        let mut parser = Parser::new();
        parser.set_language(&tree_sitter_python::LANGUAGE.into()).map_err(|_| 0u32)?;
        let tree = parser.parse(&text, None).ok_or(0u32)?;
        let source = Source { text, tree };
        match source.all().into_iter().find(|node| node.is_error() || node.is_missing()) {
            Some(error) => Err(line(error)),
            None => Ok(source),
        }
    }

    pub(super) fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    /// Every node, in the order of the text.
    pub(super) fn all(&self) -> Vec<Node<'_>> {
        let (mut found, mut open) = (Vec::new(), vec![self.root()]);
        while let Some(node) = open.pop() {
            found.push(node);
            let mut cursor = node.walk();
            let mut children: Vec<Node<'_>> = node.children(&mut cursor).collect();
            children.reverse();
            open.extend(children);
        }
        found
    }

    pub(super) fn bytes(&self, node: Node<'_>) -> &[u8] {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    /// Its text, for messages and comparisons.
    pub(super) fn written(&self, node: Node<'_>) -> String {
        String::from_utf8_lossy(self.bytes(node)).into_owned()
    }

    /// The value of an expression.
    pub(super) fn value<'a>(&'a self, node: Node<'a>) -> Value<'a> {
        match node.kind() {
            "string" => self.string(node).map_or(Value::Code, |(text, range)| Value::Text(text, range)),
            "integer" => {
                let text = self.written(node);
                if text.bytes().all(|byte| byte.is_ascii_digit()) {
                    Value::Number(text, node.byte_range())
                } else {
                    Value::Code
                }
            }
            "none" => Value::Nothing,
            "dictionary" => self.dictionary(node).map_or(Value::Code, Value::Dict),
            "list" | "tuple" => {
                let mut cursor = node.walk();
                let values =
                    node.named_children(&mut cursor).filter(|child| child.kind() != "comment").collect();
                Value::List(values)
            }
            "parenthesized_expression" => {
                let mut cursor = node.walk();
                let inner = node.named_children(&mut cursor).find(|child| child.kind() != "comment");
                inner.map_or(Value::Code, |inner| self.value(inner))
            }
            _ => Value::Code,
        }
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
        let mut cursor = node.walk();
        let (mut pairs, mut keys): (Vec<(String, Node<'a>)>, _) = (Vec::new(), HashSet::new());
        for pair in node.named_children(&mut cursor).filter(|child| child.kind() != "comment") {
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

/// The line of a node, from 1.
pub(super) fn line(node: Node<'_>) -> u32 {
    u32::try_from(node.start_position().row + 1).unwrap_or(u32::MAX)
}
