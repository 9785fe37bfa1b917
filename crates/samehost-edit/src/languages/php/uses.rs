//! Finds other uses of what an edit would change: they would change with it.

use tree_sitter::Node;

use super::run::Outcome;
use super::source::{Source, is_in_word, walk};
use super::value::Trouble;

/// The first place that reads a constant.
pub(crate) fn constant_used(outcome: &Outcome, name: &str) -> Option<Trouble> {
    first(outcome, |source, node| {
        let defines =
            |parent: Node<'_>| matches!(parent.kind(), "const_element" | "class_constant_access_expression");
        let read = match node.kind() {
            "name" => source.of(node) == name.as_bytes() && !node.parent().is_some_and(defines),
            // constant('DB_HOST')
            "function_call_expression" => {
                let text = source.of(node);
                text.len() > 8
                    && text[..8].eq_ignore_ascii_case(b"constant")
                    && text.windows(name.len()).any(|part| part == name.as_bytes())
            }
            _ => false,
        };
        read.then(|| format!("{name} is used for something else here, which would change with it"))
    })
}

/// The first place that reads a variable, or an element of it, other than to test whether it is set.
pub(crate) fn variable_used(outcome: &Outcome, variable: &str) -> Option<Trouble> {
    first(outcome, |source, node| {
        if node.kind() != "variable_name" || source.of(node) != variable.as_bytes() {
            return None;
        }
        let mut whole = node;
        while let Some(parent) = node_above(whole).filter(|parent| parent.kind() == "subscript_expression") {
            whole = parent;
        }
        let above = node_above(whole)?;
        let set = above.kind() == "assignment_expression" && above.child_by_field_name("left") == Some(whole);
        (!set && !is_isset(source, above))
            .then(|| format!("{variable} is used for something else here, which would change with it"))
    })
}

/// Whether a node is what an assignment sets.
fn is_assigned(above: Node<'_>, left: Node<'_>) -> bool {
    above.kind() == "assignment_expression" && above.child_by_field_name("left") == Some(left)
}

/// The first place that reads one of these properties of an object, or takes the object as a whole, which may then be
/// changed under another name.
pub(crate) fn property_used(outcome: &Outcome, object: &str, properties: &[&str]) -> Option<Trouble> {
    first(outcome, |source, node| {
        if node.kind() != "variable_name" || source.of(node).strip_prefix(b"$") != Some(object.as_bytes()) {
            return None;
        }
        let parent = node.parent()?;
        if parent.kind() != "member_access_expression" {
            let is_harmless = match parent.kind() {
                "global_declaration" | "unset_statement" => true,
                "argument" => is_isset(source, parent),
                _ => is_assigned(parent, node),
            };
            return (!is_harmless).then(|| {
                format!("${object} is taken as a whole here, and may be changed under another name")
            });
        }
        let name = parent.child_by_field_name("name").map(|name| source.of(name))?;
        let is_dynamic = parent.child_by_field_name("name").is_some_and(|name| name.kind() != "name");
        if !is_dynamic && !properties.iter().any(|property| name == property.as_bytes()) {
            return None;
        }
        let mut whole = parent;
        while let Some(above) = node_above(whole).filter(|above| above.kind() == "subscript_expression") {
            whole = above;
        }
        let above = node_above(whole)?;
        (!is_assigned(above, whole) && !is_isset(source, above)).then(|| {
            format!(
                "${object}->{} is used for something else here, which would change with it",
                String::from_utf8_lossy(name)
            )
        })
    })
}

/// Whether an argument is that of isset() or empty().
fn is_isset(source: &Source, argument: Node<'_>) -> bool {
    let call = argument.parent().and_then(|list| list.parent());
    let name = call.and_then(|call| call.child_by_field_name("function"));
    argument.kind() == "argument"
        && name.is_some_and(|name| {
            matches!(source.of(name).to_ascii_lowercase().as_slice(), b"isset" | b"empty")
        })
}

/// The parent node, if this one is its subject and not an index.
fn node_above(node: Node<'_>) -> Option<Node<'_>> {
    let parent = node.parent()?;
    let index = parent.kind() == "subscript_expression" && parent.named_child(0) != Some(node);
    if index { None } else { Some(parent) }
}

fn first(outcome: &Outcome, found: impl Fn(&Source, Node<'_>) -> Option<String>) -> Option<Trouble> {
    outcome.sources.iter().find_map(|source| {
        walk(source.root()).find_map(|node| Some(source.trouble(node, found(source, node)?)))
    })
}

/// Whether a variable appears in the files exactly twice: where it is set, and where it is read.
pub(crate) fn once(outcome: &Outcome, variable: &[u8]) -> bool {
    let Some(name) = variable.strip_prefix(b"$").filter(|name| name.iter().copied().all(is_in_word)) else {
        return false;
    };
    outcome.sources.iter().map(|source| source.count(name)).sum::<usize>() == 2
}
