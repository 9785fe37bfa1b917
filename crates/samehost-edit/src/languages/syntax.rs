//! Ways through a syntax tree of tree-sitter, whatever its language.

use tree_sitter::Node;

/// A node and all its descendants, in the order of the text. Not recursive: a file may nest to any depth.
pub(crate) fn walk(top: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let mut cursor = top.walk();
    let (mut first, mut done) = (true, false);
    std::iter::from_fn(move || {
        if std::mem::take(&mut first) {
            return Some(cursor.node());
        }
        if done {
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
    let mut cursor = node.walk();
    node.named_children(&mut cursor)
        .filter(|child| !matches!(child.kind(), "comment" | "text_interpolation"))
        .collect()
}
