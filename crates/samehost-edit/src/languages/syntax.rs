//! Syntax trees of programs by tree-sitter, and the ways through them. What the parser does and what is walked is counted.

use std::ops::ControlFlow;

use tree_sitter::{Language, Node, ParseOptions, Parser, Tree};

use crate::budget;

/// Steps of a hundred operations of the parser, after which it asks, and the bytes that they make: 180 each. It was 130 with
/// ordinary lines and with a hundred thousand brackets, and 170 with as many signs and words of Python before one value.
const STEPS: usize = 3_000;
const BYTES: usize = 18_000;
/// Bytes that the parser gets at a time, and the steps to look through them.
const PIECE: usize = 1024;
const STEPS_TO_A_PIECE: usize = 3_000;
/// Steps to go to a node.
const STEPS_TO_A_NODE: usize = 10;

/// The tree of a text; `None` where the parser gives up, or takes more than it may: brackets that stay open, one in the other,
/// make it try so many ways that 20,000 of them took 20 s.
pub(crate) fn tree(language: &Language, text: &[u8]) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(language).ok()?;
    let mut count = |_: &tree_sitter::ParseState| {
        if budget::step(STEPS) && budget::hold(BYTES) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let options = ParseOptions::new().progress_callback(&mut count);
    // In pieces: a language's own scanner may look ahead to the end at each byte, which nobody else sees. It stops where the
    // text does.
    let mut piece = |at: usize, _| {
        let end = if budget::step(STEPS_TO_A_PIECE) { at.saturating_add(PIECE).min(text.len()) } else { at };
        text.get(at..end).unwrap_or_default()
    };
    parser.parse_with_options(&mut piece, None, Some(options))
}

/// A node and all its descendants, in the order of the text. Not recursive: a file may nest to any depth.
pub(crate) fn walk(top: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let mut cursor = top.walk();
    let (mut first, mut done) = (true, false);
    std::iter::from_fn(move || {
        if std::mem::take(&mut first) {
            return Some(cursor.node());
        }
        if done || !budget::step(STEPS_TO_A_NODE) {
            return None;
        }
        if cursor.goto_first_child() {
            return Some(cursor.node());
        }
        loop {
            if cursor.goto_next_sibling() {
                return Some(cursor.node());
            }
            if !cursor.goto_parent() {
                done = true;
                return None;
            }
        }
    })
}

/// The children of a node, without comments and punctuation.
pub(crate) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    budget::step(STEPS_TO_A_NODE * (node.child_count() as usize + 1));
    let mut cursor = node.walk();
    node.named_children(&mut cursor)
        .filter(|child| !matches!(child.kind(), "comment" | "text_interpolation"))
        .collect()
}
